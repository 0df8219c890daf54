//! Runs delegates: queue, time limit, cancellation, and exactly one report for each.

use std::{
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use minijinja::context;
use segue_engine::{
    conversation::{AgentStatus, ModelUsage},
    project::{AdmissionDef, AgentSkills, SubagentType},
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    admission::{Admission, NoPlace, Place},
    criteria::{Checker, Criterion},
    events::{DiscardTaskEvents, TaskEvent, TaskEventSink, TokenCounts},
    loop_host::{
        BudgetCheck, CODE_BUDGET, CODE_INVALID_RESULT, CODE_NO_RESULT, DelegateHost, HostFailure, ResultSchema, profile,
    },
    parent::{DelegationParent, RunCounts},
    report::{ReportStatus, StopReason, TaskReport, words},
    task::{ToolTexts, with_delegation},
    types::{instructions, skills_of, tools_of},
    writes::{LostWrites, WriteTracker},
};
use crate::{
    clock::Deadline,
    context::{CallContext, WaitError},
    journal::EffectJournal,
    limits,
    llm::ChatMessage,
    prompts::PromptSet,
    react::{
        self, BroughtTools, Budget, CODE_DEADLINE, CODE_ITERATION_LIMIT, LoopEnd, LoopServices, LoopState, ReactLoop,
        SkillSession, ToolNarrowing,
    },
    tools::{Progress, ToolCallContext},
};

/// A delegate got no place in time, or too many wait.
const CODE_NO_PLACE: &str = "A0532";
/// A delegate ended unexpectedly: it panicked, or its process ended.
pub(super) const CODE_UNEXPECTED: &str = "A0533";
/// The time of a delegate is over.
const CODE_TIMEOUT: &str = "A0505";

/// The delegates of a process: admission, and those that run now, by id.
pub struct Delegations {
    pub(super) admission: Admission,
    sink: Arc<dyn TaskEventSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    children: BTreeMap<Arc<str>, Child>,
}

struct Child {
    summary: TaskSummary,
    cancel: Arc<CancellationToken>,
    is_cancelled_by_id: Arc<AtomicBool>,
}

/// A delegate that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskSummary {
    /// Its id.
    pub id: Arc<str>,
    /// Its conversation.
    pub conversation: Arc<str>,
    /// What it is about.
    pub description: Arc<str>,
    /// Its type.
    pub subagent_type: Arc<str>,
    /// `Pending` or `Running`.
    pub status: ReportStatus,
    /// Messages so far.
    pub messages: u64,
    /// Whether it works while its conversation goes on.
    pub background: bool,
}

impl fmt::Debug for Delegations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (running, waiting) = self.admission.counts();
        f.debug_struct("Delegations").field("running", &running).field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Default for Delegations {
    fn default() -> Self {
        Self::new(AdmissionDef::default(), Arc::new(DiscardTaskEvents))
    }
}

impl Delegations {
    /// With these limits; events go to `sink`.
    pub fn new(admission: AdmissionDef, sink: Arc<dyn TaskEventSink>) -> Self {
        Self { admission: Admission::new(admission), sink, state: Mutex::default() }
    }

    /// Cancels one delegate. It ends within two seconds, and its parent goes on. `false` if there is none with this id.
    pub fn cancel(&self, id: &str) -> bool {
        let state = self.lock();
        let Some(child) = state.children.get(id) else { return false };
        child.is_cancelled_by_id.store(true, Ordering::SeqCst);
        child.cancel.cancel();
        true
    }

    /// Cancels the delegates of a conversation that work in the background.
    pub(super) fn cancel_background(&self, conversation: &str) {
        for child in self.running().iter().filter(|child| child.background && *child.conversation == *conversation) {
            self.cancel(&child.id);
        }
    }

    /// The delegates that wait or work, by id.
    pub fn running(&self) -> Vec<TaskSummary> {
        self.lock().children.values().map(|child| child.summary.clone()).collect()
    }

    /// Delegates that have a place, and those that wait for one.
    pub fn counts(&self) -> (u32, usize) {
        self.admission.counts()
    }

    /// The longest wait for a place.
    pub(crate) fn queue_timeout(&self) -> Duration {
        self.admission.limits().queue_timeout
    }

