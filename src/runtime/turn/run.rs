//! Run: the engine advances and effects are performed, until the engine waits for the user.
//!
//! This stage neither loads nor stores. Every effect goes through the journal, so that a run with the same records gives the same events
//! (`replay.rs`).

use std::sync::Arc;

use segue_engine::{
    conversation::{Conversation, Event, EventKind, FlowLocation},
    dialogue::{self, Advance, Input, InputKind, Next, Reason},
};

use super::{
    AcceptedMessage, RecoveredTurn, TurnContext, TurnRecord, TurnSink, interruption,
    recover::{self, GiveUp, Recovery},
};
use crate::{
    context::CallContext,
    limits,
    runtime::{
        effects::{EventHistory, rephrase},
        project_runtime::ProjectRuntime,
        reminders, seeds,
    },
    store::{InboxMessage, StoredReply, TurnNumber},
};

/// The response for a turn that is given up after an effect that may have happened.
const RESPONSE_GIVEN_UP: &str = "utter_turn_given_up";
/// The response for a turn that is given up before any effect happened.
const RESPONSE_FAILED: &str = "utter_internal_error_rasa";

/// Failures for operators: codes and reasons.
pub(in crate::runtime) type TurnFailures = Vec<(String, String)>;

/// The result of one turn.
#[derive(Default)]
pub(in crate::runtime) struct TurnResult {
    /// The events, in order.
    pub(in crate::runtime) events: Vec<Event>,
    /// The replies, in order.
    pub(in crate::runtime) replies: Vec<StoredReply>,
    /// Ids of the replies that the channel already has.
    pub(in crate::runtime) delivered: Vec<Arc<str>>,
    /// The decisions of the engine, for traces.
    pub(in crate::runtime) reasons: Vec<Reason>,
    /// Whether the session has ended.
    pub(in crate::runtime) session_ended: bool,
    /// Internal failures.
    pub(in crate::runtime) failures: TurnFailures,
}

