//! The state of a load, and typed access to maps by their schemas. All errors in a map are reported at once.

use std::{sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::{
    Sources, UnsetVariables,
    references::{ConditionReference, ConditionRole, NameReference, ReferenceKind, SlotAssignment},
    schema::{Key, MapSchema, Support, UnknownKeys, ValueType},
    yaml::{Entry, Node, Value},
};
use crate::{
    condition::Condition,
    finding::{Findings, SourceLocation, did_you_mean},
    ids::ActionName,
    template::{Expression, Template, TemplateEngine, TemplateError, TemplateSource, UndefinedMode},
};

/// The state of a load across files.
pub(crate) struct LoadContext<'a> {
    /// The path of the current file.
    pub(crate) file: Arc<str>,
    /// Whether the current file contains built-in patterns.
    pub(crate) builtin: bool,
    /// The findings so far.
    pub(crate) findings: Findings,
    /// References to names, checked after all files are loaded.
    pub(crate) references: Vec<NameReference>,
    /// Conditions, checked after all files are loaded.
    pub(crate) conditions: Vec<ConditionReference>,
    /// The name of the current response.
    pub(crate) response: Arc<str>,
    /// Values that steps and buttons assign to slots.
    pub(crate) assignments: Vec<SlotAssignment>,
    /// Actions that the domain lists, with their locations.
    pub(crate) listed_actions: Vec<(ActionName, SourceLocation)>,
    /// The engine that compiles templates.
    pub(crate) engine: TemplateEngine,
    /// The texts of files with a syntax error.
    pub(crate) unparsed: Vec<Arc<str>>,
    /// The input of the load.
    pub(crate) sources: &'a Sources,
}

/// How the reason of a key begins that works as before.
const DEPRECATED: &str = "It works but is deprecated; ";

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The valid entries of a map, with typed access.
pub(crate) struct MapFields<'n> {
    /// The map itself.
    pub(crate) node: &'n Node,
    schema: &'static MapSchema,
    valid: Vec<&'n Entry>,
}

