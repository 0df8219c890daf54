//! Agents that others run, over A2A: one invocation sends the user's message, follows the task to where it stands
//! still, and says what came of it.
//!
//! Entry: [`run`]. What leaves goes through a [`A2aClient`] that the runtime records. This part never sends the id of a task that
//! is over, never repeats a message that may have been taken, and keeps nothing: what the next invocation must know stands in
//! the outcome's metadata, which lives in the agent's frame.

mod message;
mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, BotKind},
    project::{MessageReplyMeaning, RemoteDef},
};
use serde_json::Value as Json;

pub(super) use self::outcome::is_own;
use self::outcome::{Ending, Memory};
use super::{
    AgentRequest,
    completion::Ledger,
    hooked::{self, Hooked},
};
use crate::{
    a2a::{
        A2aClient, A2aError, A2aErrorKind, FirstResponse, SendReceipt, SendRequest, TaskListener,
        model::{Task, TaskState, text_of},
    },
    context::CallContext,
    conversation::{Reply, ReplyEvent, ReplySink},
    limits,
};

/// The remote agent cannot be reached, or its card not be used.
const UNREACHABLE: &str = "A0511";
/// Its answer cannot be used, or it told an error.
const ANSWER: &str = "A0512";
/// Its task failed, was refused, or stopped.
const FAILED: &str = "A0513";
/// It did not end in time.
const LATE: &str = "A0514";
/// Whether it took the message is not known.
pub(crate) const UNKNOWN: &str = "A0515";
/// It asks without end.
const EXCHANGES: &str = "A0516";

/// Works on one user message.
///
/// *Cancellation*: when `cx` is cancelled the remote task is asked to stop, and the outcome says so.
pub(crate) async fn run(
    task: &AgentRequest<'_>,
    remote: &RemoteDef,
    peer: &dyn A2aClient,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    let mut memory = Memory::of(&task.call.metadata);
    let mut told = Told { agent: task.call.agent.as_str().into(), out, cx: cx.step("said"), texts: Vec::new() };
    if memory.exchanges >= limits::A2A_EXCHANGES {
        let reason = format!("{} messages were exchanged about one task, and it is not done", memory.exchanges);
        if let Some(id) = memory.task_id.clone() {
            stop(peer, &id, cx).await;
        }
        memory.forget_task();
        return told.closed(task, Ending::failed(EXCHANGES, reason), memory, remote, cx).await;
    }
    // The message that brought the user back is no answer to what the agent had asked before: it is asked again.
    if let (true, Some(question)) = (task.call.resumed, &task.call.resumed_last_request) {
        let ending = Ending::asks(question.clone());
        return told.closed(task, ending, memory, remote, cx).await;
    }
    for attempt in 0..limits::A2A_TRIES {
        let step = cx.step(format!("try.{attempt}"));
        let accepted = if memory.is_working {
            Ok(SendReceipt { first: FirstResponse::Task(memory.task()), live: None })
        } else {
            let message = message::of(task, remote, &memory);
            peer.send(&SendRequest { message, report_to: None }, &step.step("send")).await
        };
        // Once a task was taken, only who runs it can say that it may be begun anew: how asking for it failed tells nothing.
        let (result, again) = match accepted {
            Ok(accepted) => {
                let came = followed(peer, accepted, &mut memory, &mut told, &step).await;
                let again = came.as_ref().is_ok_and(outcome::is_repeatable);
                (came, again)
            }
            Err(fault) => {
                let again = fault.can_resend();
                // The task that the message belongs to is stopped: what it did is no longer in doubt.
                let is_stopped = memory.task_id.is_some() && fault.kind == A2aErrorKind::TimedOut;
                (Err(if is_stopped { fault } else { fault.into_send_error() }), again)
            }
        };
        if again && attempt + 1 < limits::A2A_TRIES && !cx.cancel.is_cancelled() {
            if result.is_ok() {
                memory.forget_task();
            }
            let wait = limits::A2A_TRY_PAUSE * 2_u32.pow(attempt);
            if cx.wait(cx.clock.sleep(cx.clock.deadline(wait))).await.is_ok() {
                continue;
            }
        }
        let ending = ended(result, remote, &mut memory, peer, cx).await;
        return told.closed(task, ending, memory, remote, cx).await;
    }
    told.closed(task, Ending::failed(FAILED, "it failed every time".to_owned()), memory, remote, cx).await
}

