//! The built-in agent: it calls the model, runs the tool calls of the response, and repeats until the task is done.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::conversation::{AgentOutcome, AgentStatus, Event};

use super::{
    AgentRequest,
    grounding::GroundingCheck,
    completion::RunRecorder,
    filler::Fillers,
    policy::ToolPolicy,
    hook_run::{self, HookRun},
    hooks::AgentHooks,
    hook_decorator::HookDecorator,
    profile::Profile,
    prompt_cache::PromptCache,
    agent_loop::AgentLoop,
    transcript::RunTranscript,
    slots::RunSlots,
    decision::{self, LoopState},
};
use crate::{context::CallContext, conversation::ReplySink, prompts::PromptSet};

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
                Some(limit) => cx.within(limit),
                None => cx.clone(),
            };
            self.hooked(&request, out, &cx).await
        })
    }

    /// One run, with hooks if any are registered. Hooks are rare, so that their part of the future is boxed.
    async fn hooked(&self, request: &AgentRequest<'_>, out: &mut dyn ReplySink, cx: &CallContext) -> AgentOutcome {
        let Some(hooks) = &request.hooks else { return self.work(request, None, Vec::new(), out, cx).await };
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
        let opened = HookRun::start(hooks, request, &mut recorder, out, cx).await;
        let said = recorder.into_events();
        let hooked = match opened {
            Ok(hooked) => hooked,
            Err(error) => {
                let nothing = AgentOutcome { events: said, ..nothing(request, AgentStatus::Finished) };
                return hook_run::failed(nothing, &error, cx);
            }
        };
        let call = hooked.call(request);
        let request = hooked.request(request, &call);
        let outcome = self.work(&request, Some(Box::new(hooked)), said, out, cx).await;
        hook_run::finish(hooks, &request, false, outcome, out, cx).await
    }

    /// Prepares and runs the loop.
    async fn work(
        &self,
        request: &AgentRequest<'_>,
        hooked: Option<Box<HookRun<'_>>>,
        said: Vec<Event>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> AgentOutcome {
        let (prompts, profile) = (&*self.prompts, Profile::of(request));
        let slots = RunSlots::new(request.project, request.conversation).with_view(request.slots.clone());
        let mut recorder = RunRecorder::with_events(request, said);
        let mut asking = HookDecorator { request, hooks: hooked.as_deref(), recorder: &mut recorder, out: &mut *out, cx };
        let offered = match asking.tools(&profile, &slots, prompts).await {
            Ok(offered) => offered,
            Err(error) => return broken(request, recorder, decision::CODE_HOOK_FAILED, error.to_string(), cx),
        };
        let narrowed = hooked.is_some().then(|| AgentRequest {
            tools: request.tools.clone().only(|name| offered.iter().any(|tool| *tool.name == *name)),
            ..request.clone()
        });
        let request = narrowed.as_ref().unwrap_or(request);
        let mut transcript = match RunTranscript::new(request, &profile, &slots, prompts, &self.cache) {
            Ok(transcript) => transcript,
            Err(reason) => return broken(request, recorder, decision::CODE_PROMPT, reason, cx),
        };
        let mut asking = HookDecorator { request, hooks: hooked.as_deref(), recorder: &mut recorder, out: &mut *out, cx };
        match asking.prompt(transcript.prompt()).await {
            Ok(prompt) => transcript.set_prompt(prompt),
            Err(error) => return broken(request, recorder, decision::CODE_HOOK_FAILED, error.to_string(), cx),
        }
        let mut run = AgentLoop {
            request,
            prompts,
            profile: &profile,
            hooks: hooked,
            offered,
            slots,
            transcript,
            recorder,
            policy: ToolPolicy::new(request),
            fillers: Fillers::of(request),
            grounding: GroundingCheck::of(&request.definition.rules),
            state: LoopState::default(),
        };
        let end = run.work(out, cx).await;
        run.close(end, cx)
    }
}

/// The outcome of a run that ended before its first model call.
fn broken(request: &AgentRequest<'_>, recorder: RunRecorder<'_>, code: &str, reason: String, cx: &CallContext) -> AgentOutcome {
    let nothing = nothing(request, decision::unless_stopped(decision::failed(code, reason), cx));
    AgentOutcome { events: recorder.into_events(), ..nothing }
}

/// An outcome of a run in which nothing happened.
fn nothing(request: &AgentRequest<'_>, status: AgentStatus) -> AgentOutcome {
    AgentOutcome { status, events: Vec::new(), data: serde_json::Value::Null, metadata: request.call.kept() }
}
