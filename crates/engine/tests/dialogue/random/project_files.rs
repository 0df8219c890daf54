//! Writes plans as project files for the real loader.

use serde_json::{Map, Value as Json, json};

use super::plan::{Flow, Plan, Step};

/// Versions of the built-in patterns that a project can choose.
pub(crate) const COMPAT: &[&str] = &["3.13", "3.16"];

/// Patterns of projects: id, then its definition.
pub(crate) const PATTERNS: &[(&str, &str)] = &[
    (
        "pattern_completed",
        r#"{"description": "asks whether there is more", "steps": [
            {"collect": "more", "ask_before_filling": true, "next": [
                {"if": "slots.more", "then": [{"action": "utter_can_do_something_else", "next": "END"}]},
                {"else": [{"action": "utter_say_2", "next": "END"}]}]}]}"#,
    ),
    (
        "pattern_continue_interrupted",
        r#"{"description": "continues at once", "steps": [
            {"action": "utter_say_1"},
            {"action": "action_continue_interrupted_flow"}]}"#,
    ),
    (
        "pattern_chitchat",
        r#"{"description": "small talk", "steps": [{"action": "action_one"}, {"action": "utter_say_1"}]}"#,
    ),
    (
        "pattern_search",
        r#"{"description": "continues in another flow", "steps": [{"action": "utter_say_1"}, {"link": "f0"}]}"#,
    ),
    (
        "pattern_skip_question",
        r#"{"description": "asks back", "steps": [{"collect": "more"}, {"action": "utter_skip_question_answer"}]}"#,
    ),
    (
        "pattern_cannot_handle",
        r#"{"description": "links away", "steps": [{"action": "utter_ask_rephrase"}, {"link": "pattern_chitchat"}]}"#,
    ),
    (
        "pattern_human_handoff",
        r#"{"description": "pauses", "steps": [{"action": "utter_human_handoff_not_available"}, {"set_slots": [{"k0": "handed"}]}]}"#,
    ),
    (
        "pattern_internal_error",
        r#"{"description": "sorry", "steps": [{"action": "action_two"}, {"action": "utter_internal_error_rasa"}]}"#,
    ),
];

const DOMAIN: &str = r#"version: "3.1"
intents: [go, inform, feel]
slots:
  t0: { type: text }
  t1: { type: text, fill: once }
  t2: { type: text, validation: { rejections: [{ if: slots.t2 is "bad", utter: utter_no }] } }
  t3: { type: text, mappings: [{ type: from_llm }, { type: from_entity, entity: place }] }
  n0: { type: float }
  n1: { type: float, fill: when_asked }
  b0: { type: bool }
  b1: { type: bool }
  c0: { type: categorical, values: [Red, Blue, none] }
  c1: { type: categorical, values: [Small, 36] }
  i0: { type: text, initial_value: given }
  m0: { type: text, mappings: [{ type: from_llm, conditions: [{ active_flow: f0 }] }] }
  e0: { type: text, mappings: [{ type: from_entity, entity: city }, { type: from_intent, intent: feel, value: fine }] }
  k0: { type: any, mappings: [{ type: controlled EVERY}] }
  k1: { type: text, mappings: [{ type: controlled }] }
  p0: { type: text }
  l0: { type: list, mappings: [{ type: controlled }] }
  a0: { type: text, mappings: [{ type: controlled }] }
  more: { type: bool }
