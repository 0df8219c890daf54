//! Undefined and duplicate names.

use super::{Mistake, kind};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, ask, described, rule},
    yaml::{Yaml, list, map, plain, text},
};

pub const KINDS: [Mistake; 30] = [
    kind("a link to a flow that does not exist", link_unknown),
    kind("a link to the flow itself", link_self),
    kind("a link to a pattern that only the engine starts", link_pattern),
    kind("a call of a flow that does not exist", call_unknown),
    kind("a call of a pattern", call_pattern),
    kind("flows that call each other", call_circle),
    kind("three flows that call in a cycle", call_long_circle),
    kind("a called flow with a link", called_links),
    kind("an action that is not listed", action_missing),
    kind("a response that does not exist", response_missing),
    kind("no response asks for a slot", question_missing),
    kind("a misspelt slot is collected", slot_misspelt),
    kind("a slot is set that does not exist", set_unknown),
    kind("a call names a server that does not exist", server_missing),
    kind("a mapping reads a slot that does not exist", mapping_slot),
    kind("a tool without its server", tool_without_server),
    kind("a misspelt agent", agent_misspelt),
    kind("an agent with a server that does not exist", agent_server),
    kind("exit_if on a flow", exit_on_flow),
    kind("a model group that does not exist", group_missing),
    kind("an intent that is not listed", intent_missing),
    kind("one intent starts two flows", intent_twice),
    kind("a rejection names a response that does not exist", rejection_words),
    kind("the question after a rejection does not exist", refill_words),
    kind("an action of every turn that does not exist", every_turn),
    kind("a mapping for a flow that does not exist", mapping_flow),
    kind("a flow id is in two files", flow_twice),
    kind("a response is in two files", response_twice),
    kind("a flow with the prefix of patterns", false_pattern),
    kind("an agent and a flow of one name", agent_is_flow),
];

fn any_flow(project: &ProjectBuilder) -> String {
    project.flows.iter().find(|flow| !flow.id.starts_with("pattern_")).unwrap().id.clone()
}

/// A flow of one step.
fn lone(project: &mut ProjectBuilder, id: &str, step: Yaml) {
    project.flow(id, &format!("The user speaks about {}.", id.replace('_', " ")), vec![step]);
}

fn link_unknown(project: &mut ProjectBuilder) {
    lone(project, "weather_talk", map([("link", text("book_of_sunshine").marked())]));
}

fn link_self(project: &mut ProjectBuilder) {
    lone(project, "weather_talk", map([("link", text("weather_talk").marked())]));
}

fn link_pattern(project: &mut ProjectBuilder) {
    let pattern = *project.rng.pick(&[&"pattern_cancel_flow", &"pattern_correction", &"pattern_clarification"]);
    lone(project, "weather_talk", map([("link", text(pattern).marked())]));
}

fn call_unknown(project: &mut ProjectBuilder) {
    project.insert(vec![map([("call", text("sub_flow_of_old").marked())])]);
}

fn call_pattern(project: &mut ProjectBuilder) {
    project.insert(vec![map([("call", text("pattern_chitchat").marked())])]);
}

fn circle(project: &mut ProjectBuilder, ids: &[&str]) {
    for (at, id) in ids.iter().enumerate() {
        let next = ids[(at + 1) % ids.len()];
        lone(project, id, map([("call", text(next).marked())]));
    }
}

fn call_circle(project: &mut ProjectBuilder) {
    circle(project, &["weather_talk", "sports_talk"]);
}

fn call_long_circle(project: &mut ProjectBuilder) {
    circle(project, &["weather_talk", "sports_talk", "music_talk"]);
}

fn called_links(project: &mut ProjectBuilder) {
    let target = any_flow(project);
    lone(project, "weather_talk", map([("link", text(target).marked())]));
    project.insert(vec![map([("call", text("weather_talk"))])]);
}

fn action_missing(project: &mut ProjectBuilder) {
    let name = *project.rng.pick(&[&"action_send_pigeon", &"action_lisen", &"validate_all_of_it"]);
    project.insert(vec![map([("action", text(name).marked())])]);
}

fn response_missing(project: &mut ProjectBuilder) {
    project.insert(vec![map([("action", text("utter_words_of_old").marked())])]);
}

fn question_missing(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    project.responses.retain(|(name, _)| *name != format!("utter_ask_{slot}"));
    project.insert(vec![described(&slot).marked()]);
}

fn slot_misspelt(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    project.insert(vec![described(&slot), ask(&format!("{slot}s")).marked()]);
}

fn set_unknown(project: &mut ProjectBuilder) {
    project.insert(vec![map([("set_slots", list([map([("state_of_old", text("done").marked())])]))])]);
}

fn tool(project: &mut ProjectBuilder, server: Yaml, input: Yaml) {
    let call =
        map([("call", text("ring_the_bell")), ("mcp_server", server), ("mapping", map([("input", list([input]))]))]);
    project.insert(vec![call]);
}

fn server_missing(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    project.insert(vec![described(&slot)]);
    tool(project, text("depo").marked(), map([("param", text("x")), ("slot", text(slot))]));
}

fn mapping_slot(project: &mut ProjectBuilder) {
    tool(project, text("depot"), map([("param", text("x")), ("slot", text("slot_of_old").marked())]));
}

