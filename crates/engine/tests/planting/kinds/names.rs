//! Names of things that are not there, and names of two things.

use super::{Plant, kind};
use crate::{
    world::{Kind, World, act, ask, described, rule},
    yaml::{Y, list, map, plain, text},
};

pub const KINDS: [Plant; 30] = [
    kind("a link to a flow that is not there", link_unknown),
    kind("a link to the flow itself", link_self),
    kind("a link to a pattern that starts by itself", link_pattern),
    kind("a call of a flow that is not there", call_unknown),
    kind("a call of a pattern", call_pattern),
    kind("flows that call each other", call_circle),
    kind("three flows that call in a circle", call_long_circle),
    kind("a called flow that links away", called_links),
    kind("an action that is not listed", action_missing),
    kind("a response that is not there", response_missing),
    kind("nobody asks for a slot", question_missing),
    kind("a misspelt slot is collected", slot_misspelt),
    kind("a slot is set that is not there", set_unknown),
    kind("a call names a server that is not there", server_missing),
    kind("a mapping reads a slot that is not there", mapping_slot),
    kind("a tool without its server", tool_without_server),
    kind("a misspelt agent", agent_misspelt),
    kind("an agent of a server that is not there", agent_server),
    kind("exit_if on a flow", exit_on_flow),
    kind("a model group that is not there", group_missing),
    kind("an intent that is not listed", intent_missing),
    kind("one intent starts two flows", intent_twice),
    kind("a rejection says what is not there", rejection_words),
    kind("the question after a refusal is not there", refill_words),
    kind("an action of every turn that is not there", every_turn),
    kind("a mapping for a flow that is not there", mapping_flow),
    kind("a flow id stands in two files", flow_twice),
    kind("a response stands in two files", response_twice),
    kind("a flow with the prefix of patterns", false_pattern),
    kind("an agent and a flow of one name", agent_is_flow),
];

fn any_flow(world: &World) -> String {
    world.flows.iter().find(|flow| !flow.id.starts_with("pattern_")).unwrap().id.clone()
}

/// A flow of one step.
fn lone(world: &mut World, id: &str, step: Y) {
    world.flow(id, &format!("The user speaks about {}.", id.replace('_', " ")), vec![step]);
}

fn link_unknown(world: &mut World) {
    lone(world, "weather_talk", map([("link", text("book_of_sunshine").marked())]));
}

fn link_self(world: &mut World) {
    lone(world, "weather_talk", map([("link", text("weather_talk").marked())]));
}

fn link_pattern(world: &mut World) {
    let pattern = *world.chance.pick(&[&"pattern_cancel_flow", &"pattern_correction", &"pattern_clarification"]);
    lone(world, "weather_talk", map([("link", text(pattern).marked())]));
}

fn call_unknown(world: &mut World) {
    world.insert(vec![map([("call", text("sub_flow_of_old").marked())])]);
}

fn call_pattern(world: &mut World) {
    world.insert(vec![map([("call", text("pattern_chitchat").marked())])]);
}

fn circle(world: &mut World, ids: &[&str]) {
    for (at, id) in ids.iter().enumerate() {
        let next = ids[(at + 1) % ids.len()];
        lone(world, id, map([("call", text(next).marked())]));
    }
}

fn call_circle(world: &mut World) {
    circle(world, &["weather_talk", "sports_talk"]);
}

fn call_long_circle(world: &mut World) {
    circle(world, &["weather_talk", "sports_talk", "music_talk"]);
}

fn called_links(world: &mut World) {
    let target = any_flow(world);
    lone(world, "weather_talk", map([("link", text(target).marked())]));
    world.insert(vec![map([("call", text("weather_talk"))])]);
}

fn action_missing(world: &mut World) {
    let name = *world.chance.pick(&[&"action_send_pigeon", &"action_lisen", &"validate_all_of_it"]);
    world.insert(vec![map([("action", text(name).marked())])]);
}

fn response_missing(world: &mut World) {
    world.insert(vec![map([("action", text("utter_words_of_old").marked())])]);
}

fn question_missing(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    world.responses.retain(|(name, _)| *name != format!("utter_ask_{slot}"));
    world.insert(vec![described(&slot).marked()]);
}

fn slot_misspelt(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    world.insert(vec![described(&slot), ask(&format!("{slot}s")).marked()]);
}

fn set_unknown(world: &mut World) {
    world.insert(vec![map([("set_slots", list([map([("state_of_old", text("done").marked())])]))])]);
}

fn tool(world: &mut World, server: Y, input: Y) {
    let call =
        map([("call", text("ring_the_bell")), ("mcp_server", server), ("mapping", map([("input", list([input]))]))]);
    world.insert(vec![call]);
}

fn server_missing(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    world.insert(vec![described(&slot)]);
    tool(world, text("depo").marked(), map([("param", text("x")), ("slot", text(slot))]));
}

fn mapping_slot(world: &mut World) {
    tool(world, text("depot"), map([("param", text("x")), ("slot", text("slot_of_old").marked())]));
}

