//! What a mission does after calls that changed something: retries, resumed runs, and the rules of agents about their tools.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue::{
    Assistant, ChatRequest, ChatResponse, ModelProfile, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    llm::FinishReason,
    missions::{RunEnd, RunEngine, StartRun},
    store::runs::{MemoryRunStore, RunStore},
    testing::ManualClock,
};
use segue_engine::mission::rerun::RerunFrom;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{FunctionModel, calls, done, is_agent, last, says};

const OTHER_MISSION: &str = "mission: {name: n, description: x, agents: [payer], commander: {plan: optional}, tasks: {pay: {objective: Pay.}}}\n";

/// A project with the agent `payer`, whose tool `pay` counts its calls.
pub(super) struct Payments {
    pub(super) engine: RunEngine,
    pub(super) run: segue::ids::RunId,
    clock: Arc<ManualClock>,
    paid: Arc<AtomicUsize>,
    requests: Arc<std::sync::Mutex<Vec<ChatRequest>>>,
}

impl Payments {
    pub(super) async fn start(
        configuration: &str,
        tasks: &str,
        respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
    ) -> Self {
        let agent = format!(
            "agent: {{name: payer, description: pays}}\nconnections: {{mcp_servers: []}}\nconfiguration: {configuration}\n"
        );
        let mission = format!(
            "mission:\n  name: m\n  description: x\n  agents: [payer]\n  commander: {{plan: optional}}\n{tasks}"
        );
        let files = [
            ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
            ("domain.yml", ""),
            ("sub_agents/payer/config.yml", agent.as_str()),
            ("missions/m.yml", mission.as_str()),
            ("missions/n.yml", OTHER_MISSION),
        ];
        let requests: Arc<std::sync::Mutex<Vec<ChatRequest>>> = Arc::default();
        let model = FunctionModel { profile: ModelProfile::for_model("test", ""), respond, requests: requests.clone() };
        let paid = Arc::<AtomicUsize>::default();
        let count = paid.clone();
        let info = ToolInfo::new("pay", "pays").parameters(json!({"type": "object"}));
        let pay = Tool::from_fn(info, move |_: Json, _: ToolCallContext| {
            let receipt = format!("receipt {}", count.fetch_add(1, Ordering::SeqCst) + 1);
            std::future::ready(ToolOutcome::Done(ToolOutput::text(receipt)))
        });
        let clock = Arc::new(ManualClock::new());
        let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
        let builder = builder.model(Arc::new(model)).tool("payer", pay).clock(clock.clone());
        let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
        let engine = builder.build_missions(store).unwrap();
        let run = engine.start(StartRun::new("m")).await.unwrap();
        Self { engine, run, clock, paid, requests }
    }
    pub(super) async fn drive(&self) -> RunEnd {
        self.engine.drive(&self.run, &CancellationToken::new(), &mut |_| {}).await.unwrap()
    }
    fn paid(&self) -> usize {
        self.paid.load(Ordering::SeqCst)
    }
    /// Answers the only open question.
    async fn answer(&self, text: &str) -> String {
        let open = self.engine.control().questions(Some(self.run.clone())).await.unwrap();
        assert_eq!(open.len(), 1);
        self.engine.control().answer(&self.run, open[0].key.id.as_str(), text, text, None).await.unwrap();
        open[0].question.to_string()
    }
    /// All texts that a model has read, in order.
    fn read(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().flat_map(|request| &request.messages).map(|message| message.text().to_owned()).collect()
    }
}

/// The response of a model that the provider stops: the run of an agent fails.
fn stopped() -> ChatResponse {
    ChatResponse { finish: FinishReason::ContentFilter, ..ChatResponse::default() }
}

fn fails(reason: &str) -> ChatResponse {
    calls(&[("task_complete", json!({"succeed": false, "reason": reason, "summary": ""}))])
}

fn assigns() -> ChatResponse {
    calls(&[("call_agent", json!({"name": "payer", "task": "pay 5"}))])
}

/// The agent pays; then its model fails, unless an earlier attempt has paid.
fn pays_and_fails(request: &ChatRequest) -> ChatResponse {
    let knows = request.messages.iter().any(|message| message.text().contains("An earlier attempt failed after calls"));
    match (is_agent(request), last(request)) {
        (true, text) if text.contains("<NEW_TASK>") => calls(&[("pay", json!({"amount": 5, "to": "acme"}))]),
        (true, _) if knows => says("<ANSWER>paid</ANSWER>"),
        (true, _) => stopped(),
        (false, text) if text.contains("agent.failed") => fails("the agent failed"),
        (false, text) if text.contains("paid") => done("paid"),
        (false, _) => assigns(),
    }
}

const ITEMS: &str = "  datasets: {bills: {items: [{n: 1}]}}\n  tasks:\n    pay: {objective: Pay., iterator: {dataset: bills, parallel: true, max_retries: 2, retry_delay: 0RETRY}}\n";

