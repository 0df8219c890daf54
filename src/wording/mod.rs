//! How responses are worded, if not by their own texts: a model says them in other words, or a server writes them.
//!
//! *For*: `nlg` of `endpoints.yml`. *Entry*: [`Wording::new`], then [`Wording::rephrase`] or [`Wording::ask`] for one message.
//! *Never*: changes anything but the text of a rephrased response; lets a failure reach the user, who then hears the response
//! as its author wrote it; decides which response is said.
//!
//! | file | holds |
//! | --- | --- |
//! | `rephrase` | the request to the model, and its answer on the way to the channel |
//! | `server` | the request to a response server, and what it may answer |
//! | `view` | what both are shown of a conversation |

mod rephrase;
mod server;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use segue_engine::{
    conversation::{BotMessage, Conversation},
    project::{Nlg, Project, Variation},
};
use serde_json::Value as Json;

pub use self::rephrase::REPHRASER;
use self::server::Server;
use crate::{
    context::CallContext,
    conversation::{Reply, ReplySink},
    http::HttpClients,
    llm::Llm,
    prompts::PromptSet,
};

/// One message that is about to be said.
pub struct Moment<'a> {
    /// The project.
    pub project: &'a Project,
    /// The conversation up to the message.
    pub conversation: &'a Conversation,
    /// The message as its author wrote it.
    pub message: &'a BotMessage,
    /// Its id on the wire.
    pub id: Arc<str>,
}

impl Moment<'_> {
    /// The variation that was chosen.
    fn variation(&self) -> Option<&Variation> {
        let response = self.project.response(self.message.utter_action.as_deref()?)?;
        response.variations.get(self.message.rephrase.as_ref()?.variation)
    }
}

/// Who words the responses of one project.
#[derive(Debug)]
pub struct Wording {
    prompts: Arc<PromptSet>,
    server: Option<Server>,
}

impl Wording {
    /// For this project; `None` when its responses are said as they are written.
    pub fn new(project: &Project, prompts: Arc<PromptSet>, outbound: HttpClients) -> Option<Self> {
        let server = match project.endpoints.nlg.as_ref()? {
            Nlg::Rephraser(_) => None,
            Nlg::Server(server) => Some(Server::new(server.clone(), outbound)),
        };
        Some(Self { prompts, server })
    }

    /// Whether a server words the responses; else a model says them in other words.
    pub fn is_server(&self) -> bool {
        self.server.is_some()
    }

    /// Says a text in other words, and forwards it to the channel as it comes. One call of the model.
    ///
    /// # Errors
    /// Why there are none, for operators; the channel has been told the text as it is written, if it had heard anything.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the model; what the channel heard is then an unfinished message.
    pub async fn rephrase(
        &self,
        moment: &Moment<'_>,
        llm: &Arc<dyn Llm>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<Arc<str>, String> {
        rephrase::rephrase(&self.prompts, moment, llm, out, cx).await
    }

    /// What a response server is asked about a message.
    pub fn question(&self, moment: &Moment<'_>) -> Json {
        server::question(moment)
    }

    /// Asks the response server.
    ///
    /// # Errors
    /// Why it gave no message, for operators.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub async fn ask(&self, question: &Json, cx: &CallContext) -> Result<Reply, String> {
        match &self.server {
            Some(server) => server.ask(question, cx).await,
            None => Err("the project names no response server".to_owned()),
        }
    }
}
