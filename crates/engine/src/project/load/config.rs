//! Reads `config.yml`.

use std::sync::Arc;

use super::super::{
    CalmVersion, CommandAlias, Compat, Config, Folders, GeneratorConfig, SearchConfig,
    load_context::{LoadContext, MapFields, describe},
    schema::{COMPAT, CONFIG, GENERATOR, USER_INPUT},
    yaml::Node,
};
use super::search;
use crate::{
    regex_dialect::{Flags, PythonRegex},
    template::Template,
};

/// The command generators of the format.
const GENERATORS: [&str; 5] = [
    "CompactLLMCommandGenerator",
    "SearchReadyLLMCommandGenerator",
    "SingleStepLLMCommandGenerator",
    "LLMCommandGenerator",
    "MultiStepLLMCommandGenerator",
];

/// Reads the file; the defaults if there is none.
pub(super) fn load(context: &mut LoadContext<'_>) -> (Config, Option<Template>) {
    let mut config = Config::default();
    let Some(file) = &context.sources.config else { return (config, None) };
    let Some(mut root) = context.open(file) else { return (config, None) };
    if root.is_null() {
        return (config, None);
    }
    context.expand(&mut root, "configuration");
    let Some(fields) = context.fields(&root, &CONFIG) else { return (config, None) };
    config.assistant_id = fields.shared("assistant_id").unwrap_or(config.assistant_id);
    config.language = language(context, fields.node("language")).unwrap_or(config.language);
    config.additional_languages =
        fields.texts("additional_languages").into_iter().filter_map(|node| language(context, Some(node))).collect();
    config.folders = Folders::of(&root);
    config.shortcuts = fields.flag("shortcuts");
    if let Some(compat) = fields.node("compat").and_then(|node| context.fields(node, &COMPAT)) {
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
        (config.generator, prompt) = pipeline(context, &fields);
    }
    config.search = policies(context, &fields);
    (config, prompt)
}

fn language(context: &mut LoadContext<'_>, node: Option<&Node>) -> Option<Arc<str>> {
    let (node, text) = node.and_then(|node| Some((node, node.text()?)))?;
    let main = text.split(['-', '_']).next().unwrap_or_default();
    if !(2..=3).contains(&main.len()) || !main.chars().all(|c| c.is_ascii_lowercase()) {
        let help = "Write its ISO 639 code in lower case, such as `en` or `de`.";
        context.error("F0708", node, format!("`{text}` is not a language code"), help);
        return None;
    }
    Some(text.into())
}

fn pipeline(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> (Option<GeneratorConfig>, Option<Template>) {
    let mut generator = None;
    let mut prompt = None;
    let mut place: Option<u32> = None;
    for node in fields.list("pipeline") {
        let Some((written, at)) = component(context, node) else { continue };
        let name = builtin_pipeline_component(written, node);
        if name != written && !is_rasa_component(written) {
            let message = format!("`{written}` is a Python component, which does not run; `{name}` is used instead");
            context.warning("F0707", at, message, format!("Write `{name}`; custom components are written in Rust."));
        }
        if !GENERATORS.contains(&name) {
            unsupported(context, name, at, place);
            continue;
        }
        if let Some(line) = place {
            let message = format!("a pipeline can have only one command generator; the first one is on line {line}");
            context.error("F0703", at, message, "Remove one of the two.");
            continue;
        }
        place = Some(at.line);
        if !matches!(name, "CompactLLMCommandGenerator" | "SearchReadyLLMCommandGenerator") {
            let message = format!("`{name}` is an older command generator; `CompactLLMCommandGenerator` is used");
            context.findings.note(
                "F0709",
                &at.place(&context.file.clone()),
                message,
                "Write `CompactLLMCommandGenerator`.",
            );
        }
        let Some(own) = context.fields(node, &GENERATOR) else { continue };
        prompt = own.node("prompt_template").and_then(|node| context.template_file(node));
        generator = Some(generator_config(context, &own, name));
    }
    (generator, prompt)
}

/// The built-in component for a name: `rasa.….FlowPolicy` is `FlowPolicy`. A custom command generator is replaced by the
/// built-in one that it most likely extends; its settings are used.
fn builtin_component(written: &str) -> &str {
    let Some((_, class)) = written.rsplit_once('.') else { return written };
    if is_rasa_component(written) || GENERATORS.contains(&class) {
        return class;
    }
    match class.contains("CommandGenerator") {
        true if class.contains("Search") => "SearchReadyLLMCommandGenerator",
        true => "CompactLLMCommandGenerator",
        false => written,
    }
}

/// Like [`builtin_component`], for the pipeline: a Python class with a model or a prompt is a command generator, whatever its name.
fn builtin_pipeline_component<'n>(written: &'n str, node: &Node) -> &'n str {
    let has_model = ["llm", "prompt", "prompt_template"].iter().any(|key| node.get(key).is_some());
    match builtin_component(written) {
        name if name.contains('.') && has_model => "CompactLLMCommandGenerator",
        name => name,
    }
}