impl<'a> LoadContext<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Self {
        Self {
            file: "".into(),
            builtin: false,
            findings: Findings::default(),
            references: Vec::new(),
            conditions: Vec::new(),
            response: "".into(),
            assignments: Vec::new(),
            listed_actions: Vec::new(),
            engine: TemplateEngine::new(),
            unparsed: Vec::new(),
            sources,
        }
    }

    pub(crate) fn place(&self, node: &Node) -> SourceLocation {
        node.place(&self.file)
    }

    pub(crate) fn error(
        &mut self,
        code: &'static str,
        node: &Node,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let place = self.place(node);
        self.findings.error(code, &place, message, help);
    }

    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        node: &Node,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let place = self.place(node);
        self.findings.warning(code, &place, message, help);
    }

    /// Checks a map by its schema. Unknown, refused, missing and ill-typed keys are reported and excluded.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, schema: &'static MapSchema) -> Option<MapFields<'n>> {
        let Some(entries) = node.map() else {
            let message = format!("{} must be a map, but this is {}", schema.name_with_article(), node.kind());
            let known: Vec<&str> = schema.names().take(6).collect();
            self.error("F0108", node, message, format!("Write keys such as `{}`.", known.join("`, `")));
            return None;
        };
        let valid = entries.iter().filter(|entry| self.accept(entry, schema)).collect();
        let fields = MapFields { node, schema, valid };
        for key in schema.keys {
            let written = key.names().find_map(|name| entries.iter().find(|entry| entry.key == name));
            if key.required && written.is_none_or(|entry| entry.node.is_null()) {
                let message = format!("the {} needs `{}`", schema.name, key.name);
                let at = written.map_or(node, |entry| &entry.at);
                self.error("F0109", at, message, format!("Add `{}: …`. {}", key.name, key.doc));
            }
            if let ValueType::Secret = key.value_type {
                self.secret(&fields, key.name);
            }
        }
        for entry in &fields.valid {
            let newer = schema.key(&entry.key).filter(|key| key.name != entry.key && node.get(key.name).is_some());
            if let Some(key) = newer {
                let message = format!("`{}` is an older name of `{}`, which is set too", entry.key, key.name);
                self.warning("F0116", &entry.at, message, format!("Only `{}` is used; remove the other.", key.name));
            }
        }
        Some(fields)
    }

    fn accept(&mut self, entry: &Entry, schema: &'static MapSchema) -> bool {
        let Some(key) = schema.key(&entry.key) else {
            return self.unknown(entry, schema);
        };
        match key.support {
            Support::Refused(why) => {
                let message = format!("`{}` is not supported in {}", entry.key, schema.name_with_article());
                self.error("F0214", &entry.at, message, format!("{why}."));
                return false;
            }
            Support::AcceptedWithWarning(why) => {
                let default =
                    key.default.filter(|default| entry.node.bool().is_some_and(|b| b.to_string() == *default));
                let name = schema.name_with_article();
                let (message, help) = match (default, why.strip_prefix(DEPRECATED)) {
                    (Some(default), _) => {
                        let message = format!("`{}: {default}` in {name} has no effect: it is the default", entry.key);
                        (message, format!("Remove `{}`.", entry.key))
                    }
                    (None, Some(instead)) => (
                        format!("`{}` in {name} works but is deprecated", entry.key),
                        format!("{}.", capitalised(instead)),
                    ),
                    (None, None) => {
                        // Rasa has no missions and no sub-agents.
                        let is_own = schema.file.starts_with("missions/") || schema.file == "subagents.yml";
                        let result = if is_own { "has no effect" } else { "does not work as in Rasa" };
                        let message = format!("`{}` in {name} is accepted but {result}", entry.key);
                        (message, format!("{why}."))
                    }
                };
                self.warning("F0116", &entry.at, message, help);
            }
            Support::Full | Support::Accepted(_) => {}
        }
        if entry.node.is_null() {
            return matches!(key.value_type, ValueType::Any | ValueType::AnyOf(_));
        }
        self.typed(entry, key)
    }

    fn unknown(&mut self, entry: &Entry, schema: &'static MapSchema) -> bool {
        let near = did_you_mean(&entry.key, schema.names());
        let help = match near {
            Some(near) => format!("Did you mean `{near}`?"),
            None => format!("Known keys: `{}`.", schema.names().collect::<Vec<_>>().join("`, `")),
        };
        let message = format!("`{}` is not a key of {}", entry.key, schema.name_with_article());
        match schema.unknown {
            UnknownKeys::Refused => self.error("F0107", &entry.at, message, help),
            UnknownKeys::IgnoredWithWarning => self.warning("F0107", &entry.at, message, help),
            UnknownKeys::Allowed if near.is_some() => self.warning("F0107", &entry.at, message, help),
            UnknownKeys::Allowed => {}
        }
        schema.unknown == UnknownKeys::Allowed
    }

    fn typed(&mut self, entry: &Entry, key: &Key) -> bool {
        let node = &entry.node;
        if node.unset {
            // The missing environment variable is already reported; the type of its value is unknown. A command that ignores such
            // variables gets a placeholder where any text is valid.
            return self.sources.unset_variables != UnsetVariables::Reported
                && matches!(key.value_type, ValueType::Text | ValueType::Secret | ValueType::OneOfUnchecked(_));
        }
        // A key without effect may have any value.
        if let Support::Accepted(_) = key.support {
            return true;
        }
        let is_text = |node: &Node| node.text().is_some();
        let right = match key.value_type {
            ValueType::Text | ValueType::Secret | ValueType::OneOfUnchecked(_) | ValueType::Condition => is_text(node),
            ValueType::Bool => node.bool().is_some(),
            ValueType::Number => node.number().is_some(),
            ValueType::Integer => node.number().is_some_and(|n| n.is_u64()),
            ValueType::PositiveInteger => node.number().and_then(|n| n.as_u64()).is_some_and(|n| n > 0),
            ValueType::Seconds => {
                node.number().and_then(|n| n.as_f64()).is_some_and(|n| n.is_finite() && n > 0.0 && n < 1e9)
            }
            ValueType::OneOf(names) => node.text().is_some_and(|text| names.contains(&text)),
            ValueType::TextList => node.list().is_some_and(|items| items.iter().all(is_text)),
            ValueType::TextOrList => node.list().map_or(is_text(node), |items| items.iter().all(is_text)),
            ValueType::List(_) => node.list().is_some(),
            ValueType::Map(_) | ValueType::Section(_) => node.map().is_some(),
            ValueType::AnyOf(_) | ValueType::Null | ValueType::Any => true,
        };
        if right {
            return true;
        }
        let name = &entry.key;
        if let (ValueType::OneOf(names), Some(text)) = (key.value_type, node.text()) {
            // A value from the environment may be a secret.
            let shown = if node.expanded { "the value from the environment".to_owned() } else { format!("`{text}`") };
            let message =
                format!("{shown} is not a valid value of `{name}`, which must be {}", key.value_type.expected());
            let near = did_you_mean(text, names.iter().copied()).filter(|_| !node.expanded);
            let help = match near {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Write {}.", key.value_type.expected()),
            };
            self.error("F0111", node, message, help);
            return false;
        }
        let expected = key.value_type.expected();
        if let (ValueType::TextList | ValueType::TextOrList, Some(items)) = (key.value_type, node.list()) {
            for (at, item) in items.iter().enumerate().filter(|(_, item)| !is_text(item)) {
                let message = format!("`{name}` must be {expected}, but its item {} is {}", at + 1, item.kind());
                self.error("F0108", item, message, "Write the item as a string, with quotes around the whole of it.");
            }
            return false;
        }
        let message = format!("`{name}` must be {expected}, but this is {}", describe(node));
        self.error("F0108", node, message, type_help(node, key));
        false
    }

    /// Records a reference to a name: the text of a node.
    pub(crate) fn reference(&mut self, kind: ReferenceKind, node: &Node) {
        if let Some(name) = node.text() {
            self.reference_name(kind, name, self.place(node));
        }
    }

    /// Records a reference to a name that is not the whole text of a node.
    pub(crate) fn reference_name(&mut self, kind: ReferenceKind, name: &str, place: SourceLocation) {
        self.references.push(NameReference { kind, name: name.into(), place, builtin: self.builtin });
    }

    /// Records a value that a step or a button assigns to a slot.
    pub(crate) fn record_assignment(&mut self, slot: &str, value: Json, button_of: Option<Arc<str>>, node: &Node) {
        let (place, builtin) = (self.place(node), self.builtin);
        self.assignments.push(SlotAssignment { slot: slot.into(), value, button_of, place, builtin });
    }

    /// Parses and records a condition: a string or a boolean.
    pub(crate) fn condition(&mut self, node: &Node, role: ConditionRole) -> Option<Condition> {
        if let Value::Bool(holds) = node.value {
            let condition = Condition::constant(holds).at(self.place(node));
            self.record_condition(&condition, node, role);
            return Some(condition);
        }
        let Some(text) = node.text() else {
            let message = format!("a condition must be a string, but this is {}", describe(node));
            self.error(
                "F0108",
                node,
                message,
                "Write for example `slots.amount > 100`, with quotes around the whole condition.",
            );
            return None;
        };
        let is_template = ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
        let parsed =
            if is_template { Condition::from_template(self.template(node, text)?) } else { Condition::parse(text) };
        match parsed {
            Ok(condition) => {
                let condition = condition.at(self.place(node));
                self.record_condition(&condition, node, role);
                Some(condition)
            }
            Err(error) => {
                let place = node.place_at(&self.file, error.offset, 1);
                self.findings.error("F0401", &place, format!("invalid condition: {}", error.message), error.help);
                None
            }
        }
    }

    fn record_condition(&mut self, condition: &Condition, node: &Node, role: ConditionRole) {
        let (condition, at) = (condition.clone(), node.clone());
        let (file, builtin) = (self.file.clone(), self.builtin);
        self.conditions.push(ConditionReference { condition, at, file, role, builtin });
    }

    /// Compiles a template in the current file.
    pub(crate) fn template(&mut self, node: &Node, text: &str) -> Option<Template> {
        let source = TemplateSource::from_project_file(self.file.clone(), text).starting_at_line(node.line);
        let compiled = self.engine.compile(&source, UndefinedMode::Lenient);
        let template = self.compiled(compiled, "F0406", Some(node))?;
        for error in self.engine.unknown_names(&template) {
            let place = self.place_of_template_error(&error, Some(node));
            self.findings.error("F0406", &place, error.message.clone(), as_sentence(&error.help));
        }
        Some(template)
    }

    /// Compiles an expression in the current file.
    pub(crate) fn expression(&mut self, node: &Node) -> Option<Expression> {
        let text = node.text()?;
        let source = TemplateSource::from_project_file(self.file.clone(), text).starting_at_line(node.line);
        let compiled = self.engine.compile_expression(&source);
        self.compiled(compiled, "F0407", Some(node))
    }

    /// Compiles a template file. Its path, the text of `node`, is relative to the project folder or to the folder of the current
    /// file.
    pub(crate) fn template_file(&mut self, node: &Node) -> Option<Template> {
        let written = node.text()?;
        let path = written.trim_start_matches("./");
        let folder = self.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let beside = format!("{folder}/{path}");
        let found = [path, beside.as_str()]
            .into_iter()
            .find_map(|path| Some((path.to_owned(), self.sources.texts.get(path)?.clone())));
        let Some((path, text)) = found else {
            let message = format!("file not found: `{written}`");
            let near = did_you_mean(path, self.sources.texts.keys().map(String::as_str));
            let help = match near {
                Some(near) => format!("Did you mean `{near}`? Paths are relative to the project folder."),
                None => "Create the file, or correct the path, which is relative to the project folder.".to_owned(),
            };
            self.error("F0114", node, message, help);
            return None;
        };
        let source = TemplateSource::from_project_file(path, &text);
        let compiled = self.engine.compile(&source, UndefinedMode::Lenient);
        let template = self.compiled(compiled, "F0406", None)?;
        for error in self.engine.unknown_names(&template) {
            self.findings.error("F0406", &error.place(), error.message.clone(), as_sentence(&error.help));
        }
        Some(template)
    }

    /// The place of an error of a template that is the text of `node`.
    fn place_of_template_error(&self, error: &TemplateError, node: Option<&Node>) -> SourceLocation {
        let place = error.place();
        let Some(node) = node.filter(|node| node.line == place.line) else { return place };
        node.place_at(&self.file, error.column.unwrap_or(1).saturating_sub(1) as usize, 1)
    }

    /// Reports an error of a template or an expression.
    pub(crate) fn compiled<T>(
        &mut self,
        result: Result<T, TemplateError>,
        code: &'static str,
        node: Option<&Node>,
    ) -> Option<T> {
        match result {
            Ok(compiled) => Some(compiled),
            Err(error) => {
                let place = self.place_of_template_error(&error, node);
                let what = if code == "F0407" { "expression" } else { "template" };
                let message = format!("invalid {what}: {}", error.message);
                self.findings.error(code, &place, message, as_sentence(&error.help));
                None
            }
        }
    }
}

