//! Tools with recorded calls.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
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
    async fn run(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let request =
            format!("{}:{}", self.spec.name, request_hash(&serde_json::to_string(&arguments).unwrap_or_default()));
        let step = Step { key: &cx.cx.key, kind: "tool", class: cx.effect(&self.spec), request: &request };
        let is_recorded = self.journal.status(step) == StepStatus::Done;
        if self.inner.is_some() && self.journal.recorded(&cx.cx.key).is_none() {
            self.journal.observer.tool_called(&cx.cx.key, &self.spec, step.class, &arguments);
        }
        let replayed = is_recorded.then(|| arguments.clone());
        match self.journal.once_if_ok(step, self.perform(arguments, cx)).await {
            Ok(Ok(StepResult::Performed(call))) => call.outcome,
            Ok(Ok(StepResult::Replayed(call))) => {
                if let (Some(inner), Some(arguments)) = (&self.inner, &replayed) {
                    inner.replayed(arguments, &call.outcome, cx);
                }
                call.outcome
            }
            Ok(Ok(StepResult::Unknown)) => self.unknown(cx).await,
            Ok(Err(outcome)) => outcome,
            Err(error) => {
                let mut failure = ToolFailure::new(FailureKind::Cancelled, error.to_string());
                failure.fatal = true;
                ToolOutcome::Failed(failure)
            }
        }
    }

    /// Calls the tool. `Err` if it is not reachable.
    async fn perform(&self, arguments: Json, cx: &ToolCallContext) -> Result<RecordedToolCall, ToolOutcome> {
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
        let outcome = inner.call(arguments, &ToolCallContext { progress: Some(progress), ..cx.clone() }).await;
        Ok(RecordedToolCall { outcome, effect: Some(cx.effect(&self.spec)), progress: recorder.take() })
    }

    /// The outcome of a `write` whose intent has no outcome: it is never repeated, and the model gets the outcome "unknown".
    async fn unknown(&self, cx: &ToolCallContext) -> ToolOutcome {
        let message = format!("The program stopped while `{}` was running.", self.spec.name);
        let outcome = ToolOutcome::Unknown(ToolFailure::new(FailureKind::Unavailable, message));
        let _ = self.journal.record_outcome(&cx.cx.key, &outcome).await;
        outcome
    }
}
