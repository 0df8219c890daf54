//! The conversation of one case: sends each message of the user and checks the events of its turn.

use std::time::Duration;

use segue_engine::{
    conversation::EventKind,
    dialogue::Reason,
    finding::SourceLocation,
    project::{
        McpTransport,
        test_cases::{AssertionKind, TestStep, TestStepKind, UserStep},
    },
};

use super::{
    AssertionFailure, CaseResult, TurnTranscript,
    assertions::{self, AssertionCheck, AssertionResult},
    judge::{Judge, JudgeError, JudgeMetric},
    observed::ObservedTurn,
    run::{CHANNEL, CaseContext},
    stub,
};
use crate::{
    clock::{Clock, SystemClock},
    conversation::DiscardReplies,
    runtime::{Assistant, IncomingMessage},
};

/// Runs the conversation up to its end or to the first turn with a failure. Returns the duration of each turn in milliseconds.
pub(super) async fn run_conversation(
    assistant: &Assistant,
    context: &CaseContext<'_>,
    judge: &Option<Judge>,
    result: &mut CaseResult,
) -> Vec<u64> {
    let durations_ms = run_turns(assistant, context, judge, result).await;
    let users = context.case.case.steps.iter().filter_map(|step| match &step.kind {
        TestStepKind::User(user) => Some(user),
        _ => None,
    });
    for assertion in users.skip(result.turns.len()).flat_map(|user| &user.assertions) {
        result.assertion_counts.entry(assertion.kind.key()).or_default().not_reached += 1;
    }
    durations_ms
}

async fn run_turns(
    assistant: &Assistant,
    context: &CaseContext<'_>,
    judge: &Option<Judge>,
    result: &mut CaseResult,
) -> Vec<u64> {
    let case = &context.case.case;
    let has_assertions = case.asserts();
    let mut durations_ms = Vec::new();
    let mut steps = case.steps.iter().peekable();
    while let Some(step) = steps.next() {
        let TestStepKind::User(user) = &step.kind else { continue };
        let mut step_checks = Vec::new();
        while let Some(next) = steps.next_if(|step| !matches!(step.kind, TestStepKind::User(_))) {
            step_checks.push(next);
        }
        let number = result.turns.len() + 1;
        let outcome = run_turn(assistant, context, user, number).await;
        context.clock.next_turn();
        let (observed, stored_number) = match outcome {
            Ok(turn) => turn,
            Err((code, message)) => {
                let mut failures = take_errors(context, step, number, user);
                if failures.is_empty() {
                    failures.push(AssertionFailure {
                        turn: number,
                        user: user.text.to_string(),
                        ..AssertionFailure::error(&step.place, code, message)
                    });
                }
                result.failures.append(&mut failures);
                result.turns.push(TurnTranscript { user: user.text.to_string(), events: Vec::new() });
                return durations_ms;
            }
        };
        result.real_tools.extend(real_tools(context, &observed));
        durations_ms.push(u64::try_from(observed.duration.as_millis()).unwrap_or(u64::MAX));
        let mut failures = match has_assertions {
            true => check_assertions(context, user, &observed, judge, number, result).await,
            false => check_steps(context, &step_checks, &observed, number, user),
        };
        failures.append(&mut take_errors(context, step, number, user));
        for (kind, count) in observed.commands() {
            *result.commands.entry(kind).or_default() += count;
        }
        result.turns.push(TurnTranscript { user: user.text.to_string(), events: observed.event_summaries() });
        if context.collect_coverage || !failures.is_empty() {
            add_trace(assistant, context, stored_number, &mut failures, result).await;
        }
        if !failures.is_empty() {
            result.failures.append(&mut failures);
            return durations_ms;
        }
    }
    durations_ms
}

/// The tools that the turn called on servers without stubs, as `server.tool`. Not those that the project declares as `read`, and not
/// those of the demo server, which has no effects outside its process.
fn real_tools(context: &CaseContext<'_>, observed: &ObservedTurn) -> Vec<String> {
    if context.recorded_durations_ms.is_some() {
        return Vec::new();
    }
    let servers = &context.project.endpoints.mcp_servers;
    let called = observed.events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolExecuted { server: Some(server), tool_name, .. } => Some((server, tool_name)),
        _ => None,
    });
    let may_change = called.filter(|(server, tool)| {
        servers.get(*server).is_some_and(|def| {
            let is_demo = matches!(
                &def.transport,
                McpTransport::Stdio { command, args, .. } if command == "segue" && args.first().is_some_and(|arg| arg == "demo")
            );
            !is_demo && def.effects.get(tool.as_str()).is_none_or(|class| class != "read")
        })
    });
    let stubbed = context.case.stubbed_names(&context.case.shared.tools);
    let is_stubbed = |server: &str| stubbed.iter().any(|name| name.split_once('.').is_some_and(|(of, _)| of == server));
    may_change
        .filter(|(server, _)| !is_stubbed(server.as_str()))
        .map(|(server, tool)| format!("{server}.{tool}"))
        .collect()
}

