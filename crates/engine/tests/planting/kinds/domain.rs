//! The domain, configuration and agents.

use super::{Plant, kind, quiet};
use crate::{
    world::{Kind, World, act, described, ending, fill, named, ways},
    yaml::{Y, list, map, plain, text},
};

pub const KINDS: [Plant; 22] = [
    kind("a text prints a misspelt slot", misspelt_print),
    kind("a template prints a misspelt slot", misspelt_template),
    kind("a template that is never closed", open_template),
    kind("a response without words", silent_response),
    kind("a response that does not begin with utter_", response_prefix),
    kind("all variations have conditions, and a value is left over", value_left_over),
    kind("all variations are for one channel", one_channel),
    kind("a variation whose condition cannot hold", dead_variation),
    kind("the condition of a response reads the context", response_context),
    kind("a type of slots that does not exist", unknown_type),
    kind("a slot type in Python", python_type),
    kind("a mapping of no known type", unknown_mapping),
    kind("a misspelt key of a slot", slot_key),
    quiet("a response that nothing says", unused_response),
    quiet("a slot that nothing uses", unused_slot),
    kind("an action that nothing runs", unused_action),
    kind("an agent that nothing calls", unused_agent),
    kind("an agent that is never done", exit_impossible),
    kind("an agent that is done before it begins", exit_at_once),
    kind("exit_if without a slot", exit_without_slot),
    kind("tools included and excluded", both_lists),
    kind("a secret in a file", secret),
];

fn response(world: &mut World, variations: Vec<Y>) {
    let name = world.says("Words.");
    *world.response(&name) = list(variations);
    world.insert(vec![act(&name)]);
}

fn misspelt_print(world: &mut World) {
    let slot = world.slot("nickname", Kind::Text);
    world.insert(vec![described(&slot)]);
    let wrong = slot.replace("nick", "nik");
    response(world, vec![map([("text", text(format!("Hello {{{wrong}}}!")).marked())])]);
}

fn misspelt_template(world: &mut World) {
    let slot = world.slot("nickname", Kind::Text);
    world.insert(vec![described(&slot)]);
    let wrong = slot.replace("nick", "nik");
    let words = text(format!("Hello {{{{ slots.{wrong} }}}}!")).marked();
    response(world, vec![map([("text", words), ("metadata", map([("template", text("jinja"))]))])]);
}

fn open_template(world: &mut World) {
    let words = text("Hello {{ slots.name!").marked();
    response(world, vec![map([("text", words), ("metadata", map([("template", text("jinja"))]))])]);
}

fn silent_response(world: &mut World) {
    response(world, vec![map([("metadata", map([("note", text("to be written"))]))]).marked()]);
}

fn response_prefix(world: &mut World) {
    world.responses.push(("say_goodbye".into(), list([map([("text", text("Bye."))])]).marked()));
}

fn value_left_over(world: &mut World) {
    let slot = world.slot("tier", Kind::Choice);
    let name = world.says("Words.");
    let on = |value: &str| {
        map([("condition", text(format!("slots.{slot} is \"{value}\""))), ("text", text(format!("You are {value}.")))])
    };
    *world.response(&name) = list([on("basic"), on("premium")]).marked();
    world.insert(vec![described(&slot), act(&name)]);
}

fn one_channel(world: &mut World) {
    let name = world.says("Words.");
    *world.response(&name) = list([map([("channel", text("slack")), ("text", text("Hi, slacker."))])]).marked();
    world.insert(vec![act(&name)]);
}

fn dead_variation(world: &mut World) {
    let slot = world.slot("tier", Kind::Float);
    let condition = text(format!("slots.{slot} > 9 and slots.{slot} < 3")).marked();
    let name = world.says("Words.");
    *world.response(&name) =
        list([map([("condition", condition), ("text", text("Hm."))]), map([("text", text("Fine."))])]);
    world.insert(vec![described(&slot), act(&name)]);
}

fn response_context(world: &mut World) {
    let condition = text("context.reason is \"late\"").marked();
    response(world, vec![map([("condition", condition), ("text", text("Hm."))]), map([("text", text("Fine."))])]);
}

/// A slot of these keys that is filled and printed.
fn keyed(world: &mut World, keys: Vec<(&'static str, Y)>) {
    let slot = world.held("rank", "text");
    *world.slot_keys(&slot) = map(keys);
    let shown = world.prints([&slot]);
    world.insert(vec![fill(&slot, plain("null")), act(&shown)]);
}

fn unknown_type(world: &mut World) {
    let kind = *world.chance.pick(&[&"integer", &"string", &"date"]);
    keyed(world, vec![("type", text(kind).marked())]);
}

fn python_type(world: &mut World) {
    keyed(world, vec![("type", text("my_slots.DateSlot").marked())]);
}

fn unknown_mapping(world: &mut World) {
    keyed(world, vec![("type", text("text")), ("mappings", list([map([("type", text("from_lm").marked())])]))]);
}

fn slot_key(world: &mut World) {
    keyed(world, vec![("type", text("text")), ("inital_value", text("x").marked())]);
}

fn unused_response(world: &mut World) {
    world.responses.push(("utter_words_left_behind".into(), list([map([("text", text("Nobody says it."))])]).marked()));
}

fn unused_slot(world: &mut World) {
    world.slots.push(("left_behind".into(), map([("type", text("text"))]).marked()));
}

fn unused_action(world: &mut World) {
    world.actions.push(text("action_left_behind").marked());
}

fn agent(world: &mut World, name: Y, tools: Vec<(&'static str, Y)>) {
    let server = map([("name", text("depot"))]);
    let server = tools.into_iter().fold(server, |server, (key, value)| server.with(key, value));
    let agent = map([
        ("agent", map([("name", name), ("description", text("Knows the stars"))])),
        ("connections", map([("mcp_servers", list([server]))])),
    ]);
    world.agents.push(("star_gazer".to_owned(), agent));
}

fn unused_agent(world: &mut World) {
    agent(world, text("star_gazer").marked(), Vec::new());
}

fn exits(world: &mut World, condition: &str) {
    agent(world, text("star_gazer"), Vec::new());
    let slot = world.held("star", "text");
    let condition = text(condition.replace('#', &format!("slots.{slot}"))).marked();
    let shown = world.prints(&[slot]);
    world.insert(vec![map([("call", text("star_gazer"))]).with("exit_if", list([condition])), act(&shown)]);
}

fn exit_impossible(world: &mut World) {
    exits(world, "# is not null and # is null");
}

fn exit_at_once(world: &mut World) {
    exits(world, "# is null");
}

fn exit_without_slot(world: &mut World) {
    exits(world, "context.done is true");
}

fn both_lists(world: &mut World) {
    let tools = vec![
        ("include_tools", list([text("look_up")]).marked()),
        ("exclude_tools", list([text("look_down")]).marked()),
    ];
    agent(world, text("star_gazer"), tools);
    let words = world.says("Stars?");
    let on = map([("call", text("star_gazer"))]);
    let slot = world.slot("stars", Kind::Bool);
    let fork = ways(
        vec![(text(format!("slots.{slot}")), Y::List(vec![on.with("next", text("END"))]))],
        ending(vec![act(&words)]),
    );
    world.flow("star_talk", "The user looks at the stars.", vec![named("stars", described(&slot)).with("next", fork)]);
}

fn secret(world: &mut World) {
    let model = map([
        ("provider", text("openai")),
        ("model", text("gpt-4o")),
        ("api_key", text("sk-1234567890abcdef").marked()),
    ]);
    world.endpoints.set("model_groups", list([map([("id", text("main_model")), ("models", list([model]))])]));
}
