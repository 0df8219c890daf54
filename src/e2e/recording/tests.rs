#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_engine::project::{SourceFile, test_cases::TestFile};

use super::{
    super::{clock::CaseClock, stub::take_errors},
    *,
};

fn case(name: &str) -> ResolvedCase {
    let text = format!("test_cases: [{{test_case: {name}, steps: [{{user: hi}}]}}]");
    let (file, _) = TestFile::read(&SourceFile { path: "tests/a.yml".into(), text: text.into() });
    let file = file.unwrap();
    ResolvedCase {
        file: "tests/a.yml".into(),
        path_in_project: "tests/a.yml".into(),
        case: file.cases[0].clone(),
        shared: file.shared.clone(),
        slots: Vec::new(),
        started_at: None,
    }
}

fn case_clock() -> Arc<dyn Clock> {
    Arc::new(CaseClock::new(Timestamp::from_micros(0), true))
}

/// Writes the recording of a case with these steps: key, kind, request and outcome.
fn record(folder: &Path, case: &ResolvedCase, steps: &[(&str, &str, &str, &str)]) {
    let recording = Recording::record(folder, case, case_clock(), CaseErrors::default());
    for (key, kind, request, outcome) in steps {
        assert!(matches!(recording.lookup(&StepKey::new(*key), kind, request), Lookup::Forward));
        recording.record_outcome(&StepKey::new(*key), outcome);
    }
    recording.write(case, "c", Timestamp::from_micros(7), vec![3]).unwrap();
}

fn replay(folder: &Path, case: &ResolvedCase, errors: &CaseErrors) -> Recording {
    let (header, text) = Recording::read_header(folder, case).unwrap();
    assert_eq!(
        (header.conversation.as_str(), header.started_at, header.turn_durations_ms),
        ("c", Timestamp::from_micros(7), vec![3])
    );
    Recording::replay(folder, case, &text, case_clock(), errors.clone()).unwrap()
}

fn outcome(recording: &Recording, key: &str, kind: &str, request: &str) -> Option<String> {
    match recording.lookup(&StepKey::new(key), kind, request) {
        Lookup::Recorded(outcome) => Some(outcome.to_string()),
        Lookup::Forward => panic!("a replay forwards a request"),
        Lookup::Missing => None,
    }
}

#[test]
fn an_outcome_is_found_by_its_request_and_preferably_by_its_step() {
    let (folder, case) = (tempfile::tempdir().unwrap(), case("a"));
    let steps = [
        ("1/a", "llm", "q", "1.10"),
        ("1/b", "llm", "q", "2"),
        ("2/a", "tool", "t:1", "[1, 2]"),
        ("3", "llm", "other", "null"),
    ];
    record(folder.path(), &case, &steps);
    let errors = CaseErrors::default();
    let recording = replay(folder.path(), &case, &errors);
    assert_eq!(outcome(&recording, "1/b", "llm", "q").as_deref(), Some("2"), "the same step is preferred");
    assert_eq!(
        outcome(&recording, "9", "llm", "q").as_deref(),
        Some("1.10"),
        "otherwise the first in order; the number keeps its digits"
    );
    assert_eq!(outcome(&recording, "2/a", "tool", "t:1").as_deref(), Some("[1, 2]"));
    assert!(take_errors(&errors).is_empty());
    assert_eq!(outcome(&recording, "1/a", "llm", "q"), None, "each outcome is used once");
    assert_eq!(outcome(&recording, "3", "llm", "changed"), None);
    let errors: Vec<String> = take_errors(&errors).into_iter().map(|(code, text)| format!("{code} {text}")).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("E0502 step 1/a (llm) is not in the recording"), "{errors:?}");
    assert!(errors[1].contains("was recorded with another request"), "{errors:?}");
}

#[test]
fn case_names_that_differ_only_in_punctuation_have_different_files() {
    let folder = Path::new("f");
    assert_ne!(recording_path(folder, &case("a b")), recording_path(folder, &case("a-b")));
    assert_eq!(recording_path(folder, &case("a b")), recording_path(folder, &case("a b")));
}

#[test]
fn an_unusable_recording_is_an_error_that_names_the_cause() {
    let (folder, case) = (tempfile::tempdir().unwrap(), case("a"));
    let error = |case: &ResolvedCase| Recording::read_header(folder.path(), case).err().unwrap().to_string();
    assert!(error(&case).contains("tests-a/a-"), "{}", error(&case));
    record(folder.path(), &case, &[]);
    let path = recording_path(folder.path(), &case);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"recording\":1", "\"recording\":9")).unwrap();
    assert!(error(&case).contains("a newer version"), "{}", error(&case));
    fs::write(&path, "not JSON").unwrap();
    assert!(error(&case).contains("line 1"), "{}", error(&case));
    fs::write(&path, &text).unwrap();
    let mut stubbed = case;
    let action = segue_engine::project::test_cases::StubAction {
        events: Vec::new(),
        responses: Vec::new(),
        place: Default::default(),
    };
    stubbed.shared.actions.insert("action_a".into(), action);
    assert!(error(&stubbed).contains("the stubs of this case have changed"), "{}", error(&stubbed));
    let truncated =
        Recording::replay(folder.path(), &stubbed, &format!("{text}{{\n"), case_clock(), CaseErrors::default());
    assert!(truncated.err().unwrap().to_string().contains("line 2"));
}

#[test]
fn a_recording_above_the_size_limit_is_not_read() {
    let (folder, case) = (tempfile::tempdir().unwrap(), case("a"));
    record(folder.path(), &case, &[]);
    let file = fs::File::options().write(true).open(recording_path(folder.path(), &case)).unwrap();
    file.set_len(TEST_RECORDING as u64 + 1).unwrap();
    let error = Recording::read_header(folder.path(), &case).err().unwrap().to_string();
    assert!(error.contains(&format!("more than {TEST_RECORDING} bytes")), "{error}");
}