/// Sends one message. Returns the observed turn and its number in the store; `Err` has an error code and a message.
async fn run_turn(
    assistant: &Assistant,
    context: &CaseContext<'_>,
    user: &UserStep,
    number: usize,
) -> Result<(ObservedTurn, u64), (&'static str, String)> {
    let mut incoming = IncomingMessage::new(context.conversation.clone(), user.text.clone()).input_channel(CHANNEL);
    incoming.metadata = context.case.metadata(user);
    let start = SystemClock.elapsed();
    let report = assistant.receive(incoming, Box::new(DiscardReplies)).await;
    let mut duration = SystemClock.elapsed().saturating_sub(start);
    if let Some(recorded) = context.recorded_durations_ms.as_ref().and_then(|durations| durations.get(number - 1)) {
        duration = Duration::from_millis(*recorded);
    }
    let report = report.map_err(|error| (error.code(), format!("the message was not processed: {error}")))?;
    let stored = assistant.store().turn(&context.conversation, report.turn).await;
    let Some(stored) = stored.map_err(|error| (error.code(), error.to_string()))? else {
        return Err(("E0503", "the turn is not in the store".to_owned()));
    };
    let llm_calls = stored.journal.iter().filter(|record| &*record.kind == "llm").count() as u64;
    // Events before the user's message belong to the start of the session, not to the turn.
    let after = stored.events.iter().rposition(|event| matches!(event.kind, EventKind::User(_))).map_or(0, |at| at + 1);
    let events = stored.events.into_iter().skip(after).collect();
    Ok((ObservedTurn { user: user.text.clone(), events, llm_calls, duration }, report.turn.0))
}

/// Checks all assertions of a step: a report shows every failure of the turn, not only the first.
async fn check_assertions(
    context: &CaseContext<'_>,
    user: &UserStep,
    observed: &ObservedTurn,
    judge: &Option<Judge>,
    number: usize,
    result: &mut CaseResult,
) -> Vec<AssertionFailure> {
    let mut failures = Vec::new();
    let mut from = 0;
    for (index, assertion) in user.assertions.iter().enumerate() {
        let check = AssertionCheck { observed, from, project: &context.project };
        let judged = match &assertion.kind {
            AssertionKind::Relevant(expectation) => Some((JudgeMetric::Relevance, expectation)),
            AssertionKind::Grounded(expectation) => Some((JudgeMetric::Groundedness, expectation)),
            _ => None,
        };
        let checked = match (judged, judge) {
            (Some((metric, expectation)), Some(judge)) => {
                let key = format!("{number}/{index}");
                match judge.judge(metric, expectation, observed, from, &key).await {
                    Ok(checked) => checked,
                    Err(JudgeError(message)) => AssertionResult::Failed {
                        expected: vec!["a score of the judge model".to_owned()],
                        actual: vec![message],
                    },
                }
            }
            _ => check.assertion(&assertion.kind),
        };
        let kind = assertion.kind.key();
        let counts = result.assertion_counts.entry(kind).or_default();
        match checked {
            AssertionResult::Passed(event) => {
                counts.passed += 1;
                if let (true, Some(event)) = (user.ordered, event) {
                    from = event + 1;
                }
            }
            AssertionResult::Failed { expected, actual } => {
                counts.failed += 1;
                failures.push(AssertionFailure::new(&assertion.place, number, user, kind, expected, actual));
            }
        }
    }
    failures
}

/// Checks the steps that follow the user's message: `bot`, `utter`, `slot_was_set` and `slot_was_not_set`.
fn check_steps(
    context: &CaseContext<'_>,
    steps: &[&TestStep],
    observed: &ObservedTurn,
    number: usize,
    user: &UserStep,
) -> Vec<AssertionFailure> {
    let check = AssertionCheck { observed, from: 0, project: &context.project };
    let mut failures = Vec::new();
    for (step, checked) in assertions::check_steps(&check, steps) {
        let kind = match &step.kind {
            TestStepKind::Bot(_) => "bot",
            TestStepKind::Utter(_) => "utter",
            TestStepKind::SlotWasSet(_) => "slot_was_set",
            _ => "slot_was_not_set",
        };
        if let AssertionResult::Failed { expected, actual } = checked {
            failures.push(AssertionFailure::new(&step.place, number, user, kind, expected, actual));
        }
    }
    failures
}

/// Takes the errors that stubs and the recording reported during this turn.
fn take_errors(context: &CaseContext<'_>, step: &TestStep, number: usize, user: &UserStep) -> Vec<AssertionFailure> {
    let errors = stub::take_errors(&context.errors);
    let failure = |(code, message)| AssertionFailure {
        turn: number,
        user: user.text.to_string(),
        ..AssertionFailure::error(&step.place, code, message)
    };
    errors.into_iter().map(failure).collect()
}

/// Replays the turn from its record, to add its executed steps to the result, and its reasons and errors to the failures.
async fn add_trace(
    assistant: &Assistant,
    context: &CaseContext<'_>,
    turn: u64,
    failures: &mut [AssertionFailure],
    result: &mut CaseResult,
) {
    let Ok(traces) = assistant.trace(&context.conversation, Some(turn)).await else { return };
    for trace in traces {
        for reason in &trace.reasons {
            if let Reason::Step { flow, step, .. } = reason {
                result.executed_steps.insert((flow.clone(), step.clone()));
            }
        }
        for failure in failures.iter_mut() {
            failure.reasons.clone_from(&trace.reasons);
            failure.errors.clone_from(&trace.failures);
        }
    }
}

impl AssertionFailure {
    fn new(
        place: &SourceLocation,
        turn: usize,
        user: &UserStep,
        kind: &'static str,
        expected: Vec<String>,
        actual: Vec<String>,
    ) -> Self {
        let user = user.text.to_string();
        let (reasons, errors) = (Vec::new(), Vec::new());
        Self { place: place.clone(), turn, user, kind, expected, actual, reasons, errors }
    }

    /// An error of the case, such as a missing stub or recording: not an unmet expectation.
    pub(super) fn error(place: &SourceLocation, code: &'static str, message: String) -> Self {
        Self {
            place: place.clone(),
            turn: 0,
            user: String::new(),
            kind: code,
            expected: Vec::new(),
            actual: vec![message],
            reasons: Vec::new(),
            errors: Vec::new(),
        }
    }
}
