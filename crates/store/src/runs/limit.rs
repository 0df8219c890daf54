//! Checks of sizes, before anything is written.

use segue_base::limits;
use segue_engine::{
    ids::RunId,
    limits::{RUN_NAME, RUN_TEXT, RUN_UNITS},
};

use super::{NewRun, NewUnit, QuestionReply, RunBatch, RunStoreError, Signal, UnitBatch};

fn check(run: &RunId, what: &'static str, size: usize, limit: usize) -> Result<(), RunStoreError> {
    if size <= limit { Ok(()) } else { Err(RunStoreError::TooLarge { run: run.clone(), what, size, limit }) }
}

fn text(run: &RunId, what: &'static str, text: &str) -> Result<(), RunStoreError> {
    check(run, what, text.len(), RUN_TEXT)
}

fn name(run: &RunId, what: &'static str, name: &str) -> Result<(), RunStoreError> {
    check(run, what, name.len(), RUN_NAME)
}

fn events<'e>(run: &RunId, events: impl IntoIterator<Item = &'e std::sync::Arc<str>>) -> Result<(), RunStoreError> {
    events.into_iter().try_for_each(|event| text(run, "the bytes of an event", event))
}

fn units(run: &RunId, units: &[NewUnit]) -> Result<(), RunStoreError> {
    units.iter().try_for_each(|unit| {
        name(run, "the bytes of the name of a unit", &unit.name)?;
        text(run, "the bytes of the input of a unit", &unit.input)
    })
}

fn items(run: &RunId, count: usize) -> Result<(), RunStoreError> {
    check(run, "the number of entries in a batch", count, limits::RUN_BATCH)
}

/// Checks a run to start.
pub(crate) fn check_run(run: &NewRun) -> Result<(), RunStoreError> {
    let id = &run.id;
    let conversation = run.conversation.as_ref().map(segue_engine::ids::ConversationId::as_str);
    let names = [Some(id.as_str()), Some(&*run.mission), conversation, run.group.as_deref()];
    for text in names.into_iter().flatten().chain(run.idempotency_key.as_deref()) {
        name(id, "the bytes of an id or name", text)?;
    }
    text(id, "the bytes of the inputs", &run.inputs)?;
    items(id, run.events.len() + run.units.len())?;
    events(id, &run.events)?;
    units(id, &run.units)
}

/// Checks the progress of a unit.
pub(crate) fn check_batch(batch: &UnitBatch) -> Result<(), RunStoreError> {
    let run = &batch.unit.run;
    let lists = [batch.events.len(), batch.records.len(), batch.new_units.len(), batch.wake_units.len()];
    let more = [batch.cancel_units.len(), batch.blobs.len(), batch.questions.len(), batch.close_questions.len()];
    items(run, lists.into_iter().chain(more).sum())?;
    events(run, &batch.events)?;
    units(run, &batch.new_units)?;
    if let Some(checkpoint) = &batch.checkpoint {
        text(run, "the bytes of a checkpoint", checkpoint)?;
    }
    for record in &batch.records {
        name(run, "the bytes of the key of a step", record.key.as_str())?;
        text(run, "the bytes of the outcome of a step", record.outcome.as_deref().unwrap_or_default())?;
    }
    for blob in &batch.blobs {
        name(run, "the bytes of the id of a stored result", &blob.id)?;
        text(run, "the bytes of a stored result", &blob.text)?;
    }
    for question in &batch.questions {
        name(run, "the bytes of the id of a question", question.id.as_str())?;
        text(run, "the bytes of a question", &question.question)?;
    }
    Ok(())
}

/// Checks a change of a run.
pub(crate) fn check_run_batch(batch: &RunBatch) -> Result<(), RunStoreError> {
    let run = &batch.run;
    let lists = [batch.events.len(), batch.new_units.len(), batch.wake_units.len(), batch.cancel_units.len()];
    items(run, lists.into_iter().sum())?;
    events(run, &batch.events)?;
    units(run, &batch.new_units)
}

/// Checks a reply to a question.
pub(crate) fn check_reply(reply: &QuestionReply) -> Result<(), RunStoreError> {
    let run = &reply.question.run;
    name(run, "the bytes of the id of an event", &reply.event_id)?;
    text(run, "the bytes of a reply", &reply.text)?;
    items(run, reply.events.len())?;
    events(run, &reply.events)
}

/// Checks a signal.
pub(crate) fn check_signal(run: &RunId, signal: &Signal) -> Result<(), RunStoreError> {
    let Signal::Message { id, text: message, .. } = signal else { return Ok(()) };
    name(run, "the bytes of the id of a message", id)?;
    text(run, "the bytes of a message", message)
}

/// Checks how many units a run has after some are added.
pub(crate) fn check_unit_count(run: &RunId, count: u64) -> Result<(), RunStoreError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    check(run, "the number of units", count, RUN_UNITS)
}

/// Checks how many messages a run has after one is added.
pub(crate) fn check_message_count(run: &RunId, count: u64) -> Result<(), RunStoreError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    check(run, "the number of messages", count, limits::RUN_MESSAGES)
}
