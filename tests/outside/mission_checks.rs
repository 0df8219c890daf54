//! The guarantees of missions that are checked after the run, when no process works on a run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use segue::{
    clock::SystemClock,
    missions::{RunControl, RunReport},
    store::{
        StoreLocation, open_runs,
        runs::{RunFilter, RunStatus},
    },
};
use segue_engine::mission::event::{RunEvent, RunEventKind};

use crate::{
    missions::MissionWorkload,
    payment_server::{self, Fault, PaymentServer},
};

/// What a run has recorded of the call that pays a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    /// The call was rejected, or failed without a change.
    NotDone,
    Done,
    InDoubt,
    /// The call has no end.
    Open,
}

/// Checks that no run is left running or waits without a question, that no payment is made twice, without consent or beyond a limit of
/// calls, and that each payment is in the result of its run. Returns how often each end of a run and of a payment occurs.
pub(crate) async fn check_missions(workload: &MissionWorkload, payments: &PaymentServer) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut count = |name: String| *counts.entry(name).or_default() += 1;
    let violation = |text: String| workload.violations.add(text);
    let url = format!("sqlite:{}", workload.project.runs_database().display());
    let Ok(runs) = StoreLocation::parse(&url).and_then(|location| open_runs(&location)) else {
        violation("the store of runs cannot be opened".to_owned());
        return counts;
    };
    let control = RunControl::new(runs, Arc::new(SystemClock));
    let mut told: HashMap<String, Vec<String>> = HashMap::new();
    let mut recorded: HashMap<String, Vec<Recorded>> = HashMap::new();
    // Each beginning of an id by itself: one list has a limited number of runs.
    let mut summaries = Vec::new();
    for first in 0..=u8::MAX {
        let filter = RunFilter::default().id_prefix(format!("{first:02x}"));
        summaries.extend(control.runs(filter, usize::MAX / 2).await.unwrap());
    }
    for summary in summaries {
        let run = &summary.id;
        let report = match control.status(run).await {
            Ok(report) => report,
            Err(error) => {
                violation(format!("run {run} cannot be read: {error}"));
                continue;
            }
        };
        count(format!("{} {}", summary.mission, summary.status));
        let has_question = report.state.human_inputs.values().any(|input| input.open);
        match summary.status {
            RunStatus::Running | RunStatus::Queued => violation(format!("run {run} is left {}", summary.status)),
            RunStatus::Waiting if !has_question => violation(format!("run {run} waits without a question")),
            _ => {}
        }
        let mut events = Vec::new();
        loop {
            let last = events.last().map_or(0, |event: &RunEvent| event.sequence);
            let more = control.events(run, last).await.unwrap();
            if more.is_empty() {
                break;
            }
            events.extend(more);
        }
        for item in retried_after_write(&events) {
            violation(format!("the item {item} of {run} is retried after it was paid"));
        }
        for (reference, end) in recorded_payments(&events) {
            recorded.entry(reference).or_default().push(end);
        }
        for (reference, text) in told_by(&report) {
            told.entry(reference).or_default().push(text);
        }
    }
    for (reference, made) in payments.all().into_iter().filter(|(reference, _)| reference.starts_with("ref-m-")) {
        let fault = payment_server::fault(&reference);
        if made.len() > 1 {
            violation(format!("{reference} was paid {} times by missions", made.len()));
        }
        let ends = recorded.get(&reference).cloned().unwrap_or_default();
        if !ends.iter().any(|end| matches!(end, Recorded::Done | Recorded::InDoubt)) {
            violation(format!("{reference} ({fault:?}) was paid, but its run has recorded {ends:?}"));
        }
        let texts = told.get(&reference).cloned().unwrap_or_default();
        let is_told =
            |text: &String| ["PAID", "UNKNOWN", "carried out", "may have been"].iter().any(|word| text.contains(word));
        let is_denied = texts.iter().any(|text| text.contains(&format!("FAILED {reference}")));
        if is_denied || !texts.iter().any(is_told) {
            violation(format!("{reference} ({fault:?}) was paid, but its run says {texts:?}"));
        }
        if let Some(run) = reference.strip_suffix("-c").or_else(|| reference.strip_suffix("-d")) {
            let answer = workload.answers.lock().unwrap().get(&reference).cloned();
            if answer.as_deref() != Some("yes") {
                violation(format!("{reference} was paid, but the answer to the question was {answer:?}"));
            }
            if payments.count(&format!("{run}-c")) + payments.count(&format!("{run}-d")) > 1 {
                violation(format!("the cashier of {run} paid more often than `max_calls` allows"));
            }
        }
    }
    for (reference, ends) in &recorded {
        for end in ends {
            count(format!("{end:?}"));
        }
        let fault = payment_server::fault(reference);
        let is_true = matches!(fault, Fault::None | Fault::Slow | Fault::Large) && payments.count(reference) == 1;
        if ends.contains(&Recorded::Done) && !is_true {
            violation(format!(
                "{reference} ({fault:?}) is recorded as done, but was paid {} times",
                payments.count(reference)
            ));
        }
        if ends.contains(&Recorded::Open) {
            violation(format!("a call that pays {reference} has no end"));
        }
        let texts = told.get(reference).cloned().unwrap_or_default();
        if texts.iter().any(|text| text.contains(&format!("PAID {reference}"))) && payments.count(reference) != 1 {
            violation(format!("{reference} was paid {} times, but its run says {texts:?}", payments.count(reference)));
        }
    }
    counts
}

