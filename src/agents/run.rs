//! One run at work: pass by pass, until the profile, the rules or a limit say that it is over.

use segue_engine::conversation::{AgentKind, AgentOutcome, AgentStatus, BotKind};

use super::{
    AgentRequest,
    calls::Manner,
    claims::Claims,
    completion::{self, Ledger},
    filler::Fillers,
    gate::Gate,
    hooked::Hooked,
    hooks::HookError,
    offer::Asking,
    profile::Profile,
    session::Session,
    slots::RunSlots,
    speech::{self, Spoken},
    step::{self, After, Decision, Step},
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    llm::{ChatRequest, ChatResponse, Purpose, ToolCall, ToolList},
    prompts::PromptSet,
};

/// What changes while an agent works on one message.
pub(super) struct Run<'a> {
    pub(super) task: &'a AgentRequest<'a>,
    pub(super) prompts: &'a PromptSet,
    pub(super) profile: &'a Profile,
    pub(super) hooked: Option<Box<Hooked<'a>>>,
    pub(super) offered: ToolList,
    pub(super) slots: RunSlots<'a>,
    pub(super) session: Session,
    pub(super) ledger: Ledger<'a>,
    pub(super) gate: Gate<'a>,
    pub(super) fillers: Fillers<'a>,
    pub(super) claims: Option<Claims<'a>>,
    pub(super) step: Step,
}

/// How a run ended, and its last words.
pub(super) struct End {
    pub(super) status: AgentStatus,
    pub(super) last: Option<(Spoken, BotKind)>,
}

impl From<AgentStatus> for End {
    fn from(status: AgentStatus) -> Self {
        Self { status, last: None }
    }
}

impl<'a> Run<'a> {
    /// Works until the run is over.
    pub(super) async fn work(&mut self, out: &mut dyn ReplySink, cx: &CallContext) -> End {
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

    /// What it leaves behind.
    pub(super) fn close(mut self, end: End, cx: &CallContext) -> AgentOutcome {
        // Kept however it ends: one that is stopped goes on, and so does one that a hook keeps open. What it did is still done,
        // and what is capped still counts.
        let kept = self.task.call.metadata.iter().filter(|(key, _)| !Gate::is_own(key));
        self.ledger.metadata = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.ledger.metadata.extend(self.gate.metadata());
        let last = end.last.as_ref().map(|(spoken, kind)| (spoken, *kind));
        let status = step::unless_stopped(end.status, cx);
        self.ledger.close(status, self.profile, &self.slots, &self.session, last, cx)
    }

    /// One model call and what follows from it.
    async fn pass(&mut self, pass: u32, out: &mut dyn ReplySink, cx: &CallContext) -> Option<End> {
        let asking = cx.step(format!("llm.{pass}"));
        let messages = match self.session.messages(self.task, self.profile, &self.slots, self.prompts) {
            Ok(messages) => messages,
            Err(reason) => return Some(step::failed(step::PROMPT, reason).into()),
        };
        let (hooked, ledger) = (self.hooked.as_deref(), &mut self.ledger);
        let mut hooks = Asking { task: self.task, hooked, ledger, out: &mut *out, cx: &asking };
        let messages = match hooks.messages(messages).await {
            Ok(messages) => messages,
            Err(error) => return Some(step::failed(step::HOOK, error.to_string()).into()),
        };
        let offered = if self.step.closing { ToolList::default() } else { self.offered.clone() };
        let mut request = ChatRequest::new(Purpose::AGENT, messages).with_tools(offered);
        request.max_tokens = self.step.max_tokens;
        request.streamed_to_user = out.streams();
        let heard = {
            let (claims, effects) = (self.claims, self.gate.effects());
            let holds = |sentence: &str| claims.is_none_or(|claims| claims.holds(sentence, effects));
            let look: Option<speech::Look<'_>> = claims.filter(|claims| claims.repairs()).map(|_| &holds as _);
            speech::ask(self.task, request, look, out, &asking).await
        };
        let heard = self.proven(heard, out, &asking).await?;
        match self.step.decide(heard, self.profile, &self.slots) {
            // Boxed: an answer without calls need not carry the room for them.
            Decision::Act(answer, spoken) => Box::pin(self.act(&answer, spoken, out, &cx.step(pass))).await,
            Decision::Finish { status, spoken, kind } => {
                spoken.end(kind, out, cx).await;
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
    async fn act(
        &mut self,
        answer: &ChatResponse,
        spoken: Spoken,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Option<End> {
        let kind = if self.profile.fillers { BotKind::Filler } else { BotKind::Intermediate };
        let offered = self.offered.iter().any(|tool| &*tool.name == completion::TASK_COMPLETED);
        let ends = answer.tool_calls.iter().any(|call| &*call.name == completion::TASK_COMPLETED)
            && offered
            && self.profile.kind == AgentKind::Open
            && !spoken.text.is_empty()
            && spoken.unproven.is_none();
        self.session.push(answer.to_message());
        if !ends {
            spoken.end(kind, out, cx).await;
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
        if ends && spoken.has_begun() && !matches!(after, After::Finish(AgentStatus::Finished)) {
            // The closing line came too early: a call waits for the user's yes, or did not work.
            spoken.end(kind, out, cx).await;
            self.ledger.said(&spoken, kind, true, cx);
        }
        match after {
            After::GoOn => None,
            After::AskClosing => {
                let hooks = self.hooked.as_ref().map(|hooked| hooked.hooks);
                step::ask_closing(&mut self.session, self.prompts, hooks);
                None
            }
            After::Ask => Some(AgentStatus::AwaitingUser.into()),
            After::Finish(status @ AgentStatus::Finished) if ends => {
                spoken.end(BotKind::FinalResponse, out, cx).await;
                Some(End { status, last: Some((spoken, BotKind::FinalResponse)) })
            }
            After::Finish(status) => Some(status.into()),
        }
    }

    /// Runs calls, and lets hooks look at what they gave.
    pub(super) async fn call(
        &mut self,
        calls: &[ToolCall],
        manner: Manner,
        spoken: &Spoken,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> Result<After, HookError> {
        let mut tally = self.run_calls(calls, manner, out, cx).await;
        if let Some(hooked) = &mut self.hooked {
            let records = std::mem::take(&mut tally.records);
            hooked.results(records, self.task, &mut self.slots, &mut self.ledger, out, cx).await?;
        }
        Ok(self.step.after_calls(tally, self.profile, &self.slots, spoken))
    }
}
