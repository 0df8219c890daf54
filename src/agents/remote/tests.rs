//! Runs of a remote agent with a scripted A2A client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use segue_engine::{
    conversation::{AgentCall, AgentKind, AgentStatus, Conversation, Event, EventKind, FlowLocation, UserMessage},
    ids::ConversationId,
    project::{Project, SourceFile, Sources},
    time::Timestamp,
};
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::{
    a2a::{
        A2aWireFormat, decode,
        model::{Part, Update},
    },
    agents::hooks::{AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, OutputChange},
    clock::Clock,
    llm::scripted::ScriptedLlm,
    react::ToolNarrowing,
    testing::ManualClock,
    tools::tool_set::ToolSet,
};

/// The status texts of a task, and its end.
type End = (Vec<&'static str>, Result<Task, A2aError>);

/// A client with scripted responses: each message takes the next first response, each task the next end.
#[derive(Default)]
struct ScriptedAgent {
    first_responses: Mutex<VecDeque<Result<FirstResponse, A2aError>>>,
    ends: Mutex<VecDeque<End>>,
    sent: Mutex<Vec<crate::a2a::model::Message>>,
    cancelled_tasks: Mutex<Vec<String>>,
}

impl A2aClient for ScriptedAgent {
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>> {
        self.sent.lock().unwrap().push(outgoing.message.clone());
        let first = self.first_responses.lock().unwrap().pop_front().expect("the script has a response");
        Box::pin(async move { first.map(|first| SendReceipt { first, live: None }) })
    }
    fn follow<'a>(
        &'a self,
        accepted: SendReceipt,
        listener: &'a mut dyn TaskListener,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<Task, A2aError>> {
        Box::pin(async move {
            let (texts, end) = match self.ends.lock().unwrap().pop_front() {
                Some(end) => end,
                None => match accepted.first {
                    FirstResponse::Task(task) => (Vec::new(), Ok(task)),
                    FirstResponse::Message(_) => panic!("a message is not followed"),
                },
            };
            for text in texts {
                listener.on_status_text(text).await;
            }
            end
        })
    }
    fn cancel<'a>(&'a self, task: &'a str, _: &'a CallContext) -> BoxFuture<'a, Result<(), A2aError>> {
        self.cancelled_tasks.lock().unwrap().push(task.to_owned());
        Box::pin(std::future::ready(Ok(())))
    }
}

impl ScriptedAgent {
    fn first_responses(first_responses: impl IntoIterator<Item = Result<FirstResponse, A2aError>>) -> Self {
        Self { first_responses: Mutex::new(first_responses.into_iter().collect()), ..Self::default() }
    }
    fn sent(&self) -> Vec<crate::a2a::model::Message> {
        self.sent.lock().unwrap().clone()
    }
}

/// A sink that collects its events.
#[derive(Default)]
struct RecordingSink {
    events: Vec<TurnEvent>,
}

#[async_trait]
impl ReplySink for RecordingSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    async fn send(
        &mut self,
        event: TurnEvent,
        _: &CallContext,
    ) -> Result<crate::conversation::Receipt, crate::conversation::DeliveryError> {
        self.events.push(event);
        Ok(crate::conversation::Receipt::Delivered)
    }
}

/// A task in the format of A2A 0.3.
fn task(status: Json, artifacts: Json) -> Task {
    let json = json!({"kind": "task", "id": "t", "contextId": "c", "status": status, "artifacts": artifacts});
    match decode::update(&json, A2aWireFormat::JsonRpcV0_3).unwrap() {
        Update::Task(task) => task,
        other => panic!("{other:?}"),
    }
}

fn status_with_text(state: &str, text: &str) -> Json {
    json!({"state": state, "message": {"messageId": "a", "role": "agent", "parts": [{"kind": "text", "text": text}]}})
}

fn task_reply(state: &str, text: &str) -> Result<FirstResponse, A2aError> {
    Ok(FirstResponse::Task(task(status_with_text(state, text), json!([]))))
}

fn error(kind: A2aErrorKind) -> A2aError {
    A2aError::new(kind, "words for operators")
}

struct Harness {
    project: Arc<Project>,
    conversation: Conversation,
    call: AgentCall,
    sink: RecordingSink,
    clock: Arc<ManualClock>,
}

