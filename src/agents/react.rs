//! The one loop: ask the model, run what it calls, ask again, until the profile says that it is enough.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::conversation::{AgentKind, AgentOutcome, BotKind};

use super::{
    Agent, AgentCard, AgentTask, calls,
    completion::{self, Ledger},
    profile::Profile,
    session::{Session, StablePrompts},
    slots::RunSlots,
    speech::{self, Spoken},
    step::{self, Decision, Step},
};
use crate::{
    conversation::ReplySink,
    cx::Cx,
    llm::{ChatRequest, Purpose, ToolSpec},
    prompts::PromptSet,
};

/// An agent that reasons and acts in turn (agents.md 3), open or task by the step that calls it.
pub struct ReactAgent {
    card: AgentCard,
    prompts: Arc<PromptSet>,
    stable: StablePrompts,
}

impl ReactAgent {
    /// An agent with this card.
    pub fn new(card: AgentCard, prompts: Arc<PromptSet>) -> Self {
        Self { card, prompts, stable: StablePrompts::default() }
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
            run(&task, (&self.prompts, &self.stable), out, &cx).await
        })
    }
}

/// The loop. Each pass is one model call; what it decides is in `step`.
async fn run(
    task: &AgentTask<'_>,
    (prompts, stable): (&PromptSet, &StablePrompts),
    out: &mut dyn ReplySink,
    cx: &Cx,
) -> AgentOutcome {
    let profile = Profile::of(task);
    let mut slots = RunSlots::new(task.project, task.conversation);
    let mut ledger = Ledger::new(task);
    let mut session = match Session::open(task, &profile, &slots, (prompts, stable)) {
        Ok(session) => session,
        Err(reason) => return failed_to_begin(reason),
    };
    let tools = tool_list(task, &profile, &slots, prompts);
    let setting = calls::Setting { task, profile: &profile, prompts };
    let mut step = Step::default();
    for pass in 0..profile.iterations {
        if let Some(status) = step::stopped(cx) {
            return ledger.close(status, &profile, &slots, &session, None, cx);
        }
        let messages = match session.messages(task, &profile, &slots, prompts) {
            Ok(messages) => messages,
            Err(reason) => {
                let status = step::failed(step::PROMPT, reason);
                return ledger.close(status, &profile, &slots, &session, None, cx);
            }
        };
        let offered = if step.closing { Arc::from([]) } else { tools.clone() };
        let mut request = ChatRequest::new(Purpose::AGENT, messages).with_tools(offered);
        request.max_tokens = step.max_tokens;
        let asking = cx.step(format!("llm.{pass}"));
        let heard = speech::ask(task, request, out, &asking).await;
        let decision = step.decide(heard, &profile, &slots);
        match decision {
            Decision::Act(answer, spoken) => {
                let kind = if profile.fillers { BotKind::Filler } else { BotKind::Intermediate };
                let ends = answer.tool_calls.iter().any(|call| &*call.name == completion::TASK_COMPLETED)
                    && profile.kind == AgentKind::Open
                    && !spoken.text.is_empty();
                session.push(answer.to_message());
                if !ends {
                    say(&mut ledger, &spoken, kind, out, cx).await;
                }
                let tally =
                    calls::run(&answer.tool_calls, setting, &mut slots, &mut session, &mut ledger, &cx.step(pass))
                        .await;
                match step.after_calls(tally, &profile, &slots, &spoken) {
                    step::After::GoOn => {}
                    step::After::AskClosing => step::ask_closing(&mut session, prompts),
                    step::After::Finish(status) => {
                        if ends {
                            spoken.end(BotKind::FinalResponse, false, out, cx).await;
                        }
                        let last = ends.then_some((&spoken, BotKind::FinalResponse));
                        return ledger.close(status, &profile, &slots, &session, last, cx);
                    }
                }
            }
            Decision::Finish { status, spoken, kind, interrupted } => {
                spoken.end(kind, interrupted, out, cx).await;
                return ledger.close(status, &profile, &slots, &session, Some((&spoken, kind)), cx);
            }
            Decision::Again { wait } => {
                step::nudge(&mut session, prompts);
                if let Some(wait) = wait {
                    let until = cx.clock.deadline(wait);
                    let _ = cx.wait(cx.clock.sleep(until)).await;
                }
            }
        }
    }
    let status = step::failed(step::ITERATIONS, format!("the agent was not done after {} passes", profile.iterations));
    ledger.close(status, &profile, &slots, &session, None, cx)
}

async fn say(ledger: &mut Ledger<'_>, spoken: &Spoken, kind: BotKind, out: &mut dyn ReplySink, cx: &Cx) {
    spoken.end(kind, false, out, cx).await;
    ledger.said(spoken, kind, true, cx);
}

fn tool_list(task: &AgentTask<'_>, profile: &Profile, slots: &RunSlots<'_>, prompts: &PromptSet) -> Arc<[ToolSpec]> {
    let own = task.tools.specs().map(|spec| ToolSpec {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.parameters.clone(),
        strict: spec.strict,
    });
    own.chain(completion::built_in_tools(profile, slots, prompts)).collect()
}

fn failed_to_begin(reason: String) -> AgentOutcome {
    AgentOutcome {
        status: step::failed(step::PROMPT, reason),
        events: Vec::new(),
        data: serde_json::Value::Null,
        metadata: serde_json::Map::new(),
    }
}
