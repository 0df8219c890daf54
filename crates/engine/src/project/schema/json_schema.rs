//! JSON Schemas of the project files, generated from the key declarations. Editors use them for completion and validation.

use std::str::FromStr;

use serde_json::{Map, Value as Json, json};

use super::{
    AGENT_FILE, CONFIG, CONFTEST, CREDENTIALS, DOMAIN, ENDPOINTS, FLOW_FILE, Key, MISSION_FILE, MapSchema,
    SUBAGENTS_FILE, Support, TEST_FILE, UnknownKeys, ValueType,
};

/// The JSON Schema dialect: draft 2020-12.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// A pattern for values that contain `${NAME}`, which the loader replaces by an environment variable.
const VARIABLE: &str = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}";

/// A kind of project file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectFile {
    /// `config.yml`.
    Config,
    /// A file of the domain.
    Domain,
    /// A file with flows.
    Flows,
    /// `endpoints.yml`.
    Endpoints,
    /// `credentials.yml`.
    Credentials,
    /// `config.yml` of an agent.
    Agent,
    /// A file of a mission.
    Mission,
    /// `subagents.yml`.
    Subagents,
    /// A file of end-to-end test cases.
    TestCases,
    /// `conftest.yml`.
    Conftest,
}

impl ProjectFile {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Config,
        Self::Domain,
        Self::Flows,
        Self::Endpoints,
        Self::Credentials,
        Self::Agent,
        Self::Mission,
        Self::Subagents,
        Self::TestCases,
        Self::Conftest,
    ];

    /// Its name on the command line, as in `segue schema flows`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Domain => "domain",
            Self::Flows => "flows",
            Self::Endpoints => "endpoints",
            Self::Credentials => "credentials",
            Self::Agent => "agent",
            Self::Mission => "mission",
            Self::Subagents => "subagents",
            Self::TestCases => "cases",
            Self::Conftest => "conftest",
        }
    }

    fn root(self) -> &'static MapSchema {
        match self {
            Self::Config => &CONFIG,
            Self::Domain => &DOMAIN,
            Self::Flows => &FLOW_FILE,
            Self::Endpoints => &ENDPOINTS,
            Self::Credentials => &CREDENTIALS,
            Self::Agent => &AGENT_FILE,
            Self::Mission => &MISSION_FILE,
            Self::Subagents => &SUBAGENTS_FILE,
            Self::TestCases => &TEST_FILE,
            Self::Conftest => &CONFTEST,
        }
    }

    /// Whether the loader replaces `${NAME}` in such a file by an environment variable.
    fn reads_environment(self) -> bool {
        matches!(
            self,
            Self::Config | Self::Endpoints | Self::Credentials | Self::Agent | Self::Mission | Self::Subagents
        )
    }
}

impl FromStr for ProjectFile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let names = || Self::ALL.map(Self::name).join("`, `");
        let found = Self::ALL.into_iter().find(|file| file.name() == name);
        found.ok_or_else(|| format!("there is no schema `{name}`; the schemas are `{}`", names()))
    }
}

/// The JSON Schema (draft 2020-12) of a kind of project file.
///
/// It allows what the loader accepts without a finding about keys and types. Everything else, such as whether names exist, is
/// checked only by `segue check`.
pub fn json_schema(file: ProjectFile) -> Json {
    let mut writer = Writer { environment: file.reads_environment(), maps: Map::new() };
    let root = file.root();
    let mut schema = Map::new();
    schema.insert("$schema".into(), DIALECT.into());
    schema.insert("title".into(), format!("{} ({})", root.name, root.file).into());
    schema.extend(writer.map(root));
    // An empty file is valid unless a key is required.
    if !root.keys.iter().any(|key| key.required) {
        schema.insert("type".into(), json!(["object", "null"]));
    }
    if !writer.maps.is_empty() {
        schema.insert("$defs".into(), Json::Object(writer.maps));
    }
    Json::Object(schema)
}

/// Adds a keyword to a schema, which is always an object.
fn annotate(schema: &mut Json, keyword: &str, value: Json) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(keyword.to_owned(), value);
    }
}

