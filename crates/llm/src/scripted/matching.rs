//! Whether a rule speaks to a request.

use std::fmt;

use indexmap::IndexMap;
use minijinja::Environment;
use serde::Deserialize;
use serde_json::Value;

use super::{
    facts::{Facts, at},
    pattern::{Captures, Pattern, Tables},
    script::{Many, OneOrMany},
};

/// The conditions of a rule, as written. All that are given must hold.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWhen {
    purpose: Option<Many>,
    user: Option<Many>,
    system: Option<Many>,
    assistant: Option<Many>,
    tools: Option<Many>,
    last_tool: Option<RawTool>,
    fact: IndexMap<String, OneOrMany<Value>>,
    state: IndexMap<String, OneOrMany<Value>>,
    turn: Option<OneOrMany<u64>>,
    test: Option<String>,
    not: Option<Box<RawWhen>>,
    any: Vec<RawWhen>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawTool {
    name: Option<Many>,
    matches: Option<Many>,
    has: IndexMap<String, OneOrMany<Value>>,
}

/// The conditions of a rule.
#[derive(Default)]
pub(super) struct When {
    purposes: Vec<String>,
    user: Vec<Pattern>,
    system: Vec<Pattern>,
    assistant: Vec<Pattern>,
    tools: Vec<String>,
    last_tool: Option<ToolWhen>,
    fact: Vec<(String, Expected)>,
    state: Vec<(String, Expected)>,
    turns: Vec<u64>,
    test: Option<String>,
    not: Option<Box<When>>,
    any: Vec<When>,
    /// Nothing is asked: the rule speaks to everything.
    open: bool,
}

struct ToolWhen {
    names: Vec<String>,
    matches: Vec<Pattern>,
    has: Vec<(String, Expected)>,
}

/// What a value shall be: any of these.
struct Expected(Vec<One>);

enum One {
    Equal(Value),
    Like(Pattern),
}

/// What a rule that matched found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) captures: Captures,
    /// The outcome it speaks about.
    pub(super) outcome: Option<usize>,
}

type Patterns = Result<Vec<Pattern>, String>;

fn patterns(many: Option<Many>, tables: &Tables) -> Patterns {
    many.map(OneOrMany::into_vec).unwrap_or_default().iter().map(|text| Pattern::new(text, tables)).collect()
}

fn expectations(raw: IndexMap<String, OneOrMany<Value>>, tables: &Tables) -> Result<Vec<(String, Expected)>, String> {
    let one = |value: Value| match value {
        Value::String(text) => Pattern::new(&text, tables).map(One::Like),
        other => Ok(One::Equal(other)),
    };
    raw.into_iter()
        .map(|(path, expected)| {
            let all: Result<Vec<One>, String> = expected.into_vec().into_iter().map(one).collect();
            Ok((path, Expected(all?)))
        })
        .collect()
}

impl When {
    pub(super) fn new(raw: RawWhen, tables: &Tables, templates: &Environment<'_>) -> Result<Self, String> {
        if let Some(test) = &raw.test {
            templates.compile_expression(test).map_err(|error| wrong("test", test, &error))?;
        }
        let last_tool = match raw.last_tool {
            Some(tool) => Some(ToolWhen {
                names: tool.name.map(OneOrMany::into_vec).unwrap_or_default(),
                matches: patterns(tool.matches, tables)?,
                has: expectations(tool.has, tables)?,
            }),
            None => None,
        };
        let mut when = Self {
            purposes: raw.purpose.map(OneOrMany::into_vec).unwrap_or_default(),
            user: patterns(raw.user, tables)?,
            system: patterns(raw.system, tables)?,
            assistant: patterns(raw.assistant, tables)?,
            tools: raw.tools.map(OneOrMany::into_vec).unwrap_or_default(),
            last_tool,
            fact: expectations(raw.fact, tables)?,
            state: expectations(raw.state, tables)?,
            turns: raw.turn.map(OneOrMany::into_vec).unwrap_or_default(),
            test: raw.test,
            not: raw.not.map(|not| Self::new(*not, tables, templates).map(Box::new)).transpose()?,
            any: raw.any.into_iter().map(|any| Self::new(any, tables, templates)).collect::<Result<_, _>>()?,
            open: false,
        };
        when.open = when.asks_nothing();
        Ok(when)
    }