    /// A delegate in the background that has not ended.
    pub(super) fn child(&self, conversation: &str, id: &str) -> Option<TaskSummary> {
        let state = self.lock();
        state.children.get(id).map(|child| child.summary.clone()).filter(|child| *child.conversation == *conversation)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An assignment.
pub(super) struct TaskOrder {
    pub(super) id: Arc<str>,
    pub(super) description: Arc<str>,
    pub(super) prompt: Arc<str>,
    pub(super) kind: SubagentType,
    pub(super) max_turns: u32,
    pub(super) schema: Option<ResultSchema>,
    pub(super) criteria: Vec<Criterion>,
    /// The schema before it was compiled.
    pub(super) output_schema: Option<Json>,
    /// Whether it is stored, and outlives the call.
    pub(super) background: bool,
}

impl TaskOrder {
    /// The assignment as the delegate reads it.
    fn assignment(&self, prompts: &PromptSet) -> Arc<str> {
        if self.criteria.is_empty() {
            return self.prompt.clone();
        }
        let criteria = Criterion::assignment(&self.criteria, prompts);
        format!("{}\n\n{criteria}", self.prompt).into()
    }
}

/// A registered delegate. It sends the events, and makes sure that there is one report: if it is dropped before the end, the delegate
/// counts as cancelled.
pub(super) struct TaskHandle {
    delegations: Arc<Delegations>,
    prompts: Arc<PromptSet>,
    id: Arc<str>,
    conversation: Arc<str>,
    model_name: Arc<str>,
    cancel: Arc<CancellationToken>,
    is_cancelled_by_id: Arc<AtomicBool>,
    is_ended: AtomicBool,
    journal: EffectJournal,
    progress: Mutex<TaskProgress>,
    /// What it has changed.
    pub(super) writes: WriteTracker,
    /// Where that goes if its report is lost.
    lost: LostWrites,
}

/// What a delegate did so far.
#[derive(Clone, Default)]
struct TaskProgress {
    messages: u64,
    usage: ModelUsage,
    last_text: Arc<str>,
}

impl TaskHandle {
    fn register(parent: &DelegationParent, order: &TaskOrder, call: &ToolCallContext) -> Self {
        let handle = Self {
            delegations: parent.delegations.clone(),
            prompts: parent.prompts.clone(),
            id: order.id.clone(),
            conversation: parent.conversation.clone(),
            model_name: parent.model_of(&order.kind.name).profile().model.as_str().into(),
            cancel: call.cx.cancel.child_token().into(),
            is_cancelled_by_id: Arc::default(),
            is_ended: AtomicBool::new(false),
            journal: parent.journal.clone(),
            progress: Mutex::default(),
            writes: WriteTracker::new(parent.journal.clone()),
            lost: parent.lost.clone(),
        };
        let summary = TaskSummary {
            id: order.id.clone(),
            conversation: parent.conversation.clone(),
            description: order.description.clone(),
            subagent_type: order.kind.name.clone(),
            status: ReportStatus::Pending,
            messages: 0,
            background: order.background,
        };
        let child =
            Child { summary, cancel: handle.cancel.clone(), is_cancelled_by_id: handle.is_cancelled_by_id.clone() };
        handle.delegations.lock().children.insert(order.id.clone(), child);
        handle.emit(&TaskEvent::TaskQueued {
            task_id: order.id.clone(),
            description: order.description.clone(),
            subagent_type: order.kind.name.clone(),
        });
        handle
    }

    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }
    fn emit(&self, event: &TaskEvent) {
        self.delegations.sink.emit(&self.conversation, event);
    }
    fn update(&self, change: impl FnOnce(&mut TaskSummary)) {
        if let Some(child) = self.delegations.lock().children.get_mut(&self.id) {
            change(&mut child.summary);
        }
    }
    fn progress(&self) -> MutexGuard<'_, TaskProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self, order: &TaskOrder) {
        self.update(|summary| summary.status = ReportStatus::Running);
        self.emit(&TaskEvent::TaskStarted {
            task_id: self.id.clone(),
            description: order.description.clone(),
            model_name: self.model_name.clone(),
        });
    }

    /// Takes a new message of the delegate.
    pub(super) fn message(&self, message: &ChatMessage, usage: &ModelUsage, last_text: &Arc<str>) {
        let index = {
            let mut progress = self.progress();
            progress.messages += 1;
            (progress.usage, progress.last_text) = (*usage, last_text.clone());
            progress.messages
        };
        self.update(|summary| summary.messages = index);
        self.emit(&TaskEvent::TaskRunning {
            task_id: self.id.clone(),
            message: serde_json::to_value(message.without_reasoning()).unwrap_or(Json::Null),
            message_index: index,
            total_messages: index,
            usage: TokenCounts::of(usage),
            model_name: self.model_name.clone(),
        });
    }

