//! The conversation of one case: each message of the user, what came of it, and what was expected.

use std::time::Duration;

use segue_engine::{
    conversation::EventKind,
    dialogue::Reason,
    finding::SourceLocation,
    project::test_cases::{AssertionKind, TestStep, TestStepKind, UserStep},
};

use super::{
    AssertionFailure, CaseResult, TurnTranscript,
    judge::{Judge, NoJudgement, Question},
    look::{self, Look, Verdict},
    run::{CHANNEL, Setting},
    seen::Seen,
    stub,
};
use crate::{
    clock::{Clock, SystemClock},
    conversation::DiscardReplies,
    runtime::{Assistant, IncomingMessage},
};

/// The conversation of a case, until it is over or something did not hold. How long each turn took, in milliseconds.
pub(super) async fn talk(
    assistant: &Assistant,
    setting: &Setting<'_>,
    judge: &Option<Judge>,
    result: &mut CaseResult,
) -> Vec<u64> {
    let case = &setting.planned.case;
    let asserts = case.asserts();
    let mut took = Vec::new();
    let mut steps = case.steps.iter().peekable();
    while let Some(step) = steps.next() {
        let TestStepKind::User(user) = &step.kind else { continue };
        let mut expected = Vec::new();
        while let Some(next) = steps.next_if(|step| !matches!(step.kind, TestStepKind::User(_))) {
            expected.push(next);
        }
        let number = result.turns.len() + 1;
        let outcome = turn(assistant, setting, user, number).await;
        setting.clock.next_turn();
        let (seen, number_in_store) = match outcome {
            Ok(found) => found,
            Err((code, reason)) => {
                let mut misses = beside(setting, step, number, user);
                if misses.is_empty() {
                    misses.push(AssertionFailure {
                        turn: number,
                        user: user.text.to_string(),
                        ..AssertionFailure::beside(&step.place, code, reason)
                    });
                }
                result.misses.append(&mut misses);
                result.turns.push(TurnTranscript { user: user.text.to_string(), happened: Vec::new() });
                return took;
            }
        };
        took.push(u64::try_from(seen.took.as_millis()).unwrap_or(u64::MAX));
        let mut misses = match asserts {
            true => assertions(setting, user, &seen, judge, number, result).await,
            false => free(setting, &expected, &seen, number, user),
        };
        misses.append(&mut beside(setting, step, number, user));
        for (kind, count) in seen.commands() {
            *result.commands.entry(kind).or_default() += count;
        }
        result.turns.push(TurnTranscript { user: user.text.to_string(), happened: seen.lines() });
        if setting.coverage || !misses.is_empty() {
            explain(assistant, setting, number_in_store, &mut misses, result).await;
        }
        if !misses.is_empty() {
            result.misses.append(&mut misses);
            return took;
        }
    }
    took
}

/// One message: what the turn showed, and its number in the store.
async fn turn(
    assistant: &Assistant,
    setting: &Setting<'_>,
    user: &UserStep,
    number: usize,
) -> Result<(Seen, u64), (&'static str, String)> {
    let mut incoming = IncomingMessage::text(setting.id.clone(), user.text.clone(), CHANNEL);
    incoming.message.metadata = setting.planned.metadata(user);
    let before = SystemClock.elapsed();
    let report = assistant.receive(incoming, Box::new(DiscardReplies)).await;
    let mut took = SystemClock.elapsed().saturating_sub(before);
    if let Some(recorded) = setting.took.as_ref().and_then(|took| took.get(number - 1)) {
        took = Duration::from_millis(*recorded);
    }
    let report = report.map_err(|error| (error.code(), format!("the message got no turn: {error}")))?;
    let turns = assistant.store().turns(&setting.id).await.map_err(|error| (error.code(), error.to_string()))?;
    let Some(stored) = turns.into_iter().find(|stored| stored.turn == report.turn) else {
        return Err(("E0503", "the turn is not in the store".to_owned()));
    };
    let llm_calls = stored.journal.iter().filter(|record| &*record.kind == "llm").count() as u64;
    // What stands before the message belongs to the session, not to the turn.
    let after = stored.events.iter().rposition(|event| matches!(event.kind, EventKind::User(_))).map_or(0, |at| at + 1);
    let events = stored.events.into_iter().skip(after).collect();
    Ok((Seen { user: user.text.clone(), events, llm_calls, took }, report.turn.0))
}

