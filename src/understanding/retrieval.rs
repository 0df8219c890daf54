//! Flow retrieval: selects the flows that the prompt shows when there are many.
//!
//! The lexical score is always used, embeddings where an embedding service is configured. When the service fails, the
//! lexical score is used alone, for this turn and until [`limits::EMBED_PAUSE`] has passed.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use segue_engine::{
    conversation::{Conversation, HistoryItem},
    ids::FlowId,
    project::{Flow, Project, RetrievalConfig},
    text::{TextLimit, truncate},
};
use serde::{Deserialize, Serialize};

use super::{
    context::{GeneratorContext, allowed_values, collects_of},
    state::one_line,
};
use crate::{
    context::CallContext,
    limits,
    llm::{Embedder, LlmError},
    search::{HybridIndex, Vector},
};

/// The weight of earlier turns in the lexical score; the newest message has weight 1.
const EARLIER_TURN_WEIGHT: f32 = 0.4;

/// The flows that fit a message best. It is recorded with the turn, so that a replay calls no embedding service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSelection {
    /// The flows with their scores, best first; at most `num_flows` of `config.yml`.
    pub flows: Vec<(FlowId, f32)>,
    /// Whether embeddings were used besides the lexical score.
    #[serde(rename = "by_meaning")]
    pub used_embeddings: bool,
    /// Why embeddings were not used although a service is configured.
    #[serde(rename = "trouble", default, skip_serializing_if = "Option::is_none")]
    pub embedding_error: Option<String>,
}

/// Selects flows; there is one per project.
#[derive(Default)]
pub(super) struct Retrieval {
    embedder: Option<Arc<dyn Embedder>>,
    /// The index of the project's flows, with vectors once they were embedded. Never locked across an await.
    index: Mutex<Option<Arc<FlowIndex>>>,
    /// After an error the embedding service is not called before this time of the monotonic clock.
    paused_until: Mutex<Duration>,
}

struct FlowIndex {
    /// The hash of the project that the index was built for.
    project: u64,
    flows: Vec<FlowId>,
    /// The text that is compared, for each flow.
    documents: Vec<Arc<str>>,
    index: HybridIndex,
}

impl std::fmt::Debug for Retrieval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retrieval").field("embeds", &self.embedder.is_some()).finish_non_exhaustive()
    }
}

impl Retrieval {
    pub(super) fn new(embedder: Option<Arc<dyn Embedder>>) -> Self {
        Self { embedder, ..Self::default() }
    }

    /// Whether retrieval is active and there are more startable flows than the prompt may show.
    pub(super) fn is_needed(project: &Project, conversation: &Conversation) -> bool {
        let Some(config) = config(project).filter(|config| config.active) else { return false };
        // Counting comes first, because evaluating guards is slower and most projects have few flows.
        project.user_flows().count() > config.flows
            && GeneratorContext::new(project, conversation).startable.len() > config.flows
    }

    /// The startable flows that fit the newest message best.
    pub(super) async fn select_flows(
        &self,
        project: &Project,
        conversation: &Conversation,
        cx: &CallContext,
    ) -> FlowSelection {
        let Some(config) = config(project) else { return FlowSelection::default() };
        let mut flow_index = self.flow_index(project, config);
        let query = query(conversation, config.turns);
        let mut selection = FlowSelection::default();
        let mut vector = None;
        if let Some(embedder) = self.embedder.as_ref().filter(|_| !self.is_paused(cx)) {
            match self.embed(&**embedder, &flow_index, &query, cx).await {
                Ok((with_vectors, found)) => (flow_index, vector) = (with_vectors, Some(found)),
                Err(error) => {
                    tracing::warn!(
                        code = "U0502",
                        "flows are selected by the lexical score alone, embedding failed: {error}"
                    );
                    *lock(&self.paused_until) = cx.clock.elapsed() + limits::EMBED_PAUSE;
                    selection.embedding_error = Some(super::describe_error(&error));
                }
            }
        }
        selection.used_embeddings = vector.is_some();
        let parts: Vec<(&str, f32)> =
            query.iter().map(|(newest, text)| (&**text, if *newest { 1.0 } else { EARLIER_TURN_WEIGHT })).collect();
        let startable = GeneratorContext::new(project, conversation).startable;
        let can_start = |id: &FlowId| startable.iter().any(|flow| flow.id == *id);
        for hit in flow_index.index.ranked(&parts, vector.as_deref()) {
            if selection.flows.len() >= config.flows {
                break;
            }
            if let Some(id) = flow_index.flows.get(hit.at).filter(|id| can_start(id)) {
                selection.flows.push((id.clone(), hit.score));
            }
        }
        selection
    }

