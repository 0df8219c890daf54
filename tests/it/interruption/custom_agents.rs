//! Interrupted agents that are written in Rust: what the agent said is kept, a running write finishes and is recorded, and the next
//! message starts a new run.

use segue::prelude::*;

use super::*;

/// Says something in its first run, then calls a tool, or hangs if there is none. Asks a question in its second run.
struct Booker {
    tool: Option<&'static str>,
    /// Notified when the agent hangs.
    hanging: Arc<Notify>,
}

#[async_trait]
impl Agent for Booker {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        let runs = run.memory().get("runs").and_then(Json::as_u64).unwrap_or_default();
        if runs > 0 {
            return run.ask("Where were we?").await;
        }
        run.memory().insert("runs".into(), 1.into());
        run.say("One moment.").await;
        match self.tool {
            Some(tool) => drop(run.call_tool(tool, json!({})).await),
            None => {
                self.hanging.notify_one();
                std::future::pending::<()>().await;
            }
        }
        run.finish("Not reached.").await
    }
}

impl TestConversation {
    fn with_agent(tool: Option<&'static str>) -> (Self, Arc<Notify>) {
        let (folder, tools, hanging) =
            (tempfile::tempdir().unwrap(), BlockingTools::default(), Arc::new(Notify::new()));
        let model = Arc::new(ScriptedLlm::strict([text("start flow book"), text("continue agent")]));
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("conversation.db"), false).unwrap());
        let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(tools.source());
        let agent = Arc::new(Booker { tool, hanging: hanging.clone() });
        let assistant = builder.agent("booker", agent).model(model.clone()).seeds(|| 7).build().unwrap();
        (Self { assistant, model, folder, tools }, hanging)
    }
    /// The interrupted turn has what the agent said, and the agent runs again with the next message.
    async fn assert_continues(&self, interrupted: &TurnReport) {
        assert_eq!(texts(interrupted), ["One moment."]);
        assert!(self.agent_waits().await, "the agent waits for the user");
        self.assert_replays().await;
        assert_eq!(self.say("well?").await, ["Where were we?"], "its memory is kept");
        self.assert_replays().await;
    }
}

#[tokio::test]
async fn interrupted_custom_agent_keeps_what_it_said() {
    let (conversation, hanging) = TestConversation::with_agent(None);
    let stop = CancellationToken::new();
    let interrupting = async {
        hanging.notified().await;
        stop.cancel();
    };
    let report = tokio::join!(conversation.interruptible("book a boat", &stop), interrupting).0;
    conversation.assert_continues(&report).await;
}

#[tokio::test]
async fn custom_agent_interrupted_in_a_tool_call_keeps_its_outcome() {
    for (tool, counts, status) in [("book", (1, 1, 0), "done"), ("look", (1, 0, 1), "failed")] {
        let (conversation, _) = TestConversation::with_agent(Some(tool));
        let report = conversation.interrupted_in_tool("book a boat").await;
        assert_eq!(conversation.tools.counts(), counts, "{tool}");
        let executed = conversation.events_of("tool_executed").await;
        assert_eq!((executed.len(), &executed[0]["status"]), (1, &json!(status)), "{executed:?}");
        conversation.assert_continues(&report).await;
    }
}