/// The assertions of a step, all of them, so that a failure shows everything that is wrong with the turn.
async fn assertions(
    setting: &Setting<'_>,
    user: &UserStep,
    seen: &Seen,
    judge: &Option<Judge>,
    number: usize,
    result: &mut CaseResult,
) -> Vec<AssertionFailure> {
    let mut misses = Vec::new();
    let mut from = 0;
    for (at, assertion) in user.assertions.iter().enumerate() {
        let look = Look { seen, from, project: &setting.project };
        let judged = match &assertion.kind {
            AssertionKind::Relevant(wanted) => Some((Question::Relevant, wanted)),
            AssertionKind::Grounded(wanted) => Some((Question::Grounded, wanted)),
            _ => None,
        };
        let verdict = match (judged, judge) {
            (Some((question, wanted)), Some(judge)) => {
                let key = format!("{number}/{at}");
                match judge.judge(question, wanted, seen, from, &key).await {
                    Ok(verdict) => verdict,
                    Err(NoJudgement(why)) => {
                        Verdict::Missed { expected: vec!["a judgement".to_owned()], seen: vec![why] }
                    }
                }
            }
            _ => look.assertion(&assertion.kind),
        };
        let kind = assertion.kind.key();
        let tally = result.tally.entry(kind).or_default();
        match verdict {
            Verdict::Held(event) => {
                tally.held += 1;
                if let (true, Some(event)) = (user.ordered, event) {
                    from = event + 1;
                }
            }
            Verdict::Missed { expected, seen } => {
                tally.failed += 1;
                misses.push(AssertionFailure::of(&assertion.place, number, user, kind, expected, seen));
            }
        }
    }
    misses
}

/// What stands in steps of their own.
fn free(
    setting: &Setting<'_>,
    expected: &[&TestStep],
    seen: &Seen,
    number: usize,
    user: &UserStep,
) -> Vec<AssertionFailure> {
    let look = Look { seen, from: 0, project: &setting.project };
    let mut misses = Vec::new();
    for (step, verdict) in look::steps(&look, expected) {
        let kind = match &step.kind {
            TestStepKind::Bot(_) => "bot",
            TestStepKind::Utter(_) => "utter",
            TestStepKind::SlotWasSet(_) => "slot_was_set",
            _ => "slot_was_not_set",
        };
        if let Verdict::Missed { expected, seen } = verdict {
            misses.push(AssertionFailure::of(&step.place, number, user, kind, expected, seen));
        }
    }
    misses
}

/// What went wrong beside the expectations.
fn beside(setting: &Setting<'_>, step: &TestStep, number: usize, user: &UserStep) -> Vec<AssertionFailure> {
    let problems = stub::take(&setting.problems);
    let miss = |(code, reason)| AssertionFailure {
        turn: number,
        user: user.text.to_string(),
        ..AssertionFailure::beside(&step.place, code, reason)
    };
    problems.into_iter().map(miss).collect()
}

/// Walks the turn once more from its record, to say why it went as it did and which steps it walked.
async fn explain(
    assistant: &Assistant,
    setting: &Setting<'_>,
    turn: u64,
    misses: &mut [AssertionFailure],
    result: &mut CaseResult,
) {
    let Ok(traces) = assistant.trace(&setting.id, Some(turn)).await else { return };
    for trace in traces {
        for reason in &trace.reasons {
            if let Reason::Step { flow, step } = reason {
                result.visited.insert((flow.clone(), step.clone()));
            }
        }
        for miss in misses.iter_mut() {
            miss.why.clone_from(&trace.reasons);
            miss.failures.clone_from(&trace.failures);
        }
    }
}

impl AssertionFailure {
    pub(super) fn of(
        place: &SourceLocation,
        turn: usize,
        user: &UserStep,
        what: &'static str,
        expected: Vec<String>,
        seen: Vec<String>,
    ) -> Self {
        let user = user.text.to_string();
        Self { place: place.clone(), turn, user, what, expected, seen, why: Vec::new(), failures: Vec::new() }
    }

    /// Something that went wrong beside what a case demands.
    pub(super) fn beside(place: &SourceLocation, code: &'static str, reason: String) -> Self {
        let (why, failures) = (Vec::new(), Vec::new());
        Self {
            place: place.clone(),
            turn: 0,
            user: String::new(),
            what: code,
            expected: Vec::new(),
            seen: vec![reason],
            why,
            failures,
        }
    }
}
