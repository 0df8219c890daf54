//! Delegates in the background. Each is a job in the run store: a run with one unit. It outlives the turn and the process that started it:
//! another process continues it from its journal. Its report is stored once, with the end of the run, and stays until the conversation is
//! erased.

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use minijinja::context;
use segue_engine::{
    ids::{ConversationId, RunId},
    project::{AgentSkills, BudgetLimits},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    criteria::Criterion,
    events::TaskEvent,
    executor::{self, CODE_UNEXPECTED, Delegations, TaskOrder},
    ledger::SettledTask,
    loop_host::ResultSchema,
    parent::{DelegationParent, RunCounts},
    report::{ReportStatus, TaskReport, words},
    types::DelegationSettings,
    writes::LostWrites,
};
use crate::{
    clock::Clock,
    context::{CallContext, StepKey},
    failpoint,
    journal::{
        EffectJournal, Halt, JobClaim, JobJournal, JournaledModel, JournaledTool, LEASE, ListedTool, NoEvents,
        NoObserver, TurnClock, ended_owners, hold,
    },
    limits,
    llm::Llm,
    prompts::PromptSet,
    react::{Budget, ToolNarrowing},
    store::{
        JournalRecord,
        runs::{
            ClaimRequest, ClaimedUnit, NewRun, NewUnit, RunFilter, RunStatus, RunStore, RunStoreError, RunSummary,
            Signal, UnitKey, UnitTransition,
        },
    },
    tools::{ToolCallContext, ToolCaller, ToolHandler, ToolInfo, tool_set::ToolSet},
};

/// The name of the runs of delegates in a run store: that of a [job](NewRun::JOB).
const JOB: &str = "@task";
/// The only unit of such a run.
const UNIT: &str = "task";
/// The id of such a run is this with the id of the delegate.
const RUN_PREFIX: &str = "task-";
/// The kind of the record of a process that stopped in order and released the unit.
const RELEASED: &str = "released";
/// How long the ends of other processes and their leases are waited for before the store is read again.
const POLL: Duration = Duration::from_secs(5);

/// What a delegate works with; nothing of it is recorded.
#[derive(Clone)]
pub(crate) struct DelegateParts {
    pub(crate) settings: Arc<DelegationSettings>,
    pub(crate) llm: Arc<dyn Llm>,
    /// The models of types that have one of their own.
    pub(crate) models: Arc<HashMap<Arc<str>, Arc<dyn Llm>>>,
    pub(crate) tools: ToolSet,
    /// The time limit of one tool call, if the agent sets one.
    pub(crate) tool_timeout: Option<Duration>,
    pub(crate) fails_on_tool_error: bool,
    /// The skills of the agent.
    pub(crate) skills: Option<Arc<AgentSkills>>,
    /// The constants of `_meta` for MCP calls by server name. They may contain secrets.
    pub(crate) mcp_meta: Map<String, Json>,
}

/// Opens what the delegates of an agent work with, in a process that did not start them.
pub(crate) trait OpenParts: Send + Sync {
    /// `None`: the project has no such agent, or it may start no delegates.
    fn open<'a>(&'a self, agent: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Option<DelegateParts>>;
}

/// An assignment as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredOrder {
    pub(super) id: Arc<str>,
    /// The agent that started it.
    pub(super) agent: Arc<str>,
    pub(super) conversation: Arc<str>,
    pub(super) turn: u64,
    pub(super) seed: u64,
    pub(super) description: Arc<str>,
    pub(super) prompt: Arc<str>,
    pub(super) subagent_type: Arc<str>,
    pub(super) max_turns: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) criteria: Vec<Criterion>,
    /// The tools of the agent that it may pass on.
    pub(super) tools: Vec<ListedTool>,
    /// What it may use, if the budget of the agent is limited.
    #[serde(default)]
    pub(super) reserve: BudgetLimits,
    pub(super) metadata: Map<String, Json>,
    /// `_meta` for MCP calls by server name, without constants of the project.
    pub(super) mcp_meta: Map<String, Json>,
    /// The flow that called the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flow: Option<Arc<str>>,
}

/// `_meta` by server without what is constant.
pub(super) fn meta_without(meta: &Map<String, Json>, constants: &Map<String, Json>) -> Map<String, Json> {
    let of_server = |(server, values): (&String, &Json)| {
        let mut values = values.as_object()?.clone();
        values.retain(|key, value| constants.get(server).and_then(|own| own.get(key)) != Some(value));
        (!values.is_empty()).then(|| (server.clone(), Json::Object(values)))
    };
    meta.iter().filter_map(of_server).collect()
}

