//! Long results of the sessions of a unit: stored as blobs of the run, so that their ids are valid in another process and in copies of a
//! session.

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::{
    ids::RunId,
    limits::RUN_TEXT,
    mission::tools::{MissionTool, ResultLookup, ResultProblem},
    project::missions::ContextLimits,
};
use serde_json::Value as Json;

use super::{journal::UnitJournal, slice::UnitRun};
use crate::{
    llm::ToolCall,
    react::{Blobs, ResultIndex, ResultStore, Threshold},
    store::runs::{RunBlob, RunStore},
    tools::{ToolHandler, tool_set::ToolSet},
};

/// The blobs of a run, written by one of its units.
struct UnitBlobs {
    run: RunId,
    /// The run whose session was taken over, if there is one; it has the long results of that session.
    source: Option<RunId>,
    store: Arc<dyn RunStore>,
    journal: Arc<UnitJournal>,
}

#[async_trait]
impl Blobs for UnitBlobs {
    async fn put(&self, id: &str, text: Arc<str>) -> Result<(), String> {
        if text.len() > RUN_TEXT {
            return Err(format!("the result has {} bytes, more than {}", text.len(), RUN_TEXT));
        }
        let blob = RunBlob { id: id.into(), text };
        // A step that runs again stores the same content under the same id.
        self.journal.commit(|batch| batch.blobs.push(blob)).await.map_err(|error| error.to_string())
    }
    async fn get(&self, id: &str) -> Result<Option<Arc<str>>, String> {
        let read = async |run: &RunId| self.store.blob(run, id).await.map_err(|error| error.to_string());
        match (read(&self.run).await?, &self.source) {
            // Ids are hashes of contents: those of two runs are never confused.
            (None, Some(source)) => read(source).await,
            (found, _) => Ok(found),
        }
    }
}

impl UnitRun {
    /// The long results of a session.
    pub(super) fn results(&self, index: ResultIndex, limits: &ContextLimits) -> Arc<ResultStore> {
        self.results_with(index, limits, None)
    }

    /// The long results of a copy of a session. `source`: the run that it is from, if it is another one.
    pub(super) fn results_with(
        &self,
        index: ResultIndex,
        limits: &ContextLimits,
        source: Option<RunId>,
    ) -> Arc<ResultStore> {
        let (run, store) = (self.run.clone(), self.parts.runs.clone());
        let blobs = UnitBlobs { run, source, store, journal: self.journal.clone() };
        let threshold = Threshold::of_tokens(limits.tool_response_tokens);
        ResultStore::new(index, Arc::new(blobs), threshold, self.parts.prompts.clone())
    }
}

/// The tools of a session with those that read its long results.
pub(super) fn with_result_tools(tools: ToolSet, results: &Arc<ResultStore>) -> ToolSet {
    let handler = |tool| -> Arc<dyn ToolHandler> { Arc::new(tool) };
    tools.with(results.tools().into_iter().map(handler))
}

/// The stored result that a call of `result_to_dataset` names, read before the call. Other calls need none.
pub(super) struct NamedResult(Result<Vec<Json>, ResultProblem>);

impl NamedResult {
    /// For calls that read no stored result.
    pub(super) fn none() -> Self {
        Self(Err(ResultProblem::Unknown))
    }
    pub(super) async fn of(call: &ToolCall, results: &ResultStore) -> Self {
        let id = call.arguments.as_json().and_then(|arguments| arguments.get("id")?.as_str());
        Self(match id.filter(|_| &*call.name == MissionTool::ResultToDataset.name()) {
            Some(id) => results.items(id).await.map_err(|error| match error.code() {
                "result.type" => ResultProblem::NotAList,
                _ => ResultProblem::Unknown,
            }),
            None => return Self::none(),
        })
    }
}

impl ResultLookup for NamedResult {
    fn items(&self, _: &str) -> Result<Vec<Json>, ResultProblem> {
        self.0.clone()
    }
}
