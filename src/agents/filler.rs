//! Something to hear while tools work: said only when they are slow, only when the agent said nothing itself, and never a
//! promise of how it will end.
//!
//! The texts are the response `utter_agent_filler`, or how far the tool is where it tells (`news.rs`); no two in a row are the
//! same. What was said is noted, so a turn that runs again from its record says the same and no clock decides it a second time.
//! A cancelled turn, such as one that the user speaks into, says nothing more.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::{
    AgentRequest,
    completion::Ledger,
    news::{News, Told},
    speech::Spoken,
};
use crate::{
    context::CallContext,
    conversation::{BotKind, ReplySink},
    limits,
};

/// The response with the texts.
const RESPONSE: &str = "utter_agent_filler";

/// What the record of one round of calls holds.
#[derive(Default, Serialize, Deserialize)]
struct Noted {
    said: Vec<Arc<str>>,
}

/// Waits beside work that may be slow.
pub(super) struct Fillers<'a> {
    task: &'a AgentRequest<'a>,
    after: Option<Duration>,
    last: Option<Arc<str>>,
    told: Told,
}

impl<'a> Fillers<'a> {
    /// With the pace of the channel on which the user wrote.
    pub(super) fn of(task: &'a AgentRequest<'a>) -> Self {
        let message = task.conversation.latest_message.as_ref();
        let channel = message.map_or("", |message| &*message.input_channel);
        let pace = task.definition.rules.filler_after.as_ref();
        let after = pace.filter(|_| task.definition.enable_filler_messages).and_then(|pace| pace.on(channel));
        Self { task, after, last: None, told: Told::default() }
    }

    /// Where the one call of a round tells how far it is, before the work begins.
    pub(super) fn listen(&mut self) -> News {
        self.told.anew();
        self.told.news.clone()
    }

    /// Does the work. While it takes long, and unless `quiet`, the user hears that it goes on.
    pub(super) async fn beside<T: Send>(
        &mut self,
        work: impl Future<Output = T> + Send,
        quiet: bool,
        ledger: &mut Ledger<'_>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) -> T {
        let Some(after) = self.after.filter(|_| !quiet) else { return work.await };
        let (cx, desk) = (cx.step("filler"), self.task.desk);
        let (mut noted, mut done) = (Noted::default(), None);
        let mut work = std::pin::pin!(work);
        let speaking = async {
            let mut wait = after;
            while done.is_none() && noted.said.len() < limits::FILLER_MESSAGES {
                let until = cx.clock.deadline(wait);
                tokio::select! {
                    biased;
                    result = &mut work => done = Some(result),
                    () = cx.cancel.cancelled() => break,
                    () = cx.clock.sleep(until) => {
                        let Some(text) = self.next(noted.said.len()) else { break };
                        self.say(&text, noted.said.len(), out, &cx).await;
                        noted.said.push(text);
                        // Each silence is longer than the one before: nobody wants to be told every three seconds.
                        wait = wait.saturating_mul(3);
                    }
                }
            }
            if done.is_none() {
                done = Some((&mut work).await);
            }
            json!(noted)
        };
        let recorded = desk.once(&cx, Box::pin(speaking)).await;
        if let Some(recorded) = recorded {
            noted = serde_json::from_value(recorded).unwrap_or_default();
            for (at, text) in noted.said.iter().enumerate() {
                self.say(text, at, out, &cx).await;
            }
        }
        keep(&noted, ledger, &cx);
        match done {
            Some(done) => done,
            None => work.await,
        }
    }

    /// The next text: how far it is, where that is known; else by turns, never the one before again where there is another.
    fn next(&mut self, at: usize) -> Option<Arc<str>> {
        let first = self.task.conversation.events;
        if let Some(news) = self.told.next(self.task, first.wrapping_add(at as u64)) {
            return Some(news);
        }
        let texts = (first..first + 8).filter_map(|lot| self.task.desk.words(RESPONSE, &Map::new(), lot));
        let mut texts = texts.peekable();
        let any = texts.peek().cloned();
        texts.find(|text| Some(text) != self.last.as_ref() && !self.heard_before(text)).or(any)
    }

    /// Whether it is the last text of this conversation.
    fn heard_before(&self, text: &Arc<str>) -> bool {
        self.last.is_none()
            && self
                .task
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
        Spoken::whole(&cx.step(at), text.clone()).end(BotKind::Filler, out, cx).await;
        self.last = Some(text.clone());
    }
}

/// Puts what was said into the events, once it is noted: the note has set the clock, now as in every later life of the turn.
fn keep(noted: &Noted, ledger: &mut Ledger<'_>, cx: &CallContext) {
    for (at, text) in noted.said.iter().enumerate() {
        ledger.said(&Spoken::whole(&cx.step(at), text.clone()), BotKind::Filler, false, cx);
    }
}
