//! Reading maps by their tables: everything wrong with a map is found at once, with its place.

use std::{sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::{
    Sources,
    schema::{Key, MapSchema, Support, UnknownKeys, ValueType},
    uses::{ConditionUse, Role, SlotAssignment, Use, Used},
    yaml::{Entry, Node, Value},
};
use crate::{
    condition::Condition,
    finding::{Findings, SourceLocation, did_you_mean},
    ids::ActionName,
    template::{Expression, Template, TemplateEngine, TemplateError, TemplateSource, UndefinedMode},
};

/// What a load carries from file to file.
pub(crate) struct Reader<'a> {
    /// The file that is read now.
    pub(crate) file: Arc<str>,
    /// Whether it is one of the built-in patterns.
    pub(crate) builtin: bool,
    /// What was found.
    pub(crate) findings: Findings,
    /// Names that must exist somewhere; checked when everything is read.
    pub(crate) uses: Vec<Use>,
    /// Conditions, checked when all slots are known.
    pub(crate) conditions: Vec<ConditionUse>,
    /// The response that is read now.
    pub(crate) response: Arc<str>,
    /// Values that steps and buttons give to slots.
    pub(crate) fills: Vec<SlotAssignment>,
    /// Actions as the author lists them, with their places.
    pub(crate) listed: Vec<(ActionName, SourceLocation)>,
    /// Compiles templates.
    pub(crate) engine: TemplateEngine,
    /// Everything that was handed in.
    pub(crate) sources: &'a Sources,
}

