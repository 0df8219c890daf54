//! One turn, from message to silence: the brain says what to do, the world answers, until the brain listens.
//!
//! Nothing here stores or loads: the caller brought the conversation and takes away what happened. Every effect passes the
//! journal, so running this again with the same record gives the same events (`replay.rs`).

use segue_engine::{
    conversation::{Conversation, Event, EventKind, EventPlace},
    dialogue::{self, Advance, Input, InputKind, Next, Reason},
};

use super::{
    actions::Past,
    hash,
    parts::Parts,
    replies::TurnSink,
    stop,
    takeover::{self, Takeover},
    timers,
    turn_record::TurnRecord,
    wording,
};
use crate::{
    cx::{Cx, StepKey},
    failpoint, limits,
    store::{Inbound, StoredReply, TurnNumber},
};

/// What is said of a turn that is given up, where some of it may have been done.
const GIVEN_UP: &str = "utter_turn_given_up";
/// The same where nothing was.
const FAILED: &str = "utter_internal_error_rasa";

/// What one turn left behind.
#[derive(Default)]
pub(super) struct Walked {
    /// What happened, in order.
    pub(super) events: Vec<Event>,
    /// What the user is told, in order.
    pub(super) replies: Vec<StoredReply>,
    /// Why.
    pub(super) why: Vec<Reason>,
    /// Whether the session is over.
    pub(super) ended: bool,
    /// Failures that an operator should know: code and reason.
    pub(super) failures: Vec<(String, String)>,
}

/// What an earlier try left of a turn.
pub(super) struct Inheritance {
    /// Where the keys of its steps begin.
    pub(super) root: StepKey,
    /// What was added to it each time it was taken over, oldest first.
    pub(super) takeovers: Vec<Takeover>,
    /// Where it was stopped, if it was.
    pub(super) cut: Option<Box<stop::Cut>>,
}

impl Inheritance {
    /// That of a turn that nobody has tried.
    pub(super) fn none(turn: TurnNumber) -> Self {
        Self { root: StepKey::new(turn.0.to_string()), takeovers: Vec::new(), cut: None }
    }
}

/// Walks one turn.
pub(super) async fn walk(
    parts: &Parts,
    conversation: &mut Conversation,
    (number, inbound): (TurnNumber, &Inbound),
    inheritance: Inheritance,
    record: &TurnRecord,
    sink: &mut TurnSink<'_>,
    cx: &Cx,
) -> Walked {
    // Idempotency keys are made with it.
    let cx = &Cx { seed: inbound.seed, ..cx.clone() };
    let mut walked = Walked::default();
    let Inheritance { takeovers, cut, .. } = inheritance;
    // As in the earlier try, up to where it came.
    sink.speak_as_recorded(takeovers.first().map(|first| first.showed));
    let mut takeovers = takeovers.into_iter().peekable();
    let mut upgraded = None;
    let past = Past::default();
    let mut kind = timers::first_input(inbound);
    for effect in 0.. {
        let early = failpoint::is_set("defect:interrupted-first");
        while let Some(takeover) = takeovers.next_if(|takeover| takeover.before <= effect || early) {
            // Boxed: hardly any turn is taken over.
            Box::pin(walked.take_over(number, &takeover, conversation, effect, inbound, record)).await;
            sink.speak_as_recorded(Some(takeover.shows));
            upgraded = takeover.upgraded.or(upgraded);
        }
        let at = if effect == 0 { inbound.at } else { record.now() };
        let input = Input { at, seed: hash::nth(inbound.seed, effect), kind };
        // Words are chosen before anybody hears them, so what happened is told again with the words that were chosen.
        let before = parts.wording.is_some().then(|| Box::new(conversation.clone()));
        let Advance { mut events, next, why } = dialogue::advance(&parts.project, conversation, input);
        if let (Some(before), Some(wording)) = (before, &parts.wording)
            && events.iter().any(wants_words)
        {
            *conversation = *before;
            let scene = wording::Scene { parts, number, record, said: &walked.replies };
            let (events, cx) = (&mut events, cx.step(effect));
            let failures = &mut walked.failures;
            // Boxed, for most projects have no rephraser: its future is large.
            Box::pin(wording::reword(&scene, wording, conversation, events, sink, failures, &cx)).await;
        }
        walked.take(number, events);
        walked.why.extend(why);
        let over_budget = spent(effect, cx);
        kind = match (next, over_budget) {
            (Next::Listen, _) => break,
            (Next::EndSession, _) => {
                walked.ended = true;
                break;
            }
            // The second time the brain must not ask again; it listens after `Exhausted` whatever happens.
            (_, Some(_)) if effect > u64::from(limits::TURN_EFFECTS) + 1 => break,
            (_, Some(budget)) => {
                walked.failures.push(("R0502".into(), format!("the turn's budget is spent: {budget}")));
                InputKind::Exhausted { budget }
            }
            (_, None) if upgraded.is_some() => InputKind::Upgraded { outcomes: upgraded.take().unwrap_or_default() },
            (next, None) => {
                sink.catch_up(&walked.replies, cx).await;
                let (past, failures) = ((&past, &*walked.events), &mut walked.failures);
                let scene = stop::Scene { parts, conversation, past, number, record, cut: cut.as_deref() };
                match stop::carry_out(next, effect, &scene, sink, failures, cx).await {
                    Some(kind) => kind,
                    None => break,
                }
            }
        };
    }
    // Those of a turn that ended where it was stopped, before they came.
    for takeover in takeovers {
        Box::pin(walked.take_over(number, &takeover, conversation, takeover.before, inbound, record)).await;
    }
    if let Some(used) = record.meter.used() {
        let at = record.now();
        let event = Event { at, kind: EventKind::ModelsUsed(used), place: EventPlace::default() };
        conversation.apply(&event);
        walked.events.push(event);
    }
    walked
}

