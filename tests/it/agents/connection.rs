//! How often an agent tries to reach a server.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use segue::{
    Assistant, CallContext, IncomingMessage, ToolSource,
    llm::ChatResponse,
    testing::{CollectingSink, ManualClock, ScriptedLlm},
    tools::{Health, SourceError, ToolCatalog},
};
use tokio::sync::watch;

use crate::support::project_files::CONFIG;

/// A server that cannot be reached for a number of attempts.
struct FlakySource {
    failures: u32,
    attempts: Arc<AtomicU32>,
}

#[async_trait]
impl ToolSource for FlakySource {
    fn name(&self) -> &str {
        "bank"
    }
    async fn list(&self, _: &CallContext) -> Result<ToolCatalog, SourceError> {
        match self.attempts.fetch_add(1, Ordering::SeqCst) < self.failures {
            true => Err(SourceError { source_name: "bank".into(), reason: "nobody answers".into() }),
            false => Ok(ToolCatalog::default()),
        }
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn status(&self) -> Health {
        Health::Up
    }
    async fn close(&self, _: &CallContext) {}
}

#[tokio::test]
async fn a_server_is_tried_as_often_as_max_retries_says() {
    for (configured, failures, expected) in [("", 9, 3), ("max_retries: 1", 9, 1), ("max_retries: 6", 9, 6), ("", 1, 2)]
    {
        let config = format!(
            "agent: {{name: helper, description: helps}}\nconfiguration: {{{configured}}}\nconnections: {{mcp_servers: [{{name: bank}}]}}\n"
        );
        let files = [
            CONFIG,
            ("endpoints.yml", "mcp_servers: [{name: bank, url: 'http://localhost:1/mcp', type: http}]\n"),
            ("data/flows.yml", "flows:\n  help: {description: helps, steps: [{call: helper}]}\n"),
            ("sub_agents/helper/config.yml", &config),
        ];
        let attempts = Arc::new(AtomicU32::new(0));
        let source = FlakySource { failures, attempts: attempts.clone() };
        let answers = ["start flow help", "What about?"].map(ChatResponse::text);
        let builder = Assistant::builder_from_texts(files).unwrap().clock(Arc::new(ManualClock::new()));
        let assistant = builder.model(Arc::new(ScriptedLlm::strict(answers))).source(Arc::new(source)).build().unwrap();
        let message = IncomingMessage::new("u", "help me").input_channel("test");
        assistant.receive(message, Box::new(CollectingSink::without_streaming())).await.unwrap();
        assert_eq!(attempts.load(Ordering::SeqCst), expected, "{configured}, {failures} failures");
    }
}
