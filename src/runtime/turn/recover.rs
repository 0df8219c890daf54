//! What a try of a turn inherits from one that broke off in the middle: replies that were half shown, and, when it was another version
//! or asks for something else than was recorded, what its effects had come to.
//!
//! The part that is recorded runs with exactly what the earlier try had: the same conversation, the same clock, the same way of
//! speaking. What the interruption adds comes after it, and is recorded in the turn, so that a replay tells the same.

use std::{collections::BTreeMap, sync::Arc};

use segue_engine::{
    conversation::{ActionOutcome, EventKind, StepError, tracker},
    ids::{ActionName, ToolName},
    time::Timestamp,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use super::{Interruption, TurnRecord};
use crate::{
    context::{CallContext, StepKey},
    effect::EffectClass,
    journal::{RecordedToolCall, Step},
    store::{JournalRecord, REPLY_ANNOUNCED, TurnNumber, announced_replies},
    tools::ToolOutcome,
};

/// The steps that record takeovers; each has a number of its own behind it.
const TAKEOVER: &str = "takeover";
/// The steps of what runs after a takeover that decided nothing again; each has the number of its takeover behind it.
const AGAIN: &str = "again";
/// The step that records that the turn was given up.
const GIVEN_UP: &str = "given_up";
/// The step that recorded replies interruption by a crash, in older records.
const INTERRUPTED: &str = "interrupted";
/// The step that recorded what another version's effects had come to, in older records.
const UPGRADED: &str = "upgraded";
/// The step that records where the turn was stopped.
const INTERRUPTION: &str = "interruption";

/// One takeover of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::runtime) struct Takeover {
    /// The step under which it is recorded.
    #[serde(skip)]
    step: Arc<str>,
    /// The first effect that the try before had not begun: what the takeover adds comes before it.
    pub(in crate::runtime) before: u64,
    /// Replies that had begun to be shown and are not known as a whole.
    pub(in crate::runtime) interrupted: Vec<Arc<str>>,
    /// Whether replies were shown in pieces until then.
    pub(in crate::runtime) showed: bool,
    /// Whether they are from then on.
    pub(in crate::runtime) shows: bool,
    /// What the effects had come to, where nothing is decided again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::runtime) upgraded: Option<Vec<EventKind>>,
}

/// What an earlier try left of a turn.
pub(in crate::runtime) struct RecoveredTurn {
    /// Where the keys of its steps begin.
    pub(in crate::runtime) root: StepKey,
    /// What was added to it each time it was taken over, oldest first.
    pub(in crate::runtime) takeovers: Vec<Takeover>,
    /// Where it was stopped, if it was.
    pub(in crate::runtime) interruption: Option<Box<Interruption>>,
}

impl RecoveredTurn {
    /// That of a turn that nobody has tried.
    pub(in crate::runtime) fn none(turn: TurnNumber) -> Self {
        Self { root: StepKey::new(turn.0.to_string()), takeovers: Vec::new(), interruption: None }
    }
}

/// What is left of a turn that is given up, and recorded with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::runtime) struct LeftBehind {
    /// What its effects had come to, and the replies that were half shown.
    pub(in crate::runtime) outcomes: Vec<EventKind>,
    /// Whether something may have been done.
    pub(in crate::runtime) acted: bool,
}

/// How a try of a turn comes to follow another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum After {
    /// The caller is gone, and so may be its process.
    Interruption,
    /// The store did not take the other one; the caller still listens.
    Failure,
    /// The other one asked for something else than is recorded: nothing of the record runs again.
    Misfit,
}

