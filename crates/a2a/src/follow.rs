//! From the first answer to the end of a task: the stream while it lasts, a new one after it broke, questions when there is
//! none.

use std::time::Duration;

use segue_base::{context::CallContext, limits};
use serde_json::Map;

use super::{
    FirstResponse, SendReceipt, TaskListener,
    dialect::Operation,
    events::{StreamItem, TaskEventStream},
    fault::{A2aError, A2aErrorKind},
    model::{Status, Task, Update, text_of},
    remote::Remote,
    wire::{Answered, Request, stopped_as},
};

/// Follows a task until it is settled.
pub(super) async fn follow(
    remote: &Remote,
    accepted: SendReceipt,
    listener: &mut dyn TaskListener,
    cx: &CallContext,
) -> Result<Task, A2aError> {
    let FirstResponse::Task(task) = accepted.first else {
        return Err(A2aError::new(A2aErrorKind::Unreadable, "a message is no task that could be followed"));
    };
    let mut course = Course { task, said: Vec::new(), listener };
    course.speak().await;
    let mut live = accepted.live;
    let mut again = live.is_some();
    while !course.task.status.state.is_settled() {
        let Some(mut stream) = live.take() else { break };
        let broken = course.hear(&mut stream, cx).await?;
        // One new stream for one that broke: a server that ends every stream is asked instead.
        if broken && std::mem::take(&mut again) && !course.task.status.state.is_settled() {
            live = subscribe(remote, &course.task.id, cx).await;
        }
    }
    if !course.task.status.state.is_settled() {
        course.ask(remote, cx).await?;
    }
    Ok(course.task)
}

async fn subscribe(remote: &Remote, task: &str, cx: &CallContext) -> Option<TaskEventStream> {
    let (wire, _) = remote.wire(cx).await.ok()?;
    let request =
        Request { operation: Operation::Subscribe, task: Some(task.to_owned()), body: Map::new(), id: task.to_owned() };
    match wire.ask(&request, &cx.with_timeout(remote.access.timeout)).await {
        Ok(Answered::Stream(stream)) => Some(stream),
        Ok(Answered::Whole(_)) | Err(_) => None,
    }
}

/// A task on its way.
struct Course<'a> {
    task: Task,
    /// What was passed on already: a repetition is not said again.
    said: Vec<String>,
    listener: &'a mut dyn TaskListener,
}

impl Course<'_> {
    /// Passes on what is said about a state that is not the last.
    async fn speak(&mut self) {
        let Status { state, message: Some(message), .. } = &self.task.status else { return };
        let text = text_of(&message.parts);
        if state.is_settled() || text.trim().is_empty() || self.said.contains(&text) {
            return;
        }
        if self.said.len() < limits::A2A_UPDATES_SENT {
            self.listener.said(&text).await;
            self.said.push(text);
        }
    }

    /// Hears a stream to its end. True when it ended before the task did.
    async fn hear(&mut self, stream: &mut TaskEventStream, cx: &CallContext) -> Result<bool, A2aError> {
        loop {
            let next = match cx.with_timeout(limits::A2A_STREAM_IDLE).wait(stream.next()).await {
                Ok(next) => next,
                // Silence for a long time is a connection that is gone; the end of the turn is not.
                Err(_) if !cx.remaining().is_zero() && !cx.cancel.is_cancelled() => return Ok(true),
                Err(stopped) => return Err(stopped_as(stopped, "the task did not end")),
            };
            match next {
                Ok(StreamItem::Alive) => {}
                Ok(StreamItem::Update(update)) => {
                    // A message beside a task is something said about it.
                    if let Update::Message(message) = *update {
                        self.task.status.message = Some(message);
                    } else if size(&self.task) < limits::A2A_TASK {
                        self.task.take(*update);
                    } else {
                        return Err(A2aError::new(A2aErrorKind::TooLarge, "the task is larger than is taken"));
                    }
                    self.speak().await;
                    if self.task.status.state.is_settled() {
                        return Ok(false);
                    }
                }
                Ok(StreamItem::End) => return Ok(true),
                Err(A2aError { kind: A2aErrorKind::Broken, .. }) => return Ok(true),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Asks how it stands: at once, then in growing pauses, until it is settled or patience ends.
    async fn ask(&mut self, remote: &Remote, cx: &CallContext) -> Result<(), A2aError> {
        let end = cx.with_timeout(remote.access.patience);
        let mut pauses = pauses(remote.access.first_pause);
        let mut failed = 0;
        loop {
            match remote.task(&self.task.id, limits::A2A_HISTORY, &end).await {
                Ok(task) => (self.task, failed) = (task, 0),
                // The task goes on over there: one question that fails says nothing about it.
                Err(fault) if fault.may_pass() && failed < limits::A2A_POLL_FAILURES && !end.remaining().is_zero() => {
                    failed += 1;
                }
                Err(fault) => return Err(fault),
            }
            self.speak().await;
            if self.task.status.state.is_settled() {
                return Ok(());
            }
            let wait = pauses.next().unwrap_or(limits::A2A_PAUSE_MAX).min(end.remaining());
            end.wait(end.clock.sleep(end.clock.deadline(wait)))
                .await
                .map_err(|stopped| stopped_as(stopped, "the task did not end"))?;
            if end.remaining().is_zero() {
                let words = format!("the task did not end within {:?}", remote.access.patience);
                return Err(A2aError::new(A2aErrorKind::Late, words));
            }
        }
    }
}

/// Pauses that double until they are as long as pauses get.
fn pauses(first: Duration) -> impl Iterator<Item = Duration> {
    let first = first.clamp(Duration::from_millis(1), limits::A2A_PAUSE_MAX);
    std::iter::successors(Some(first), |pause| Some((*pause * 2).min(limits::A2A_PAUSE_MAX)))
}

/// Roughly how many bytes a task holds.
fn size(task: &Task) -> usize {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let said = task.history.iter().flat_map(|message| &message.parts);
    parts
        .chain(said)
        .map(|part| match part {
            super::model::Part::Text(text) => text.len(),
            super::model::Part::Data(data) => data.to_string().len(),
            super::model::Part::File(file) => file.bytes.as_ref().map_or(64, String::len),
        })
        .sum()
}
