//! The tool `task`: it starts a delegate and returns its report.
//!
//! A call passes three parts. [`TaskCounter`] counts calls against the limits of the run, those that are replayed too; the journal
//! records the outcome of the call as that of a composite step; [`TaskTool`] runs the delegate.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use minijinja::context;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{
    background::{self, BackgroundAction, BackgroundTool},
    criteria::Criterion,
    executor::{self, TaskOrder},
    ledger::label,
    loop_host::ResultSchema,
    parent::DelegationParent,
    report::{ReportStatus, TaskReport, key, metadata_of, reserve_of, usage_of, words},
    types::{TASK, TASK_CANCEL, TASK_RESULT, TASK_STATUS, output_schema},
};
use crate::{
    journal::{JournaledTool, Step, StepStatus},
    prompts::PromptSet,
    tools::{
        ArgumentCheck, CallWrapper, EffectClass, FailureKind, ToolCallContext, ToolFailure, ToolHandler, ToolInfo,
        ToolOutcome, WrappedTool, invoke, tool_set::ToolSet,
    },
};

/// The source of the delegation tools, in traces.
pub(crate) const SOURCE: &str = "delegation";

/// The tools with `task`, and with the tools for delegates in the background where the settings allow it.
pub(crate) fn with_delegation(tools: ToolSet, parent: DelegationParent) -> ToolSet {
    if parent.settings.types.is_empty() {
        return tools;
    }
    let background = parent.background.as_ref().filter(|_| parent.settings.background);
    let has_background = background.is_some();
    let texts = ToolTexts::of(&parent.prompts, &parent.settings.names(), has_background);
    let journaled = |inner: Arc<dyn ToolHandler>| -> Arc<dyn ToolHandler> {
        let (spec, journal) = (inner.info().clone(), parent.journal.clone());
        Arc::new(JournaledTool { spec, inner: Some(inner), journal })
    };
    let mut added: Vec<Arc<dyn ToolHandler>> = Vec::new();
    let task = TaskTool {
        info: texts.info(TASK, EffectClass::Composite),
        check: lax_check(),
        limit: parent.settings.call_limit(parent.delegations.queue_timeout()),
        parent: parent.clone(),
    };
    added.push(Arc::new(WrappedTool::new(journaled(Arc::new(task)), TaskCounter { parent: parent.clone() })));
    if let Some(background) = background {
        for (name, action, class) in [
            (TASK_STATUS, BackgroundAction::Status, EffectClass::Read),
            (TASK_RESULT, BackgroundAction::Result, EffectClass::Read),
            (TASK_CANCEL, BackgroundAction::Cancel, EffectClass::Idempotent),
        ] {
            let tool = BackgroundTool {
                info: texts.info(name, class),
                action,
                tasks: background.tasks.clone(),
                parent: parent.clone(),
            };
            added.push(journaled(Arc::new(tool)));
        }
    }
    tools.with(added)
}

/// The descriptions and parameters of the delegation tools, from `prompts/tool_task.j2`.
pub(super) struct ToolTexts(Map<String, Json>);

impl ToolTexts {
    pub(super) fn of(prompts: &PromptSet, names: &str, background: bool) -> Self {
        let text = prompts.render(&prompts.tool_task, context! { names, background });
        let texts = text
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        Self(texts.unwrap_or_else(|problem| {
            tracing::warn!(%problem, "prompts/tool_task.j2 is not a JSON object: tools of delegation have no description");
            Map::new()
        }))
    }
    pub(super) fn description(&self, name: &str) -> String {
        let text = self.0.get(name).and_then(|tool| tool.get("description")).and_then(Json::as_str);
        text.unwrap_or_default().to_owned()
    }
    fn info(&self, name: &str, class: EffectClass) -> ToolInfo {
        let parameters = self.0.get(name).and_then(|tool| tool.get("parameters")).cloned();
        let parameters = parameters.unwrap_or_else(|| json!({"type": "object"}));
        ToolInfo::new(name, self.description(name)).parameters(parameters).effect(class).source(SOURCE)
    }
}

/// The check of the arguments of `task`. It lets a missing type pass, so that the error can list the types.
fn lax_check() -> Option<Arc<ArgumentCheck>> {
    let text = json!({"type": "string"});
    let schema = json!({
        "type": "object",
        "properties": {
            "description": text,
            "prompt": text,
            "subagent_type": text,
            "max_turns": {"type": "integer", "minimum": 1},
            "output_schema": {"type": "object"},
            "acceptance_criteria": {"type": "array"},
            "background": {"type": "boolean"},
        },
        "required": ["prompt"],
    });
    ArgumentCheck::compile(&schema).ok().map(Arc::new)
}

/// Counts the calls of `task` in a run.
struct TaskCounter {
    parent: DelegationParent,
}

