//! Reads declared fields: of outputs, datasets and objects, and the inputs of missions.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value as Json;

use super::{
    super::{
        HTTP_TOOLS,
        load_context::{LoadContext, MapFields, describe},
        missions::{FieldDef, InputDef, ValueKind},
        schema::{FIELD, INPUT},
        yaml::{Entry, Node, Value},
    },
    missions::server_tools,
    shorthand::{self, FieldShape},
};
use crate::limits::SHORTEST_SECRET;
use crate::regex_dialect::{Flags, PythonRegex};

/// Keys of a field that fit only some types.
const CONSTRAINTS: [(&str, &[ValueKind]); 6] = [
    ("pattern", &[ValueKind::String]),
    ("minimum", &[ValueKind::Number, ValueKind::Integer]),
    ("maximum", &[ValueKind::Number, ValueKind::Integer]),
    ("items", &[ValueKind::List]),
    ("values", &[ValueKind::Map]),
    ("properties", &[ValueKind::Object]),
];

/// An item of a map, or of a list whose items have a `name`.
pub(super) struct NamedNode<'n> {
    /// Its name.
    pub(super) name: &'n str,
    /// The location of its name.
    pub(super) at: &'n Node,
    /// Its value.
    pub(super) node: &'n Node,
}

/// The items of a map, or of a list whose items have a `name`. `what` is one item in messages: `a task`.
pub(super) fn named<'n>(context: &mut LoadContext<'_>, node: Option<&'n Node>, what: &str) -> Vec<NamedNode<'n>> {
    let Some(node) = node else { return Vec::new() };
    if let Some(entries) = node.map() {
        return entries.iter().map(|entry| of_entry(context, entry, what)).collect();
    }
    let Some(items) = node.list() else {
        let message = format!("expected a map by name, each value {what}, but this is {}", describe(node));
        context.error("F0108", node, message, "Write the name as a key, with the settings below it.");
        return Vec::new();
    };
    let mut found: Vec<NamedNode<'n>> = Vec::new();
    for node in items {
        let name = node.get("name").and_then(|at| Some((at, at.text()?)));
        let Some((at, name)) = name else {
            context.error("F0109", node, format!("{what} in a list needs `name`"), "Add `name: …`.");
            continue;
        };
        if let Some(first) = found.iter().find(|other| other.name == name) {
            let message = format!("`{name}` is already on line {}", first.at.line);
            context.error("F0802", at, message, "Give each one a unique name.");
            continue;
        }
        found.push(NamedNode { name, at, node });
    }
    found
}

fn of_entry<'n>(context: &mut LoadContext<'_>, entry: &'n Entry, what: &str) -> NamedNode<'n> {
    if let Some(written) = entry.node.get("name").filter(|written| written.text().is_some_and(|it| it != entry.key)) {
        let message = format!("{what} has two names: `{}` and `{}`", entry.key, written.text().unwrap_or_default());
        context.error("F0802", written, message, "Remove `name`: the key is the name.");
    }
    NamedNode { name: &entry.key, at: &entry.at, node: &entry.node }
}

/// Reads a map of fields.
pub(super) fn fields(context: &mut LoadContext<'_>, node: Option<&Node>) -> IndexMap<Arc<str>, FieldDef> {
    let shapes = shapes(context, node);
    shapes.into_iter().map(|(name, shape)| (name.into(), definition(&shape, shape.required.unwrap_or(false)))).collect()
}

fn shapes<'n>(context: &mut LoadContext<'_>, node: Option<&'n Node>) -> Vec<(&'n str, FieldShape)> {
    // A block form of HCL: one key `field` with a list.
    let block = node.and_then(Node::map).and_then(|entries| match entries {
        [only] if only.key == "field" && only.node.list().is_some() => Some(&only.node),
        _ => None,
    });
    let mut found = Vec::new();
    for NamedNode { name, at, node } in named(context, block.or(node), "a field") {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            let message = format!("`{name}` is not a name of a field");
            context.error("F0801", at, message, "Use letters, digits and `_`.");
            continue;
        }
        if let Some(shape) = shape(context, node) {
            found.push((name, shape));
        }
    }
    found
}

fn definition(shape: &FieldShape, required: bool) -> FieldDef {
    let schema = Json::Object(shape.schema.clone()).into();
    FieldDef { kind: shape.kind, description: shape.description.as_str().into(), required, schema }
}

