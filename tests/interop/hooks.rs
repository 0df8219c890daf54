//! Python hooks over HTTP: the example project of docs/how-to/hooks-in-python.md, with a tool call that waits for a confirmation.

use std::{fs, path::Path};

use segue::{Assistant, DiscardReplies, IncomingMessage, TurnReport};

use crate::processes::{ChildProcess, free_port, python};

/// The texts of the replies of a turn without failures.
fn texts(report: &TurnReport) -> Vec<String> {
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn task_agent_with_python_hooks_books_after_a_confirmation() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/projects/python_hooks"),
        folder.path(),
    );
    let port = free_port();
    let agent = folder.path().join("sub_agents/booker/config.yml");
    let text = fs::read_to_string(&agent).unwrap();
    fs::write(&agent, text.replace("127.0.0.1:9000", &format!("127.0.0.1:{port}"))).unwrap();
    let mut command = python();
    command.arg(folder.path().join("hooks.py")).arg(port.to_string());
    let mut server = ChildProcess::start(&mut command);
    server.wait_for_line("hooks on http://");

    let assistant = Assistant::load(folder.path()).unwrap();
    let say = async |text: &str| {
        let report = assistant
            .receive(IncomingMessage::new("ada", text).input_channel("test"), Box::new(DiscardReplies))
            .await
            .unwrap();
        texts(&report)
    };
    assert_eq!(say("Please book me something").await, ["One moment.", "Which boat would you like?"]);
    let replies = say("the Kittiwake").await;
    assert_eq!(replies, ["One moment.", "Let me look.", "Shall I book MS Kittiwake for 2?"]);
    let replies = say("yes").await;
    assert_eq!(replies[..2], ["One moment.".to_owned(), "Your reference is NW-1.".to_owned()], "{replies:?}");
    assert!(assistant.replay(&"ada".into()).await.unwrap().is_none());
}
