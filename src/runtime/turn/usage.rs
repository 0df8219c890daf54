//! What a turn uses, for its budgets; and, when somebody wants to know, what it asked and heard.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use segue_engine::{conversation::ModelUsage, ids::FlowId};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    context::StepKey,
    journal::JournalObserver,
    knowledge::SearchResult,
    limits,
    llm::{ChatRequest, ChatResponse, LlmError, LlmErrorKind},
    store::StoreError,
    tools::ToolInfo,
    understanding::FlowSelection,
};

/// One effect, for the trace.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum TraceEntry {
    /// A model was asked.
    #[serde(rename = "asked")]
    ModelRequest {
        /// The step.
        key: String,
        /// What for.
        purpose: String,
        /// The messages, as the model got them.
        messages: Vec<Json>,
        /// Names of the tools that were offered.
        tools: Vec<String>,
    },
    /// It answered.
    #[serde(rename = "heard")]
    ModelResponse {
        /// The step.
        key: String,
        /// Text, calls, usage; or the error.
        answer: Json,
    },
    /// Commands were read out of its answer, and parts of it were left out.
    #[serde(rename = "read")]
    CommandsRead {
        /// The step.
        key: String,
        /// What was left out, and why; with line and column where it stands in the answer.
        notes: Vec<String>,
    },
    /// Flows were chosen for the prompt, since there are more than it may show.
    #[serde(rename = "chose")]
    FlowsChosen {
        /// The step.
        key: String,
        /// Whether meanings were compared beside words.
        by_meaning: bool,
        /// Those that fit the message best, with how near each is.
        flows_from_semantic_search: Vec<(String, f32)>,
        /// Those that the prompt showed.
        flows_in_prompt: Vec<String>,
        /// Why meanings were not compared, although a service is configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        trouble: Option<String>,
    },
    /// Documents were searched.
    #[serde(rename = "looked")]
    DocumentsSearched {
        /// The step.
        key: String,
        /// What was looked for.
        question: String,
        /// Whether meanings were compared beside words.
        by_meaning: bool,
        /// Sources and how near each is, best first.
        found: Vec<(String, f32)>,
        /// What else an operator should know.
        notes: Vec<String>,
    },
    /// A tool was called.
    #[serde(rename = "called")]
    ToolCall {
        /// The step.
        key: String,
        /// Which.
        tool: String,
        /// With what.
        arguments: Json,
    },
}

/// What a turn uses.
#[derive(Default)]
pub(in crate::runtime) struct UsageMeter {
    model_calls: AtomicU32,
    /// What the answers of models used, recorded ones included: the same when the turn runs again.
    used: Mutex<ModelUsage>,
    /// A store error that stopped the turn; the turn is tried again from what is stored.
    store_error: Mutex<Option<StoreError>>,
    /// Filled only when a trace is wanted.
    seen: Option<Mutex<Vec<TraceEntry>>>,
}

impl UsageMeter {
    /// A meter that also keeps what it sees.
    pub(in crate::runtime) fn tracing() -> Self {
        Self { seen: Some(Mutex::default()), ..Self::default() }
    }
    /// Adds what a server used of our model during a call; `again`: the call runs again from its record, so that its
    /// requests were not counted when they were made.
    pub(in crate::runtime) fn sampled(&self, samples: &[ModelUsage], again: bool) {
        for sample in samples {
            *lock(&self.used) += *sample;
        }
        if again {
            self.model_calls.fetch_add(u32::try_from(samples.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }
    /// What they had used when the turn was stopped, as it is recorded; of the effect that was stopped nothing runs again.
    pub(in crate::runtime) fn restore(&self, used: ModelUsage) {
        let mut known = lock(&self.used);
        if known.answers < used.answers {
            *known = used;
        }
    }
    /// What models used in this turn, where one answered.
    pub(in crate::runtime) fn used(&self) -> Option<ModelUsage> {
        let used = *lock(&self.used);
        (!used.is_empty()).then_some(used)
    }
    /// Notes what was left out of answers when commands were read.
    pub(in crate::runtime) fn read(&self, key: &StepKey, notes: &[String]) {
        if !notes.is_empty() {
            self.note(|| TraceEntry::CommandsRead { key: key.to_string(), notes: notes.to_vec() });
        }
    }
    /// Notes which flows the prompt showed.
    pub(in crate::runtime) fn chose(&self, key: &StepKey, choice: &FlowSelection, shown: impl FnOnce() -> Vec<FlowId>) {
        self.note(|| TraceEntry::FlowsChosen {
            key: key.to_string(),
            by_meaning: choice.used_embeddings,
            flows_from_semantic_search: choice.flows.iter().map(|(flow, near)| (flow.to_string(), *near)).collect(),
            flows_in_prompt: shown().iter().map(ToString::to_string).collect(),
            trouble: choice.embedding_error.clone(),
        });
    }
    /// Notes what was found in documents.
    pub(in crate::runtime) fn looked(&self, key: &StepKey, looked: &SearchResult) {
        let found = looked.passages.iter().map(|found| (found.passage.source().to_owned(), found.score));
        self.note(|| TraceEntry::DocumentsSearched {
            key: key.to_string(),
            question: looked.query.clone(),
            by_meaning: looked.used_embeddings,
            found: found.collect(),
            notes: looked.notes.clone(),
        });
    }
    /// The store error that stopped the turn, if any.
    pub(in crate::runtime) fn take_store_error(&self) -> Option<StoreError> {
        lock(&self.store_error).take()
    }
    /// What was seen.
    pub(in crate::runtime) fn seen(&self) -> Vec<TraceEntry> {
        self.seen.as_ref().map(|seen| lock(seen).clone()).unwrap_or_default()
    }
    fn note(&self, seen: impl FnOnce() -> TraceEntry) {
        if let Some(list) = &self.seen {
            lock(list).push(seen());
        }
    }
}

impl JournalObserver for UsageMeter {
    fn model_called(&self, key: &StepKey, request: &ChatRequest) -> Result<(), LlmError> {
        if self.model_calls.fetch_add(1, Ordering::Relaxed) >= limits::TURN_MODEL_CALLS {
            let reason = format!("the turn used up its {} model calls", limits::TURN_MODEL_CALLS);
            return Err(LlmError::new(LlmErrorKind::DeadlineExceeded).with_detail(reason));
        }
        self.note(|| TraceEntry::ModelRequest {
            key: key.to_string(),
            purpose: request.purpose.to_string(),
            messages: request.messages.iter().filter_map(|message| serde_json::to_value(&**message).ok()).collect(),
            tools: request.tools.iter().map(|tool| tool.name.to_string()).collect(),
        });
        Ok(())
    }
    fn model_answered(&self, key: &StepKey, answer: Result<&ChatResponse, &LlmError>) {
        if let Ok(answer) = answer {
            *lock(&self.used) += ModelUsage::single(answer.usage);
        }
        self.note(|| TraceEntry::ModelResponse {
            key: key.to_string(),
            answer: match answer {
                Ok(answer) => serde_json::to_value(answer).unwrap_or(Json::Null),
                Err(error) => serde_json::to_value(error).unwrap_or(Json::Null),
            },
        });
    }
    fn tool_called(&self, key: &StepKey, tool: &ToolInfo, arguments: &Json) {
        self.note(|| TraceEntry::ToolCall {
            key: key.to_string(),
            tool: tool.name.to_string(),
            arguments: arguments.clone(),
        });
    }
    fn store_failed(&self, error: &StoreError) {
        lock(&self.store_error).get_or_insert_with(|| error.clone());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