    fn asks_nothing(&self) -> bool {
        self.purposes.is_empty()
            && self.user.is_empty()
            && self.system.is_empty()
            && self.assistant.is_empty()
            && self.tools.is_empty()
            && self.last_tool.is_none()
            && self.fact.is_empty()
            && self.state.is_empty()
            && self.turns.is_empty()
            && self.test.is_none()
            && self.not.is_none()
            && self.any.is_empty()
    }

    /// What the rule found, if it speaks to this request.
    pub(super) fn matches(&self, facts: &Facts<'_>) -> Option<Found> {
        // A rule that does not mention an outcome speaks to the user's words, or it would answer its own call for ever.
        if !self.open && self.last_tool.is_none() && !facts.fresh.is_empty() && !self.mentions_outcome() {
            return None;
        }
        self.holds(facts)
    }

    fn mentions_outcome(&self) -> bool {
        self.any.iter().any(|any| any.last_tool.is_some() || any.mentions_outcome())
    }

    fn holds(&self, facts: &Facts<'_>) -> Option<Found> {
        let mut found = Found::default();
        let purpose = facts.request.purpose.as_str();
        let simple = (self.purposes.is_empty() || self.purposes.iter().any(|known| known == purpose))
            && (self.turns.is_empty() || self.turns.contains(&facts.turns()))
            && self.offered(facts);
        if !simple {
            return None;
        }
        if let Some(tool) = &self.last_tool {
            found.outcome = Some(tool.find(facts)?);
        }
        // What costs least comes first.
        for (path, expected) in &self.state {
            expected.holds(at(facts.state(), path), &mut found.captures).then_some(())?;
        }
        for (patterns, text) in [
            (&self.system, facts.system.as_str()),
            (&self.assistant, facts.assistant),
            (&self.user, facts.user.as_str()),
        ] {
            if let Some(captures) = any_of(patterns, text)? {
                found.captures.named.extend(captures.named);
                found.captures.numbered = captures.numbered;
            }
        }
        for (name, expected) in &self.fact {
            let value = facts.read(name).map(|text| Value::String(text.to_owned()));
            expected.holds(value.as_ref(), &mut found.captures).then_some(())?;
        }
        if self.not.as_ref().is_some_and(|not| not.holds(facts).is_some()) {
            return None;
        }
        if !self.any.is_empty() {
            let any = self.any.iter().find_map(|any| any.holds(facts))?;
            found.captures.named.extend(any.captures.named);
            found.outcome = found.outcome.or(any.outcome);
        }
        if let Some(test) = &self.test {
            let expression = facts.script.templates.compile_expression(test).ok()?;
            let value = expression.eval(super::reply::context(facts, &found)).ok()?;
            value.is_true().then_some(())?;
        }
        Some(found)
    }

    fn offered(&self, facts: &Facts<'_>) -> bool {
        self.tools.iter().all(|wanted| match wanted.as_str() {
            "none" => facts.request.tools.is_empty(),
            name => facts.request.tools.iter().any(|tool| &*tool.name == name),
        })
    }
}

/// `None`: there are patterns, and none matches.
fn any_of(patterns: &[Pattern], text: &str) -> Option<Option<Captures>> {
    if patterns.is_empty() {
        return Some(None);
    }
    patterns.iter().find_map(|pattern| pattern.find(text)).map(Some)
}

impl ToolWhen {
    /// The place of the newest unanswered outcome that fits.
    fn find(&self, facts: &Facts<'_>) -> Option<usize> {
        facts.fresh.iter().rposition(|outcome| {
            (self.names.is_empty() || self.names.iter().any(|name| name == outcome.name))
                && any_of(&self.matches, outcome.text).is_some()
                && {
                    let json = outcome.json();
                    self.has.iter().all(|(path, expected)| expected.holds(at(&json, path), &mut Captures::default()))
                }
        })
    }
}

impl Expected {
    fn holds(&self, value: Option<&Value>, captures: &mut Captures) -> bool {
        let value = value.unwrap_or(&Value::Null);
        self.0.iter().any(|one| match one {
            One::Equal(expected) => expected == value,
            One::Like(pattern) => {
                let text = match value {
                    Value::Null => return false,
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                match pattern.find(&text) {
                    Some(found) => {
                        captures.named.extend(found.named);
                        true
                    }
                    None => false,
                }
            }
        })
    }
}

pub(super) fn wrong(key: &str, text: &str, error: &dyn fmt::Display) -> String {
    format!("`{key}: {text}`: {error}")
}
