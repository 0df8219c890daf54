//! Turns that are tried more than once: the store fails for a moment, or a process ends in the middle. What is known is not asked
//! again, what was shown is not shown again, no answer of another turn is given, and no turn is tried for ever.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue::{
    Assistant, BoxFuture, ConversationId, IncomingMessage, MemoryStore, ReplyEvent, Store, StoreError, Timestamp, Tool,
    ToolCallContext, ToolInfo, ToolOutcome, ToolOutput, Toolbox, TurnReport,
    ids::MessageId,
    llm::{ChatResponse, ToolArguments, ToolCall},
    store::{
        AcceptOutcome, InboxMessage, JournalRecord, StoredConversation, StoredReply, StoredTurn, TurnCommit,
        TurnNumber, UnfinishedTurn, Version,
    },
    testing::{CollectedReplies, CollectingSink, ManualClock, ScriptedCall, ScriptedLlm, StrictLlm},
};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

const FILES: [(&str, &str); 5] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("endpoints.yml", "mcp_servers: [{name: boats, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n"),
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

type Told<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What goes wrong with the next call of a kind.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It is not done.
    Refused,
    /// It is done, and the answer is lost.
    Lost,
}

/// A store whose calls fail when they are told to.
#[derive(Default)]
struct Flaky {
    inner: MemoryStore,
    /// For calls of `accept`, `append` and `journal`, in order; `None` for one that goes well.
    accepts: Mutex<VecDeque<Option<Fault>>>,
    appends: Mutex<VecDeque<Option<Fault>>>,
    journals: Mutex<VecDeque<Option<Fault>>>,
    erases: AtomicUsize,
}

fn down() -> StoreError {
    StoreError::Unavailable("database or disk is full".into())
}

async fn pass<T>(faults: &Mutex<VecDeque<Option<Fault>>>, done: Told<'_, T>) -> Result<T, StoreError> {
    let fault = faults.lock().unwrap().pop_front().flatten();
    match fault {
        Some(Fault::Refused) => Err(down()),
        Some(Fault::Lost) => done.await.and(Err(down())),
        None => done.await,
    }
}

impl Store for Flaky {
    fn accept(&self, inbound: InboxMessage) -> Told<'_, AcceptOutcome> {
        Box::pin(pass(&self.accepts, Box::pin(async move { self.inner.accept(inbound).await })))
    }
    fn append<'a>(&'a self, id: &'a ConversationId, after: Version, batch: TurnCommit) -> Told<'a, Version> {
        Box::pin(pass(&self.appends, Box::pin(async move { self.inner.append(id, after, batch).await })))
    }
    fn append_journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Told<'a, ()> {
        Box::pin(pass(&self.journals, Box::pin(async move { self.inner.append_journal(id, turn, records).await })))
    }
    fn load<'a>(&'a self, id: &'a ConversationId) -> Told<'a, StoredConversation> {
        self.inner.load(id)
    }
    fn unfinished_turns<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<UnfinishedTurn>> {
        self.inner.unfinished_turns(id)
    }
    fn unfinished_turns_in<'a>(
        &'a self,
        id: &'a ConversationId,
        turns: Range<TurnNumber>,
    ) -> Told<'a, Vec<UnfinishedTurn>> {
        self.inner.unfinished_turns_in(id, turns)
    }
    fn replies_of<'a>(&'a self, id: &'a ConversationId, turn: TurnNumber) -> Told<'a, Option<Vec<StoredReply>>> {
        self.inner.replies_of(id, turn)
    }
    fn conversations_with_work(&self) -> Told<'_, Vec<ConversationId>> {
        self.inner.conversations_with_work()
    }
    fn next_reminders(&self, limit: usize) -> Told<'_, Vec<(ConversationId, Timestamp)>> {
        self.inner.next_reminders(limit)
    }
    fn pending_replies<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<StoredReply>> {
        self.inner.pending_replies(id)
    }
    fn mark_delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>) -> Told<'a, ()> {
        self.inner.mark_delivered(id, replies)
    }
    fn turns<'a>(&'a self, id: &'a ConversationId) -> Told<'a, Vec<StoredTurn>> {
        self.inner.turns(id)
    }
    fn conversations(&self, limit: usize) -> Told<'_, Vec<ConversationId>> {
        self.inner.conversations(limit)
    }
    fn erase<'a>(&'a self, id: &'a ConversationId) -> Told<'a, ()> {
        self.erases.fetch_add(1, Ordering::SeqCst);
        self.inner.erase(id)
    }
    fn purge_expired(&self, now: Timestamp) -> Told<'_, u64> {
        self.inner.purge_expired(now)
    }
    fn replies_to_message<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> Told<'a, Option<Vec<StoredReply>>> {
        self.inner.replies_to_message(id, message)
    }
    fn text_by_hash<'a>(&'a self, id: &'a ConversationId, hash: &'a str) -> Told<'a, Option<Arc<str>>> {
        self.inner.text_by_hash(id, hash)
    }
}