#[tokio::test]
async fn an_item_is_not_retried_after_a_write_unless_the_mission_says_so() {
    let payments = Payments::start("{}", &ITEMS.replace("RETRY", ""), pays_and_fails).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Failed, 1));
    let failure = payments.engine.status(&payments.run).await.unwrap().state.failure.clone().unwrap();
    assert_eq!(&*failure.code, "iteration.not_retried");
    let error = &failure.error;
    assert!(
        error.contains("the agent failed") && error.ends_with("; carried out: pay; it is not retried after that"),
        "{error}"
    );
    let repeated = payments.engine.repeated_writes(&payments.run, None).await.unwrap();
    assert_eq!((repeated.done_names(), repeated.in_doubt.len()), (vec!["pay".to_owned()], 0));
    assert_eq!(payments.engine.control().writes(&payments.run).await.unwrap(), repeated);
    let result = payments.read().into_iter().find(|text| text.contains("agent.failed")).unwrap();
    assert!(result.contains("receipt 1") && result.contains("have none of it done again"), "{result}");

    let payments = Payments::start("{}", &ITEMS.replace("RETRY", ", retry: also_after_writes"), pays_and_fails).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Completed, 2));
    let told = payments.read().into_iter().filter(|text| text.contains("An earlier attempt failed after calls"));
    assert!(told.clone().count() >= 2, "commander and agent are told");
    assert!(told.into_iter().all(|text| text.contains("`pay`") && text.contains("receipt 1")));
}

/// The agent pays for each task but the last, whose commander gives up.
fn pays_but_last(request: &ChatRequest) -> ChatResponse {
    match (is_agent(request), last(request)) {
        (true, text) if text.contains("<NEW_TASK>") => calls(&[("pay", json!({"amount": 5, "to": "acme"}))]),
        (true, _) => says("<ANSWER>paid</ANSWER>"),
        (false, text) if text.contains("paid") => done("paid"),
        (false, _) if request.messages.iter().any(|message| message.text().contains("Give up.")) => fails("no"),
        (false, _) => assigns(),
    }
}

#[tokio::test]
async fn a_rerun_names_the_writes_of_tasks_that_earlier_reruns_took_over_and_of_missions_that_followed() {
    let tasks = "  tasks:\n    pay: {objective: Pay.}\n    last: {objective: Give up., depends_on: [pay]}\n";
    let payments = Payments::start("{}", tasks, pays_but_last).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Failed, 1));
    let (mut run, engine) = (payments.run.clone(), &payments.engine);
    let from = RerunFrom { task: "last".into(), failed_items: false };
    for _ in 0..2 {
        assert!(engine.repeated_writes(&run, Some(&from)).await.unwrap().is_empty(), "what is done is taken over");
        run = engine.rerun(&run, Some(&from)).await.unwrap();
        engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap();
    }
    assert_eq!(payments.paid(), 1);
    let whole = engine.repeated_writes(&run, None).await.unwrap();
    assert_eq!(whole.done_names(), ["pay"], "the whole mission pays again");

    let tasks = "  tasks:\n    choose: {objective: Choose., router: [{to: 'mission:n', if: 'true'}]}\n";
    let payments = Payments::start("{}", tasks, |request| {
        let chooses = request.messages.iter().any(|message| message.text().contains("Choose."));
        if chooses { done("chosen") } else { pays_but_last(request) }
    });
    let payments = payments.await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Completed, 0));
    let next = payments.engine.status(&payments.run).await.unwrap().state.follow_ups[0].run.clone();
    payments.engine.drive(&next.to_string().into(), &CancellationToken::new(), &mut |_| {}).await.unwrap();
    let repeated = payments.engine.repeated_writes(&payments.run, None).await.unwrap();
    assert_eq!((payments.paid(), repeated.done_names()), (1, vec!["pay".to_owned()]));
}