fn tool_without_server(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    let input = map([("param", text("x")), ("slot", text(slot.clone()))]);
    let call = map([("call", text("ring_the_bell")), ("mapping", map([("input", list([input]))]))]);
    project.insert(vec![described(&slot), call.marked()]);
}

fn agent(project: &mut ProjectBuilder, name: &str, server: Yaml) {
    let agent = map([
        ("agent", map([("name", text(name)), ("description", text("Knows the stars"))])),
        ("connections", map([("mcp_servers", list([map([("name", server)])]))])),
    ]);
    project.agents.push((name.to_owned(), agent));
}

fn agent_misspelt(project: &mut ProjectBuilder) {
    agent(project, "star_gazer", text("depot"));
    lone(project, "star_talk", map([("call", text("star_gazer"))]));
    project.insert(vec![map([("call", text("star_gaser").marked())])]);
}

fn agent_server(project: &mut ProjectBuilder) {
    agent(project, "star_gazer", text("telescope").marked());
    project.insert(vec![map([("call", text("star_gazer"))])]);
}

fn exit_on_flow(project: &mut ProjectBuilder) {
    let slot = project.slot("colour", Kind::Text);
    project.flow("ask_the_colour", "Asks for a colour.", vec![described(&slot)]);
    let call = map([
        ("call", text("ask_the_colour")),
        ("exit_if", list([text(format!("slots.{slot} is not null"))]).marked()),
    ]);
    project.insert(vec![call]);
}

fn group_missing(project: &mut ProjectBuilder) {
    let generator = map([
        ("name", text("CompactLLMCommandGenerator")),
        ("llm", map([("model_group", text("main_modle").marked())])),
    ]);
    project.config.set("pipeline", list([generator]));
}

fn trigger(project: &mut ProjectBuilder, flow: usize, intent: Yaml) {
    project.flows[flow].keys.retain(|(key, _)| key != "nlu_trigger");
    project.flows[flow].keys.push(("nlu_trigger".into(), list([map([("intent", intent)])])));
}

fn intent_missing(project: &mut ProjectBuilder) {
    project.intents.push(text("talk_of_cheese"));
    let (flow, _) = project.place();
    trigger(project, flow, text("talk_of_chese").marked());
}

fn intent_twice(project: &mut ProjectBuilder) {
    project.intents.push(text("talk_of_cheese"));
    for id in ["weather_talk", "sports_talk"] {
        let words = project.says("Well, well.");
        lone(project, id, act(&words));
        let flow = project.flows.len() - 1;
        trigger(project, flow, text("talk_of_cheese").marked());
    }
}

fn rejection_words(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Float);
    let rejection = map([("if", text(format!("slots.{slot} < 1"))), ("utter", text("utter_too_light").marked())]);
    project.insert(vec![described(&slot).with("rejections", list([rejection]))]);
}

fn refill_words(project: &mut ProjectBuilder) {
    let slot = project.slot("weight", Kind::Float);
    let words = project.says("Too light.");
    let validation = map([
        ("rejections", list([rule(&format!("slots.{slot} < 1"), &words)])),
        ("refill_utter", text("utter_ask_weight_anew").marked()),
    ]);
    project.slot_keys(&slot).set("validation", validation);
    project.insert(vec![described(&slot)]);
}

fn every_turn(project: &mut ProjectBuilder) {
    let slot = project.held("moon", "text");
    let mapping = map([("type", text("controlled")), ("run_action_every_turn", text("action_look_up_moon").marked())]);
    project.slot_keys(&slot).set("mappings", list([mapping]));
    let shown = project.prints(&[slot]);
    project.insert(vec![act(&shown)]);
}

fn mapping_flow(project: &mut ProjectBuilder) {
    let slot = project.slot("moon", Kind::Text);
    let condition = map([("active_flow", text("flow_of_old").marked())]);
    let mapping = map([("type", text("from_llm")), ("conditions", list([condition]))]);
    project.slot_keys(&slot).set("mappings", list([mapping]));
    project.insert(vec![described(&slot)]);
}

fn flow_twice(project: &mut ProjectBuilder) {
    let id = any_flow(project);
    let words = project.says("Once more.");
    let flow = project.flow(&id, "The user wants it once more.", vec![act(&words)]);
    project.flows[flow].file = 2;
    project.flows[flow].marked = true;
}

fn response_twice(project: &mut ProjectBuilder) {
    let (name, _) = project.responses[0].clone();
    let twin = list([map([("text", text("The other words."))])]);
    project.more_domain.push(("responses".into(), map([(name, twin.marked())])));
}

fn false_pattern(project: &mut ProjectBuilder) {
    let words = project.says("Never heard.");
    let flow = project.flow("pattern_weather", "The user speaks about the weather.", vec![act(&words)]);
    project.flows[flow].marked = true;
}

fn agent_is_flow(project: &mut ProjectBuilder) {
    let id = any_flow(project);
    let agent = map([
        ("agent", map([("name", text(id).marked()), ("description", text("Knows the stars"))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
        ("configuration", map([("include_date_time", plain(true))])),
    ]);
    project.agents.push(("double".into(), agent));
}
