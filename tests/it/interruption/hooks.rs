//! Turns that are interrupted while a hook of an agent runs: the hook has not failed, and the agent loses neither results nor counters.

use std::sync::Mutex;

use segue::{
    agents::hooks::{AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, OutputChange, ToolBatch},
    async_trait,
    llm::ChatMessage,
};

use super::*;

/// Hooks of which one hangs once.
struct HangingHooks {
    /// The hook that hangs.
    hook: &'static str,
    /// The number of its calls until it hangs.
    calls_left: Mutex<usize>,
    /// Notified when it hangs.
    hanging: Arc<Notify>,
}

impl HangingHooks {
    async fn result<T>(&self, hook: &'static str, result: T) -> Result<T, HookError> {
        if hook == self.hook {
            let left = {
                let mut left = self.calls_left.lock().unwrap();
                *left = left.wrapping_sub(1);
                *left
            };
            if left == 0 {
                self.hanging.notify_one();
                std::future::pending::<()>().await;
            }
        }
        Ok(result)
    }
}

#[async_trait]
impl AgentHooks for HangingHooks {
    async fn process_input(&self, _: &mut AgentInput, _: &HookContext) -> Result<(), HookError> {
        self.result("process_input", ()).await
    }
    async fn process_tool_output(&self, _: &ToolBatch, _: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.result("process_tool_output", Vec::new()).await
    }
    async fn process_output(&self, _: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        self.result("process_output", OutputChange::default()).await
    }
    async fn tools(
        &self,
        _: &[segue::llm::ToolSpec],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<segue::llm::ToolSpec>>, HookError> {
        self.result("tools", None).await
    }
    async fn messages(
        &self,
        _: &[Arc<ChatMessage>],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<Arc<ChatMessage>>>, HookError> {
        self.result("messages", None).await
    }
    async fn prompt(&self, _: &str, _: &AgentInput, _: &HookContext) -> Result<Option<String>, HookError> {
        self.result("prompt", None).await
    }
}

impl TestConversation {
    /// An agent with these rules whose hook `hook` hangs at its call number `at`, from 1. Tools do not block.
    fn with_hanging_hook(
        rules: &str,
        hook: &'static str,
        at: usize,
        answers: impl IntoIterator<Item = ChatResponse>,
    ) -> (Self, Arc<Notify>) {
        let (folder, tools, hanging) =
            (tempfile::tempdir().unwrap(), BlockingTools::default(), Arc::new(Notify::new()));
        tools.resume.notify_one();
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
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("conversation.db"), false).unwrap());
        let builder = Assistant::builder_from_texts(files).unwrap().store(store).source(tools.source());
        let hooks = Arc::new(HangingHooks { hook, calls_left: Mutex::new(at), hanging: hanging.clone() });
        let assistant = builder.hooks("shop", hooks).model(model.clone()).seeds(|| 7).build().unwrap();
        (Self { assistant, model, folder, tools }, hanging)
    }
    /// Says something and interrupts the turn when the hook hangs.
    async fn interrupted_in_hook(&self, text: &str, hanging: &Notify) -> Vec<String> {
        let stop = CancellationToken::new();
        let interrupting = async {
            hanging.notified().await;
            stop.cancel();
        };
        texts(&tokio::join!(self.interruptible(text, &stop), interrupting).0)
    }
}

/// An answer with a text that completes the task.
fn completed(text: &str) -> ChatResponse {
    ChatResponse { text: text.into(), ..call("task_completed") }
}

/// At most one call of the tool `book`.
const ONE_BOOKING: &str = "tools: {book: {max_calls: 1}}";

#[tokio::test]
async fn call_limit_still_counts_after_an_interruption_in_a_hook_after_the_call() {
    for (hook, at) in [("messages", 2), ("process_tool_output", 1)] {
        let answers = [
            text("start flow book"),
            call("book"),
            text("continue agent"),
            call("book"),
            text("It is booked already."),
        ];
        let (conversation, hanging) = TestConversation::with_hanging_hook(ONE_BOOKING, hook, at, answers);
        assert!(conversation.interrupted_in_hook("book a boat", &hanging).await.is_empty(), "{hook}");
        assert!(conversation.agent_waits().await, "{hook}");
        assert_eq!(conversation.say("book it").await, ["It is booked already."], "{hook}");
        assert!(
            conversation.last_request().contains("NW-1"),
            "{hook}: the model gets the result: {}",
            conversation.last_request()
        );
        assert_eq!(conversation.tools.counts(), (1, 1, 0), "{hook}");
        conversation.assert_replays().await;
    }
}

