//! Turns that are tried more than once, because the store fails or a process ends in the middle. Recorded outcomes are reused, shown text is
//! not sent again, a turn is never answered with the replies of another turn, and the attempts are limited.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use segue::{
    Assistant, ConversationId, IncomingMessage, MemoryStore, Store, StoreError, Timestamp, Tool, ToolCallContext,
    ToolInfo, ToolOutcome, ToolOutput, Toolbox, TurnEvent, TurnReport,
    llm::{ChatResponse, ToolArguments, ToolCall},
    store::{AcceptOutcome, InboxMessage, JournalRecord, TurnCommit, TurnNumber, Version},
    testing::{CollectedReplies, CollectingSink, ManualClock, ScriptedCall, ScriptedLlm, StrictLlm},
};
use segue_engine::conversation::UserMessage;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::support::project_files::{BOATS_ENDPOINT, CONFIG};

const FILES: [(&str, &str); 5] = [
    CONFIG,
    BOATS_ENDPOINT,
    (
        "domain.yml",
        "responses:\n  utter_hello: [{text: Hello.}]\n  utter_internal_error_rasa: [{text: Broken.}]\n  utter_turn_given_up: [{text: Perhaps done.}]\n",
    ),
    (
        "data/flows.yml",
        "flows:\n  greet: {description: greets, run_pattern_completed: false, steps: [{action: utter_hello}]}\n  \
         book: {description: book a boat, run_pattern_completed: false, steps: [{call: booker}]}\n",
    ),
    (
        "sub_agents/booker/config.yml",
        "agent: {name: booker, description: books}\nconnections: {mcp_servers: [{name: boats}]}\n",
    ),
];

/// How a call of the store fails.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The operation is not performed.
    NotPerformed,
    /// The operation is performed, but the caller gets an error.
    ResultLost,
}

/// A store whose calls fail as scripted.
#[derive(Default)]
struct FaultyStore {
    inner: MemoryStore,
    /// The faults of the next calls of `accept`, `append` and `append_journal`, in order; `None` for a call that succeeds.
    accepts: Mutex<VecDeque<Option<Fault>>>,
    appends: Mutex<VecDeque<Option<Fault>>>,
    journals: Mutex<VecDeque<Option<Fault>>>,
    erases: AtomicUsize,
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("database or disk is full".into())
}

/// Performs a call, unless its next scripted fault prevents it.
async fn with_fault<T>(
    faults: &Mutex<VecDeque<Option<Fault>>>,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let fault = faults.lock().unwrap().pop_front().flatten();
    match fault {
        Some(Fault::NotPerformed) => Err(unavailable()),
        Some(Fault::ResultLost) => call.await.and(Err(unavailable())),
        None => call.await,
    }
}

