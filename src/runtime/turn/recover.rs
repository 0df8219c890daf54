//! Recovery of a turn that was interrupted by a crash, a store failure or a changed request. It finds replies whose stream was
//! interrupted. If the records come from another build, or do not match the requests, it also collects the outcomes of the effects.
//!
//! The recorded part of a turn runs under the conditions of the earlier attempt: the same conversation, clock and streaming. What the
//! recovery adds comes after it, and is recorded in the turn, so that a replay gives the same events.

use std::sync::Arc;

use segue_engine::{
    conversation::{ActionOutcome, EventKind, StepError, tracker},
    ids::{ActionName, AgentName, ToolName},
    time::Timestamp,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use super::{Interruption, TurnRecord};
use crate::{
    context::{CallContext, StepKey},
    delegation,
    effect::EffectClass,
    journal::{JournaledTool, RecordedToolCall, Step, StepStatus, recorded_response},
    llm::ToolCall,
    store::{JournalRecord, REPLY_ANNOUNCED, TurnNumber, announced_replies},
    tools::ToolOutcome,
};

/// Kind and first part of the steps that record recoveries; followed by a dot and a number.
const STEP_RECOVERY: &str = "takeover";
/// First part of the steps that run after a recovery which kept only outcomes; followed by a dot and the number of that recovery.
const STEP_RERUN: &str = "again";
/// The step that records that the turn was given up.
const STEP_GIVEN_UP: &str = "given_up";
/// Kind of the step that records replies interrupted by a crash, in records of earlier versions.
const LEGACY_INTERRUPTED: &str = "interrupted";
/// Kind of the step that records the outcomes of another build, in records of earlier versions.
const LEGACY_OUTCOMES: &str = "upgraded";
/// The step that records where the turn was interrupted.
const STEP_INTERRUPTION: &str = "interruption";
/// The step that records that the message was written before its sender got the open question.
const STEP_BEFORE_QUESTION: &str = "before_question";

/// One recovery of a turn: what the next attempt adds to the turn because the one before it did not end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::runtime) struct Recovery {
    /// The key of its step.
    #[serde(skip)]
    step: Arc<str>,
    /// The number of the first effect that the attempt before had not begun. The recovery is applied before it.
    #[serde(rename = "before")]
    pub(in crate::runtime) before_effect: u64,
    /// Ids of replies whose stream had begun and whose full text is not recorded.
    #[serde(rename = "interrupted")]
    pub(in crate::runtime) interrupted_replies: Vec<Arc<str>>,
    /// Whether replies were streamed before it.
    #[serde(rename = "showed")]
    pub(in crate::runtime) streamed_before: bool,
    /// Whether replies are streamed after it.
    #[serde(rename = "shows")]
    pub(in crate::runtime) streams: bool,
    /// If set, no record is replayed: the turn starts again, and the engine gets these outcomes of its effects.
    #[serde(rename = "upgraded", default, skip_serializing_if = "Option::is_none")]
    pub(in crate::runtime) outcomes: Option<Vec<EventKind>>,
}

/// What the attempts before have recorded of a turn.
pub(in crate::runtime) struct RecoveredTurn {
    /// Prefix of the keys of its steps.
    pub(in crate::runtime) root: StepKey,
    /// The recoveries, oldest first.
    pub(in crate::runtime) recoveries: Vec<Recovery>,
    /// Where the turn was interrupted, if it was.
    pub(in crate::runtime) interruption: Option<Box<Interruption>>,
}

impl RecoveredTurn {
    /// The first attempt of a turn.
    pub(in crate::runtime) fn none(turn: TurnNumber) -> Self {
        Self { root: StepKey::new(turn.0.to_string()), recoveries: Vec::new(), interruption: None }
    }
}

/// What is recorded and shown of a turn that is given up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::runtime) struct GiveUp {
    /// The outcomes of its effects, and the replies whose stream was interrupted.
    pub(in crate::runtime) outcomes: Vec<EventKind>,
    /// Whether an effect may have happened.
    #[serde(rename = "acted")]
    pub(in crate::runtime) may_have_acted: bool,
}

/// Why a turn is attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum RetryReason {
    /// The turn was found open in the store: the process of the last attempt may have died.
    FoundOpen,
    /// The store failed at the commit; the caller is still connected.
    StoreFailure,
    /// The last attempt made a request that differs from the recorded one: no record is replayed.
    RequestChanged,
}

