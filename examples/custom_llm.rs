//! A model written in Rust: any type that turns a request into a stream of text deltas and a complete response.
//!
//! `cargo run --example custom_llm`

use std::{error::Error, sync::Arc};

use segue::{
    BoxFuture, CallContext, ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, ModelProfile, llm::Purpose,
    prelude::*,
};

/// Understands two sentences.
struct Parrot(ModelProfile);

fn answer(request: &ChatRequest) -> &'static str {
    // Who asks tells what is wanted: commands, an agent's next step, …
    if request.purpose != Purpose::COMMANDS {
        return "I only know commands.";
    }
    // The newest message stands in the last message of the request, quoted.
    let prompt = request.messages.last().map(|message| message.text()).unwrap_or_default();
    if prompt.contains("\"Good morning\"") {
        "start flow greet"
    } else if prompt.contains("\"Call me Ada\"") {
        "set slot name Ada"
    } else {
        "cannot handle"
    }
}

impl Llm for Parrot {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }
    /// The stream: some text, then `Done` with the whole. What comes after an error, or without `Done`, is never acted on. Where
    /// the answer is there at once, `ChatStream::from_response` makes the stream of it.
    fn chat<'a>(&'a self, request: ChatRequest, _: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        let text = answer(&request);
        let words = text.split_inclusive(' ').map(|word| Ok(Delta::Text(word.into())));
        let done = Delta::Done(Arc::new(ChatResponse::text(text)));
        Box::pin(async move { Ok(ChatStream::new(futures::stream::iter(words.chain([Ok(done)])))) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let model = Parrot(ModelProfile::for_model("self-hosted", "parrot"));
    let assistant = Assistant::builder(project)?.model(Arc::new(model)).build()?;

    assert_eq!(assistant.say("ada", "Good morning").await?.text(), "What is your name?");
    assert!(assistant.say("ada", "Call me Ada").await?.text().starts_with("Hello Ada!"));
    Ok(())
}
