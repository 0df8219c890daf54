//! Custom actions: their effect class, who runs them, and which events they receive.

use segue_engine::{
    conversation::{ActionCall, ActionOutcome, Conversation, ErrorKind, Event, EventKind, StepError, tracker},
    dialogue::InputKind,
    project::TrackerEvents,
};

use super::{EffectHandler, EffectOutput};
use crate::{
    actions::ActionRequest,
    context::{CallContext, WaitError},
    effect::{Arrival, EffectClass},
    journal::{Step, StepResult},
    runtime::{project_runtime::ProjectRuntime, turn::TurnContext},
    store::StoreError,
    tools::invoke::idempotency_key,
};

/// Number of events to read first when those of a session are needed. More are read until the start of the session is among them.
const SESSION_FIRST_READ: usize = 256;

/// The events of a conversation: those of earlier turns, read on first use, and those of this turn.
#[derive(Default)]
pub(in crate::runtime) struct EventHistory {
    stored: tokio::sync::OnceCell<Vec<Event>>,
}

/// Handles [`Next::Act`](segue_engine::dialogue::Next::Act).
pub(super) struct RunAction;

impl EffectHandler for RunAction {
    type Effect = ActionCall;
    const INTERRUPTIBLE: bool = false;

    async fn perform(
        call: ActionCall,
        turn: &TurnContext<'_>,
        out: &mut EffectOutput<'_, '_>,
        cx: &CallContext,
    ) -> InputKind {
        let outcome = run_action(&call, turn, cx).await;
        if let ActionOutcome::Failed(error) = &outcome {
            out.failures.push(("R0501".into(), format!("{}: {}: {}", call.name, error.code, error.message)));
        }
        InputKind::ActionOutcome(outcome)
    }
}

/// Runs a custom action, once.
async fn run_action(call: &ActionCall, turn: &TurnContext<'_>, cx: &CallContext) -> ActionOutcome {
    let TurnContext { runtime, record, .. } = *turn;
    let journal = &record.journal;
    let cx = cx.step("action");
    let name = call.name.as_str();
    let effect = effect_class(runtime, name);
    let step = Step { key: &cx.key, kind: "action", class: effect, request: name };
    let inner = cx.for_effect(effect);
    let done = match journal.once(step, dispatch(call, turn, &inner)).await {
        Ok(StepResult::Performed(outcome) | StepResult::Replayed(outcome)) => Ok(outcome),
        Ok(StepResult::Unknown) => {
            let message = "it may have run before an interruption; its outcome is unknown";
            let outcome = ActionOutcome::Failed(StepError::in_doubt("unknown", message));
            journal.record_outcome(&cx.key, &outcome).await.map(|()| outcome)
        }
        Err(error) => Err(error),
    };
    let mut outcome = done.unwrap_or_else(|error| ActionOutcome::failed(error.to_string()));
    if let ActionOutcome::Failed(error) = &mut outcome
        && !effect.in_doubt(Arrival::Possible)
    {
        // A read or idempotent action can be repeated, so it is not in doubt.
        error.kind = ErrorKind::Failed;
    }
    outcome
}

/// The effect class that the project declares for an action; `write` without a declaration.
fn effect_class(runtime: &ProjectRuntime, name: &str) -> EffectClass {
    let effects = runtime.project.endpoints.action_endpoint.as_ref().map(|endpoint| &endpoint.effects);
    effects.and_then(|effects| EffectClass::from_name(effects.get(name)?)).unwrap_or_default()
}

async fn dispatch(call: &ActionCall, turn: &TurnContext<'_>, cx: &CallContext) -> ActionOutcome {
    let TurnContext { runtime, conversation, history, events: so_far, number, .. } = *turn;
    if let Some(action) = runtime.actions.get(call.name.as_str()) {
        return cx.wait(action.run(conversation, cx)).await.unwrap_or_else(stopped_outcome);
    }
    let Some(server) = runtime.action_server.as_ref().filter(|_| !runtime.offline) else {
        let message = "no program runs it: `endpoints.yml` has no `action_endpoint`, and no action is registered";
        return ActionOutcome::Failed(StepError::new("not_configured", message));
    };
    let events = match history.events(server.tracker_events(), runtime, conversation, so_far).await {
        Ok(events) => events,
        Err(error) => return ActionOutcome::failed(format!("the events of the conversation cannot be read: {error}")),
    };
    let state = tracker::state(&runtime.project, conversation, events.iter().copied());
    drop(events);
    let key = idempotency_key(conversation.id.as_str(), number.0, cx);
    let request =
        ActionRequest { action: &call.name, conversation: &conversation.id, tracker: &state, idempotency_key: &key };
    // A server may ignore the deadline of the request, so the wait for it has the same deadline.
    cx.wait(server.run(request, cx)).await.unwrap_or_else(stopped_outcome)
}

fn stopped_outcome(error: WaitError) -> ActionOutcome {
    let code = match error {
        WaitError::DeadlinePassed => "timeout",
        WaitError::Cancelled => "cancelled",
    };
    ActionOutcome::Failed(StepError::in_doubt(code, format!("{error}; whether it did anything is not known")))
}

impl EventHistory {
    /// The requested events, oldest first.
    async fn events<'e>(
        &'e self,
        wanted: TrackerEvents,
        runtime: &ProjectRuntime,
        conversation: &Conversation,
        so_far: &'e [Event],
    ) -> Result<Vec<&'e Event>, StoreError> {
        let stored = self.stored.get_or_try_init(|| read_events(wanted, runtime, conversation, so_far)).await?;
        let mut events: Vec<&Event> = stored.iter().chain(so_far).collect();
        let from = match wanted {
            TrackerEvents::All => 0,
            TrackerEvents::Latest(most) => {
                let exported = events.iter().enumerate().rev().filter(|(_, event)| tracker::is_exported(&event.kind));
                exported.map(|(at, _)| at).take(most).last().unwrap_or(events.len())
            }
            TrackerEvents::Session => session_start(events.iter().copied()).unwrap_or(0),
        };
        events.drain(..from);
        Ok(events)
    }
}

/// Reads the stored events that are needed.
async fn read_events(
    wanted: TrackerEvents,
    runtime: &ProjectRuntime,
    conversation: &Conversation,
    so_far: &[Event],
) -> Result<Vec<Event>, StoreError> {
    let store = &runtime.store;
    match wanted {
        TrackerEvents::All => store.latest_events(&conversation.id, usize::MAX).await,
        // Some events have no form in the tracker format: fewer than half.
        TrackerEvents::Latest(most) => store.latest_events(&conversation.id, most.saturating_mul(2)).await,
        TrackerEvents::Session if session_start(so_far.iter()).is_some() => Ok(Vec::new()),
        TrackerEvents::Session => {
            let mut most = SESSION_FIRST_READ;
            loop {
                let events = store.latest_events(&conversation.id, most).await?;
                if events.len() < most || session_start(events.iter()).is_some_and(|at| at > 0) {
                    return Ok(events);
                }
                most = most.saturating_mul(8);
            }
        }
    }
}

/// The index at which the newest session begins: that of its action, directly before `session_started`.
fn session_start<'e>(events: impl DoubleEndedIterator<Item = &'e Event> + ExactSizeIterator) -> Option<usize> {
    let mut events = events.enumerate().rev();
    let (at, _) = events.find(|(_, event)| matches!(event.kind, EventKind::SessionStarted))?;
    match events.next() {
        Some((before, Event { kind: EventKind::Action { name }, .. })) if *name == *"action_session_start" => {
            Some(before)
        }
        _ => Some(at),
    }
}
