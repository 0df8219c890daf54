//! What a turn costs: the floor and Segue, turns of a flow, and the way of the first delta to the channel.

use crate::{
    Bench,
    assistant::Segue,
    figures::Table,
    floor::{self, Floor},
    floor_store::FloorStore,
    side::{self, Load},
};

const UNIT: &str = "CPU µs";

/// Turns with a model.
pub(crate) fn turns(bench: &Bench, table: &mut Table) {
    let floor = Floor::new(bench.model.address, FloorStore::open(&bench.folder.path().join("floor.db")));
    let segue = Segue::desk(bench);
    bench.runtime.block_on(floor::check(&floor));
    for (name, load, most) in
        [("text turn", side::TEXT, 160.0), ("one-tool turn", side::TOOL, 300.0), ("five-turn talk", side::TALK, 310.0)]
    {
        if !table.wants(name) {
            continue;
        }
        let (mut least, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..bench.repetitions {
            least.push(side::cost(bench, &floor, load));
            ours.push(side::cost(bench, &segue, load));
        }
        let least = table.push(&format!("{name}: floor"), UNIT, least, None, None);
        table.push(&format!("{name}: Segue"), UNIT, ours, Some(least), Some(most));
    }
}

/// Turns of a flow, without a model.
pub(crate) fn flow(bench: &Bench, table: &mut Table) {
    if table.wants("flow turn") {
        let segue = Segue::count(bench);
        let seen = (0..bench.repetitions).map(|_| side::cost(bench, &segue, side::FLOW)).collect();
        table.push("flow turn: Segue", UNIT, seen, None, Some(90.0));
    }
}

/// From the model's first delta to the channel, one conversation at a time. The wait for the server's write is part of it.
pub(crate) fn first_delta(bench: &Bench, table: &mut Table) {
    if !table.wants("first delta") {
        return;
    }
    let segue = Segue::desk(bench);
    let medians = (0..bench.repetitions).map(|_| {
        let mut seen: Vec<u64> = bench.runtime.block_on(async {
            let talk = side::Side::open(&*segue).await;
            let mut seen = Vec::new();
            for _ in 0..40 * bench.rounds {
                let shown = segue.say(&talk, "What does the clock say?").await;
                seen.push(shown.first_ns.expect("the first delta is the time"));
            }
            seen
        });
        seen.sort_unstable();
        seen[seen.len() / 2] as f64 / 1e6
    });
    let medians = medians.collect();
    table.push("first delta to the channel", "ms", medians, None, Some(0.3));
}

/// Segue's turns alone, many of them.
pub(crate) fn profile(bench: &Bench, what: &str, table: &mut Table) {
    // Several turns of each conversation, so that its opening hardly shows.
    let many = |load: Load| Load { turns: 8, ..load };
    let (segue, load) = match what {
        "text" => (Segue::desk(bench), many(side::TEXT)),
        "tool" => (Segue::desk(bench), many(side::TOOL)),
        "talk" => (Segue::desk(bench), side::TALK),
        "flow" => (Segue::count(bench), side::FLOW),
        _ => panic!("`--profile` wants text, tool, talk or flow"),
    };
    let seen = (0..10).map(|_| side::cost(bench, &segue, load)).collect();
    table.push(what, UNIT, seen, None, None);
}
