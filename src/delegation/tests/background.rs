//! Delegates in the background: they are stored, and another process continues them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use segue_engine::project::SubagentType;
use serde_json::{Value as Json, json};

use super::{
    harness::{Script, call, say, task},
    lead::{FILES, Lead, results},
};
use crate::{
    clock::Clock,
    delegation::{
        DelegationSettings,
        durable::{meta_with, meta_without},
    },
    limits,
    llm::{ChatResponse, LlmErrorKind},
    runtime::{Assistant, IncomingMessage},
    store::{
        MemoryStore, Store,
        runs::{ClaimRequest, MemoryRunStore, NewRun, RunFilter, RunStore},
    },
    testing::{CollectingSink, ManualClock},
};

#[tokio::test]
async fn a_delegate_in_the_background_is_fetched_later() {
    let mut arguments = task("slow");
    arguments["background"] = json!(true);
    let id: Arc<Mutex<String>> = Arc::default();
    let model = Script::new([
        ("commands: ", vec![say("start flow survey"), say("continue agent")]),
        ("agent: go", vec![call("", &[("task", arguments)]), say("I am on it.")]),
        ("delegate: slow", vec![call("", &[("hang", json!({}))]), say("It is blue.")]),
    ]);
    let settings = DelegationSettings { background: true, ..DelegationSettings::default() };
    let lead = Lead::new(model, settings);
    let report = lead.say("go", |_| {}).await;
    assert_eq!(report.texts(), ["I am on it."]);
    let running = lead.assistant.delegations().running();
    assert_eq!((running.len(), running[0].background), (1, true));
    *id.lock().unwrap() = running[0].id.to_string();
    let given = json!({"id": running[0].id});
    lead.model.add(
        "agent: and?",
        vec![call("", &[("task_status", given.clone())]), call("", &[("task_result", given)]), say("Blue.")],
    );
    let report = lead.say("and?", |_| {}).await;
    assert_eq!(report.texts(), ["Blue."]);
    let requests = lead.model.requests("agent: and?");
    assert!(results(&requests[1]).last().unwrap().contains("is running"), "{:?}", results(&requests[1]));
    assert!(results(&requests[2]).last().unwrap().starts_with("Task timed out"), "{:?}", results(&requests[2]));
    let difference = lead.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:?}");
}

/// Two stores that outlive assistants.
#[derive(Clone)]
struct Stores {
    conversations: Arc<dyn Store>,
    runs: Arc<dyn RunStore>,
    clock: ManualClock,
}

impl Stores {
    fn new() -> Self {
        Self {
            conversations: Arc::new(MemoryStore::new()),
            runs: Arc::new(MemoryRunStore::new()),
            clock: ManualClock::new(),
        }
    }
    /// An assistant on these stores.
    fn lead(&self, model: &Arc<Script>) -> Lead {
        let mut settings = DelegationSettings { background: true, ..DelegationSettings::default() };
        for kind in settings.types.values_mut() {
            kind.timeout = Duration::from_secs(7_200);
        }
        self.lead_with(model, settings)
    }
    fn lead_with(&self, model: &Arc<Script>, settings: DelegationSettings) -> Lead {
        let builder = Assistant::builder_from_texts(FILES).unwrap().delegation("desk", settings);
        let builder = builder.store(self.conversations.clone()).runs(self.runs.clone());
        Lead::with_clock(builder, model.clone(), self.clock.clone())
    }
    /// Lets an assistant start a delegate and kills it, with all its tasks, when the delegate calls `hang`. Returns the id of the delegate.
    fn killed(&self, model: &Arc<Script>) -> Arc<str> {
        let (stores, model) = (self.clone(), model.clone());
        let process = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let lead = stores.lead(&model);
                lead.say("go", |_| {}).await;
                until_called(&lead, "hang").await;
                lead.assistant.delegations().running()[0].id.clone()
            })
        });
        process.join().unwrap()
    }
    /// Advances the clock until `work` is done.
    async fn driving<T>(&self, work: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                settle().await;
                self.clock.advance(Duration::from_secs(10));
            }
        };
        tokio::select! { biased; done = work => done, () = time => unreachable!() }
    }
    /// The types of the stored events of the only delegate.
    async fn events(&self) -> Vec<String> {
        let run = self.runs.runs(RunFilter::default(), 10).await.unwrap().pop().unwrap();
        let events = self.runs.events(&run.id, 0, 100).await.unwrap();
        let kind = |text: &str| serde_json::from_str::<Json>(text).unwrap()["type"].as_str().unwrap().to_owned();
        events.iter().map(|event| kind(&event.event)).collect()
    }
    /// Advances the clock until the only delegate has ended.
    async fn until_ended(&self) {
        let ended = async {
            while self.events().await.len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        self.driving(ended).await;
    }
    /// Advances the clock by so many seconds.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            settle().await;
            self.clock.advance(Duration::from_secs(1));
        }
        settle().await;
    }
}