#[async_trait]
impl segue::store::ForwardingStore for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }
    async fn accept(&self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError> {
        with_fault(&self.accepts, async move { self.inner.accept(inbound).await }).await
    }
    async fn append(&self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError> {
        with_fault(&self.appends, async move { self.inner.append(id, after, batch).await }).await
    }
    async fn append_journal(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError> {
        with_fault(&self.journals, async move { self.inner.append_journal(id, turn, records).await }).await
    }
    async fn erase(&self, id: &ConversationId) -> Result<(), StoreError> {
        self.erases.fetch_add(1, Ordering::SeqCst);
        self.inner.erase(id).await
    }
}

/// The tool `book`, which counts its calls.
#[derive(Clone, Default)]
struct BookingTool {
    calls: Arc<AtomicUsize>,
    /// Notified when a call starts.
    call_started: Arc<Notify>,
    /// Whether a call blocks until the test resumes it.
    blocks: bool,
    resume: Arc<Notify>,
}

impl BookingTool {
    fn blocking() -> Self {
        Self { blocks: true, ..Self::default() }
    }
    fn source(&self) -> Arc<Toolbox> {
        let spec = ToolInfo::new("book", "books").parameters(json!({"type": "object"})).source("boats");
        let tool = self.clone();
        let run = move |_: Json, _: ToolCallContext| {
            let tool = tool.clone();
            async move {
                tool.calls.fetch_add(1, Ordering::SeqCst);
                tool.call_started.notify_one();
                if tool.blocks {
                    tool.resume.notified().await;
                }
                ToolOutcome::Done(ToolOutput::text("NW-1"))
            }
        };
        Arc::new(Toolbox::new("boats", [Tool::from_fn(spec, run)]))
    }
    /// The number of calls.
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// An answer with a text and a call of a tool without arguments.
fn tool_call(name: &str, text: &str) -> ScriptedCall {
    let call =
        ToolCall { id: format!("c-{name}").into(), name: name.into(), arguments: ToolArguments::json(json!({})) };
    ChatResponse { text: text.into(), ..ChatResponse::calls(vec![call]) }.into()
}

/// A process: an assistant on a store, with a model that gives these answers in order.
struct Process {
    assistant: Assistant,
    model: Arc<StrictLlm>,
    tool: BookingTool,
}

impl Process {
    fn new(store: &Arc<FaultyStore>, clock: &ManualClock, steps: Vec<ScriptedCall>) -> Self {
        Self::with(store, clock, steps, BookingTool::default(), &FILES)
    }
    fn with(
        store: &Arc<FaultyStore>,
        clock: &ManualClock,
        steps: Vec<ScriptedCall>,
        tool: BookingTool,
        files: &[(&'static str, &'static str)],
    ) -> Self {
        let model = Arc::new(ScriptedLlm::strict(steps));
        let builder = Assistant::builder_from_texts(files.iter().copied()).unwrap();
        let builder = builder.store(store.clone()).clock(Arc::new(clock.clone())).seeds(|| 7).source(tool.source());
        Self { assistant: builder.model(model.clone()).build().unwrap(), model, tool }
    }
    async fn say(&self, text: &str, id: &str) -> Result<(TurnReport, CollectedReplies), segue::ReceiveError> {
        let sink = CollectingSink::streaming();
        let collected = sink.collected();
        let incoming = IncomingMessage::new("u", text).input_channel("test").message_id(id);
        Ok((self.assistant.receive(incoming, Box::new(sink)).await?, collected))
    }
    async fn assert_replays(&self) {
        let difference = self.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "{difference:?}");
    }
}

fn store_and_clock() -> (Arc<FaultyStore>, ManualClock) {
    (Arc::default(), ManualClock::new())
}

fn texts(report: &TurnReport) -> Vec<&str> {
    report.replies.iter().map(|reply| reply.reply.text.as_deref().unwrap_or_default()).collect()
}

fn text_answer(text: &str) -> ScriptedCall {
    ScriptedCall::from(text)
}

/// The answers of a turn that books.
fn booking() -> Vec<ScriptedCall> {
    vec![
        text_answer("start flow book"),
        tool_call("book", "I am booking it."),
        tool_call("task_completed", "It is booked."),
    ]
}

/// Scripts the faults of the next calls.
fn script_faults(queue: &Mutex<VecDeque<Option<Fault>>>, faults: impl IntoIterator<Item = Option<Fault>>) {
    *queue.lock().unwrap() = faults.into_iter().collect();
}

#[tokio::test]
async fn retry_after_a_failed_commit_gives_the_replies_of_its_own_turn() {
    for fault in [Fault::NotPerformed, Fault::ResultLost] {
        let (store, clock) = store_and_clock();
        let steps = [text_answer("start flow greet")].into_iter().chain(booking()).collect();
        let process = Process::new(&store, &clock, steps);
        assert_eq!(texts(&process.say("hello", "").await.unwrap().0), ["Hello."]);
        script_faults(&store.appends, [Some(fault)]);
        let (report, shown) = process.say("book it", "").await.unwrap();
        assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
        assert!(!report.is_duplicate, "the message was not answered before");
        assert_eq!(shown.texts(), ["I am booking it.", "It is booked."], "each reply once");
        assert_eq!(process.tool.calls(), 1);
        assert_eq!(store.pending_replies(&"u".into()).await.unwrap(), []);
        process.assert_replays().await;
    }
}

#[tokio::test]
async fn committed_turn_is_delivered_if_the_commit_result_was_lost() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, vec![text_answer("start flow greet")]);
    script_faults(&store.appends, [Some(Fault::ResultLost)]);
    let (report, shown) = process.say("hello", "").await.unwrap();
    assert_eq!((texts(&report), shown.texts()), (vec!["Hello."], vec!["Hello.".to_owned()]));
    assert_eq!(store.pending_replies(&"u".into()).await.unwrap(), []);
}

