//! `segue test`: runs end-to-end test cases and writes their results and recordings.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use segue::{
    clock::{Clock, SystemClock},
    e2e::{self, CaseOutcome, RecordingMode, Results, Runner, Selection, TestOptions, TestRunError, report},
    limits,
    project::{Finding, Severity, Sources, findings_report},
};

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    check::Format,
    logging::init_logging,
    output,
    project_args::{ProjectArgs, ProjectPaths, is_project},
    rasa_compat,
};

/// The default name of the result file.
const DEFAULT_RESULTS: &str = "e2e_results.yml";

#[derive(clap::Args)]
pub(super) struct Args {
    /// Files, folders, or `file.yml::name of a case`; the test folders of the project unless set
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    /// The project's folder
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    project_paths: ProjectPaths,
    /// Stop after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// Only cases whose name contains this text
    #[arg(short = 'k', long, value_name = "TEXT")]
    keyword: Option<String>,
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
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    junit: Option<PathBuf>,
    /// Write the results of all cases as YAML to a file, as in `-o=FILE`
    #[arg(short = 'o', long = "results", visible_alias = "e2e-results", value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_RESULTS, help_heading = "Results")]
    e2e_results: Option<PathBuf>,
    /// Write the failed cases as test files to a file or folder, as in `-f=FOLDER`
    #[arg(short = 'f', long = "failed", visible_alias = "e2e-failed-tests", value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = ".", help_heading = "Results")]
    e2e_failed_tests: Option<PathBuf>,
    /// Show which steps of the flows were executed
    #[arg(long, alias = "coverage-report", help_heading = "Results")]
    coverage: bool,
    /// Write the coverage into this folder, as coverage.txt and coverage.json
    #[arg(long, value_name = "FOLDER", help_heading = "Results")]
    coverage_output_path: Option<PathBuf>,
    /// Log at level `debug`
    #[arg(long)]
    debug: bool,
    #[command(flatten)]
    logging: rasa_compat::IgnoredLogging,
    /// Ignored: there are no trained models
    #[arg(short, long, value_name = "PATH", hide = true)]
    model: Option<String>,
    /// Ignored: there are no trained models
    #[arg(long, value_name = "NAME", hide = true)]
    remote_storage: Option<String>,
}

/// Runs the cases. The exit code is 1 if a case failed or a file has errors, 2 if no case was found, and 3 if a case could not run.
pub(super) async fn test(mut args: Args) -> CommandResult {
    init_logging(if args.debug { "debug" } else { "error" })?;
    args.logging.warn_if(false);
    if let Some(code) = handle_rasa_syntax(&mut args) {
        return Ok(code);
    }
    // A path that is a project folder selects the project, as in other commands: it cannot be a folder of tests.
    if args.project.as_os_str() == "."
        && let Some(at) = args.paths.iter().position(|path| is_project(Path::new(path)))
    {
        args.project = args.paths.remove(at).into();
    }
    for path in [results_path(&args), args.e2e_failed_tests.as_deref().map(|path| failed_path(path, 0))] {
        path.as_deref().map_or(Ok(()), check_not_a_test_file)?;
    }
    let project_args = ProjectArgs { folder: args.project.clone(), paths: args.project_paths.clone() };
    let opened = match project_args.try_open()? {
        Ok(opened) => opened,
        Err((errors, texts)) => {
            show_findings(&errors, &texts, &args)?;
            return Ok(EXIT_FINDINGS);
        }
    };
    let selection = Selection::read(&project_args.folder, &args.paths, opened.project.config.folders.tests.as_deref());
    let mut runner = Runner::new(opened.project.clone(), project_args.folder.clone(), project_args.places());
    let (mut findings, texts) = (selection.findings().0.to_vec(), selection.findings().1);
    let cases = match runner.resolve(&selection, args.keyword.as_deref()) {
        Ok((cases, more)) => {
            findings.extend(more);
            findings.sort_by(|a, b| a.place.cmp(&b.place));
            cases
        }
        Err(TestRunError::Findings(errors, texts)) => {
            show_findings(&errors, &texts, &args)?;
            output::status("the project has errors with the `endpoints` file of these cases");
            return Ok(EXIT_FINDINGS);
        }
        Err(error @ TestRunError::Folder(_)) => return Err(error.into()),
    };
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        show_findings(&findings, texts, &args)?;
        let uses_default_path = args.e2e_results.as_deref() == Some(Path::new(DEFAULT_RESULTS))
            || args.e2e_failed_tests.as_deref() == Some(Path::new("."));
        if uses_default_path && args.paths.iter().any(|path| !path.contains("::") && !Path::new(path).exists()) {
            output::status("write the file of `-o` and `-f` after `=`: `-o=FILE`, `-f=FILE`; other paths are tests");
        }
        return Ok(EXIT_FINDINGS);
    }
    if cases.is_empty() {
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
    let collect_coverage = args.coverage || args.coverage_output_path.is_some();
    let is_text = args.format == Format::Text;
    let mut write_error = None;
    let results = runner
        .run(&cases, &options(&args), collect_coverage, |result| {
            if is_text && let Err(error) = output::print(&output::strip_control_characters(&report::text(result))) {
                write_error.get_or_insert(error);
            }
        })
        .await;
    if let Some(error) = write_error {
        return Err(error.into());
    }
    let real_tools: BTreeSet<&str> =
        results.cases.iter().flat_map(|case| &case.real_tools).map(String::as_str).collect();
    if !real_tools.is_empty() {
        let names = Vec::from_iter(real_tools).join(", ");
        output::status(&format!("called real tools: {names}; `stub_mcp_tools` replaces them"));
    }
    let coverage = collect_coverage.then(|| runner.coverage(&results));
    match args.format {
        Format::Text => {
            if let Some(coverage) = coverage.as_ref().filter(|_| args.coverage) {
                output::print(&coverage_text(coverage))?;
            }
            output::print(&report::summary(&results))?;
        }
        Format::Json => output::println(&report::json(&results, &findings, coverage.as_ref()).to_string())?,
    }
    write_files(&args, &results, coverage.as_ref())?;
    Ok(match () {
        () if results.count(CaseOutcome::Error) > 0 => EXIT_ERROR,
        () if !results.all_passed() => EXIT_FINDINGS,
        () => 0,
    })
}