actions: [action_one, action_two, action_every, action_ask_t1, action_ask_k1, validate_n1]
responses:
  utter_ask_t0: [{ text: "t0? {b0}" }]
  utter_ask_t2: [{ text: "t2?" }]
  utter_ask_t3: [{ text: "t3?" }, { text: "t3, please?" }, { text: "T3?", condition: slots.b0 }]
  utter_ask_n0: [{ text: "n0?" }]
  utter_ask_n1: [{ text: "n1?" }]
  utter_ask_b0: [{ text: "b0?", buttons: [{ title: "On", payload: "/SetSlots(b0=true)" }, { title: "Go", payload: "/go" }] }]
  utter_ask_b1: [{ text: "Once more?" }]
  utter_ask_c0: [{ text: "c0?", buttons: [{ title: "Crimson", payload: "/SetSlots(c0=red)" }] }]
  utter_ask_c1: [{ text: "c1?" }]
  utter_ask_i0: [{ text: "i0?" }]
  utter_ask_m0: [{ text: "m0?" }]
  utter_ask_e0: [{ text: "e0?" }]
  utter_ask_p0: [{ text: "p0?" }]
  utter_ask_more: [{ text: "More?" }]
  utter_no: [{ text: "Not so." }]
  utter_say_0: [{ text: "say {t0}" }, { text: "SAY" }]
  utter_say_1: [{ text: "one" }]
  utter_say_2: [{ text: "two {n0} {nothing}" }]
session_config:
  session_expiration_time: 60
  carry_over_slots_to_new_session: CARRY
"#;

const ENDPOINTS: &str = "mcp_servers:\n  - { name: shop, url: \"http://localhost:1/mcp\", type: http }\n";

/// The files of a plan, by name.
pub(crate) fn files(plan: &Plan) -> Vec<(&'static str, String)> {
    let every = if plan.every_turn { ", run_action_every_turn: action_every " } else { "" };
    let domain = DOMAIN.replace(" EVERY", every).replace("CARRY", if plan.carry_over { "true" } else { "false" });
    let mut config =
        "recipe: default.v1\npipeline:\n  - name: CompactLLMCommandGenerator\npolicies:\n  - name: FlowPolicy\n"
            .to_owned();
    if !plan.shortcuts {
        config.push_str("shortcuts: false\n");
    }
    if let Some(compat) = plan.compat {
        config.push_str(&format!("compat: {{ patterns: \"{compat}\" }}\n"));
    }
    let agent = |name: &str| {
        format!(
            "agent: {{ name: {name}, protocol: RASA, description: does {name} }}\nconnections:\n  mcp_servers:\n    - name: shop\n"
        )
    };
    let mut flows: Map<String, Json> = plan.flows.iter().map(|one| (id(one.number), flow(one))).collect();
    for own in &plan.own_patterns {
        let (name, text) = PATTERNS[*own];
        flows.insert(name.to_owned(), serde_json::from_str(text).unwrap());
    }
    let mut text = String::new();
    yaml(&json!({ "flows": flows }), 0, &mut text);
    vec![
        ("config.yml", config),
        ("domain.yml", domain),
        ("endpoints.yml", ENDPOINTS.to_owned()),
        ("agent_chooser.yml", agent("chooser")),
        ("agent_helper.yml", agent("helper")),
        ("agent_researcher.yml", agent("researcher")),
        ("flows.yml", text),
    ]
}

/// The id of a flow.
pub(crate) fn id(number: usize) -> String {
    format!("f{number}")
}

fn flow(flow: &Flow) -> Json {
    let mut written = json!({"name": format!("flow {}", flow.number), "description": format!("does {}", flow.number)});
    if let Some(guard) = flow.guard {
        written["if"] = if guard == "false" { json!(false) } else { json!(guard) };
    }
    if flow.trigger {
        written["nlu_trigger"] = json!([{"intent": "go"}]);
    }
    if !flow.persisted.is_empty() {
        written["persisted_slots"] = json!(flow.persisted);
    }
    if !flow.told {
        written["run_pattern_completed"] = json!(false);
    }
    let mut steps = steps(flow);
    if flow.edition > 0 {
        steps.insert(0, json!({"id": format!("edition_{}", flow.edition), "noop": true, "next": steps[0]["id"]}));
    }
    written["steps"] = json!(steps);
    written
}

fn name(flow: &Flow, at: usize) -> String {
    format!("s{}_{at}", flow.number)
}

