//! The script: as written, and as meant.

use std::{collections::BTreeMap, fmt, time::Duration};

use indexmap::IndexMap;
use minijinja::{Environment, UndefinedBehavior, syntax::SyntaxConfig};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    NO_LINE,
    facts::{Facts, Reader},
    matching::{RawWhen, When},
    pattern::Tables,
    reply::{RawReply, Reply, Template},
};
use crate::LlmError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    #[serde(default)]
    #[allow(dead_code)] // for the reader of the script
    about: Option<String>,
    #[serde(default)]
    tables: IndexMap<String, IndexMap<String, Many>>,
    #[serde(default)]
    read: IndexMap<String, OneOrMany<RawRead>>,
    #[serde(default)]
    data: Value,
    #[serde(default, rename = "let")]
    names: IndexMap<String, String>,
    #[serde(default)]
    pace: Pace,
    #[serde(default)]
    mischief: Mischief,
    rules: Vec<RawRule>,
}

/// Where a fact is read from.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRead {
    #[serde(default)]
    pub(super) purpose: Option<Many>,
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
    when: RawWhen,
    #[serde(default)]
    say: Option<Many>,
    #[serde(default)]
    lines: Vec<super::reply::RawLine>,
    #[serde(default)]
    calls: Vec<super::reply::RawCall>,
    #[serde(default)]
    pace: Option<Pace>,
    #[serde(default)]
    fail: Option<Fail>,
    #[serde(default)]
    cut_by_length: bool,
}

/// One text or several.
#[derive(Deserialize, Clone, Debug)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}
pub(super) type Many = OneOrMany<String>;

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::Many(many) => many,
            Self::One(one) => vec![one],
        }
    }
}

/// When the pieces of an answer leave.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pace {
    /// Before the first piece.
    #[serde(deserialize_with = "duration")]
    pub(super) first: Duration,
    /// Between two pieces.
    #[serde(deserialize_with = "duration")]
    pub(super) every: Duration,
    pub(super) piece: Piece,
}

/// What a piece is.
#[derive(Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Piece {
    #[default]
    Word,
    Char,
    Whole,
}

/// Seams for bad models.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mischief {
    /// The bytes are cut at random places.
    pub(super) split: bool,
    /// Every n-th call gets garbage.
    pub(super) garbage_every: Option<u64>,
}

/// A failure in place of an answer.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fail {
    /// The stream ends after this many events.
    Cut(usize),
    /// The answer is no answer.
    Garbage(Garbage),
    /// Nothing ever comes.
    Silence,
    /// The server refuses.
    #[serde(untagged)]
    Status {
        status: u16,
        #[serde(default)]
        code: String,
        #[serde(default, deserialize_with = "some_duration")]
        after: Option<Duration>,
    },
}

/// What kind of no answer.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Garbage {
    /// A page.
    Page,
    /// An event that is no JSON.
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
    let wrong = || serde::de::Error::custom(format!("`{text}` is no duration; expected as in `300ms` or `2s`"));
    Ok(Duration::from_millis(number.trim().parse::<u64>().map_err(|_| wrong())?.saturating_mul(millis)))
}
fn some_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    duration(d).map(Some)
}

/// A script, checked.
pub(super) struct Script {
    pub(super) readers: IndexMap<String, Vec<Reader>>,
    pub(super) data: minijinja::Value,
    /// Expressions over a request that rules use by name, in order.
    pub(super) names: IndexMap<String, String>,
    pub(super) mischief: Mischief,
    pub(super) templates: Environment<'static>,
    rules: Vec<Rule>,
    pace: Pace,
}

struct Rule {
    when: When,
    reply: RawReply,
}

impl Script {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        // `say: yes` is a text, not a truth value.
        let options = serde_yaml::options! { strict_booleans: true };
        let raw: RawScript = serde_yaml::from_str_with_options(text, options).map_err(|error| error.to_string())?;
        let tables = raw
            .tables
            .into_iter()
            .map(|(name, rows)| (name, rows.into_iter().map(|(word, others)| (word, others.into_vec())).collect()));
        let tables = Tables::new(tables.collect())?;
        let mut readers = IndexMap::new();
        for (fact, sources) in raw.read {
            let sources: Result<Vec<Reader>, String> =
                sources.into_vec().into_iter().map(|source| Reader::new(source, &tables)).collect();
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
            let when = When::new(rule.when, &tables, &templates).map_err(|problem| named("when", &problem))?;
            let mut texts = Texts { templates: &mut templates, prefix: place };
            let say = rule.say.map(OneOrMany::into_vec).unwrap_or_default();
            let mut reply =
                RawReply::new(say, rule.lines, rule.calls, &mut texts).map_err(|problem| named("reply", &problem))?;
            (reply.pace, reply.fail, reply.cut_by_length) = (rule.pace, rule.fail, rule.cut_by_length);
            if reply.is_silent() {
                return Err(named("say", &"the rule answers nothing; give it `say`, `lines`, `calls` or `fail`"));
            }
            rules.push(Rule { when, reply });
        }
        let data = minijinja::value::Serde(&raw.data).into();
        Ok(Self { readers, data, names: raw.names, mischief: raw.mischief, templates, rules, pace: raw.pace })
    }

    /// The answer of the first rule that matches.
    pub(super) fn answer(&self, facts: &Facts<'_>) -> Result<Reply, LlmError> {
        for rule in &self.rules {
            if let Some(found) = rule.when.matches(facts) {
                return rule.reply.render(facts, &found, self.pace);
            }
        }
        Ok(Reply { text: NO_LINE.into(), pace: self.pace, ..Reply::default() })
    }
}

/// Takes the texts of one rule as templates under names of their own.
pub(super) struct Texts<'a> {
    templates: &'a mut Environment<'static>,
    prefix: usize,
}

impl Texts<'_> {
    pub(super) fn add(&mut self, text: String) -> Result<Template, String> {
        Template::new(text, self.prefix, self.templates)
    }
}

fn environment(tables: &Tables) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(segue_base::limits::SCRIPT_FUEL));
    // The default delimiters are sound: an error here is impossible, and would only cost some blank lines.
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