#[tokio::test]
async fn retry_reuses_an_outcome_that_could_not_be_stored() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, booking());
    // The intent is stored; storing the outcome fails.
    script_faults(&store.journals, [None, None, Some(Fault::NotPerformed)]);
    let (report, shown) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
    assert_eq!(shown.texts(), ["I am booking it.", "It is booked."]);
    assert_eq!((process.tool.calls(), process.model.requests().len()), (1, 3), "no tool or model is called twice");
    let starts = shown.events().iter().filter(|piece| matches!(piece, TurnEvent::MessageStart { .. })).count();
    assert_eq!(starts, 2, "no reply is streamed again");
    let events = serde_json::to_string(&store.turns(&"u".into()).await.unwrap()[0].events).unwrap();
    assert!(!events.contains("reply_interrupted"), "no reply was interrupted");
    process.assert_replays().await;
}

/// The disk is full while the tool runs, and for some time afterwards.
#[tokio::test]
async fn full_disk_during_a_tool_call_keeps_its_outcome() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, booking());
    script_faults(&store.journals, [None, None].into_iter().chain(vec![Some(Fault::NotPerformed); 2]));
    let error = process.say("book it", "m1").await.unwrap_err();
    assert_eq!(error.code(), "S0103");
    assert_eq!(
        store.unfinished_turns(&"u".into()).await.unwrap()[0].attempts(),
        1,
        "an attempt that cannot be counted is not made"
    );
    // There is room again when the next message arrives.
    let (report, _) = process.say("/nothing", "m2").await.unwrap();
    assert!(!report.replies.is_empty());
    let (report, _) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
    assert_eq!((report.is_duplicate, process.tool.calls(), process.model.requests().len()), (true, 1, 3));
    process.assert_replays().await;
}

#[tokio::test]
async fn reply_is_not_streamed_if_its_announcement_cannot_be_stored() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, booking());
    script_faults(&store.journals, [Some(Fault::NotPerformed)]);
    let (report, shown) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
    let first = report.replies[0].id.clone();
    let is_of_first = |piece: &TurnEvent| match piece {
        TurnEvent::MessageStart { id, .. } | TurnEvent::MessageDelta { id, .. } | TurnEvent::MessageEnd { id, .. } => {
            *id == first
        }
        _ => false,
    };
    assert!(!shown.events().iter().any(is_of_first), "{:?}", shown.events());
    assert!(shown.texts().contains(&"I am booking it.".to_owned()), "the reply is delivered after the commit");
}

/// A process ends while the tool runs; another one recovers the turn minutes later.
#[tokio::test]
async fn recovery_after_a_crash_in_a_tool_reuses_recorded_outcomes() {
    let (store, clock) = store_and_clock();
    let tool = BookingTool::blocking();
    let first = Arc::new(Process::with(&store, &clock, booking(), tool.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await.map(|_| ()) });
    tool.call_started.notified().await;
    // The first process has ended: its clock no longer advances.
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(150));

    let second =
        Process::new(&store, &clock, vec![tool_call("task_completed", "I cannot tell whether the booking was made.")]);
    assert_eq!(second.assistant.recover().await.unwrap(), 1);
    let (report, _) = second.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "I cannot tell whether the booking was made."]);
    assert!(second.model.requests()[0].messages.iter().any(|message| message.text().contains("unknown[unavailable]")));
    assert_eq!((tool.calls(), second.tool.calls()), (1, 0));
    second.assert_replays().await;
    running.abort();
}

/// The first process was only slow. Its turn is answered already: it gives its client the stored replies.
#[tokio::test]
async fn turn_answered_by_another_process_gives_the_stored_replies() {
    let (store, clock) = store_and_clock();
    let tool = BookingTool::blocking();
    let first = Arc::new(Process::with(&store, &clock, booking(), tool.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await });
    tool.call_started.notified().await;
    let second =
        Process::new(&store, &clock, vec![tool_call("task_completed", "I cannot tell whether the booking was made.")]);
    assert_eq!(second.assistant.recover().await.unwrap(), 1);
    tool.resume.notify_one();
    let (report, shown) = running.await.unwrap().unwrap();
    let stored = ["I am booking it.", "I cannot tell whether the booking was made."];
    assert_eq!((texts(&report), report.turn), (stored.to_vec(), TurnNumber(1)));
    assert_eq!(shown.texts().last().map(String::as_str), Some(stored[1]), "the last reply is the stored one");
    assert_eq!(store.turns(&"u".into()).await.unwrap().len(), 1);
    second.assert_replays().await;
}