/// Prepares another attempt from the records of the earlier ones. `build` is the hash of this build; `streams` is whether this attempt
/// streams replies.
pub(in crate::runtime) fn recover(
    build: u64,
    turn: TurnNumber,
    recorded: &[JournalRecord],
    streams: bool,
    retry_reason: RetryReason,
) -> RecoveredTurn {
    let mut recoveries = recoveries(recorded);
    let root = root(turn, &recoveries);
    let steps: Vec<&JournalRecord> = recorded.iter().filter(|record| effect_number(&root, record).is_some()).collect();
    let is_recorded = |id: &Arc<str>| recoveries.iter().any(|recovery| recovery.interrupted_replies.contains(id));
    let announced = recorded.iter().filter(|record| &*record.kind == REPLY_ANNOUNCED && !is_recorded(&record.request));
    let announced: Vec<&JournalRecord> = announced.collect();
    let interruption = find_interruption(&root, recorded);
    let is_other_build =
        steps.iter().chain(&announced).copied().chain(interruption).any(|record| record.build != build);
    let outcomes = (is_other_build || retry_reason == RetryReason::RequestChanged).then(|| outcomes(recorded));
    // A recorded response is replayed in full, so its reply is not interrupted.
    let is_complete = |id: &str| steps.iter().any(|record| record.key.as_str() == id && record.outcome.is_some());
    let last = steps.iter().filter_map(|record| effect_number(&root, record)).max();
    let interruption = interruption.filter(|_| outcomes.is_none()).and_then(outcome);
    let interrupted = announced.iter().map(|record| record.request.clone());
    let recovery = Recovery {
        step: format!(
            "{STEP_RECOVERY}.{}",
            1 + recorded.iter().filter(|record| &*record.kind == STEP_RECOVERY).count()
        )
        .into(),
        before_effect: last.filter(|_| outcomes.is_none()).map_or(0, |last| last + 1),
        interrupted_replies: interrupted.filter(|id| outcomes.is_some() || !is_complete(id)).collect(),
        streamed_before: recoveries.last().map_or(!announced.is_empty(), |last| last.streams),
        streams,
        outcomes,
    };
    let has_begun = !steps.is_empty() || !announced.is_empty();
    let has_additions = !recovery.interrupted_replies.is_empty() || (has_begun && recovery.streamed_before != streams);
    if recovery.outcomes.is_some() {
        recoveries = vec![recovery];
    } else if retry_reason == RetryReason::FoundOpen && has_additions {
        recoveries.push(recovery);
    }
    RecoveredTurn { root: self::root(turn, &recoveries), recoveries, interruption }
}

/// The recoveries and the interruption of a stored turn.
pub(in crate::runtime) fn recovered_from_record(turn: TurnNumber, stored: &[JournalRecord]) -> RecoveredTurn {
    let recoveries = recoveries(stored);
    let root = root(turn, &recoveries);
    RecoveredTurn { interruption: find_interruption(&root, stored).and_then(outcome), root, recoveries }
}

fn find_interruption<'a>(root: &StepKey, records: &'a [JournalRecord]) -> Option<&'a JournalRecord> {
    let key = root.child(STEP_INTERRUPTION);
    records.iter().find(|record| &*record.kind == STEP_INTERRUPTION && record.key == key)
}

/// Collects the outcomes of a turn that is given up.
pub(in crate::runtime) fn give_up_outcomes(recorded: &[JournalRecord]) -> GiveUp {
    let outcomes = outcomes(recorded);
    let failed = |event: &EventKind| match event {
        EventKind::ToolExecuted { status, writes, .. } => &**status == "failed" && writes.is_empty(),
        EventKind::ActionFailed { error, .. } => !error.may_have_run,
        EventKind::ActionExecutionRejected { .. } => true,
        _ => false,
    };
    let may_have_acted = !outcomes.iter().all(failed);
    let shown = announced_replies(recorded).map(ToString::to_string);
    let interrupted = shown.map(|reply_id| EventKind::ReplyInterrupted { reply_id });
    GiveUp { may_have_acted, outcomes: interrupted.chain(outcomes).collect() }
}

