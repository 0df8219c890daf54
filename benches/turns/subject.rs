//! One way to hold conversations, and the measuring of its turns: many conversations at once, CPU time only.

use std::{future::Future, sync::Arc, time::Duration};

use cpu_time::ProcessTime;

use crate::Bench;

/// Conversations that speak at the same time.
pub(crate) const AT_ONCE: usize = 32;

/// What a user writes so that the model calls the tool.
pub(crate) const ASKS_TOOL: &str = "Which departures to Torsay are there today?";
/// What a user writes so that the model answers at once.
pub(crate) const ASKS: &str = "And from where does the first one leave?";

/// One way to hold conversations.
pub(crate) trait Side: Send + Sync + 'static {
    /// A conversation.
    type Talk: Send;
    /// Begins a conversation: its first exchange is not measured.
    fn open(&self) -> impl Future<Output = Self::Talk> + Send;
    /// One turn, until the answer is stored and delivered. Panics when the answer is wrong.
    fn turn(&self, talk: &mut Self::Talk, text: &str) -> impl Future<Output = ()> + Send;
}

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// What the user writes in each of the turns measured, over and over.
    pub(crate) texts: &'static [&'static str],
    /// Turns of each conversation that are measured.
    pub(crate) turns: usize,
    /// Conversations that each of those at once holds, one after the other, in a round.
    pub(crate) conversations: usize,
}

/// A turn that is one model call.
pub(crate) const TEXT: Load = Load { texts: &[ASKS], turns: 1, conversations: 8 };
/// A turn with a tool: two model calls.
pub(crate) const TOOL: Load = Load { texts: &[ASKS_TOOL], turns: 1, conversations: 8 };
/// Five turns with a tool each; the history grows.
pub(crate) const TALK: Load = Load { texts: &[ASKS_TOOL], turns: 5, conversations: 3 };
/// Turns of a flow that needs no model.
pub(crate) const FLOW: Load = Load { texts: &["3", "2"], turns: 8, conversations: 8 };

/// CPU microseconds of one turn. Opening the conversations is not counted.
pub(crate) fn cost<S: Side>(bench: &Bench, side: &Arc<S>, load: Load) -> f64 {
    let (mut spent, mut turns) = (Duration::ZERO, 0);
    // The first round warms connections, caches and statements.
    for round in 0..=bench.rounds {
        let talks = bench.runtime.block_on(at_once((0..AT_ONCE).map(|_| open(side.clone(), load.conversations))));
        let began = ProcessTime::now();
        bench.runtime.block_on(at_once(talks.into_iter().map(|talks| speak(side.clone(), talks, load))));
        if round > 0 {
            spent += began.elapsed();
            turns += AT_ONCE * load.conversations * load.turns;
        }
    }
    spent.as_secs_f64() * 1e6 / turns as f64
}

async fn open<S: Side>(side: Arc<S>, count: usize) -> Vec<S::Talk> {
    let mut talks = Vec::with_capacity(count);
    for _ in 0..count {
        talks.push(side.open().await);
    }
    talks
}

async fn speak<S: Side>(side: Arc<S>, talks: Vec<S::Talk>, load: Load) {
    for mut talk in talks {
        for text in load.texts.iter().cycle().take(load.turns) {
            side.turn(&mut talk, text).await;
        }
    }
}

/// Runs each as a task of its own.
async fn at_once<T: Send + 'static>(work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let tasks: Vec<_> = work.map(tokio::spawn).collect();
    futures::future::try_join_all(tasks).await.expect("a conversation went wrong")
}
