//! Readers of a conversation: they get the events of every turn, whichever caller sent its message, may come late or come back, and
//! get nothing twice. And the turns that are interrupted from outside, and messages that a platform repeats.

use std::sync::Arc;

use segue::{
    Assistant, IncomingMessage, Store, TurnEvent,
    channels::Inbox,
    conversation::{ExternalTrigger, TriggerAction},
    llm::ChatResponse,
    runtime::{FeedPosition, OutboxSink, TurnEventStream},
    store::MemoryStore,
    testing::{CollectedReplies, CollectingSink, ScriptedLlm},
};

use crate::support::project_files::CONFIG;

const FILES: [(&str, &str); 4] = [
    CONFIG,
    ("domain.yml", "responses:\n  utter_hi: [{text: Hi.}]\n  utter_water: [{text: Water it.}]\n"),
    (
        "data/flows.yml",
        "flows:
  talk: {description: talks, run_pattern_completed: false, steps: [{call: talker}]}
  hello: {description: greets, run_pattern_completed: false, steps: [{action: utter_hi}]}
  remind: {description: reminds, run_pattern_completed: false, steps: [{action: utter_water}]}
",
    ),
    ("sub_agents/talker/config.yml", "agent: {name: talker, description: talks}\nconnections: {mcp_servers: []}\n"),
];

fn assistant(store: &Arc<MemoryStore>, answers: &[&str]) -> Assistant {
    let model = Arc::new(ScriptedLlm::strict(answers.iter().map(|text| ChatResponse::text(*text))));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone() as Arc<dyn Store>);
    builder.seeds(|| 7).build().unwrap()
}

async fn say(assistant: &Assistant, text: &str) -> CollectedReplies {
    let sink = CollectingSink::without_streaming();
    let collected = sink.collected();
    assistant.receive(IncomingMessage::new("u", text).input_channel("test"), Box::new(sink)).await.unwrap();
    collected
}

async fn remind(assistant: &Assistant) {
    let trigger =
        ExternalTrigger { action: TriggerAction::Flow("remind".into()), values: Default::default(), reminder: None };
    assistant.trigger("u".into(), trigger, "".into(), Box::new(OutboxSink)).await.unwrap();
}

/// An event in short.
fn short(event: &TurnEvent) -> String {
    match event {
        TurnEvent::Started { turn, .. } => format!("started {}", turn.0),
        TurnEvent::UserMessage { text, .. } => format!("user: {text}"),
        TurnEvent::MessageStart { .. } => "start".to_owned(),
        TurnEvent::MessageDelta { .. } => "delta".to_owned(),
        TurnEvent::MessageEnd { message, .. } => format!("end: {}", message.text.as_deref().unwrap_or_default()),
        TurnEvent::Message { message, .. } => format!("bot: {}", message.text.as_deref().unwrap_or_default()),
        TurnEvent::Flow { flow, phase } => format!("flow {flow} {phase:?}"),
        TurnEvent::Agent { agent, phase } => format!("agent {agent} {phase:?}"),
        TurnEvent::Tool { tool, agent, phase, .. } => {
            format!("tool {tool} of {} {phase:?}", agent.as_ref().map_or("the flow", |agent| agent.as_str()))
        }
        TurnEvent::Slots { values } => format!("slots {}", serde_json::to_string(values).unwrap()),
        TurnEvent::Question { kind, slot, .. } => {
            format!("question {kind:?} {}", slot.as_ref().map_or("-", |slot| slot.as_str()))
        }
        TurnEvent::Finished { turn, .. } => format!("finished {}", turn.0),
        other => format!("{other:?}"),
    }
}

/// The events that a reader has now, in short, with the position after each.
async fn available(reader: &mut TurnEventStream) -> Vec<(String, FeedPosition)> {
    let mut events: Vec<(String, FeedPosition)> = Vec::new();
    loop {
        let mut next = std::pin::pin!(reader.next());
        let Some(event) = futures::FutureExt::now_or_never(next.as_mut()) else { return events };
        let Some(event) = event.unwrap() else {
            events.push(("the end".to_owned(), FeedPosition::START));
            return events;
        };
        events.push((short(&event.event), event.next));
    }
}

async fn available_texts(reader: &mut TurnEventStream) -> Vec<String> {
    available(reader).await.into_iter().map(|(text, _)| text).collect()
}

/// A streamed turn as readers get it after it has ended: the end of a message has its text.
const STREAMED: [&str; 8] = [
    "started 1",
    "user: let us talk",
    "flow talk Started",
    "agent talker Started",
    "start",
    "end: What about?",
    "question Text -",
    "finished 1",
];
/// The same turn from the store.
const STORED: [&str; 6] =
    ["started 1", "user: let us talk", "flow talk Started", "agent talker Started", "bot: What about?", "finished 1"];

#[tokio::test]
async fn a_reader_sees_the_turns_of_other_callers_as_they_happen_and_late_readers_the_whole() {
    let store = Arc::new(MemoryStore::new());
    let process = assistant(&store, &["start flow talk", "What about?", "cancel flow\nstart flow hello"]);
    let mut reader = process.subscribe(&"u".into(), None).await.unwrap();
    assert_eq!(available_texts(&mut reader).await, [""; 0]);
    let sent = say(&process, "let us talk").await;
    assert_eq!(sent.texts(), ["What about?"], "the sink of the caller wants no deltas and gets the whole, once");
    assert_eq!(available_texts(&mut reader).await, STREAMED, "it is streamed because somebody reads");
    assert_eq!(store.pending_replies(&"u".into()).await.unwrap(), []);
    // The text is complete by now: a late reader gets it once.
    let mut late = process.subscribe(&"u".into(), Some(FeedPosition::START)).await.unwrap();
    let of_late = available_texts(&mut late).await;
    assert_eq!(of_late, STREAMED);
    assert!(process.replay(&"u".into()).await.unwrap().is_none());
    say(&process, "hello").await;
    for reader in [&mut reader, &mut late] {
        let events = available_texts(reader).await;
        assert_eq!(events.first().map(String::as_str), Some("started 2"), "{events:?}");
        assert!(events.contains(&"bot: Hi.".to_owned()), "{events:?}");
    }
}