/// The tool that books: how often it ran, and whether it waits before it answers.
#[derive(Clone, Default)]
struct Boats {
    booked: Arc<AtomicUsize>,
    begun: Arc<Notify>,
    /// Whether it waits until it is let go on.
    hangs: bool,
    goes_on: Arc<Notify>,
}

impl Boats {
    fn hanging() -> Self {
        Self { hangs: true, ..Self::default() }
    }
    fn source(&self) -> Arc<Toolbox> {
        let spec = ToolInfo::new("book", "books").parameters(json!({"type": "object"})).source("boats");
        let boats = self.clone();
        let run = move |_: Json, _: ToolCallContext| {
            let boats = boats.clone();
            async move {
                boats.booked.fetch_add(1, Ordering::SeqCst);
                boats.begun.notify_one();
                if boats.hangs {
                    boats.goes_on.notified().await;
                }
                ToolOutcome::Done(ToolOutput::text("NW-1"))
            }
        };
        Arc::new(Toolbox::new("boats", [Tool::from_fn(spec, run)]))
    }
    fn booked(&self) -> usize {
        self.booked.load(Ordering::SeqCst)
    }
}

fn calls(name: &str, text: &str) -> ScriptedCall {
    let call =
        ToolCall { id: format!("c-{name}").into(), name: name.into(), arguments: ToolArguments::json(json!({})) };
    ChatResponse { text: text.into(), ..ChatResponse::calls(vec![call]) }.into()
}

/// One process: an assistant on a store, with a model that answers these, one after the other, and no more.
struct Process {
    assistant: Assistant,
    model: Arc<StrictLlm>,
    boats: Boats,
}

impl Process {
    fn new(store: &Arc<Flaky>, clock: &ManualClock, steps: Vec<ScriptedCall>) -> Self {
        Self::with(store, clock, steps, Boats::default(), &FILES)
    }
    fn with(
        store: &Arc<Flaky>,
        clock: &ManualClock,
        steps: Vec<ScriptedCall>,
        boats: Boats,
        files: &[(&'static str, &'static str)],
    ) -> Self {
        let model = Arc::new(ScriptedLlm::strict(steps));
        let builder = Assistant::builder_from_texts(files.iter().copied()).unwrap();
        let builder = builder.store(store.clone()).clock(Arc::new(clock.clone())).seeds(|| 7).source(boats.source());
        Self { assistant: builder.model(model.clone()).build().unwrap(), model, boats }
    }
    async fn say(&self, text: &str, id: &str) -> Result<(TurnReport, CollectedReplies), segue::ReceiveError> {
        let sink = CollectingSink::streaming();
        let collected = sink.collected();
        let mut incoming = IncomingMessage::text("u", text, "test");
        incoming.message.message_id = id.into();
        Ok((self.assistant.receive(incoming, Box::new(sink)).await?, collected))
    }
    async fn replays(&self) {
        let difference = self.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "{difference:?}");
    }
}

fn world() -> (Arc<Flaky>, ManualClock) {
    (Arc::default(), ManualClock::new())
}

fn texts(report: &TurnReport) -> Vec<&str> {
    report.replies.iter().map(|reply| reply.reply.text.as_deref().unwrap_or_default()).collect()
}

fn commands(text: &str) -> ScriptedCall {
    ScriptedCall::from(text)
}