/// What the records of earlier tries leave to one of `build`; `shows`: whether it shows replies in pieces.
pub(in crate::runtime) fn recover(
    build: u64,
    turn: TurnNumber,
    recorded: &[JournalRecord],
    shows: bool,
    after: After,
) -> RecoveredTurn {
    let mut takeovers = takeovers(recorded);
    let root = root(turn, &takeovers);
    let steps: Vec<&JournalRecord> = recorded.iter().filter(|record| effect_of(&root, record).is_some()).collect();
    let told = |id: &Arc<str>| takeovers.iter().any(|takeover| takeover.interrupted.contains(id));
    let spoken = recorded.iter().filter(|record| &*record.kind == REPLY_ANNOUNCED && !told(&record.request));
    let spoken: Vec<&JournalRecord> = spoken.collect();
    let interruption =
        recorded.iter().find(|record| &*record.kind == INTERRUPTION && record.key == root.child(INTERRUPTION));
    let foreign = steps.iter().chain(&spoken).copied().chain(interruption).any(|record| record.build != build);
    let upgraded = (foreign || after == After::Misfit).then(|| outcomes(recorded));
    // The words of an answer that is recorded are said again as they were.
    let whole = |id: &str| steps.iter().any(|record| record.key.as_str() == id && record.outcome.is_some());
    let last = steps.iter().filter_map(|record| effect_of(&root, record)).max();
    let interruption = interruption.filter(|_| upgraded.is_none()).and_then(outcome);
    let interrupted = spoken.iter().map(|record| record.request.clone());
    let takeover = Takeover {
        step: format!("{TAKEOVER}.{}", 1 + recorded.iter().filter(|record| &*record.kind == TAKEOVER).count()).into(),
        before: last.filter(|_| upgraded.is_none()).map_or(0, |last| last + 1),
        interrupted: interrupted.filter(|id| upgraded.is_some() || !whole(id)).collect(),
        showed: takeovers.last().map_or(!spoken.is_empty(), |last| last.shows),
        shows,
        upgraded,
    };
    let began = !steps.is_empty() || !spoken.is_empty();
    let adds = !takeover.interrupted.is_empty() || (began && takeover.showed != shows);
    if takeover.upgraded.is_some() {
        takeovers = vec![takeover];
    } else if after == After::Interruption && adds {
        takeovers.push(takeover);
    }
    RecoveredTurn { root: self::root(turn, &takeovers), takeovers, interruption }
}

/// What a stored turn had inherited.
pub(in crate::runtime) fn recovered_from_record(turn: TurnNumber, stored: &[JournalRecord]) -> RecoveredTurn {
    let takeovers = takeovers(stored);
    let root = root(turn, &takeovers);
    let interruption =
        stored.iter().find(|record| &*record.kind == INTERRUPTION && record.key == root.child(INTERRUPTION));
    RecoveredTurn { interruption: interruption.and_then(outcome), root, takeovers }
}

/// What a try that is given up leaves, of all that the records tell.
pub(in crate::runtime) fn left_behind(recorded: &[JournalRecord]) -> LeftBehind {
    let outcomes = outcomes(recorded);
    let failed = |event: &EventKind| match event {
        EventKind::ToolExecuted { status, .. } => &**status == "failed",
        EventKind::ActionFailed { error, .. } => !error.may_have_run,
        EventKind::ActionExecutionRejected { .. } => true,
        _ => false,
    };
    let acted = !outcomes.iter().all(failed);
    let shown = announced_replies(recorded).map(ToString::to_string);
    let interrupted = shown.map(|reply_id| EventKind::ReplyInterrupted { reply_id });
    LeftBehind { acted, outcomes: interrupted.chain(outcomes).collect() }
}

/// What was recorded of a turn that was given up.
pub(in crate::runtime) fn recorded_give_up(stored: &[JournalRecord]) -> Option<LeftBehind> {
    stored.iter().find(|record| &*record.kind == GIVEN_UP).and_then(outcome)
}

/// The record of a turn that is given up. It is stored with the turn and never before: a turn that was not given up after all has none.
pub(in crate::runtime) fn give_up_record(
    turn: TurnNumber,
    given_up: &LeftBehind,
    at: Timestamp,
    build: u64,
) -> JournalRecord {
    let outcome = serde_json::to_string(given_up).unwrap_or_else(|_| "null".into());
    let key = StepKey::new(turn.0.to_string()).child(GIVEN_UP);
    JournalRecord { key, kind: GIVEN_UP.into(), request: "".into(), outcome: Some(outcome.into()), at, build }
}

/// Records where the turn is stopped.
pub(in crate::runtime) async fn record_interruption(
    interruption: &Interruption,
    record: &TurnRecord,
    cx: &CallContext,
) {
    record_step(&cx.key.child(INTERRUPTION), INTERRUPTION, interruption, record).await;
}

impl Takeover {
    /// Records it; the turn's clock moves on to its time, in a replay too.
    pub(in crate::runtime) async fn record(&self, turn: TurnNumber, record: &TurnRecord) {
        let key = StepKey::new(turn.0.to_string()).child(&self.step);
        record_step(&key, TAKEOVER, self, record).await;
    }
}

