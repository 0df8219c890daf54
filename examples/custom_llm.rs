//! A model written in Rust: anything that turns a request into a stream of text and a terminal mark.
//!
//! `cargo run --example custom_llm`

use std::{error::Error, sync::Arc};

use segue::{
    Answer, Assistant, BoxFuture, ChatRequest, ChatStream, Cx, Delta, Incoming, Llm, LlmError, ModelProfile, NoSink,
    llm::Purpose,
};

/// Understands two sentences.
struct Parrot {
    profile: ModelProfile,
}

impl Parrot {
    fn answer(request: &ChatRequest) -> String {
        // Who asks tells what is wanted: commands, an agent's next step, …
        if request.purpose != Purpose::COMMANDS {
            return "I only know commands.".to_owned();
        }
        // The newest message stands in the last message of the request, quoted.
        let prompt = request.messages.last().map(|message| message.text()).unwrap_or_default();
        if prompt.contains("\"Good morning\"") {
            "start flow greet".to_owned()
        } else if prompt.contains("\"Call me Ada\"") {
            "set slot name Ada".to_owned()
        } else {
            "cannot handle".to_owned()
        }
    }
}

impl Llm for Parrot {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    /// The stream: some text, then `Done` with the whole. What comes after an error, or without `Done`, is never acted on.
    fn chat<'a>(&'a self, request: ChatRequest, _: &'a Cx) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move {
            let text = Self::answer(&request);
            let words: Vec<_> = text.split_inclusive(' ').map(|word| Ok(Delta::Text(word.into()))).collect();
            let done = Delta::Done(Arc::new(Answer::text(text)));
            Ok(ChatStream::new(futures::stream::iter(words.into_iter().chain([Ok(done)]))))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let model = Parrot { profile: ModelProfile::of("self-hosted", "parrot") };
    let assistant = Assistant::builder(folder)?.model(Arc::new(model)).build()?;

    for (message, answer) in [("Good morning", "What is your name?"), ("Call me Ada", "Hello Ada!")] {
        let report = assistant.receive(Incoming::text("u1", message, "example"), Box::new(NoSink)).await?;
        let first = report.replies.first().and_then(|reply| reply.reply.text.as_deref());
        assert_eq!(first, Some(answer), "{:?}", report.failures);
    }
    Ok(())
}