#[tokio::test]
async fn call_limit_still_counts_after_an_interruption_in_a_hook_before_the_answer() {
    for (hook, at) in [("process_input", 2), ("tools", 2), ("prompt", 2), ("messages", 3)] {
        let answers = [
            text("start flow book"),
            call("book"),
            text("Booked. What else?"),
            text("continue agent"),
            text("continue agent"),
            call("book"),
            text("It is booked already."),
        ];
        let (conversation, hanging) = TestConversation::with_hanging_hook(ONE_BOOKING, hook, at, answers);
        assert_eq!(conversation.say("book a boat").await, ["Booked. What else?"], "{hook}");
        assert!(conversation.interrupted_in_hook("another one", &hanging).await.is_empty(), "{hook}");
        assert!(conversation.agent_waits().await, "{hook}");
        assert_eq!(conversation.say("another one").await, ["It is booked already."], "{hook}");
        assert_eq!(conversation.tools.counts(), (1, 1, 0), "{hook}");
        conversation.assert_replays().await;
    }
}

#[tokio::test]
async fn confirmation_interrupted_before_the_agent_runs_is_asked_again_and_a_refusal_is_kept() {
    for (hook, at) in [("process_input", 2), ("tools", 2), ("prompt", 2)] {
        let answers = [text("start flow book"), call("book"), text("It is booked: NW-1.")];
        let (conversation, hanging) = TestConversation::with_hanging_hook("confirm: writes", hook, at, answers);
        let question = conversation.say("book a boat").await;
        assert_eq!(conversation.interrupted_in_hook("yes", &hanging).await, question, "{hook}");
        assert_eq!(conversation.tools.counts(), (0, 0, 0), "{hook}");
        assert_eq!(conversation.say("yes").await, ["It is booked: NW-1."], "{hook}");
        assert_eq!(conversation.tools.counts(), (1, 1, 0), "{hook}");
        conversation.assert_replays().await;
    }
    let answers = [text("start flow book"), call("book"), text("continue agent"), text("What now?")];
    let (conversation, hanging) = TestConversation::with_hanging_hook("confirm: writes", "process_input", 2, answers);
    conversation.say("book a boat").await;
    assert!(conversation.interrupted_in_hook("no", &hanging).await.is_empty());
    assert_eq!(conversation.say("yes").await, ["What now?"]);
    assert_eq!(conversation.tools.counts(), (0, 0, 0), "the no still counts");
    conversation.assert_replays().await;
}

#[tokio::test]
async fn flow_does_not_continue_after_an_interruption_in_process_output() {
    let answers = [
        text("start flow book"),
        call("book"),
        completed("Booked."),
        text("continue agent"),
        call("book"),
        completed("All is done."),
    ];
    let (conversation, hanging) = TestConversation::with_hanging_hook(ONE_BOOKING, "process_output", 1, answers);
    assert_eq!(conversation.interrupted_in_hook("book a boat", &hanging).await, ["Booked."]);
    assert!(conversation.agent_waits().await, "the next step has not run");
    assert_eq!(conversation.say("well?").await[..2], ["All is done.", "And now the next thing."]);
    assert_eq!(conversation.tools.counts(), (1, 1, 0), "the limit still counts");
    conversation.assert_replays().await;
}

#[tokio::test]
async fn question_of_an_agent_is_kept_after_an_interruption_in_process_output() {
    let answers = [
        text("start flow book"),
        call("book"),
        text("Which colour?"),
        text("continue agent"),
        call("book"),
        text("Blue it is."),
    ];
    let (conversation, hanging) = TestConversation::with_hanging_hook(ONE_BOOKING, "process_output", 1, answers);
    assert_eq!(conversation.interrupted_in_hook("book a boat", &hanging).await, ["Which colour?"]);
    assert_eq!(conversation.say("blue").await, ["Blue it is."]);
    assert_eq!(conversation.tools.counts(), (1, 1, 0));
    conversation.assert_replays().await;
}
