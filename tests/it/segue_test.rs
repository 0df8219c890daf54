//! `segue test`: the cases of the starter and of `tests/projects/e2e`, failures, result files and recordings.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value as Json;

use crate::program::{ProgramOutput, command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `segue test` in a folder.
fn test(folder: &Path, arguments: &[&str]) -> ProgramOutput {
    run(folder, arguments, |_| ())
}

/// The same; `change` may set environment variables of the process.
fn run(folder: &Path, arguments: &[&str], change: impl FnOnce(&mut std::process::Command)) -> ProgramOutput {
    let mut command = command();
    command.current_dir(folder).arg("test").args(arguments).stdin(Stdio::null());
    change(&mut command);
    command.output().unwrap().into()
}

fn project() -> PathBuf {
    Path::new(ROOT).join("tests/projects/e2e")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn starter_cases_pass_and_pass_again_from_their_recording() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (recording, live, replayed) = (at("recording"), at("live.yml"), at("replayed.yml"));
    let output = test(Path::new(ROOT), &["--record", &recording, &format!("-o={live}"), "--coverage"]);
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    let cases = output.out.lines().filter(|line| line.starts_with("ok    flows/ferries/tests/")).count();
    assert!(cases >= 12, "{}", output.out);
    assert!(output.out.contains(&format!("{cases} passed, 0 failed\n")), "{}", output.out);
    // The summary lists every kind of assertion that applies to this project.
    let kinds = ["flow_started", "flow_completed", "flow_cancelled", "pattern_clarification_contains", "slot_was_set"]
        .into_iter()
        .chain(["slot_was_not_set", "action_executed", "bot_uttered", "bot_did_not_utter", "agent_started"])
        .chain(["agent_completed", "agent_interrupted", "agent_resumed", "agent_cancelled", "tool_called"])
        .chain(["tool_not_called", "max_llm_calls", "max_turn_latency_ms"])
        .chain(["generative_response_is_relevant", "generative_response_is_grounded"]);
    for kind in kinds {
        assert!(output.out.lines().any(|line| line.starts_with(&format!("{kind}: "))), "{kind}\n{}", output.out);
    }
    assert!(
        output.out.lines().any(|line| line.starts_with("find_a_crossing ") && line.contains("100.0%")),
        "{}",
        output.out
    );

    // The replay uses neither a model nor a tool server: no program is on the path, and requests go to a proxy that does not exist.
    let output = run(Path::new(ROOT), &["--replay", &recording, &format!("-o={replayed}")], |command| {
        command.env("PATH", "/nowhere").env("http_proxy", "http://127.0.0.1:9");
    });
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    assert_eq!(text(Path::new(&live)), text(Path::new(&replayed)), "the result files are equal");
}

#[test]
fn fixtures_metadata_and_stubs_come_from_the_closest_file() {
    let output = test(&project(), &[]);
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    assert!(output.out.contains("6 passed, 0 failed"), "{}", output.out);
    // The command of Rasa, single cases, parts of names, repetitions.
    for (arguments, passed) in [
        (&["e2e", "tests/deep"] as &[&str], 2),
        (&["e2e", "--model", "models/x.tar.gz"], 6),
        (&["tests/balance.yml::the poor"], 1),
        (&["tests/balance.yml::the poor", "tests/balance.yml::the rich", "tests/balance.yml"], 2),
        (&["-k", "fixture"], 3),
        (&["tests/who.yml", "--repeat", "3"], 6),
    ] {
        let output = test(&project(), arguments);
        assert!(
            output.code == 0 && output.out.contains(&format!("{passed} passed, 0 failed")),
            "{arguments:?}: {}{}",
            output.out,
            output.err
        );
    }
    let other_folder = tempfile::tempdir().unwrap();
    let (folder, file) = (project().display().to_string(), project().join("tests/deep/who.yml").display().to_string());
    let output = test(other_folder.path(), &["--project", &folder, &file]);
    assert!(output.code == 0 && output.out.contains("2 passed"), "{}{}", output.out, output.err);
}

#[test]
fn failure_report_shows_expected_and_actual_results() {
    let output = test(&project(), &["failing"]);
    assert_eq!(output.code, 1, "{}", output.err);
    let shown = project().join("failing/shown.txt");
    if std::env::var_os("SEGUE_BLESS").is_some() {
        fs::write(&shown, &output.out).unwrap();
    }
    assert_eq!(output.out, text(&shown), "run with SEGUE_BLESS=1 to update the file");
    let scratch = tempfile::tempdir().unwrap();
    let junit = scratch.path().join("junit.xml");
    let output = test(&project(), &["failing", "--fail-fast", "-j", "1", "--junit", &junit.display().to_string()]);
    assert!(output.code == 1 && output.out.ends_with("0 passed, 1 failed, 3 skipped\n"), "{}", output.out);
    let xml = text(&junit);
    assert!(xml.contains(r#"tests="4" skipped="3" failures="1""#) && xml.contains("<skipped/>"), "{xml}");
}

#[test]
fn results_are_written_as_json_junit_coverage_and_failed_cases() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let (junit, failed, coverage) = (at("junit.xml"), at("failed.yml"), at("coverage"));
    let shown = |path: &Path| path.display().to_string();
    let arguments = [
        "tests/who.yml",
        "failing",
        "--format",
        "json",
        "--junit",
        &shown(&junit),
        &format!("-f={}", shown(&failed)),
        "--coverage-output-path",
        &shown(&coverage),
    ];
    let output = test(&project(), &arguments);
    assert_eq!(output.code, 1, "{}", output.err);
    let json: Json = serde_json::from_str(&output.out).unwrap();
    assert_eq!(json["summary"], serde_json::json!({"passed": 2, "failed": 4, "not_run": 0, "skipped": 0}));
    assert_eq!(json["assertions"]["bot_uttered"], serde_json::json!({"held": 1, "failed": 1, "not_reached": 0}));
    assert_eq!(json["findings"][0]["code"], "E0106");
    let miss = &json["cases"][2]["misses"][0];
    assert_eq!((&miss["line"], &miss["what"], &miss["turn"]), (&10.into(), &"flow_started".into(), &1.into()));
    assert!(miss["why"].as_array().is_some_and(|why| !why.is_empty()), "{miss}");
    let steps = &json["coverage"]["passed"];
    assert_eq!((&steps["cases"], &steps["walked"]), (&2.into(), &2.into()), "{steps}");
    let xml = text(&junit);
    assert!(xml.contains(r#"<testsuites name="segue test" tests="6" skipped="0" failures="4" errors="0""#), "{xml}");
    assert!(xml.contains(r#"<failure message="flow_started pay" type="flow_started">"#), "{xml}");
    assert!(text(&coverage.join("coverage.txt")).contains("action_check_balance"));
    let written: Json = serde_json::from_str(&text(&coverage.join("coverage.json"))).unwrap();
    assert_eq!(written, json["coverage"]);
    // The file of failed cases is complete: the cases fail in the same way.
    let output = test(&project(), &[&shown(&failed), "--format", "json"]);
    let repeated: Json =
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {}{}", output.out, output.err));
    assert_eq!(repeated["summary"]["failed"], 4);
    let seen_of = |json: &Json, at: usize| {
        json["cases"][at]["misses"].as_array().unwrap().iter().map(|miss| miss["seen"].clone()).collect::<Vec<_>>()
    };
    for case in 0..4 {
        assert_eq!(seen_of(&repeated, case), seen_of(&json, case + 2));
    }
}

#[test]
fn result_options_need_an_equals_sign_and_never_overwrite_cases() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(&project(), folder.path());
    let cases = folder.path().join("tests/who.yml");
    let before = text(&cases);
    for arguments in [
        &["-o", "tests/who.yml"] as &[&str],
        &["-f", "tests/who.yml"],
        &["-o=tests/who.yml", "tests/who.yml"],
        &["-f=tests/who.yml", "failing"],
        &["--e2e-results=tests/who.yml"],
    ] {
        let output = test(folder.path(), arguments);
        let has_equals_sign = arguments[0].contains('=');
        assert_eq!(output.code, if has_equals_sign { 3 } else { 0 }, "{arguments:?}: {}{}", output.out, output.err);
        assert_eq!(has_equals_sign, output.err.contains("is not overwritten"), "{arguments:?}: {}", output.err);
        assert!(
            has_equals_sign == output.out.is_empty(),
            "no case runs if its results cannot be written: {}",
            output.out
        );
        assert_eq!(text(&cases), before, "{arguments:?}");
    }
    assert!(folder.path().join("e2e_results.yml").is_file());
    // `-f` without `=` takes no path: the path that follows selects the cases.
    let output = test(folder.path(), &["-f", "failing/cases.yml"]);
    assert!(output.code == 1 && output.out.contains("failing/cases.yml"), "{}{}", output.out, output.err);
    // A file of failed cases may be overwritten. `-o FILE` is explained if the file does not exist.
    for _ in 0..2 {
        assert_eq!(test(folder.path(), &["-f=failed.yml", "failing"]).code, 1);
    }
    let output = test(folder.path(), &["-o", "results.yml"]);
    assert!(output.code == 1 && output.err.contains("-o=FILE"), "{}", output.err);
}

#[test]
fn json_format_is_written_for_load_errors_and_empty_selections() {
    let json = |folder: &Path, arguments: &[&str]| -> (i32, Json) {
        let output = test(folder, arguments);
        let json =
            serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {}{}", output.out, output.err));
        (output.code, json)
    };
    let (code, broken) = json(&Path::new(ROOT).join("tests/projects/broken"), &["--format", "json"]);
    assert_eq!((code, &broken["summary"]["passed"]), (1, &Json::from(0)));
    assert!(broken["findings"].as_array().unwrap().iter().any(|finding| finding["severity"] == "error"), "{broken}");
    let (code, empty) = json(&project(), &["-k", "no case has this name", "--format", "json"]);
    assert_eq!((code, &empty["cases"]), (2, &Json::Array(Vec::new())));
}

#[test]
fn project_folder_argument_selects_the_project() {
    let other_folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(&project(), &other_folder.path().join("mine"));
    let output = test(other_folder.path(), &["mine"]);
    assert!(output.code == 0 && output.out.contains("6 passed, 0 failed"), "{}{}", output.out, output.err);
    let output = test(other_folder.path(), &["mine", "mine/tests/deep/who.yml"]);
    assert!(output.code == 0 && output.out.contains("2 passed"), "{}{}", output.out, output.err);
}

#[test]
fn errors_in_test_files_are_reported_together_and_nothing_runs() {
    let output = test(&project(), &["broken", "tests/who.yml", "nowhere", "tests/who.yml::nobody"]);
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    for expected in [
        "broken/cases.yml:3:16: error[E0103]: there is no fixture `membr`",
        "broken/cases.yml:7:13: error[F0107]: `bot_utered` is not a key of a test assertion",
        "broken/cases.yml:8:13: warning[E0106]: the project has no response `utter_ritch`",
        "broken/cases.yml:9:9: warning[E0104]",
        "nowhere: error[E0101]: there is no such file or folder",
        "tests/who.yml: error[E0101]: the file has no case `nobody` that can be run",
        "4 errors, 2 warnings",
    ] {
        assert!(output.err.contains(expected), "{expected}\n{}", output.err);
    }
    let output = test(&project(), &["broken", "--format", "json"]);
    let json: Json = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, json["findings"].as_array().unwrap().len()), (1, 4));
    for (arguments, code) in
        [(&["du"] as &[&str], 2), (&["-k", "no such case"], 2), (&["--record", "a", "--replay", "b"], 2)]
    {
        assert_eq!(test(&project(), arguments).code, code, "{arguments:?}");
    }
}

/// A project with one flow that calls two tools of one server, and a test file with these stubs and cases.
fn tool_project(server: &str, tests: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    write("config.yml", "recipe: default.v1\nlanguage: en\n");
    write(
        "domain.yml",
        "version: '3.1'\nslots: { reference: { type: text, mappings: [{ type: controlled }] } }\nresponses:\n  utter_booked: [{ text: Booked. }]\n",
    );
    write(
        "flows/flows.yml",
        "flows:\n  book:\n    description: Books.\n    steps:\n      - call: get_booking\n        mcp_server: boats\n        mapping: { input: [], output: [] }\n        on_error: booked\n      - id: booked\n        call: book_crossing\n        mcp_server: boats\n        mapping: { input: [], output: [] }\n        on_error: END\n        next: said\n      - id: said\n        action: utter_booked\n",
    );
    write("script.yml", "rules:\n  - say: start flow book\n");
    write(
        "endpoints.yml",
        &format!(
            "model_groups:\n  - id: main\n    models: [{{ provider: scripted, model: m, script: script.yml }}]\nmcp_servers:\n  - name: boats\n    type: stdio\n    {server}\n"
        ),
    );
    fs::create_dir(folder.path().join("tests")).unwrap();
    write("tests/cases.yml", tests);
    folder
}

#[test]
fn tool_without_a_stub_on_a_stubbed_server_is_an_error() {
    let case = "test_cases:\n  - test_case: books\n    steps:\n      - user: book\n        assertions: [{ flow_started: book }]\n";
    let one = format!("stub_mcp_tools:\n  boats.book_crossing: {{ result: ok }}\n{case}");
    let output = test(tool_project("command: no-such-program", &one).path(), &[]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    assert!(
        output.out.contains("error[E0505]") && output.out.contains("`boats.get_booking` has no stub"),
        "{}",
        output.out
    );
    let both = format!(
        "stub_mcp_tools:\n  boats.book_crossing: {{ result: ok }}\n  boats.get_booking: {{ result: ok }}\n{case}"
    );
    let output = test(tool_project("command: no-such-program", &both).path(), &[]);
    assert_eq!((output.code, output.err.contains("called real tools")), (0, false), "{}{}", output.out, output.err);
}

#[test]
fn stub_can_have_an_unknown_outcome() {
    let tests = "stub_mcp_tools:\n  boats.get_booking: { result: ok }\n  boats.book_crossing: { outcome: unknown }\ntest_cases:\n  - test_case: in doubt\n    steps:\n      - user: book\n        assertions:\n          - tool_called: { name: book_crossing, success: false }\n          - bot_did_not_utter: { utter_name: utter_booked }\n";
    let folder = tool_project("command: no-such-program", tests);
    let flows = text(&folder.path().join("flows/flows.yml")).replace("        on_error: END\n", "");
    fs::write(folder.path().join("flows/flows.yml"), flows).unwrap();
    let tests = tests.replace(
        "          - bot_did_not",
        "          - bot_uttered: { utter_name: utter_outcome_unknown }\n          - bot_did_not",
    );
    fs::write(folder.path().join("tests/cases.yml"), tests).unwrap();
    let output = test(folder.path(), &[]);
    assert_eq!(output.code, 0, "{}{}", output.out, output.err);
}

#[test]
fn real_tools_and_assertions_that_were_not_reached_are_reported() {
    let tests = "test_cases:\n  - test_case: books\n    steps:\n      - user: book\n        assertions: [{ action_executed: utter_goodbye }]\n      - user: book\n        assertions: [{ action_executed: utter_booked }, { flow_started: book }]\n";
    let folder = tool_project("command: no-such-program", tests);
    let output = test(folder.path(), &[]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    assert!(
        output.err.contains("called real tools: boats.book_crossing, boats.get_booking; `stub_mcp_tools`"),
        "{}",
        output.err
    );
    assert!(
        output.out.contains(
            "action_executed: 0 of 1 passed (0%), 1 not reached\nflow_started: 0 of 0 passed (0%), 1 not reached"
        ),
        "{}",
        output.out
    );
}

#[test]
fn replay_reports_what_is_missing_in_the_recording() {
    let scratch = tempfile::tempdir().unwrap();
    let recording = scratch.path().join("recording").display().to_string();
    let output = test(&project(), &["tests/balance.yml::the rich", "--record", &recording]);
    assert_eq!(output.code, 0, "{}", output.out);
    let output = test(&project(), &["tests/balance.yml", "--replay", &recording]);
    assert_eq!(output.code, 3, "{}", output.out);
    assert!(output.out.contains("ok    tests/balance.yml::the rich"), "{}", output.out);
    assert!(
        output.out.contains("ERROR tests/balance.yml::the poor") && output.out.contains("error[E0502]"),
        "{}",
        output.out
    );
    // Another message than the recorded one: the case fails without a request to the model.
    let copy = scratch.path().join("tests");
    fs::create_dir_all(&copy).unwrap();
    let changed = text(&project().join("tests/balance.yml")).replace("what is my balance?", "and my balance?");
    for name in ["config.yml", "endpoints.yml", "domain.yml", "bank.script.yml"] {
        fs::copy(project().join(name), scratch.path().join(name)).unwrap();
    }
    fs::create_dir_all(scratch.path().join("flows")).unwrap();
    fs::copy(project().join("flows/bank.yml"), scratch.path().join("flows/bank.yml")).unwrap();
    fs::write(copy.join("balance.yml"), changed).unwrap();
    let output = test(scratch.path(), &["tests/balance.yml::the rich", "--replay", &recording]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    let message = "was recorded with another request";
    assert!(
        output.out.contains("error[E0502], turn 1, after \"and my balance?\"") && output.out.contains(message),
        "{}",
        output.out
    );
}

#[test]
fn test_files_of_rasa_3_16_have_no_unknown_keys() {
    use segue::project::{Severity, SourceFile, test_cases::TestFile};
    let folder = Path::new(ROOT).join("tests/projects/generations/3.16/tests");
    let source = |name: &str| SourceFile { path: name.into(), text: text(&folder.join(name)).into() };
    let (file, findings) = TestFile::read(&source("e2e_test_cases.yml"));
    assert!(findings.is_empty() && file.is_some_and(|file| file.cases.len() == 2), "{findings:?}");
    let (file, findings) = TestFile::read_conftest(&source("conftest.yml"));
    let found: Vec<_> = findings.iter().map(|finding| (finding.code, finding.severity, finding.place.line)).collect();
    assert_eq!(found, [("F0116", Severity::Warning, 3)], "the embeddings of a judge are not used");
    assert!(file.is_some());
}
