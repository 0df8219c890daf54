//! The one loop: ask the model, run what it calls, ask again, until the profile says that it is enough.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::conversation::{AgentCall, AgentKind, AgentOutcome, AgentStatus, BotKind, Event, HeldCall};

use super::{
    Agent, AgentCard, AgentTask,
    calls::{self, Manner, Scene, Setting},
    claims::Claims,
    completion::{self, Ledger},
    filler::Fillers,
    gate::{self, Gate},
    hooked::{self, Hooked},
    hooks::HookError,
    profile::Profile,
    session::{Session, StablePrompts},
    slots::RunSlots,
    speech::{self, Heard, Spoken},
    step::{self, After, Decision, Step},
};
use crate::{
    conversation::ReplySink,
    cx::Cx,
    limits,
    llm::{Answer, Arguments, ChatMessage, ChatRequest, Purpose, ToolCall, ToolSpec},
    prompts::PromptSet,
};

/// The response that stands in for a claim that nothing proves.
const HONEST: &str = "utter_agent_unproven";

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

/// The texts of a run: all, and those that are rendered once.
type Texts<'a> = (&'a PromptSet, &'a StablePrompts);

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
    (prompts, stable): Texts<'_>,
    hooked: Option<Hooked<'_>>,
    said: Vec<Event>,
    out: &mut dyn ReplySink,
    cx: &Cx,
) -> AgentOutcome {
    let profile = Profile::of(task);
    let slots =
        RunSlots::new(task.project, task.conversation).seen_as(hooked.as_ref().and_then(|hooked| hooked.view.clone()));
    let offered = offered(task, &profile, &slots, prompts, hooked.as_ref());
    let narrowed = hooked.is_some().then(|| AgentTask {
        tools: task.tools.clone().only(|name| offered.iter().any(|tool| *tool.name == *name)),
        ..task.clone()
    });
    let task = narrowed.as_ref().unwrap_or(task);
    let session = match Session::open(task, &profile, &slots, (prompts, stable), hooked.as_ref()) {
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
    let end = run.to_end(out, cx).await;
    run.close(end, cx)
}

/// What changes while an agent works on one message.
struct Run<'a> {
    task: &'a AgentTask<'a>,
    prompts: &'a PromptSet,
    profile: &'a Profile,
    hooked: Option<Hooked<'a>>,
    offered: Arc<[ToolSpec]>,
    slots: RunSlots<'a>,
    session: Session,
    ledger: Ledger<'a>,
    gate: Gate<'a>,
    fillers: Fillers<'a>,
    claims: Option<Claims<'a>>,
    step: Step,
}

/// How a run ended, and its last words.
struct End {
    status: AgentStatus,
    last: Option<(Spoken, BotKind)>,
}

impl From<AgentStatus> for End {
    fn from(status: AgentStatus) -> Self {
        Self { status, last: None }
    }
}

impl<'a> Run<'a> {
    async fn to_end(&mut self, out: &mut dyn ReplySink, cx: &Cx) -> End {
        if let Some(end) = self.take_answer(out, cx).await {
            return end;
        }
        for pass in 0..self.profile.iterations {
            if let Some(status) = step::stopped(cx) {
                return status.into();
            }
            if let Some(end) = self.pass(pass, out, cx).await {
                return end;
            }
        }
        let reason = format!("the agent was not done after {} passes", self.profile.iterations);
        step::failed(step::ITERATIONS, reason).into()
    }

    fn close(mut self, end: End, cx: &Cx) -> AgentOutcome {
        if end.status == AgentStatus::AwaitingUser {
            let kept = self.task.call.metadata.iter().filter(|(key, _)| !Gate::is_own(key));
            self.ledger.metadata = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
            self.ledger.metadata.extend(self.gate.metadata());
        }
        let last = end.last.as_ref().map(|(spoken, kind)| (spoken, *kind));
        self.ledger.close(end.status, self.profile, &self.slots, &self.session, last, cx)
    }