/// The text with a capital letter at the start and a full stop at the end.
fn as_sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// Describes a value for a message; short scalars with their text. Values from the environment are never shown.
pub(crate) fn describe(node: &Node) -> String {
    match node.text() {
        Some(_) if node.expanded => "a string from the environment".into(),
        Some(text) if text.chars().count() <= 40 => format!("{} (`{text}`)", node.kind()),
        _ => node.kind().into(),
    }
}

fn type_help(node: &Node, key: &Key) -> String {
    let written = node.text().filter(|_| !node.expanded);
    match (key.value_type, written) {
        (ValueType::Bool, Some(text)) if ["yes", "on", "y"].contains(&text.to_lowercase().as_str()) => {
            "Write `true`.".into()
        }
        (ValueType::Bool, Some(text)) if ["no", "off", "n"].contains(&text.to_lowercase().as_str()) => {
            "Write `false`.".into()
        }
        (ValueType::List(_) | ValueType::TextList, Some(text)) => format!("Write it as a list: `[{text}]`."),
        (ValueType::Condition | ValueType::Text | ValueType::Secret, _)
            if node.map().is_some() || node.list().is_some() =>
        {
            "Put quotes around the whole value.".into()
        }
        _ => format!("{} Write {}.", key.doc, key.value_type.expected()),
    }
}