fn booking() -> Vec<ScriptedCall> {
    vec![commands("start flow book"), calls("book", "I am booking it."), calls("task_completed", "It is booked.")]
}

/// How often the store is told to fail.
fn faults(queue: &Mutex<VecDeque<Option<Fault>>>, faults: impl IntoIterator<Item = Option<Fault>>) {
    *queue.lock().unwrap() = faults.into_iter().collect();
}

#[tokio::test]
async fn a_turn_that_was_not_stored_is_not_answered_with_another_one() {
    for fault in [Fault::Refused, Fault::Lost] {
        let (store, clock) = world();
        let steps = [commands("start flow greet")].into_iter().chain(booking()).collect();
        let process = Process::new(&store, &clock, steps);
        assert_eq!(texts(&process.say("hello", "").await.unwrap().0), ["Hello."]);
        faults(&store.appends, [Some(fault)]);
        let (report, seen) = process.say("book it", "").await.unwrap();
        assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
        assert!(!report.is_duplicate, "it was not answered before");
        assert_eq!(seen.texts(), ["I am booking it.", "It is booked."], "each once");
        assert_eq!(process.boats.booked(), 1);
        assert_eq!(store.pending_replies(&"u".into()).await.unwrap(), []);
        process.replays().await;
    }
}

#[tokio::test]
async fn a_stored_turn_whose_answer_was_lost_is_still_delivered() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, vec![commands("start flow greet")]);
    faults(&store.appends, [Some(Fault::Lost)]);
    let (report, seen) = process.say("hello", "").await.unwrap();
    assert_eq!((texts(&report), seen.texts()), (vec!["Hello."], vec!["Hello.".to_owned()]));
    assert_eq!(store.pending_replies(&"u".into()).await.unwrap(), []);
}

#[tokio::test]
async fn an_outcome_that_could_not_be_stored_is_known_to_the_next_try() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, booking());
    // The intent is stored, the outcome is not.
    faults(&store.journals, [None, None, Some(Fault::Refused)]);
    let (report, seen) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
    assert_eq!(seen.texts(), ["I am booking it.", "It is booked."]);
    assert_eq!((process.boats.booked(), process.model.requests().len()), (1, 3), "nothing is asked twice");
    let starts = seen.events().iter().filter(|piece| matches!(piece, ReplyEvent::Start { .. })).count();
    assert_eq!(starts, 2, "what the client has is not streamed again");
    let events = serde_json::to_string(&store.turns(&"u".into()).await.unwrap()[0].events).unwrap();
    assert!(!events.contains("reply_interrupted"), "nothing was interrupted");
    process.replays().await;
}

/// The disk is full while the tool works, and for a while afterwards.
#[tokio::test]
async fn a_full_disk_in_the_middle_of_a_tool_keeps_its_outcome_until_it_has_room() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, booking());
    faults(&store.journals, [None, None].into_iter().chain(vec![Some(Fault::Refused); 2]));
    let error = process.say("book it", "m1").await.unwrap_err();
    assert_eq!(error.code(), "S0103");
    assert_eq!(
        store.unfinished_turns(&"u".into()).await.unwrap()[0].attempts(),
        1,
        "what cannot be counted is not tried"
    );
    // The next message comes when there is room.
    let (report, _) = process.say("/nothing", "m2").await.unwrap();
    assert!(!report.replies.is_empty());
    let (report, _) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
    assert_eq!((report.is_duplicate, process.boats.booked(), process.model.requests().len()), (true, 1, 3));
    process.replays().await;
}

#[tokio::test]
async fn nothing_is_shown_of_a_reply_that_could_not_be_announced() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, booking());
    faults(&store.journals, [Some(Fault::Refused)]);
    let (report, seen) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "It is booked."]);
    let first = report.replies[0].id.clone();
    let of_it = |piece: &ReplyEvent| match piece {
        ReplyEvent::Start { id, .. } | ReplyEvent::Delta { id, .. } | ReplyEvent::End { id, .. } => *id == first,
        _ => false,
    };
    assert!(!seen.events().iter().any(of_it), "{:?}", seen.events());
    assert!(seen.texts().contains(&"I am booking it.".to_owned()), "it comes when it is stored");
}

