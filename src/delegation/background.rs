//! Delegates in the background: `task` returns at once, and three tools ask about them. They live in this process and record nothing; the
//! ledger of the agent ends those of an earlier process.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use minijinja::context;
use serde_json::{Map, Value as Json, json};

use super::{
    executor::{self, Delegations, TaskOrder, TaskSummary},
    parent::{DelegationParent, RunCounts},
    report::{TaskReport, TaskStatus, key, words},
};
use crate::{
    clock::Clock,
    context::CallContext,
    effect::EffectClass,
    journal::{Step, StepResult},
    limits,
    llm::Llm,
    react::{Budget, BudgetLimits},
    tools::{FailureKind, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput, tool_set::ToolSet},
};

/// Models and tools without a record, and the clock of the process.
pub(crate) struct BackgroundParts {
    pub(crate) llm: Arc<dyn Llm>,
    pub(crate) models: Arc<HashMap<Arc<str>, Arc<dyn Llm>>>,
    pub(crate) tools: ToolSet,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Starts a delegate that outlives the call. The start is recorded as a `write`: after a crash it is not repeated.
pub(super) async fn start(
    parent: &DelegationParent,
    parts: &Arc<BackgroundParts>,
    order: TaskOrder,
    call: &ToolCallContext,
) -> ToolOutcome {
    let start_key = call.cx.step("start").key;
    let id = order.id.clone();
    let step = Step { key: &start_key, kind: "task", class: EffectClass::Write, request: &id };
    let begin = async {
        spawn(parent, parts, order, call);
        id.to_string()
    };
    match parent.journal.once(step, begin).await {
        Ok(StepResult::Performed(_) | StepResult::Replayed(_)) => {
            let text = words(&parent.prompts, context! { outcome => "background", id => &*id });
            status_outcome(text, &id, TaskStatus::Running)
        }
        Ok(StepResult::Unknown) | Err(_) => {
            let mut report = TaskReport::ended(id.clone(), TaskStatus::Failed, "".into());
            report.error = Some(words(&parent.prompts, context! { outcome => "lost" }).into());
            report.outcome(&parent.prompts)
        }
    }
}

fn spawn(parent: &DelegationParent, parts: &Arc<BackgroundParts>, order: TaskOrder, call: &ToolCallContext) {
    let own = DelegationParent {
        llm: parts.llm.clone(),
        models: parts.models.clone(),
        tools: parts.tools.clone(),
        background: None,
        budget: Budget::new(BudgetLimits::default()),
        counts: Arc::new(RunCounts::new(&parent.settings, 0)),
        // Its delegates would be recorded in a turn that may have ended.
        depth: 1,
        ..parent.clone()
    };
    let limit = parent.settings.call_limit(parent.delegations.queue_timeout());
    let cx = CallContext {
        deadline: parts.clock.deadline(limit),
        cancel: Arc::default(),
        clock: parts.clock.clone(),
        idle_timeout: None,
        ..call.cx.clone()
    };
    let call = ToolCallContext { cx, progress: None, client_requests: None, ..call.clone() };
    let delegations = parent.delegations.clone();
    delegations.background.spawn(async move { executor::run(&own, order, &call).await });
}

/// What a tool for delegates in the background does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BackgroundAction {
    Status,
    Result,
    Cancel,
}

/// `task_status`, `task_result` or `task_cancel`.
pub(super) struct BackgroundTool {
    pub(super) info: ToolInfo,
    pub(super) action: BackgroundAction,
    pub(super) parent: DelegationParent,
}

#[async_trait]
impl ToolHandler for BackgroundTool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn idle_timeout(&self) -> Option<Duration> {
        (self.action == BackgroundAction::Result)
            .then(|| self.parent.settings.longest().saturating_add(limits::DELEGATION_WATCHDOG))
    }
    async fn call(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let id = arguments.get("id").and_then(Json::as_str).unwrap_or_default().trim();
        let DelegationParent { delegations, prompts, conversation, .. } = &self.parent;
        match self.find(id) {
            Found::Report(report) => report.outcome(prompts),
            Found::Nothing => {
                let text = words(prompts, context! { outcome => "unknown_task", id });
                ToolOutcome::failed(FailureKind::BadArguments, text)
            }
            Found::Running(child) => match self.action {
                BackgroundAction::Status => {
                    let status = child.status.name();
                    let variables = context! { outcome => "status", id, status, turns => child.messages };
                    status_outcome(words(prompts, variables), id, child.status)
                }
                BackgroundAction::Cancel => {
                    delegations.cancel(id);
                    let text = words(prompts, context! { outcome => "cancelling", id });
                    status_outcome(text, id, child.status)
                }
                BackgroundAction::Result => match cx.cx.wait(report(delegations, conversation, id)).await {
                    Ok(report) => report.outcome(prompts),
                    Err(_) => {
                        let variables =
                            context! { outcome => "status", id, status => "running", turns => child.messages };
                        status_outcome(words(prompts, variables), id, TaskStatus::Running)
                    }
                },
            },
        }
    }
}

enum Found {
    Report(Box<TaskReport>),
    Running(TaskSummary),
    Nothing,
}

impl BackgroundTool {
    fn find(&self, id: &str) -> Found {
        let DelegationParent { delegations, conversation, .. } = &self.parent;
        match (delegations.report(conversation, id), delegations.child(conversation, id)) {
            (Some(report), _) => Found::Report(Box::new(report)),
            (None, Some(child)) => Found::Running(child),
            (None, None) => Found::Nothing,
        }
    }
}

/// Waits for the report of a delegate.
async fn report(delegations: &Arc<Delegations>, conversation: &str, id: &str) -> TaskReport {
    loop {
        let ended = delegations.ended.notified();
        let mut ended = std::pin::pin!(ended);
        ended.as_mut().enable();
        if let Some(report) = delegations.report(conversation, id) {
            return report;
        }
        ended.await;
    }
}

fn status_outcome(text: String, id: &str, status: TaskStatus) -> ToolOutcome {
    let meta = Map::from_iter([(key::ID.to_owned(), json!(id)), (key::STATUS.to_owned(), json!(status))]);
    ToolOutcome::Done(ToolOutput { meta, ..ToolOutput::text(text) })
}
