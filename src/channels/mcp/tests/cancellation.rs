//! Cancellation of a call: the turn ends at the next safe point, and its events are stored.

use async_trait::async_trait;
use rmcp::{
    model::{CallToolRequest, ClientRequest},
    service::PeerRequestOptions,
};
use tokio::sync::Notify;

use super::*;
use crate::llm::{ChatRequest, ChatStream, LlmError, LlmErrorKind, ModelProfile};

/// A model that never answers its first request, and the others by a script.
struct StuckModel {
    requested: Arc<Notify>,
    is_first: std::sync::atomic::AtomicBool,
    scripted: Arc<dyn Llm>,
}

#[async_trait]
impl Llm for StuckModel {
    fn profile(&self) -> &ModelProfile {
        self.scripted.profile()
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if !self.is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return self.scripted.chat(request, cx).await;
        }
        self.requested.notify_one();
        let interrupted = cx.wait(std::future::pending::<()>()).await.unwrap_err();
        Err(LlmError::new(LlmErrorKind::Cancelled).with_detail(interrupted))
    }
}

#[tokio::test]
async fn cancelled_call_keeps_its_message_and_the_conversation_continues() {
    let requested = Arc::new(Notify::new());
    let scripted = Arc::new(ScriptedLlm::strict(["set slot name Ada"]));
    let model = StuckModel { requested: requested.clone(), is_first: true.into(), scripted };
    let assistant = builder(Arc::new(model)).build().unwrap();
    let client = client(&assistant, McpServerSettings::default()).await;
    let id = conversation_id(&call(&client, "greet", json!({})).await).to_owned();
    let message = params("converse", json!({"message": "I am, well, Bob", "conversation_id": &id}), "");
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(message));
    let handle = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    requested.notified().await;
    handle.cancel(Some("changed my mind".to_owned())).await.unwrap();
    // The next message waits until the cancelled turn has ended.
    let next = call(&client, "converse", json!({"message": "Ada", "conversation_id": &id})).await;
    assert!(texts(&next).starts_with("Hello Ada!"), "{next:?}");
    let id = id.as_str().into();
    let turns = assistant.store().turns(&id).await.unwrap();
    assert_eq!(turns.len(), 3);
    assert!(turns[1].replies.is_empty() && turns[1].events.iter().any(|event| format!("{event:?}").contains("Bob")));
    let difference = assistant.replay(&id).await.unwrap();
    assert!(difference.is_none(), "a replay ends where the turn ended: {difference:?}");
}