/// Runs one turn.
pub(in crate::runtime) async fn run_turn(
    runtime: &ProjectRuntime,
    conversation: &mut Conversation,
    AcceptedMessage { turn, inbound, before_question }: AcceptedMessage<'_>,
    recovered: RecoveredTurn,
    record: &TurnRecord,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> TurnResult {
    // Idempotency keys depend on the seed.
    let cx = &CallContext { seed: inbound.seed, ..cx.clone() };
    let mut result = TurnResult::default();
    let RecoveredTurn { recoveries, interruption, .. } = recovered;
    // Up to the first recovery: as in the earlier attempt.
    sink.set_recorded_streaming(recoveries.first().map(|first| first.streamed_before));
    let mut recoveries = recoveries.into_iter().peekable();
    let mut recovered_outcomes = None;
    let history = EventHistory::default();
    let mut kind = reminders::initial_input(inbound);
    if let InputKind::Message(message) = &mut kind {
        message.before_question = recover::is_before_question(turn, before_question, record).await;
    }
    for effect in 0.. {
        while let Some(recovery) = recoveries.next_if(|recovery| recovery.before_effect <= effect) {
            // Boxed, because few turns have a recovery.
            Box::pin(result.apply_recovery(turn, &recovery, conversation, effect, inbound, record)).await;
            sink.set_recorded_streaming(Some(recovery.streams));
            recovered_outcomes = recovery.outcomes.or(recovered_outcomes);
        }
        let at = if effect == 0 { inbound.at } else { record.now() };
        let ends_turn = matches!(kind, InputKind::Interrupted);
        let input = Input { at, seed: seeds::nth(inbound.seed, effect), kind };
        // Events must contain the rephrased texts, so the engine's events are applied again after rephrasing.
        let before = runtime.rephrasing.is_some().then(|| Box::new(conversation.clone()));
        let Advance { mut events, next, reasons } = dialogue::advance(&runtime.project, conversation, input);
        if let (Some(before), Some(rephrasing)) = (before, &runtime.rephrasing)
            && events.iter().any(needs_rephrasing)
        {
            *conversation = *before;
            let TurnResult { replies, failures, .. } = &mut result;
            let context = rephrase::RephraseContext { runtime, rephrasing, turn, record, earlier_replies: replies };
            // Boxed, because the future is large and most projects do not rephrase.
            Box::pin(context.rephrase_responses(conversation, &mut events, sink, failures, &cx.step(effect))).await;
        }
        result.push_events(turn, events);
        result.reasons.extend(reasons);
        let over_budget = exceeded_budget(effect, cx);
        kind = match (next, over_budget) {
            (Next::Listen, _) => break,
            (Next::EndSession, _) => {
                result.session_ended = true;
                break;
            }
            _ if ends_turn => break,
            // After `BudgetExhausted` the engine ends the turn. This is a second limit, should it ask for another effect.
            (_, Some(_)) if effect > u64::from(limits::TURN_EFFECTS) + 1 => break,
            (_, Some(budget)) => {
                result.failures.push(("R0502".into(), format!("the turn's budget is spent: {budget}")));
                InputKind::BudgetExhausted { budget }
            }
            (_, None) if recovered_outcomes.is_some() => {
                InputKind::VersionChanged { outcomes: recovered_outcomes.take().unwrap_or_default() }
            }
            (next, None) => {
                sink.show_progress(&runtime.project, &result.events, &result.replies, cx).await;
                let events = &*result.events;
                let context = TurnContext { runtime, conversation, number: turn, history: &history, events, record };
                let (recorded, failures) = (interruption.as_deref(), &mut result.failures);
                match interruption::perform_or_interrupt(next, effect, recorded, &context, sink, failures, cx).await {
                    Some(kind) => kind,
                    None => break,
                }
            }
        };
    }
    // Recoveries after the effect at which the turn was interrupted.
    for recovery in recoveries {
        Box::pin(result.apply_recovery(turn, &recovery, conversation, recovery.before_effect, inbound, record)).await;
    }
    if let Some(used) = record.usage.used() {
        let at = record.now();
        let event = Event { at, kind: EventKind::ModelsUsed(used), location: FlowLocation::default() };
        conversation.apply(&event);
        result.events.push(event);
    }
    result
}

/// Ends a turn after too many attempts: one message, no effects.
pub(in crate::runtime) fn give_up(
    runtime: &ProjectRuntime,
    conversation: &mut Conversation,
    AcceptedMessage { turn, inbound, .. }: AcceptedMessage<'_>,
    give_up: GiveUp,
) -> TurnResult {
    let input = Input { at: inbound.at, seed: seeds::nth(inbound.seed, 0), kind: reminders::initial_input(inbound) };
    let response = if give_up.may_have_acted { RESPONSE_GIVEN_UP } else { RESPONSE_FAILED };
    let advance = dialogue::give_up(&runtime.project, conversation, input, give_up.outcomes, response);
    let mut result = TurnResult { reasons: advance.reasons, ..TurnResult::default() };
    result.push_events(turn, advance.events);
    result
}

/// The exceeded budget of the turn, if any.
fn exceeded_budget(effect: u64, cx: &CallContext) -> Option<String> {
    if effect >= u64::from(limits::TURN_EFFECTS) {
        return Some(format!("{} effects", limits::TURN_EFFECTS));
    }
    cx.remaining().is_zero().then(|| "the time of the turn".into())
}

fn needs_rephrasing(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Bot(bot) if bot.rephrase.is_some())
}

impl TurnResult {
    /// Records a recovery, and adds an event for each interrupted reply.
    async fn apply_recovery(
        &mut self,
        turn: TurnNumber,
        recovery: &Recovery,
        conversation: &mut Conversation,
        effect: u64,
        inbound: &InboxMessage,
        record: &TurnRecord,
    ) {
        recovery.record(turn, record).await;
        let at = if effect == 0 { inbound.at } else { record.now() };
        for reply_id in &recovery.interrupted_replies {
            // The run has sent it in full.
            if self.replies.iter().any(|reply| reply.id == *reply_id) {
                continue;
            }
            let kind = EventKind::ReplyInterrupted { reply_id: reply_id.to_string() };
            let event = Event { at, kind, location: FlowLocation::default() };
            conversation.apply(&event);
            self.events.push(event);
        }
    }

    /// Appends events, and the replies among them.
    fn push_events(&mut self, turn: TurnNumber, events: Vec<Event>) {
        self.replies.extend(StoredReply::from_events(turn, self.replies.len(), &events));
        self.events.extend(events);
    }
}
