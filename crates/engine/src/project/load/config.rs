//! `config.yml`.

use std::sync::Arc;

use super::super::{
    CalmVersion, CommandAlias, Compat, Config, Folders, GeneratorConfig, SearchConfig,
    reader::{Fields, Reader, said},
    schema::{COMPAT, CONFIG, GENERATOR, USER_INPUT},
    yaml::Node,
};
use super::search;
use crate::{
    regex_dialect::{Flags, PythonRegex},
    template::Template,
};

/// Components that read commands out of a model's answer.
const GENERATORS: [&str; 5] = [
    "CompactLLMCommandGenerator",
    "SearchReadyLLMCommandGenerator",
    "SingleStepLLMCommandGenerator",
    "LLMCommandGenerator",
    "MultiStepLLMCommandGenerator",
];

/// Reads the file; the defaults where there is none.
pub(super) fn load(reader: &mut Reader<'_>) -> (Config, Option<Template>) {
    let mut config = Config::default();
    let Some(file) = &reader.sources.config else { return (config, None) };
    let Some(mut root) = reader.open(file) else { return (config, None) };
    if root.is_null() {
        return (config, None);
    }
    reader.expand(&mut root, "configuration");
    let Some(fields) = reader.fields(&root, &CONFIG) else { return (config, None) };
    config.assistant_id = fields.shared("assistant_id").unwrap_or(config.assistant_id);
    config.language = language(reader, fields.node("language")).unwrap_or(config.language);
    config.additional_languages =
        fields.texts("additional_languages").into_iter().filter_map(|node| language(reader, Some(node))).collect();
    config.folders = Folders::of(&root);
    config.shortcuts = fields.flag("shortcuts");
    if let Some(compat) = fields.node("compat").and_then(|node| reader.fields(node, &COMPAT)) {
        config.compat = Compat {
            patterns: compat.text("patterns").and_then(CalmVersion::of).unwrap_or_default(),
            rerun_actions: compat.flag("rerun_actions"),
            clarify_on_multiple_start_flows: compat.flag("clarify_on_multiple_start_flows"),
            failed_actions_continue: compat.text("failed_actions") == Some("continue"),
        };
    }
    let mut prompt = None;
    if fields.node("pipeline").is_some() {
        config.generator = None;
        config.nlu_adapter = fields
            .list("pipeline")
            .iter()
            .any(|node| node.get("name").unwrap_or(node).text() == Some("NLUCommandAdapter"));
        (config.generator, prompt) = pipeline(reader, &fields);
    }
    config.search = policies(reader, &fields);
    (config, prompt)
}

fn language(reader: &mut Reader<'_>, node: Option<&Node>) -> Option<Arc<str>> {
    let (node, text) = node.and_then(|node| Some((node, node.text()?)))?;
    let main = text.split(['-', '_']).next().unwrap_or_default();
    if !(2..=3).contains(&main.len()) || !main.chars().all(|c| c.is_ascii_lowercase()) {
        let help = "Write its ISO 639 code in lower case, such as `en` or `de`.";
        reader.error("F0708", node, format!("`{text}` is not a language code"), help);
        return None;
    }
    Some(text.into())
}

fn pipeline(reader: &mut Reader<'_>, fields: &Fields<'_>) -> (Option<GeneratorConfig>, Option<Template>) {
    let mut generator = None;
    let mut prompt = None;
    let mut place: Option<u32> = None;
    for node in fields.list("pipeline") {
        let Some((written, at)) = component(reader, node) else { continue };
        let name = meant(written);
        if name != written && !is_vendors(written) {
            let message = format!("`{written}` is a Python component, which is not run here; `{name}` takes its place");
            reader.warning("F0707", at, message, format!("Write `{name}`; custom steps are written in Rust."));
        }
        if !GENERATORS.contains(&name) {
            unsupported(reader, name, at, place);
            continue;
        }
        if let Some(line) = place {
            let message = format!("a pipeline has one command generator, and another stands on line {line}");
            reader.error("F0703", at, message, "Keep one of the two.");
            continue;
        }
        place = Some(at.line);
        if !matches!(name, "CompactLLMCommandGenerator" | "SearchReadyLLMCommandGenerator") {
            let message = format!("`{name}` is an older generator; the compact one does its work");
            reader.findings.note(
                "F0709",
                &at.place(&reader.file.clone()),
                message,
                "Write `CompactLLMCommandGenerator`.",
            );
        }
        let Some(own) = reader.fields(node, &GENERATOR) else { continue };
        prompt = own.node("prompt_template").and_then(|node| reader.template_file(node));
        generator = Some(generator_config(reader, &own, name));
    }
    (generator, prompt)
}

