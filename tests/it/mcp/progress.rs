//! Progress notifications of a running call: the messages that the user gets, the entries of the trace, and the extension of the timeout.

use std::time::Duration;

use segue::{IncomingMessage, limits, runtime::TraceProgress};
use serde_json::{Value as Json, json};

use super::{
    TestConversation,
    fake_server::{FakeMcpServer, Output},
};

const SECOND: Duration = Duration::from_secs(1);

/// Sends a progress notification for a call.
fn send_progress(call: &Json, out: &Output, progress: u64, text: &str) {
    let token = &call["params"]["_meta"]["progressToken"];
    let params = json!({"progressToken": token, "progress": progress, "total": 10, "message": text});
    out.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
}

/// A server whose call takes `seconds`. It sends a notification every second; `progress` maps the second to the reported value. The clock
/// advances when all tasks are idle.
fn slow_server(seconds: u64, progress: impl Fn(u64) -> u64 + Clone + Send + Sync + 'static) -> FakeMcpServer {
    FakeMcpServer::new(move |message, out, server| match message["method"].as_str() {
        Some("tools/call") => {
            let (call, out, clock, progress) = (message.clone(), out.clone(), server.clock.clone(), progress.clone());
            tokio::spawn(async move {
                for second in 1..=seconds {
                    run_other_tasks().await;
                    clock.advance(SECOND);
                    send_progress(&call, &out, progress(second), &format!("page {second}"));
                }
                run_other_tasks().await;
                out.text(&call, "yes");
            });
        }
        _ => server.default_answer(message, out),
    })
}

/// Yields so often that the other tasks reach their next wait.
async fn run_other_tasks() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// The progress entries of the trace. A replay gives the same events.
async fn traced_progress(conversation: &TestConversation) -> Vec<TraceProgress> {
    let trace = conversation.assistant.trace(&"u".into(), None).await.unwrap();
    assert_eq!(conversation.assistant.replay(&"u".into()).await.unwrap().map(|d| format!("{d:?}")), None);
    trace.into_iter().flat_map(|turn| turn.steps).flat_map(|step| step.progress).collect()
}

#[tokio::test]
async fn progress_extends_the_timeout_of_a_call_and_is_traced() {
    let conversation = TestConversation::with(&slow_server(8, |second| second), "tool_timeout: 3");
    conversation.assert_succeeds("/work", "yes").await;
    let entries = traced_progress(&conversation).await;
    assert_eq!(entries.len(), 8, "{entries:?}");
    let expected = TraceProgress { after: 2_000, done: 2.0, total: Some(10.0), message: Some("page 2".into()) };
    assert_eq!(entries[1], expected);
}

#[tokio::test]
async fn stalled_progress_does_not_extend_the_timeout() {
    let conversation = TestConversation::with(&slow_server(8, |_| 1), "tool_timeout: 3");
    conversation.assert_unknown("/work", "timeout: It did not answer within 4 s").await;
    let conversation = TestConversation::with(&slow_server(8, |second| 10 - second), "tool_timeout: 3");
    conversation.assert_unknown("/work", "timeout: It did not answer within 4 s").await;
}

#[tokio::test]
async fn progress_is_bounded_by_tool_timeout_total() {
    let most = limits::TOOL_TOTAL.as_secs();
    let server = slow_server(most + 5, |second| second);
    let conversation = TestConversation::with(&server, "tool_timeout: 3");
    conversation.assert_unknown("/work", &format!("timeout: It did not answer within {most} s")).await;
    assert_eq!(server.params_of("notifications/cancelled").len(), 1, "the call is cancelled at the server");
    assert_eq!(traced_progress(&conversation).await.len(), limits::TOOL_PROGRESS_ENTRIES);
    let conversation =
        TestConversation::with(&slow_server(8, |second| second), "tool_timeout: 3, tool_timeout_total: 5");
    conversation.assert_unknown("/work", "timeout: It did not answer within 5 s").await;
}

/// The replies of an agent whose tool takes nine seconds, on this channel.
async fn replies_of_agent(entry: &str, agent: &str, channel: &str) -> (Vec<String>, TestConversation) {
    let conversation =
        TestConversation::with_agent(&slow_server(9, |second| second), &format!("tool_timeout: 4, {entry}"), agent);
    let report = conversation
        .assistant
        .receive(IncomingMessage::new("u", "/ask").input_channel(channel), Box::new(segue::DiscardReplies))
        .await
        .unwrap();
    (report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect(), conversation)
}

#[tokio::test]
async fn agent_reports_tool_progress_at_the_interval_of_the_channel() {
    let pace = "filler_after: {default: 2, silent: false}";
    let (replies, conversation) = replies_of_agent("", pace, "web").await;
    assert_eq!(replies.len(), 3, "{replies:?}");
    assert!(
        replies[0].contains("0 percent") && replies[1].contains("0 percent") && replies[0] != replies[1],
        "{replies:?}"
    );
    assert_eq!(replies[2], "The result: yes");
    assert_eq!(traced_progress(&conversation).await.len(), 9);
    let (replies, conversation) = replies_of_agent("progress_messages: true", pace, "web").await;
    assert!(replies[..2].iter().all(|text| text.starts_with("remote reports: page ")), "{replies:?}");
    assert_eq!(replies.len(), 3);
    assert_eq!(traced_progress(&conversation).await.len(), 9);
}

#[tokio::test]
async fn progress_is_traced_but_not_sent_if_fillers_are_disabled() {
    let off = "filler_after: 2, enable_filler_messages: false";
    for (agent, channel) in [("filler_after: {default: 2, silent: false}", "silent"), (off, "web")] {
        let (replies, conversation) = replies_of_agent("progress_messages: true", agent, channel).await;
        assert_eq!(replies, ["The result: yes"], "{agent} {channel}");
        assert_eq!(traced_progress(&conversation).await.len(), 9);
    }
}