/// Reads a field that is no input.
fn shape(context: &mut LoadContext<'_>, node: &Node) -> Option<FieldShape> {
    if let Some(shape) = short(context, node) {
        if shape.as_ref().is_some_and(|shape| shape.kind == ValueKind::File) {
            context.error("F0805", node, "this is not the type of a field: `file` is a type of inputs", ONLY_INPUTS);
            return None;
        }
        return shape;
    }
    let fields = context.fields(node, &FIELD)?;
    block(context, &fields)
}

/// Reads the short form; `None` if this is another form.
fn short(context: &mut LoadContext<'_>, node: &Node) -> Option<Option<FieldShape>> {
    let text = node.text()?;
    if node.unset {
        return Some(None);
    }
    Some(match shorthand::parse(text) {
        Ok(shape) => Some(shape),
        Err(part) => {
            // A value from the environment may be a secret.
            let part = if node.expanded { "the value from the environment".to_owned() } else { part };
            let message = format!("this is not the type of a field: {part} is not understood");
            let help = match crate::finding::did_you_mean(text, TYPES).filter(|_| !node.expanded) {
                Some(near) => format!("Did you mean `{near}`?"),
                None if text.contains("file") => ONLY_INPUTS.to_owned(),
                None => "Write a type such as `string` or `list(string)`, or a map with `type`.".to_owned(),
            };
            context.error("F0805", node, message, help);
            None
        }
    })
}

/// Help for `file` in another place.
const ONLY_INPUTS: &str = "Only an input itself can be a `file`; write `string` for a path.";
/// The type names for suggestions.
const TYPES: [&str; 9] = ["string", "number", "integer", "boolean", "list", "map", "object", "any", "any_primitive"];

