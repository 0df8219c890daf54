//! What the length of a conversation costs: turns of young conversations beside turns of an old one, in one store, by turns.
//!
//! One conversation speaks at a time. Of many at once the young ones would lie side by side in the store, which says nothing
//! about length.

use std::{sync::Arc, time::Duration};

use crate::{
    Bench,
    assistant::{Keep, Segue, assistant},
    figures::{Figure, Goal, Table},
    machine,
    side::{self, Side},
};

/// Turns that are measured at once.
const TURNS: usize = 16;
/// Turns of a young conversation before it is measured: then what a model is shown of it is as long as later.
const OPENING: usize = 6;
/// Young conversations in a round, each followed by as many turns of the old one.
const PAIRS: usize = 16;
/// Rounds; the ratio is taken in each.
const ROUNDS: usize = 9;
/// A turn at the end may cost this much more than one at the start; more is growth and not noise.
const MOST: f64 = 1.1;

/// Turns of young conversations and of an old one.
pub(crate) fn length(bench: &Bench) -> Table {
    let mut table = Table::new(format!("A conversation's length: event 10 and event {}", bench.effort.events));
    for (name, begin, keep) in [
        ("flow turn", "/count", Keep::Normal),
        ("flow turn, memory store", "/count", Keep::Memory),
        ("text turn", "/desk", Keep::Normal),
    ] {
        let assistant = assistant(&bench.root, bench.folder.path(), keep);
        let segue = if begin == "/count" { Segue::count(assistant) } else { Segue::desk(assistant) };
        let texts: &'static [&'static str] = if begin == "/count" { &["3", "2"] } else { &[side::ASKS] };
        let mut old_talk = grow(bench, &segue, texts);
        let (mut young, mut old, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (mut at_first, mut at_last) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..PAIRS {
                let mut talk = bench.runtime.block_on(segue.open());
                bench.runtime.block_on(speak(&segue, &mut talk, texts, OPENING));
                at_first += machine::cpu(|| bench.runtime.block_on(speak(&segue, &mut talk, texts, TURNS))).1;
                at_last += machine::cpu(|| bench.runtime.block_on(speak(&segue, &mut old_talk, texts, TURNS))).1;
            }
            young.push(micros(at_first));
            old.push(micros(at_last));
            ratios.push(micros(at_last) / micros(at_first));
        }
        table.push(Figure::new(format!("{name}: young"), "CPU µs/turn", young));
        table.push(Figure::new(format!("{name}: old"), "CPU µs/turn", old));
        table.push(Figure::new(format!("{name}: old to young"), "ratio", ratios).goal(Goal::must(MOST)));
    }
    table
}

/// A conversation that is as long as the bench asks.
fn grow(bench: &Bench, segue: &Arc<Segue>, texts: &'static [&'static str]) -> String {
    let mut talk = bench.runtime.block_on(segue.open());
    let mut turns = TURNS;
    loop {
        bench.runtime.block_on(speak(segue, &mut talk, texts, turns));
        let conversation = bench.runtime.block_on(segue.assistant.conversation(&talk.as_str().into())).unwrap();
        let left = bench.effort.events.saturating_sub(conversation.events);
        if left == 0 {
            return talk;
        }
        let each = (conversation.events / conversation.turns.max(1)).max(1);
        turns = usize::try_from(left.div_ceil(each)).unwrap();
    }
}

async fn speak(segue: &Arc<Segue>, talk: &mut String, texts: &[&str], turns: usize) {
    for text in texts.iter().cycle().take(turns) {
        segue.turn(talk, text).await;
    }
}

fn micros(cpu: Duration) -> f64 {
    cpu.as_secs_f64() * 1e6 / (TURNS * PAIRS) as f64
}
