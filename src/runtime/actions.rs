//! Custom actions: which class of effect they are, who runs them, and how much of the conversation they see.

use segue_engine::{
    conversation::{ActionCall, ActionOutcome, Conversation, ErrorKind, Event, EventKind, StepError, tracker},
    project::TrackerEvents,
};

use super::{
    effects::Failures,
    parts::{Action, Parts},
    stop::Scene,
};
use crate::{
    actions::{ActionRequest, ActionServer},
    cx::{Cx, Stopped},
    effect::{Arrival, Effect},
    journal::{Once, Step},
    store::StoreError,
    tools::invoke::idempotency_key,
};

/// Events read at first when those of a session are wanted; more are read until its beginning is among them.
const SESSION_GUESS: usize = 256;

/// The events of a conversation: those of earlier turns, read once when they are first wanted, and those of this turn.
#[derive(Default)]
pub(super) struct Past {
    stored: tokio::sync::OnceCell<Vec<Event>>,
}

/// Runs a custom action, once.
pub(super) async fn act(call: ActionCall, scene: &Scene<'_>, failures: &mut Failures, cx: &Cx) -> ActionOutcome {
    let Scene { parts, record, .. } = *scene;
    let journal = &record.journal;
    let cx = cx.step("action");
    let name = call.name.as_str();
    let effect = effect_of(parts, name);
    let step = Step { key: &cx.key, kind: "action", class: effect, request: name };
    let inner = cx.performing(effect);
    let done = match journal.once(step, perform(&call, scene, &inner)).await {
        Ok(Once::Performed(outcome) | Once::Replayed(outcome)) => Ok(outcome),
        Ok(Once::Unknown) => {
            let message = "it may have run before an interruption; what came of it is not known";
            let told = ActionOutcome::Failed(StepError::in_doubt("unknown", message));
            journal.settle(&cx.key, &told).await.map(|()| told)
        }
        Err(error) => Err(error),
    };
    let mut outcome = done.unwrap_or_else(|error| ActionOutcome::failed(error.to_string()));
    if let ActionOutcome::Failed(error) = &mut outcome {
        if !effect.in_doubt(Arrival::Possible) {
            // It may be repeated, or changes nothing: there is nothing to be unsure of.
            error.kind = ErrorKind::Failed;
        }
        failures.push(("R0501".into(), format!("{name}: {}: {}", error.code, error.message)));
    }
    outcome
}

/// What the author says the action does; `write` where nothing is said.
fn effect_of(parts: &Parts, name: &str) -> Effect {
    let effects = parts.project.endpoints.action_endpoint.as_ref().map(|endpoint| &endpoint.effects);
    effects.and_then(|effects| Effect::named(effects.get(name)?)).unwrap_or_default()
}

async fn perform(call: &ActionCall, scene: &Scene<'_>, cx: &Cx) -> ActionOutcome {
    let Scene { parts, conversation, past: (past, so_far), number, .. } = *scene;
    if let Some(action) = parts.actions.get(call.name.as_str()) {
        return own(&**action, conversation, cx).await;
    }
    let Some(server) = parts.action_server.as_ref().filter(|_| !parts.offline) else {
        let message = "nobody runs it: `endpoints.yml` has no `action_endpoint`, and the program registered none";
        return ActionOutcome::Failed(StepError::new("not_configured", message));
    };
    let events = match past.events(server.wants(), parts, conversation, so_far).await {
        Ok(events) => events,
        Err(error) => return ActionOutcome::failed(format!("the events of the conversation cannot be read: {error}")),
    };
    let state = tracker::state(&parts.project, conversation, events.iter().copied());
    drop(events);
    let key = idempotency_key(conversation.id.as_str(), number.0, cx);
    let request =
        ActionRequest { action: &call.name, conversation: &conversation.id, tracker: &state, idempotency_key: &key };
    served(&**server, request, cx).await
}

/// An action that the program registered.
async fn own(action: &dyn Action, conversation: &Conversation, cx: &Cx) -> ActionOutcome {
    cx.wait(action.run(conversation, cx)).await.unwrap_or_else(stopped)
}

/// Servers of others may ignore the deadline that they are given: then they are dropped.
async fn served(server: &dyn ActionServer, request: ActionRequest<'_>, cx: &Cx) -> ActionOutcome {
    cx.wait(server.run(request, cx)).await.unwrap_or_else(stopped)
}

fn stopped(stopped: Stopped) -> ActionOutcome {
    let code = match stopped {
        Stopped::DeadlinePassed => "timeout",
        Stopped::Cancelled => "cancelled",
    };
    ActionOutcome::Failed(StepError::in_doubt(code, format!("{stopped}; whether it did anything is not known")))
}

impl Past {
    /// The events that are wanted, oldest first.
    async fn events<'e>(
        &'e self,
        wants: TrackerEvents,
        parts: &Parts,
        conversation: &Conversation,
        so_far: &'e [Event],
    ) -> Result<Vec<&'e Event>, StoreError> {
        let stored = self.stored.get_or_try_init(|| read(wants, parts, conversation, so_far)).await?;
        let mut events: Vec<&Event> = stored.iter().chain(so_far).collect();
        let from = match wants {
            TrackerEvents::All => 0,
            TrackerEvents::Latest(most) => {
                let told = events.iter().enumerate().rev().filter(|(_, event)| tracker::is_told(&event.kind));
                told.map(|(at, _)| at).take(most).last().unwrap_or(events.len())
            }
            TrackerEvents::Session => session_start(events.iter().copied()).unwrap_or(0),
        };
        events.drain(..from);
        Ok(events)
    }
}

/// Reads as many stored events as are wanted.
async fn read(
    wants: TrackerEvents,
    parts: &Parts,
    conversation: &Conversation,
    so_far: &[Event],
) -> Result<Vec<Event>, StoreError> {
    let store = &parts.store;
    match wants {
        TrackerEvents::All => store.latest_events(&conversation.id, usize::MAX).await,
        // Some of them have no form in the tracker format: fewer than every second.
        TrackerEvents::Latest(most) => store.latest_events(&conversation.id, most.saturating_mul(2)).await,
        TrackerEvents::Session if session_start(so_far.iter()).is_some() => Ok(Vec::new()),
        TrackerEvents::Session => {
            let mut most = SESSION_GUESS;
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

/// Where the newest session begins: at its action, which stands right before `session_started`.
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
