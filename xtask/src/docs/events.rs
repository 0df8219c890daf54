//! The page of events, made from the types that are stored and their comments.

use std::fmt::Write;

use anyhow::{Result, ensure};
use syn::{Attribute, Expr, Fields, File, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// The files with the types.
pub const SOURCES: [&str; 7] = [
    "crates/engine/src/conversation/event.rs",
    "crates/engine/src/conversation/message.rs",
    "crates/engine/src/conversation/effects.rs",
    "crates/lang/src/usage.rs",
    "src/runtime/replay.rs",
    "src/runtime/turn/usage.rs",
    "src/journal/tool_progress.rs",
];
const HEAD: &str = "\
# Events

All that is stored of a conversation is a list of events. `cargo xtask docs` writes this page from their types. Where they appear:

* `segue chat --events` prints each event as a line of JSON.
* `segue trace ID --format json` prints the events of each turn under `events`, [with what led to them](#turns-of-a-trace).
* The view `events` of [the store](store.md#the-files) has a row for each.
* Action servers get them as `tracker.events`, in the layout of the CALM format.

An event is one JSON object: `event` with the name of its kind, `timestamp` in seconds, the fields of its kind, and `metadata` with
`active_flow` and `step_id` where it belongs to a step of a flow (for `user`: `place`, because its `metadata` is that of the message).
A program that reads events ignores kinds and fields that it does not know.
";

/// The text of the page.
pub fn page(sources: &[&str]) -> Result<String> {
    let files: Vec<File> = sources.iter().map(|text| syn::parse_file(text)).collect::<Result<_, _>>()?;
    let types = Types(&files);
    let mut page = HEAD.to_owned();
    page.push_str("\n## Kinds\n");
    types.variants(&mut page, "EventKind", "###");
    for (name, heading) in [
        ("UserMessage", "User message"),
        ("BotMessage", "Bot message"),
        ("Reply", "Reply"),
        ("Button", "Button"),
        ("StepError", "Step error"),
        ("ModelUsage", "Model usage"),
        ("Usage", "Usage"),
    ] {
        types.fields_of(&mut page, name, &format!("## {heading}"));
    }
    page.push_str(
        "\n## Turns of a trace\n\n`segue trace ID --format json` prints a list with one object for each turn:\n",
    );
    types.fields_of(&mut page, "TurnTrace", "");
    types.fields_of(&mut page, "TraceStep", "### Trace step");
    types.fields_of(&mut page, "TraceProgress", "### Trace progress");
    page.push_str("\n### Trace entry\n\n`effect` names the kind:\n");
    types.variants(&mut page, "TraceEntry", "####");
    let is_whole = page.contains("### `user`") && page.contains("#### `model_request`") && page.contains("## Usage");
    ensure!(files.iter().all(|file| file.items.is_empty()) || is_whole, "a type of events is no longer in its file");
    Ok(page)
}

/// The types of all files.
pub(super) struct Types<'a>(pub(super) &'a [File]);

impl<'a> Types<'a> {
    fn items(&self) -> impl Iterator<Item = &'a Item> {
        self.0.iter().flat_map(|file| &file.items)
    }

    /// The kinds of an enum, each with its fields.
    pub(super) fn variants(&self, page: &mut String, name: &str, level: &str) {
        let find = |item: &'a Item| match item {
            Item::Enum(item) if item.ident == name => Some(item),
            _ => None,
        };
        let Some(item) = self.items().find_map(find) else { return };
        for variant in item.variants.iter().filter(|variant| !has(&variant.attrs, "untagged")) {
            let name = rename(&variant.attrs).unwrap_or_else(|| snake(&variant.ident.to_string()));
            let _ = write!(page, "\n{level} `{name}`\n\n{}\n", comment(&variant.attrs));
            match &variant.fields {
                Fields::Named(fields) if fields.named.is_empty() => {}
                Fields::Named(fields) => self.table(page, fields.named.iter()),
                Fields::Unnamed(fields) => {
                    for field in &fields.unnamed {
                        let _ = write!(page, "\nThe fields of {}.\n", self.type_of(&field.ty));
                    }
                }
                Fields::Unit => {}
            }
        }
    }

    /// The fields of a struct below a heading.
    pub(super) fn fields_of(&self, page: &mut String, name: &str, heading: &str) {
        let find = |item: &'a Item| match item {
            Item::Struct(item) if item.ident == name => Some(item),
            _ => None,
        };
        let Some(item) = self.items().find_map(find) else { return };
        if !heading.is_empty() {
            let _ = write!(page, "\n{heading}\n\n{}\n", comment(&item.attrs));
        }
        self.table(page, item.fields.iter());
    }

    fn table<'f>(&self, page: &mut String, fields: impl Iterator<Item = &'f syn::Field>) {
        page.push_str("\n| field | type | meaning |\n| --- | --- | --- |\n");
        for field in fields {
            if has(&field.attrs, "flatten") {
                let _ = writeln!(page, "| | | {} The fields of {}. |", comment(&field.attrs), self.type_of(&field.ty));
                continue;
            }
            let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let name = rename(&field.attrs).unwrap_or_else(|| name.trim_start_matches("r#").to_owned());
            let optional = match &field.ty {
                _ if has(&field.attrs, "skip_serializing_if") => ", may be absent",
                Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option") => " or null",
                _ => "",
            };
            let _ = writeln!(page, "| `{name}` | {}{optional} | {} |", self.type_of(&field.ty), comment(&field.attrs));
        }
    }

    /// The type as JSON has it.
    fn type_of(&self, ty: &Type) -> String {
        let Type::Path(path) = ty else {
            return "a list".to_owned();
        };
        let Some(last) = path.path.segments.last() else { return String::new() };
        let inner = match &last.arguments {
            PathArguments::AngleBracketed(arguments) => arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            }),
            _ => None,
        };
        match (last.ident.to_string().as_str(), inner) {
            ("Option" | "Box" | "Arc", Some(inner)) => self.type_of(inner),
            ("Vec", Some(inner)) => format!("a list, each item {}", self.type_of(inner)),
            ("BTreeMap" | "Map", _) => "a map".to_owned(),
            ("Stack", _) => "a list, each item a map".to_owned(),
            ("Json", _) => "any value".to_owned(),
            ("bool", _) => "`true` or `false`".to_owned(),
            // A time is written in seconds.
            ("u64" | "u32" | "usize" | "f64" | "f32" | "i64" | "Timestamp", _) => "a number".to_owned(),
            ("Event", _) => "an event".to_owned(),
            ("UserMessage", _) => "a [user message](#user-message)".to_owned(),
            ("BotMessage", _) => "a [bot message](#bot-message)".to_owned(),
            ("Reply", _) => "a [reply](#reply)".to_owned(),
            ("Button", _) => "a [button](#button)".to_owned(),
            ("StepError", _) => "a [step error](#step-error)".to_owned(),
            ("ModelUsage", _) => "[model usage](#model-usage)".to_owned(),
            ("Usage", _) => "[usage](#usage)".to_owned(),
            ("TraceEntry", _) => "a [trace entry](#trace-entry)".to_owned(),
            ("TraceStep", _) => "a [trace step](#trace-step)".to_owned(),
            ("TraceProgress", _) => "[trace progress](#trace-progress)".to_owned(),
            ("PendingEffect" | "ExternalTrigger" | "Command", _) => "a map".to_owned(),
            ("PersonQuestion", _) => "a [question](#question)".to_owned(),
            ("PreviousRun", _) => "a [previous run](#previous-run)".to_owned(),
            ("Learnings", _) => "[learnings](#learnings)".to_owned(),
            ("LearnedFailure", _) => "a [learned failure](#learned-failure)".to_owned(),
            ("ChosenTarget", _) => "a [chosen target](#chosen-target)".to_owned(),
            ("CommanderAnswer", _) => "an [answer](#answer-of-a-commander)".to_owned(),
            ("IndexMap", _) => "a map".to_owned(),
            (name, _) => self.names_of(name).unwrap_or_else(|| "a string".to_owned()),
        }
    }

    /// The values of an enum without fields.
    fn names_of(&self, name: &str) -> Option<String> {
        let item = self.items().find_map(|item| match item {
            Item::Enum(item) if item.ident == name => Some(item),
            _ => None,
        })?;
        let names = item
            .variants
            .iter()
            .map(|variant| rename(&variant.attrs).unwrap_or_else(|| snake(&variant.ident.to_string())));
        Some(format!("one of {}", names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")))
    }
}

/// Whether `#[serde(…)]` has a word.
fn has(attributes: &[Attribute], word: &str) -> bool {
    serde(attributes).any(|(name, _)| name == word)
}

fn rename(attributes: &[Attribute]) -> Option<String> {
    serde(attributes).find_map(|(name, value)| (name == "rename").then_some(value))
}

/// The entries of `#[serde(…)]` with their values.
fn serde(attributes: &[Attribute]) -> impl Iterator<Item = (String, String)> {
    let mut entries = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let Meta::List(list) = &attribute.meta else { continue };
        for entry in list.tokens.to_string().split(',') {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            entries.push((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()));
        }
    }
    entries.into_iter()
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for (at, char) in name.char_indices() {
        if at > 0 && char.is_uppercase() {
            text.push('_');
        }
        text.extend(char.to_lowercase());
    }
    text
}

