//! Usage of a turn: model calls and tokens, for its budgets; and the entries of its trace, if a trace is requested.

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
    llm::{ChatRequest, ChatResponse, LlmError, LlmErrorKind, Purpose},
    store::StoreError,
    tools::{EffectClass, ToolInfo},
    understanding::FlowSelection,
};

/// One entry of a trace: a request, a response or a decision.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum TraceEntry {
    /// A request to a model.
    ModelRequest {
        /// The step key.
        key: String,
        /// The purpose of the request.
        purpose: String,
        /// The messages, as the model gets them.
        messages: Vec<Json>,
        /// Names of the offered tools.
        tools: Vec<String>,
    },
    /// The response of a model.
    ModelResponse {
        /// The step key.
        key: String,
        /// Text, tool calls and usage, or the error.
        answer: Json,
    },
    /// Commands were parsed from a response, and parts of it were ignored.
    CommandsRead {
        /// The step key.
        key: String,
        /// What was ignored and why, with line and column in the response.
        notes: Vec<String>,
    },
    /// Flows were selected for the prompt, because there are more than it may contain.
    FlowsChosen {
        /// The step key.
        key: String,
        /// Whether embeddings were compared in addition to words.
        used_embeddings: bool,
        /// The flows that match the message best, with their scores.
        flows_from_semantic_search: Vec<(String, f32)>,
        /// The flows that the prompt contains.
        flows_in_prompt: Vec<String>,
        /// Why no embeddings were compared although an embedding model is configured.
        #[serde(skip_serializing_if = "Option::is_none")]
        embedding_error: Option<String>,
    },
    /// Documents were searched.
    DocumentsSearched {
        /// The step key.
        key: String,
        /// The search query.
        query: String,
        /// Whether embeddings were compared in addition to words.
        used_embeddings: bool,
        /// Sources with their scores, best first.
        found: Vec<(String, f32)>,
        /// Notes for operators.
        notes: Vec<String>,
    },
    /// A tool call.
    ToolCall {
        /// The step key.
        key: String,
        /// The name of the tool.
        tool: String,
        /// The arguments.
        arguments: Json,
    },
}

/// Counts model calls and tokens of a turn, and collects its trace.
#[derive(Default)]
pub(in crate::runtime) struct UsageMeter {
    model_calls: AtomicU32,
    /// Model calls of sub-agents.
    delegate_calls: AtomicU32,
    /// Tokens and cost of all responses, including recorded ones: the same when the turn runs again.
    used: Mutex<ModelUsage>,
    /// The store error that stopped the attempt. The next attempt starts from what is stored.
    store_error: Mutex<Option<StoreError>>,
    /// The trace; only with [`tracing`](Self::tracing).
    entries: Option<Mutex<Vec<TraceEntry>>>,
}

impl UsageMeter {
    /// A meter that also collects a trace.
    pub(in crate::runtime) fn tracing() -> Self {
        Self { entries: Some(Mutex::default()), ..Self::default() }
    }
    /// Adds what an MCP server used of the assistant's model by sampling. `is_replay` means that the usage comes from the record, so
    /// that the model calls were not counted when they were made.
    pub(in crate::runtime) fn record_sampling(&self, samples: &[ModelUsage], is_replay: bool) {
        for sample in samples {
            *lock(&self.used) += *sample;
        }
        if is_replay {
            self.model_calls.fetch_add(u32::try_from(samples.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }
    /// Sets the usage at an interruption, as recorded: the interrupted effect is not replayed.
    pub(in crate::runtime) fn restore(&self, used: ModelUsage) {
        let mut current = lock(&self.used);
        if current.answers < used.answers {
            *current = used;
        }
    }
    /// Tokens and cost of this turn; `None` without a response of a model.
    pub(in crate::runtime) fn used(&self) -> Option<ModelUsage> {
        let used = *lock(&self.used);
        (!used.is_empty()).then_some(used)
    }
    /// Traces the ignored parts of a response.
    pub(in crate::runtime) fn record_commands_read(&self, key: &StepKey, notes: &[String]) {
        if !notes.is_empty() {
            self.trace(|| TraceEntry::CommandsRead { key: key.to_string(), notes: notes.to_vec() });
        }
    }
    /// Traces the selection of flows.
    pub(in crate::runtime) fn record_flows(
        &self,
        key: &StepKey,
        selection: &FlowSelection,
        shown: impl FnOnce() -> Vec<FlowId>,
    ) {
        self.trace(|| TraceEntry::FlowsChosen {
            key: key.to_string(),
            used_embeddings: selection.used_embeddings,
            flows_from_semantic_search: selection.flows.iter().map(|(flow, near)| (flow.to_string(), *near)).collect(),
            flows_in_prompt: shown().iter().map(ToString::to_string).collect(),
            embedding_error: selection.embedding_error.clone(),
        });
    }
    /// Traces the result of a search.
    pub(in crate::runtime) fn record_search(&self, key: &StepKey, result: &SearchResult) {
        let found = result.passages.iter().map(|found| (found.passage.source().to_owned(), found.score));
        self.trace(|| TraceEntry::DocumentsSearched {
            key: key.to_string(),
            query: result.query.clone(),
            used_embeddings: result.used_embeddings,
            found: found.collect(),
            notes: result.notes.clone(),
        });
    }
    /// Takes the store error that stopped the attempt, if any.
    pub(in crate::runtime) fn take_store_error(&self) -> Option<StoreError> {
        lock(&self.store_error).take()
    }
    /// The entries of the trace.
    pub(in crate::runtime) fn entries(&self) -> Vec<TraceEntry> {
        self.entries.as_ref().map(|entries| lock(entries).clone()).unwrap_or_default()
    }
    fn trace(&self, entries: impl FnOnce() -> TraceEntry) {
        if let Some(list) = &self.entries {
            lock(list).push(entries());
        }
    }
}

impl JournalObserver for UsageMeter {
    fn model_called(&self, key: &StepKey, request: &ChatRequest) -> Result<(), LlmError> {
        let (calls, most) = match request.purpose == Purpose::DELEGATE {
            true => (&self.delegate_calls, limits::TURN_DELEGATE_CALLS),
            false => (&self.model_calls, limits::TURN_MODEL_CALLS),
        };
        if calls.fetch_add(1, Ordering::Relaxed) >= most {
            let reason = format!("at most {most} are allowed");
            return Err(LlmError::new(LlmErrorKind::CallLimit).with_detail(reason));
        }
        self.trace(|| TraceEntry::ModelRequest {
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
        self.trace(|| TraceEntry::ModelResponse {
            key: key.to_string(),
            answer: match answer {
                Ok(answer) => serde_json::to_value(answer).unwrap_or(Json::Null),
                Err(error) => serde_json::to_value(error).unwrap_or(Json::Null),
            },
        });
    }
    fn tool_called(&self, key: &StepKey, tool: &ToolInfo, _: EffectClass, arguments: &Json) {
        self.trace(|| TraceEntry::ToolCall {
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