/// As [`run`], with what registered hooks make of the input and of the outcome.
pub(crate) async fn run_hooked(
    task: &AgentRequest<'_>,
    remote: &RemoteDef,
    peer: &dyn A2aClient,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    let Some(hooks) = &task.hooks else { return run(task, remote, peer, out, &cx.step("remote")).await };
    let mut ledger = Ledger::new(task);
    let opened = Hooked::open(&**hooks, task, &mut ledger, out, cx).await;
    let said = ledger.into_events();
    let hooked = match opened {
        Ok(hooked) => hooked,
        Err(error) => {
            let status = AgentStatus::Finished;
            let nothing =
                AgentOutcome { status, events: said, data: Json::Null, metadata: task.call.metadata_if_not_run() };
            return hooked::failed(nothing, &error, cx);
        }
    };
    let call = hooked.call(task);
    let task = hooked.task(task, &call);
    let mut outcome = run(&task, remote, peer, out, &cx.step("remote")).await;
    outcome.events.splice(0..0, said);
    // What hooks kept for the next run stays, however this one ends: a stopped one goes on, and a hook may keep a finished one
    // open. Where the remote task stands is for this run to say.
    let kept = call.metadata.iter().filter(|(key, _)| !is_own(key));
    outcome.metadata.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
    let mut outcome = hooked::close(&**hooks, &task, true, outcome, out, cx).await;
    if outcome.status == AgentStatus::Finished {
        // A hook may have ended what stands open elsewhere: the next run begins a task of its own.
        outcome.metadata.retain(|key, _| !is_own(key) || key == "context_id");
    }
    outcome
}

/// What came: a message, or a task that stands still.
enum Came {
    Message(crate::a2a::model::Message),
    Task(Box<Task>),
}

async fn followed(
    peer: &dyn A2aClient,
    accepted: SendReceipt,
    memory: &mut Memory,
    told: &mut Told<'_>,
    step: &CallContext,
) -> Result<Came, A2aError> {
    match accepted.first {
        FirstResponse::Message(message) => {
            memory.heard(message.context_id.as_deref(), None);
            Ok(Came::Message(message))
        }
        FirstResponse::Task(ref task) => {
            memory.heard(Some(&task.context_id), Some(&task.id));
            let task = peer.follow(accepted, told, &step.step("follow")).await?;
            memory.heard(Some(&task.context_id), Some(&task.id));
            Ok(Came::Task(Box::new(task)))
        }
    }
}

/// From what came to how the run ends; keeps the id of a task that is open, and of no other.
async fn ended(
    result: Result<Came, A2aError>,
    remote: &RemoteDef,
    memory: &mut Memory,
    peer: &dyn A2aClient,
    cx: &CallContext,
) -> Ending {
    memory.exchanges += 1;
    match result {
        Ok(Came::Message(message)) => {
            memory.forget_task();
            let text = text_of(&message.parts);
            let results = outcome::of_parts(&message.parts);
            match remote.message_means {
                MessageReplyMeaning::InputRequired => Ending { results, ..Ending::asks(text) },
                MessageReplyMeaning::Completed => Ending { results, ..Ending::done(text) },
            }
        }
        Ok(Came::Task(task)) => {
            if !task.status.state.is_interrupted() {
                memory.forget_task();
            }
            memory.is_working = false;
            outcome::of_task(&task)
        }
        Err(fault)
            if fault.kind == A2aErrorKind::TimedOut
                && remote.push_notification_url.is_some()
                && memory.task_id.is_some() =>
        {
            // It will report; meanwhile the user can talk.
            memory.is_working = true;
            Ending { status: AgentStatus::Yielded, ..Ending::asks(String::new()) }
        }
        Err(fault) => {
            if let Some(id) = memory.task_id.as_ref().filter(|_| fault.kind != A2aErrorKind::JournalClosed) {
                stop(peer, id, cx).await;
            }
            memory.forget_task();
            broken(&fault)
        }
    }
}