    /// A report with this status, and with what the delegate used so far.
    fn report(&self, status: ReportStatus, problem: Option<Problem>) -> TaskReport {
        let TaskProgress { usage, last_text, .. } = self.progress().clone();
        let mut report = TaskReport::ended(self.id.clone(), status, self.model_name.clone());
        report.usage = usage;
        report.writes = self.writes.all();
        report.partial = Some(last_text).filter(|text| !text.is_empty());
        if let Some(Problem { code, text, detail }) = problem {
            report.error = Some(truncate(&text, TextLimit::Chars(limits::DELEGATION_BRIEF), ELLIPSIS).into());
            report.code = code.map(Into::into);
            report.detail = detail.map(Into::into);
        }
        report
    }

    /// Ends the delegate with its report. Only the first report counts, and none if the delegate is continued later.
    fn end(&self, report: &TaskReport) {
        if self.is_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        self.delegations.lock().children.remove(&self.id);
        if !self.journal.is_stopped() {
            self.emit(&TaskEvent::ended(report));
        }
    }

    /// The report of a cancelled delegate: by its id, or with its parent.
    fn cancelled(&self) -> TaskReport {
        let by_id = self.is_cancelled_by_id.load(Ordering::SeqCst);
        let problem = (!by_id).then(|| self.problem(None, context! { outcome => "parent_cancelled" }));
        self.report(ReportStatus::Cancelled, problem)
    }
    fn problem(&self, code: Option<&'static str>, variables: minijinja::Value) -> Problem {
        Problem { code, text: words(&self.prompts, variables), detail: None }
    }
    fn failed(&self, code: &'static str, variables: minijinja::Value) -> TaskReport {
        self.report(ReportStatus::Failed, Some(self.problem(Some(code), variables)))
    }
    fn timed_out(&self, limit: Duration) -> TaskReport {
        let problem = self.problem(Some(CODE_TIMEOUT), context! { outcome => "timeout", seconds => limit.as_secs() });
        self.report(ReportStatus::TimedOut, Some(problem))
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        if !self.is_ended.load(Ordering::SeqCst) {
            let report = self.cancelled();
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).merge(&report.writes);
            self.end(&report);
        }
    }
}

/// Why a delegate did not complete.
struct Problem {
    code: Option<&'static str>,
    /// For models.
    text: String,
    /// For operators.
    detail: Option<String>,
}

/// Runs a delegate from the queue to its report.
///
/// *Cancellation*: if it is dropped, the delegate counts as cancelled. If its journal is stopped, the report is ignored: the delegate
/// is continued from its records.
pub(super) async fn run(parent: &DelegationParent, order: TaskOrder, call: &ToolCallContext) -> TaskReport {
    let handle = TaskHandle::register(parent, &order, call);
    let span = tracing::info_span!("task", id = &*order.id, subagent_type = &*order.kind.name);
    let report = Box::pin(perform(parent, order, &handle, call)).instrument(span).await;
    handle.end(&report);
    report
}