/// The second process would send other requests than the recorded ones: it sends none, and keeps the recorded outcomes.
#[tokio::test]
async fn recovery_with_different_requests_keeps_recorded_outcomes() {
    let (store, clock) = store_and_clock();
    let tool = BookingTool::blocking();
    let first = Arc::new(Process::with(&store, &clock, booking(), tool.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await.map(|_| ()) });
    tool.call_started.notified().await;
    let id = ConversationId::from("u");
    let records = store.unfinished_turns(&id).await.unwrap().remove(0).journal;
    let mut record = records.into_iter().find(|record| &*record.kind == "llm").unwrap();
    record.request = "something else".into();
    store.inner.append_journal(&id, TurnNumber(1), vec![record]).await.unwrap();

    let second = Process::new(&store, &clock, Vec::new());
    let (report, _) = second.say("book it", "m1").await.unwrap();
    assert!(!report.replies.is_empty(), "the user gets a reply");
    let turns = store.turns(&id).await.unwrap();
    let events = serde_json::to_string(&turns[0].events).unwrap();
    assert!(events.contains("tool_executed") && events.contains("unknown"), "{events}");
    assert_eq!((tool.calls(), second.tool.calls(), second.model.requests().len()), (1, 0, 0));
    second.assert_replays().await;
    running.abort();
}

#[tokio::test]
async fn turn_is_attempted_at_most_three_times() {
    let (store, clock) = store_and_clock();
    let id = ConversationId::from("u");
    // Every attempt runs to its end, but its commit fails.
    let process = Process::new(&store, &clock, booking());
    script_faults(&store.appends, vec![Some(Fault::NotPerformed); 4]);
    assert_eq!(process.say("book it", "m1").await.unwrap_err().code(), "S0103");
    assert_eq!(store.unfinished_turns(&id).await.unwrap()[0].attempts(), 3);
    drop(process);
    // The number of attempts is stored: the next process does not try again.
    let process = Process::new(&store, &clock, vec![text_answer("start flow greet")]);
    let (report, _) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["Perhaps done."], "the reply says that some of it may have been done");
    assert_eq!(report.failures[0].code, "R0105");
    assert_eq!((process.tool.calls(), process.model.requests().len()), (0, 0));
    assert_eq!(texts(&process.say("hello", "m2").await.unwrap().0), ["Hello."], "the conversation continues");
    process.assert_replays().await;
}

/// What a client sees beside messages: of the flow, the agent, its tool, the public slot and the question, each once, although the turn
/// has two attempts.
#[tokio::test]
async fn what_flows_agents_and_tools_do_is_shown_once_in_all_attempts() {
    const BOOK: &str = "flows:\n  book:\n    description: book a boat\n    steps:\n      - set_slots: [{boat: Ada}, {price: 7}]\n      - call: booker\n      - collect: seat\n";
    const DOMAIN: &str = "slots:\n  boat: {type: text, public: true}\n  price: {type: float}\n  seat: {type: categorical, values: [left, right]}\nresponses:\n  utter_ask_seat: [{text: Which seat?}]\n";
    let mut files = FILES;
    (files[2].1, files[3].1) = (DOMAIN, BOOK);
    let (store, clock) = store_and_clock();
    let process = Process::with(&store, &clock, booking(), BookingTool::default(), &files);
    script_faults(&store.appends, [Some(Fault::NotPerformed)]);
    let (_, shown) = process.say("book it", "m1").await.unwrap();
    let shown: Vec<String> = shown
        .events()
        .iter()
        .filter_map(|event| match event {
            TurnEvent::Flow { flow, phase } => Some(format!("{flow} {phase:?}")),
            TurnEvent::Agent { agent, phase } => Some(format!("{agent} {phase:?}")),
            TurnEvent::Tool { id, tool, agent, phase } => Some(format!("{id} {tool} of {agent:?} {phase:?}")),
            TurnEvent::Slots { values } => Some(serde_json::to_string(values).unwrap()),
            TurnEvent::Question { kind, slot, schema } => Some(format!("{kind:?} of {slot:?}: {schema}")),
            TurnEvent::MessageEnd { message, .. } | TurnEvent::Message { message, .. } => {
                message.text.as_ref().map(ToString::to_string)
            }
            _ => None,
        })
        .collect();
    let call = r#"1/1/0/tool.0 book of Some("booker")"#;
    let expected = [
        "book Started".to_owned(),
        r#"{"boat":"Ada"}"#.to_owned(),
        "booker Started".to_owned(),
        "I am booking it.".to_owned(),
        format!("{call} Started"),
        format!("{call} Done"),
        "It is booked.".to_owned(),
        "booker Completed".to_owned(),
        "Which seat?".to_owned(),
        r#"Slot of Some("seat"): {"type":"string","enum":["left","right"]}"#.to_owned(),
    ];
    assert_eq!(shown, expected);
    process.assert_replays().await;
}

