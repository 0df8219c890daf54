//! Hooks in Python behind an address: the example of docs/how-to/hooks-in-python.md, as it stands, with a call that waits for a yes.

use std::{fs, path::Path};

use segue::{Assistant, DiscardReplies, IncomingMessage, TurnReport};

use crate::parts::{Part, free_port, plain_python};

fn texts(report: &TurnReport) -> Vec<String> {
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_task_agent_with_hooks_in_python_books_after_a_yes() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/projects/hooked"), folder.path());
    let port = free_port();
    let agent = folder.path().join("sub_agents/booker/config.yml");
    let text = fs::read_to_string(&agent).unwrap();
    fs::write(&agent, text.replace("127.0.0.1:9000", &format!("127.0.0.1:{port}"))).unwrap();
    let mut command = plain_python();
    command.arg(folder.path().join("hooks.py")).arg(port.to_string());
    let mut server = Part::start(&mut command);
    server.line_with("hooks on http://");

    let assistant = Assistant::load(folder.path()).unwrap();
    let say = async |text: &str| {
        let report =
            assistant.receive(IncomingMessage::text("ada", text, "test"), Box::new(DiscardReplies)).await.unwrap();
        texts(&report)
    };
    assert_eq!(say("Please book me something").await, ["One moment.", "Which boat would you like?"]);
    let told = say("the Kittiwake").await;
    assert_eq!(told, ["One moment.", "Let me look.", "Shall I book MS Kittiwake for 2?"]);
    let told = say("yes").await;
    assert_eq!(told[..2], ["One moment.".to_owned(), "Your reference is NW-1.".to_owned()], "{told:?}");
    assert!(assistant.replay(&"ada".into()).await.unwrap().is_none());
}