#[tokio::test]
async fn a_reader_that_comes_back_gets_what_follows_its_position_and_after_a_restart_whole_turns() {
    let store = Arc::new(MemoryStore::new());
    let process = assistant(&store, &["start flow talk", "What about?"]);
    let mut reader = process.subscribe(&"u".into(), Some(FeedPosition::START)).await.unwrap();
    assert_eq!(available_texts(&mut reader).await, [""; 0]);
    say(&process, "let us talk").await;
    let events = available(&mut reader).await;
    let restarted = assistant(&store, &[]);
    for (at, (text, position)) in events.iter().enumerate() {
        let position: FeedPosition = position.to_string().parse().unwrap();
        let mut again = process.subscribe(&"u".into(), Some(position)).await.unwrap();
        assert_eq!(available_texts(&mut again).await, STREAMED[at + 1..].to_vec(), "after {text}");
        let mut after_restart = restarted.subscribe(&"u".into(), Some(position)).await.unwrap();
        let expected = if at + 1 == STREAMED.len() { &[][..] } else { &STORED[..] };
        assert_eq!(available_texts(&mut after_restart).await, expected, "after {text}, in another process");
    }
    for invalid in ["", "x", "1.2.3.4", "-1", "1.x", "1.2.zz"] {
        assert!(invalid.parse::<FeedPosition>().is_err(), "{invalid}");
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_gets_everything_later_from_the_store() {
    let store = Arc::new(MemoryStore::new());
    let process = assistant(&store, &["start flow hello"; 5]);
    let mut reader = process.subscribe(&"u".into(), None).await.unwrap();
    for number in 0..5 {
        say(&process, &format!("hello {number}")).await;
    }
    let expected: Vec<String> = (0..5)
        .flat_map(|number| {
            let turn = number + 1;
            [
                format!("started {turn}"),
                format!("user: hello {number}"),
                "flow hello Started".into(),
                "bot: Hi.".into(),
                "flow hello Completed".into(),
                format!("finished {turn}"),
            ]
        })
        .collect();
    assert_eq!(available_texts(&mut reader).await, expected);
}

#[tokio::test]
async fn a_reply_that_no_channel_can_send_is_delivered_if_somebody_reads() {
    for reads in [true, false] {
        let store = Arc::new(MemoryStore::new());
        let process = assistant(&store, &["start flow hello"; 2]);
        say(&process, "hello").await;
        let mut reader = match reads {
            true => Some(process.subscribe(&"u".into(), None).await.unwrap()),
            false => None,
        };
        remind(&process).await;
        if let Some(reader) = &mut reader {
            let events = ["started 2", "flow remind Started", "bot: Water it.", "flow remind Completed", "finished 2"];
            assert_eq!(available_texts(reader).await, events);
        }
        assert_eq!(store.pending_replies(&"u".into()).await.unwrap().len(), 1, "a channel that pushes gets it first");
        let no_sinks = |_: &segue::ids::ConversationId, _: &str| None;
        let _ = futures::poll!(std::pin::pin!(process.deliver_outbox(&no_sinks)));
        assert_eq!(store.pending_replies(&"u".into()).await.unwrap().len(), usize::from(!reads));
    }
}

#[tokio::test]
async fn readers_end_when_the_conversation_is_erased_and_when_the_program_stops() {
    let store = Arc::new(MemoryStore::new());
    let process = assistant(&store, &["start flow hello"; 2]);
    say(&process, "hello").await;
    let mut reader = process.subscribe(&"u".into(), Some(FeedPosition::START)).await.unwrap();
    let position = available(&mut reader).await.last().unwrap().1;
    process.erase(&"u".into()).await.unwrap();
    assert_eq!(available_texts(&mut reader).await, ["the end"]);
    // The old position is not one of the new conversation.
    say(&process, "hello").await;
    let mut again = process.subscribe(&"u".into(), Some(position)).await.unwrap();
    assert_eq!(available_texts(&mut again).await, [""; 0], "turn 2 follows, as for a reader of turn 1");
    process.begin_shutdown();
    assert_eq!(available_texts(&mut again).await, ["the end"]);
}

#[tokio::test]
async fn a_repeated_message_of_a_platform_is_answered_once() {
    let store = Arc::new(MemoryStore::new());
    let process = assistant(&store, &["start flow hello"; 1]);
    let inbox = Inbox::new(process.clone(), "push");
    let mut sent = Vec::new();
    for is_duplicate in [false, true] {
        let sink = CollectingSink::without_streaming();
        sent.push(sink.collected());
        let message = IncomingMessage::new("u", "hello").message_id("update-1");
        let accepted = inbox.accept(message, Box::new(sink)).await.unwrap();
        assert_eq!((accepted.turn().0, accepted.is_duplicate()), (1, is_duplicate));
        let report = accepted.finished().await.unwrap();
        assert_eq!((report.is_duplicate, report.replies.len()), (is_duplicate, 1), "the report has the replies");
    }
    assert_eq!((sent[0].texts(), sent[1].texts()), (vec!["Hi.".to_owned()], Vec::new()));
}
