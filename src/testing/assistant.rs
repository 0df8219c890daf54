//! A deterministic assistant for tests.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    llm::Llm,
    runtime::{Assistant, AssistantBuilder, IncomingMessage, LoadError, ReceiveError, TurnReport},
};

use super::{CollectedReplies, CollectingSink, ManualClock};

/// A deterministic assistant for tests: with the model that the test passes, usually a scripted one, a manual clock, fixed seeds, and a
/// store in memory unless the builder has another.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use segue::testing::{ScriptedLlm, TestAssistant};
///
/// let model = ScriptedLlm::strict(["start flow greet"]);
/// let test = TestAssistant::from_folder("examples/projects/rust_examples", Arc::new(model))?;
/// assert_eq!(test.say("hello").await?, ["What is your name?"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestAssistant {
    /// The assistant.
    pub assistant: Assistant,
    /// Its clock, which advances by itself while the assistant waits for a time.
    pub clock: ManualClock,
}

/// The name of the channel of test messages.
pub const CHANNEL: &str = "test";

impl TestAssistant {
    /// Loads the project in a folder. `model` answers all model calls, whichever models the project names.
    ///
    /// # Errors
    /// [`LoadError`] when the project has errors.
    pub fn from_folder(folder: impl AsRef<Path>, model: Arc<dyn Llm>) -> Result<Self, LoadError> {
        Self::build(Assistant::builder(folder)?.model(model))
    }

    /// Loads a project from files, as (path, text). `model` answers all model calls.
    ///
    /// # Errors
    /// [`LoadError`] when the project has errors.
    pub fn from_files<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        model: Arc<dyn Llm>,
    ) -> Result<Self, LoadError> {
        Self::build(Assistant::builder_from_texts(files)?.model(model))
    }

    /// Builds an assistant with a manual clock and fixed seeds.
    ///
    /// # Errors
    /// [`LoadError`] as [`AssistantBuilder::build`].
    pub fn build(builder: AssistantBuilder) -> Result<Self, LoadError> {
        let clock = ManualClock::auto_advancing();
        let assistant = builder.clock(Arc::new(clock.clone())).seeds(|| 7).build()?;
        Ok(Self { assistant, clock })
    }

    /// Sends a message in the conversation `u` and returns the texts of the replies.
    ///
    /// # Errors
    /// [`ReceiveError`] when the message was not answered.
    pub async fn say(&self, text: &str) -> Result<Vec<String>, ReceiveError> {
        let (_, collected) = self.send("u", text).await?;
        Ok(collected.texts())
    }

    /// Sends a message in a conversation and returns the report, and every event that the channel was sent.
    ///
    /// # Errors
    /// [`ReceiveError`] when the message was not answered.
    pub async fn send(&self, conversation: &str, text: &str) -> Result<(TurnReport, CollectedReplies), ReceiveError> {
        let sink = CollectingSink::streaming();
        let collected = sink.collected();
        let report = self
            .assistant
            .receive(IncomingMessage::new(conversation, text).input_channel(CHANNEL), Box::new(sink))
            .await?;
        Ok((report, collected))
    }

    /// Advances the clock.
    pub fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::ScriptedLlm;

    const FLOWS: &str = "flows: {greet: {description: greets, steps: [{collect: name}, {action: utter_hello}]}}";
    const DOMAIN: &str = "
slots: {name: {type: text, mappings: [{type: from_llm}]}}
responses: {utter_ask_name: [{text: Who are you?}], utter_hello: [{text: 'Hello {name}!'}]}
";
    const CONFIG: &str = "
recipe: default.v1
pipeline: [{name: CompactLLMCommandGenerator}]
policies: [{name: FlowPolicy}]
";

    #[tokio::test]
    async fn same_inputs_give_the_same_events() {
        let files = [("config.yml", CONFIG), ("domain.yml", DOMAIN), ("flows/greet.yml", FLOWS)];
        let mut runs = Vec::new();
        for _ in 0..2 {
            let model = ScriptedLlm::strict(["start flow greet", "set slot name Ada"]);
            let test = TestAssistant::from_files(files, Arc::new(model)).unwrap();
            assert_eq!(test.say("hello").await.unwrap(), ["Who are you?"]);
            test.advance(Duration::from_secs(60));
            assert_eq!(test.say("I am Ada").await.unwrap().first().map(String::as_str), Some("Hello Ada!"));
            let turns = test.assistant.store().turns(&"u".into()).await.unwrap();
            runs.push(turns.into_iter().map(|turn| (turn.inbound.at, turn.events)).collect::<Vec<_>>());
        }
        assert_eq!(runs.first(), runs.last());
        assert!(
            TestAssistant::from_files([("flows/a.yml", "flows: [")], Arc::new(ScriptedLlm::strict(["x"]))).is_err()
        );
    }
}
