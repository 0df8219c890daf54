//! Engine and effects take turns until the engine listens.
//!
//! Nothing here stores or loads: the caller brought the conversation and takes away what happened. Every effect passes the
//! journal, so running this again with the same record gives the same events (`replay.rs`).

use std::sync::Arc;

use segue_engine::{
    conversation::{Conversation, Event, EventKind, FlowLocation},
    dialogue::{self, Advance, Input, InputKind, Next, Reason},
};

use super::{
    AcceptedMessage, RecoveredTurn, TurnContext, TurnRecord, TurnSink, interruption,
    recover::{LeftBehind, Takeover},
};
use crate::{
    context::CallContext,
    failpoint, limits,
    runtime::{
        effects::{EventHistory, rephrase},
        project_runtime::ProjectRuntime,
        reminders, seeds,
    },
    store::{InboxMessage, StoredReply, TurnNumber},
};

/// What is said of a turn that is given up, where some of it may have been done.
const GIVEN_UP: &str = "utter_turn_given_up";
/// The same where nothing was.
const FAILED: &str = "utter_internal_error_rasa";

/// What operators should know: codes and reasons.
pub(in crate::runtime) type TurnFailures = Vec<(String, String)>;

/// What one turn came to.
#[derive(Default)]
pub(in crate::runtime) struct TurnResult {
    /// What happened, in order.
    pub(in crate::runtime) events: Vec<Event>,
    /// What the user is told, in order.
    pub(in crate::runtime) replies: Vec<StoredReply>,
    /// Those of the replies that the channel has already.
    pub(in crate::runtime) delivered: Vec<Arc<str>>,
    /// Why.
    pub(in crate::runtime) reasons: Vec<Reason>,
    /// Whether the session is over.
    pub(in crate::runtime) session_ended: bool,
    /// What went wrong on our side.
    pub(in crate::runtime) failures: TurnFailures,
}

/// Runs one turn.
pub(in crate::runtime) async fn run_turn(
    runtime: &ProjectRuntime,
    conversation: &mut Conversation,
    AcceptedMessage { turn, inbound }: AcceptedMessage<'_>,
    recovered: RecoveredTurn,
    record: &TurnRecord,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> TurnResult {
    // Idempotency keys are made with it.
    let cx = &CallContext { seed: inbound.seed, ..cx.clone() };
    let mut result = TurnResult::default();
    let RecoveredTurn { takeovers, interruption, .. } = recovered;
    // As in the earlier try, up to where it came.
    sink.speak_as_recorded(takeovers.first().map(|first| first.showed));
    let mut takeovers = takeovers.into_iter().peekable();
    let mut upgraded = None;
    let history = EventHistory::default();
    let mut kind = reminders::first_input(inbound);
    for effect in 0.. {
        let early = failpoint::is_armed("defect:interrupted-first");
        while let Some(takeover) = takeovers.next_if(|takeover| takeover.before <= effect || early) {
            // Boxed: hardly any turn is taken over.
            Box::pin(result.take_over(turn, &takeover, conversation, effect, inbound, record)).await;
            sink.speak_as_recorded(Some(takeover.shows));
            upgraded = takeover.upgraded.or(upgraded);
        }
        let at = if effect == 0 { inbound.at } else { record.now() };
        let input = Input { at, seed: seeds::nth(inbound.seed, effect), kind };
        // Words are chosen before anybody hears them, so what happened is applied again with the words that were chosen.
        let before = runtime.rephrasing.is_some().then(|| Box::new(conversation.clone()));
        let Advance { mut events, next, reasons } = dialogue::advance(&runtime.project, conversation, input);
        if let (Some(before), Some(rephrasing)) = (before, &runtime.rephrasing)
            && events.iter().any(needs_rephrasing)
        {
            *conversation = *before;
            let TurnResult { replies, failures, .. } = &mut result;
            let context = rephrase::RephraseContext { runtime, rephrasing, turn, record, said: replies };
            // Boxed, for most projects have no rephraser: its future is large.
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
            // The second time the engine must not ask again; it listens after `Exhausted` whatever happens.
            (_, Some(_)) if effect > u64::from(limits::TURN_EFFECTS) + 1 => break,
            (_, Some(budget)) => {
                result.failures.push(("R0502".into(), format!("the turn's budget is spent: {budget}")));
                InputKind::BudgetExhausted { budget }
            }
            (_, None) if upgraded.is_some() => {
                InputKind::VersionChanged { outcomes: upgraded.take().unwrap_or_default() }
            }
            (next, None) => {
                sink.send_early(&result.replies, cx).await;
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
    // Those of a turn that ended where it was stopped, before they came.
    for takeover in takeovers {
        Box::pin(result.take_over(turn, &takeover, conversation, takeover.before, inbound, record)).await;
    }
    if let Some(used) = record.usage.used() {
        let at = record.now();
        let event = Event { at, kind: EventKind::ModelsUsed(used), location: FlowLocation::default() };
        conversation.apply(&event);
        result.events.push(event);
    }
    result
}

/// Ends a turn that was tried too often: one message, and nothing is performed.
pub(in crate::runtime) fn give_up(
    runtime: &ProjectRuntime,
    conversation: &mut Conversation,
    AcceptedMessage { turn, inbound }: AcceptedMessage<'_>,
    left: LeftBehind,
) -> TurnResult {
    let input = Input { at: inbound.at, seed: seeds::nth(inbound.seed, 0), kind: reminders::first_input(inbound) };
    let response = if left.acted { GIVEN_UP } else { FAILED };
    let advance = dialogue::give_up(&runtime.project, conversation, input, left.outcomes, response);
    let mut result = TurnResult { reasons: advance.reasons, ..TurnResult::default() };
    result.push_events(turn, advance.events);
    result
}

/// The budget that is spent, if one is.
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
    /// Adds what a takeover adds to the turn.
    async fn take_over(
        &mut self,
        turn: TurnNumber,
        takeover: &Takeover,
        conversation: &mut Conversation,
        effect: u64,
        inbound: &InboxMessage,
        record: &TurnRecord,
    ) {
        takeover.record(turn, record).await;
        let at = if effect == 0 { inbound.at } else { record.now() };
        for reply_id in &takeover.interrupted {
            // What ran again has said it as a whole.
            if self.replies.iter().any(|reply| reply.id == *reply_id) {
                continue;
            }
            let kind = EventKind::ReplyInterrupted { reply_id: reply_id.to_string() };
            let event = Event { at, kind, location: FlowLocation::default() };
            conversation.apply(&event);
            self.events.push(event);
        }
    }

    /// Takes events, and the replies among them.
    fn push_events(&mut self, turn: TurnNumber, events: Vec<Event>) {
        self.replies.extend(StoredReply::from_events(turn, self.replies.len(), &events));
        self.events.extend(events);
    }
}
