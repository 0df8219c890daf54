//! The script of a scripted model: its YAML format, and the checked form.

use std::{collections::BTreeMap, fmt, marker::PhantomData, time::Duration};

use indexmap::IndexMap;
use minijinja::{Environment, UndefinedBehavior, syntax::SyntaxConfig};
use serde::{
    Deserialize, Deserializer,
    de::{
        Error as DeError, IntoDeserializer, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::Value;

use super::{
    NO_MATCHING_RULE,
    matching::{RawCondition, RuleCondition},
    pattern::Tables,
    reply::{RawReply, Reply, Template},
    request_facts::{FactReader, RequestFacts},
};
use crate::LlmError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    #[serde(default)]
    #[allow(dead_code)] // a comment of the author
    about: Option<String>,
    #[serde(default)]
    tables: IndexMap<String, IndexMap<String, StringOrList>>,
    #[serde(default)]
    read: IndexMap<String, OneOrMany<RawFactSource>>,
    #[serde(default)]
    data: Value,
    #[serde(default, rename = "let")]
    names: IndexMap<String, String>,
    #[serde(rename = "pace", default)]
    timing: StreamTiming,
    #[serde(rename = "mischief", default)]
    faults: FaultInjection,
    rules: Vec<RawRule>,
    /// For a scripted embedding model that uses the same file.
    #[serde(default)]
    #[allow(dead_code)]
    same: serde::de::IgnoredAny,
}

/// How a fact is read from a request, as written in the script.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFactSource {
    #[serde(default)]
    pub(super) purpose: Option<StringOrList>,
    #[serde(default, rename = "match")]
    pub(super) pattern: Option<String>,
    #[serde(default)]
    pub(super) state: Option<String>,
    #[serde(default)]
    pub(super) talk: Option<String>,
    #[serde(default)]
    pub(super) since: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    when: RawCondition,
    #[serde(default)]
    say: Option<StringOrList>,
    #[serde(default)]
    lines: Vec<super::reply::RawLine>,
    #[serde(default)]
    calls: Vec<super::reply::RawCall>,
    #[serde(rename = "pace", default)]
    timing: Option<StreamTiming>,
    #[serde(default)]
    fail: Option<FailureMode>,
    #[serde(default)]
    cut_by_length: bool,
}

/// One value or a list of values.
#[derive(Clone, Debug)]
pub(super) enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}
pub(super) type StringOrList = OneOrMany<String>;

/// Unlike a derived untagged enum, this passes the errors of `T` on, with their place.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value or a list of values")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMany::Many)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::One)
    }
    fn visit_str<E: DeError>(self, value: &str) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(OneOrMany::One)
    }
    fn visit_bool<E: DeError>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(OneOrMany::One)
    }
    fn visit_i64<E: DeError>(self, value: i64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(OneOrMany::One)
    }
    fn visit_u64<E: DeError>(self, value: u64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(OneOrMany::One)
    }
    fn visit_f64<E: DeError>(self, value: f64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(OneOrMany::One)
    }
    fn visit_unit<E: DeError>(self) -> Result<Self::Value, E> {
        T::deserialize(().into_deserializer()).map(OneOrMany::One)
    }
}

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::Many(many) => many,
            Self::One(one) => vec![one],
        }
    }
}

/// When the deltas of a response are sent.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StreamTiming {
    /// Wait before the first delta.
    #[serde(deserialize_with = "duration")]
    pub(super) first: Duration,
    /// Wait between two deltas.
    #[serde(deserialize_with = "duration")]
    pub(super) every: Duration,
    /// How the text is split into deltas.
    #[serde(rename = "piece")]
    pub(super) unit: ChunkUnit,
}

/// How the text is split into deltas.
#[derive(Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChunkUnit {
    #[default]
    Word,
    Char,
    Whole,
}

/// Faults that are injected into the responses of all rules.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FaultInjection {
    /// Chunk boundaries are at random bytes.
    pub(super) split: bool,
    /// Every n-th call gets an invalid response.
    pub(super) garbage_every: Option<u64>,
}

/// A failure instead of a response.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureMode {
    /// The stream ends after this many events.
    Cut(usize),
    /// The response is invalid.
    Garbage(GarbageKind),
    /// There is never a response.
    Silence,
    /// The server returns an error status.
    #[serde(untagged)]
    Status {
        status: u16,
        #[serde(default)]
        code: String,
        #[serde(default, deserialize_with = "some_duration")]
        after: Option<Duration>,
    },
}

/// The kind of invalid response.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum GarbageKind {
    /// An HTML page.
    Page,
    /// An event that is not JSON.
    Noise,
    /// An error within the stream.
    Error,
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    let (number, millis) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(""), 1000),
    };
    let invalid = || serde::de::Error::custom(format!("`{text}` is not a duration; write it as in `300ms` or `2s`"));
    Ok(Duration::from_millis(number.trim().parse::<u64>().map_err(|_| invalid())?.saturating_mul(millis)))
}
fn some_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    duration(d).map(Some)
}

