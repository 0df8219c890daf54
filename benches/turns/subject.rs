//! The subject of a measurement, and the measurement of the CPU time of its turns, with many conversations at the same time.

use std::{future::Future, sync::Arc, time::Duration};

use cpu_time::ProcessTime;

use crate::Bench;

/// The number of conversations at the same time.
pub(crate) const CONCURRENCY: usize = 32;

/// A message that makes the model call the tool.
pub(crate) const TOOL_QUESTION: &str = "Which departures to Torsay are there today?";
/// A message that the model answers without a tool.
pub(crate) const PLAIN_QUESTION: &str = "And from where does the first one leave?";

/// A program whose turns are measured: Segue or the baseline.
pub(crate) trait Subject: Send + Sync + 'static {
    /// A conversation.
    type Conversation: Send;
    /// Starts a conversation with a first turn, which is not measured.
    fn open(&self) -> impl Future<Output = Self::Conversation> + Send;
    /// Runs one turn until the answer is stored and delivered. Panics if the answer is wrong.
    fn turn(&self, conversation: &mut Self::Conversation, text: &str) -> impl Future<Output = ()> + Send;
}

/// The turns of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// The messages of the measured turns, in rotation.
    pub(crate) texts: &'static [&'static str],
    /// The number of measured turns of each conversation.
    pub(crate) turns: usize,
    /// The number of conversations that each of the [`CONCURRENCY`] tasks has in a round, one after another.
    pub(crate) conversations: usize,
}

/// A turn with one model call.
pub(crate) const TEXT: Load = Load { texts: &[PLAIN_QUESTION], turns: 1, conversations: 8 };
/// A turn with a tool call: two model calls.
pub(crate) const TOOL: Load = Load { texts: &[TOOL_QUESTION], turns: 1, conversations: 8 };
/// Five turns with a tool call each and a growing history.
pub(crate) const CONVERSATION: Load = Load { texts: &[TOOL_QUESTION], turns: 5, conversations: 3 };
/// Turns of a flow that needs no model.
pub(crate) const FLOW: Load = Load { texts: &["3", "2"], turns: 8, conversations: 8 };

/// The CPU time of one turn in microseconds, without the opening of conversations.
pub(crate) fn cpu_time_per_turn<S: Subject>(bench: &Bench, subject: &Arc<S>, load: Load) -> f64 {
    let (mut cpu_time, mut turns) = (Duration::ZERO, 0);
    // The first round is a warm-up of connections, caches and prepared statements.
    for round in 0..=bench.rounds {
        let opening = (0..CONCURRENCY).map(|_| open(subject.clone(), load.conversations));
        let opened = bench.runtime.block_on(run_concurrently(opening));
        let start = ProcessTime::now();
        let running = opened.into_iter().map(|conversations| run_turns(subject.clone(), conversations, load));
        bench.runtime.block_on(run_concurrently(running));
        if round > 0 {
            cpu_time += start.elapsed();
            turns += CONCURRENCY * load.conversations * load.turns;
        }
    }
    cpu_time.as_secs_f64() * 1e6 / turns as f64
}

async fn open<S: Subject>(subject: Arc<S>, count: usize) -> Vec<S::Conversation> {
    let mut conversations = Vec::with_capacity(count);
    for _ in 0..count {
        conversations.push(subject.open().await);
    }
    conversations
}

async fn run_turns<S: Subject>(subject: Arc<S>, conversations: Vec<S::Conversation>, load: Load) {
    for mut conversation in conversations {
        for text in load.texts.iter().cycle().take(load.turns) {
            subject.turn(&mut conversation, text).await;
        }
    }
}

/// Runs each future as a task and waits for all of them.
async fn run_concurrently<T: Send + 'static>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = futures.map(tokio::spawn).collect();
    futures::future::try_join_all(tasks).await.expect("a conversation failed")
}