    fn is_paused(&self, cx: &CallContext) -> bool {
        cx.clock.elapsed() < *lock(&self.paused_until)
    }

    /// The index of the project's flows, built once per project.
    fn flow_index(&self, project: &Project, config: &RetrievalConfig) -> Arc<FlowIndex> {
        let mut flow_index = lock(&self.index);
        if let Some(cached) = flow_index.as_ref().filter(|cached| cached.project == project.hash) {
            return cached.clone();
        }
        let flows: Vec<&Arc<Flow>> = project.user_flows().filter(|flow| !flow.is_link_only()).collect();
        let documents: Vec<Arc<str>> = flows.iter().map(|flow| document(project, flow, config.slots)).collect();
        let index = HybridIndex::new(documents.iter().map(|text| &**text));
        let flows = flows.iter().map(|flow| flow.id.clone()).collect();
        let built = Arc::new(FlowIndex { project: project.hash, flows, documents, index });
        *flow_index = Some(built.clone());
        built
    }

    /// The index with vectors, and the vector of the query.
    async fn embed(
        &self,
        embedder: &dyn Embedder,
        flow_index: &Arc<FlowIndex>,
        query: &[(bool, String)],
        cx: &CallContext,
    ) -> Result<(Arc<FlowIndex>, Vector), LlmError> {
        let cx = cx.with_timeout(limits::EMBED_WAIT);
        let mut flow_index = flow_index.clone();
        if !flow_index.index.has_vectors() {
            let vectors = embedder.embed(&flow_index.documents, &cx).await?;
            let (flows, documents) = (flow_index.flows.clone(), flow_index.documents.clone());
            let index = flow_index.index.clone().with_vectors(vectors);
            flow_index = Arc::new(FlowIndex { project: flow_index.project, flows, documents, index });
            *lock(&self.index) = Some(flow_index.clone());
        }
        let parts: Vec<&str> = query.iter().map(|(_, text)| text.as_str()).collect();
        let texts: [Arc<str>; 1] = [parts.join("\n").into()];
        let vector = embedder.embed(&texts, &cx).await?.into_iter().next();
        vector
            .map(|vector| (flow_index, vector))
            .ok_or_else(|| crate::llm::LlmErrorKind::InvalidResponse(crate::llm::InvalidResponse::NoChoices).into())
    }
}

fn config(project: &Project) -> Option<&RetrievalConfig> {
    project.config.generator.as_ref().map(|generator| &generator.retrieval)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a flow that is compared: its name, description, id and slots.
fn document(project: &Project, flow: &Flow, with_slots: bool) -> Arc<str> {
    let mut text = format!("{}: {}", flow.name, flow.description);
    if !flow.id.as_str().eq_ignore_ascii_case(&flow.name) {
        text.push('\n');
        text.push_str(flow.id.as_str());
    }
    for collect in if with_slots { collects_of(project, flow, |_| true) } else { Vec::new() } {
        text.push('\n');
        text.push_str(collect.slot.as_str());
        if let Some(description) = &collect.description {
            text.push_str(": ");
            text.push_str(description);
        }
        let values = project.slot(collect.slot.as_str()).and_then(|slot| allowed_values(&slot.kind));
        let values: Vec<String> =
            values.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect();
        if !values.is_empty() {
            text.push_str(&format!(" ({})", values.join(", ")));
        }
    }
    (&*truncate(&text, TextLimit::Chars(limits::RETRIEVAL_FLOW), "")).into()
}

/// The utterances that flows are compared with, oldest first; the flag marks the newest message.
fn query(conversation: &Conversation, turns: usize) -> Vec<(bool, String)> {
    let newest = conversation.latest_message.as_ref().map_or("", |message| &*message.text);
    let mut remaining = limits::RETRIEVAL_QUERY;
    let mut parts = vec![(true, shortened(newest, &mut remaining))];
    let mut users = 0;
    for item in conversation.history.iter().rev() {
        if users >= turns || turns <= 1 || remaining == 0 {
            break;
        }
        match item {
            HistoryItem::User { text, .. } => {
                users += 1;
                // The first one is the newest message itself.
                if users > 1 {
                    parts.push((false, shortened(text, &mut remaining)));
                }
            }
            HistoryItem::Bot { text, .. } if users > 0 => parts.push((false, shortened(text, &mut remaining))),
            _ => {}
        }
    }
    parts.reverse();
    parts
}

fn shortened(text: &str, remaining: &mut usize) -> String {
    let line = one_line(text);
    let text = truncate(&line, TextLimit::Chars(*remaining), "");
    *remaining -= text.chars().count().min(*remaining);
    text.into_owned()
}

#[cfg(test)]
mod tests;
