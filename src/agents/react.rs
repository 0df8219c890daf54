//! The one loop: ask the model, run what it calls, ask again, until the profile says that it is enough.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::conversation::{AgentCall, AgentOutcome, AgentStatus, Event};

use super::{
    Agent, AgentCard, AgentTask,
    claims::Claims,
    completion::{self, Ledger},
    filler::Fillers,
    gate::Gate,
    hooked::{self, Hooked},
    lasting::Lasting,
    profile::Profile,
    run::Run,
    session::Session,
    slots::RunSlots,
    step::{self, Step},
};
use crate::{conversation::ReplySink, cx::Cx, llm::ToolSpec, prompts::PromptSet};

/// An agent that reasons and acts in turn (agents.md 3), open or task by the step that calls it.
pub struct ReactAgent {
    card: AgentCard,
    prompts: Arc<PromptSet>,
    lasting: Lasting,
}

impl ReactAgent {
    /// An agent with this card.
    pub fn new(card: AgentCard, prompts: Arc<PromptSet>) -> Self {
        Self { card, prompts, lasting: Lasting::default() }
    }
}

impl Agent for ReactAgent {
    fn card(&self) -> &AgentCard {
        &self.card
    }
    fn run<'a>(&'a self, task: AgentTask<'a>, out: &'a mut dyn ReplySink, cx: &'a Cx) -> BoxFuture<'a, AgentOutcome> {
        Box::pin(async move {
            let cx = match task.definition.timeout {
                Some(limit) => cx.within(limit),
                None => cx.clone(),
            };
            run(&task, (&self.prompts, &self.lasting), out, &cx).await
        })
    }
}

/// The texts of a run: all, and those that last.
type Texts<'a> = (&'a PromptSet, &'a Lasting);

/// One run, with hooks where somebody registered any.
async fn run(task: &AgentTask<'_>, texts: Texts<'_>, out: &mut dyn ReplySink, cx: &Cx) -> AgentOutcome {
    let Some(hooks) = &task.hooks else {
        return work(task, texts, None, Vec::new(), out, cx).await;
    };
    let mut ledger = Ledger::new(task);
    let opened = Hooked::open(&**hooks, task, &mut ledger, out, cx).await;
    let said = ledger.into_events();
    let hooked = match opened {
        Ok(hooked) => hooked,
        Err(error) => return hooked::failed(AgentOutcome { events: said, ..nothing(AgentStatus::Finished) }, &error),
    };
    let message = hooked.input.user_message.clone();
    let rewritten = message != task.call.user_message;
    let call = AgentCall { user_message: message, ..task.call.clone() };
    let metadata = Arc::new(hooked.input.metadata.clone());
    let task = AgentTask { call: &call, metadata, rewritten, ..task.clone() };
    let outcome = work(&task, texts, Some(hooked), said, out, cx).await;
    hooked::close(&**hooks, &task, false, outcome, out, cx).await
}

/// The loop. Each pass is one model call; what it decides is in `step`.
async fn work(
    task: &AgentTask<'_>,
    (prompts, lasting): Texts<'_>,
    hooked: Option<Hooked<'_>>,
    said: Vec<Event>,
    out: &mut dyn ReplySink,
    cx: &Cx,
) -> AgentOutcome {
    let profile = Profile::of(task);
    let slots =
        RunSlots::new(task.project, task.conversation).seen_as(hooked.as_ref().and_then(|hooked| hooked.view.clone()));
    let offered = offered(task, &profile, &slots, (prompts, lasting), hooked.as_ref());
    let narrowed = hooked.is_some().then(|| AgentTask {
        tools: task.tools.clone().only(|name| offered.iter().any(|tool| *tool.name == *name)),
        ..task.clone()
    });
    let task = narrowed.as_ref().unwrap_or(task);
    let session = match Session::open(task, &profile, &slots, (prompts, lasting), hooked.as_ref()) {
        Ok(session) => session,
        Err(reason) => {
            let outcome = nothing(step::failed(step::PROMPT, reason));
            return AgentOutcome { events: said, ..outcome };
        }
    };
    let mut run = Run {
        task,
        prompts,
        profile: &profile,
        hooked,
        offered,
        slots,
        session,
        ledger: Ledger::after(task, said),
        gate: Gate::open(task),
        fillers: Fillers::of(task),
        claims: Claims::of(&task.definition.rules),
        step: Step::default(),
    };
    let end = run.work(out, cx).await;
    run.close(end, cx)
}

/// The tools that the model is offered: servers' and custom ones, then the profile's own.
fn offered(
    task: &AgentTask<'_>,
    profile: &Profile,
    slots: &RunSlots<'_>,
    (prompts, lasting): Texts<'_>,
    hooked: Option<&Hooked<'_>>,
) -> Arc<[ToolSpec]> {
    let own = task.tools.specs().map(|spec| ToolSpec {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.parameters.clone(),
        strict: spec.strict,
    });
    let built_in = completion::built_in_tools(profile, slots, prompts, lasting, hooked.map(|hooked| hooked.hooks));
    let Some(hooked) = hooked else { return own.chain(built_in).collect() };
    let usual: Vec<ToolSpec> = own.chain(built_in).collect();
    let names: Vec<Arc<str>> = usual.iter().map(|tool| tool.name.clone()).collect();
    let chosen = hooked.hooks.tools(usual, &hooked.input);
    chosen.into_iter().filter(|tool| names.contains(&tool.name)).collect()
}

/// An outcome of a run in which nothing happened.
fn nothing(status: AgentStatus) -> AgentOutcome {
    AgentOutcome { status, events: Vec::new(), data: serde_json::Value::Null, metadata: serde_json::Map::new() }
}
