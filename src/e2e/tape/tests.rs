#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_engine::project::{SourceFile, test_cases::TestFile};

use super::{super::clock::CaseClock, *};

fn planned(name: &str) -> Planned {
    let text = format!("test_cases: [{{test_case: {name}, steps: [{{user: hi}}]}}]");
    let (file, _) = TestFile::read(&SourceFile { path: "tests/a.yml".into(), text: text.into() });
    let file = file.unwrap();
    Planned {
        file: "tests/a.yml".into(),
        inside: "tests/a.yml".into(),
        case: file.cases[0].clone(),
        shared: file.shared.clone(),
        slots: Vec::new(),
        began: None,
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(CaseClock::new(Timestamp::from_micros(0), true))
}

fn recorded(folder: &Path, planned: &Planned, answers: &[(&str, &str, &str, &str)]) {
    let tape = Tape::record(folder, planned, clock(), Problems::default());
    for (key, kind, request, outcome) in answers {
        assert!(matches!(tape.ask(&StepKey::new(*key), kind, request), Played::Ask));
        tape.keep(&StepKey::new(*key), outcome);
    }
    tape.write(planned, "c", Timestamp::from_micros(7), vec![3]).unwrap();
}

fn played(folder: &Path, planned: &Planned, problems: &Problems) -> Tape {
    let (head, text) = Tape::head(folder, planned).unwrap();
    assert_eq!((head.conversation.as_str(), head.began, head.took), ("c", Timestamp::from_micros(7), vec![3]));
    Tape::play(folder, planned, &text, clock(), problems.clone()).unwrap()
}

fn answer(tape: &Tape, key: &str, kind: &str, request: &str) -> Option<String> {
    match tape.ask(&StepKey::new(key), kind, request) {
        Played::Answer(outcome) => Some(outcome.to_string()),
        Played::Ask => panic!("a replay asks nobody"),
        Played::Missing => None,
    }
}

#[test]
fn an_answer_is_found_by_its_question_first_of_all_at_its_own_step() {
    let (folder, planned) = (tempfile::tempdir().unwrap(), planned("a"));
    let answers = [
        ("1/a", "llm", "q", "1.10"),
        ("1/b", "llm", "q", "2"),
        ("2/a", "tool", "t:1", "[1, 2]"),
        ("3", "llm", "other", "null"),
    ];
    recorded(folder.path(), &planned, &answers);
    let problems = Problems::default();
    let tape = played(folder.path(), &planned, &problems);
    assert_eq!(answer(&tape, "1/b", "llm", "q").as_deref(), Some("2"), "its own step first");
    assert_eq!(answer(&tape, "9", "llm", "q").as_deref(), Some("1.10"), "else the order; not a digit changes");
    assert_eq!(answer(&tape, "2/a", "tool", "t:1").as_deref(), Some("[1, 2]"));
    assert!(super::super::stub::take(&problems).is_empty());
    assert_eq!(answer(&tape, "1/a", "llm", "q"), None, "an answer is given once");
    assert_eq!(answer(&tape, "3", "llm", "changed"), None);
    let told: Vec<String> =
        super::super::stub::take(&problems).into_iter().map(|(code, text)| format!("{code} {text}")).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("E0502 step 1/a (llm) is not on the recording"), "{told:?}");
    assert!(told[1].contains("was asked something else when the recording was made"), "{told:?}");
}

#[test]
fn cases_whose_names_differ_in_signs_alone_have_files_of_their_own() {
    let folder = Path::new("f");
    assert_ne!(path(folder, &planned("a b")), path(folder, &planned("a-b")));
    assert_eq!(path(folder, &planned("a b")), path(folder, &planned("a b")));
}

#[test]
fn a_recording_that_cannot_be_played_says_why() {
    let (folder, planned) = (tempfile::tempdir().unwrap(), planned("a"));
    let why = |planned: &Planned| Tape::head(folder.path(), planned).err().unwrap();
    assert!(why(&planned).contains("tests-a/a-"), "{}", why(&planned));
    recorded(folder.path(), &planned, &[]);
    let path = path(folder.path(), &planned);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"recording\":1", "\"recording\":9")).unwrap();
    assert!(why(&planned).contains("a newer program"), "{}", why(&planned));
    fs::write(&path, "nonsense").unwrap();
    assert!(why(&planned).contains("line 1"), "{}", why(&planned));
    fs::write(&path, &text).unwrap();
    let mut stubbed = planned;
    let action = segue_engine::project::test_cases::StubAction {
        events: Vec::new(),
        responses: Vec::new(),
        place: Default::default(),
    };
    stubbed.shared.actions.insert("action_a".into(), action);
    assert!(why(&stubbed).contains("the stubs of this case have changed"), "{}", why(&stubbed));
    let broken = Tape::play(folder.path(), &stubbed, &format!("{text}{{\n"), clock(), Problems::default());
    assert!(broken.err().unwrap().contains("line 2"));
}

#[test]
fn a_recording_without_end_is_not_read() {
    let (folder, planned) = (tempfile::tempdir().unwrap(), planned("a"));
    recorded(folder.path(), &planned, &[]);
    let file = fs::File::options().write(true).open(path(folder.path(), &planned)).unwrap();
    file.set_len(TEST_RECORDING as u64 + 1).unwrap();
    let why = Tape::head(folder.path(), &planned).err().unwrap();
    assert!(why.contains(&format!("more than {TEST_RECORDING} bytes")), "{why}");
}