/// Whether a dotted path is part of Rasa.
fn is_rasa_component(written: &str) -> bool {
    written.starts_with("rasa.") || written.starts_with("rasa_plus.")
}

/// The name of a component. An item is a map with `name` and settings, or only a name.
fn component<'n>(context: &mut LoadContext<'_>, node: &'n Node) -> Option<(&'n str, &'n Node)> {
    let named = node.get("name").unwrap_or(node);
    let Some(name) = named.text() else {
        context.error("F0109", node, "a component needs `name`", "Write `- name: CompactLLMCommandGenerator`.");
        return None;
    };
    Some((name, named))
}

fn unsupported(context: &mut LoadContext<'_>, name: &str, at: &Node, generator: Option<u32>) {
    if name == "NLUCommandAdapter" {
        if generator.is_some() {
            let message = "`NLUCommandAdapter` is listed after the command generator and would never be called";
            context.error("F0704", at, message, "Move it before the command generator.");
        }
        return;
    }
    if name.contains('.') {
        let message = format!("`{name}` is a Python component, which does not run and is ignored");
        let help = "Use `CompactLLMCommandGenerator` or `SearchReadyLLMCommandGenerator`; custom components are written in Rust.";
        context.warning("F0707", at, message, help);
        return;
    }
    if let Some(near) = crate::finding::did_you_mean(name, GENERATORS) {
        context.error("F0702", at, format!("`{name}` is not a component"), format!("Did you mean `{near}`?"));
        return;
    }
    let message = format!("the component `{name}` is not supported and is ignored");
    let help = "Remove the component from the pipeline; only the language model understands messages.";
    context.warning("F0702", at, message, help);
}

fn generator_config(context: &mut LoadContext<'_>, own: &MapFields<'_>, name: &str) -> GeneratorConfig {
    let mut config = GeneratorConfig { name: name.into(), ..GeneratorConfig::default() };
    if let Some(llm) = own.node("llm") {
        (config.model_group, config.llm) = context.model(llm);
    }
    config.include_date_time = own.flag("include_date_time");
    config.timezone = context.timezone(own.node("timezone"), "F0705");
    for entry in own.map("command_aliases") {
        let Some(command) = entry.node.text() else {
            let message = format!("a command must be a string, but this is {}", describe(&entry.node));
            context.error("F0108", &entry.node, message, "Write for example `'^escalate$': hand over`.");
            continue;
        };
        match PythonRegex::new(&entry.key, Flags::default()) {
            Ok(line) => config.aliases.push(CommandAlias { line, command: command.into() }),
            Err(error) => {
                let message = format!("`{}` is not a valid regular expression: {error}", entry.key);
                context.error(
                    "F0712",
                    &entry.at,
                    message,
                    "Use the regular expression syntax of Python, such as `^escalate$`.",
                );
            }
        }
    }
    if let Some(input) = own.node("user_input").and_then(|node| context.fields(node, &USER_INPUT))
        && let Some(most) = input.number("max_characters")
    {
        // A negative number means no limit; the cast of a positive one saturates.
        config.max_characters = (most >= 0.0).then_some(most as usize);
    }
    if let Some(node) = own.node("flow_retrieval") {
        config.retrieval = search::retrieval(context, node);
    }
    config
}

fn policies(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<SearchConfig> {
    let mut found = None;
    for node in fields.list("policies") {
        let Some((written, at)) = component(context, node) else { continue };
        let name = builtin_component(written);
        match name {
            "FlowPolicy" => {}
            "EnterpriseSearchPolicy" => found = search::policy(context, node),
            _ if name.contains('.') => {
                let message = format!("`{name}` is a Python policy, which does not run and is ignored");
                context.warning("F0707", at, message, "Use `FlowPolicy`; custom components are written in Rust.");
            }
            _ => {
                let message = format!("the policy `{name}` is not supported and is ignored");
                context.warning(
                    "F0706",
                    at,
                    message,
                    "Remove it; only `FlowPolicy` and `EnterpriseSearchPolicy` are supported.",
                );
            }
        }
    }
    found
}