/// The record of a stored turn that was given up.
pub(in crate::runtime) fn recorded_give_up(stored: &[JournalRecord]) -> Option<GiveUp> {
    stored.iter().find(|record| &*record.kind == STEP_GIVEN_UP).and_then(outcome)
}

/// The journal record of a turn that is given up. It is stored in the commit of the turn, never before: another attempt may succeed.
pub(in crate::runtime) fn give_up_journal_record(
    turn: TurnNumber,
    given_up: &GiveUp,
    at: Timestamp,
    build: u64,
) -> JournalRecord {
    let outcome = serde_json::to_string(given_up).unwrap_or_else(|_| "null".into());
    let key = StepKey::new(turn.0.to_string()).child(STEP_GIVEN_UP);
    JournalRecord { key, kind: STEP_GIVEN_UP.into(), request: "".into(), outcome: Some(outcome.into()), at, build }
}

/// Whether the message of the turn was written before its sender got the open question, as the turn has recorded it: a replay cannot
/// know what was delivered.
pub(in crate::runtime) async fn is_before_question(turn: TurnNumber, is_it: bool, record: &TurnRecord) -> bool {
    let key = StepKey::new(turn.0.to_string()).child(STEP_BEFORE_QUESTION);
    let step = Step { key: &key, kind: STEP_BEFORE_QUESTION, class: EffectClass::Read, request: "" };
    let is_recorded = record.journal.status(step) == StepStatus::Done;
    if is_it && !is_recorded {
        record_step(&key, STEP_BEFORE_QUESTION, &true, record).await;
    }
    is_it || is_recorded
}

/// Records where the turn is interrupted.
pub(in crate::runtime) async fn record_interruption(
    interruption: &Interruption,
    record: &TurnRecord,
    cx: &CallContext,
) {
    record_step(&cx.key.child(STEP_INTERRUPTION), STEP_INTERRUPTION, interruption, record).await;
}

impl Recovery {
    /// Records it. The turn's clock advances to the time of the record, also in a replay.
    pub(in crate::runtime) async fn record(&self, turn: TurnNumber, record: &TurnRecord) {
        let key = StepKey::new(turn.0.to_string()).child(&self.step);
        record_step(&key, STEP_RECOVERY, self, record).await;
    }
}

/// Records a step of this attempt; an existing record of the step stays.
async fn record_step<T: Clone + Serialize + DeserializeOwned>(
    key: &StepKey,
    kind: &str,
    value: &T,
    record: &TurnRecord,
) {
    let step = Step { key, kind, class: EffectClass::Read, request: "" };
    // If the journal fails, it reports the error to its observer, and the attempt fails.
    let _ = record.journal.once(step, async { value.clone() }).await;
}

/// The recoveries that apply, oldest first. The newest one that kept only outcomes replaces all before it.
fn recoveries(recorded: &[JournalRecord]) -> Vec<Recovery> {
    let mut found: Vec<(u64, Recovery)> = Vec::new();
    for record in recorded {
        // Records of earlier versions have at most one of each legacy kind, at the start of the turn.
        let recovery = match &*record.kind {
            STEP_RECOVERY => outcome::<Recovery>(record),
            LEGACY_INTERRUPTED => {
                outcome(record).map(|interrupted_replies| Recovery { interrupted_replies, ..Recovery::default() })
            }
            LEGACY_OUTCOMES => {
                outcome(record).map(|outcomes| Recovery { outcomes: Some(outcomes), ..Recovery::default() })
            }
            _ => None,
        };
        let step: Arc<str> = record.key.as_str().rsplit('/').next().unwrap_or_default().into();
        let number = step.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        found.extend(recovery.map(|recovery| (number, Recovery { step, ..recovery })));
    }
    // Among legacy records the interrupted replies come first.
    found.sort_by_key(|(number, recovery)| (*number, recovery.outcomes.is_some()));
    let last = found.iter().rposition(|(number, recovery)| *number > 0 && recovery.outcomes.is_some());
    found.drain(..last.unwrap_or(0));
    found.into_iter().map(|(_, recovery)| recovery).collect()
}

/// Prefix of the keys of the turn's steps. After a recovery that kept only outcomes the prefix is a new one, so that no earlier record
/// is replayed.
fn root(turn: TurnNumber, recoveries: &[Recovery]) -> StepKey {
    let root = StepKey::new(turn.0.to_string());
    let rerun = recoveries.first().filter(|recovery| recovery.outcomes.is_some());
    let number = rerun.and_then(|recovery| recovery.step.strip_prefix(STEP_RECOVERY)?.strip_prefix('.'));
    number.map_or_else(|| root.clone(), |number| root.child(format_args!("{STEP_RERUN}.{number}")))
}

