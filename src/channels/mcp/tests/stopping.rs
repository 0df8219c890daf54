//! A host stops a call: the turn ends at the next safe point, and what happened is kept.

use futures::future::BoxFuture;
use rmcp::{
    model::{CallToolRequest, ClientRequest},
    service::PeerRequestOptions,
};
use tokio::sync::Notify;

use super::*;
use crate::llm::{ChatRequest, ChatStream, LlmError, LlmErrorKind, ModelProfile};

/// Never answers the first request; the others by a script.
struct Stuck {
    asked: Arc<Notify>,
    is_first: std::sync::atomic::AtomicBool,
    rest: Arc<dyn Llm>,
}

impl Llm for Stuck {
    fn profile(&self) -> &ModelProfile {
        self.rest.profile()
    }
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        if !self.is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return self.rest.chat(request, cx);
        }
        self.asked.notify_one();
        Box::pin(async move {
            let stopped = cx.wait(std::future::pending::<()>()).await.unwrap_err();
            Err(LlmError::new(LlmErrorKind::Cancelled).with_detail(stopped))
        })
    }
}

#[tokio::test]
async fn a_stopped_call_leaves_the_talk_where_it_was() {
    let asked = Arc::new(Notify::new());
    let rest = Arc::new(ScriptedLlm::strict(["set slot name Ada"]));
    let model = Stuck { asked: asked.clone(), is_first: true.into(), rest };
    let assistant = builder(Arc::new(model)).build().unwrap();
    let client = client(&assistant, McpServerSettings::default()).await;
    let id = talk(&call(&client, "greet", json!({})).await).to_owned();
    let said = params("converse", json!({"message": "I am, well, Bob", "conversation_id": &id}), "");
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(said));
    let handle = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    asked.notified().await;
    handle.cancel(Some("changed my mind".to_owned())).await.unwrap();
    // The next message waits for the end of the stopped turn.
    let next = call(&client, "converse", json!({"message": "Ada", "conversation_id": &id})).await;
    assert!(texts(&next).starts_with("Hello Ada!"), "{next:?}");
    let id = id.as_str().into();
    let turns = assistant.store().turns(&id).await.unwrap();
    assert_eq!(turns.len(), 3);
    assert!(turns[1].replies.is_empty() && turns[1].events.iter().any(|event| format!("{event:?}").contains("Bob")));
    let difference = assistant.replay(&id).await.unwrap();
    assert!(difference.is_none(), "a replay stops where the turn did: {difference:?}");
}