/// `_meta` by server with constants; other values come first.
pub(super) fn meta_with(mut meta: Map<String, Json>, constants: &Map<String, Json>) -> Map<String, Json> {
    for (server, own) in constants {
        let values = meta.entry(server.clone()).or_insert_with(|| Json::Object(Map::new()));
        if let (Some(values), Some(own)) = (values.as_object_mut(), own.as_object()) {
            for (key, value) in own {
                values.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    meta
}

/// What is known about a delegate in the background.
pub(super) enum Lookup {
    Unknown,
    /// It has not ended.
    Open,
    Ended(Box<TaskReport>),
}

/// The delegates in the background of a process.
pub(crate) struct BackgroundTasks {
    pub(crate) runs: Arc<dyn RunStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The name of this process in leases.
    pub(crate) owner: Arc<str>,
    /// The hash of version and project.
    pub(crate) build: u64,
    pub(crate) delegations: Arc<Delegations>,
    pub(crate) prompts: Arc<PromptSet>,
    pub(crate) parts: Arc<dyn OpenParts>,
    pub(crate) state: BackgroundState,
}

/// What changes while delegates work.
#[derive(Default)]
pub(crate) struct BackgroundState {
    /// The runs that this process works on, or waits for.
    driven: Mutex<HashSet<RunId>>,
    /// Notified when a report was stored.
    ended: Notify,
    /// Cancelled when the process stops: then others continue.
    closing: CancellationToken,
    tracker: TaskTracker,
}

/// A run that this process works on, until it is dropped.
struct Driven<'a> {
    tasks: &'a BackgroundTasks,
    run: &'a RunId,
}

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        self.tasks.state.driven.lock().unwrap_or_else(PoisonError::into_inner).remove(self.run);
    }
}

fn run_id(id: &str) -> RunId {
    RunId::new(format!("{RUN_PREFIX}{id}"))
}

/// The id of the delegate of a run.
fn task_id(run: &RunId) -> Arc<str> {
    run.as_str().strip_prefix(RUN_PREFIX).unwrap_or(run.as_str()).into()
}

impl BackgroundTasks {
    /// Stores a delegate and begins to work on it. If it is stored already, it is only worked on.
    pub(super) async fn start(
        self: &Arc<Self>,
        order: &StoredOrder,
        parts: DelegateParts,
    ) -> Result<(), RunStoreError> {
        let now = self.clock.now();
        let input: Arc<str> = serde_json::to_string(order).unwrap_or_default().into();
        let queued = TaskEvent::TaskQueued {
            task_id: order.id.clone(),
            description: order.description.clone(),
            subagent_type: order.subagent_type.clone(),
        };
        let run = NewRun {
            conversation: Some(ConversationId::from(&*order.conversation)),
            inputs: json!({"agent": order.agent, "description": order.description}).to_string().into(),
            events: vec![event_text(&queued)],
            units: vec![NewUnit::new(UNIT, input)],
            ..NewRun::new(run_id(&order.id), JOB, now)
        };
        self.runs.start_run(run).await?;
        failpoint::hit("task_started");
        self.spawn(run_id(&order.id), Some(parts));
        Ok(())
    }