/// Records what this try of the turn found out; what an earlier one recorded stays.
async fn record_step<T: Clone + Serialize + DeserializeOwned>(
    key: &StepKey,
    kind: &str,
    what: &T,
    record: &TurnRecord,
) {
    let step = Step { key, kind, class: EffectClass::Read, request: "" };
    // A journal that fails here fails the turn: it has told its observer.
    let _ = record.journal.once(step, async { what.clone() }).await;
}

/// The takeovers that count, oldest first: after one that decided nothing again, those before it are over.
fn takeovers(recorded: &[JournalRecord]) -> Vec<Takeover> {
    let mut found: Vec<(u64, Takeover)> = Vec::new();
    for record in recorded {
        // Older records have one of each kind, at the beginning of the turn.
        let takeover = match &*record.kind {
            TAKEOVER => outcome::<Takeover>(record),
            INTERRUPTED => outcome(record).map(|interrupted| Takeover { interrupted, ..Takeover::default() }),
            UPGRADED => outcome(record).map(|outcomes| Takeover { upgraded: Some(outcomes), ..Takeover::default() }),
            _ => None,
        };
        let step: Arc<str> = record.key.as_str().rsplit('/').next().unwrap_or_default().into();
        let number = step.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        found.extend(takeover.map(|takeover| (number, Takeover { step, ..takeover })));
    }
    // Of the older ones the replies came first.
    found.sort_by_key(|(number, takeover)| (*number, takeover.upgraded.is_some()));
    let last = found.iter().rposition(|(number, takeover)| *number > 0 && takeover.upgraded.is_some());
    found.drain(..last.unwrap_or(0));
    found.into_iter().map(|(_, takeover)| takeover).collect()
}

/// Where the keys of the turn's steps begin. What runs after a takeover that decided nothing again has keys of its own, so that no
/// record of before answers it.
fn root(turn: TurnNumber, takeovers: &[Takeover]) -> StepKey {
    let root = StepKey::new(turn.0.to_string());
    let again = takeovers.first().filter(|takeover| takeover.upgraded.is_some());
    let number = again.and_then(|takeover| takeover.step.strip_prefix(TAKEOVER)?.strip_prefix('.'));
    number.map_or_else(|| root.clone(), |number| root.child(format_args!("{AGAIN}.{number}")))
}

/// The effect that a record belongs to; `None` for those that stand beside the walk, and for those of another beginning.
fn effect_of(root: &StepKey, record: &JournalRecord) -> Option<u64> {
    let key = record.key.as_str().strip_prefix(root.as_str())?.strip_prefix('/')?;
    key.split('/').next()?.parse().ok()
}

fn outcome<T: DeserializeOwned>(record: &JournalRecord) -> Option<T> {
    serde_json::from_str(record.outcome.as_deref()?).ok()
}

/// Tool calls and actions as events: a finished one with its outcome, a `write` without one as unknown.
fn outcomes(recorded: &[JournalRecord]) -> Vec<EventKind> {
    let is_call = |record: &&JournalRecord| matches!(&*record.kind, "tool" | "action");
    let calls: BTreeMap<_, _> = recorded.iter().filter(is_call).map(|record| (&record.key, record)).collect();
    let events =
        |record: &JournalRecord| if &*record.kind == "tool" { vec![tool_event(record)] } else { action_events(record) };
    calls.into_values().flat_map(events).collect()
}

/// An action that ran keeps the values that it set; nothing else of it can be carried into another version.
fn action_events(record: &JournalRecord) -> Vec<EventKind> {
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
        Some(ActionOutcome::ServerResponse(answer)) => {
            answer.events.into_iter().filter_map(|fields| tracker::parse_event(fields, &name)).collect::<Vec<_>>()
        }
    };
    let slots = kinds.into_iter().filter(|kind| matches!(kind, EventKind::Slot { .. }));
    std::iter::once(EventKind::Action { name: name.clone() }).chain(slots).collect()
}

fn tool_event(record: &JournalRecord) -> EventKind {
    let recorded: Option<RecordedToolCall> = record.outcome.as_deref().and_then(|text| serde_json::from_str(text).ok());
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