impl Harness {
    fn new(more: &str) -> Self {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let agent = format!(
            "agent: {{name: remote, description: helps, protocol: A2A}}\nconfiguration:\n  agent_card: https://example.org/card\n{more}"
        );
        let domain = "slots:\n  city: {type: text, initial_value: Arnvik}\n  price: {type: float}\n";
        let sources = Sources {
            domain: vec![file("domain.yml", domain)],
            data: vec![file("data/f.yml", "flows: {f: {description: x, steps: [{call: remote}]}}")],
            agents: vec![file("sub_agents/remote/config.yml", &agent)],
            ..Sources::default()
        };
        let loaded = Project::load(&sources);
        let project = Arc::new(loaded.project.unwrap_or_else(|| panic!("{:#?}", loaded.findings)));
        let step = project.flow("f").unwrap().first().unwrap().id.clone();
        let call = AgentCall {
            agent: "remote".into(),
            kind: AgentKind::Open,
            flow_id: "f".into(),
            step_id: step,
            user_message: "help me".into(),
            resumed: false,
            resumed_last_request: None,
            restarted: false,
            confirmed: None,
            metadata: Map::new(),
            at: Timestamp::from_seconds(1_795_000_000.0),
        };
        let mut conversation = Conversation::new(ConversationId::from("c"));
        let message = UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: "help me".into(),
            message_id: "m".into(),
            input_channel: "test".into(),
            metadata: Map::new(),
        };
        conversation.apply(&Event {
            at: Timestamp::default(),
            kind: EventKind::User(message),
            location: FlowLocation::default(),
        });
        Self {
            project,
            conversation,
            call,
            sink: RecordingSink::default(),
            clock: Arc::new(ManualClock::auto_advancing()),
        }
    }

    async fn run(&mut self, client: &ScriptedAgent) -> AgentOutcome {
        let clock: Arc<dyn Clock> = self.clock.clone();
        self.run_with_context(client, &CallContext::new(clock, Duration::from_secs(600))).await
    }

    async fn run_with_context(&mut self, client: &ScriptedAgent, cx: &CallContext) -> AgentOutcome {
        self.run_with_hooks(client, None, cx).await
    }

    async fn run_with_hooks(
        &mut self,
        client: &ScriptedAgent,
        hooks: Option<Arc<dyn AgentHooks>>,
        cx: &CallContext,
    ) -> AgentOutcome {
        let definition = self.project.agent("remote").unwrap().clone();
        let metadata = json!({"sender_id": "u1", "message_metadata": {"account": "a7"}});
        let task = AgentRequest {
            project: &self.project,
            conversation: &self.conversation,
            call: &self.call,
            definition: &definition,
            llm: Arc::new(ScriptedLlm::strict(["never"])),
            tools: ToolSet::default(),
            metadata: Arc::new(metadata.as_object().unwrap().clone()),
            mcp_meta: Arc::default(),
            hooks,
            user_message_changed: false,
            slots: None,
            delegation: None,
            narrowing: ToolNarrowing::default(),
            host: &crate::agents::NoHost,
        };
        let outcome = run_hooked(&task, definition.remote.as_ref().unwrap(), client, &mut self.sink, cx).await;
        self.call.metadata = outcome.metadata.clone();
        outcome
    }
}

fn texts(outcome: &AgentOutcome) -> Vec<(BotKind, String)> {
    let bot = |event: &Event| match &event.kind {
        EventKind::Bot(bot) => Some((bot.kind, bot.reply.text.as_deref().unwrap_or_default().to_owned())),
        _ => None,
    };
    outcome.events.iter().filter_map(bot).collect()
}

