//! What the world answers: actions, tools and agents, with luck and without; in the words of a case file.

use segue_engine::dialogue::Next;
use serde_json::{Value as Json, json};

use super::{
    chance::Chance,
    plan::{SLOTS, Weather},
};

/// Budgets that a turn can spend.
const BUDGET: &str = "steps";

/// The answer to what the engine asks for.
pub(crate) fn answers(chance: &mut Chance, weather: Weather, next: &Next) -> Json {
    if chance.below(300) == 0 {
        return json!({"exhausted": BUDGET});
    }
    if chance.below(600) == 0 {
        return json!({"upgraded": true});
    }
    match next {
        Next::Act(call) => acted(chance, call.name.as_str()),
        Next::Tool(call) => called(chance, call.tool.as_str()),
        Next::Agent(call) => ran(chance, weather, call.agent.as_str()),
        _ => json!({}),
    }
}

/// What comes when nothing was written down for it.
pub(crate) fn default(next: &Next) -> Json {
    match next {
        Next::Act(call) => json!({"act": call.name}),
        Next::Tool(call) => json!({"tool": call.tool, "result": {"content": [], "structuredContent": {"f": "made"}}}),
        Next::Agent(call) => json!({"agent": call.agent, "status": "finished", "slots": {"a0": "done"}}),
        _ => json!({}),
    }
}

fn acted(chance: &mut Chance, name: &str) -> Json {
    let mut answer = json!({"act": name});
    let (slot, taken, _) = *chance.of(SLOTS);
    match chance.below(100) {
        0..=9 => answer["fails"] = json!("gone"),
        10..=19 => answer["slots"] = json!({slot: parsed(*chance.of(taken))}),
        20..=23 => answer["slots"] = json!({slot: null}),
        24..=25 => answer["slots"] = json!({"zz": 1, "l0": "single"}),
        26..=28 => answer["followup"] = json!("action_two"),
        29 if !name.starts_with("action_ask") => answer["followup"] = json!("action_listen"),
        30 => answer["pauses"] = json!(true),
        31 if chance.percent(50) => answer["ends_session"] = json!(true),
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

fn called(chance: &mut Chance, tool: &str) -> Json {
    match chance.below(10) {
        0 => json!({"tool": tool, "fails": "refused"}),
        1 => json!({"tool": tool, "unknown": "no answer"}),
        2 => json!({"tool": tool, "result": {"content": [], "isError": true}}),
        3 => json!({"tool": tool, "result": null}),
        4 => json!({"tool": tool, "result": {"content": [{"type": "text", "text": "only text"}]}}),
        _ => json!({"tool": tool, "result": {"content": [], "structuredContent": {"f": [1, {"x": null}]}}}),
    }
}

fn ran(chance: &mut Chance, weather: Weather, agent: &str) -> Json {
    let failing = if weather == Weather::Agents { 12 } else { 8 };
    let status = match chance.below(100) {
        n if n < failing => "failed",
        n if n < failing + 5 => "cancelled",
        n if n < failing + 10 => "yielded",
        n if n < failing + 45 => "awaiting_user",
        _ => "finished",
    };
    let mut answer = json!({"agent": agent, "status": status});
    if status == "awaiting_user" || chance.percent(30) {
        answer["says"] = json!([format!("{agent} speaks")]);
    }
    if status == "finished" {
        answer["slots"] = json!({"a0": "found"});
    } else if chance.percent(20) {
        let slot = *chance.of(&["n0", "t0", "b0", "zz"]);
        answer["slots"] = json!({slot: *chance.of(&["3", "true", "many"])});
    }
    if status == "awaiting_user" && chance.percent(30) {
        answer["metadata"] = json!({"left": chance.below(5)});
    }
    answer
}
