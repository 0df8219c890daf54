//! News of a running call: what the user hears of them, what the trace keeps, and how long a call lives by them.

use std::time::Duration;

use segue::{IncomingMessage, limits, runtime::TraceProgress};
use serde_json::{Value as Json, json};

use super::{
    Talk,
    far::{Far, Out},
};

const SECOND: Duration = Duration::from_secs(1);

fn news(call: &Json, out: &Out, done: u64, words: &str) {
    let token = &call["params"]["_meta"]["progressToken"];
    let params = json!({"progressToken": token, "progress": done, "total": 10, "message": words});
    out.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
}

/// A server that works second by second, telling how far it is, and answers after `seconds`. Time passes when everybody
/// has heard of the second before.
fn working(seconds: u64, tells: impl Fn(u64) -> u64 + Clone + Send + Sync + 'static) -> Far {
    Far::new(move |message, out, far| match message["method"].as_str() {
        Some("tools/call") => {
            let (call, out, clock, tells) = (message.clone(), out.clone(), far.clock.clone(), tells.clone());
            tokio::spawn(async move {
                for second in 1..=seconds {
                    settled().await;
                    clock.advance(SECOND);
                    news(&call, &out, tells(second), &format!("page {second}"));
                }
                settled().await;
                out.text(&call, "yes");
            });
        }
        _ => far.usual(message, out),
    })
}

async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn told(talk: &Talk) -> Vec<TraceProgress> {
    let trace = talk.assistant.trace(&"u".into(), None).await.unwrap();
    assert_eq!(talk.assistant.replay(&"u".into()).await.unwrap().map(|d| format!("{d:?}")), None);
    trace.into_iter().flat_map(|turn| turn.steps).flat_map(|step| step.progress).collect()
}

#[tokio::test]
async fn news_keep_a_call_of_a_flow_alive_and_stand_in_the_trace() {
    let talk = Talk::with(&working(8, |second| second), "tool_timeout: 3");
    talk.works("/work", "yes").await;
    let told = told(&talk).await;
    assert_eq!(told.len(), 8, "{told:?}");
    let expected = TraceProgress { after: 2_000, done: 2.0, total: Some(10.0), message: Some("page 2".into()) };
    assert_eq!(told[1], expected);
}

#[tokio::test]
async fn m20_news_that_do_not_grow_keep_nothing_alive() {
    let talk = Talk::with(&working(8, |_| 1), "tool_timeout: 3");
    talk.is_in_doubt("/work", "timeout: It did not answer within 4 s").await;
    let talk = Talk::with(&working(8, |second| 10 - second), "tool_timeout: 3");
    talk.is_in_doubt("/work", "timeout: It did not answer within 4 s").await;
}

#[tokio::test]
async fn m20_news_that_grow_for_ever_end_at_the_total() {
    let most = limits::TOOL_TOTAL.as_secs();
    let far = working(most + 5, |second| second);
    let talk = Talk::with(&far, "tool_timeout: 3");
    talk.is_in_doubt("/work", &format!("timeout: It did not answer within {most} s")).await;
    assert_eq!(far.of("notifications/cancelled").len(), 1, "the server is told that nobody waits");
    assert_eq!(told(&talk).await.len(), limits::TOOL_PROGRESS_ENTRIES);
    let talk = Talk::with(&working(8, |second| second), "tool_timeout: 3, tool_timeout_total: 5");
    talk.is_in_doubt("/work", "timeout: It did not answer within 5 s").await;
}

/// What the user hears of an agent whose tool works ten seconds, on this channel.
async fn hears(entry: &str, agent: &str, channel: &str) -> (Vec<String>, Talk) {
    let talk = Talk::pacing(&working(9, |second| second), &format!("tool_timeout: 4, {entry}"), agent);
    let report = talk
        .assistant
        .receive(IncomingMessage::text("u", "/ask", channel), Box::new(segue::DiscardReplies))
        .await
        .unwrap();
    (report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect(), talk)
}

#[tokio::test]
async fn an_agent_says_how_far_its_tool_is_at_the_pace_of_the_channel() {
    let pace = "filler_after: {default: 2, silent: false}";
    let (heard, talk) = hears("", pace, "web").await;
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard[0].contains("0 percent") && heard[1].contains("0 percent") && heard[0] != heard[1], "{heard:?}");
    assert_eq!(heard[2], "I was told: yes");
    assert_eq!(told(&talk).await.len(), 9);
    let (heard, talk) = hears("progress_messages: true", pace, "web").await;
    assert!(heard[..2].iter().all(|text| text.starts_with("far reports: page ")), "{heard:?}");
    assert_eq!(heard.len(), 3);
    assert_eq!(told(&talk).await.len(), 9);
}

#[tokio::test]
async fn nothing_is_said_where_fillers_are_off_and_the_trace_keeps_it_all_the_same() {
    let off = "filler_after: 2, enable_filler_messages: false";
    for (agent, channel) in [("filler_after: {default: 2, silent: false}", "silent"), (off, "web")] {
        let (heard, talk) = hears("progress_messages: true", agent, channel).await;
        assert_eq!(heard, ["I was told: yes"], "{agent} {channel}");
        assert_eq!(told(&talk).await.len(), 9);
    }
}
