//! `segue test`: end-to-end cases, their results, and their recordings.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use segue::{
    clock::{Clock, SystemClock},
    e2e::{self, Options, Outcome, RecordingMode, Results, RunError, Runner, Selection, report},
    limits,
    project::{Finding, Severity, Texts, findings_report},
};

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    check::Format,
    logging::log,
    output,
    project_args::{ProjectArgs, ProjectPaths, is_project},
};

/// The file of results, where none is named.
const RESULTS: &str = "e2e_results.yml";

#[derive(clap::Args)]
pub(super) struct Args {
    /// Files, folders, or `file.yml::name of a case`; the project's own folder of tests unless set
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    /// The project's folder
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    parts: ProjectPaths,
    /// Stop after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// Only cases whose name contains this text
    #[arg(short = 'k', long = "keyword", value_name = "TEXT")]
    part: Option<String>,
    /// Cases that run at the same time
    #[arg(short, long, value_name = "N", default_value_t = limits::TEST_JOBS)]
    jobs: usize,
    /// How often each case runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Record the responses of models, tools and actions into this folder
    #[arg(long, value_name = "FOLDER", help_heading = "Recordings", conflicts_with_all = ["replay", "repeat"])]
    record: Option<PathBuf>,
    /// Replay responses from this folder; no external calls
    #[arg(long, value_name = "FOLDER", help_heading = "Recordings")]
    replay: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value = "text", help_heading = "Results")]
    format: Format,
    /// Write the results as JUnit's XML
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    junit: Option<PathBuf>,
    /// Write the results of all cases as YAML; the file, where one is named, follows after `=`
    #[arg(short = 'o', long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = RESULTS, help_heading = "Results")]
    e2e_results: Option<PathBuf>,
    /// Write the cases that failed as files that can be run; the file or folder, where one is named, follows after `=`
    #[arg(short = 'f', long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = ".", help_heading = "Results")]
    e2e_failed_tests: Option<PathBuf>,
    /// Show which steps of the flows were executed
    #[arg(long, alias = "coverage-report", help_heading = "Results")]
    coverage: bool,
    /// Write that into this folder, as coverage.txt and coverage.json
    #[arg(long, value_name = "FOLDER", help_heading = "Results")]
    coverage_output_path: Option<PathBuf>,
    /// Log more
    #[arg(long)]
    debug: bool,
    /// Accepted and not needed: projects are not trained
    #[arg(short, long, value_name = "PATH", hide = true)]
    model: Option<String>,
    /// Accepted and not needed: projects are not trained
    #[arg(long, value_name = "NAME", hide = true)]
    remote_storage: Option<String>,
}

/// Runs the cases. 1 when one failed or a file of cases has errors, 3 when one could not run.
pub(super) async fn test(mut args: Args) -> CommandResult {
    log(if args.debug { "debug" } else { "error" })?;
    if let Some(code) = handle_rasa_syntax(&mut args) {
        return Ok(code);
    }
    // A test's path is never a project's folder, so one that is names the project, as with all other commands.
    if args.project.as_os_str() == "."
        && let Some(at) = args.paths.iter().position(|path| is_project(Path::new(path)))
    {
        args.project = args.paths.remove(at).into();
    }
    for path in [results_path(&args), args.e2e_failed_tests.as_deref().map(|path| failed_path(path, 0))] {
        path.as_deref().map_or(Ok(()), spared)?;
    }
    let place = ProjectArgs { project: args.project.clone(), parts: args.parts.clone() };
    let opened = match place.opened()? {
        Ok(opened) => opened,
        Err((errors, texts)) => {
            show_findings(&errors, &texts, &args)?;
            return Ok(EXIT_FINDINGS);
        }
    };
    let selection = Selection::read(&place.project, &args.paths, opened.project.config.folders.tests.as_deref());
    let mut runner = Runner::new(opened.project.clone(), place.project.clone(), place.places());
    let (mut findings, texts) = (selection.findings().0.to_vec(), selection.findings().1);
    let planned = match runner.plan(&selection, args.part.as_deref()) {
        Ok((planned, more)) => {
            findings.extend(more);
            findings.sort_by(|a, b| a.place.cmp(&b.place));
            planned
        }
        Err(RunError::Findings(errors, texts)) => {
            show_findings(&errors, &texts, &args)?;
            output::status("the project has errors with the endpoints that these cases name");
            return Ok(EXIT_FINDINGS);
        }
        Err(error @ RunError::Folder(_)) => return Err(error.into()),
    };
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        show_findings(&findings, texts, &args)?;
        let has_no_file = args.e2e_results.as_deref() == Some(Path::new(RESULTS))
            || args.e2e_failed_tests.as_deref() == Some(Path::new("."));
        if has_no_file && args.paths.iter().any(|path| !path.contains("::") && !Path::new(path).exists()) {
            output::status("the file of an option of results follows after `=`: `-o=FILE`, `-f=FILE`; paths are tests");
        }
        return Ok(EXIT_FINDINGS);
    }
    if planned.is_empty() {
        output::status("no test cases found; pass files or folders, or set `tests` in config.yml");
        if args.format == Format::Json {
            output::println(&report::json(&Results::default(), &findings, None).to_string())?;
        }
        return Ok(EXIT_USAGE);
    }
    if args.format == Format::Text && !findings.is_empty() {
        output::eprint(&findings_report::all(&findings, texts));
    }
    if args.replay.is_none() {
        opened.warn_about_scripted_models();
    }
    let covers = args.coverage || args.coverage_output_path.is_some();
    let shows = args.format == Format::Text;
    let mut trouble = None;
    let results = runner
        .run(&planned, &options(&args), covers, |result| {
            if shows && let Err(error) = output::print(&output::strip_control_characters(&report::text(result))) {
                trouble.get_or_insert(error);
            }
        })
        .await;
    if let Some(error) = trouble {
        return Err(error.into());
    }
    let coverage = covers.then(|| runner.coverage(&results));
    match args.format {
        Format::Text => {
            if let Some(coverage) = coverage.as_ref().filter(|_| args.coverage) {
                output::print(&coverage_text(coverage))?;
            }
            output::print(&report::summary(&results))?;
        }
        Format::Json => output::println(&report::json(&results, &findings, coverage.as_ref()).to_string())?,
    }
    write(&args, &results, coverage.as_ref())?;
    Ok(match () {
        () if results.count(Outcome::NotRun) > 0 => EXIT_ERROR,
        () if !results.is_fine() => EXIT_FINDINGS,
        () => 0,
    })
}

