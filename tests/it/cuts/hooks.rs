//! The same for agents with hooks: a hook that is waited for when the turn is stopped did not fail, and the agent forgets nothing.

use std::sync::Mutex;

use segue::{
    agents::hooks::{AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, OutputChange, ToolBatch},
    async_trait,
    llm::ChatMessage,
};

use super::*;

/// Hooks that hang once: when the one of that name is asked for the `at`th time.
struct Waits {
    place: &'static str,
    at: Mutex<usize>,
    hangs: Arc<Notify>,
}

impl Waits {
    async fn at<T>(&self, place: &'static str, usual: T) -> Result<T, HookError> {
        if place == self.place {
            let left = {
                let mut at = self.at.lock().unwrap();
                *at = at.wrapping_sub(1);
                *at
            };
            if left == 0 {
                self.hangs.notify_one();
                std::future::pending::<()>().await;
            }
        }
        Ok(usual)
    }
}

#[async_trait]
impl AgentHooks for Waits {
    async fn process_input(&self, _: &mut AgentInput, _: &HookContext) -> Result<(), HookError> {
        self.at("process_input", ()).await
    }
    async fn process_tool_output(&self, _: &ToolBatch, _: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.at("process_tool_output", Vec::new()).await
    }
    async fn process_output(&self, _: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        self.at("process_output", OutputChange::default()).await
    }
    async fn tools(
        &self,
        _: &[segue::llm::ToolSpec],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<segue::llm::ToolSpec>>, HookError> {
        self.at("tools", None).await
    }
    async fn messages(
        &self,
        _: &[Arc<ChatMessage>],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<Arc<ChatMessage>>>, HookError> {
        self.at("messages", None).await
    }
    async fn prompt(&self, _: &str, _: &AgentInput, _: &HookContext) -> Result<Option<String>, HookError> {
        self.at("prompt", None).await
    }
}

impl Talk {
    /// A talk whose agent has these rules, and hooks that hang at the `at`th call of one; tools do not wait.
    fn hanging(
        rules: &str,
        place: &'static str,
        at: usize,
        answers: impl IntoIterator<Item = ChatResponse>,
    ) -> (Self, Arc<Notify>) {
        let (folder, boats, hangs) = (tempfile::tempdir().unwrap(), Boats::default(), Arc::new(Notify::new()));
        boats.goes_on.notify_one();
        let agent = format!(
            "agent: {{name: booker, description: books}}\nconfiguration: {{module: shop, {rules}}}\nconnections: {{mcp_servers: [{{name: boats}}]}}\n"
        );
        let flows = "flows: {book: {description: book a boat, steps: [{call: booker}, {action: utter_after}]}}\n";
        let domain = "responses: {utter_after: [{text: And now the next thing.}]}\n";
        let files = [
            FILES[0],
            FILES[1],
            ("domain.yml", domain),
            ("data/flows.yml", flows),
            ("sub_agents/booker/config.yml", &agent),
        ];
        let model = Arc::new(ScriptedLlm::strict(answers));
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap());
        let builder = Assistant::builder_from_texts(files).unwrap().store(store).source(boats.source());
        let hooks = Arc::new(Waits { place, at: Mutex::new(at), hangs: hangs.clone() });
        let assistant = builder.hooks("shop", hooks).model(model.clone()).seeds(|| 7).build().unwrap();
        (Self { assistant, model, folder, boats }, hangs)
    }
    /// Says something and stops the turn when the hook hangs.
    async fn stopped(&self, text: &str, hangs: &Notify) -> Vec<String> {
        let stop = CancellationToken::new();
        let stopping = async {
            hangs.notified().await;
            stop.cancel();
        };
        texts(&tokio::join!(self.stoppable(text, &stop), stopping).0)
    }
}

fn done(text: &str) -> ChatResponse {
    ChatResponse { text: text.into(), ..call("task_completed") }
}

const CAPPED: &str = "tools: {book: {max_calls: 1}}";

#[tokio::test]
async fn a_cap_counts_on_when_a_hook_was_waited_for_after_the_call() {
    for (place, at) in [("messages", 2), ("process_tool_output", 1)] {
        let answers = [
            says("start flow book"),
            call("book"),
            says("continue agent"),
            call("book"),
            says("It is booked already."),
        ];
        let (talk, hangs) = Talk::hanging(CAPPED, place, at, answers);
        assert!(talk.stopped("book a boat", &hangs).await.is_empty(), "{place}");
        assert!(talk.waits().await, "{place}");
        assert_eq!(talk.say("book it").await, ["It is booked already."], "{place}");
        assert!(talk.last_asked().contains("NW-1"), "{place}: its result is not lost: {}", talk.last_asked());
        assert_eq!(talk.boats.counts(), (1, 1, 0), "{place}");
        talk.replays().await;
    }
}

#[tokio::test]
async fn a_cap_counts_on_when_a_hook_was_waited_for_before_the_first_answer() {
    for (place, at) in [("process_input", 2), ("tools", 2), ("prompt", 2), ("messages", 3)] {
        let answers = [
            says("start flow book"),
            call("book"),
            says("Booked. What else?"),
            says("continue agent"),
            says("continue agent"),
            call("book"),
            says("It is booked already."),
        ];
        let (talk, hangs) = Talk::hanging(CAPPED, place, at, answers);
        assert_eq!(talk.say("book a boat").await, ["Booked. What else?"], "{place}");
        assert!(talk.stopped("another one", &hangs).await.is_empty(), "{place}");
        assert!(talk.waits().await, "{place}");
        assert_eq!(talk.say("another one").await, ["It is booked already."], "{place}");
        assert_eq!(talk.boats.counts(), (1, 1, 0), "{place}");
        talk.replays().await;
    }
}

#[tokio::test]
async fn a_yes_that_no_agent_heard_is_asked_for_again_and_a_no_is_none() {
    for (place, at) in [("process_input", 2), ("tools", 2), ("prompt", 2)] {
        let answers = [says("start flow book"), call("book"), says("It is booked: NW-1.")];
        let (talk, hangs) = Talk::hanging("confirm: writes", place, at, answers);
        let question = talk.say("book a boat").await;
        assert_eq!(talk.stopped("yes", &hangs).await, question, "{place}");
        assert_eq!(talk.boats.counts(), (0, 0, 0), "{place}");
        assert_eq!(talk.say("yes").await, ["It is booked: NW-1."], "{place}");
        assert_eq!(talk.boats.counts(), (1, 1, 0), "{place}");
        talk.replays().await;
    }
    let answers = [says("start flow book"), call("book"), says("continue agent"), says("What now?")];
    let (talk, hangs) = Talk::hanging("confirm: writes", "process_input", 2, answers);
    talk.say("book a boat").await;
    assert!(talk.stopped("no", &hangs).await.is_empty());
    assert_eq!(talk.say("yes").await, ["What now?"]);
    assert_eq!(talk.boats.counts(), (0, 0, 0), "a no stays one");
    talk.replays().await;
}

#[tokio::test]
async fn a_flow_does_not_go_on_without_what_the_last_hook_makes_of_the_outcome() {
    let answers = [
        says("start flow book"),
        call("book"),
        done("Booked."),
        says("continue agent"),
        call("book"),
        done("All is done."),
    ];
    let (talk, hangs) = Talk::hanging(CAPPED, "process_output", 1, answers);
    assert_eq!(talk.stopped("book a boat", &hangs).await, ["Booked."]);
    assert!(talk.waits().await, "the next step has not run");
    assert_eq!(talk.say("well?").await[..2], ["All is done.", "And now the next thing."]);
    assert_eq!(talk.boats.counts(), (1, 1, 0), "and the cap counts on");
    talk.replays().await;
}

#[tokio::test]
async fn an_agent_that_asked_keeps_its_question_when_the_last_hook_was_waited_for() {
    let answers = [
        says("start flow book"),
        call("book"),
        says("Which colour?"),
        says("continue agent"),
        call("book"),
        says("Blue it is."),
    ];
    let (talk, hangs) = Talk::hanging(CAPPED, "process_output", 1, answers);
    assert_eq!(talk.stopped("book a boat", &hangs).await, ["Which colour?"]);
    assert_eq!(talk.say("blue").await, ["Blue it is."]);
    assert_eq!(talk.boats.counts(), (1, 1, 0));
    talk.replays().await;
}
