//! What the length of a conversation costs: turns of young conversations beside turns of the same ones when they are old.

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
/// A turn at the end may cost this much more than one at the start; more is growth and not noise.
const MOST: f64 = 1.1;

/// Turns at event 10 and at the last event.
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
        let (mut young, mut old, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let (at_first, at_last) = grow(bench, &segue, texts);
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

/// Microseconds of a turn at the start and at the end.
fn grow(bench: &Bench, segue: &Arc<Segue>, texts: &'static [&'static str]) -> (f64, f64) {
    let mut talks = bench.runtime.block_on(side::open_all(segue, 1));
    let load = Load { texts, turns: TURNS, conversations: 1 };
    let measure = |talks| {
        let (talks, cpu) = machine::cpu(|| bench.runtime.block_on(side::speak(segue, talks, load)));
        (talks, micros(cpu))
    };
    let at_first;
    (talks, at_first) = measure(talks);
    let name = talks[0][0].clone();
    loop {
        let conversation = bench.runtime.block_on(segue.assistant.conversation(&name.as_str().into())).unwrap();
        let left = bench.effort.events.saturating_sub(conversation.events);
        let each = (conversation.events / conversation.turns.max(1)).max(1);
        if left == 0 {
            break;
        }
        let turns = usize::try_from(left.div_ceil(each)).unwrap();
        talks = bench.runtime.block_on(side::speak(segue, talks, Load { turns, ..load }));
    }
    let (_, at_last) = measure(talks);
    (at_first, at_last)
}

fn micros(cpu: Duration) -> f64 {
    cpu.as_secs_f64() * 1e6 / (TURNS * side::AT_ONCE) as f64
}