/// A process ends while the tool works; another one takes the turn over minutes later.
#[tokio::test]
async fn a_turn_cut_in_its_tool_is_walked_with_what_the_first_process_had() {
    let (store, clock) = world();
    let boats = Boats::hanging();
    let first = Arc::new(Process::with(&store, &clock, booking(), boats.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await.map(|_| ()) });
    boats.begun.notified().await;
    // The first one is dead: no time passes for it any more.
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(150));

    let second =
        Process::new(&store, &clock, vec![calls("task_completed", "I cannot tell whether the booking was made.")]);
    assert_eq!(second.assistant.recover().await.unwrap(), 1);
    let (report, _) = second.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["I am booking it.", "I cannot tell whether the booking was made."]);
    assert!(second.model.requests()[0].messages.iter().any(|message| message.text().contains("not known")));
    assert_eq!((boats.booked(), second.boats.booked()), (1, 0));
    second.replays().await;
    running.abort();
}

/// The first process was only slow: it finds its turn answered, and tells its client what is stored.
#[tokio::test]
async fn a_turn_that_another_process_answered_is_answered_with_what_is_stored() {
    let (store, clock) = world();
    let boats = Boats::hanging();
    let first = Arc::new(Process::with(&store, &clock, booking(), boats.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await });
    boats.begun.notified().await;
    let second =
        Process::new(&store, &clock, vec![calls("task_completed", "I cannot tell whether the booking was made.")]);
    assert_eq!(second.assistant.recover().await.unwrap(), 1);
    boats.goes_on.notify_one();
    let (report, seen) = running.await.unwrap().unwrap();
    let stored = ["I am booking it.", "I cannot tell whether the booking was made."];
    assert_eq!((texts(&report), report.turn), (stored.to_vec(), TurnNumber(1)));
    assert_eq!(seen.texts().last().map(String::as_str), Some(stored[1]), "the last word is what counts");
    assert_eq!(store.turns(&"u".into()).await.unwrap().len(), 1);
    second.replays().await;
}

/// What the second process would ask is not what the first one asked: nothing is asked again, and the outcomes are kept.
#[tokio::test]
async fn a_turn_that_asks_for_something_else_when_it_is_walked_again_keeps_its_outcomes() {
    let (store, clock) = world();
    let boats = Boats::hanging();
    let first = Arc::new(Process::with(&store, &clock, booking(), boats.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await.map(|_| ()) });
    boats.begun.notified().await;
    let id = ConversationId::from("u");
    let records = store.unfinished_turns(&id).await.unwrap().remove(0).journal;
    let mut asked = records.into_iter().find(|record| &*record.kind == "llm").unwrap();
    asked.request = "something else".into();
    store.inner.append_journal(&id, TurnNumber(1), vec![asked]).await.unwrap();

    let second = Process::new(&store, &clock, Vec::new());
    let (report, _) = second.say("book it", "m1").await.unwrap();
    assert!(!report.replies.is_empty(), "the user is told");
    let turns = store.turns(&id).await.unwrap();
    let events = serde_json::to_string(&turns[0].events).unwrap();
    assert!(events.contains("tool_executed") && events.contains("unknown"), "{events}");
    assert_eq!((boats.booked(), second.boats.booked(), second.model.requests().len()), (1, 0, 0));
    second.replays().await;
    running.abort();
}

#[tokio::test]
async fn no_turn_is_tried_more_than_three_times() {
    let (store, clock) = world();
    let id = ConversationId::from("u");
    // Every try comes to its end and is not stored.
    let process = Process::new(&store, &clock, booking());
    faults(&store.appends, vec![Some(Fault::Refused); 4]);
    assert_eq!(process.say("book it", "m1").await.unwrap_err().code(), "S0103");
    assert_eq!(store.unfinished_turns(&id).await.unwrap()[0].attempts(), 3);
    drop(process);
    // The count is in the store: the next process does not try again.
    let process = Process::new(&store, &clock, vec![commands("start flow greet")]);
    let (report, _) = process.say("book it", "m1").await.unwrap();
    assert_eq!(texts(&report), ["Perhaps done."], "some of it was done");
    assert_eq!(report.failures[0].code, "R0105");
    assert_eq!((process.boats.booked(), process.model.requests().len()), (0, 0));
    assert_eq!(texts(&process.say("hello", "m2").await.unwrap().0), ["Hello."], "and the conversation goes on");
    process.replays().await;
}

