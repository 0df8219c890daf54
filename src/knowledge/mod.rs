//! Answers from documents.
//!
//! *For*: a question that no flow is for, answered from the project's documents. *Entry*: [`Knowledge::find`] looks for passages,
//! [`Knowledge::answer`] makes the answer of what was found; the first is recorded as a whole, the second asks a model that is.
//! *Never*: takes what documents or people say for anything but data; names a source that was not shown to the model; says
//! anything when nothing was found.
//!
//! | file | holds |
//! | --- | --- |
//! | `question` | what is looked for, and what the model is shown of the conversation |
//! | `shelf` | the index over a folder's documents, kept up to date |
//! | `citations` | sources in an answer, checked while it streams |
//! | `answer` | the prompt, the stream, the answer |

mod answer;
mod citations;
mod question;
mod shelf;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use segue_engine::{
    conversation::{Conversation, SearchOutcome},
    project::{DocumentStore, Project, SearchConfig},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use self::{question::Question, shelf::Shelf};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    http::HttpClients,
    limits,
    llm::{Embedder, Llm, LlmError},
    prompts::PromptSet,
    search::{Folder, FolderError, Found, Qdrant, QdrantError},
};

/// Documents, and how they are searched; one for a project.
pub struct Knowledge {
    store: Store,
    embedder: Option<Arc<dyn Embedder>>,
    prompts: Arc<PromptSet>,
}

enum Store {
    Shelf(Shelf),
    Qdrant(Qdrant),
}

/// What was looked for and found. Recorded with the turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// What was looked for.
    pub question: String,
    /// Passages, best first; at most [`limits::KNOWLEDGE_SHOWN`].
    pub found: Vec<Found>,
    /// Whether meanings were compared beside words.
    pub by_meaning: bool,
    /// What operators should know: documents that were left out, a service that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why nothing could be looked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// The documents cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The vector store cannot be asked.
    #[error(transparent)]
    Qdrant(#[from] QdrantError),
    /// The store compares vectors alone, and none could be made.
    #[error("the question could not be embedded: {0}")]
    Embedding(#[from] LlmError),
    /// No embedding model is open.
    #[error("the vector store compares vectors, and the policy names no `embeddings`")]
    NoEmbeddings,
    /// The reading was given up.
    #[error("the documents could not be read: {0}")]
    Stopped(String),
}

impl Knowledge {
    /// The documents of a project's policy; `root` is the project's folder. Reads and connects to nothing yet.
    ///
    /// # Errors
    /// [`QdrantError::Wrong`] when the address of the store is none.
    pub fn new(
        config: &SearchConfig,
        project: &Project,
        root: &Path,
        embedder: Option<Arc<dyn Embedder>>,
        prompts: Arc<PromptSet>,
        outbound: HttpClients,
    ) -> Result<Self, QdrantError> {
        let store = match (&config.store, &project.endpoints.qdrant) {
            (DocumentStore::Qdrant, Some(def)) => Store::Qdrant(Qdrant::new(def, outbound)?),
            (DocumentStore::Qdrant, None) => return Err(QdrantError::Wrong("there is none".to_owned())),
            (DocumentStore::Folder { path, .. }, _) => Store::Shelf(Shelf::new(Folder::new(root.join(&**path), root))),
        };
        Ok(Self { store, embedder, prompts })
    }

    /// Looks for passages that answer the newest question.
    ///
    /// # Errors
    /// [`KnowledgeError`] when the documents cannot be reached. A failing embedding service is none where words can be compared.
    ///
    /// # Cancellation
    /// Dropping the future closes connections; documents that are being read are read to their end.
    pub async fn find(
        &self,
        config: &SearchConfig,
        conversation: &Conversation,
        cx: &CallContext,
    ) -> Result<SearchResult, KnowledgeError> {
        let question = Question::of(conversation, config.messages_in_query);
        let mut looked = SearchResult { question: question.whole(), ..SearchResult::default() };
        match &self.store {
            Store::Shelf(shelf) => shelf.find(&question, self.embedder.as_ref(), config, &mut looked, cx).await?,
            Store::Qdrant(qdrant) => {
                let embedder = self.embedder.as_ref().ok_or(KnowledgeError::NoEmbeddings)?;
                let asked: [Arc<str>; 1] = [looked.question.as_str().into()];
                let vector = embedder.embed(&asked, &cx.with_timeout(limits::EMBED_WAIT)).await?.into_iter().next();
                let vector = vector.ok_or(KnowledgeError::NoEmbeddings)?;
                looked.found = qdrant.nearest(&vector, limits::KNOWLEDGE_SHOWN, config.threshold, cx).await?;
                looked.by_meaning = true;
            }
        }
        Ok(looked)
    }

    /// Makes the answer of what was found. Where the policy has no relevance checked, the text leaves through `out` as it
    /// comes. Never fails: what goes wrong is an outcome.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the model; what left counts as said.
    pub async fn answer(
        &self,
        task: AnswerTask<'_>,
        looked: &SearchResult,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> SearchOutcome {
        answer::make(&self.prompts, &task, looked, out, cx).await
    }
}

/// Everything that an answer is made with.
pub struct AnswerTask<'a> {
    /// The project.
    pub project: &'a Project,
    /// Its policy.
    pub config: &'a SearchConfig,
    /// The conversation, the question last.
    pub conversation: &'a Conversation,
    /// What the prompt shows as the present time.
    pub at: Timestamp,
    /// The model that writes.
    pub llm: Arc<dyn Llm>,
}