/// `test e2e PATH` as hands know it, and what is not there.
fn handle_rasa_syntax(args: &mut Args) -> Option<u8> {
    match args.paths.first().map(String::as_str) {
        Some("e2e") => drop(args.paths.remove(0)),
        Some("du") if !Path::new("du").exists() => {
            output::status(
                "`test du` is not there yet; `segue test` runs end-to-end cases, and `segue trace` shows which commands a message gave",
            );
            return Some(EXIT_USAGE);
        }
        Some(word @ ("nlu" | "core")) if !Path::new(word).exists() => {
            output::status(&format!("`test {word}` is for projects with trained models; there are none here"));
            return Some(EXIT_USAGE);
        }
        _ => {}
    }
    for (given, flag) in [(&args.model, "--model"), (&args.remote_storage, "--remote-storage")] {
        if given.is_some() {
            output::status(&format!("{flag} is not needed: projects run as they are, without training"));
        }
    }
    None
}

fn options(args: &Args) -> Options {
    let tape = match (&args.record, &args.replay) {
        (Some(folder), _) => RecordingMode::Record(folder.clone()),
        (None, Some(folder)) => RecordingMode::Replay(folder.clone()),
        (None, None) => RecordingMode::Live,
    };
    Options { jobs: args.jobs, fail_fast: args.fail_fast, tape, repeat: args.repeat }
}

fn show_findings(findings: &[Finding], texts: &Texts, args: &Args) -> std::io::Result<()> {
    match args.format {
        Format::Text => {
            output::eprint(&findings_report::all(findings, texts));
            output::status("no case was run; `segue explain CODE` explains an error");
            Ok(())
        }
        Format::Json => output::println(&report::json(&Results::default(), findings, None).to_string()),
    }
}

fn coverage_text(coverage: &e2e::Coverage) -> String {
    let mut text = format!("by {} cases that passed\n{}", coverage.passed.cases, coverage.passed.text());
    if coverage.failed.cases > 0 {
        text.push_str(&format!("by {} cases that did not\n{}", coverage.failed.cases, coverage.failed.text()));
    }
    text
}

fn write(args: &Args, results: &Results, coverage: Option<&e2e::Coverage>) -> anyhow::Result<()> {
    if let Some(path) = &args.junit {
        put(path, &report::junit(results))?;
    }
    if let Some(path) = results_path(args) {
        spared(&path)?;
        put(&path, &report::result_file(results))?;
    }
    if let Some(path) = &args.e2e_failed_tests {
        let files = report::failed_files(results);
        for (number, text) in files.iter().enumerate() {
            let path = failed_path(path, number);
            spared(&path)?;
            put(&path, &format!("{WRITTEN}\n{text}"))?;
        }
    }
    if let (Some(folder), Some(coverage)) = (&args.coverage_output_path, coverage) {
        put(&folder.join("coverage.txt"), &coverage_text(coverage))?;
        put(&folder.join("coverage.json"), &format!("{}\n", serde_json::to_string_pretty(coverage)?))?;
    }
    Ok(())
}

/// The first line of a file of failed cases: only such a file of cases may be written over.
const WRITTEN: &str = "# Written by `segue test`: the cases that failed.";

/// Refuses to write over cases that somebody wrote.
fn spared(path: &Path) -> anyhow::Result<()> {
    // What cannot be read will not be written either, and the reason is told then.
    let there = fs::read_to_string(path).unwrap_or_default();
    let has_cases = there.lines().any(|line| line.starts_with("test_cases:"));
    if has_cases && there.lines().next() != Some(WRITTEN) {
        bail!("{} holds test cases and is not written over; name another file for the results", path.display());
    }
    Ok(())
}

fn results_path(args: &Args) -> Option<PathBuf> {
    let path = args.e2e_results.as_ref()?;
    Some(if path.is_dir() { path.join(RESULTS) } else { path.clone() })
}

/// The file for the `number`th text: the one that was named, or one with a name of its own in the folder that was named.
fn failed_path(given: &Path, number: usize) -> PathBuf {
    let more = if number == 0 { String::new() } else { format!("_{}", number + 1) };
    if given.extension().is_some_and(|extension| extension == "yml" || extension == "yaml") {
        let stem = given.file_stem().unwrap_or_default().to_string_lossy();
        return given.with_file_name(format!("{stem}{more}.yml"));
    }
    let at = SystemClock.now().to_utc().format("%Y%m%d-%H%M%S");
    given.join(format!("e2e_failed_tests_{at}{more}.yml"))
}

fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    }
    fs::write(path, text).map_err(|error| anyhow!("{} cannot be written: {error}", path.display()))
}