/// Lets the other tasks run until they wait.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn in_background(prompt: &str) -> Json {
    let mut arguments = task(prompt);
    arguments["background"] = json!(true);
    arguments
}

fn scenes(delegate: Vec<Result<ChatResponse, LlmErrorKind>>) -> Arc<Script> {
    Script::new([
        ("commands: ", vec![say("start flow survey"), say("continue agent")]),
        ("agent: go", vec![call("", &[("task", in_background("slow"))]), say("I am on it.")]),
        ("delegate: slow", delegate),
    ])
}

fn hang(text: &str) -> Result<ChatResponse, LlmErrorKind> {
    call(text, &[("hang", json!({}))])
}

/// Waits until the delegate calls this tool.
async fn until_called(lead: &Lead, tool: &str) {
    while lead.called.lock().unwrap().last().map(String::as_str) != Some(tool) {
        tokio::task::yield_now().await;
    }
}

/// The last result that the agent got in this scene.
fn fetched(model: &Script, scene: &str) -> String {
    results(model.requests(scene).last().unwrap()).pop().unwrap()
}

#[tokio::test]
async fn a_delegate_in_the_background_is_continued_by_the_next_process_after_a_clean_stop() {
    let stores = Stores::new();
    let model = scenes(vec![call("", &[("write", json!({}))]), hang(""), say("It is blue.")]);
    let first = stores.lead(&model);
    assert_eq!(first.say("go", |_| {}).await.texts(), ["I am on it."]);
    until_called(&first, "hang").await;
    let id = first.assistant.delegations().running()[0].id.clone();
    stores.driving(first.assistant.close(Duration::from_secs(60))).await;
    assert!(first.assistant.delegations().running().is_empty());
    assert_eq!(first.events.types(), ["task_queued", "task_started"], "it has not ended");

    // However often: nothing failed.
    for _ in 0..=limits::DELEGATION_CLAIMS {
        let next = stores.lead(&model);
        next.assistant.recover().await.unwrap();
        until_called(&next, "hang").await;
        stores.driving(next.assistant.close(Duration::from_secs(60))).await;
    }

    let second = stores.lead(&model);
    second.assistant.recover().await.unwrap();
    // The unit was released: its lease is not waited for.
    until_called(&second, "hang").await;
    stores.until_ended().await;
    model.add("agent: and?", vec![call("", &[("task_result", json!({"id": id}))]), say("Blue.")]);
    assert_eq!(second.say("and?", |_| {}).await.texts(), ["Blue."]);
    assert_eq!(fetched(&model, "agent: and?"), "Task Succeeded. Result: It is blue.");
    assert_eq!(*second.called.lock().unwrap(), ["hang"], "the write is not repeated");
    assert_eq!(model.requests("delegate: slow").len(), 3, "recorded responses are not requested again");
    assert_eq!(stores.events().await, ["task_queued", "task_completed"]);
}

#[tokio::test]
async fn a_delegate_of_a_killed_process_is_continued_when_the_lease_is_over() {
    let stores = Stores::new();
    let model = scenes(vec![hang(""), say("It is blue.")]);
    let id = stores.killed(&model);
    let second = stores.lead(&model);
    second.assistant.recover().await.unwrap();
    stores.pass(50).await;
    assert!(second.called.lock().unwrap().is_empty(), "the lease of the killed process is not over");
    stores.pass(20).await;
    assert_eq!(*second.called.lock().unwrap(), ["hang"]);
    stores.until_ended().await;
    assert_eq!(stores.events().await, ["task_queued", "task_completed"]);
    assert_eq!(model.requests("delegate: slow").len(), 2, "recorded responses are not requested again");

    // Later processes, too, read the report.
    let third = stores.lead(&model);
    model.add("agent: and?", vec![call("", &[("task_result", json!({"id": id}))]), say("Blue.")]);
    third.say("and?", |_| {}).await;
    assert_eq!(fetched(&model, "agent: and?"), "Task Succeeded. Result: It is blue.");
}

