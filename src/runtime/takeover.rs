//! What a process inherits from one that died in the middle of a turn: replies that were half shown, and, when it was another
//! version, what its effects had come to. Both are recorded in the turn that takes over, so that a replay tells the same.

use std::{collections::BTreeMap, sync::Arc};

use segue_engine::{
    conversation::{ActionOutcome, EventKind, StepError, tracker},
    ids::{ActionName, ToolName},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use super::{news::RecordedCall, recorded::Door, stop::Cut, turn::Inheritance};
use crate::{
    cx::Cx,
    effect::Effect,
    store::{JournalRecord, TurnJournal},
    tools::ToolOutcome,
};

/// The step that records replies cut by a crash.
const INTERRUPTED: &str = "interrupted";
/// The step that records what another version's effects had come to.
const UPGRADED: &str = "upgraded";
/// The step that records where the turn was stopped.
const CUT: &str = "cut";

/// What the record of a dead process leaves to `build`.
pub(super) fn inherit(build: u64, recorded: &[JournalRecord]) -> Inheritance {
    // A turn that was taken over once already keeps what it inherited then.
    let upgraded = remembered(recorded, UPGRADED);
    let foreign = TurnJournal::is_foreign(build, recorded);
    Inheritance {
        interrupted: remembered(recorded, INTERRUPTED)
            .unwrap_or_else(|| TurnJournal::spoken(recorded).cloned().collect()),
        upgraded: upgraded.or_else(|| foreign.then(|| outcomes(recorded))),
        cut: remembered(recorded, CUT).filter(|_| !foreign),
    }
}

/// What a stored turn had inherited.
pub(super) fn inherited(stored: &[JournalRecord]) -> Inheritance {
    Inheritance {
        interrupted: remembered(stored, INTERRUPTED).unwrap_or_default(),
        upgraded: remembered(stored, UPGRADED),
        cut: remembered(stored, CUT),
    }
}

/// Records where the turn is stopped.
pub(super) async fn note_cut(cut: &Cut, door: &Door, cx: &Cx) {
    keep(CUT, cut, door, &cx.sheltered()).await;
}

/// Records what is inherited; only a turn that inherits anything has such steps. As when it was recorded, a replay moves the
/// turn's clock to the time of the takeover here.
pub(super) async fn note(inheritance: &Inheritance, door: &Door, cx: &Cx) {
    // Boxed: hardly any turn is inherited.
    if !inheritance.interrupted.is_empty() {
        Box::pin(keep(INTERRUPTED, &inheritance.interrupted, door, cx)).await;
    }
    if let Some(outcomes) = &inheritance.upgraded {
        Box::pin(keep(UPGRADED, outcomes, door, cx)).await;
    }
}

async fn keep<T: Serialize>(kind: &str, what: &T, door: &Door, cx: &Cx) {
    let cx = cx.step(kind);
    if let Ok(None) = door.begin::<Json>(&cx, kind, Effect::Read, "").await {
        let _ = door.finish(&cx, what).await;
    }
}

fn remembered<T: DeserializeOwned>(records: &[JournalRecord], kind: &str) -> Option<T> {
    let record = records.iter().find(|record| &*record.kind == kind)?;
    serde_json::from_str(record.outcome.as_deref()?).ok()
}

/// Tool calls and actions as events: a finished one with its outcome, a `write` without one as unknown.
fn outcomes(recorded: &[JournalRecord]) -> Vec<EventKind> {
    let is_call = |record: &&JournalRecord| matches!(&*record.kind, "tool" | "action");
    let calls: BTreeMap<_, _> = recorded.iter().filter(is_call).map(|record| (&record.key, record)).collect();
    let events = |record: &JournalRecord| if &*record.kind == "tool" { vec![executed(record)] } else { acted(record) };
    calls.into_values().flat_map(events).collect()
}

/// An action that ran keeps the values that it set; nothing else of it can be carried into another version.
fn acted(record: &JournalRecord) -> Vec<EventKind> {
    let name = ActionName::from(&*record.request);
    let outcome = record.outcome.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let kinds = match outcome {
        None => {
            let error = StepError::in_doubt("unknown", "it may have run before the program or the project changed");
            return vec![EventKind::ActionFailed { name, error }];
        }
        Some(ActionOutcome::Failed(error)) => return vec![EventKind::ActionFailed { name, error }],
        Some(ActionOutcome::Rejected { .. }) => return vec![EventKind::ActionExecutionRejected { name }],
        Some(ActionOutcome::Done { events }) => events.into_iter().map(|event| event.kind).collect(),
        Some(ActionOutcome::Answered(answer)) => {
            answer.events.into_iter().filter_map(|fields| tracker::read(fields, &name)).collect::<Vec<_>>()
        }
    };
    let slots = kinds.into_iter().filter(|kind| matches!(kind, EventKind::Slot { .. }));
    std::iter::once(EventKind::Action { name: name.clone() }).chain(slots).collect()
}

fn executed(record: &JournalRecord) -> EventKind {
    let recorded: Option<RecordedCall> = record.outcome.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let outcome = recorded.map(|recorded| recorded.outcome);
    let status = match &outcome {
        Some(ToolOutcome::Done(_)) => "done",
        Some(ToolOutcome::Failed(_)) => "failed",
        Some(ToolOutcome::Pending(_)) => "pending",
        Some(ToolOutcome::Unknown(_)) | None => "unknown",
    };
    let name: Arc<str> = record.request.split(':').next().unwrap_or_default().into();
    EventKind::ToolExecuted {
        server: None,
        tool_name: ToolName::new(name),
        agent_id: None,
        arguments: Json::Null,
        status: status.into(),
        summary: outcome.as_ref().map(ToolOutcome::for_model),
        origins: Default::default(),
    }
}