impl<'n> MapFields<'n> {
    /// The entry for `key` or one of its aliases.
    pub(crate) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.written(key, |name| self.valid.iter().find(|entry| entry.key == name).copied())
    }
    fn written<T>(&self, key: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.schema.key(key) {
            Some(key) => key.names().find_map(find),
            None => find(key),
        }
    }
    /// The value of `key`, if it is valid.
    pub(crate) fn node(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.node)
    }
    /// The key as a node, for its location, even if its value is invalid; the map if the key is absent.
    pub(crate) fn at(&self, key: &str) -> &'n Node {
        let entries = self.node.map().unwrap_or_default();
        self.written(key, |name| entries.iter().find(|entry| entry.key == name)).map_or(self.node, |entry| &entry.at)
    }
    /// Whether `key` is present, even if its value is invalid.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.written(key, |name| self.node.get(name)).is_some()
    }
    /// An unknown key that looks like a typo of a declared one.
    pub(crate) fn misspelt(&self) -> Option<String> {
        let unknown = |entry: &&Entry| self.schema.key(&entry.key).is_none();
        let near = |entry: &&Entry| did_you_mean(&entry.key, self.schema.names()).is_some();
        self.node.map().unwrap_or_default().iter().filter(unknown).find(near).map(|entry| entry.key.clone())
    }
    pub(crate) fn text(&self, key: &str) -> Option<&'n str> {
        self.node(key)?.text()
    }
    pub(crate) fn shared(&self, key: &str) -> Option<Arc<str>> {
        self.text(key).map(Into::into)
    }
    pub(crate) fn bool(&self, key: &str) -> Option<bool> {
        self.node(key)?.bool()
    }
    /// A boolean with a declared default.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let default = || self.schema.key(key).and_then(|key| key.default) == Some("true");
        self.bool(key).unwrap_or_else(default)
    }
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.node(key)?.number()?.as_f64()
    }
    pub(crate) fn whole(&self, key: &str) -> Option<u64> {
        self.node(key)?.number()?.as_u64()
    }
    pub(crate) fn seconds(&self, key: &str) -> Option<Duration> {
        Duration::try_from_secs_f64(self.number(key)?).ok()
    }
    pub(crate) fn list(&self, key: &str) -> &'n [Node] {
        self.node(key).and_then(Node::list).unwrap_or_default()
    }
    pub(crate) fn map(&self, key: &str) -> &'n [Entry] {
        self.node(key).and_then(Node::map).unwrap_or_default()
    }
    /// The items of a list, or a single value as a list.
    pub(crate) fn texts(&self, key: &str) -> Vec<&'n Node> {
        match self.node(key) {
            Some(node) => node.list().map_or_else(|| vec![node], |items| items.iter().collect()),
            None => Vec::new(),
        }
    }
    pub(crate) fn json_map(&self, key: &str) -> Option<Map<String, Json>> {
        self.node(key).filter(|node| node.map().is_some()).map(Node::json_map)
    }
    /// All valid entries as JSON, with aliases replaced by the names of the keys. Values from the environment are converted to the
    /// types of the keys.
    pub(crate) fn json_all(&self) -> Map<String, Json> {
        typed_map(self.schema, self.valid.iter().copied())
    }
    /// Deserializes the valid entries into a type with the keys as field names; `None` if a required key is missing, which is
    /// already reported.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(Json::Object(self.json_all())).ok()
    }
}