/// Accepts `test e2e PATH` and ignored options of Rasa. Returns the exit code for commands of Rasa that are not supported.
fn handle_rasa_syntax(args: &mut Args) -> Option<u8> {
    match args.paths.first().map(String::as_str) {
        Some("e2e") => drop(args.paths.remove(0)),
        Some("du") if !Path::new("du").exists() => {
            output::status(
                "`test du` is not supported; `segue test` runs end-to-end cases, and `segue trace` shows the commands of each message",
            );
            return Some(EXIT_USAGE);
        }
        Some(word @ ("nlu" | "core")) if !Path::new(word).exists() => {
            output::status(&format!("`test {word}` is not supported: it tests trained models, and there are none"));
            return Some(EXIT_USAGE);
        }
        _ => {}
    }
    for (given, flag) in [(&args.model, "--model"), (&args.remote_storage, "--remote-storage")] {
        if given.is_some() {
            output::status(&format!("{flag} is ignored: projects are not trained"));
        }
    }
    None
}

fn options(args: &Args) -> TestOptions {
    let recording = match (&args.record, &args.replay) {
        (Some(folder), _) => RecordingMode::Record(folder.clone()),
        (None, Some(folder)) => RecordingMode::Replay(folder.clone()),
        (None, None) => RecordingMode::Live,
    };
    TestOptions { jobs: args.jobs, fail_fast: args.fail_fast, recording, repeat: args.repeat }
}

fn show_findings(findings: &[Finding], texts: &Sources, args: &Args) -> std::io::Result<()> {
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
    let mut text = format!("coverage of {} passed cases\n{}", coverage.passed.cases, coverage.passed.text());
    if coverage.failed.cases > 0 {
        text.push_str(&format!("coverage of {} failed cases\n{}", coverage.failed.cases, coverage.failed.text()));
    }
    text
}

fn write_files(args: &Args, results: &Results, coverage: Option<&e2e::Coverage>) -> anyhow::Result<()> {
    if let Some(path) = &args.junit {
        write_file(path, &report::junit(results))?;
    }
    if let Some(path) = results_path(args) {
        check_not_a_test_file(&path)?;
        write_file(&path, &report::result_file(results))?;
    }
    if let Some(path) = &args.e2e_failed_tests {
        let files = report::failed_files(results);
        for (number, text) in files.iter().enumerate() {
            let path = failed_path(path, number);
            check_not_a_test_file(&path)?;
            write_file(&path, &format!("{FAILED_CASES_HEADER}\n{text}"))?;
        }
    }
    if let (Some(folder), Some(coverage)) = (&args.coverage_output_path, coverage) {
        write_file(&folder.join("coverage.txt"), &coverage_text(coverage))?;
        write_file(&folder.join("coverage.json"), &format!("{}\n", serde_json::to_string_pretty(coverage)?))?;
    }
    Ok(())
}

/// The first line of a file of failed cases. A test file with this line may be overwritten, any other may not.
const FAILED_CASES_HEADER: &str = "# Written by `segue test`: the cases that failed.";

/// Fails if the file contains test cases that `segue test` did not write: results must not overwrite them.
fn check_not_a_test_file(path: &Path) -> anyhow::Result<()> {
    // A file that exists but cannot be read cannot be written either; that error is reported later.
    let existing = fs::read_to_string(path).unwrap_or_default();
    let has_cases = existing.lines().any(|line| line.starts_with("test_cases:"));
    if has_cases && existing.lines().next() != Some(FAILED_CASES_HEADER) {
        bail!("{} contains test cases and is not overwritten; choose another file for the results", path.display());
    }
    Ok(())
}

fn results_path(args: &Args) -> Option<PathBuf> {
    let path = args.e2e_results.as_ref()?;
    Some(if path.is_dir() { path.join(DEFAULT_RESULTS) } else { path.clone() })
}

/// The path of the file with this number, from 0: `given` if it is a YAML file, with the number before the extension from the second
/// file on; or else a file in the folder `given`, named after the current time.
fn failed_path(given: &Path, number: usize) -> PathBuf {
    let suffix = if number == 0 { String::new() } else { format!("_{}", number + 1) };
    if given.extension().is_some_and(|extension| extension == "yml" || extension == "yaml") {
        let stem = given.file_stem().unwrap_or_default().to_string_lossy();
        return given.with_file_name(format!("{stem}{suffix}.yml"));
    }
    let at = SystemClock.now().to_utc().format("%Y%m%d-%H%M%S");
    given.join(format!("e2e_failed_tests_{at}{suffix}.yml"))
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be created", folder.display()))?;
    }
    fs::write(path, text).map_err(|error| anyhow!("{} cannot be written: {error}", path.display()))
}