#[tokio::test]
async fn a_turn_that_did_nothing_is_given_up_with_the_plain_words() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, vec![commands("start flow greet")]);
    faults(&store.appends, vec![Some(Fault::Refused); 4]);
    assert!(process.say("hello", "m1").await.is_err());
    assert_eq!(texts(&process.say("hello", "m1").await.unwrap().0), ["Broken."]);
    process.replays().await;
}

/// What was under way when a turn is given up ends with it: an "ok" to the honest message is no answer to an older question.
#[tokio::test]
async fn nothing_waits_for_an_answer_after_a_turn_that_was_given_up() {
    let (store, clock) = world();
    let steps = ["start flow book", "Which boat?", "continue agent", "Which one?"];
    let process = Process::new(&store, &clock, steps.map(commands).into());
    assert_eq!(texts(&process.say("book it", "m1").await.unwrap().0), ["Which boat?"]);
    let id = ConversationId::from("u");
    assert!(!process.assistant.conversation(&id).await.unwrap().stack.is_empty());
    faults(&store.appends, vec![Some(Fault::Refused); 4]);
    assert!(process.say("the blue one", "m2").await.is_err());
    assert_eq!(texts(&process.say("the blue one", "m2").await.unwrap().0), ["Broken."]);
    let conversation = process.assistant.conversation(&id).await.unwrap();
    assert!(conversation.stack.is_empty(), "{:?}", conversation.stack);
    process.replays().await;
}

#[tokio::test]
async fn an_operator_closes_an_open_turn() {
    let (store, clock) = world();
    let boats = Boats::hanging();
    let first = Arc::new(Process::with(&store, &clock, booking(), boats.clone(), &FILES));
    let running = tokio::spawn(async move { first.say("book it", "m1").await.map(|_| ()) });
    boats.begun.notified().await;
    let (id, second) = (ConversationId::from("u"), Process::new(&store, &clock, Vec::new()));
    let report = second.assistant.close_turn(&id, TurnNumber(1)).await.unwrap();
    assert_eq!((texts(&report), report.is_duplicate), (vec!["Perhaps done."], false));
    assert_eq!(store.pending_replies(&id).await.unwrap().len(), 1, "the message waits in the outbox");
    assert!(second.assistant.close_turn(&id, TurnNumber(1)).await.unwrap().is_duplicate, "it is closed already");
    assert_eq!(second.assistant.close_turn(&id, TurnNumber(2)).await.unwrap_err().code(), "S0105");
    second.replays().await;
    running.abort();
}