fn typed_map<'n>(schema: &MapSchema, entries: impl Iterator<Item = &'n Entry>) -> Map<String, Json> {
    let mut all = Map::new();
    for entry in entries {
        match schema.key(&entry.key) {
            // If a key is present with two names, the current name takes precedence over the alias.
            Some(key) if key.name != entry.key && all.contains_key(key.name) => {}
            Some(key) => drop(all.insert(key.name.to_owned(), typed_json(&entry.node, key.value_type))),
            None => drop(all.insert(entry.key.clone(), entry.node.json())),
        }
    }
    all
}

fn typed_json(node: &Node, value_type: ValueType) -> Json {
    let typed = match value_type {
        ValueType::Number | ValueType::Integer | ValueType::PositiveInteger | ValueType::Seconds => {
            node.number().map(Json::Number)
        }
        ValueType::Bool => node.bool().map(Json::Bool),
        ValueType::Text | ValueType::Secret => node.text().map(Json::from),
        ValueType::TextList => {
            node.list().map(|items| items.iter().map(|item| typed_json(item, ValueType::Text)).collect())
        }
        ValueType::List(item) => node.list().map(|items| items.iter().map(|one| typed_json(one, *item)).collect()),
        ValueType::Section(schema) => node.map().map(|entries| typed_map(schema, entries.iter()).into()),
        _ => None,
    };
    typed.unwrap_or_else(|| node.json())
}