fn code(outcome: &AgentOutcome) -> &str {
    match &outcome.status {
        AgentStatus::Failed { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn completed_task_returns_ids_texts_and_results() {
    let mut harness = Harness::new("  output_mapping: [{slot: price, value: result.data.price}]\n");
    let waiting = task(
        json!({"state": "input-required", "message": {"messageId": "a", "role": "agent", "parts": [
            {"kind": "text", "text": "How many?"}, {"kind": "data", "data": {"most": 9}}]}}),
        json!([]),
    );
    let done = task(
        status_with_text("completed", "Done."),
        json!([
            {"artifactId": "a", "name": "quote", "parts": [{"kind": "text", "text": "90 euros"}, {"kind": "data", "data": {"price": 90}}]},
            {"artifactId": "b", "parts": [{"kind": "file", "file": {"uri": "https://x/y.pdf", "name": "y.pdf", "mimeType": "application/pdf"}}, {"kind": "text", "text": "Done."}]},
        ]),
    );
    let client = ScriptedAgent::first_responses([task_reply("submitted", ""), task_reply("working", "")]);
    client.ends.lock().unwrap().extend([(vec!["Looking"], Ok(waiting)), (vec![], Ok(done))]);
    let first = harness.run(&client).await;
    assert_eq!(first.status, AgentStatus::AwaitingUser);
    let expected = [(BotKind::Intermediate, "Looking".to_owned()), (BotKind::InputRequired, "How many?".to_owned())];
    assert_eq!(texts(&first), expected);
    assert_eq!(first.data, json!([{"name": "remote_message_1", "type": "data", "result": {"most": 9}}]));
    assert_eq!((&first.metadata["task_id"], &first.metadata["context_id"]), (&json!("t"), &json!("c")));

    harness.call.user_message = "three".into();
    let second = harness.run(&client).await;
    assert_eq!(second.status, AgentStatus::Finished);
    let expected = [(BotKind::FinalResponse, "Done.\n90 euros\nFile: https://x/y.pdf\nDone.".to_owned())];
    assert_eq!(texts(&second), expected);
    let file = json!({"uri": "https://x/y.pdf", "name": "y.pdf", "mime_type": "application/pdf"});
    let results = json!([
        {"name": "remote_0_1", "type": "data", "result": {"price": 90}},
        {"name": "remote_1_0", "type": "file", "result": file},
    ]);
    assert_eq!(second.data, results);
    assert_eq!(second.metadata.get("task_id"), None, "a finished task is not named again");
    assert_eq!(second.metadata["context_id"], "c");
    let price = second.events.iter().find_map(|event| match &event.kind {
        EventKind::Slot { name, value, .. } if name.as_str() == "price" => Some(value.clone()),
        _ => None,
    });
    assert_eq!(price, Some(json!(90)));
    let sent = client.sent();
    assert_eq!((&sent[0].task_id, &sent[0].context_id), (&None, &None));
    assert_eq!((sent[1].task_id.as_deref(), sent[1].context_id.as_deref()), (Some("t"), Some("c")));
    assert_eq!(text_of(&sent[0].parts), "USER: help me", "the first message contains the whole conversation");
    assert_eq!(text_of(&sent[1].parts), "three");
    assert_eq!(harness.sink.events.len(), 3, "each message was sent once");
}

#[tokio::test]
async fn cancelled_run_sends_nothing_and_cancels_the_task() {
    let mut harness = Harness::new("");
    let client = ScriptedAgent::first_responses([task_reply("working", "")]);
    client.ends.lock().unwrap().push_back((vec![], Err(error(A2aErrorKind::Cancelled))));
    let cx = CallContext::new(harness.clock.clone(), Duration::from_secs(600));
    cx.cancel.cancel();
    let outcome = harness.run_with_context(&client, &cx).await;
    assert!(matches!(outcome.status, AgentStatus::Cancelled { .. }), "{:?}", outcome.status);
    assert!(texts(&outcome).is_empty() && harness.sink.events.is_empty());
    assert_eq!(*client.cancelled_tasks.lock().unwrap(), ["t"]);
    assert_eq!(client.sent().len(), 1);
}

#[tokio::test]
async fn every_task_state_has_its_result() {
    for (state, expected) in [("failed", "A0513"), ("rejected", "A0513"), ("canceled", "A0513")] {
        let client = ScriptedAgent::first_responses([task_reply(state, "no")]);
        let outcome = Harness::new("").run(&client).await;
        assert_eq!((code(&outcome), client.sent().len()), (expected, 1), "{state}");
        assert!(texts(&outcome).is_empty(), "the text of the agent is not sent to the user");
        assert_eq!(outcome.metadata.get("task_id"), None);
    }
    let client = ScriptedAgent::first_responses([task_reply("auth-required", "Log in, please")]);
    let outcome = Harness::new("").run(&client).await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(outcome.metadata["task_id"], "t", "a task that waits for a login is open");
}

#[tokio::test]
async fn errors_have_codes_and_only_safe_ones_are_retried() {
    use crate::a2a::codes;
    for (kind, expected, messages) in [
        (A2aErrorKind::Unreachable, "A0511", 3),
        (A2aErrorKind::Card, "A0511", 1),
        (A2aErrorKind::Authentication, "A0511", 1),
        (A2aErrorKind::Protocol(codes::INTERNAL_ERROR), "A0512", 3),
        (A2aErrorKind::Protocol(codes::INVALID_PARAMS), "A0512", 1),
        (A2aErrorKind::ConnectionLost, "A0515", 1),
        (A2aErrorKind::InvalidResponse, "A0512", 1),
        (A2aErrorKind::Status(429), "A0512", 3),
        (A2aErrorKind::Status(404), "A0512", 1),
        (A2aErrorKind::Status(503), "A0515", 1),
        (A2aErrorKind::Status(500), "A0515", 1),
        (A2aErrorKind::TimedOut, "A0515", 1),
        (A2aErrorKind::OutcomeUnknown, "A0515", 1),
    ] {
        let client = ScriptedAgent::first_responses((0..3).map(|_| Err(error(kind.clone()))));
        let mut harness = Harness::new("");
        let outcome = harness.run(&client).await;
        assert_eq!((code(&outcome), client.sent().len()), (expected, messages), "{kind:?}");
    }
}

#[tokio::test]
async fn accepted_task_is_not_restarted_after_a_failed_status_request() {
    use crate::a2a::codes;
    for kind in [A2aErrorKind::Status(503), A2aErrorKind::Protocol(codes::INTERNAL_ERROR), A2aErrorKind::Unreachable] {
        let client = ScriptedAgent::first_responses((0..3).map(|_| task_reply("working", "")));
        client.ends.lock().unwrap().push_back((vec![], Err(error(kind.clone()))));
        let outcome = Harness::new("").run(&client).await;
        let expected = if kind == A2aErrorKind::Unreachable { "A0511" } else { "A0512" };
        assert_eq!((code(&outcome), client.sent().len()), (expected, 1), "{kind:?}");
        assert_eq!(*client.cancelled_tasks.lock().unwrap(), ["t"], "the task is cancelled: {kind:?}");
    }
}

#[tokio::test]
async fn message_that_was_not_accepted_is_retried_on_the_same_task() {
    let mut harness = Harness::new("");
    let unreachable = || Err(error(A2aErrorKind::Unreachable));
    let client = ScriptedAgent::first_responses([
        task_reply("input-required", "How many?"),
        unreachable(),
        unreachable(),
        task_reply("completed", "Done."),
    ]);
    harness.run(&client).await;
    assert_eq!(harness.run(&client).await.status, AgentStatus::Finished);
    let tasks: Vec<_> = client.sent().into_iter().map(|message| message.task_id).collect();
    assert_eq!(tasks, [None, Some("t".to_owned()), Some("t".to_owned()), Some("t".to_owned())]);
}

#[tokio::test]
async fn late_task_is_cancelled_unless_push_notifications_are_configured() {
    let client = ScriptedAgent::first_responses([task_reply("working", "")]);
    client.ends.lock().unwrap().push_back((vec![], Err(error(A2aErrorKind::TimedOut))));
    let outcome = Harness::new("").run(&client).await;
    assert_eq!((code(&outcome), client.cancelled_tasks.lock().unwrap().len()), ("A0514", 1));

    let mut harness = Harness::new("  push_notification_url: https://example.org\n");
    let client = ScriptedAgent::first_responses([task_reply("working", "")]);
    let end = Ok(task(status_with_text("completed", "At last."), json!([])));
    client.ends.lock().unwrap().extend([(vec![], Err(error(A2aErrorKind::TimedOut))), (vec![], end)]);
    let outcome = harness.run(&client).await;
    assert_eq!((outcome.status, client.cancelled_tasks.lock().unwrap().len()), (AgentStatus::Yielded, 0));
    let outcome = harness.run(&client).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(client.sent().len(), 1, "a working task gets no message");
}

#[tokio::test]
async fn only_configured_slots_and_metadata_are_sent() {
    let client = ScriptedAgent::first_responses([task_reply("completed", "x")]);
    Harness::new("").run(&client).await;
    assert!(client.sent()[0].metadata.is_empty());
    let city = json!({"slots": [{"name": "city", "value": "Arnvik"}, {"name": "language", "value": "en"}]});
    assert_eq!(client.sent()[0].parts.get(1), Some(&crate::a2a::model::Part::Data(city)));

    let client = ScriptedAgent::first_responses([task_reply("completed", "x")]);
    Harness::new("  forward_metadata: [account, nothing]\n  forward_slots: [price]\n").run(&client).await;
    assert_eq!(Json::Object(client.sent()[0].metadata.clone()), json!({"account": "a7"}));
    assert_eq!(client.sent()[0].parts.len(), 1, "an empty slot is not sent");
}

#[tokio::test]
async fn resumed_agent_repeats_its_question_and_sends_nothing() {
    let mut harness = Harness::new("");
    let client = ScriptedAgent::first_responses([task_reply("input-required", "How many?")]);
    harness.run(&client).await;
    harness.call.resumed = true;
    harness.call.resumed_last_request = Some("How many?".to_owned());
    harness.call.user_message = "yes".into();
    let outcome = harness.run(&client).await;
    assert_eq!(texts(&outcome), [(BotKind::InputRequired, "How many?".to_owned())]);
    assert_eq!((client.sent().len(), &outcome.metadata["task_id"]), (1, &json!("t")));
}

#[tokio::test]
async fn task_with_too_many_exchanges_is_cancelled() {
    let mut harness = Harness::new("");
    let asks = || task_reply("input-required", "And then?");
    let client = ScriptedAgent::first_responses((0..=limits::A2A_EXCHANGES).map(|_| asks()));
    for _ in 0..limits::A2A_EXCHANGES {
        assert_eq!(harness.run(&client).await.status, AgentStatus::AwaitingUser);
    }
    assert_eq!(code(&harness.run(&client).await), "A0516");
    assert_eq!(*client.cancelled_tasks.lock().unwrap(), ["t"], "the task is cancelled");
}

#[test]
fn inline_file_is_kept_only_up_to_the_size_limit() {
    let has_bytes = |bytes: usize| {
        let file = crate::a2a::model::FileData { bytes: Some("x".repeat(bytes)), ..Default::default() };
        outcome::result_parts(&[crate::a2a::model::Part::File(file)]).to_list("remote")[0]["result"]["bytes"]
            .is_string()
    };
    assert!(has_bytes(limits::A2A_FILE) && !has_bytes(limits::A2A_FILE + 1));
}

#[tokio::test]
async fn pauses_between_attempts_double() {
    let client = ScriptedAgent::first_responses((0..3).map(|_| Err(error(A2aErrorKind::Unreachable))));
    let mut harness = Harness::new("");
    harness.run(&client).await;
    assert_eq!(harness.clock.slept(), [limits::A2A_TRY_PAUSE, limits::A2A_TRY_PAUSE * 2]);
}

/// Hooks of a remote agent: they rewrite the message, remove a slot, and add to the output.
struct RewritingHooks;

#[async_trait]
impl AgentHooks for RewritingHooks {
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> Result<(), HookError> {
        cx.say("I will ask.");
        input.user_message =
            format!("{} (round {})", input.user_message, input.metadata.get("rounds").is_some()).into();
        input.slots.shift_remove("city");
        input.metadata.insert("tenant".into(), json!("north"));
        Ok(())
    }
    async fn process_agent_output(&self, output: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        let status = (output.message.as_deref() == Some("It is 90.")).then(|| "completed".into());
        let price = HookEvent::Slot { name: "price".into(), value: json!(90) };
        let events = if status.is_some() { vec![price] } else { Vec::new() };
        let metadata = json!({"rounds": 1, "task_id": "forged", "context_id": "forged"});
        let metadata = metadata.as_object().unwrap().clone();
        Ok(OutputChange { status, events, metadata })
    }
    async fn process_output(&self, _: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        Ok(OutputChange::default())
    }
}

#[tokio::test]
async fn hooks_change_input_and_output_of_a_remote_agent() {
    let mut harness = Harness::new("  forward_metadata: [tenant, account]\n");
    let cx = CallContext::new(harness.clock.clone(), Duration::from_secs(600));
    let hooks: Arc<dyn AgentHooks> = Arc::new(RewritingHooks);
    let client = ScriptedAgent::first_responses([
        task_reply("input-required", "How many?"),
        task_reply("input-required", "It is 90."),
    ]);
    let first = harness.run_with_hooks(&client, Some(hooks.clone()), &cx).await;
    assert_eq!(first.status, AgentStatus::AwaitingUser);
    let expected = [(BotKind::Filler, "I will ask.".to_owned()), (BotKind::InputRequired, "How many?".to_owned())];
    assert_eq!(texts(&first), expected);
    assert_eq!(
        (&first.metadata["task_id"], &first.metadata["rounds"]),
        (&json!("t"), &json!(1)),
        "a hook cannot change ids"
    );
    harness.call.user_message = "two".into();
    let second = harness.run_with_hooks(&client, Some(hooks), &cx).await;
    assert_eq!(second.status, AgentStatus::Finished, "the hook ends the task");
    let sent = client.sent();
    let words = |n: usize| match &sent[n].parts[0] {
        Part::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((words(0), words(1)), ("USER: help me (round false)".to_owned(), "two (round true)".to_owned()));
    assert!(!format!("{:?}", sent[0].parts).contains("Arnvik"), "the slot was removed: {:?}", sent[0].parts);
    assert_eq!(sent[0].metadata, *json!({"tenant": "north", "account": "a7"}).as_object().unwrap());
    let set = second
        .events
        .iter()
        .any(|event| matches!(&event.kind, EventKind::Slot { name, .. } if name.as_str() == "price"));
    assert!(set, "{:?}", second.events);
}

#[tokio::test]
async fn hook_metadata_is_kept_while_the_task_continues_and_when_the_turn_is_cancelled() {
    let mut harness = Harness::new("  push_notification_url: https://example.org\n");
    let cx = CallContext::new(harness.clock.clone(), Duration::from_secs(600));
    let hooks: Arc<dyn AgentHooks> = Arc::new(StoresMetadata);
    let client = ScriptedAgent::first_responses([
        task_reply("input-required", "How many?"),
        task_reply("working", ""),
        task_reply("working", ""),
    ]);
    let late = || (vec![], Err(error(A2aErrorKind::TimedOut)));
    client
        .ends
        .lock()
        .unwrap()
        .extend([(vec![], Ok(task(status_with_text("input-required", "How many?"), json!([])))), late()]);
    for status in [AgentStatus::AwaitingUser, AgentStatus::Yielded] {
        let outcome = harness.run_with_hooks(&client, Some(hooks.clone()), &cx).await;
        assert_eq!((outcome.status, &outcome.metadata["rounds"]), (status, &json!(1)));
    }
    client.ends.lock().unwrap().push_back((vec![], Err(error(A2aErrorKind::Cancelled))));
    let outcome = harness.run_with_hooks(&client, Some(hooks), &cx).await;
    assert!(matches!(outcome.status, AgentStatus::Cancelled { .. }), "{:?}", outcome.status);
    assert_eq!((outcome.metadata.get("task_id"), &outcome.metadata["rounds"]), (None, &json!(1)));
}

/// Stores metadata once.
struct StoresMetadata;

#[async_trait]
impl AgentHooks for StoresMetadata {
    async fn process_agent_output(&self, output: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        let mut change = OutputChange::default();
        if output.message.is_some() {
            change.metadata.insert("rounds".into(), json!(1));
        }
        Ok(change)
    }
}

#[tokio::test]
async fn failed_hook_sends_nothing_to_a_remote_agent() {
    struct FailingHooks;
    #[async_trait]
    impl AgentHooks for FailingHooks {
        async fn process_input(&self, _: &mut AgentInput, _: &HookContext) -> Result<(), HookError> {
            Err(HookError::new("no"))
        }
    }
    let mut harness = Harness::new("");
    let cx = CallContext::new(harness.clock.clone(), Duration::from_secs(600));
    let client = ScriptedAgent::first_responses([]);
    let outcome = harness.run_with_hooks(&client, Some(Arc::new(FailingHooks)), &cx).await;
    assert_eq!((code(&outcome), client.sent().len()), ("A0521", 0));
}

#[tokio::test]
async fn final_message_is_not_sent_when_the_results_cannot_be_used() {
    let mut harness = Harness::new("  output_mapping: [{slot: price, value: result.text - 1}]\n");
    let outcome = harness.run(&ScriptedAgent::first_responses([task_reply("completed", "Booked.")])).await;
    assert_eq!(code(&outcome), "A0512");
    assert!(!outcome.events.iter().any(|event| matches!(event.kind, EventKind::Bot(_))), "{:?}", outcome.events);
    assert!(harness.sink.events.is_empty(), "{:?}", harness.sink.events);
}
