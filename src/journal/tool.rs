//! Tools with recorded calls.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::conversation::Write;
use serde_json::Value as Json;

use super::{
    EffectJournal, Step, StepResult, StepStatus, request_hash,
    tool_progress::{ProgressRecorder, RecordedToolCall},
};
use crate::tools::{
    ArgumentCheck, FailureKind, Progress, ToolCallContext, ToolFailure, ToolHandler, ToolInfo, ToolOutcome,
};

/// A tool whose calls are recorded. Without an inner tool it only replays records.
pub struct JournaledTool {
    /// Its description, as offered to the model.
    pub spec: ToolInfo,
    /// The tool itself, if it is reachable.
    pub inner: Option<Arc<dyn ToolHandler>>,
    /// The journal of its calls.
    pub journal: EffectJournal,
}

#[async_trait]
impl ToolHandler for JournaledTool {
    fn info(&self) -> &ToolInfo {
        &self.spec
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.inner.as_ref()?.argument_check()
    }
    fn idle_timeout(&self) -> Option<Duration> {
        self.inner.as_ref()?.idle_timeout()
    }
    fn total_timeout(&self) -> Option<Duration> {
        self.inner.as_ref()?.total_timeout()
    }
    async fn call(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        self.run(arguments, cx).await
    }
}

impl JournaledTool {
    /// The request of a call, as its record has it: the name of the tool, a colon, and a hash of the arguments.
    pub(crate) fn request(tool: &str, arguments: &Json) -> String {
        format!("{tool}:{}", request_hash(&serde_json::to_string(arguments).unwrap_or_default()))
    }

    async fn run(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let request = Self::request(&self.spec.name, &arguments);
        let step = Step { key: &cx.cx.key, kind: "tool", class: cx.effect(&self.spec), request: &request };
        let is_recorded = self.journal.status(step) == StepStatus::Done;
        if self.inner.is_some() && self.journal.recorded(&cx.cx.key).is_none() {
            self.journal.observer.tool_called(&cx.cx.key, &self.spec, step.class, &arguments);
        }
        match self.journal.once_if_ok(step, self.perform(&arguments, cx)).await {
            Ok(Ok(StepResult::Performed(call))) => call.outcome,
            Ok(Ok(StepResult::Replayed(call))) => {
                if let Some(inner) = self.inner.as_ref().filter(|_| is_recorded) {
                    inner.replayed(&arguments, &call.outcome, cx);
                }
                call.outcome
            }
            Ok(Ok(StepResult::Unknown)) => self.unknown(&arguments, cx).await,
            Ok(Err(outcome)) => outcome,
            Err(error) => {
                let mut failure = ToolFailure::new(FailureKind::Cancelled, error.to_string());
                failure.fatal = true;
                ToolOutcome::Failed(failure)
            }
        }
    }

    /// Calls the tool. `Err` if it is not reachable.
    async fn perform(&self, arguments: &Json, cx: &ToolCallContext) -> Result<RecordedToolCall, ToolOutcome> {
        let Some(inner) = &self.inner else {
            return Err(ToolOutcome::failed(FailureKind::Unavailable, "the tool is not connected"));
        };
        let recorder = ProgressRecorder::new(cx.cx.clock.clone());
        let (recording, outer) = (recorder.clone(), cx.progress.clone());
        let progress: Arc<dyn Fn(Progress) + Send + Sync> = Arc::new(move |reported| {
            recording.record(&reported);
            if let Some(outer) = &outer {
                outer(reported);
            }
        });
        let mut called = cx.clone();
        called.progress = Some(progress);
        let outcome = inner.call(arguments.clone(), &called).await;
        Ok(RecordedToolCall { progress: recorder.take(), ..self.record_of(outcome, arguments, cx) })
    }

    /// The record of a call without progress. The arguments of a call that changes something are kept, so that they can be told when the
    /// turn is not finished.
    fn record_of(&self, outcome: ToolOutcome, arguments: &Json, cx: &ToolCallContext) -> RecordedToolCall {
        let class = cx.effect(&self.spec);
        let arguments = self.spec.changes(class).map(|_| Write::new(self.spec.name.clone(), arguments).arguments);
        RecordedToolCall {
            outcome,
            effect: Some(class),
            arguments: arguments.unwrap_or_default(),
            agent: cx.caller.agent.clone(),
            progress: Vec::new(),
        }
    }

    /// The outcome of a `write` whose intent has no outcome: it is never repeated, and the model gets the outcome "unknown".
    async fn unknown(&self, arguments: &Json, cx: &ToolCallContext) -> ToolOutcome {
        let message = format!("The program stopped while `{}` was running.", self.spec.name);
        let outcome = ToolOutcome::Unknown(ToolFailure::new(FailureKind::Unavailable, message));
        let _ = self.journal.record_outcome(&cx.cx.key, &self.record_of(outcome.clone(), arguments, cx)).await;
        outcome
    }
}
