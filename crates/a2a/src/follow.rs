//! Follows a task from its first response to its end: on the stream, on one new stream after a lost connection, then by
//! polling.

use std::time::Duration;

use segue_base::{context::CallContext, limits};
use serde_json::Map;

use super::{
    FirstResponse, SendReceipt, TaskListener,
    client::RemoteAgent,
    error::{A2aError, A2aErrorKind},
    events::{StreamItem, TaskEventStream},
    model::{Status, Task, Update, text_of},
    transport::{AgentResponse, Request, wait_error},
    version::Operation,
};

/// Follows a task until its state is terminal or interrupted.
pub(super) async fn follow(
    remote: &RemoteAgent,
    accepted: SendReceipt,
    listener: &mut dyn TaskListener,
    cx: &CallContext,
) -> Result<Task, A2aError> {
    let FirstResponse::Task(task) = accepted.first else {
        return Err(A2aError::new(A2aErrorKind::InvalidResponse, "a message without a task cannot be followed"));
    };
    let mut follower = TaskFollower { task, reported: Vec::new(), listener };
    follower.report_status_text().await;
    let mut live = accepted.live;
    let mut again = live.is_some();
    while !follower.task.status.state.is_terminal_or_interrupted() {
        let Some(mut stream) = live.take() else { break };
        let broken = follower.read_stream(&mut stream, cx).await?;
        // Only one new stream: with a server that ends every stream, the task is polled instead.
        if broken && std::mem::take(&mut again) && !follower.task.status.state.is_terminal_or_interrupted() {
            live = subscribe(remote, &follower.task.id, cx).await;
        }
    }
    if !follower.task.status.state.is_terminal_or_interrupted() {
        follower.poll(remote, cx).await?;
    }
    Ok(follower.task)
}

async fn subscribe(remote: &RemoteAgent, task: &str, cx: &CallContext) -> Option<TaskEventStream> {
    let (connection, _) = remote.connect(cx).await.ok()?;
    let request =
        Request { operation: Operation::Subscribe, task: Some(task.to_owned()), body: Map::new(), id: task.to_owned() };
    match connection.call(&request, &cx.with_timeout(remote.config.timeout)).await {
        Ok(AgentResponse::Stream(stream)) => Some(stream),
        Ok(AgentResponse::Complete(_)) | Err(_) => None,
    }
}

/// The state of a task that is followed.
struct TaskFollower<'a> {
    task: Task,
    /// Status texts that were reported already: a repetition is not reported again.
    reported: Vec<String>,
    listener: &'a mut dyn TaskListener,
}

impl TaskFollower<'_> {
    /// Reports the text of a state that is neither terminal nor interrupted.
    async fn report_status_text(&mut self) {
        let Status { state, message: Some(message), .. } = &self.task.status else { return };
        let text = text_of(&message.parts);
        if state.is_terminal_or_interrupted() || text.trim().is_empty() || self.reported.contains(&text) {
            return;
        }
        if self.reported.len() < limits::A2A_UPDATES_SENT {
            self.listener.on_status_text(&text).await;
            self.reported.push(text);
        }
    }

    /// Reads a stream to its end. True if it ended before the task did.
    async fn read_stream(&mut self, stream: &mut TaskEventStream, cx: &CallContext) -> Result<bool, A2aError> {
        loop {
            let next = match cx.with_timeout(limits::A2A_STREAM_IDLE).wait(stream.next()).await {
                Ok(next) => next,
                // A long silence means a lost connection, unless the call itself ended.
                Err(_) if !cx.remaining().is_zero() && !cx.cancel.is_cancelled() => return Ok(true),
                Err(stopped) => return Err(wait_error(stopped, "the task did not end")),
            };
            match next {
                Ok(StreamItem::Alive) => {}
                Ok(StreamItem::Update(update)) => {
                    // A message on the stream of a task is a status text.
                    if let Update::Message(message) = *update {
                        self.task.status.message = Some(message);
                    } else if size(&self.task) < limits::A2A_TASK {
                        self.task.take(*update);
                    } else {
                        return Err(A2aError::new(A2aErrorKind::TooLarge, "the task is larger than the limit"));
                    }
                    self.report_status_text().await;
                    if self.task.status.state.is_terminal_or_interrupted() {
                        return Ok(false);
                    }
                }
                Ok(StreamItem::End) => return Ok(true),
                Err(A2aError { kind: A2aErrorKind::ConnectionLost, .. }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Polls the task: at once, then after growing pauses, until its state is terminal or interrupted, or the polling
    /// time ends.
    async fn poll(&mut self, remote: &RemoteAgent, cx: &CallContext) -> Result<(), A2aError> {
        let end = cx.with_timeout(remote.config.max_polling_time);
        let mut pauses = pauses(remote.config.polling_initial_delay);
        let mut failed = 0;
        loop {
            match remote.task(&self.task.id, limits::A2A_HISTORY, &end).await {
                Ok(task) => (self.task, failed) = (task, 0),
                // The task continues at the agent: one failed poll does not matter.
                Err(error)
                    if error.is_transient() && failed < limits::A2A_POLL_FAILURES && !end.remaining().is_zero() =>
                {
                    failed += 1;
                }
                Err(error) => return Err(error),
            }
            self.report_status_text().await;
            if self.task.status.state.is_terminal_or_interrupted() {
                return Ok(());
            }
            let wait = pauses.next().unwrap_or(limits::A2A_PAUSE_MAX).min(end.remaining());
            end.wait(end.clock.sleep(end.clock.deadline(wait)))
                .await
                .map_err(|stopped| wait_error(stopped, "the task did not end"))?;
            if end.remaining().is_zero() {
                let text = format!("the task did not end within {:?}", remote.config.max_polling_time);
                return Err(A2aError::new(A2aErrorKind::TimedOut, text));
            }
        }
    }
}

/// Pauses that double up to [`limits::A2A_PAUSE_MAX`].
fn pauses(first: Duration) -> impl Iterator<Item = Duration> {
    let first = first.clamp(Duration::from_millis(1), limits::A2A_PAUSE_MAX);
    std::iter::successors(Some(first), |pause| Some((*pause * 2).min(limits::A2A_PAUSE_MAX)))
}

/// The approximate size of a task in bytes.
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