/// The first turn of a conversation is given up before its session counts: the next turn begins a session.
#[tokio::test]
async fn next_run_is_told_what_a_first_turn_did_that_was_given_up() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, booking());
    script_faults(&store.appends, vec![Some(Fault::NotPerformed); 4]);
    assert_eq!(process.say("book it", "m1").await.unwrap_err().code(), "S0103");
    drop(process);
    let process = Process::new(&store, &clock, booking());
    let (report, _) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["Perhaps done."]);
    process.say("book it again", "m2").await.unwrap();
    let requests = process.model.requests();
    let told =
        requests[1].messages.iter().find(|message| message.text().starts_with("An earlier run of this task ended"));
    assert!(told.is_some_and(|message| message.text().contains("book")), "{:?}", requests[1].messages);
    process.assert_replays().await;
}

#[tokio::test]
async fn given_up_turn_without_effects_gives_the_plain_error_response() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, vec![text_answer("start flow greet")]);
    script_faults(&store.appends, vec![Some(Fault::NotPerformed); 4]);
    assert!(process.say("hello", "m1").await.is_err());
    assert_eq!(texts(&process.say("hello", "m1").await.unwrap().0), ["Broken."]);
    process.assert_replays().await;
}

/// A turn that is given up ends the active flows and agents. A later "ok" must not answer an older question.
#[tokio::test]
async fn given_up_turn_clears_the_stack() {
    let (store, clock) = store_and_clock();
    let steps = ["start flow book", "Which boat?", "continue agent", "Which one?"];
    let process = Process::new(&store, &clock, steps.map(text_answer).into());
    assert_eq!(texts(&process.say("book it", "m1").await.unwrap().0), ["Which boat?"]);
    let id = ConversationId::from("u");
    assert!(!process.assistant.conversation(&id).await.unwrap().stack.is_empty());
    script_faults(&store.appends, vec![Some(Fault::NotPerformed); 4]);
    assert!(process.say("the blue one", "m2").await.is_err());
    assert_eq!(texts(&process.say("the blue one", "m2").await.unwrap().0), ["Broken."]);
    let conversation = process.assistant.conversation(&id).await.unwrap();
    assert!(conversation.stack.is_empty(), "{:?}", conversation.stack);
    process.assert_replays().await;
}

#[tokio::test]
async fn operator_can_close_an_open_turn() {
    let (store, clock) = store_and_clock();
    let tool = BookingTool::blocking();
    let first = Arc::new(Process::with(&store, &clock, booking(), tool.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await.map(|_| ()) });
    tool.call_started.notified().await;
    let (id, second) = (ConversationId::from("u"), Process::new(&store, &clock, Vec::new()));
    let report = second.assistant.close_turn(&id, TurnNumber(1)).await.unwrap();
    assert_eq!((texts(&report), report.is_duplicate), (vec!["Perhaps done."], false));
    assert_eq!(store.pending_replies(&id).await.unwrap().len(), 1, "the message waits in the outbox");
    assert!(second.assistant.close_turn(&id, TurnNumber(1)).await.unwrap().is_duplicate, "the turn is closed already");
    assert_eq!(second.assistant.close_turn(&id, TurnNumber(2)).await.unwrap_err().code(), "S0105");
    second.assert_replays().await;
    running.abort();
}