    /// One model call and what follows from it.
    async fn pass(&mut self, pass: u32, out: &mut dyn ReplySink, cx: &Cx) -> Option<End> {
        let hooked = self.hooked.as_ref();
        let messages = match self.session.messages(self.task, self.profile, &self.slots, self.prompts, hooked) {
            Ok(messages) => messages,
            Err(reason) => return Some(step::failed(step::PROMPT, reason).into()),
        };
        let offered = if self.step.closing { Arc::from([]) } else { self.offered.clone() };
        let mut request = ChatRequest::new(Purpose::AGENT, messages).with_tools(offered);
        request.max_tokens = self.step.max_tokens;
        let asking = cx.step(format!("llm.{pass}"));
        let heard = {
            let (claims, effects) = (self.claims, self.gate.effects());
            let holds = |sentence: &str| claims.is_none_or(|claims| claims.holds(sentence, effects));
            let look: Option<speech::Look<'_>> = claims.filter(|claims| claims.repairs()).map(|_| &holds as _);
            speech::ask(self.task, request, look, out, &asking).await
        };
        let heard = self.proven(heard, out, &asking).await?;
        match self.step.decide(heard, self.profile, &self.slots) {
            Decision::Act(answer, spoken) => self.act(&answer, spoken, out, &cx.step(pass)).await,
            Decision::Finish { status, spoken, kind, interrupted } => {
                spoken.end(kind, interrupted, out, cx).await;
                Some(End { status, last: Some((spoken, kind)) })
            }
            Decision::Again { wait } => {
                step::nudge(&mut self.session, self.prompts);
                if let Some(wait) = wait {
                    let until = cx.clock.deadline(wait);
                    let _ = cx.wait(cx.clock.sleep(until)).await;
                }
                None
            }
        }
    }

    /// Runs the calls of an answer.
    async fn act(&mut self, answer: &Answer, spoken: Spoken, out: &mut dyn ReplySink, cx: &Cx) -> Option<End> {
        let kind = if self.profile.fillers { BotKind::Filler } else { BotKind::Intermediate };
        let ends = answer.tool_calls.iter().any(|call| &*call.name == completion::TASK_COMPLETED)
            && self.profile.kind == AgentKind::Open
            && !spoken.text.is_empty()
            && spoken.unproven.is_none();
        self.session.push(answer.to_message());
        if !ends {
            spoken.end(kind, false, out, cx).await;
            self.ledger.said(&spoken, kind, true, cx);
        }
        let manner = Manner { confirmed: false, spoke: !spoken.text.is_empty() };
        let after = match self.call(&answer.tool_calls, manner, &spoken, out, cx).await {
            Ok(after) => after,
            Err(error) => return Some(step::failed(step::HOOK, error.to_string()).into()),
        };
        if spoken.unproven.is_none() {
            self.watch(&spoken.text);
        }
        match after {
            After::GoOn => None,
            After::AskClosing => {
                let hooks = self.hooked.as_ref().map(|hooked| hooked.hooks);
                step::ask_closing(&mut self.session, self.prompts, hooks);
                None
            }
            After::Ask if ends => {
                // The closing line came too early: nothing is done before the user said yes.
                if spoken.has_begun() {
                    spoken.end(kind, false, out, cx).await;
                    self.ledger.said(&spoken, kind, true, cx);
                }
                Some(AgentStatus::AwaitingUser.into())
            }
            After::Ask => Some(AgentStatus::AwaitingUser.into()),
            After::Finish(status) if ends => {
                spoken.end(BotKind::FinalResponse, false, out, cx).await;
                Some(End { status, last: Some((spoken, BotKind::FinalResponse)) })
            }
            After::Finish(status) => Some(status.into()),
        }
    }

    async fn call(
        &mut self,
        calls: &[ToolCall],
        manner: Manner,
        spoken: &Spoken,
        out: &mut dyn ReplySink,
        cx: &Cx,
    ) -> Result<After, HookError> {
        let setting = Setting { task: self.task, profile: self.profile, prompts: self.prompts };
        let mut scene = Scene {
            slots: &mut self.slots,
            session: &mut self.session,
            ledger: &mut self.ledger,
            gate: &mut self.gate,
            fillers: &mut self.fillers,
            out: &mut *out,
        };
        let mut tally = calls::run(calls, setting, manner, &mut scene, cx).await;
        if let Some(hooked) = &mut self.hooked {
            let records = std::mem::take(&mut tally.records);
            hooked.results(records, self.task, &mut self.slots, &mut self.ledger, out, cx).await?;
        }
        Ok(self.step.after_calls(tally, self.profile, &self.slots, spoken))
    }

