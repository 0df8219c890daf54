//! What a turn costs: calls alone, the floor, and Segue.

use std::sync::Arc;

use crate::{
    Bench,
    assistant::{Keep, Segue, assistant},
    figures::{Figure, Goal, Table},
    floor::{self, Depth, Floor, Transport},
    floor_store::FloorStore,
    side::{self, Load, Side},
};

const UNIT: &str = "CPU µs/turn";

/// Turns with a model.
pub(crate) fn turns(bench: &Bench) -> Table {
    let mut table = Table::new(format!("Turns with a model, {} conversations at once", side::AT_ONCE));
    let address = bench.model.address;
    let store = |name: &str, full| FloorStore::open(&bench.folder.path().join(name), full);
    let sides = Sides {
        calls: Floor::new(Transport::raw(address), Depth::Calls),
        floor: Floor::new(Transport::raw(address), Depth::turn(store("floor.db", false))),
        client: Floor::new(Transport::client(address), Depth::turn(store("client.db", false))),
        full_floor: Floor::new(Transport::raw(address), Depth::turn(store("full.db", true))),
        memory: Segue::desk(assistant(&bench.root, bench.folder.path(), Keep::Memory)),
        normal: Segue::desk(assistant(&bench.root, bench.folder.path(), Keep::Normal)),
        full: Segue::desk(assistant(&bench.root, bench.folder.path(), Keep::Full)),
    };
    for floor in [&sides.calls, &sides.floor, &sides.client] {
        bench.runtime.block_on(floor::check(floor));
    }
    for (name, load, goal) in [
        ("text turn", side::TEXT, Goal::of(65.0, 43.0)),
        ("one-tool turn", side::TOOL, Goal::of(125.0, 83.0)),
        ("five-turn talk", side::TALK, Goal::of(132.0, 88.0)),
    ] {
        sides.measure(bench, name, load, goal, &mut table);
    }
    table
}

struct Sides {
    calls: Arc<Floor>,
    floor: Arc<Floor>,
    client: Arc<Floor>,
    full_floor: Arc<Floor>,
    memory: Arc<Segue>,
    normal: Arc<Segue>,
    full: Arc<Segue>,
}

impl Sides {
    fn measure(&self, bench: &Bench, name: &str, load: Load, goal: Goal, table: &mut Table) {
        let mut seen: [Vec<f64>; 7] = Default::default();
        for _ in 0..bench.effort.repetitions {
            let costs = [
                cost(bench, &self.calls, load),
                cost(bench, &self.floor, load),
                cost(bench, &self.client, load),
                cost(bench, &self.normal, load),
                cost(bench, &self.memory, load),
                cost(bench, &self.full_floor, load),
                cost(bench, &self.full, load),
            ];
            seen.iter_mut().zip(costs).for_each(|(seen, cost)| seen.push(cost));
        }
        let [calls, floor, client, normal, memory, full_floor, full] = seen;
        let figure = |what: &str, seen| Figure::new(format!("{name}: {what}"), UNIT, seen);
        let floor = figure("floor: + prompt + SQLite", floor);
        let least = floor.median();
        let full_floor = figure("floor, SQLite FULL", full_floor);
        let full_least = full_floor.median();
        table.push(figure("bare calls only", calls).floor(least));
        table.push(floor);
        table.push(figure("floor with Segue's HTTP client", client).floor(least));
        table.push(figure("Segue", normal).goal(goal).floor(least));
        table.push(figure("Segue, memory store", memory).floor(least));
        table.push(full_floor);
        table.push(figure("Segue, SQLite FULL", full).floor(full_least));
    }
}

fn cost<S: Side>(bench: &Bench, side: &Arc<S>, load: Load) -> f64 {
    side::cost(&bench.runtime, side, load, bench.effort)
}

/// Segue's turns alone, many of them.
pub(crate) fn profile(bench: &Bench, what: &str, keep: Keep) {
    let assistant = assistant(&bench.root, bench.folder.path(), keep);
    // Several turns of each conversation, so that its opening hardly shows.
    let many = |load: Load| Load { turns: 8, ..load };
    let (segue, load) = match what {
        "text" => (Segue::desk(assistant), many(side::TEXT)),
        "tool" => (Segue::desk(assistant), many(side::TOOL)),
        "talk" => (Segue::desk(assistant), side::TALK),
        "flow" => (Segue::count(assistant), FLOW),
        _ => panic!("`--profile` wants text, tool, talk or flow"),
    };
    let seen = (0..10).map(|_| cost(bench, &segue, load)).collect();
    let mut table = Table::new(what);
    table.push(Figure::new("Segue", UNIT, seen));
    table.print();
}

const FLOW: Load = Load { texts: &["3", "2"], turns: 8, conversations: 8 };

/// Turns of a flow, without a model.
pub(crate) fn flow(bench: &Bench) -> Table {
    let mut table = Table::new(format!("Turns of a flow without a model, {} conversations at once", side::AT_ONCE));
    for (name, keep, goal) in [
        ("flow turn", Keep::Normal, Goal::of(60.0, 30.0)),
        ("flow turn, memory store", Keep::Memory, Goal::NONE),
        ("flow turn, SQLite FULL", Keep::Full, Goal::NONE),
    ] {
        let segue = Segue::count(assistant(&bench.root, bench.folder.path(), keep));
        let seen = (0..bench.effort.repetitions).map(|_| cost(bench, &segue, FLOW)).collect();
        table.push(Figure::new(name, UNIT, seen).goal(goal));
    }
    table
}
