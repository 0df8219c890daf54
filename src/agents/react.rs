//! The one loop: ask the model, run what it calls, ask again, until the profile says that it is enough.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::conversation::{AgentOutcome, AgentStatus, Event};

use super::{
    AgentRequest,
    claims::Claims,
    completion::Ledger,
    filler::Fillers,
    gate::Gate,
    hooked::{self, Hooked},
    hooks::AgentHooks,
    offer::Asking,
    profile::Profile,
    prompt_cache::PromptCache,
    run::Run,
    session::Session,
    slots::RunSlots,
    step::{self, Step},
};
use crate::{context::CallContext, conversation::ReplySink, prompts::PromptSet};

/// An agent that reasons and acts in turn, open or task by the step that calls it.
pub(crate) struct ReactAgent {
    prompts: Arc<PromptSet>,
    cache: PromptCache,
}

impl ReactAgent {
    /// An agent that speaks to its model by these prompts.
    pub(crate) fn new(prompts: Arc<PromptSet>) -> Self {
        Self { prompts, cache: PromptCache::default() }
    }

    /// Works on one user message. Never fails by `Err`: the outcome says how it ended. Boxed: the future is large.
    ///
    /// *Cancellation*: when `cx` is cancelled or its deadline passes, it ends at the next safe point with what has happened.
    pub(crate) fn run<'a>(
        &'a self,
        task: AgentRequest<'a>,
        out: &'a mut dyn ReplySink,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, AgentOutcome> {
        Box::pin(async move {
            let cx = match task.definition.timeout {
                Some(limit) => cx.with_timeout(limit),
                None => cx.clone(),
            };
            self.hooked(&task, out, &cx).await
        })
    }

    /// One run, with hooks where somebody registered any. That is rare, so what they need stands in a box of its own.
    async fn hooked(&self, task: &AgentRequest<'_>, out: &mut dyn ReplySink, cx: &CallContext) -> AgentOutcome {
        let Some(hooks) = &task.hooks else { return self.work(task, None, Vec::new(), out, cx).await };
        Box::pin(self.run_hooked(task, &**hooks, out, cx)).await
    }

    async fn run_hooked(
        &self,
        task: &AgentRequest<'_>,
        hooks: &dyn AgentHooks,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> AgentOutcome {
        let mut ledger = Ledger::new(task);
        let opened = Hooked::open(hooks, task, &mut ledger, out, cx).await;
        let said = ledger.into_events();
        let hooked = match opened {
            Ok(hooked) => hooked,
            Err(error) => {
                let nothing = AgentOutcome { events: said, ..nothing(task, AgentStatus::Finished) };
                return hooked::failed(nothing, &error, cx);
            }
        };
        let call = hooked.call(task);
        let task = hooked.task(task, &call);
        let outcome = self.work(&task, Some(Box::new(hooked)), said, out, cx).await;
        hooked::close(hooks, &task, false, outcome, out, cx).await
    }

    /// The loop. Each pass is one model call; what it decides is in `step`.
    async fn work(
        &self,
        task: &AgentRequest<'_>,
        hooked: Option<Box<Hooked<'_>>>,
        said: Vec<Event>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> AgentOutcome {
        let (prompts, profile) = (&*self.prompts, Profile::of(task));
        let slots = RunSlots::new(task.project, task.conversation).seen_as(task.slots.clone());
        let mut ledger = Ledger::after(task, said);
        let mut asking = Asking { task, hooked: hooked.as_deref(), ledger: &mut ledger, out: &mut *out, cx };
        let offered = match asking.tools(&profile, &slots, prompts).await {
            Ok(offered) => offered,
            Err(error) => return broken(task, ledger, step::HOOK, error.to_string(), cx),
        };
        let narrowed = hooked.is_some().then(|| AgentRequest {
            tools: task.tools.clone().only(|name| offered.iter().any(|tool| *tool.name == *name)),
            ..task.clone()
        });
        let task = narrowed.as_ref().unwrap_or(task);
        let mut session = match Session::open(task, &profile, &slots, prompts, &self.cache) {
            Ok(session) => session,
            Err(reason) => return broken(task, ledger, step::PROMPT, reason, cx),
        };
        let mut asking = Asking { task, hooked: hooked.as_deref(), ledger: &mut ledger, out: &mut *out, cx };
        match asking.prompt(session.prompt()).await {
            Ok(prompt) => session.set_prompt(prompt),
            Err(error) => return broken(task, ledger, step::HOOK, error.to_string(), cx),
        }
        let mut run = Run {
            task,
            prompts,
            profile: &profile,
            hooked,
            offered,
            slots,
            session,
            ledger,
            gate: Gate::open(task),
            fillers: Fillers::of(task),
            claims: Claims::of(&task.definition.rules),
            step: Step::default(),
        };
        let end = run.work(out, cx).await;
        run.close(end, cx)
    }
}

/// The outcome of a run that ended before its first model call.
fn broken(task: &AgentRequest<'_>, ledger: Ledger<'_>, code: &str, reason: String, cx: &CallContext) -> AgentOutcome {
    let nothing = nothing(task, step::unless_stopped(step::failed(code, reason), cx));
    AgentOutcome { events: ledger.into_events(), ..nothing }
}

/// An outcome of a run in which nothing happened.
fn nothing(task: &AgentRequest<'_>, status: AgentStatus) -> AgentOutcome {
    AgentOutcome {
        status,
        events: Vec::new(),
        data: serde_json::Value::Null,
        metadata: task.call.metadata_if_not_run(),
    }
}
