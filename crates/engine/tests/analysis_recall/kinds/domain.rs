//! Mistakes in the domain, the configuration and agents.

use super::{Mistake, kind, without_custom_actions};
use crate::{
    project_builder::{Kind, ProjectBuilder, act, described, ending, fill, named, ways},
    yaml::{Yaml, list, map, plain, text},
};

pub const KINDS: [Mistake; 22] = [
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
    without_custom_actions("a response that nothing says", unused_response),
    without_custom_actions("a slot that nothing uses", unused_slot),
    kind("an action that nothing runs", unused_action),
    kind("an agent that nothing calls", unused_agent),
    kind("an agent that is never done", exit_impossible),
    kind("an agent that is done before it begins", exit_at_once),
    kind("exit_if without a slot", exit_without_slot),
    kind("tools included and excluded", both_lists),
    kind("a secret in a file", secret),
];

fn response(project: &mut ProjectBuilder, variations: Vec<Yaml>) {
    let name = project.says("Words.");
    *project.response(&name) = list(variations);
    project.insert(vec![act(&name)]);
}

fn misspelt_print(project: &mut ProjectBuilder) {
    let slot = project.slot("nickname", Kind::Text);
    project.insert(vec![described(&slot)]);
    let wrong = slot.replace("nick", "nik");
    response(project, vec![map([("text", text(format!("Hello {{{wrong}}}!")).marked())])]);
}

fn misspelt_template(project: &mut ProjectBuilder) {
    let slot = project.slot("nickname", Kind::Text);
    project.insert(vec![described(&slot)]);
    let wrong = slot.replace("nick", "nik");
    let words = text(format!("Hello {{{{ slots.{wrong} }}}}!")).marked();
    response(project, vec![map([("text", words), ("metadata", map([("template", text("jinja"))]))])]);
}

fn open_template(project: &mut ProjectBuilder) {
    let words = text("Hello {{ slots.name!").marked();
    response(project, vec![map([("text", words), ("metadata", map([("template", text("jinja"))]))])]);
}

fn silent_response(project: &mut ProjectBuilder) {
    response(project, vec![map([("metadata", map([("note", text("to be written"))]))]).marked()]);
}

fn response_prefix(project: &mut ProjectBuilder) {
    project.responses.push(("say_goodbye".into(), list([map([("text", text("Bye."))])]).marked()));
}

fn value_left_over(project: &mut ProjectBuilder) {
    let slot = project.slot("tier", Kind::Choice);
    let name = project.says("Words.");
    let on = |value: &str| {
        map([("condition", text(format!("slots.{slot} is \"{value}\""))), ("text", text(format!("You are {value}.")))])
    };
    *project.response(&name) = list([on("basic"), on("premium")]).marked();
    project.insert(vec![described(&slot), act(&name)]);
}

fn one_channel(project: &mut ProjectBuilder) {
    let name = project.says("Words.");
    *project.response(&name) = list([map([("channel", text("slack")), ("text", text("Hi, slacker."))])]).marked();
    project.insert(vec![act(&name)]);
}

fn dead_variation(project: &mut ProjectBuilder) {
    let slot = project.slot("tier", Kind::Float);
    let condition = text(format!("slots.{slot} > 9 and slots.{slot} < 3")).marked();
    let name = project.says("Words.");
    *project.response(&name) =
        list([map([("condition", condition), ("text", text("Hm."))]), map([("text", text("Fine."))])]);
    project.insert(vec![described(&slot), act(&name)]);
}

fn response_context(project: &mut ProjectBuilder) {
    let condition = text("context.reason is \"late\"").marked();
    response(project, vec![map([("condition", condition), ("text", text("Hm."))]), map([("text", text("Fine."))])]);
}

/// A slot with these keys that is set and printed.
fn keyed(project: &mut ProjectBuilder, keys: Vec<(&'static str, Yaml)>) {
    let slot = project.held("rank", "text");
    *project.slot_keys(&slot) = map(keys);
    let shown = project.prints([&slot]);
    project.insert(vec![fill(&slot, plain("null")), act(&shown)]);
}

fn unknown_type(project: &mut ProjectBuilder) {
    let kind = *project.rng.pick(&[&"integer", &"string", &"date"]);
    keyed(project, vec![("type", text(kind).marked())]);
}

fn python_type(project: &mut ProjectBuilder) {
    keyed(project, vec![("type", text("my_slots.DateSlot").marked())]);
}

fn unknown_mapping(project: &mut ProjectBuilder) {
    keyed(project, vec![("type", text("text")), ("mappings", list([map([("type", text("from_lm").marked())])]))]);
}

fn slot_key(project: &mut ProjectBuilder) {
    keyed(project, vec![("type", text("text")), ("inital_value", text("x").marked())]);
}

fn unused_response(project: &mut ProjectBuilder) {
    project
        .responses
        .push(("utter_words_left_behind".into(), list([map([("text", text("Nobody says it."))])]).marked()));
}

fn unused_slot(project: &mut ProjectBuilder) {
    project.slots.push(("left_behind".into(), map([("type", text("text"))]).marked()));
}

fn unused_action(project: &mut ProjectBuilder) {
    project.actions.push(text("action_left_behind").marked());
}

fn agent(project: &mut ProjectBuilder, name: Yaml, tools: Vec<(&'static str, Yaml)>) {
    let server = map([("name", text("depot"))]);
    let server = tools.into_iter().fold(server, |server, (key, value)| server.with(key, value));
    let agent = map([
        ("agent", map([("name", name), ("description", text("Knows the stars"))])),
        ("connections", map([("mcp_servers", list([server]))])),
    ]);
    project.agents.push(("star_gazer".to_owned(), agent));
}

fn unused_agent(project: &mut ProjectBuilder) {
    agent(project, text("star_gazer").marked(), Vec::new());
}

fn exits(project: &mut ProjectBuilder, condition: &str) {
    agent(project, text("star_gazer"), Vec::new());
    let slot = project.held("star", "text");
    let condition = text(condition.replace('#', &format!("slots.{slot}"))).marked();
    let shown = project.prints(&[slot]);
    project.insert(vec![map([("call", text("star_gazer"))]).with("exit_if", list([condition])), act(&shown)]);
}

fn exit_impossible(project: &mut ProjectBuilder) {
    exits(project, "# is not null and # is null");
}

fn exit_at_once(project: &mut ProjectBuilder) {
    exits(project, "# is null");
}

fn exit_without_slot(project: &mut ProjectBuilder) {
    exits(project, "context.done is true");
}

fn both_lists(project: &mut ProjectBuilder) {
    let tools = vec![
        ("include_tools", list([text("look_up")]).marked()),
        ("exclude_tools", list([text("look_down")]).marked()),
    ];
    agent(project, text("star_gazer"), tools);
    let words = project.says("Stars?");
    let on = map([("call", text("star_gazer"))]);
    let slot = project.slot("stars", Kind::Bool);
    let fork = ways(
        vec![(text(format!("slots.{slot}")), Yaml::List(vec![on.with("next", text("END"))]))],
        ending(vec![act(&words)]),
    );
    project.flow(
        "star_talk",
        "The user looks at the stars.",
        vec![named("stars", described(&slot)).with("next", fork)],
    );
}

fn secret(project: &mut ProjectBuilder) {
    let model = map([
        ("provider", text("openai")),
        ("model", text("gpt-4o")),
        ("api_key", text("sk-1234567890abcdef").marked()),
    ]);
    project.endpoints.set("model_groups", list([map([("id", text("main_model")), ("models", list([model]))])]));
}
