//! Rephrasing: a model rephrases responses, or an NLG server generates them, as `nlg` in `endpoints.yml` says.
//!
//! The rephraser changes only the text of a response; neither it nor the server decides which response is sent. When rephrasing
//! fails, the user gets the response as its author wrote it.
//!
//! | file | contents |
//! | --- | --- |
//! | `rephrase` | the request to the model, and its answer as a stream |
//! | `nlg` | the client of an NLG server |
//! | `context` | what both are shown of a conversation |

mod context;
mod nlg;
mod rephrase;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use segue_engine::{
    conversation::{BotMessage, Conversation},
    project::{Nlg, Project, Variation},
};
use serde_json::Value as Json;

use self::nlg::NlgClient;
pub use self::rephrase::REPHRASER;
use crate::{
    context::CallContext,
    conversation::{Reply, ReplySink},
    http::HttpClients,
    llm::Llm,
    prompts::PromptSet,
};

/// A response that is to be rephrased or generated.
pub struct RephraseRequest<'a> {
    /// The project.
    pub project: &'a Project,
    /// The conversation up to the response.
    pub conversation: &'a Conversation,
    /// The response as its author wrote it.
    pub message: &'a BotMessage,
    /// The id of the reply on the channel.
    pub id: Arc<str>,
}

impl RephraseRequest<'_> {
    /// The variation of the response that was chosen.
    fn variation(&self) -> Option<&Variation> {
        let response = self.project.response(self.message.utter_action.as_deref()?)?;
        response.variations.get(self.message.rephrase.as_ref()?.variation)
    }
}

/// How the responses of a project are rephrased or generated.
#[derive(Debug)]
pub struct Rephrasing {
    prompts: Arc<PromptSet>,
    server: Option<NlgClient>,
}

impl Rephrasing {
    /// The rephrasing of a project; `None` when it has no `nlg` in `endpoints.yml`.
    pub fn new(project: &Project, prompts: Arc<PromptSet>, http_clients: HttpClients) -> Option<Self> {
        let server = match project.endpoints.nlg.as_ref()? {
            Nlg::Rephraser(_) => None,
            Nlg::Server(server) => Some(NlgClient::new(server.clone(), http_clients)),
        };
        Some(Self { prompts, server })
    }

    /// Whether an NLG server generates the responses; else a model rephrases them.
    pub fn is_server(&self) -> bool {
        self.server.is_some()
    }

    /// Rephrases a response with one call of the model, and streams the text to `out`.
    ///
    /// # Errors
    /// The reason, for operators. If text was streamed before, the reply ends with the original text.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the model; a reply that has started on the channel stays unfinished.
    pub async fn rephrase(
        &self,
        request: &RephraseRequest<'_>,
        llm: &Arc<dyn Llm>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<Arc<str>, String> {
        rephrase::rephrase(&self.prompts, request, llm, out, cx).await
    }

    /// The body of the request to the NLG server for a response.
    pub fn nlg_request(&self, request: &RephraseRequest<'_>) -> Json {
        nlg::nlg_request(request)
    }

    /// Sends a request body to the NLG server and returns the response it generates.
    ///
    /// # Errors
    /// The reason why there is no valid response, for operators.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub async fn generate(&self, body: &Json, cx: &CallContext) -> Result<Reply, String> {
        match &self.server {
            Some(server) => server.generate(body, cx).await,
            None => Err("the project names no NLG server; set `nlg.url` in endpoints.yml".to_owned()),
        }
    }
}