/// The calls that pay, with how they ended, by reference.
fn recorded_payments(events: &[RunEvent]) -> Vec<(String, Recorded)> {
    let mut calls: Vec<(String, Arc<str>, Recorded)> = Vec::new();
    for event in events {
        match &event.event.kind {
            RunEventKind::ToolCalled { tool, call, input, .. } if &**tool == "pay" => {
                let reference = input["reference"].as_str().unwrap_or_default().to_owned();
                calls.push((reference, call.clone(), Recorded::Open));
            }
            RunEventKind::ToolCompleted { call, tool, failed, unknown, .. } if &**tool == "pay" => {
                let end = match (unknown, failed) {
                    (true, _) => Recorded::InDoubt,
                    (false, true) => Recorded::NotDone,
                    (false, false) => Recorded::Done,
                };
                if let Some(call) = calls.iter_mut().rev().find(|(_, id, end)| id == call && *end == Recorded::Open) {
                    call.2 = end;
                }
            }
            _ => {}
        }
    }
    calls.into_iter().map(|(reference, _, end)| (reference, end)).collect()
}

/// The items that were retried after a call that paid, or may have, without a resume between the two.
fn retried_after_write(events: &[RunEvent]) -> Vec<u32> {
    let (mut paid, mut retried) = (BTreeSet::new(), Vec::new());
    for event in events {
        let item = event.event.iteration;
        match (&event.event.kind, item) {
            (RunEventKind::MissionResumed {}, _) => paid.clear(),
            (RunEventKind::ToolCompleted { tool, failed, unknown, .. }, Some(item))
                if &**tool == "pay" && (*unknown || !failed) =>
            {
                paid.insert(item);
            }
            (RunEventKind::IterationRetrying { .. }, Some(item)) if paid.contains(&item) => retried.push(item),
            _ => {}
        }
    }
    retried
}

/// What a run says of each reference to those who read its result.
fn told_by(report: &RunReport) -> Vec<(String, String)> {
    let inputs = &report.state.inputs;
    let reference = inputs.get("reference").and_then(|value| value.as_str()).unwrap_or_default();
    let failure = report.state.failure.as_ref().map(|failure| failure.error.to_string()).unwrap_or_default();
    let mut told = Vec::new();
    for (name, task) in &report.state.tasks {
        let summary = task.summary.as_deref().unwrap_or_default();
        let error = task.error.as_deref().unwrap_or_default();
        match &**name {
            "confirm" => {
                for suffix in ["c", "d"] {
                    told.push((format!("{reference}-{suffix}"), format!("{summary} {error} {failure}")));
                }
            }
            "pay_last" => told.push((reference.to_owned(), format!("{summary} {error} {failure}"))),
            "pay" => {
                for (index, item) in task.items.iter() {
                    let error = item.error.as_deref().unwrap_or_default();
                    told.push((format!("{reference}-i{index}"), format!("{} {error} {failure}", item.summary)));
                }
            }
            _ => {}
        }
    }
    told
}
