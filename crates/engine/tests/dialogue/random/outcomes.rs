//! Random outcomes of actions, tools and agents, in the format of a case file.

use segue_engine::dialogue::Next;
use serde_json::{Value as Json, json};

use super::{
    plan::{SLOTS, Scenario},
    rng::Rng,
};

/// The budget that a turn can exhaust.
const BUDGET: &str = "steps";

/// A random outcome for a request of the engine.
pub(crate) fn random(rng: &mut Rng, scenario: Scenario, next: &Next) -> Json {
    if rng.below(300) == 0 {
        return json!({"exhausted": BUDGET});
    }
    match rng.below(600) {
        0 => return json!({"upgraded": true}),
        1..=4 if matches!(next, Next::Act(_) | Next::Tool(_)) => return json!({"interrupted": true}),
        _ => {}
    }
    match next {
        Next::Act(call) => action_outcome(rng, call.name.as_str()),
        Next::Tool(call) => tool_result(rng, call.tool.as_str()),
        Next::Agent(call) => agent_outcome(rng, scenario, call.agent.as_str()),
        _ => json!({}),
    }
}

/// The default outcome of a request.
pub(crate) fn default(next: &Next) -> Json {
    match next {
        Next::Act(call) => json!({"act": call.name}),
        Next::Tool(call) => json!({"tool": call.tool, "result": {"content": [], "structuredContent": {"f": "made"}}}),
        Next::Agent(call) => json!({"agent": call.agent, "status": "finished", "slots": {"a0": "done"}}),
        _ => json!({}),
    }
}

fn action_outcome(rng: &mut Rng, name: &str) -> Json {
    let mut answer = json!({"act": name});
    let (slot, taken, _) = *rng.of(SLOTS);
    match rng.below(100) {
        0..=9 => answer["fails"] = json!("gone"),
        10..=19 => answer["slots"] = json!({slot: parsed(*rng.of(taken))}),
        20..=23 => answer["slots"] = json!({slot: null}),
        24..=25 => answer["slots"] = json!({"zz": 1, "l0": "single"}),
        26..=28 => answer["followup"] = json!("action_two"),
        29 if !name.starts_with("action_ask") => answer["followup"] = json!("action_listen"),
        30 => answer["pauses"] = json!(true),
        31 if rng.percent(50) => answer["ends_session"] = json!(true),
        32 => answer["restarts"] = json!(true),
        33 => answer["starts_session"] = json!(true),
        34 => answer["resets_slots"] = json!(true),
        35 => answer["moves_stack"] = json!(true),
        36..=60 => answer["says"] = json!(["done"]),
        _ => {}
    }
    answer
}

fn parsed(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

fn tool_result(rng: &mut Rng, tool: &str) -> Json {
    match rng.below(10) {
        0 => json!({"tool": tool, "fails": "refused"}),
        1 => json!({"tool": tool, "unknown": "no answer"}),
        2 => json!({"tool": tool, "result": {"content": [], "isError": true}}),
        3 => json!({"tool": tool, "result": null}),
        4 => json!({"tool": tool, "result": {"content": [{"type": "text", "text": "only text"}]}}),
        _ => json!({"tool": tool, "result": {"content": [], "structuredContent": {"f": [1, {"x": null}]}}}),
    }
}

fn agent_outcome(rng: &mut Rng, scenario: Scenario, agent: &str) -> Json {
    let failing = if scenario == Scenario::Agents { 12 } else { 8 };
    let status = match rng.below(100) {
        n if n < failing => "failed",
        n if n < failing + 5 => "cancelled",
        n if n < failing + 10 => "yielded",
        n if n < failing + 45 => "awaiting_user",
        _ => "finished",
    };
    let mut answer = json!({"agent": agent, "status": status});
    if status == "awaiting_user" || rng.percent(30) {
        answer["says"] = json!([format!("{agent} speaks")]);
    }
    if status == "finished" {
        answer["slots"] = json!({"a0": "found"});
    } else if rng.percent(20) {
        let slot = *rng.of(&["n0", "t0", "b0", "zz"]);
        answer["slots"] = json!({slot: *rng.of(&["3", "true", "many"])});
    }
    if status == "awaiting_user" && rng.percent(30) {
        answer["metadata"] = json!({"left": rng.below(5)});
    }
    answer
}
