//! What streaming costs: CPU time of one delta in a burst, and the way of the first delta to the channel.

use std::sync::Arc;

use crate::{
    Bench,
    assistant::{Keep, Segue, assistant},
    figures::{Figure, Goal, Table},
    floor::{Depth, Floor, Transport},
    machine,
    side::{self, Side},
};

/// Deltas of the longer answer, all in one write of the server; the shorter has [`FEW`].
const MANY: usize = 2_000;
const FEW: usize = 100;

/// A burst of deltas.
pub(crate) fn deltas(bench: &Bench) -> Table {
    let mut table = Table::new("Streaming");
    let segue = Segue::desk(assistant(&bench.root, bench.folder.path(), Keep::Memory));
    let bare = Floor::new(Transport::client(bench.model.address), Depth::Calls);
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for _ in 0..bench.effort.repetitions {
        least.push(per_delta(bench, &bare));
        ours.push(per_delta(bench, &segue));
    }
    let least = Figure::new("delta in a burst: bare client", "CPU µs", least);
    let floor = least.median();
    table.push(least);
    table.push(Figure::new("delta in a burst: Segue", "CPU µs", ours).goal(Goal::of(3.0, 1.0)).floor(floor));
    first_byte(bench, &mut table);
    table
}

/// The difference between long and short answers, per delta.
fn per_delta<S: Burst>(bench: &Bench, side: &Arc<S>) -> f64 {
    let turns = 2 * bench.effort.rounds;
    let cost = |deltas: usize| {
        let talks = bench.runtime.block_on(side::open_all(side, 1));
        let ((), cpu) = machine::cpu(|| {
            bench.runtime.block_on(async {
                let speaking = talks.into_iter().flatten().map(|mut talk| {
                    let side = side.clone();
                    tokio::spawn(async move {
                        for _ in 0..turns {
                            side.burst(&mut talk, deltas).await;
                        }
                    })
                });
                for done in speaking.collect::<Vec<_>>() {
                    done.await.unwrap();
                }
            });
        });
        cpu.as_secs_f64() * 1e6 / (turns * side::AT_ONCE) as f64
    };
    let (few, many) = (cost(FEW), cost(MANY));
    (many - few) / (MANY - FEW) as f64
}

/// A side that can be answered with a burst.
trait Burst: Side {
    fn burst(&self, talk: &mut Self::Talk, deltas: usize) -> impl Future<Output = ()> + Send;
}

impl Burst for Floor {
    async fn burst(&self, talk: &mut Self::Talk, deltas: usize) {
        self.turn(talk, &format!("burst:{deltas}")).await;
        // What is said does not belong to the next request: only the answer is measured.
        talk.forget();
    }
}

impl Burst for Segue {
    async fn burst(&self, talk: &mut String, deltas: usize) {
        let shown = self.say(talk, &format!("burst:{deltas}")).await;
        assert_eq!(shown.deltas, deltas);
        // A short answer pushes the long ones out of the window of the history, in both measurements alike.
        self.next_talk(talk);
        self.say(talk, "/desk").await;
    }
}

/// From the model's first delta to the channel, one conversation at a time. The wait for the server's write is part of it.
fn first_byte(bench: &Bench, table: &mut Table) {
    let tries = 40 * bench.effort.rounds;
    let unit = "ms, median";
    for (name, keep, goal) in [
        ("first delta → channel: Segue", Keep::Normal, Goal::must(0.2)),
        ("first delta → channel: Segue, memory store", Keep::Memory, Goal::NONE),
    ] {
        let segue = Segue::desk(assistant(&bench.root, bench.folder.path(), keep));
        let mut talk = bench.runtime.block_on(segue.open());
        let medians = (0..bench.effort.repetitions).map(|_| {
            let mut seen: Vec<u64> = (0..tries)
                .map(|_| {
                    let shown = bench.runtime.block_on(segue.say(&talk, "What does the clock say?"));
                    shown.first_ns.expect("the first delta is the time")
                })
                .collect();
            segue.next_talk(&mut talk);
            bench.runtime.block_on(segue.say(&talk, "/desk"));
            seen.sort_unstable();
            seen[seen.len() / 2] as f64 / 1e6
        });
        table.push(Figure::new(name, unit, medians.collect()).goal(goal));
    }
}