async fn perform(
    parent: &DelegationParent,
    mut order: TaskOrder,
    handle: &TaskHandle,
    call: &ToolCallContext,
) -> TaskReport {
    let cx = CallContext { cancel: handle.cancel.clone(), idle_timeout: None, ..call.cx.clone() };
    let _places = match places(parent, handle, &cx).await {
        Ok(places) => places,
        Err(report) => return *report,
    };
    let budget = parent.budget.slice(order.kind.token_budget);
    if BudgetCheck::recorded(&parent.budget, parent, &cx).await.is_spent {
        let mut report = handle.failed(CODE_BUDGET, context! { outcome => "budget" });
        report.stop_reason = Some(StopReason::TokenCapped);
        return report;
    }
    handle.started(&order);
    call.report(Progress::new(0.0).message(&*order.description));
    let left = cx.remaining();
    // The parent needs time to go on.
    let limit = order.kind.timeout.min(left.saturating_sub(limits::DELEGATION_RESERVE.min(left / 2)));
    let cx = cx.with_timeout(limit);

    let prompts = &*parent.prompts;
    let llm = parent.model_of(&order.kind.name);
    let skills = skills_of(&order.kind, parent);
    let narrowing = ToolNarrowing::default();
    let mut tools = tools_of(&order.kind, skills.as_deref(), parent);
    if parent.depth > 1 && !order.kind.disallowed_tools.iter().any(|tool| **tool == *super::TASK) {
        tools = with_delegation(
            tools.clone(),
            nested(parent, handle, &llm, (skills.clone(), narrowing.clone()), tools, &budget),
        );
    }
    let schema = order.schema.take();
    let system = instructions(&order.kind, schema.is_some(), &tools, prompts).and_then(|system| {
        let skills = skills.map(|skills| SkillSession::new(skills, narrowing, BroughtTools::new(), prompts));
        Ok((system, skills.transpose()?))
    });
    let (system, skills) = match system {
        Ok(system) => system,
        Err(reason) => {
            let problem = handle.problem(Some(react::CODE_PROMPT), context! { outcome => "prompt" });
            return handle.report(ReportStatus::Failed, Some(Problem { detail: Some(reason), ..problem }));
        }
    };
    let own = tools.infos().map(react::tool_spec);
    let submit =
        schema.as_ref().map(|schema| schema.tool(&ToolTexts::of(prompts, "", false).description("submit_result")));
    let offered = own.chain(submit).collect();
    let profile = profile(parent, order.max_turns, schema.is_some());
    let mut host = DelegateHost {
        parent,
        prompts,
        kind: &order.kind,
        llm: &*llm,
        tools: &tools,
        call,
        task: handle,
        max_turns: order.max_turns,
        head: [ChatMessage::system(system), ChatMessage::user(order.assignment(prompts))],
        schema,
        budget,
        checked: BudgetCheck::default(),
        responses: 0,
        usage: ModelUsage::default(),
        last_text: "".into(),
        submitted: None,
        stop_reason: None,
        failure: None,
        invalid_results: 0,
        is_empty_corrected: false,
    };
    let mut run = ReactLoop {
        profile: &profile,
        prompts,
        offered,
        tools: &tools,
        host: &mut host,
        state: LoopState::default(),
        services: LoopServices { skills, ..LoopServices::default() },
    };
    let driven = drive(run.run(&cx), &cx).await;
    let turns = host.responses;
    let mut report = match driven {
        Driven::Stopped(WaitError::Cancelled) => handle.cancelled(),
        Driven::Stopped(WaitError::DeadlinePassed) => handle.timed_out(limit),
        Driven::Panicked => handle.failed(CODE_UNEXPECTED, context! { outcome => "panic" }),
        Driven::Ended(end) => ended(end, host, handle, limit),
    };
    report.turns = turns;
    if report.status == ReportStatus::Completed {
        let checker = Checker { parent, tools: &tools, call, cx: &cx, id: &order.id };
        report.criteria = checker.check(&order.criteria).await;
    }
    report
}

/// The parent of the delegates of a delegate.
fn nested(
    parent: &DelegationParent,
    handle: &TaskHandle,
    llm: &Arc<dyn crate::llm::Llm>,
    (skills, narrowing): (Option<Arc<AgentSkills>>, ToolNarrowing),
    tools: crate::tools::tool_set::ToolSet,
    budget: &Arc<Budget>,
) -> DelegationParent {
    DelegationParent {
        llm: llm.clone(),
        tools,
        skills,
        narrowing,
        budget: budget.clone(),
        counts: Arc::new(RunCounts::new(&parent.settings, 0)),
        background: None,
        lost: handle.writes.lost(),
        depth: parent.depth - 1,
        ..parent.clone()
    }
}

/// Waits until fewer than `max_concurrent` delegates of the run work, then for a place in the process. A delegate of a delegate works in
/// the place of its parent, which waits for it: it would otherwise wait for itself.
async fn places(
    parent: &DelegationParent,
    handle: &TaskHandle,
    cx: &CallContext,
) -> Result<(OwnedSemaphorePermit, Option<Place>), Box<TaskReport>> {
    let stopped = |error: WaitError| match error {
        WaitError::Cancelled => handle.cancelled(),
        WaitError::DeadlinePassed => handle.timed_out(Duration::ZERO),
    };
    let permit = match cx.wait(parent.counts.gate.clone().acquire_owned()).await {
        Ok(Ok(permit)) => permit,
        Ok(Err(_)) => return Err(Box::new(handle.cancelled())),
        Err(error) => return Err(Box::new(stopped(error))),
    };
    if parent.depth < parent.settings.depth {
        return Ok((permit, None));
    }
    let queue = parent.delegations.queue_timeout();
    match parent.delegations.admission.place(&parent.conversation, cx).await {
        Ok(place) => Ok((permit, Some(place))),
        Err(NoPlace::Stopped(error)) => Err(Box::new(stopped(error))),
        Err(NoPlace::QueueFull) => Err(Box::new(handle.failed(CODE_NO_PLACE, context! { outcome => "queue_full" }))),
        Err(NoPlace::QueueTimeout) => {
            let variables = context! { outcome => "queue_timeout", seconds => queue.as_secs() };
            Err(Box::new(handle.failed(CODE_NO_PLACE, variables)))
        }
    }
}