#[async_trait]
impl CallWrapper for TaskCounter {
    async fn call(&self, inner: &dyn ToolHandler, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        if let Err((limit, per_conversation)) = self.parent.counts.start(&self.parent.settings) {
            let text = words(&self.parent.prompts, context! { outcome => "total", limit, per_conversation });
            return ToolOutcome::failed(FailureKind::Refused, text);
        }
        let step = Step { key: &cx.cx.key, kind: "tool", class: EffectClass::Composite, request: "" };
        let is_recorded = self.parent.journal.status(step) == StepStatus::Done;
        let outcome = inner.call(arguments, cx).await;
        if is_recorded {
            let used = usage_of(&outcome);
            self.parent.budget.spend(&used.usage);
            self.parent.budget.set_aside(reserve_of(&outcome));
            (self.parent.count_replayed)(used);
        }
        self.seal(&outcome, cx).await;
        outcome
    }
}

impl TaskCounter {
    /// Makes the report of a delegate durable, with all that it did: a delegate that ended is not run again after a crash.
    async fn seal(&self, outcome: &ToolOutcome, cx: &ToolCallContext) {
        let Some(status) = metadata_of(outcome).and_then(|meta| meta.get(key::STATUS)) else { return };
        let end = cx.cx.step("end").key;
        let step = Step { key: &end, kind: "task", class: EffectClass::Idempotent, request: "" };
        // A journal that failed stops the turn by itself.
        let _ = self.parent.journal.once(step, std::future::ready(status.clone())).await;
    }
}

/// Runs delegates.
struct TaskTool {
    info: ToolInfo,
    check: Option<Arc<ArgumentCheck>>,
    limit: Duration,
    parent: DelegationParent,
}

/// The arguments of `task`.
#[derive(Deserialize)]
struct TaskArguments {
    #[serde(default)]
    description: Arc<str>,
    prompt: Arc<str>,
    #[serde(default)]
    subagent_type: Arc<str>,
    #[serde(default)]
    max_turns: Option<u32>,
    #[serde(default)]
    output_schema: Option<Json>,
    #[serde(default)]
    acceptance_criteria: Vec<Json>,
    #[serde(default)]
    background: bool,
}

#[async_trait]
impl ToolHandler for TaskTool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.check.clone()
    }
    fn idle_timeout(&self) -> Option<Duration> {
        Some(self.limit)
    }
    fn total_timeout(&self) -> Option<Duration> {
        Some(self.limit)
    }
    async fn call(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let order = match self.order(arguments, cx) {
            Ok(order) => order,
            Err(outcome) => return *outcome,
        };
        match &self.parent.background {
            Some(background) if order.background => background::start(&self.parent, background, order, cx).await,
            _ => {
                let order = TaskOrder { background: false, ..order };
                executor::run(&self.parent, order, cx).await.outcome(&self.parent.prompts)
            }
        }
    }
}

impl TaskTool {
    /// The assignment of a call. `Err`: the outcome of a call that starts nothing.
    fn order(&self, arguments: Json, cx: &ToolCallContext) -> Result<TaskOrder, Box<ToolOutcome>> {
        let DelegationParent { prompts, settings, .. } = &self.parent;
        let refused = |variables| {
            let failure = ToolFailure::new(FailureKind::BadArguments, words(prompts, variables));
            Box::new(ToolOutcome::Failed(failure))
        };
        let arguments: TaskArguments = serde_json::from_value(arguments)
            .map_err(|error| Box::new(ToolOutcome::failed(FailureKind::BadArguments, error.to_string())))?;
        let id: Arc<str> = invoke::idempotency_key(&self.parent.conversation, self.parent.turn, &cx.cx)
            .get(..16)
            .unwrap_or_default()
            .into();
        if arguments.subagent_type.trim().is_empty() {
            return Err(refused(context! { outcome => "no_type", names => settings.names() }));
        }
        let Some(kind) = settings.types.get(arguments.subagent_type.trim()) else {
            let mut report = TaskReport::ended(id, ReportStatus::Failed, "".into());
            let name = label(&arguments.subagent_type);
            let text =
                words(prompts, context! { outcome => "unknown_type", name => &*name, names => settings.names() });
            report.error = Some(text.into());
            return Err(Box::new(report.outcome(prompts)));
        };
        if arguments.prompt.trim().is_empty() {
            return Err(refused(context! { outcome => "no_prompt" }));
        }
        let output_schema = arguments.output_schema.or_else(|| output_schema(kind));
        let schema = output_schema.clone().map(ResultSchema::compile).transpose();
        let schema = schema.map_err(|reason| refused(context! { outcome => "bad_schema", reason }))?;
        let criteria = Criterion::read_all(&arguments.acceptance_criteria);
        let criteria = criteria.map_err(|reason| refused(context! { outcome => "bad_criteria", reason }))?;
        let description = label(&arguments.description);
        Ok(TaskOrder {
            id,
            description: if description.is_empty() { label(&arguments.prompt) } else { description },
            prompt: arguments.prompt,
            // A call may only lower the limit.
            max_turns: arguments.max_turns.map_or(kind.max_turns, |turns| turns.min(kind.max_turns)).max(1),
            kind: kind.clone(),
            schema,
            criteria,
            output_schema,
            background: arguments.background,
        })
    }
}