/// The pairs of one map that are of the right type.
pub(crate) struct Fields<'n> {
    /// The map itself.
    pub(crate) node: &'n Node,
    schema: &'static MapSchema,
    good: Vec<&'n Entry>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Self {
        Self {
            file: "".into(),
            builtin: false,
            findings: Findings::default(),
            uses: Vec::new(),
            conditions: Vec::new(),
            response: "".into(),
            fills: Vec::new(),
            listed: Vec::new(),
            engine: TemplateEngine::new(),
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

    /// The pairs of a map. Unknown, refused, missing and ill-typed keys are reported and left out.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, schema: &'static MapSchema) -> Option<Fields<'n>> {
        let Some(entries) = node.map() else {
            let message = format!("{} is a map of keys, but this is {}", schema.a(), node.kind());
            let known: Vec<&str> = schema.names().take(6).collect();
            self.error("F0108", node, message, format!("Write keys such as `{}`.", known.join("`, `")));
            return None;
        };
        let good = entries.iter().filter(|entry| self.accept(entry, schema)).collect();
        let fields = Fields { node, schema, good };
        for key in schema.keys {
            let written = key.names().find_map(|name| entries.iter().find(|entry| entry.key == name));
            if key.required && written.is_none_or(|entry| entry.node.is_null()) {
                let message = format!("the {} needs `{}`", schema.name, key.name);
                let at = written.map_or(node, |entry| &entry.at);
                self.error("F0109", at, message, format!("Add `{}: …`. {}", key.name, key.doc));
            }
            if let ValueType::Secret = key.takes {
                self.secret(&fields, key.name);
            }
        }
        for entry in &fields.good {
            let newer = schema.key(&entry.key).filter(|key| key.name != entry.key && node.get(key.name).is_some());
            if let Some(key) = newer {
                let message = format!("`{}` is the older name of `{}`, which stands here too", entry.key, key.name);
                self.warning("F0116", &entry.at, message, format!("Only `{}` counts; keep one of the two.", key.name));
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
                let message = format!("`{}` is not supported in {}", entry.key, schema.a());
                self.error("F0214", &entry.at, message, format!("{why}."));
                return false;
            }
            Support::AcceptedWithWarning(why) => {
                let message = format!("`{}` in {} is accepted, but not as you may expect", entry.key, schema.a());
                self.warning("F0116", &entry.at, message, format!("{why}."));
            }
            Support::Full | Support::Accepted(_) => {}
        }
        if entry.node.is_null() {
            return matches!(key.takes, ValueType::Any | ValueType::AnyOf(_));
        }
        self.typed(entry, key)
    }

    fn unknown(&mut self, entry: &Entry, schema: &'static MapSchema) -> bool {
        let near = did_you_mean(&entry.key, schema.names());
        let help = match near {
            Some(near) => format!("Did you mean `{near}`?"),
            None => format!("Known keys: `{}`.", schema.names().collect::<Vec<_>>().join("`, `")),
        };
        let message = format!("`{}` is not a key of {}", entry.key, schema.a());
        match schema.unknown {
            UnknownKeys::Refused => self.error("F0107", &entry.at, message, help),
            UnknownKeys::Warned => self.warning("F0107", &entry.at, message, help),
            UnknownKeys::Kept if near.is_some() => self.warning("F0107", &entry.at, message, help),
            UnknownKeys::Kept => {}
        }
        schema.unknown == UnknownKeys::Kept
    }

    fn typed(&mut self, entry: &Entry, key: &Key) -> bool {
        let node = &entry.node;
        if node.unset {
            // The variable that is missing was reported; what it will hold is not known.
            return false;
        }
        // What has no effect may be anything.
        if let Support::Accepted(_) = key.support {
            return true;
        }
        let is_text = |node: &Node| node.text().is_some();
        let right = match key.takes {
            ValueType::Text | ValueType::Secret | ValueType::Known(_) | ValueType::Condition => is_text(node),
            ValueType::Bool => node.bool().is_some(),
            ValueType::Number => node.number().is_some(),
            ValueType::Whole => node.number().is_some_and(|n| n.is_u64()),
            ValueType::Positive => node.number().and_then(|n| n.as_u64()).is_some_and(|n| n > 0),
            ValueType::Seconds => {
                node.number().and_then(|n| n.as_f64()).is_some_and(|n| n.is_finite() && n > 0.0 && n < 1e9)
            }
            ValueType::OneOf(names) => node.text().is_some_and(|text| names.contains(&text)),
            ValueType::Texts => node.list().is_some_and(|items| items.iter().all(is_text)),
            ValueType::TextOrTexts => node.list().map_or(is_text(node), |items| items.iter().all(is_text)),
            ValueType::List(_) => node.list().is_some(),
            ValueType::Map(_) | ValueType::Section(_) => node.map().is_some(),
            ValueType::AnyOf(_) | ValueType::Null | ValueType::Any => true,
        };
        if right {
            return true;
        }
        let name = &entry.key;
        if let (ValueType::OneOf(names), Some(text)) = (key.takes, node.text()) {
            let message = format!("`{text}` is not a value of `{name}`; it takes {}", key.takes.expected());
            let help = match did_you_mean(text, names.iter().copied()) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Write {}.", key.takes.expected()),
            };
            self.error("F0111", node, message, help);
            return false;
        }
        let message = format!("`{name}` takes {}, but this is {}", key.takes.expected(), said(node));
        self.error("F0108", node, message, cure(node, key));
        false
    }

    /// Notes that a name is used which must exist.
    pub(crate) fn uses(&mut self, used: Used, node: &Node) {
        if let Some(name) = node.text() {
            self.uses_name(used, name, self.place(node));
        }
    }

    /// The same for a name that is not the whole of a node.
    pub(crate) fn uses_name(&mut self, used: Used, name: &str, place: SourceLocation) {
        self.uses.push(Use { used, name: name.into(), place, builtin: self.builtin });
    }

    /// Notes a value that a slot is given.
    pub(crate) fn fills_slot(&mut self, slot: &str, value: Json, button_of: Option<Arc<str>>, node: &Node) {
        let (place, builtin) = (self.place(node), self.builtin);
        self.fills.push(SlotAssignment { slot: slot.into(), value, button_of, place, builtin });
    }

    /// A condition, either a text or a YAML boolean.
    pub(crate) fn condition(&mut self, node: &Node, role: Role) -> Option<Condition> {
        if let Value::Bool(holds) = node.value {
            let condition = Condition::constant(holds).at(self.place(node));
            self.note_condition(&condition, node, role);
            return Some(condition);
        }
        let Some(text) = node.text() else {
            let message = format!("a condition is a text, but this is {}", said(node));
            self.error(
                "F0108",
                node,
                message,
                "Write for example `slots.amount > 100`; put quotes around the whole of it.",
            );
            return None;
        };
        let is_template = ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
        let parsed =
            if is_template { Condition::from_template(self.template(node, text)?) } else { Condition::parse(text) };
        match parsed {
            Ok(condition) => {
                let condition = condition.at(self.place(node));
                self.note_condition(&condition, node, role);
                Some(condition)
            }
            Err(error) => {
                let place = node.place_at(&self.file, error.offset, 1);
                self.findings.error("F0401", &place, format!("this is not a condition: {}", error.message), error.help);
                None
            }
        }
    }

    fn note_condition(&mut self, condition: &Condition, node: &Node, role: Role) {
        let (condition, at) = (condition.clone(), node.clone());
        let (file, builtin) = (self.file.clone(), self.builtin);
        self.conditions.push(ConditionUse { condition, at, file, role, builtin });
    }

    /// A template that stands in the file that is read now.
    pub(crate) fn template(&mut self, node: &Node, text: &str) -> Option<Template> {
        let source = TemplateSource::from_project_file(self.file.clone(), text).starting_at_line(node.line);
        let compiled = self.engine.compile(&source, UndefinedMode::Lenient);
        self.compiled(compiled, "F0406", Some(node))
    }

    /// An expression that stands in the file that is read now.
    pub(crate) fn expression(&mut self, node: &Node) -> Option<Expression> {
        let text = node.text()?;
        let source = TemplateSource::from_project_file(self.file.clone(), text).starting_at_line(node.line);
        let compiled = self.engine.compile_expression(&source);
        self.compiled(compiled, "F0407", Some(node))
    }

    /// A template in a file of its own, named by `node`. Looked for from the project's folder, then beside this file.
    pub(crate) fn template_file(&mut self, node: &Node) -> Option<Template> {
        let written = node.text()?;
        let path = written.trim_start_matches("./");
        let folder = self.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let beside = format!("{folder}/{path}");
        let found = [path, beside.as_str()]
            .into_iter()
            .find_map(|path| Some((path.to_owned(), self.sources.texts.get(path)?.clone())));
        let Some((path, text)) = found else {
            let message = format!("the file `{written}` is not there");
            let near = did_you_mean(path, self.sources.texts.keys().map(String::as_str));
            let help = match near {
                Some(near) => format!("Did you mean `{near}`? Paths begin in the project's folder."),
                None => "Create it, or correct the path; paths begin in the project's folder.".to_owned(),
            };
            self.error("F0114", node, message, help);
            return None;
        };
        let source = TemplateSource::from_project_file(path, &text);
        let compiled = self.engine.compile(&source, UndefinedMode::Lenient);
        let template = self.compiled(compiled, "F0406", None)?;
        for error in self.engine.unknown_filters(&template) {
            self.findings.error("F0406", &error.place(), error.message.clone(), sentence(&error.help));
        }
        Some(template)
    }

    fn compiled<T>(&mut self, result: Result<T, TemplateError>, code: &'static str, node: Option<&Node>) -> Option<T> {
        match result {
            Ok(compiled) => Some(compiled),
            Err(error) => {
                let mut place = error.place();
                if let Some(node) = node.filter(|node| node.line == place.line) {
                    let offset = error.column.unwrap_or(1).saturating_sub(1) as usize;
                    place = node.place_at(&self.file, offset, 1);
                }
                let what = if code == "F0407" { "expression" } else { "template" };
                let message = format!("the {what} is wrong: {}", error.message);
                self.findings.error(code, &place, message, sentence(&error.help));
                None
            }
        }
    }
}