#[tokio::test]
async fn the_messages_of_two_channels_with_one_id_are_two_turns() {
    let (store, clock) = world();
    let inbound = |channel: &str| {
        let IncomingMessage { conversation, mut message, .. } = IncomingMessage::text("u", "hello", channel);
        message.message_id = "m1".into();
        InboxMessage { tenant: "".into(), account: "".into(), conversation, message, at: Timestamp::default(), seed: 1 }
    };
    store.accept(inbound("other")).await.unwrap();
    store.accept(inbound("test")).await.unwrap();
    let process = Process::new(&store, &clock, vec![commands("start flow greet"), commands("start flow greet")]);
    let (report, _) = process.say("hello", "m1").await.unwrap();
    assert_eq!(
        (report.turn, report.is_duplicate),
        (TurnNumber(2), false),
        "the answer to the other one is none to this one"
    );
    assert_eq!(store.turns(&"u".into()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_message_that_was_stored_without_an_answer_comes_before_the_next() {
    let (store, clock) = world();
    let greetings = [commands("start flow greet"), commands("start flow greet")];
    let process = Process::new(&store, &clock, greetings.into_iter().chain(booking()).collect());
    process.say("hello", "").await.unwrap();
    faults(&store.accepts, [Some(Fault::Lost)]);
    assert_eq!(process.say("hello", "").await.unwrap_err().code(), "S0103");
    let (report, _) = process.say("book it", "").await.unwrap();
    assert_eq!((report.turn, texts(&report)), (TurnNumber(3), vec!["I am booking it.", "It is booked."]));
    let order: Vec<u64> = store.turns(&"u".into()).await.unwrap().iter().map(|turn| turn.turn.0).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[tokio::test]
async fn an_erased_conversation_begins_empty() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, vec![commands("start flow greet"), commands("start flow greet")]);
    process.say("my secret is 4711", "m1").await.unwrap();
    process.assistant.erase(&"u".into()).await.unwrap();
    assert_eq!(store.erases.load(Ordering::SeqCst), 1);
    let (report, _) = process.say("hello", "m1").await.unwrap();
    assert_eq!((report.turn, report.is_duplicate, texts(&report)), (TurnNumber(1), false, vec!["Hello."]));
    let prompt = process.model.requests().pop().unwrap();
    assert!(prompt.messages.iter().all(|message| !message.text().contains("4711")), "nothing erased leaves");
    assert_eq!(store.turns(&"u".into()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_conversation_that_was_erased_in_the_store_begins_empty_too() {
    let (store, clock) = world();
    let process = Process::new(&store, &clock, vec![commands("start flow greet"), commands("start flow greet")]);
    process.say("my secret is 4711", "m1").await.unwrap();
    store.erase(&"u".into()).await.unwrap();
    process.say("hello", "m1").await.unwrap();
    let prompt = process.model.requests().pop().unwrap();
    assert!(prompt.messages.iter().all(|message| !message.text().contains("4711")), "nothing erased leaves");
}

/// A message that was accepted before the conversation was erased and waits behind it has no turn any more.
#[tokio::test]
async fn a_message_that_waits_while_its_conversation_is_erased_is_refused() {
    let (store, clock) = world();
    let boats = Boats::hanging();
    let process = Arc::new(Process::with(&store, &clock, booking(), boats.clone(), &FILES));
    let send = |text: &'static str, id: &'static str| {
        let process = process.clone();
        tokio::spawn(async move { process.say(text, id).await.map(|(report, _)| report) })
    };
    let first = send("book it", "m1");
    boats.begun.notified().await;
    let other = process.clone();
    let erasing = tokio::spawn(async move { other.assistant.erase(&"u".into()).await });
    tokio::task::yield_now().await;
    let second = send("hello", "m2");
    while store.unfinished_turns(&"u".into()).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    boats.goes_on.notify_one();
    assert_eq!(texts(&first.await.unwrap().unwrap()), ["I am booking it.", "It is booked."]);
    erasing.await.unwrap().unwrap();
    assert_eq!(second.await.unwrap().unwrap_err().code(), "S0105");
    assert_eq!(process.model.requests().len(), 3, "nothing was asked for it");
    assert_eq!(store.turns(&"u".into()).await.unwrap(), []);
}

#[tokio::test]
async fn a_repeated_message_does_not_wait_for_the_running_turn_and_is_marked_as_delivered() {
    let (store, clock) = world();
    let boats = Boats::hanging();
    let steps = [commands("start flow greet")].into_iter().chain(booking()).collect();
    let process = Arc::new(Process::with(&store, &clock, steps, boats.clone(), &FILES));
    let id = ConversationId::from("u");
    let mut incoming = IncomingMessage::text("u", "hello", "test");
    incoming.message.message_id = "m1".into();
    process.assistant.receive(incoming, Box::new(segue::runtime::OutboxSink)).await.unwrap();
    assert_eq!(store.pending_replies(&id).await.unwrap().len(), 1);
    let other = process.clone();
    let running = tokio::spawn(async move { other.say("book it", "m2").await.map(|_| ()) });
    boats.begun.notified().await;
    let (report, seen) = process.say("hello", "m1").await.unwrap();
    assert_eq!((report.is_duplicate, seen.texts()), (true, vec!["Hello.".to_owned()]));
    assert_eq!(
        store.pending_replies(&id).await.unwrap(),
        [],
        "a channel that calls for what waits does not get it again"
    );
    running.abort();
}
