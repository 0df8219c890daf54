//! One way to hold conversations, and the measuring of its turns: many conversations at once, CPU time only.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::runtime::Runtime;

use crate::{Effort, machine};

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

/// CPU microseconds of one turn. Opening the conversations is not counted.
pub(crate) fn cost<S: Side>(runtime: &Runtime, side: &Arc<S>, load: Load, effort: Effort) -> f64 {
    let (mut spent, mut turns) = (Duration::ZERO, 0);
    // The first round warms connections, caches and statements.
    for round in 0..=effort.rounds {
        let talks = runtime.block_on(open_all(side, load.conversations));
        let ((), cpu) = machine::cpu(|| runtime.block_on(speak_all(side, talks, load)));
        if round > 0 {
            spent += cpu;
            turns += AT_ONCE * load.conversations * load.turns;
        }
    }
    spent.as_secs_f64() * 1e6 / turns as f64
}

/// Opens as many conversations for each of those at once.
pub(crate) async fn open_all<S: Side>(side: &Arc<S>, each: usize) -> Vec<Vec<S::Talk>> {
    let opening = (0..AT_ONCE).map(|_| {
        let side = side.clone();
        tokio::spawn(async move {
            let mut talks = Vec::with_capacity(each);
            for _ in 0..each {
                talks.push(side.open().await);
            }
            talks
        })
    });
    joined(opening).await
}

/// Lets all of them speak.
async fn speak_all<S: Side>(side: &Arc<S>, talks: Vec<Vec<S::Talk>>, load: Load) {
    let speaking = talks.into_iter().map(|mut talks| {
        let side = side.clone();
        tokio::spawn(async move {
            for talk in &mut talks {
                for text in load.texts.iter().cycle().take(load.turns) {
                    side.turn(talk, text).await;
                }
            }
        })
    });
    joined(speaking).await;
}

async fn joined<T>(tasks: impl Iterator<Item = tokio::task::JoinHandle<T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.expect("a conversation went wrong"));
    }
    done
}