/// A sentence with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// A value, for messages to people; scalars with their text. Texts from the environment are never shown.
pub(crate) fn said(node: &Node) -> String {
    match node.text() {
        Some(_) if node.expanded => "a text from the environment".into(),
        Some(text) if text.chars().count() <= 40 => format!("{} (`{text}`)", node.kind()),
        _ => node.kind().into(),
    }
}

fn cure(node: &Node, key: &Key) -> String {
    let written = node.text().filter(|_| !node.expanded);
    match (key.takes, written) {
        (ValueType::Bool, Some(text)) if ["yes", "on", "y"].contains(&text.to_lowercase().as_str()) => {
            "Write `true`.".into()
        }
        (ValueType::Bool, Some(text)) if ["no", "off", "n"].contains(&text.to_lowercase().as_str()) => {
            "Write `false`.".into()
        }
        (ValueType::List(_) | ValueType::Texts, Some(text)) => format!("Write it as a list: `[{text}]`."),
        (ValueType::Condition | ValueType::Text | ValueType::Secret, _)
            if node.map().is_some() || node.list().is_some() =>
        {
            "Put quotes around the whole text.".into()
        }
        _ => format!("{} Write {}.", key.doc, key.takes.expected()),
    }
}

impl<'n> Fields<'n> {
    /// The pair under `key`, or under an older name of it.
    pub(crate) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.written(key, |name| self.good.iter().find(|entry| entry.key == name).copied())
    }
    fn written<T>(&self, key: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.schema.key(key) {
            Some(key) => key.names().find_map(find),
            None => find(key),
        }
    }
    /// The value under `key`, where it is of the right type.
    pub(crate) fn node(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.node)
    }
    /// The key itself, whatever its value; the map where it is absent.
    pub(crate) fn at(&self, key: &str) -> &'n Node {
        let entries = self.node.map().unwrap_or_default();
        self.written(key, |name| entries.iter().find(|entry| entry.key == name)).map_or(self.node, |entry| &entry.at)
    }
    /// Whether `key` stands there, whatever its value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.written(key, |name| self.node.get(name)).is_some()
    }
    /// A key that is not declared and looks like one that is.
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
    /// One text or several.
    pub(crate) fn texts(&self, key: &str) -> Vec<&'n Node> {
        match self.node(key) {
            Some(node) => node.list().map_or_else(|| vec![node], |items| items.iter().collect()),
            None => Vec::new(),
        }
    }
    pub(crate) fn json_map(&self, key: &str) -> Option<Map<String, Json>> {
        self.node(key).filter(|node| node.map().is_some()).map(Node::json_map)
    }
    /// All pairs of the right type as JSON, by the newest name of each key; numbers and booleans that came out of the environment
    /// become what the key takes.
    pub(crate) fn json_all(&self) -> Map<String, Json> {
        typed_map(self.schema, self.good.iter().copied())
    }
    /// The same as a type whose fields are called as the keys; none where something is missing, which was reported.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(Json::Object(self.json_all())).ok()
    }
}

