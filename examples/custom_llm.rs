//! A custom model in Rust: a type that turns a request into a stream of text deltas and a complete response.
//!
//! `cargo run --example custom_llm`

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use segue::{
    CallContext, ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, ModelProfile, llm::Purpose, prelude::*,
};

/// A model that knows two messages.
struct FixedModel(ModelProfile);

fn answer(request: &ChatRequest) -> &'static str {
    // The purpose says what the answer is for: commands, an agent's next step, …
    if request.purpose != Purpose::COMMANDS {
        return "I only know commands.";
    }
    // The last message of the request quotes the newest message of the user.
    let prompt = request.messages.last().map(|message| message.text()).unwrap_or_default();
    if prompt.contains("\"Good morning\"") {
        "start flow greet"
    } else if prompt.contains("\"Call me Ada\"") {
        "set slot name Ada"
    } else {
        "cannot handle"
    }
}

#[async_trait]
impl Llm for FixedModel {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }
    /// Streams the text, then `Done` with the complete response. A stream that ends with an error, or without `Done`, has no effect.
    /// `ChatStream::from_response` makes a stream from a complete response.
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        let text = answer(&request);
        let words = text.split_inclusive(' ').map(|word| Ok(Delta::Text(word.into())));
        let done = Delta::Done(Arc::new(ChatResponse::text(text)));
        Ok(ChatStream::new(futures::stream::iter(words.chain([Ok(done)]))))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples");
    let model = FixedModel(ModelProfile::for_model("self-hosted", "fixed"));
    let assistant = Assistant::builder(project)?.model(Arc::new(model)).build()?;

    assert_eq!(assistant.say("ada", "Good morning").await?.text(), "What is your name?");
    assert!(assistant.say("ada", "Call me Ada").await?.text().starts_with("Hello Ada!"));
    Ok(())
}