/// The number of the effect that a record belongs to; `None` if it belongs to no effect, or has another prefix.
fn effect_number(root: &StepKey, record: &JournalRecord) -> Option<u64> {
    let key = record.key.as_str().strip_prefix(root.as_str())?.strip_prefix('/')?;
    key.split('/').next()?.parse().ok()
}

fn outcome<T: DeserializeOwned>(record: &JournalRecord) -> Option<T> {
    serde_json::from_str(record.outcome.as_deref()?).ok()
}

/// Tool calls and actions as events, in the order in which they were recorded, so that of several values of a slot the last one stays:
/// with their outcome, or as unknown if a `write` has none. `recorded` has one record for each step. What a call has started, such as a
/// sub-agent, is part of its outcome.
fn outcomes(recorded: &[JournalRecord]) -> Vec<EventKind> {
    let ended = recorded.iter().filter(|record| &*record.kind == "tool" && record.outcome.is_some());
    let ended: Vec<String> = ended.map(|record| format!("{}/", record.key)).collect();
    let is_part = |record: &&JournalRecord| ended.iter().any(|key| record.key.as_str().starts_with(key.as_str()));
    let events = |record: &JournalRecord| match &*record.kind {
        "tool" => vec![tool_event(record, recorded)],
        "action" => action_events(record),
        _ => Vec::new(),
    };
    recorded.iter().filter(|record| !is_part(record)).flat_map(events).collect()
}

/// The events of an action. Of a finished action only the slots that it set are kept.
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

fn tool_event(record: &JournalRecord, all: &[JournalRecord]) -> EventKind {
    let call = recorded_call(record);
    let effect = call.as_ref().and_then(|call| call.effect?.changes());
    let agent = call.as_ref().and_then(|call| call.agent.clone()).or_else(|| agent_of_effect(record, all));
    let arguments = call.as_ref().map(|call| call.arguments.clone()).filter(|arguments| !arguments.is_null());
    let outcome = call.map(|call| call.outcome);
    let status = outcome.as_ref().map_or("unknown", ToolOutcome::status);
    let name: Arc<str> = record.request.split(':').next().unwrap_or_default().into();
    EventKind::ToolExecuted {
        server: None,
        tool_name: ToolName::new(name),
        agent_id: agent.map(AgentName::new),
        arguments: arguments.unwrap_or_else(|| arguments_of(record, all)),
        status: status.into(),
        summary: outcome.as_ref().map(ToolOutcome::for_model),
        origins: Default::default(),
        effect: effect.map(Into::into),
        writes: outcome.as_ref().map(delegation::writes_of).unwrap_or_default(),
    }
}

fn recorded_call(record: &JournalRecord) -> Option<RecordedToolCall> {
    outcome(record)
}

/// The agent that made other calls in the same effect.
fn agent_of_effect(record: &JournalRecord, all: &[JournalRecord]) -> Option<Arc<str>> {
    let effect = |record: &JournalRecord| record.key.as_str().split('/').take(2).map(str::to_owned).collect::<Vec<_>>();
    let same = |other: &&JournalRecord| &*other.kind == "tool" && effect(other) == effect(record);
    all.iter().filter(same).find_map(|other| recorded_call(other)?.agent)
}