/// The name of a map schema under `$defs`.
fn reference_name(schema: &MapSchema) -> String {
    let words = schema.name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

struct Writer {
    /// Whether a value may be `${NAME}`.
    environment: bool,
    /// The map schemas referenced so far, by their name under `$defs`.
    maps: Map<String, Json>,
}

impl Writer {
    fn map(&mut self, schema: &'static MapSchema) -> Map<String, Json> {
        let mut properties = Map::new();
        for key in schema.keys.iter().filter(|key| !matches!(key.support, Support::Refused(_))) {
            properties.insert(key.name.to_owned(), self.property(key));
            for alias in key.aliases {
                let mut property = self.value(key.value_type, !key.required);
                annotate(&mut property, "description", format!("Older name of `{}`. {}", key.name, key.doc).into());
                annotate(&mut property, "deprecated", true.into());
                properties.insert((*alias).to_owned(), property);
            }
        }
        let mut map = Map::new();
        map.insert("type".into(), "object".into());
        map.insert("properties".into(), Json::Object(properties));
        let required = schema.keys.iter().filter(|key| key.required && key.aliases.is_empty());
        let required: Vec<&str> = required.map(|key| key.name).collect();
        if !required.is_empty() {
            map.insert("required".into(), required.into());
        }
        if schema.unknown != UnknownKeys::Allowed {
            map.insert("additionalProperties".into(), false.into());
        }
        map
    }

    fn property(&mut self, key: &'static Key) -> Json {
        let mut property = self.value(key.value_type, !key.required);
        if matches!(key.support, Support::Accepted(_)) && property != json!({}) {
            property = json!({"anyOf": [property, {}]});
        }
        let description = match key.support {
            Support::AcceptedWithWarning(reason) | Support::Accepted(reason) if !reason.is_empty() => {
                format!("{} {reason}.", key.doc).into()
            }
            _ => key.doc.into(),
        };
        annotate(&mut property, "description", description);
        if let Some(default) = key.default {
            annotate(&mut property, "default", key.value_type.parse(default));
        }
        if matches!(key.support, Support::AcceptedWithWarning(_)) {
            annotate(&mut property, "deprecated", true.into());
        }
        property
    }

    /// The schema of a value. A key whose value is null counts as absent.
    fn value(&mut self, value_type: ValueType, or_null: bool) -> Json {
        let mut forms = self.forms(value_type);
        if or_null && !forms.contains(&json!({})) {
            forms.push(json!({"type": "null"}));
        }
        match forms.as_mut_slice() {
            [only] => only.take(),
            _ => json!({"anyOf": forms}),
        }
    }

    /// The schemas of the alternatives of a type. An empty schema allows any value.
    fn forms(&mut self, value_type: ValueType) -> Vec<Json> {
        let variable = || json!({"type": "string", "pattern": VARIABLE});
        let form = match value_type {
            ValueType::Text | ValueType::Condition => return vec![text()],
            ValueType::Secret => return vec![variable()],
            ValueType::TextList => return vec![list(text())],
            ValueType::TextOrList => return vec![text(), list(text())],
            ValueType::List(item) => return vec![list(self.value(*item, false))],
            ValueType::Map(value) => {
                return vec![json!({"type": "object", "additionalProperties": self.value(*value, false)})];
            }
            ValueType::Section(schema) => return vec![self.section(schema)],
            ValueType::AnyOf(all) => return all.iter().flat_map(|form| self.forms(*form)).collect(),
            ValueType::Null => return vec![json!({"type": "null"})],
            ValueType::Any => return vec![json!({})],
            ValueType::Bool => json!({"type": "boolean"}),
            ValueType::Number => json!({"type": "number"}),
            ValueType::Integer => json!({"type": "integer", "minimum": 0}),
            ValueType::PositiveInteger => json!({"type": "integer", "minimum": 1}),
            ValueType::Seconds => json!({"type": "number", "exclusiveMinimum": 0}),
            ValueType::OneOf(names) | ValueType::OneOfUnchecked(names) => json!({"enum": enum_values(names)}),
        };
        // Any other type may be written as `${NAME}`, which is a string.
        if self.environment { vec![form, variable()] } else { vec![form] }
    }

    fn section(&mut self, schema: &'static MapSchema) -> Json {
        let name = reference_name(schema);
        if !self.maps.contains_key(&name) {
            // Registered before its keys are visited, because a map may contain itself.
            self.maps.insert(name.clone(), Json::Null);
            let map = self.map(schema);
            self.maps.insert(name.clone(), Json::Object(map));
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }
}

impl ValueType {
    /// A default, which is declared as text, as a JSON value of this type.
    fn parse(self, text: &str) -> Json {
        match self {
            Self::Bool | Self::Condition | Self::Number | Self::Integer | Self::PositiveInteger | Self::Seconds => {
                serde_json::from_str(text).unwrap_or_else(|_| text.into())
            }
            _ => text.into(),
        }
    }
}

/// The values of an enumeration. One that looks like a number may be written without quotes.
fn enum_values(names: &[&str]) -> Vec<Json> {
    let numbers = names.iter().filter_map(|name| Some(Json::Number(serde_json::from_str(name).ok()?)));
    names.iter().map(|name| Json::from(*name)).chain(numbers).collect()
}

/// A string. The loader also accepts a number or a boolean without quotes and reads the characters that were written.
fn text() -> Json {
    json!({"type": ["string", "number", "boolean"]})
}

fn list(item: Json) -> Json {
    json!({"type": "array", "items": item})
}

#[cfg(test)]
pub(crate) mod tests;
