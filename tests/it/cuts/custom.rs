//! The same for agents written in Rust: what such an agent said stays, a call that writes finishes and is recorded, and the next
//! message starts a new run.

use segue::prelude::*;

use super::*;

/// Says something, then calls a tool or waits for something that never comes.
struct Booker {
    tool: Option<&'static str>,
    hangs: Arc<Notify>,
}

#[async_trait]
impl Agent for Booker {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        let tries = run.memory().get("tries").and_then(Json::as_u64).unwrap_or_default();
        if tries > 0 {
            return run.ask("Where were we?").await;
        }
        run.memory().insert("tries".into(), 1.into());
        run.say("One moment.").await;
        match self.tool {
            Some(tool) => drop(run.call_tool(tool, json!({})).await),
            None => {
                self.hangs.notify_one();
                std::future::pending::<()>().await;
            }
        }
        run.finish("This is never said.").await
    }
}

impl Talk {
    fn with_agent(tool: Option<&'static str>) -> (Self, Arc<Notify>) {
        let (folder, boats, hangs) = (tempfile::tempdir().unwrap(), Boats::default(), Arc::new(Notify::new()));
        let model = Arc::new(ScriptedLlm::strict([says("start flow book"), says("continue agent")]));
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap());
        let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(boats.source());
        let agent = Arc::new(Booker { tool, hangs: hangs.clone() });
        let assistant = builder.agent("booker", agent).model(model.clone()).seeds(|| 7).build().unwrap();
        (Self { assistant, model, folder, boats }, hangs)
    }
    /// The turn was stopped: what was said is there, and the agent goes on with the next message.
    async fn goes_on(&self, stopped: &TurnReport) {
        assert_eq!(texts(stopped), ["One moment."]);
        assert!(self.waits().await, "the agent waits for the user");
        self.replays().await;
        assert_eq!(self.say("well?").await, ["Where were we?"], "it knows what it kept");
        self.replays().await;
    }
}

#[tokio::test]
async fn an_agent_that_is_stopped_while_it_waits_keeps_what_it_said() {
    let (talk, hangs) = Talk::with_agent(None);
    let stop = CancellationToken::new();
    let stopping = async {
        hangs.notified().await;
        stop.cancel();
    };
    let report = tokio::join!(talk.stoppable("book a boat", &stop), stopping).0;
    talk.goes_on(&report).await;
}

#[tokio::test]
async fn an_agent_that_is_stopped_in_a_tool_keeps_what_came_of_the_call() {
    for (tool, counts, status) in [("book", (1, 1, 0), "done"), ("look", (1, 0, 1), "failed")] {
        let (talk, _) = Talk::with_agent(Some(tool));
        let report = talk.stopped_in_the_tool("book a boat").await;
        assert_eq!(talk.boats.counts(), counts, "{tool}");
        let executed = talk.of("tool_executed").await;
        assert_eq!((executed.len(), &executed[0]["status"]), (1, &json!(status)), "{executed:?}");
        talk.goes_on(&report).await;
    }
}