#[tokio::test]
async fn same_message_id_on_two_channels_is_two_turns() {
    let (store, clock) = store_and_clock();
    let inbound = |channel: &str| {
        let message = UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: "hello".into(),
            message_id: "m1".into(),
            input_channel: channel.into(),
            metadata: Default::default(),
        };
        let (tenant, account, conversation) = ("".into(), "".into(), "u".into());
        InboxMessage { tenant, account, conversation, message, at: Timestamp::default(), seed: 1 }
    };
    store.accept(inbound("other")).await.unwrap();
    store.accept(inbound("test")).await.unwrap();
    let process = Process::new(&store, &clock, vec![text_answer("start flow greet"), text_answer("start flow greet")]);
    let (report, _) = process.say("hello", "m1").await.unwrap();
    assert_eq!(
        (report.turn, report.is_duplicate),
        (TurnNumber(2), false),
        "the message of another channel is another message"
    );
    assert_eq!(store.turns(&"u".into()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn message_accepted_with_a_lost_result_runs_before_the_next() {
    let (store, clock) = store_and_clock();
    let greetings = [text_answer("start flow greet"), text_answer("start flow greet")];
    let process = Process::new(&store, &clock, greetings.into_iter().chain(booking()).collect());
    process.say("hello", "").await.unwrap();
    script_faults(&store.accepts, [Some(Fault::ResultLost)]);
    assert_eq!(process.say("hello", "").await.unwrap_err().code(), "S0103");
    let (report, _) = process.say("book it", "").await.unwrap();
    assert_eq!((report.turn, texts(&report)), (TurnNumber(3), vec!["I am booking it.", "It is booked."]));
    let order: Vec<u64> = store.turns(&"u".into()).await.unwrap().iter().map(|turn| turn.turn.0).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[tokio::test]
async fn erased_conversation_starts_empty() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, vec![text_answer("start flow greet"), text_answer("start flow greet")]);
    process.say("my secret is 4711", "m1").await.unwrap();
    process.assistant.erase(&"u".into()).await.unwrap();
    assert_eq!(store.erases.load(Ordering::SeqCst), 1);
    let (report, _) = process.say("hello", "m1").await.unwrap();
    assert_eq!((report.turn, report.is_duplicate, texts(&report)), (TurnNumber(1), false, vec!["Hello."]));
    let prompt = process.model.requests().pop().unwrap();
    assert!(prompt.messages.iter().all(|message| !message.text().contains("4711")), "no erased text is sent");
    assert_eq!(store.turns(&"u".into()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn conversation_erased_directly_in_the_store_starts_empty() {
    let (store, clock) = store_and_clock();
    let process = Process::new(&store, &clock, vec![text_answer("start flow greet"), text_answer("start flow greet")]);
    process.say("my secret is 4711", "m1").await.unwrap();
    store.erase(&"u".into()).await.unwrap();
    process.say("hello", "m1").await.unwrap();
    let prompt = process.model.requests().pop().unwrap();
    assert!(prompt.messages.iter().all(|message| !message.text().contains("4711")), "no erased text is sent");
}

/// The message was accepted before the erasure and waits for the running turn: its turn is erased too.
#[tokio::test]
async fn message_waiting_during_an_erasure_is_refused() {
    let (store, clock) = store_and_clock();
    let tool = BookingTool::blocking();
    let process = Arc::new(Process::with(&store, &clock, booking(), tool.clone(), &FILES));
    let send = |text: &'static str, id: &'static str| {
        let process = process.clone();
        tokio::spawn(async move { process.say(text, id).await.map(|(report, _)| report) })
    };
    let first = send("book it", "m1");
    tool.call_started.notified().await;
    let second = process.clone();
    let erasing = tokio::spawn(async move { second.assistant.erase(&"u".into()).await });
    tokio::task::yield_now().await;
    let waiting = send("hello", "m2");
    while store.unfinished_turns(&"u".into()).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    tool.resume.notify_one();
    assert_eq!(texts(&first.await.unwrap().unwrap()), ["I am booking it.", "It is booked."]);
    erasing.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), "S0105");
    assert_eq!(process.model.requests().len(), 3, "no request for the erased message");
    assert_eq!(store.turns(&"u".into()).await.unwrap(), []);
}

#[tokio::test]
async fn duplicate_message_is_answered_during_a_running_turn_and_marked_as_delivered() {
    let (store, clock) = store_and_clock();
    let tool = BookingTool::blocking();
    let steps = [text_answer("start flow greet")].into_iter().chain(booking()).collect();
    let process = Arc::new(Process::with(&store, &clock, steps, tool.clone(), &FILES));
    let id = ConversationId::from("u");
    let incoming = IncomingMessage::new("u", "hello").input_channel("test").message_id("m1");
    process.assistant.receive(incoming, Box::new(segue::runtime::OutboxSink)).await.unwrap();
    assert_eq!(store.pending_replies(&id).await.unwrap().len(), 1);
    let second = process.clone();
    let running = tokio::spawn(async move { second.say("book it", "m2").await.map(|_| ()) });
    tool.call_started.notified().await;
    let (report, shown) = process.say("hello", "m1").await.unwrap();
    assert_eq!((report.is_duplicate, shown.texts()), (true, vec!["Hello.".to_owned()]));
    assert_eq!(store.pending_replies(&id).await.unwrap(), [], "the replies are not in the outbox any more");
    running.abort();
}