fn typed_map<'n>(schema: &MapSchema, entries: impl Iterator<Item = &'n Entry>) -> Map<String, Json> {
    let mut all = Map::new();
    for entry in entries {
        match schema.key(&entry.key) {
            // Where a key is given under two names, the newest name counts.
            Some(key) if key.name != entry.key && all.contains_key(key.name) => {}
            Some(key) => drop(all.insert(key.name.to_owned(), typed_json(&entry.node, key.takes))),
            None => drop(all.insert(entry.key.clone(), entry.node.json())),
        }
    }
    all
}

fn typed_json(node: &Node, takes: ValueType) -> Json {
    let typed = match takes {
        ValueType::Number | ValueType::Whole | ValueType::Positive | ValueType::Seconds => {
            node.number().map(Json::Number)
        }
        ValueType::Bool => node.bool().map(Json::Bool),
        ValueType::Text | ValueType::Secret => node.text().map(Json::from),
        ValueType::Texts => {
            node.list().map(|items| items.iter().map(|item| typed_json(item, ValueType::Text)).collect())
        }
        ValueType::List(item) => node.list().map(|items| items.iter().map(|one| typed_json(one, *item)).collect()),
        ValueType::Section(schema) => node.map().map(|entries| typed_map(schema, entries.iter()).into()),
        _ => None,
    };
    typed.unwrap_or_else(|| node.json())
}