/// Asks that a task be stopped: nobody will hear what comes of it, and its cost need not go on.
async fn stop(peer: &dyn A2aClient, task: &str, cx: &CallContext) {
    let beyond = CallContext { deadline: cx.clock.deadline(limits::A2A_CANCEL), ..cx.step("cancel").uncancellable() };
    if let Err(fault) = peer.cancel(task, &beyond).await {
        tracing::debug!(task, "the remote task could not be stopped: {fault}");
    }
}

fn broken(fault: &A2aError) -> Ending {
    let code = match fault.kind {
        A2aErrorKind::Cancelled => {
            let status = AgentStatus::Cancelled { reason: fault.message.clone() };
            return Ending { status, ..Ending::done(String::new()) };
        }
        A2aErrorKind::Card | A2aErrorKind::Authentication | A2aErrorKind::Unreachable => UNREACHABLE,
        A2aErrorKind::TimedOut => LATE,
        A2aErrorKind::OutcomeUnknown => UNKNOWN,
        A2aErrorKind::JournalClosed => "A0510",
        _ => ANSWER,
    };
    Ending::failed(code, fault.message.clone())
}

/// What the user was told meanwhile.
struct Told<'a> {
    agent: Arc<str>,
    out: &'a mut dyn ReplySink,
    cx: CallContext,
    /// Id and text of each, in order.
    texts: Vec<(Arc<str>, Arc<str>)>,
}

impl TaskListener for Told<'_> {
    fn on_status_text<'b>(&'b mut self, text: &'b str) -> BoxFuture<'b, ()> {
        Box::pin(async move {
            let id: Arc<str> = self.cx.step(self.texts.len()).key.as_str().into();
            tracing::debug!(agent = &*self.agent, "a remote agent says how it goes on");
            self.show(&id, text, BotKind::Intermediate).await;
            self.texts.push((id, text.into()));
        })
    }
}

impl Told<'_> {
    /// A lost piece is no reason to stop: the whole text is stored with the turn and delivered from there.
    async fn show(&mut self, id: &Arc<str>, text: &str, kind: BotKind) {
        let piece = ReplyEvent::Message { id: id.clone(), message: Box::new(Reply::text(text)), kind };
        let _ = self.out.send(piece, &self.cx).await;
    }

    async fn closed(
        mut self,
        task: &AgentRequest<'_>,
        ending: Ending,
        memory: Memory,
        remote: &RemoteDef,
        cx: &CallContext,
    ) -> AgentOutcome {
        let kind = match ending.status {
            AgentStatus::Finished => BotKind::FinalResponse,
            _ => BotKind::InputRequired,
        };
        let last = (!ending.text.trim().is_empty()).then(|| {
            let id: Arc<str> = cx.step("last").key.as_str().into();
            (id, Arc::<str>::from(ending.text.trim()))
        });
        let said = last.clone().map(|last| (last, kind));
        let outcome = outcome::close(task, ending, memory, remote, &self.texts, said, cx);
        // Its last words are heard once it is known that its results can be used: a failure is told in other words.
        if let Some((id, text)) = last.filter(|_| !matches!(outcome.status, AgentStatus::Failed { .. })) {
            self.show(&id, &text, kind).await;
        }
        outcome
    }
}

/// What a state means for operators.
pub(super) fn state_words(state: TaskState) -> &'static str {
    match state {
        TaskState::Failed => "its task failed",
        TaskState::Rejected => "it did not take the task",
        TaskState::Canceled => "its task was stopped",
        _ => "its task stands still",
    }
}