/// Ends a turn that was tried too often: one message, and nothing is performed.
pub(super) fn give_up(
    parts: &Parts,
    conversation: &mut Conversation,
    (number, inbound): (TurnNumber, &Inbound),
    given_up: takeover::GivenUp,
) -> Walked {
    let input = Input { at: inbound.at, seed: hash::nth(inbound.seed, 0), kind: timers::first_input(inbound) };
    let response = if given_up.acted { GIVEN_UP } else { FAILED };
    let advance = dialogue::give_up(&parts.project, conversation, input, given_up.outcomes, response);
    let mut walked = Walked { why: advance.why, ..Walked::default() };
    walked.take(number, advance.events);
    walked
}

/// The budget that is spent, if one is.
fn spent(effect: u64, cx: &Cx) -> Option<String> {
    if effect >= u64::from(limits::TURN_EFFECTS) {
        return Some(format!("{} effects", limits::TURN_EFFECTS));
    }
    cx.remaining().is_zero().then(|| "the time of the turn".into())
}

fn wants_words(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Bot(bot) if bot.wording.is_some())
}

impl Walked {
    /// Adds what a takeover adds to the turn.
    async fn take_over(
        &mut self,
        number: TurnNumber,
        takeover: &Takeover,
        conversation: &mut Conversation,
        effect: u64,
        inbound: &Inbound,
        record: &TurnRecord,
    ) {
        takeover.note(number, record).await;
        let at = if effect == 0 { inbound.at } else { record.now() };
        for reply_id in &takeover.interrupted {
            // What was walked again has said it as a whole.
            if self.replies.iter().any(|reply| reply.id == *reply_id) {
                continue;
            }
            let kind = EventKind::ReplyInterrupted { reply_id: reply_id.to_string() };
            let event = Event { at, kind, place: EventPlace::default() };
            conversation.apply(&event);
            self.events.push(event);
        }
    }

    /// Takes events, and the replies among them.
    fn take(&mut self, number: TurnNumber, mut events: Vec<Event>) {
        self.replies.extend(StoredReply::told(number, self.replies.len(), &events));
        if self.events.is_empty() {
            // Most turns have no more events than the first list has room for: they are not moved.
            self.events = events;
        } else {
            self.events.append(&mut events);
        }
    }
}
