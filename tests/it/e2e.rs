//! `segue test` as people run it: the cases of the starter and of `tests/projects/e2e`, their failures, results and recordings.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value as Json;

use crate::program::{Ran, command};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `segue test` in a folder.
fn test(folder: &Path, arguments: &[&str]) -> Ran {
    run(folder, arguments, |_| ())
}

fn run(folder: &Path, arguments: &[&str], more: impl FnOnce(&mut std::process::Command)) -> Ran {
    let mut command = command();
    command.current_dir(folder).arg("test").args(arguments).stdin(Stdio::null());
    more(&mut command);
    let done = command.output().unwrap();
    Ran {
        code: done.status.code().unwrap_or(-1),
        out: String::from_utf8(done.stdout).unwrap(),
        err: String::from_utf8(done.stderr).unwrap(),
    }
}

fn project() -> PathBuf {
    Path::new(ROOT).join("tests/projects/e2e")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_cases_of_the_starter_hold_and_hold_again_from_their_recording() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let (tape, live, again) = (at("tape"), at("live.yml"), at("again.yml"));
    let ran = test(Path::new(ROOT), &["--record", &tape, &format!("-o={live}"), "--coverage"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let cases = ran.out.lines().filter(|line| line.starts_with("ok    flows/ferries/tests/")).count();
    assert!(cases >= 12, "{}", ran.out);
    assert!(ran.out.contains(&format!("{cases} passed, 0 failed\n")), "{}", ran.out);
    // Every kind of assertion that this project has anything for.
    let kinds = ["flow_started", "flow_completed", "flow_cancelled", "pattern_clarification_contains", "slot_was_set"]
        .into_iter()
        .chain(["slot_was_not_set", "action_executed", "bot_uttered", "bot_did_not_utter", "agent_started"])
        .chain(["agent_completed", "agent_interrupted", "agent_resumed", "agent_cancelled", "tool_called"])
        .chain(["tool_not_called", "max_llm_calls", "max_turn_latency_ms"])
        .chain(["generative_response_is_relevant", "generative_response_is_grounded"]);
    for kind in kinds {
        assert!(ran.out.lines().any(|line| line.starts_with(&format!("{kind}: "))), "{kind}\n{}", ran.out);
    }
    assert!(ran.out.lines().any(|line| line.starts_with("find_a_crossing ") && line.contains("100.0%")), "{}", ran.out);

    // Nobody is asked: the script of the model and the program of the tool server are out of reach.
    let ran = run(Path::new(ROOT), &["--replay", &tape, &format!("-o={again}")], |command| {
        command.env("PATH", "/nowhere").env("http_proxy", "http://127.0.0.1:9");
    });
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    assert_eq!(text(Path::new(&live)), text(Path::new(&again)), "the result files are the same, byte for byte");
}

#[test]
fn fixtures_metadata_and_stubs_come_from_the_nearest_file() {
    let ran = test(&project(), &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    assert!(ran.out.contains("6 passed, 0 failed"), "{}", ran.out);
    // Rasa's words, one case alone, and a part of the names.
    for (arguments, passed) in [
        (&["e2e", "tests/deep"] as &[&str], 2),
        (&["e2e", "--model", "models/x.tar.gz"], 6),
        (&["tests/balance.yml::the poor"], 1),
        (&["tests/balance.yml::the poor", "tests/balance.yml::the rich", "tests/balance.yml"], 2),
        (&["-k", "fixture"], 3),
        (&["tests/who.yml", "--repeat", "3"], 6),
    ] {
        let ran = test(&project(), arguments);
        assert!(
            ran.code == 0 && ran.out.contains(&format!("{passed} passed, 0 failed")),
            "{arguments:?}: {}{}",
            ran.out,
            ran.err
        );
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let (folder, file) = (project().display().to_string(), project().join("tests/deep/who.yml").display().to_string());
    let ran = test(elsewhere.path(), &["--project", &folder, &file]);
    assert!(ran.code == 0 && ran.out.contains("2 passed"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_failure_shows_what_was_expected_what_was_seen_and_why() {
    let ran = test(&project(), &["failing"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let shown = project().join("failing/shown.txt");
    if std::env::var_os("SEGUE_BLESS").is_some() {
        fs::write(&shown, &ran.out).unwrap();
    }
    assert_eq!(ran.out, text(&shown), "SEGUE_BLESS=1 writes the file anew");
    let scratch = tempfile::tempdir().unwrap();
    let junit = scratch.path().join("junit.xml");
    let ran = test(&project(), &["failing", "--fail-fast", "-j", "1", "--junit", &junit.display().to_string()]);
    assert!(ran.code == 1 && ran.out.ends_with("0 passed, 1 failed, 3 skipped\n"), "{}", ran.out);
    let xml = text(&junit);
    assert!(xml.contains(r#"tests="4" skipped="3" failures="1""#) && xml.contains("<skipped/>"), "{xml}");
}

#[test]
fn results_are_written_for_programs_and_for_the_next_run() {
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
    let ran = test(&project(), &arguments);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let json: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["summary"], serde_json::json!({"passed": 2, "failed": 4, "not_run": 0, "skipped": 0}));
    assert_eq!(json["assertions"]["bot_uttered"], serde_json::json!({"held": 1, "failed": 1}));
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
    // The file of failed cases has everything that they need, and they fail in the same way.
    let ran = test(&project(), &[&shown(&failed), "--format", "json"]);
    let again: Json = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    assert_eq!(again["summary"]["failed"], 4);
    let seen = |json: &Json, at: usize| {
        json["cases"][at]["misses"].as_array().unwrap().iter().map(|miss| miss["seen"].clone()).collect::<Vec<_>>()
    };
    for case in 0..4 {
        assert_eq!(seen(&again, case), seen(&json, case + 2));
    }
}

#[test]
fn a_path_behind_an_option_of_results_is_a_test_and_cases_are_never_written_over() {
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
        let ran = test(folder.path(), arguments);
        let is_named = arguments[0].contains('=');
        assert_eq!(ran.code, if is_named { 3 } else { 0 }, "{arguments:?}: {}{}", ran.out, ran.err);
        assert_eq!(is_named, ran.err.contains("is not overwritten"), "{arguments:?}: {}", ran.err);
        assert!(is_named == ran.out.is_empty(), "nothing runs whose results have no place: {}", ran.out);
        assert_eq!(text(&cases), before, "{arguments:?}");
    }
    assert!(folder.path().join("e2e_results.yml").is_file());
    // `-f` alone does not take the path that follows: what fails there is what is told.
    let ran = test(folder.path(), &["-f", "failing/cases.yml"]);
    assert!(ran.code == 1 && ran.out.contains("failing/cases.yml"), "{}{}", ran.out, ran.err);
    // A file of failed cases may be written again, a file that was meant and is not there is explained.
    for _ in 0..2 {
        assert_eq!(test(folder.path(), &["-f=failed.yml", "failing"]).code, 1);
    }
    let ran = test(folder.path(), &["-o", "results.yml"]);
    assert!(ran.code == 1 && ran.err.contains("-o=FILE"), "{}", ran.err);
}

#[test]
fn the_json_form_has_an_answer_to_everything() {
    let json = |folder: &Path, arguments: &[&str]| -> (i32, Json) {
        let ran = test(folder, arguments);
        let json = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
        (ran.code, json)
    };
    let (code, broken) = json(&Path::new(ROOT).join("tests/projects/broken"), &["--format", "json"]);
    assert_eq!((code, &broken["summary"]["passed"]), (1, &Json::from(0)));
    assert!(broken["findings"].as_array().unwrap().iter().any(|finding| finding["severity"] == "error"), "{broken}");
    let (code, none) = json(&project(), &["-k", "no case has this name", "--format", "json"]);
    assert_eq!((code, &none["cases"]), (2, &Json::Array(Vec::new())));
}

#[test]
fn a_folder_that_is_a_project_names_the_project() {
    let elsewhere = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(&project(), &elsewhere.path().join("mine"));
    let ran = test(elsewhere.path(), &["mine"]);
    assert!(ran.code == 0 && ran.out.contains("6 passed, 0 failed"), "{}{}", ran.out, ran.err);
    let ran = test(elsewhere.path(), &["mine", "mine/tests/deep/who.yml"]);
    assert!(ran.code == 0 && ran.out.contains("2 passed"), "{}{}", ran.out, ran.err);
}

#[test]
fn what_is_wrong_with_the_files_is_told_at_once_and_nothing_runs() {
    let ran = test(&project(), &["broken", "tests/who.yml", "nowhere", "tests/who.yml::nobody"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    for told in [
        "broken/cases.yml:3:16: error[E0103]: there is no fixture `membr`",
        "broken/cases.yml:7:13: error[F0107]: `bot_utered` is not a key of a test assertion",
        "broken/cases.yml:8:13: warning[E0106]: the project has no response `utter_ritch`",
        "broken/cases.yml:9:9: warning[E0104]",
        "nowhere: error[E0101]: there is no such file or folder",
        "tests/who.yml: error[E0101]: the file has no case `nobody` that can be run",
        "4 errors, 2 warnings",
    ] {
        assert!(ran.err.contains(told), "{told}\n{}", ran.err);
    }
    let ran = test(&project(), &["broken", "--format", "json"]);
    let json: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, json["findings"].as_array().unwrap().len()), (1, 4));
    for (arguments, code) in
        [(&["du"] as &[&str], 2), (&["-k", "no such case"], 2), (&["--record", "a", "--replay", "b"], 2)]
    {
        assert_eq!(test(&project(), arguments).code, code, "{arguments:?}");
    }
}

#[test]
fn a_replay_asks_nobody_and_says_what_is_not_on_the_recording() {
    let scratch = tempfile::tempdir().unwrap();
    let tape = scratch.path().join("tape").display().to_string();
    let ran = test(&project(), &["tests/balance.yml::the rich", "--record", &tape]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    let ran = test(&project(), &["tests/balance.yml", "--replay", &tape]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.out.contains("ok    tests/balance.yml::the rich"), "{}", ran.out);
    assert!(ran.out.contains("ERROR tests/balance.yml::the poor") && ran.out.contains("error[E0502]"), "{}", ran.out);
    // Another question than the recorded one: the case fails, the model is not asked.
    let copy = scratch.path().join("tests");
    fs::create_dir_all(&copy).unwrap();
    let changed = text(&project().join("tests/balance.yml")).replace("what is my balance?", "and my balance?");
    for name in ["config.yml", "endpoints.yml", "domain.yml", "bank.script.yml"] {
        fs::copy(project().join(name), scratch.path().join(name)).unwrap();
    }
    fs::create_dir_all(scratch.path().join("flows")).unwrap();
    fs::copy(project().join("flows/bank.yml"), scratch.path().join("flows/bank.yml")).unwrap();
    fs::write(copy.join("balance.yml"), changed).unwrap();
    let ran = test(scratch.path(), &["tests/balance.yml::the rich", "--replay", &tape]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let told = "was recorded with another request";
    assert!(
        ran.out.contains("error[E0502], turn 1, after \"and my balance?\"") && ran.out.contains(told),
        "{}",
        ran.out
    );
}

#[test]
fn the_test_files_of_a_generation_are_read_without_an_unknown_key() {
    use segue::project::{Severity, SourceFile, test_cases::TestFile};
    let folder = Path::new(ROOT).join("tests/projects/generations/3.16/tests");
    let source = |name: &str| SourceFile { path: name.into(), text: text(&folder.join(name)).into() };
    let (file, findings) = TestFile::read(&source("e2e_test_cases.yml"));
    assert!(findings.is_empty() && file.is_some_and(|file| file.cases.len() == 2), "{findings:?}");
    let (file, findings) = TestFile::read_conftest(&source("conftest.yml"));
    let told: Vec<_> = findings.iter().map(|finding| (finding.code, finding.severity, finding.place.line)).collect();
    assert_eq!(told, [("F0116", Severity::Warning, 3)], "embeddings of a judge are not asked for");
    assert!(file.is_some());
}