fn tool_without_server(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    let input = map([("param", text("x")), ("slot", text(slot.clone()))]);
    let call = map([("call", text("ring_the_bell")), ("mapping", map([("input", list([input]))]))]);
    world.insert(vec![described(&slot), call.marked()]);
}

fn agent(world: &mut World, name: &str, server: Y) {
    let agent = map([
        ("agent", map([("name", text(name)), ("description", text("Knows the stars"))])),
        ("connections", map([("mcp_servers", list([map([("name", server)])]))])),
    ]);
    world.agents.push((name.to_owned(), agent));
}

fn agent_misspelt(world: &mut World) {
    agent(world, "star_gazer", text("depot"));
    lone(world, "star_talk", map([("call", text("star_gazer"))]));
    world.insert(vec![map([("call", text("star_gaser").marked())])]);
}

fn agent_server(world: &mut World) {
    agent(world, "star_gazer", text("telescope").marked());
    world.insert(vec![map([("call", text("star_gazer"))])]);
}

fn exit_on_flow(world: &mut World) {
    let slot = world.slot("colour", Kind::Text);
    world.flow("ask_the_colour", "Asks for a colour.", vec![described(&slot)]);
    let call = map([
        ("call", text("ask_the_colour")),
        ("exit_if", list([text(format!("slots.{slot} is not null"))]).marked()),
    ]);
    world.insert(vec![call]);
}

fn group_missing(world: &mut World) {
    let generator = map([
        ("name", text("CompactLLMCommandGenerator")),
        ("llm", map([("model_group", text("main_modle").marked())])),
    ]);
    world.config.set("pipeline", list([generator]));
}

fn trigger(world: &mut World, flow: usize, intent: Y) {
    world.flows[flow].keys.retain(|(key, _)| key != "nlu_trigger");
    world.flows[flow].keys.push(("nlu_trigger".into(), list([map([("intent", intent)])])));
}

fn intent_missing(world: &mut World) {
    world.intents.push(text("talk_of_cheese"));
    let (flow, _) = world.place();
    trigger(world, flow, text("talk_of_chese").marked());
}

fn intent_twice(world: &mut World) {
    world.intents.push(text("talk_of_cheese"));
    for id in ["weather_talk", "sports_talk"] {
        let words = world.says("Well, well.");
        lone(world, id, act(&words));
        let flow = world.flows.len() - 1;
        trigger(world, flow, text("talk_of_cheese").marked());
    }
}

fn rejection_words(world: &mut World) {
    let slot = world.slot("weight", Kind::Float);
    let rejection = map([("if", text(format!("slots.{slot} < 1"))), ("utter", text("utter_too_light").marked())]);
    world.insert(vec![described(&slot).with("rejections", list([rejection]))]);
}

fn refill_words(world: &mut World) {
    let slot = world.slot("weight", Kind::Float);
    let words = world.says("Too light.");
    let validation = map([
        ("rejections", list([rule(&format!("slots.{slot} < 1"), &words)])),
        ("refill_utter", text("utter_ask_weight_anew").marked()),
    ]);
    world.slot_keys(&slot).set("validation", validation);
    world.insert(vec![described(&slot)]);
}

fn every_turn(world: &mut World) {
    let slot = world.held("moon", "text");
    let mapping = map([("type", text("controlled")), ("run_action_every_turn", text("action_look_up_moon").marked())]);
    world.slot_keys(&slot).set("mappings", list([mapping]));
    let shown = world.prints(&[slot]);
    world.insert(vec![act(&shown)]);
}

fn mapping_flow(world: &mut World) {
    let slot = world.slot("moon", Kind::Text);
    let condition = map([("active_flow", text("flow_of_old").marked())]);
    let mapping = map([("type", text("from_llm")), ("conditions", list([condition]))]);
    world.slot_keys(&slot).set("mappings", list([mapping]));
    world.insert(vec![described(&slot)]);
}

fn flow_twice(world: &mut World) {
    let id = any_flow(world);
    let words = world.says("Once more.");
    let flow = world.flow(&id, "The user wants it once more.", vec![act(&words)]);
    world.flows[flow].file = 2;
    world.flows[flow].marked = true;
}

fn response_twice(world: &mut World) {
    let (name, _) = world.responses[0].clone();
    let twin = list([map([("text", text("The other words."))])]);
    world.more_domain.push(("responses".into(), map([(name, twin.marked())])));
}

fn false_pattern(world: &mut World) {
    let words = world.says("Never heard.");
    let flow = world.flow("pattern_weather", "The user speaks about the weather.", vec![act(&words)]);
    world.flows[flow].marked = true;
}

fn agent_is_flow(world: &mut World) {
    let id = any_flow(world);
    let agent = map([
        ("agent", map([("name", text(id).marked()), ("description", text("Knows the stars"))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
        ("configuration", map([("include_date_time", plain(true))])),
    ]);
    world.agents.push(("double".into(), agent));
}