/// The comment in one line, fit for a cell of a table, without what is about the source alone.
fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let text = text.split(" Boxed, because").next().unwrap_or_default();
    let text = text.strip_prefix("Segue: ").map_or_else(
        || text.to_owned(),
        |rest| {
            let mut chars = rest.chars();
            let first: String = chars.next().map(|char| char.to_uppercase().collect()).unwrap_or_default();
            format!("{first}{} Not part of the CALM format.", chars.as_str())
        },
    );
    text.replace("[`crate::limits::", "`").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_with_their_fields() {
        let text = "/// A kind.\npub enum EventKind {\n/// Segue: a slot.\nSlotSet {\n/// Its [`Name`].\n#[serde(rename = \"slot\", skip_serializing_if = \"x\")]\n\
                    name: Option<SlotName>,\n/// By.\nby: FilledBy },\n}\npub enum FilledBy { #[serde(rename = \"LLM\")] Llm, Flow }";
        let (file, mut page) = (syn::parse_file(text).unwrap(), String::new());
        Types(&[file]).variants(&mut page, "EventKind", "###");
        assert!(page.contains("### `slot_set`\n\nA slot. Not part of the CALM format.\n"), "{page}");
        assert!(
            page.contains("| `slot` | a string, may be absent | Its `Name`. |\n| `by` | one of `LLM`, `flow` | By. |"),
            "{page}"
        );
        assert!(super::page(&["", ""]).is_ok());
    }
}