    /// What the user said to calls that they were shown: a yes runs them, just as they were shown; anything else does not.
    async fn take_answer(&mut self, out: &mut dyn ReplySink, cx: &Cx) -> Option<End> {
        let held = HeldCall::of(&self.task.call.metadata);
        if held.is_empty() {
            return None;
        }
        let tools: Vec<String> = held.iter().map(|call| call.tool.to_string()).collect();
        let outcome = match self.task.call.confirmed {
            Some(true) => {
                let cx = cx.step("held");
                let call = |(at, held): (usize, &HeldCall)| ToolCall {
                    id: format!("held_{at}").into(),
                    name: held.tool.clone(),
                    arguments: Arguments::json(held.arguments.clone()),
                };
                let answer = Answer { tool_calls: held.iter().enumerate().map(call).collect(), ..Answer::default() };
                self.session.push(answer.to_message());
                let silence = Spoken::whole(&cx, "".into());
                let manner = Manner { confirmed: true, spoke: false };
                return match self.call(&answer.tool_calls, manner, &silence, out, &cx).await {
                    Ok(After::Finish(status)) => Some(status.into()),
                    Ok(After::Ask) => Some(AgentStatus::AwaitingUser.into()),
                    Ok(After::GoOn | After::AskClosing) => None,
                    Err(error) => Some(step::failed(step::HOOK, error.to_string()).into()),
                };
            }
            Some(false) => "declined",
            None => "unanswered",
        };
        let text = gate::words(self.prompts, minijinja::context! { outcome, tools });
        self.session.push(ChatMessage::system(text));
        None
    }

    /// Sees to a sentence that was held back because nothing proves it. `None` asks the model again.
    async fn proven(&mut self, heard: Heard, out: &mut dyn ReplySink, cx: &Cx) -> Option<Heard> {
        let Heard::Answer(answer, mut spoken) = heard else { return Some(heard) };
        let Some(sentence) = spoken.unproven.clone() else {
            if answer.tool_calls.is_empty() {
                self.watch(&spoken.text);
            }
            return Some(Heard::Answer(answer, spoken));
        };
        self.unproven(&sentence);
        if !answer.tool_calls.is_empty() {
            return Some(Heard::Answer(answer, spoken));
        }
        if self.step.repairs < limits::AGENT_REPAIRS {
            self.step.repairs += 1;
            spoken.end(BotKind::Intermediate, false, out, cx).await;
            self.ledger.said(&spoken, BotKind::Intermediate, false, cx);
            self.session.push(answer.to_message());
            step::ask_proof(&mut self.session, self.prompts, &sentence);
            return None;
        }
        if let Some(honest) = self.task.desk.words(HONEST, 0) {
            let source: Arc<str> = format!("agent:{}", self.task.call.agent).into();
            spoken.add(&honest, &source, out, cx).await;
        }
        Some(Heard::Answer(answer, spoken))
    }

    /// Looks for a claim in what was said, where that is only recorded.
    fn watch(&self, text: &str) {
        let claim = self.claims.and_then(|claims| claims.unproven(text, self.gate.effects()));
        if let Some(sentence) = claim {
            self.unproven(sentence);
        }
    }

    fn unproven(&self, sentence: &str) {
        let matter = format!("agent {} says what no tool result of its task shows: {sentence}", self.task.call.agent);
        self.task.desk.warn(step::UNPROVEN, matter);
    }
}

/// The tools that the model is offered: servers' and custom ones, then the profile's own.
fn offered(
    task: &AgentTask<'_>,
    profile: &Profile,
    slots: &RunSlots<'_>,
    prompts: &PromptSet,
    hooked: Option<&Hooked<'_>>,
) -> Arc<[ToolSpec]> {
    let own = task.tools.specs().map(|spec| ToolSpec {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.parameters.clone(),
        strict: spec.strict,
    });
    let built_in = completion::built_in_tools(profile, slots, prompts, hooked.map(|hooked| hooked.hooks));
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
