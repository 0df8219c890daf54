//! The figures of turns: turns with a model for the baseline and Segue, turns of a flow, and the latency of the first delta.

use crate::{
    Bench,
    assistant::Segue,
    baseline::{self, Baseline},
    baseline_store::BaselineStore,
    result_table::ResultTable,
    subject::{self, Load, Subject},
};

const UNIT: &str = "CPU µs";

/// Measures turns with a model.
pub(crate) fn turns(bench: &Bench, table: &mut ResultTable) {
    let baseline = Baseline::new(bench.model.address, BaselineStore::open(&bench.folder.path().join("baseline.db")));
    let segue = Segue::with_agent(bench);
    bench.runtime.block_on(baseline::check(&baseline));
    for (name, load, limit) in [
        ("text turn", subject::TEXT, 160.0),
        ("one-tool turn", subject::TOOL, 300.0),
        ("five-turn conversation", subject::CONVERSATION, 310.0),
    ] {
        if !table.includes(name) {
            continue;
        }
        let (mut baseline_values, mut segue_values) = (Vec::new(), Vec::new());
        for _ in 0..bench.repetitions {
            baseline_values.push(subject::cpu_time_per_turn(bench, &baseline, load));
            segue_values.push(subject::cpu_time_per_turn(bench, &segue, load));
        }
        let baseline = table.push(&format!("{name}: baseline"), UNIT, baseline_values, None, None);
        table.push(&format!("{name}: Segue"), UNIT, segue_values, Some(baseline), Some(limit));
    }
}

/// Measures turns of a flow without a model.
pub(crate) fn flow(bench: &Bench, table: &mut ResultTable) {
    if table.includes("flow turn") {
        let segue = Segue::with_flow(bench);
        let values = (0..bench.repetitions).map(|_| subject::cpu_time_per_turn(bench, &segue, subject::FLOW)).collect();
        table.push("flow turn: Segue", UNIT, values, None, Some(90.0));
    }
}

/// Measures the time from the model's first delta to the channel, one conversation at a time. It includes the write of the model server.
pub(crate) fn first_delta(bench: &Bench, table: &mut ResultTable) {
    if !table.includes("first delta") {
        return;
    }
    let segue = Segue::with_agent(bench);
    let medians = (0..bench.repetitions).map(|_| {
        let mut values: Vec<u64> = bench.runtime.block_on(async {
            let conversation = segue.open().await;
            let mut values = Vec::new();
            for _ in 0..40 * bench.rounds {
                let received = segue.say(&conversation, "What does the clock say?").await;
                values.push(received.first_delta_ns.expect("the first delta is the time"));
            }
            values
        });
        values.sort_unstable();
        values[values.len() / 2] as f64 / 1e6
    });
    let medians = medians.collect();
    table.push("first delta to the channel", "ms", medians, None, Some(0.3));
}

/// Runs many turns of Segue, without the baseline.
pub(crate) fn profile(bench: &Bench, name: &str, table: &mut ResultTable) {
    // Several turns of each conversation, so that its first turn has little weight.
    let many = |load: Load| Load { turns: 8, ..load };
    let (segue, load) = match name {
        "text" => (Segue::with_agent(bench), many(subject::TEXT)),
        "tool" => (Segue::with_agent(bench), many(subject::TOOL)),
        "conversation" => (Segue::with_agent(bench), subject::CONVERSATION),
        "flow" => (Segue::with_flow(bench), subject::FLOW),
        _ => panic!("`--profile` needs text, tool, conversation or flow"),
    };
    let values = (0..10).map(|_| subject::cpu_time_per_turn(bench, &segue, load)).collect();
    table.push(name, UNIT, values, None, None);
}