    /// Continues the delegates that have not ended, of one conversation or of all, at most [`limits::RUNS_LISTED`]; returns how many. Others
    /// continue when their conversation asks for them.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        conversation: Option<&ConversationId>,
    ) -> Result<usize, RunStoreError> {
        let mut filter =
            RunFilter::default().mission(JOB).statuses([RunStatus::Queued, RunStatus::Running, RunStatus::Waiting]);
        filter.conversation = conversation.cloned();
        let open = self.runs.runs(filter, limits::RUNS_LISTED).await?;
        let count = open.len();
        open.into_iter().for_each(|run| self.spawn(run.id, None));
        Ok(count)
    }

    /// Stops working: the units are released, so that another process continues them at once.
    pub(crate) async fn close(&self, cx: &CallContext) {
        self.state.closing.cancel();
        self.state.tracker.close();
        let _ = cx.wait(self.state.tracker.wait()).await;
    }

    fn spawn(self: &Arc<Self>, run: RunId, parts: Option<DelegateParts>) {
        let is_new = self.state.driven.lock().unwrap_or_else(PoisonError::into_inner).insert(run.clone());
        if !is_new || self.state.closing.is_cancelled() {
            return;
        }
        let this = self.clone();
        self.state.tracker.spawn(async move {
            let driven = Driven { tasks: &this, run: &run };
            this.drive(driven.run, parts).await;
        });
    }

    /// Works on a run until it has ended, here or in another process, or is erased.
    async fn drive(&self, run: &RunId, mut parts: Option<DelegateParts>) {
        let failed = |error: RunStoreError| {
            tracing::warn!(code = error.code(), "{run}: a sub-agent in the background cannot be continued: {error}");
        };
        while !self.state.closing.is_cancelled() {
            match self.claim(run).await {
                Ok(Some(claimed)) => self.work(claimed, parts.take()).await,
                Ok(None) => {}
                Err(error) => failed(error),
            }
            match self.runs.summary(run).await {
                Ok(Some(summary)) if !summary.status.is_ended() => {}
                Ok(_) => break,
                Err(error) => failed(error),
            }
            tokio::select! {
                () = self.clock.sleep(self.clock.deadline(POLL)) => {}
                () = self.state.closing.cancelled() => {}
            }
        }
        self.state.ended.notify_waiters();
    }

    async fn claim(&self, run: &RunId) -> Result<Option<ClaimedUnit>, RunStoreError> {
        let units = self.runs.units(run).await?;
        let request = ClaimRequest {
            run: Some(run.clone()),
            owner: self.owner.clone(),
            now: self.clock.now(),
            lease: LEASE,
            limit: 1,
            gone: ended_owners(&units),
        };
        Ok(self.runs.claim(request).await?.pop())
    }

    /// Works on a claimed unit to its end, unless the process stops or another one has the unit.
    async fn work(&self, claimed: ClaimedUnit, parts: Option<DelegateParts>) {
        let (key, epoch) = (claimed.key.clone(), claimed.epoch);
        let stop = self.state.closing.child_token();
        let content = claimed.content;
        let records = content.as_ref().map(|content| content.records.clone()).unwrap_or_default();
        let released = records.iter().filter(|record| &*record.kind == RELEASED).count();
        let claim = JobClaim {
            store: self.runs.clone(),
            key: key.clone(),
            epoch,
            clock: self.clock.clone(),
            stop: stop.clone(),
        };
        let journal = Arc::new(JobJournal::new(claim, self.build, Arc::new(NoEvents), records));
        let content = content.map_err(|error| error.to_string());
        let order = content.and_then(|content| {
            let order: Result<StoredOrder, _> = serde_json::from_str(&content.input);
            order.map(|order| (order, content.signals.stop.is_some())).map_err(|error| error.to_string())
        });
        let (order, is_stopped) = match order {
            Ok(order) => order,
            Err(reason) => return self.end(&journal, self.lost(task_id(&key.run), reason)).await,
        };
        if is_stopped {
            return self.end(&journal, TaskReport::ended(order.id, ReportStatus::Cancelled, "".into())).await;
        }
        // Those that gave it up in order did not fail by it.
        let failed = epoch.saturating_sub(1).saturating_sub(u64::try_from(released).unwrap_or(u64::MAX));
        if failed >= limits::DELEGATION_CLAIMS {
            let reason = format!("{failed} processes ended while they worked on it");
            return self.end(&journal, self.lost(order.id, reason)).await;
        }
        let id = order.id.clone();
        let stopped = |request: Option<_>| match request {
            Some(_) => {
                self.delegations.cancel(&id);
            }
            None => stop.cancel(),
        };
        let work = AssertUnwindSafe(self.perform(order, parts, &journal, &stop)).catch_unwind();
        let report = hold(&*self.runs, &key, epoch, &*self.clock, stopped, work).await;
        match journal.halt() {
            // Another process has it, or it was erased.
            Some(Halt::Store(RunStoreError::Fenced { .. })) => {}
            // It is claimed again, at once if the store answers now.
            Some(Halt::Store(error)) => {
                tracing::warn!(code = error.code(), "a sub-agent in the background stops: {error}");
                let _ = self.runs.release(&key, epoch, self.clock.now()).await;
            }
            Some(Halt::Changed(error)) => self.end(&journal, self.lost(id, error.to_string())).await,
            Some(Halt::Unreadable(reason)) => self.end(&journal, self.lost(id, reason.to_string())).await,
            // The process stops: what is recorded stays, and another one continues.
            None if stop.is_cancelled() => {
                let released = journal.record(&StepKey::new(format!("released.{epoch}")), RELEASED);
                journal.add_pending(JournalRecord { outcome: Some("true".into()), ..released });
                if journal.commit(|_| {}).await.is_ok() {
                    let _ = self.runs.release(&key, epoch, self.clock.now()).await;
                }
            }
            None => {
                let report = report.unwrap_or_else(|_| self.lost(id, "it panicked".into()));
                self.end(&journal, report).await;
            }
        }
    }

    /// Runs a delegate from its records. If its journal is stopped, the report is ignored.
    async fn perform(
        &self,
        order: StoredOrder,
        parts: Option<DelegateParts>,
        journal: &Arc<JobJournal>,
        stop: &CancellationToken,
    ) -> TaskReport {
        let clock = Arc::new(TurnClock::new(self.clock.clone(), self.clock.now()));
        let effects = EffectJournal::new(journal.clone(), clock, Arc::new(NoObserver));
        let cx = CallContext {
            cancel: Arc::new(stop.clone()),
            key: StepKey::new(order.id.to_string()),
            seed: order.seed,
            ..CallContext::new(self.clock.clone(), limits::DELEGATION_SETUP)
        };
        let parts = match parts {
            Some(parts) => Some(parts),
            None => self.parts.open(&order.agent, &cx).await,
        };
        let kind = parts.as_ref().and_then(|parts| parts.settings.types.get(&order.subagent_type));
        let (Some(parts), Some(kind)) = (&parts, kind) else {
            let reason =
                format!("the project has no agent {} with sub-agents of type {}", order.agent, order.subagent_type);
            return self.lost(order.id, reason);
        };
        let schema = order.output_schema.clone().and_then(|schema| ResultSchema::compile(schema).ok());
        let journaled =
            |model: &Arc<dyn Llm>| Arc::new(JournaledModel::new(model.clone(), effects.clone())) as Arc<dyn Llm>;
        let tools = order.tools.iter().map(|listed| {
            let spec = ToolInfo::from(listed);
            let inner = parts.tools.get(&spec.name).map(|entry| parts.tools.tool(entry));
            Arc::new(JournaledTool { spec, inner, journal: effects.clone() }) as Arc<dyn ToolHandler>
        });
        let parent = DelegationParent {
            delegations: self.delegations.clone(),
            settings: parts.settings.clone(),
            prompts: self.prompts.clone(),
            conversation: order.conversation.clone(),
            turn: order.turn,
            llm: journaled(&parts.llm),
            models: Arc::new(parts.models.iter().map(|(kind, model)| (kind.clone(), journaled(model))).collect()),
            tools: tools.fold(ToolSet::builder(), |set, tool| set.tool(tool)).build(),
            tool_timeout: parts.tool_timeout,
            fails_on_tool_error: parts.fails_on_tool_error,
            mcp_meta: Arc::new(meta_with(order.mcp_meta, &parts.mcp_meta)),
            skills: parts.skills.clone(),
            // The stored tools are those that were left.
            narrowing: ToolNarrowing::default(),
            journal: effects,
            count_replayed: Arc::new(|_| {}),
            background: None,
            budget: Budget::new(order.reserve),
            shared: None,
            counts: Arc::new(RunCounts::new(&parts.settings, 0)),
            lost: LostWrites::default(),
            // Its delegates would have to be stored too.
            depth: 1,
        };
        let limit = parts.settings.call_limit(self.delegations.queue_timeout());
        let cx = CallContext { deadline: self.clock.deadline(limit), ..cx };
        let mut caller = ToolCaller::new(order.conversation.clone()).agent(order.agent);
        caller.flow = order.flow;
        let call = ToolCallContext::new(cx, order.conversation, "")
            .with_caller(caller)
            .with_metadata(Arc::new(order.metadata));
        let order = TaskOrder {
            id: order.id,
            description: order.description,
            prompt: order.prompt,
            kind: kind.clone(),
            max_turns: order.max_turns,
            schema,
            criteria: order.criteria,
            output_schema: None,
            background: true,
        };
        executor::run(&parent, order, &call).await
    }

    fn lost(&self, id: Arc<str>, reason: String) -> TaskReport {
        let mut report = TaskReport::ended(id, ReportStatus::Failed, "".into());
        report.error = Some(words(&self.prompts, context! { outcome => "lost" }).into());
        report.code = Some(CODE_UNEXPECTED.into());
        report.detail = Some(reason.into());
        report
    }

    /// Stores a report with the end of the run, once.
    async fn end(&self, journal: &JobJournal, report: TaskReport) {
        let (transition, status) = match report.status {
            ReportStatus::Completed => (UnitTransition::Completed, RunStatus::Completed),
            ReportStatus::Cancelled => (UnitTransition::Cancelled, RunStatus::Cancelled),
            _ => (UnitTransition::Failed, RunStatus::Failed),
        };
        failpoint::hit("task_ends");
        let stored = journal.commit(|batch| {
            batch.events.push(event_text(&TaskEvent::ended(&report)));
            batch.checkpoint = serde_json::to_string(&report).ok().map(Into::into);
            batch.transition = transition;
            batch.run_status = Some(status);
        });
        match stored.await {
            Ok(()) => {
                failpoint::hit("task_ended");
                self.state.ended.notify_waiters();
            }
            // It was erased, or another process has it.
            Err(RunStoreError::Fenced { .. }) => {}
            Err(error) => {
                tracing::warn!(
                    code = error.code(),
                    task = &*report.id,
                    "the report of a sub-agent is not stored: {error}"
                );
            }
        }
    }

    /// What is stored about a delegate of a conversation. One that has not ended is worked on as soon as no other process does.
    pub(super) async fn look_up(self: &Arc<Self>, conversation: &str, id: &str) -> Result<Lookup, RunStoreError> {
        let run = run_id(id);
        let is_own = |run: &RunSummary| {
            *run.mission == *JOB && run.conversation.as_ref().is_some_and(|of| of.as_str() == conversation)
        };
        let Some(summary) = self.runs.summary(&run).await?.filter(is_own) else { return Ok(Lookup::Unknown) };
        if !summary.status.is_ended() {
            self.spawn(run, None);
            return Ok(Lookup::Open);
        }
        let content = self.runs.unit(&UnitKey::new(run, UNIT)).await?;
        let checkpoint = content.and_then(|content| content.checkpoint);
        let report = checkpoint.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Lookup::Ended(report.unwrap_or_else(|| {
            let status = match summary.status {
                RunStatus::Cancelled | RunStatus::Stopped => ReportStatus::Cancelled,
                _ => ReportStatus::Failed,
            };
            Box::new(TaskReport::ended(id.into(), status, "".into()))
        })))
    }

    /// Waits for the end of a delegate, as long as the call and the process last.
    pub(super) async fn wait(
        self: &Arc<Self>,
        conversation: &str,
        id: &str,
        cx: &CallContext,
    ) -> Result<Lookup, RunStoreError> {
        loop {
            let mut ended = std::pin::pin!(self.state.ended.notified());
            ended.as_mut().enable();
            let found = self.look_up(conversation, id).await?;
            if !matches!(found, Lookup::Open) || self.state.closing.is_cancelled() {
                return Ok(found);
            }
            let next = async {
                tokio::select! {
                    () = ended => {}
                    () = self.state.closing.cancelled() => {}
                    // Another process may work on it.
                    () = self.clock.sleep(self.clock.deadline(POLL)) => {}
                }
            };
            if cx.wait(next).await.is_err() {
                return Ok(found);
            }
        }
    }

    /// How delegates ended that a ledger shows as working. Those that still work are left out.
    pub(crate) async fn settled(self: &Arc<Self>, conversation: &str, ids: &[Arc<str>]) -> Vec<SettledTask> {
        let mut settled = Vec::new();
        for id in ids {
            match self.look_up(conversation, id).await {
                Ok(Lookup::Open) => {}
                Ok(Lookup::Unknown) => settled.push(SettledTask { id: id.clone(), meta: None }),
                Ok(Lookup::Ended(report)) => {
                    settled.push(SettledTask { id: id.clone(), meta: Some(report.metadata()) });
                }
                Err(error) => tracing::warn!(code = error.code(), task = &**id, "a sub-agent cannot be read: {error}"),
            }
        }
        settled
    }

    /// Ends the work on delegates of a conversation whose runs are erased.
    pub(crate) fn forget(&self, conversation: &str) {
        self.delegations.cancel_background(conversation);
    }

    /// Asks a delegate to end. Another process that works on it learns of it when it renews its lease.
    pub(super) async fn cancel(&self, id: &str) -> Result<(), RunStoreError> {
        self.runs.signal(&run_id(id), Signal::Cancel, self.clock.now()).await?;
        self.delegations.cancel(id);
        Ok(())
    }
}

fn event_text(event: &TaskEvent) -> Arc<str> {
    serde_json::to_string(event).unwrap_or_else(|_| "null".into()).into()
}