/// The component that a name means: `rasa.….FlowPolicy` is `FlowPolicy`, and a command generator of the project's own is
/// replaced by the built-in one that it most likely extends; its settings stay.
fn meant(written: &str) -> &str {
    let Some((_, class)) = written.rsplit_once('.') else { return written };
    if is_vendors(written) || GENERATORS.contains(&class) {
        return class;
    }
    match class.contains("CommandGenerator") {
        true if class.contains("Search") => "SearchReadyLLMCommandGenerator",
        true => "CompactLLMCommandGenerator",
        false => written,
    }
}

/// Whether a dotted path is one of the vendor's own.
fn is_vendors(written: &str) -> bool {
    written.starts_with("rasa.") || written.starts_with("rasa_plus.")
}

/// The name of a component: an item is `name: …` with settings, or a bare name.
fn component<'n>(reader: &mut Reader<'_>, node: &'n Node) -> Option<(&'n str, &'n Node)> {
    let named = node.get("name").unwrap_or(node);
    let Some(name) = named.text() else {
        reader.error("F0109", node, "a component needs `name`", "Write `- name: CompactLLMCommandGenerator`.");
        return None;
    };
    Some((name, named))
}

fn unsupported(reader: &mut Reader<'_>, name: &str, at: &Node, generator: Option<u32>) {
    if name == "NLUCommandAdapter" {
        if generator.is_some() {
            let message = "`NLUCommandAdapter` stands after the command generator and would never be asked";
            reader.error("F0704", at, message, "Move it before the command generator.");
        }
        return;
    }
    if name.contains('.') {
        let message = format!("`{name}` is a Python component, which is not run here and is left out");
        let help =
            "Use `CompactLLMCommandGenerator` or `SearchReadyLLMCommandGenerator`; custom steps are written in Rust.";
        reader.warning("F0707", at, message, help);
        return;
    }
    if let Some(near) = crate::finding::did_you_mean(name, GENERATORS) {
        reader.error("F0702", at, format!("`{name}` is not a component"), format!("Did you mean `{near}`?"));
        return;
    }
    let message = format!("the component `{name}` is not supported and is left out");
    let help = "Messages are understood by the language model alone; remove the component from the pipeline.";
    reader.warning("F0702", at, message, help);
}

fn generator_config(reader: &mut Reader<'_>, own: &Fields<'_>, name: &str) -> GeneratorConfig {
    let mut config = GeneratorConfig { name: name.into(), ..GeneratorConfig::default() };
    if let Some(llm) = own.node("llm") {
        (config.model_group, config.llm) = reader.model(llm);
    }
    config.include_date_time = own.flag("include_date_time");
    config.timezone = reader.timezone(own.node("timezone"), "F0705");
    for entry in own.map("command_aliases") {
        let Some(command) = entry.node.text() else {
            let message = format!("a command is a text, but this is {}", said(&entry.node));
            reader.error("F0108", &entry.node, message, "Write for example `'^escalate$': hand over`.");
            continue;
        };
        match PythonRegex::new(&entry.key, Flags::default()) {
            Ok(line) => config.aliases.push(CommandAlias { line, command: command.into() }),
            Err(error) => {
                let message = format!("`{}` cannot be searched for: {error}", entry.key);
                reader.error("F0712", &entry.at, message, "Write a pattern of Python's dialect, such as `^escalate$`.");
            }
        }
    }
    if let Some(input) = own.node("user_input").and_then(|node| reader.fields(node, &USER_INPUT))
        && let Some(most) = input.number("max_characters")
    {
        // A negative number means no limit; the cast of a positive one saturates.
        config.max_characters = (most >= 0.0).then_some(most as usize);
    }
    if let Some(node) = own.node("flow_retrieval") {
        config.retrieval = search::retrieval(reader, node);
    }
    config
}

fn policies(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<SearchConfig> {
    let mut found = None;
    for node in fields.list("policies") {
        let Some((written, at)) = component(reader, node) else { continue };
        let name = meant(written);
        match name {
            "FlowPolicy" => {}
            "EnterpriseSearchPolicy" => found = search::policy(reader, node),
            _ if name.contains('.') => {
                let message = format!("`{name}` is a Python policy, which is not run here and is left out");
                reader.warning("F0707", at, message, "Use `FlowPolicy`; custom steps are written in Rust.");
            }
            _ => {
                let message = format!("the policy `{name}` is not supported and is left out");
                reader.warning("F0706", at, message, "Flows alone decide here; keep `FlowPolicy`.");
            }
        }
    }
    found
}
