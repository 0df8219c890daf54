//! Which flows stand in the prompt when there are many: those that fit the message, those that were started before, and those
//! that always do.
//!
//! Words are compared always, meanings where an embedding service is configured. A service that fails costs nothing but its
//! part: then words decide alone, for this turn and until [`limits::EMBED_PAUSE`] has passed.

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
    state::one_line,
    view::{View, allowed_values, collects_of},
};
use crate::{
    context::CallContext,
    limits,
    llm::{Embedder, LlmError},
    search::{Index, Vector},
};

/// Earlier turns count for less than the newest message when words are compared.
const EARLIER: f32 = 0.4;

/// The flows that fit a message best. Recorded with the turn, so that a replay asks nobody.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Best first, with how near each is; at most `num_flows`.
    pub flows: Vec<(FlowId, f32)>,
    /// Whether meanings were compared beside words.
    pub by_meaning: bool,
    /// Why they were not, although a service is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Chooses flows; one for a project.
#[derive(Default)]
pub(super) struct Retrieval {
    embedder: Option<Arc<dyn Embedder>>,
    /// The flows by words, and by vectors once they were made; held for no wait.
    kept: Mutex<Option<Arc<Kept>>>,
    /// Until then the service is left alone.
    quiet_until: Mutex<Duration>,
}

struct Kept {
    project: u64,
    flows: Vec<FlowId>,
    documents: Vec<Arc<str>>,
    index: Index,
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

    /// Whether there are more flows to start than the prompt may show.
    pub(super) fn is_needed(project: &Project, conversation: &Conversation) -> bool {
        let Some(config) = config(project).filter(|config| config.active) else { return false };
        // Without a look at guards first: most projects are small.
        project.user_flows().count() > config.flows && View::new(project, conversation).startable.len() > config.flows
    }

    /// The flows that fit the newest message best, of those that can be started.
    pub(super) async fn choose(&self, project: &Project, conversation: &Conversation, cx: &CallContext) -> Choice {
        let Some(config) = config(project) else { return Choice::default() };
        let mut kept = self.kept(project, config);
        let question = question(conversation, config.turns);
        let mut choice = Choice::default();
        let mut vector = None;
        if let Some(embedder) = self.embedder.as_ref().filter(|_| !self.is_quiet(cx)) {
            match self.embed(&**embedder, &kept, &question, cx).await {
                Ok((with_vectors, found)) => (kept, vector) = (with_vectors, Some(found)),
                Err(error) => {
                    tracing::warn!(code = "U0502", "flows are chosen by words alone, embedding failed: {error}");
                    *lock(&self.quiet_until) = cx.clock.elapsed() + limits::EMBED_PAUSE;
                    choice.trouble = Some(super::told(&error));
                }
            }
        }
        choice.by_meaning = vector.is_some();
        let parts: Vec<(&str, f32)> =
            question.iter().map(|(newest, text)| (&**text, if *newest { 1.0 } else { EARLIER })).collect();
        let startable = View::new(project, conversation).startable;
        let can_start = |id: &FlowId| startable.iter().any(|flow| flow.id == *id);
        for hit in kept.index.ranked(&parts, vector.as_deref()) {
            if choice.flows.len() >= config.flows {
                break;
            }
            if let Some(id) = kept.flows.get(hit.at).filter(|id| can_start(id)) {
                choice.flows.push((id.clone(), hit.score));
            }
        }
        choice
    }

    fn is_quiet(&self, cx: &CallContext) -> bool {
        cx.clock.elapsed() < *lock(&self.quiet_until)
    }

    /// The index by words, made once for a project.
    fn kept(&self, project: &Project, config: &RetrievalConfig) -> Arc<Kept> {
        let mut kept = lock(&self.kept);
        if let Some(known) = kept.as_ref().filter(|known| known.project == project.hash) {
            return known.clone();
        }
        let flows: Vec<&Arc<Flow>> = project.user_flows().filter(|flow| !flow.is_link_only()).collect();
        let documents: Vec<Arc<str>> = flows.iter().map(|flow| document(project, flow, config.slots)).collect();
        let index = Index::new(documents.iter().map(|text| &**text));
        let flows = flows.iter().map(|flow| flow.id.clone()).collect();
        let made = Arc::new(Kept { project: project.hash, flows, documents, index });
        *kept = Some(made.clone());
        made
    }

    /// The index with vectors, and the vector of the question.
    async fn embed(
        &self,
        embedder: &dyn Embedder,
        kept: &Arc<Kept>,
        question: &[(bool, String)],
        cx: &CallContext,
    ) -> Result<(Arc<Kept>, Vector), LlmError> {
        let cx = cx.with_timeout(limits::EMBED_WAIT);
        let mut kept = kept.clone();
        if !kept.index.has_vectors() {
            let vectors = embedder.embed(&kept.documents, &cx).await?;
            let (flows, documents) = (kept.flows.clone(), kept.documents.clone());
            let index = kept.index.clone().with_vectors(vectors);
            kept = Arc::new(Kept { project: kept.project, flows, documents, index });
            *lock(&self.kept) = Some(kept.clone());
        }
        let whole: Vec<&str> = question.iter().map(|(_, text)| text.as_str()).collect();
        let asked: [Arc<str>; 1] = [whole.join("\n").into()];
        let vector = embedder.embed(&asked, &cx).await?.into_iter().next();
        vector
            .map(|vector| (kept, vector))
            .ok_or_else(|| crate::llm::LlmErrorKind::InvalidResponse(crate::llm::InvalidResponse::NoChoices).into())
    }
}

fn config(project: &Project) -> Option<&RetrievalConfig> {
    project.config.generator.as_ref().map(|generator| &generator.retrieval)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What of a flow is compared: its name, what it is for, and its slots.
fn document(project: &Project, flow: &Flow, with_slots: bool) -> Arc<str> {
    let mut text = format!("{}: {}", flow.name, flow.description);
    if !flow.id.as_str().eq_ignore_ascii_case(&flow.name) {
        text.push('\n');
        text.push_str(flow.id.as_str());
    }
    for collect in if with_slots { collects_of(project, flow) } else { Vec::new() } {
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

/// What flows are compared with, oldest first; the flag marks the newest message.
fn question(conversation: &Conversation, turns: usize) -> Vec<(bool, String)> {
    let newest = conversation.latest_message.as_ref().map_or("", |message| &*message.text);
    let mut room = limits::RETRIEVAL_QUERY;
    let mut parts = vec![(true, shortened(newest, &mut room))];
    let mut users = 0;
    for item in conversation.history.iter().rev() {
        if users >= turns || turns <= 1 || room == 0 {
            break;
        }
        match item {
            HistoryItem::User { text, .. } => {
                users += 1;
                // The first is the newest message itself.
                if users > 1 {
                    parts.push((false, shortened(text, &mut room)));
                }
            }
            HistoryItem::Bot { text, .. } if users > 0 => parts.push((false, shortened(text, &mut room))),
            _ => {}
        }
    }
    parts.reverse();
    parts
}

fn shortened(text: &str, room: &mut usize) -> String {
    let line = one_line(text);
    let text = truncate(&line, TextLimit::Chars(*room), "");
    *room -= text.chars().count().min(*room);
    text.into_owned()
}

#[cfg(test)]
mod tests;
