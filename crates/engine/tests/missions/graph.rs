//! The rules of the graph, and the order of the tasks before a task.

use segue_engine::{mission::graph, project::mission_graph};

use crate::{definitions::mission, driver::Run};

fn problems(tasks: &str) -> Vec<(&'static str, String)> {
    let def = mission(&format!("{{name: m, tasks: {{{tasks}}}}}"));
    mission_graph::problems(&def).iter().map(|problem| (problem.code(), problem.to_string())).collect()
}

#[test]
fn each_rule_of_the_graph_has_its_code() {
    let cases = [
        ("a: {}, b: {depends_on: [a]}", vec![]),
        ("z: {}, a: {depends_on: [x]}", vec!["mission.graph.unknown_task"]),
        ("a: {}, b: {send_to: [x]}", vec!["mission.graph.unknown_task"]),
        ("a: {}, b: {depends_on: [b]}", vec!["mission.graph.self_reference"]),
        ("a: {}, b: {depends_on: [a, a]}", vec!["mission.graph.duplicate"]),
        ("a: {send_to: [b, b]}, b: {}", vec!["mission.graph.duplicate"]),
        ("a: {router: [{to: b}, {to: b}]}, b: {}", vec!["mission.graph.duplicate"]),
        ("a: {router: [{to: 'mission:x'}, {to: 'mission:x'}]}", vec!["mission.graph.duplicate"]),
        ("z: {}, a: {depends_on: [b]}, b: {depends_on: [c]}, c: {depends_on: [a]}", vec!["mission.graph.cycle"]),
        ("z: {send_to: [a]}, a: {send_to: [b]}, b: {send_to: [a]}", vec!["mission.graph.cycle"]),
        ("a: {depends_on: [b]}, b: {depends_on: [a]}", vec!["mission.graph.cycle", "mission.graph.no_start"]),
        ("a: {send_to: [b]}, b: {depends_on: [a]}", vec!["mission.route.dynamic_depends"]),
        ("a: {send_to: [b]}, b: {}, c: {depends_on: [b]}", vec!["mission.graph.depends_on_dynamic"]),
        ("a: {}, b: {depends_on: [a]}, c: {depends_on: [a, b]}", vec!["mission.graph.redundant"]),
        ("a: {iterator: {dataset: d, parallel: true}, router: [{to: b}]}, b: {}", vec!["mission.route.parallel"]),
        ("a: {iterator: {dataset: d, parallel: true}, send_to: [b]}, b: {}", vec![]),
    ];
    for (tasks, expected) in cases {
        let found: Vec<&str> = problems(tasks).iter().map(|(code, _)| *code).collect();
        assert_eq!(found, expected, "{tasks}");
    }
}

#[test]
fn a_cycle_is_shown_as_a_path() {
    let found = problems("z: {}, a: {depends_on: [c]}, b: {depends_on: [a]}, c: {depends_on: [b]}");
    assert_eq!(found[0].1, "the tasks form a cycle: a → b → c → a");
}

/// A mission and a task may have one name: a route to the mission is not a route to the task itself.
#[test]
fn a_route_to_a_mission_with_the_name_of_the_task_is_no_self_reference() {
    assert_eq!(problems("a: {router: [{to: 'mission:a'}, {to: 'mission:a#x'}, {to: b}]}, b: {}"), []);
}

#[test]
fn ancestors_of_an_uneven_diamond_are_in_topological_order() {
    // d waits for b and c; c for x; x and b for r.
    let run = Run::of(
        "{name: m, tasks: {c: {depends_on: [x]}, d: {depends_on: [b, c]}, x: {depends_on: [r]}, r: {}, b: {depends_on: [r]}}}",
    );
    let ancestors = graph::ancestors(&run.def, &run.state, "d");
    assert_eq!(ancestors.iter().map(|name| &**name).collect::<Vec<_>>(), ["r", "x", "c", "b"]);
}

#[test]
fn ancestors_of_a_dynamic_task_are_those_of_its_first_activator() {
    let mut run = Run::of(
        "{name: m, tasks: {r: {}, a: {depends_on: [r], send_to: [d]}, b: {depends_on: [r], send_to: [d]}, d: {}}}",
    );
    run.complete("r");
    run.complete("b");
    run.complete("a");
    let ancestors = graph::ancestors(&run.def, &run.state, "d");
    assert_eq!(ancestors.iter().map(|name| &**name).collect::<Vec<_>>(), ["r", "b"]);
    assert_eq!(run.starts(), ["r", "a", "b", "d"], "the second activation starts nothing");
}