/// How a loop ended, or that it was stopped from outside.
enum Driven {
    Ended(LoopEnd),
    Panicked,
    Stopped(WaitError),
}

/// Waits for a loop until its deadline or its cancellation. Then it may end by itself within [`limits::DELEGATION_GRACE`], so that running
/// effects are recorded; what it returns by then is ignored.
async fn drive(work: impl Future<Output = LoopEnd>, cx: &CallContext) -> Driven {
    let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
    let stopped = tokio::select! {
        biased;
        () = cx.cancel.cancelled() => WaitError::Cancelled,
        ended = &mut work => return ended.map_or(Driven::Panicked, Driven::Ended),
        () = cx.clock.sleep(cx.deadline) => WaitError::DeadlinePassed,
    };
    cx.cancel.cancel();
    let until = Deadline(cx.clock.elapsed().saturating_add(limits::DELEGATION_GRACE));
    tokio::select! {
        biased;
        _ = &mut work => {}
        () = cx.clock.sleep(until) => {}
    }
    Driven::Stopped(stopped)
}

/// The report of a loop that ended by itself.
fn ended(end: LoopEnd, mut host: DelegateHost<'_>, handle: &TaskHandle, limit: Duration) -> TaskReport {
    host.stop_reason = host.stop_reason.or(end.cap.map(StopReason::from));
    let failed = |code, variables| {
        let mut report = handle.failed(code, variables);
        report.stop_reason = host.stop_reason;
        report
    };
    match &host.failure {
        Some(HostFailure::Empty) => return failed(CODE_NO_RESULT, context! { outcome => "empty" }),
        Some(HostFailure::Budget) => {
            let used = host.budget.spent();
            let own = host.kind.token_budget.tokens.filter(|tokens| used.input.saturating_add(used.output) >= *tokens);
            return match own {
                Some(tokens) => failed(CODE_BUDGET, context! { outcome => "max_tokens", tokens }),
                None => failed(CODE_BUDGET, context! { outcome => "budget" }),
            };
        }
        Some(HostFailure::InvalidResult(problems)) => {
            return failed(CODE_INVALID_RESULT, context! { outcome => "invalid", problems => &**problems });
        }
        None => {}
    }
    let (code, reason) = match end.status {
        AgentStatus::Finished | AgentStatus::AwaitingUser | AgentStatus::Yielded => {
            let text = match end.last {
                Some((streamed, _)) => streamed.text,
                // Its budget is spent.
                None => host.last_text.clone(),
            };
            return completed(text, host, handle);
        }
        AgentStatus::Cancelled { .. } => return handle.cancelled(),
        AgentStatus::Failed { code, reason } => (code, reason),
    };
    if code == CODE_DEADLINE {
        return handle.timed_out(limit);
    }
    if code == CODE_ITERATION_LIMIT {
        let turns = host.max_turns;
        let mut report = match (host.schema.is_some(), host.last_text.is_empty()) {
            (false, false) => completed(host.last_text.clone(), host, handle),
            _ => handle.failed(react::CODE_ITERATION_LIMIT, context! { outcome => "max_turns", turns }),
        };
        report.stop_reason = Some(StopReason::TurnCapped);
        return report;
    }
    // The reason may contain addresses: only that of tools is for models.
    let (code, text): (&'static str, _) = match code.as_str() {
        "A0502" => ("A0502", reason.clone()),
        "A0524" => ("A0524", words(&handle.prompts, context! { outcome => "calls" })),
        react::CODE_REPEATED_CALLS => {
            (react::CODE_REPEATED_CALLS, words(&handle.prompts, context! { outcome => "loop" }))
        }
        "A0525" => ("A0525", words(&handle.prompts, context! { outcome => "no_result" })),
        _ => ("A0503", words(&handle.prompts, context! { outcome => "model" })),
    };
    let mut report =
        handle.report(ReportStatus::Failed, Some(Problem { code: Some(code), text, detail: Some(reason) }));
    report.stop_reason = host.stop_reason;
    report
}

fn completed(text: Arc<str>, host: DelegateHost<'_>, handle: &TaskHandle) -> TaskReport {
    let mut report = handle.report(ReportStatus::Completed, None);
    report.partial = None;
    report.stop_reason = host.stop_reason;
    report.data = host.submitted;
    report.result = Some(report.data.as_ref().map_or(text, |data| data.to_string().into()));
    report
}