#[tokio::test]
async fn an_agent_that_asks_for_a_delegate_of_a_killed_process_continues_it() {
    let stores = Stores::new();
    let model = scenes(vec![hang(""), say("It is blue.")]);
    let id = stores.killed(&model);
    let second = stores.lead(&model);
    model.add("agent: and?", vec![call("", &[("task_status", json!({"id": id}))]), say("Still working.")]);
    second.say("and?", |_| {}).await;
    assert!(fetched(&model, "agent: and?").contains("is running"));
    stores.until_ended().await;
    assert_eq!(*second.called.lock().unwrap(), ["hang"]);
    assert_eq!(stores.events().await, ["task_queued", "task_completed"]);
}

#[tokio::test]
async fn a_second_process_leaves_a_delegate_to_its_owner_and_can_cancel_it() {
    let stores = Stores::new();
    let model = scenes(vec![hang("Partly.")]);
    let first = stores.lead(&model);
    first.say("go", |_| {}).await;
    until_called(&first, "hang").await;
    let id = first.assistant.delegations().running()[0].id.clone();
    let second = stores.lead(&model);
    second.assistant.recover().await.unwrap();
    stores.pass(300).await;
    assert!(second.called.lock().unwrap().is_empty(), "the lease is renewed");

    let given = json!({"id": id});
    model.add(
        "agent: stop it",
        vec![call("", &[("task_cancel", given.clone())]), call("", &[("task_result", given)]), say("Stopped.")],
    );
    assert_eq!(second.say("stop it", |_| {}).await.texts(), ["Stopped."]);
    assert_eq!(fetched(&model, "agent: stop it"), "Task cancelled by user. Partial result: Partly.");
    assert_eq!(stores.events().await, ["task_queued", "task_cancelled"]);
    assert_eq!(first.events.types(), ["task_queued", "task_started", "task_cancelled"]);
    assert!(second.called.lock().unwrap().is_empty() && second.events.types().is_empty());
}

