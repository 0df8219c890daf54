//! The built-in agent: it calls the model, runs the tool calls of the response, and repeats until the task is done.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::conversation::{AgentOutcome, AgentStatus, Event};

use super::{
    AgentRequest,
    completion::RunRecorder,
    confirmation,
    dialogue::DialogueHost,
    filler::Fillers,
    grounding::GroundingCheck,
    hook_decorator::HookDecorator,
    hook_run::{self, CODE_HOOK_FAILED, HookRun},
    hooks::AgentHooks,
    policy::ToolPolicy,
    profile::Profile,
    prompt_cache::PromptCache,
    skills,
    slots::RunSlots,
    transcript::RunTranscript,
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    prompts::PromptSet,
    react::{self, CODE_PROMPT, LoopServices, LoopState, ReactLoop},
};

/// A ReAct agent: open or task agent, as the calling step decides.
pub(crate) struct ReactAgent {
    prompts: Arc<PromptSet>,
    cache: PromptCache,
}

impl ReactAgent {
    /// An agent with these prompts.
    pub(crate) fn new(prompts: Arc<PromptSet>) -> Self {
        Self { prompts, cache: PromptCache::default() }
    }

    /// Works on one user message. A failure is a status of the outcome. Boxed, because the future is large.
    ///
    /// *Cancellation*: when `cx` is cancelled or its deadline passes, it ends at the next safe point with the events so far.
    pub(crate) fn run<'a>(
        &'a self,
        request: AgentRequest<'a>,
        out: &'a mut dyn ReplySink,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, AgentOutcome> {
        Box::pin(async move {
            let cx = match request.definition.timeout {
                Some(limit) => cx.with_timeout(limit),
                None => cx.clone(),
            };
            self.run_maybe_hooked(&request, out, &cx).await
        })
    }

    /// One run, with hooks if any are registered. Hooks are rare, so that their part of the future is boxed.
    async fn run_maybe_hooked(
        &self,
        request: &AgentRequest<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> AgentOutcome {
        let Some(hooks) = &request.hooks else { return self.run_loop(request, None, Vec::new(), out, cx).await };
        Box::pin(self.run_hooked(request, &**hooks, out, cx)).await
    }

    async fn run_hooked(
        &self,
        request: &AgentRequest<'_>,
        hooks: &dyn AgentHooks,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> AgentOutcome {
        let mut recorder = RunRecorder::new(request);
        let started = HookRun::start(hooks, request, &mut recorder, out, cx).await;
        let hook_events = recorder.into_events();
        let hook_run = match started {
            Ok(hook_run) => hook_run,
            Err(error) => {
                let outcome = AgentOutcome { events: hook_events, ..empty_outcome(request, AgentStatus::Finished) };
                return hook_run::fail_run(outcome, &error, cx);
            }
        };
        let call = hook_run.call(request);
        let request = hook_run.request(request, &call);
        let outcome = self.run_loop(&request, Some(Box::new(hook_run)), hook_events, out, cx).await;
        hook_run::finish(hooks, &request, false, outcome, out, cx).await
    }

    /// Prepares and runs the loop.
    async fn run_loop(
        &self,
        request: &AgentRequest<'_>,
        hook_run: Option<Box<HookRun<'_>>>,
        hook_events: Vec<Event>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> AgentOutcome {
        let (prompts, profile) = (&*self.prompts, Profile::new(request));
        let slots = RunSlots::new(request.project, request.conversation).with_view(request.slots.clone());
        let mut recorder = RunRecorder::with_events(request, hook_events);
        let mut asking =
            HookDecorator { request, hooks: hook_run.as_deref(), recorder: &mut recorder, out: &mut *out, cx };
        let offered = match asking.tools(&profile, &slots, prompts).await {
            Ok(offered) => offered,
            Err(error) => {
                return failed_before_start(request, recorder, CODE_HOOK_FAILED, error.to_string(), cx);
            }
        };
        let narrowed = hook_run.is_some().then(|| AgentRequest {
            tools: request.tools.clone().only(|name| offered.iter().any(|tool| *tool.name == *name)),
            ..request.clone()
        });
        let request = narrowed.as_ref().unwrap_or(request);
        let mut transcript = match RunTranscript::new(request, &profile, &slots, prompts, &self.cache) {
            Ok(transcript) => transcript,
            Err(reason) => return failed_before_start(request, recorder, CODE_PROMPT, reason, cx),
        };
        let mut asking =
            HookDecorator { request, hooks: hook_run.as_deref(), recorder: &mut recorder, out: &mut *out, cx };
        match asking.prompt(transcript.prompt()).await {
            Ok(prompt) => transcript.set_prompt(prompt),
            Err(error) => {
                return failed_before_start(request, recorder, CODE_HOOK_FAILED, error.to_string(), cx);
            }
        }
        let skills = match skills::session(request, prompts) {
            Ok(skills) => skills,
            Err(reason) => return failed_before_start(request, recorder, CODE_PROMPT, reason, cx),
        };
        let mut host = DialogueHost {
            request,
            prompts,
            profile: &profile,
            hooks: hook_run,
            slots,
            transcript,
            recorder,
            policy: ToolPolicy::new(&request.definition.rules, &request.call.metadata),
            fillers: Fillers::new(request),
            grounding: GroundingCheck::from_rules(&request.definition.rules),
            out,
            records: Vec::new(),
            ledger: request.delegation.as_ref().map(|lead| lead.ledger.clone()),
            receipts: Vec::new(),
            question: None,
            progress: None,
        };
        let mut services = LoopServices { skills, ..LoopServices::of_dialogues() };
        if let Some(lead) = &request.delegation {
            services = services.with_budget(lead.budget.clone());
        }
        let mut run = ReactLoop {
            profile: &profile.react,
            prompts,
            offered,
            tools: &request.tools,
            host: &mut host,
            state: LoopState { skills: skills::loaded(request), ..LoopState::default() },
            services,
        };
        let end = match confirmation::resume_confirmed_calls(&mut run, request, prompts, cx).await {
            Some(end) => end,
            None => run.run(cx).await,
        };
        let state = run.state;
        host.close(end, &state, cx)
    }
}

/// The outcome of a run that ended before its first model call.
fn failed_before_start(
    request: &AgentRequest<'_>,
    recorder: RunRecorder<'_>,
    code: &str,
    reason: String,
    cx: &CallContext,
) -> AgentOutcome {
    let empty = empty_outcome(request, react::unless_stopped(react::failed_status(code, reason), cx));
    AgentOutcome { events: recorder.into_events(), ..empty }
}

/// An outcome of a run in which nothing happened.
fn empty_outcome(request: &AgentRequest<'_>, status: AgentStatus) -> AgentOutcome {
    AgentOutcome {
        status,
        events: Vec::new(),
        data: serde_json::Value::Null,
        metadata: request.call.metadata_if_not_run(),
    }
}