/// Reads the keys that fields and inputs have in common.
fn block(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<FieldShape> {
    let mut shape = FieldShape::of_type(fields.text("type")?)?;
    shape.description = fields.text("description").unwrap_or_default().to_owned();
    shape.required = fields.bool("required");
    for (key, kinds) in CONSTRAINTS {
        if fields.has(key) && !kinds.contains(&shape.kind) {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let message = format!("`{key}` does not fit the type `{}`", shape.kind.name());
            let help = format!("Remove it; it is a key of `{}`.", names.join("` and `"));
            context.error("F0806", fields.at(key), message, help);
        }
    }
    match shape.kind {
        ValueKind::String => pattern(context, fields, &mut shape),
        ValueKind::Number | ValueKind::Integer => bounds(context, fields, &mut shape),
        ValueKind::List => {
            if let Some(item) = fields.node("items").and_then(|node| self::shape(context, node)) {
                shape.set_items(&item);
            }
        }
        ValueKind::Map => {
            if let Some(value) = fields.node("values").and_then(|node| self::shape(context, node)) {
                shape.set_values(&value);
            }
        }
        ValueKind::Object => {
            if let Some(node) = fields.node("properties") {
                let properties = shapes(context, Some(node));
                shape.set_properties(properties.iter().map(|(name, field)| (*name, field)));
            }
        }
        ValueKind::Boolean | ValueKind::Any => {}
        ValueKind::File if fields.has("enum") => {
            let message = "`enum` does not fit the type `file`";
            context.error("F0806", fields.at("enum"), message, "Remove it; write `string` for one of several paths.");
            return Some(shape);
        }
        ValueKind::File => {}
    }
    allowed_values(context, fields, &mut shape);
    Some(shape)
}

fn pattern(context: &mut LoadContext<'_>, fields: &MapFields<'_>, shape: &mut FieldShape) {
    let Some((node, text)) = fields.node("pattern").and_then(|node| Some((node, node.text()?))) else { return };
    match PythonRegex::new(text, Flags::default()) {
        Ok(_) => drop(shape.schema.insert("pattern".into(), text.into())),
        Err(error) => {
            let message = format!("`pattern` is not a valid regular expression: {error}");
            context.error("F0806", node, message, "Use the regular expression syntax of Python, without slashes.");
        }
    }
}

fn bounds(context: &mut LoadContext<'_>, fields: &MapFields<'_>, shape: &mut FieldShape) {
    for key in ["minimum", "maximum"] {
        if let Some(number) = fields.node(key).and_then(Node::number) {
            shape.schema.insert(key.into(), Json::Number(number));
        }
    }
    if let (Some(least), Some(most)) = (fields.number("minimum"), fields.number("maximum"))
        && least > most
    {
        let message = format!("no value fits: `minimum` is {least} and `maximum` is {most}");
        context.error("F0806", fields.at("maximum"), message, "Correct one of the two.");
    }
}

fn allowed_values(context: &mut LoadContext<'_>, fields: &MapFields<'_>, shape: &mut FieldShape) {
    let Some(nodes) = fields.node("enum").and_then(Node::list) else { return };
    if nodes.is_empty() {
        context.error("F0806", fields.at("enum"), "no value fits: `enum` is empty", "List the values.");
        return;
    }
    let of_type = definition(shape, true);
    let mut values = Vec::new();
    for node in nodes {
        match value(&of_type, node) {
            Ok(value) => values.push(value),
            Err(problem) => {
                let message = format!("a value of `enum` does not fit the other keys: {problem}");
                context.error("F0806", node, message, "Correct the value or the type.");
            }
        }
    }
    shape.schema.insert("enum".into(), Json::Array(values));
}

/// Reads a value that is written in a project file: of a `string` as written, of other types also from text.
fn value(field: &FieldDef, node: &Node) -> Result<Json, String> {
    match (&node.value, node.text()) {
        (Value::Text(_), Some(text)) => field.parse(text),
        (_, Some(text)) if field.kind == ValueKind::String => field.parse(text),
        _ => {
            let value = node.json();
            field.check(&value).map(|()| value)
        }
    }
}

/// Reads the inputs of a mission.
pub(super) fn inputs(context: &mut LoadContext<'_>, node: Option<&Node>) -> IndexMap<Arc<str>, InputDef> {
    let mut inputs = IndexMap::new();
    for NamedNode { name, at, node } in named(context, node, "an input") {
        if context.identifier(name, at, "an input")
            && let Some(input) = input(context, name, at, node)
        {
            inputs.insert(name.into(), input);
        }
    }
    inputs
}

fn input(context: &mut LoadContext<'_>, name: &str, at: &Node, node: &Node) -> Option<InputDef> {
    if let Some(shape) = short(context, node) {
        let shape = shape?;
        return Some(checked_input(context, name, at, &shape, None));
    }
    let fields = context.fields(node, &INPUT)?;
    let mut shape = block(context, &fields)?;
    shape.protected |= fields.flag("protected");
    Some(checked_input(context, name, at, &shape, Some(&fields)))
}

fn checked_input(
    context: &mut LoadContext<'_>,
    name: &str,
    at: &Node,
    shape: &FieldShape,
    fields: Option<&MapFields<'_>>,
) -> InputDef {
    let has = |key: &str| fields.is_some_and(|fields| fields.has(key));
    let of_key = |key: &str| fields.filter(|fields| fields.has(key)).map_or(at, |fields| fields.at(key));
    let written_default = fields.and_then(|fields| fields.node("default").map(|node| (node, fields.at("default"))));
    if shape.kind == ValueKind::File && (shape.protected || written_default.is_some() || shape.default.is_some()) {
        let (code, key, what) = match shape.protected {
            true => ("F0808", "protected", "be protected: agents read it"),
            false => ("F0807", "default", "have a default: each run names its own"),
        };
        let message = format!("the input `{name}` is a file, which cannot {what}");
        context.error(code, of_key(key), message, format!("Remove `{key}`, or write `type: string`."));
        return InputDef {
            field: definition(shape, true),
            default: None,
            protected: false,
            secret: None,
            secret_tools: None,
        };
    }
    if shape.protected {
        return protected_input(context, name, shape, fields, at);
    }
    for key in ["value", "tools"].into_iter().filter(|key| has(key)) {
        let message = format!("`{key}` of the input `{name}` has no effect, because the input is not protected");
        let help = "Write `protected: true` for a secret, or `default` for a value that a run may replace.";
        context.error("F0808", of_key(key), message, help);
    }
    let mut field = definition(shape, false);
    let default = match written_default {
        // An explicit null: the input may be left out, and then has no value.
        Some((node, _)) if node.is_null() => Some(Json::Null),
        Some((node, _)) if node.unset => Some(Json::Null),
        Some((node, _)) => match value(&field, node) {
            Ok(value) => Some(value),
            Err(problem) => {
                let message = format!("the default of the input `{name}` does not fit its type: {problem}");
                context.error("F0807", node, message, "Correct the default or the type.");
                Some(Json::Null)
            }
        },
        None => shape.default.clone().inspect(|value| {
            if let Err(problem) = field.check(value) {
                let message = format!("the default of the input `{name}` does not fit its type: {problem}");
                context.error("F0807", at, message, "Correct the default or the type.");
            }
        }),
    };
    field.required = default.is_none();
    if shape.required == Some(field.required) || shape.required.is_none() || (fields.is_none() && field.required) {
        // As written. The third argument of a short form says nothing about inputs.
    } else if field.required {
        let message = format!("a run must set the input `{name}`, because it has no `default`");
        let help = "Add a `default`, which may be `null`, or remove `required: false`.";
        context.warning("F0809", of_key("required"), message, help);
    } else {
        let message = format!("a run need not set the input `{name}`, because it has a `default`");
        context.warning("F0809", of_key("required"), message, "Remove `default` or `required`.");
    }
    InputDef { field, default, protected: false, secret: None, secret_tools: None }
}

/// A secret: its value comes from the environment, and runs do not set it.
fn protected_input(
    context: &mut LoadContext<'_>,
    name: &str,
    shape: &FieldShape,
    fields: Option<&MapFields<'_>>,
    at: &Node,
) -> InputDef {
    let variable = name.to_uppercase();
    if let Some(fields) = fields.filter(|fields| fields.has("default")) {
        let message = format!("the protected input `{name}` has a `default`, which models could see");
        context.error("F0808", fields.at("default"), message, format!("Write `value: ${{{variable}}}` instead."));
    }
    let value = fields.and_then(|fields| fields.node("value"));
    if value.is_none() && !fields.is_some_and(|fields| fields.has("value")) {
        let message = format!("the protected input `{name}` has no value");
        let help = format!("Write it as a map with `value: ${{{variable}}}`, and set that variable.");
        context.error("F0808", at, message, help);
    }
    let field = definition(shape, false);
    let secret = value.and_then(Node::text);
    if let (Some(node), Some(secret)) = (value, secret)
        && let Err(problem) = field.parse(secret)
    {
        let message = format!("the value of the protected input `{name}` does not fit its type: {problem}");
        context.error("F0807", node, message, "Correct the environment variable or the type.");
    }
    let is_short = |secret: &&str| (1..SHORTEST_SECRET).contains(&secret.trim().chars().count());
    if shape.kind == ValueKind::Boolean || secret.as_ref().is_some_and(is_short) {
        let message = format!(
            "the protected input `{name}` cannot be hidden from models: its value would be found in ordinary text"
        );
        let help = format!("Use a value of at least {SHORTEST_SECRET} characters, or an input that is not protected.");
        context.error("F0808", value.unwrap_or(at), message, help);
    }
    let secret_tools = fields.filter(|fields| fields.has("tools")).map(|fields| {
        let (http, of_servers): (Vec<Node>, Vec<Node>) = fields
            .list("tools")
            .iter()
            .cloned()
            .partition(|node| node.text().is_some_and(|tool| HTTP_TOOLS.contains(&tool)));
        let mut tools = server_tools(context, &of_servers);
        tools.extend(http.iter().filter_map(Node::text).map(Into::into));
        tools
    });
    InputDef { field, default: None, protected: true, secret: secret.map(Into::into), secret_tools }
}

impl LoadContext<'_> {
    /// Checks a name of a mission or of a part of it. `what` is its owner in messages: `a task`.
    pub(super) fn identifier(&mut self, name: &str, at: &Node, what: &str) -> bool {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_valid = |name: &str| {
            !name.is_empty() && name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        if is_valid(name) {
            return true;
        }
        let lower = name.to_lowercase().replace(|c: char| !is_part(c), "_");
        let proposal = lower.trim_matches('_');
        let help = match proposal {
            proposal if is_valid(proposal) => format!("Write `{proposal}`."),
            _ => "Use `a-z`, `0-9` and `_`, and begin with a letter.".to_owned(),
        };
        self.error("F0801", at, format!("`{name}` is not a name of {what}"), help);
        false
    }
}
