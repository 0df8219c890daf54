//! Filler messages during slow tool calls. They are sent only if the agent sent no text itself, and they promise no result.
//!
//! The text is the response `utter_agent_filler`, or the progress of the tool if it reports any (`progress.rs`); two consecutive
//! fillers differ if possible. Sent fillers are recorded, so that a turn that runs again sends the same ones and does not depend on
//! the clock. A cancelled turn sends no more fillers.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::{
    AgentRequest,
    completion::RunRecorder,
    progress::{ProgressFeed, ProgressReporter},
};
use crate::{
    context::CallContext,
    conversation::{BotKind, ReplySink},
    limits,
    react::StreamedText,
};

/// The response with the filler texts.
const FILLER_RESPONSE: &str = "utter_agent_filler";

/// The fillers of one batch of calls, as recorded.
#[derive(Default, Serialize, Deserialize)]
struct FillerRecord {
    #[serde(rename = "said")]
    sent: Vec<Arc<str>>,
}

/// Sends fillers while work is slow.
pub(super) struct Fillers<'a> {
    request: &'a AgentRequest<'a>,
    after: Option<Duration>,
    last: Option<Arc<str>>,
    progress: ProgressReporter,
}

impl<'a> Fillers<'a> {
    /// With the delay that `filler_after` sets for the channel of the user's message.
    pub(super) fn new(request: &'a AgentRequest<'a>) -> Self {
        let message = request.conversation.latest_message.as_ref();
        let channel = message.map_or("", |message| &*message.input_channel);
        let pace = request.definition.rules.filler_after.as_ref();
        let after = pace.filter(|_| request.definition.enable_filler_messages).and_then(|pace| pace.on(channel));
        Self { request, after, last: None, progress: ProgressReporter::default() }
    }

    /// Resets the progress and returns the feed for the next call.
    pub(super) fn listen(&mut self) -> ProgressFeed {
        self.progress.reset();
        self.progress.feed.clone()
    }

    /// Waits for the work and, unless `quiet`, sends fillers while it is slow.
    pub(super) async fn run_with_fillers<T: Send>(
        &mut self,
        work: impl Future<Output = T> + Send,
        quiet: bool,
        recorder: &mut RunRecorder<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> T {
        let Some(after) = self.after.filter(|_| !quiet) else { return work.await };
        let (cx, host) = (cx.step("filler"), self.request.host);
        let (mut record, mut done) = (FillerRecord::default(), None);
        let mut work = std::pin::pin!(work);
        let sending = async {
            let mut wait = after;
            while done.is_none() && record.sent.len() < limits::FILLER_MESSAGES {
                let until = cx.clock.deadline(wait);
                tokio::select! {
                    biased;
                    result = &mut work => done = Some(result),
                    () = cx.cancel.cancelled() => break,
                    () = cx.clock.sleep(until) => {
                        let Some(text) = self.next(record.sent.len()) else { break };
                        self.say(&text, record.sent.len(), out, &cx).await;
                        record.sent.push(text);
                        // Each pause is three times as long as the one before, so that fillers do not become a nuisance.
                        wait = wait.saturating_mul(3);
                    }
                }
            }
            if done.is_none() {
                done = Some((&mut work).await);
            }
            json!(record)
        };
        let recorded = host.once(&cx, Box::pin(sending)).await;
        if let Some(recorded) = recorded {
            record = serde_json::from_value(recorded).unwrap_or_default();
            for (at, text) in record.sent.iter().enumerate() {
                self.say(text, at, out, &cx).await;
            }
        }
        record_fillers(&record, recorder, &cx);
        match done {
            Some(done) => done,
            None => work.await,
        }
    }

    /// The next text: the progress, if there is any; else the next variation that differs from the previous filler.
    fn next(&mut self, at: usize) -> Option<Arc<str>> {
        let first = self.request.conversation.events;
        if let Some(progress) = self.progress.next(self.request, first.wrapping_add(at as u64)) {
            return Some(progress);
        }
        let texts =
            (first..first + 8).filter_map(|seed| self.request.host.render_response(FILLER_RESPONSE, &Map::new(), seed));
        let mut texts = texts.peekable();
        let any = texts.peek().cloned();
        texts.find(|text| Some(text) != self.last.as_ref() && !self.is_latest_filler(text)).or(any)
    }

    /// Whether it is the newest filler of the conversation.
    fn is_latest_filler(&self, text: &Arc<str>) -> bool {
        self.last.is_none()
            && self
                .request
                .conversation
                .history
                .iter()
                .rev()
                .find_map(|item| match item {
                    segue_engine::conversation::HistoryItem::Bot { text, kind: BotKind::Filler, .. } => Some(text),
                    _ => None,
                })
                .is_some_and(|before| **before == **text)
    }

    async fn say(&mut self, text: &Arc<str>, at: usize, out: &mut dyn ReplySink, cx: &CallContext) {
        StreamedText::complete(&cx.step(at), text.clone()).send_end(BotKind::Filler, out, cx).await;
        self.last = Some(text.clone());
    }
}

/// Adds the fillers to the events. This happens after they are recorded, because the record sets the clock of the turn.
fn record_fillers(record: &FillerRecord, recorder: &mut RunRecorder<'_>, cx: &CallContext) {
    for (at, text) in record.sent.iter().enumerate() {
        recorder.record_text(&StreamedText::complete(&cx.step(at), text.clone()), BotKind::Filler, false, cx);
    }
}