#[tokio::test]
async fn a_ledger_shows_what_became_of_a_delegate_in_the_background_in_a_later_process() {
    let stores = Stores::new();
    let model = scenes(vec![say("It is blue.")]);
    let first = stores.lead(&model);
    first.say("go", |_| {}).await;
    stores.until_ended().await;
    stores.driving(first.assistant.close(Duration::from_secs(60))).await;
    let second = stores.lead(&model);
    model.add("agent: and?", vec![say("Blue.")]);
    second.say("and?", |_| {}).await;
    let request = &model.requests("agent: and?")[0];
    let ledger = request.messages.iter().find(|message| message.text().starts_with("# Sub-agents so far")).unwrap();
    assert!(ledger.text().contains(r#"completed, result "It is blue."."#), "{}", ledger.text());
    let difference = second.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:?}");
}

#[tokio::test]
async fn a_delegate_in_the_background_is_cancelled_by_its_agent() {
    let stores = Stores::new();
    let model = scenes(vec![hang("Partly.")]);
    let lead = stores.lead(&model);
    lead.say("go", |_| {}).await;
    until_called(&lead, "hang").await;
    let given = json!({"id": lead.assistant.delegations().running()[0].id});
    model.add(
        "agent: stop it",
        vec![call("", &[("task_cancel", given.clone())]), call("", &[("task_result", given)]), say("Stopped.")],
    );
    assert_eq!(lead.say("stop it", |_| {}).await.texts(), ["Stopped."]);
    assert_eq!(fetched(&model, "agent: stop it"), "Task cancelled by user. Partial result: Partly.");
    assert_eq!(stores.events().await, ["task_queued", "task_cancelled"]);
}

#[tokio::test]
async fn a_delegate_whose_type_is_gone_and_one_that_ends_every_process_fail() {
    for is_gone in [true, false] {
        let stores = Stores::new();
        let model = scenes(vec![hang("")]);
        let id = stores.killed(&model);
        let mut settings = DelegationSettings { background: true, ..DelegationSettings::default() };
        let mut claims = 0;
        if is_gone {
            let kind = settings.types.shift_remove("general-purpose").unwrap();
            settings.types.insert("other".into(), SubagentType { name: "other".into(), ..kind });
        } else {
            // Each of these processes ends at once.
            claims = limits::DELEGATION_CLAIMS - 1;
        }
        for _ in 0..claims {
            stores.pass(61).await;
            let (owner, now, lease) = ("other".into(), stores.clock.now(), Duration::from_secs(60));
            let claimed = stores
                .runs
                .claim(ClaimRequest { run: None, owner, now, lease, limit: 9, gone: Vec::new() })
                .await
                .unwrap();
            assert_eq!(claimed.len(), 1);
        }
        let last = stores.lead_with(&model, settings);
        last.assistant.recover().await.unwrap();
        stores.until_ended().await;
        assert_eq!(stores.events().await, ["task_queued", "task_failed"]);
        assert!(last.called.lock().unwrap().is_empty());
        model.add("agent: and?", vec![call("", &[("task_result", json!({"id": id}))]), say("It failed.")]);
        last.say("and?", |_| {}).await;
        let text = fetched(&model, "agent: and?");
        assert_eq!(text, "Task failed. Error: The sub-agent ended before its result was stored");
    }
}

#[tokio::test]
async fn an_erased_conversation_takes_its_delegates_along() {
    let stores = Stores::new();
    let model = scenes(vec![hang("")]);
    let lead = stores.lead(&model);
    lead.say("go", |_| {}).await;
    until_called(&lead, "hang").await;
    let other = NewRun { conversation: Some("other".into()), ..NewRun::new("r", "m", stores.clock.now()) };
    stores.runs.start_run(other).await.unwrap();
    lead.assistant.erase(&"u".into()).await.unwrap();
    let left = stores.runs.runs(RunFilter::default(), 9).await.unwrap();
    assert_eq!(left.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["r"]);
    stores.pass(10).await;
    assert!(lead.assistant.delegations().running().is_empty());
    assert_eq!(stores.runs.runs(RunFilter::default(), 9).await.unwrap().len(), 1, "nothing is stored later");
}

#[tokio::test]
async fn constants_of_the_project_are_not_stored_with_a_delegate() {
    let meta = |text: &str| serde_json::from_str::<Json>(text).unwrap().as_object().unwrap().clone();
    let constants = meta(r#"{"a": {"token": "secret"}, "b": {"key": "k"}}"#);
    let full = meta(r#"{"a": {"token": "secret", "user": "u"}, "b": {"key": "k"}}"#);
    let stored = meta_without(&full, &constants);
    assert_eq!(Json::Object(stored.clone()), json!({"a": {"user": "u"}}));
    assert_eq!(meta_with(stored, &constants), full);
}

#[tokio::test]
async fn ids_of_other_conversations_are_unknown() {
    let stores = Stores::new();
    let model = scenes(vec![say("It is blue.")]);
    let lead = stores.lead(&model);
    lead.say("go", |_| {}).await;
    stores.until_ended().await;
    let id = stores.runs.runs(RunFilter::default(), 9).await.unwrap()[0].id.as_str().replace("task-", "");
    for (conversation, id, is_known) in [("v", id.as_str(), false), ("u", "0123456789abcdef", false), ("u", &id, true)]
    {
        model.add("commands: ", vec![say(if conversation == "u" { "continue agent" } else { "start flow survey" })]);
        model.add("agent: and?", vec![call("", &[("task_status", json!({"id": id}))]), say("I see.")]);
        let message = IncomingMessage::new(conversation, "and?").input_channel("test");
        lead.assistant.receive(message, Box::new(CollectingSink::streaming())).await.unwrap();
        let text = fetched(&model, "agent: and?");
        assert_eq!(text.contains("There is no task with the id"), !is_known, "{conversation} {id}: {text}");
        assert_eq!(text.contains("It is blue."), is_known, "{conversation} {id}: {text}");
    }
}
