//! What the length of a conversation costs: turns of young conversations beside turns of old ones, in one store, by turns.

use std::{sync::Arc, time::Duration};

use crate::{
    Bench,
    assistant::{Keep, Segue, assistant},
    figures::{Figure, Goal, Table},
    machine,
    side::{self, Load},
};

/// Turns that are measured at once, of each conversation.
const TURNS: usize = 16;
/// Turns of a young conversation before it is measured: then what a model is shown of it is as long as later.
const OPENING: usize = 6;
/// Times that young and old ones are measured in turn.
const ROUNDS: usize = 9;
/// A turn at the end may cost this much more than one at the start; more is growth and not noise.
const MOST: f64 = 1.1;

/// Turns of young conversations and of old ones.
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
        let old_talks = grow(bench, &segue, texts);
        let (mut young, mut old, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut old_talks = Some(old_talks);
        for _ in 0..ROUNDS {
            // New conversations each time, in the same store: what differs is their length alone.
            let talks = bench.runtime.block_on(side::open_all(&segue, 1));
            let talks =
                bench.runtime.block_on(side::speak(&segue, talks, Load { texts, turns: OPENING, conversations: 1 }));
            let (_, at_first) = measure(bench, &segue, talks, texts);
            let (talks, at_last) = measure(bench, &segue, old_talks.take().unwrap(), texts);
            old_talks = Some(talks);
            young.push(at_first);
            old.push(at_last);
            ratios.push(at_last / at_first);
        }
        table.push(Figure::new(format!("{name}: young"), "CPU µs/turn", young));
        table.push(Figure::new(format!("{name}: old"), "CPU µs/turn", old));
        table.push(Figure::new(format!("{name}: old to young"), "ratio", ratios).goal(Goal::must(MOST)));
    }
    table
}

/// Conversations that are as long as the bench asks.
fn grow(bench: &Bench, segue: &Arc<Segue>, texts: &'static [&'static str]) -> Vec<Vec<String>> {
    let mut talks = bench.runtime.block_on(side::open_all(segue, 1));
    let mut turns = TURNS;
    loop {
        talks = bench.runtime.block_on(side::speak(segue, talks, Load { texts, turns, conversations: 1 }));
        let name = talks[0][0].clone();
        let conversation = bench.runtime.block_on(segue.assistant.conversation(&name.as_str().into())).unwrap();
        let left = bench.effort.events.saturating_sub(conversation.events);
        if left == 0 {
            return talks;
        }
        let each = (conversation.events / conversation.turns.max(1)).max(1);
        turns = usize::try_from(left.div_ceil(each)).unwrap();
    }
}

/// The conversations after some more turns, and the microseconds of one.
fn measure(
    bench: &Bench,
    segue: &Arc<Segue>,
    talks: Vec<Vec<String>>,
    texts: &'static [&'static str],
) -> (Vec<Vec<String>>, f64) {
    let load = Load { texts, turns: TURNS, conversations: 1 };
    let (talks, cpu) = machine::cpu(|| bench.runtime.block_on(side::speak(segue, talks, load)));
    (talks, micros(cpu))
}

fn micros(cpu: Duration) -> f64 {
    cpu.as_secs_f64() * 1e6 / (TURNS * side::AT_ONCE) as f64
}