fn steps(flow: &Flow) -> Vec<Json> {
    let last = flow.steps.len() - 1;
    let mut written = Vec::new();
    for (at, step) in flow.steps.iter().enumerate() {
        let next = if at == last { "END".to_owned() } else { name(flow, at + 1) };
        let mut one = plain(step);
        one["id"] = json!(name(flow, at));
        match step {
            Step::Link(_) | Step::Handoff => {}
            Step::Round(to) => one["next"] = json!(name(flow, *to)),
            Step::Again(to) => one["next"] = json!([{"if": "slots.b1", "then": name(flow, *to)}, {"else": next}]),
            Step::Branch { on, then, otherwise } => {
                one["next"] = json!([{"if": on, "then": nested(then, &next)}, {"else": nested(otherwise, &next)}]);
            }
            _ => one["next"] = json!(next),
        }
        written.push(one);
    }
    written
}

fn nested(steps: &[Step], next: &str) -> Json {
    if steps.is_empty() {
        return json!(next);
    }
    let mut written: Vec<Json> = steps.iter().map(plain).collect();
    if let Some(last) = written.last_mut() {
        last["next"] = json!(next);
    }
    json!(written)
}

fn plain(step: &Step) -> Json {
    match step {
        Step::Collect { slot, always, forced, stays } => {
            let mut one = json!({"collect": slot});
            if *always {
                one["ask_before_filling"] = json!(true);
            }
            if *forced {
                one["force_slot_filling"] = json!(true);
            }
            if *stays {
                one["reset_after_flow_ends"] = json!(false);
            }
            if *slot == "n0" {
                one["rejections"] = json!([{"if": "slots.n0 > 100", "utter": "utter_no"}]);
            }
            one
        }
        Step::Say(which) => json!({"action": format!("utter_say_{which}")}),
        Step::Act(which) => json!({"action": if *which == 0 { "action_one" } else { "action_two" }}),
        Step::Set(values) => {
            let value = |text: &str| serde_json::from_str::<Json>(text).unwrap();
            let pairs = values.iter().map(|(slot, text)| json!({*slot: value(text)}));
            json!({"set_slots": pairs.collect::<Vec<_>>()})
        }
        Step::Call(to) => json!({"call": id(*to)}),
        Step::Agent { agent, exit: false } => json!({"call": agent}),
        Step::Agent { agent, exit: true } => json!({"call": agent, "exit_if": ["slots.a0 is not null"]}),
        Step::Tool => json!({
            "call": "buy",
            "mcp_server": "shop",
            "mapping": {
                "input": [{"param": "t", "slot": "t0"}],
                "output": [{"slot": "k0", "value": "result.structuredContent.f"}],
            },
        }),
        Step::Noop | Step::Branch { .. } | Step::Round(_) => json!({"noop": true}),
        Step::Again(_) => json!({"collect": "b1", "ask_before_filling": true}),
        Step::Link(to) => json!({"link": id(*to)}),
        Step::Handoff => json!({"link": "pattern_human_handoff"}),
    }
}

/// Writes a value as YAML in block style; `depth` in steps of two spaces.
pub(crate) fn yaml(value: &Json, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Json::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                out.push_str(&format!("{indent}{key}:"));
                below(value, depth, out);
            }
        }
        Json::Array(items) if !items.is_empty() => {
            for item in items {
                let mut text = String::new();
                yaml(item, depth + 1, &mut text);
                let text = text.trim_start_matches(' ');
                out.push_str(&format!("{indent}- {text}"));
            }
        }
        other => out.push_str(&format!("{indent}{other}\n")),
    }
}

fn below(value: &Json, depth: usize, out: &mut String) {
    match value {
        Json::Object(map) if !map.is_empty() => {
            out.push('\n');
            yaml(value, depth + 1, out);
        }
        Json::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            out.push('\n');
            yaml(value, depth + 1, out);
        }
        Json::String(text) if is_word(text) => out.push_str(&format!(" {text}\n")),
        other => out.push_str(&format!(" {other}\n")),
    }
}

/// Whether a text needs no quotes in YAML.
fn is_word(text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_ ".contains(c));
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    let word =
        !["true", "false", "null", "yes", "no", "on", "off", "none", "y", "n"].contains(&text.to_lowercase().as_str());
    plain && first && word && !text.ends_with(' ')
}
