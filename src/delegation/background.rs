//! Delegates in the background: `task` returns at once, and three tools ask about them. What they do is in the [run store](super::durable).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use minijinja::context;
use serde_json::{Map, Value as Json, json};

use super::{
    durable::{BackgroundTasks, DelegateParts, Lookup, StoredOrder, meta_without},
    executor::TaskOrder,
    parent::DelegationParent,
    report::{ReportStatus, TaskReport, key, words},
};
use crate::{
    effect::EffectClass,
    journal::{ListedTool, Step},
    limits,
    store::runs::RunStoreError,
    tools::{FailureKind, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput},
};

/// What an agent needs to start delegates in the background.
pub(crate) struct Background {
    pub(crate) tasks: Arc<BackgroundTasks>,
    /// The agent.
    pub(crate) agent: Arc<str>,
    pub(crate) parts: DelegateParts,
}

/// Stores a delegate that outlives the call. The same call stores it once.
pub(super) async fn start(
    parent: &DelegationParent,
    background: &Background,
    order: TaskOrder,
    call: &ToolCallContext,
) -> ToolOutcome {
    let start_key = call.cx.step("start").key;
    let id = order.id;
    let reserve = parent.budget.reserve_half();
    let tools = background.parts.tools.infos().filter(|info| parent.narrowing.allows(&info.name));
    let stored = StoredOrder {
        id: id.clone(),
        agent: background.agent.clone(),
        conversation: parent.conversation.clone(),
        turn: parent.turn,
        seed: call.cx.seed,
        description: order.description,
        prompt: order.prompt,
        subagent_type: order.kind.name,
        max_turns: order.max_turns,
        output_schema: order.output_schema,
        criteria: order.criteria,
        tools: tools.map(ListedTool::from).collect(),
        reserve,
        metadata: (*call.metadata).clone(),
        mcp_meta: meta_without(&parent.mcp_meta, &background.parts.mcp_meta),
        flow: call.caller.flow.clone(),
    };
    let step = Step { key: &start_key, kind: "task", class: EffectClass::Idempotent, request: &id };
    let begin = async { background.tasks.start(&stored, background.parts.clone()).await };
    match parent.journal.once_if_ok(step, begin).await {
        Ok(Ok(_)) => {
            let text = words(&parent.prompts, context! { outcome => "background", id => &*id });
            let mut outcome = status_outcome(text, &id, ReportStatus::Running);
            if let (ToolOutcome::Done(output), true) = (&mut outcome, parent.budget.is_limited()) {
                output.meta.insert(key::RESERVE.to_owned(), json!(reserve));
            }
            outcome
        }
        failed => {
            if let Ok(Err(error)) = failed {
                tracing::warn!(code = error.code(), task = &*id, "a sub-agent cannot be stored: {error}");
            }
            let mut report = TaskReport::ended(id, ReportStatus::Failed, "".into());
            report.error = Some(words(&parent.prompts, context! { outcome => "not_stored" }).into());
            report.outcome(&parent.prompts)
        }
    }
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
    pub(super) tasks: Arc<BackgroundTasks>,
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
        let found = match self.action {
            BackgroundAction::Result => self.tasks.wait(conversation, id, &cx.cx).await,
            BackgroundAction::Status | BackgroundAction::Cancel => self.tasks.look_up(conversation, id).await,
        };
        match found {
            Ok(Lookup::Ended(report)) => return report.outcome(prompts),
            Ok(Lookup::Unknown) => {
                let text = words(prompts, context! { outcome => "unknown_task", id });
                return ToolOutcome::failed(FailureKind::BadArguments, text);
            }
            Ok(Lookup::Open) => {}
            Err(error) => return self.store_failed(&error),
        }
        let child = delegations.child(conversation, id);
        let (status, turns) = child.map_or((ReportStatus::Running, 0), |child| (child.status, child.messages));
        if self.action == BackgroundAction::Cancel {
            if let Err(error) = self.tasks.cancel(id).await {
                return self.store_failed(&error);
            }
            return status_outcome(words(prompts, context! { outcome => "cancelling", id }), id, status);
        }
        let variables = context! { outcome => "status", id, status => status.name(), turns };
        status_outcome(words(prompts, variables), id, status)
    }
}

impl BackgroundTool {
    fn store_failed(&self, error: &RunStoreError) -> ToolOutcome {
        tracing::warn!(code = error.code(), "a sub-agent in the background cannot be read: {error}");
        let text = words(&self.parent.prompts, context! { outcome => "store_failed" });
        ToolOutcome::failed(FailureKind::Unavailable, text)
    }
}

fn status_outcome(text: String, id: &str, status: ReportStatus) -> ToolOutcome {
    let meta = Map::from_iter([(key::ID.to_owned(), json!(id)), (key::STATUS.to_owned(), json!(status))]);
    ToolOutcome::Done(ToolOutput::text(text).with_meta(meta))
}