/// A checked script.
pub(super) struct Script {
    pub(super) readers: IndexMap<String, Vec<FactReader>>,
    pub(super) data: minijinja::Value,
    /// The expressions of `let`, in order.
    pub(super) names: IndexMap<String, String>,
    pub(super) faults: FaultInjection,
    pub(super) templates: Environment<'static>,
    rules: Vec<Rule>,
    timing: StreamTiming,
}

struct Rule {
    when: RuleCondition,
    reply: RawReply,
}

impl Script {
    /// `name` is the name of the file, for messages.
    pub(super) fn read(name: &str, text: &str) -> Result<Self, String> {
        // `say: yes` is a string, not a boolean.
        let options = serde_yaml::options! { strict_booleans: true, with_snippet: false };
        let raw: RawScript =
            serde_yaml::from_str_with_options(text, options).map_err(|error| yaml_error(name, &error))?;
        Self::build(raw).map_err(|problem| format!("{name}: {problem}"))
    }

    fn build(raw: RawScript) -> Result<Self, String> {
        let tables = raw
            .tables
            .into_iter()
            .map(|(name, rows)| (name, rows.into_iter().map(|(word, others)| (word, others.into_vec())).collect()));
        let tables = Tables::new(tables.collect())?;
        let mut readers = IndexMap::new();
        for (fact, sources) in raw.read {
            let sources: Result<Vec<FactReader>, String> =
                sources.into_vec().into_iter().map(|source| FactReader::new(source, &tables)).collect();
            readers.insert(fact.clone(), sources.map_err(|problem| format!("`read.{fact}`: {problem}"))?);
        }
        let mut templates = environment(&tables);
        for (name, expression) in &raw.names {
            templates.compile_expression(expression).map_err(|error| format!("`let.{name}`: {error}"))?;
        }
        let mut rules = Vec::new();
        for (place, rule) in raw.rules.into_iter().enumerate() {
            let named = |key: &str, problem: &dyn fmt::Display| match &rule.name {
                Some(name) => format!("rule `{name}`: `{key}`: {problem}"),
                None => format!("rule {}: `{key}`: {problem}", place + 1),
            };
            let when = RuleCondition::new(rule.when, &tables, &templates).map_err(|problem| named("when", &problem))?;
            let mut texts = TemplateRegistry { templates: &mut templates, prefix: place };
            let say = rule.say.map(OneOrMany::into_vec).unwrap_or_default();
            let mut reply =
                RawReply::new(say, rule.lines, rule.calls, &mut texts).map_err(|problem| named("reply", &problem))?;
            (reply.timing, reply.fail, reply.cut_by_length) = (rule.timing, rule.fail, rule.cut_by_length);
            if reply.is_empty() {
                return Err(named("say", &"the rule has no reply; give it `say`, `lines`, `calls` or `fail`"));
            }
            rules.push(Rule { when, reply });
        }
        let data = minijinja::value::Serde(&raw.data).into();
        Ok(Self { readers, data, names: raw.names, faults: raw.faults, templates, rules, timing: raw.timing })
    }

    /// The reply of the first rule that matches.
    pub(super) fn reply(&self, facts: &RequestFacts<'_>) -> Result<Reply, LlmError> {
        for rule in &self.rules {
            if let Some(found) = rule.when.matches(facts) {
                return rule.reply.render(facts, &found, self.timing);
            }
        }
        Ok(Reply { text: NO_MATCHING_RULE.into(), timing: self.timing, ..Reply::default() })
    }
}

/// Registers the templates of one rule under unique names.
pub(super) struct TemplateRegistry<'a> {
    templates: &'a mut Environment<'static>,
    prefix: usize,
}

impl TemplateRegistry<'_> {
    pub(super) fn add(&mut self, text: String) -> Result<Template, String> {
        Template::new(text, self.prefix, self.templates)
    }
}

/// The error as one line that begins with file, line and column.
fn yaml_error(name: &str, error: &serde_yaml::Error) -> String {
    let text = error.to_string().replace('\n', "; ");
    match error.location() {
        Some(at) => format!("{name}:{}:{}: {text}", at.line(), at.column()),
        None => format!("{name}: {text}"),
    }
}

fn environment(tables: &Tables) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(segue_base::limits::SCRIPT_FUEL));
    // The default delimiters are valid, so this cannot fail; without it, templates would only render more blank lines.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.add_filter("number", super::pattern::number);
    environment.add_filter("pick", super::reply::pick);
    environment.add_filter("date", super::date::date);
    let tables: BTreeMap<String, super::pattern::Table> = tables.all();
    environment.add_filter("lookup", move |text: String, table: String| match tables.get(&table) {
        Some(table) => Ok(table.canonical(&text).unwrap_or(&text).to_owned()),
        None => {
            let problem = format!("no table is named `{table}`");
            Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, problem))
        }
    });
    environment
}