/// The arguments of a call without outcome, as a model wrote them.
fn arguments_of(record: &JournalRecord, all: &[JournalRecord]) -> Json {
    let is_it = |call: &ToolCall| {
        let arguments = call.arguments.as_json()?;
        (JournaledTool::request(&call.name, arguments) == *record.request).then(|| arguments.clone())
    };
    let answers = all.iter().filter(|record| &*record.kind == "llm");
    let responses = answers.filter_map(|record| recorded_response(record.outcome.as_deref()?));
    responses.flat_map(|answer| answer.tool_calls).find_map(|call| is_it(&call)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use segue_engine::conversation::{Event, FlowLocation, ModelUsage, Write};
    use serde_json::json;

    use super::*;

    #[test]
    fn outcomes_of_a_turn_with_many_effects_keep_their_order() {
        let record = |number: u64| {
            let event = Event {
                at: Timestamp::from_micros(1),
                kind: EventKind::Slot { name: "x".into(), value: json!(number), filled_by: None, reset: false },
                location: FlowLocation::default(),
            };
            let outcome = serde_json::to_string(&ActionOutcome::Done { events: vec![event] }).unwrap();
            JournalRecord {
                key: StepKey::new("1").child(number),
                kind: "action".into(),
                request: "action_count".into(),
                outcome: Some(outcome.into()),
                at: Timestamp::from_micros(1),
                build: 1,
            }
        };
        let recorded: Vec<JournalRecord> = (1..=11).map(record).collect();
        let values = |events: Vec<EventKind>| {
            let slots = events.into_iter().filter_map(|event| match event {
                EventKind::Slot { value, .. } => value.as_u64(),
                _ => None,
            });
            slots.collect::<Vec<_>>()
        };
        let expected: Vec<u64> = (1..=11).collect();
        let updated = recover(2, TurnNumber(1), &recorded, false, RetryReason::FoundOpen).recoveries;
        assert_eq!(values(updated[0].outcomes.clone().unwrap()), expected, "after an update");
        assert_eq!(values(give_up_outcomes(&recorded).outcomes), expected, "of a turn that is given up");
    }

    /// A sub-agent paid, and failed after it; another call has no outcome yet.
    #[test]
    fn a_turn_that_is_given_up_tells_the_calls_of_its_agent_with_their_arguments() {
        let record = |key: &str, kind: &str, request: &str, outcome: Json| JournalRecord {
            key: StepKey::new(key),
            kind: kind.into(),
            request: request.into(),
            outcome: (!outcome.is_null()).then(|| outcome.to_string().into()),
            at: Timestamp::from_micros(1),
            build: 1,
        };
        let refund = json!({"amount": 7});
        let call = json!({"id": "c", "name": "refund", "arguments": {"json": refund}});
        let paid = Write::new("pay", &json!({"amount": 5}));
        let failure = json!({"kind": "tool_error", "message": "it failed", "meta": {"subagent_status": "failed", "subagent_writes": {"done": [paid]}}});
        let pay = json!({"done": {}, "effect": "write", "arguments": {"amount": 5}, "agent": "lead"});
        let recorded = [
            record("3/1/0/tool.0/0/tool.0", "tool", "pay:1", pay),
            record("3/1/0/tool.0", "tool", "task:2", json!({"failed": failure, "agent": "lead"})),
            record("3/1/llm.1", "llm", "h", json!({"Ok": {"text": "", "tool_calls": [call], "finish": "tool_calls"}})),
            record("3/1/1/tool.0", "tool", &JournaledTool::request("refund", &refund), Json::Null),
        ];
        let given_up = give_up_outcomes(&recorded);
        assert!(given_up.may_have_acted);
        let [EventKind::ToolExecuted { agent_id, writes, .. }, EventKind::ToolExecuted { agent_id: of, arguments, .. }] =
            given_up.outcomes.as_slice()
        else {
            panic!("{:?}", given_up.outcomes);
        };
        assert_eq!((agent_id, of), (&Some("lead".into()), &Some("lead".into())));
        assert_eq!((&writes.done, arguments), (&vec![paid], &refund));
        assert!(
            !give_up_outcomes(&[record(
                "3/1/0/tool.0",
                "tool",
                "task:2",
                json!({"failed": {"kind": "tool_error", "message": "x"}})
            )])
            .may_have_acted
        );
    }

    /// Stored journals contain these names.
    #[test]
    fn field_names_of_stored_recoveries_and_give_ups_do_not_change() {
        let recovery = json!({"before": 2, "interrupted": ["1/0"], "showed": true, "shows": false, "upgraded": []});
        let read: Recovery = serde_json::from_value(recovery.clone()).unwrap();
        assert_eq!((read.before_effect, read.streamed_before, read.streams), (2, true, false));
        assert_eq!(serde_json::to_value(read).unwrap(), recovery);
        let give_up = json!({"outcomes": [], "acted": true});
        let read: GiveUp = serde_json::from_value(give_up.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), give_up);
        let interruption = json!({"effect": 3, "agent": null, "used": ModelUsage::default()});
        let read: Interruption = serde_json::from_value(interruption.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), interruption);
    }
}