#[tokio::test]
async fn what_failed_and_cancelled_work_has_changed_is_in_its_error() {
    let respond = |request: &ChatRequest| match (is_agent(request), last(request)) {
        (true, text) if text.contains("<NEW_TASK>") => calls(&[("pay", json!({"amount": 5, "to": "acme"}))]),
        (true, _) => says("<ANSWER>paid</ANSWER>"),
        (false, text) if text.contains("paid") => fails("the books do not balance"),
        (false, text) if text.contains("Report.") => done("reported"),
        (false, _) => assigns(),
    };
    let payments = Payments::start("{}", "  tasks:\n    pay: {objective: Pay.}\n", respond).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Failed, 1));
    let state = payments.engine.status(&payments.run).await.unwrap().state;
    let error = "the books do not balance; carried out: pay";
    assert_eq!(state.tasks["pay"].error.as_deref(), Some(error));
    assert_eq!(&*state.failure.unwrap().error, format!("task pay failed: {error}"));

    let tasks = "  datasets: {bills: {items: [{n: 1}]}}\n  tasks:\n    pay: {objective: Pay., iterator: {dataset: bills, parallel: true, on_error: continue, min_success: 0}}\n    report: {objective: Report., depends_on: [pay]}\n";
    let payments = Payments::start("{}", tasks, respond).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Completed, 1));
    let state = payments.engine.status(&payments.run).await.unwrap().state;
    let summary = "0 of 1 items completed; failed: 0 (carried out: pay)";
    assert_eq!(state.tasks["pay"].summary.as_deref(), Some(summary));
    assert_eq!(state.tasks["pay"].items.get(&0).unwrap().error.as_deref(), Some(error));
    assert!(payments.read().iter().any(|text| text.contains(summary)), "the next commander is told");
}

#[tokio::test]
async fn a_resumed_task_does_not_repeat_a_write_of_the_run() {
    let payments = Payments::start("{}", "  tasks:\n    pay: {objective: Pay.}\n", pays_and_fails).await;
    assert_eq!(payments.drive().await, RunEnd::Failed);
    payments.engine.resume(&payments.run).await.unwrap();
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Completed, 1));
    let rejected = payments.read().into_iter().find(|text| text.starts_with("rejected: an earlier attempt")).unwrap();
    assert!(rejected.contains("receipt 1"), "{rejected}");
}

/// The agent pays once and says what came of it.
fn pays_once(request: &ChatRequest) -> ChatResponse {
    match (is_agent(request), last(request)) {
        (true, text) if text.contains("<NEW_TASK>") => calls(&[("pay", json!({"amount": 5}))]),
        (true, text) => says(&format!("<ANSWER>agent: {text}</ANSWER>")),
        (false, text) if text.starts_with("agent: ") => done(text),
        (false, _) => assigns(),
    }
}

const ASKING: &str = "  tasks:\n    pay: {objective: Pay., questions: {timeout_seconds: 60, default: \"yes\"}}\n";

#[tokio::test]
async fn a_person_confirms_a_call_of_an_agent_and_silence_is_no_consent() {
    for (answer, paid, result) in
        [(Some("yes"), 1, "receipt 1"), (Some("no"), 0, "and said no"), (None, 0, "nobody answered in time")]
    {
        let payments = Payments::start("{confirm: writes}", ASKING, pays_once).await;
        assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Waiting, 0), "{answer:?}");
        match answer {
            Some(answer) => {
                let question = payments.answer(answer).await;
                assert!(question.contains("May the agent `payer` call `pay` with {\\\"amount\\\":5}?"), "{question}");
            }
            None => payments.clock.advance(Duration::from_secs(61)),
        }
        assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Completed, paid), "{answer:?}");
        let state = payments.engine.status(&payments.run).await.unwrap().state;
        let summary = state.tasks["pay"].summary.clone().unwrap_or_default();
        assert!(summary.contains(result), "{answer:?}: {summary}");
        let models = payments.requests.lock().unwrap().len();
        assert_eq!(models, 4, "the response that asked is replayed, not requested again");
    }
}

#[tokio::test]
async fn the_maximum_of_calls_of_an_agent_holds_in_a_mission() {
    let respond = |request: &ChatRequest| match (is_agent(request), last(request)) {
        (true, text) if text.contains("<NEW_TASK>") => {
            calls(&[1, 2, 3].map(|amount| ("pay", json!({"amount": amount}))))
        }
        _ => pays_once(request),
    };
    let payments = Payments::start("{tools: {pay: {max_calls: 1}}}", ASKING, respond).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Completed, 1));
    assert!(payments.read().iter().any(|text| text.contains("was called 1 time for this task")));
}

#[tokio::test]
async fn the_maximum_of_calls_counts_those_of_the_attempts_before() {
    let attempts = AtomicUsize::new(0);
    let respond = move |request: &ChatRequest| match (is_agent(request), last(request)) {
        (true, text) if text.contains("<NEW_TASK>") => {
            calls(&[("pay", json!({"amount": attempts.fetch_add(1, Ordering::SeqCst)}))])
        }
        (true, text) => says(&format!("<ANSWER>{text}</ANSWER>")),
        (false, text) if text.contains("receipt 1") || text.contains("1 time") => fails("it is not enough"),
        (false, _) => assigns(),
    };
    let payments = Payments::start("{tools: {pay: {max_calls: 1}}}", ASKING, respond).await;
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Failed, 1));
    payments.engine.resume(&payments.run).await.unwrap();
    assert_eq!((payments.drive().await, payments.paid()), (RunEnd::Failed, 1));
    assert!(payments.read().iter().any(|text| text.contains("was called 1 time for this task")));
}
