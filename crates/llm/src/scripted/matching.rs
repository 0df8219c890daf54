//! Matches rules against requests.

use std::fmt;

use indexmap::IndexMap;
use minijinja::Environment;
use serde::Deserialize;
use serde_json::Value;

use super::{
    pattern::{Captures, Pattern, Tables},
    request_facts::{RequestFacts, at},
    script::{OneOrMany, StringOrList},
};

/// The conditions of a rule as written in the script. All of them must hold.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCondition {
    purpose: Option<StringOrList>,
    user: Option<StringOrList>,
    system: Option<StringOrList>,
    assistant: Option<StringOrList>,
    tools: Option<StringOrList>,
    last_tool: Option<RawToolCondition>,
    fact: IndexMap<String, OneOrMany<Value>>,
    state: IndexMap<String, OneOrMany<Value>>,
    turn: Option<OneOrMany<u64>>,
    test: Option<String>,
    not: Option<Box<RawCondition>>,
    any: Vec<RawCondition>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawToolCondition {
    name: Option<StringOrList>,
    matches: Option<StringOrList>,
    has: IndexMap<String, OneOrMany<Value>>,
}

/// The conditions of a rule.
#[derive(Default)]
pub(super) struct RuleCondition {
    purposes: Vec<String>,
    user: Vec<Pattern>,
    system: Vec<Pattern>,
    assistant: Vec<Pattern>,
    tools: Vec<String>,
    last_tool: Option<ToolCondition>,
    fact: Vec<(String, ExpectedValues)>,
    state: Vec<(String, ExpectedValues)>,
    turns: Vec<u64>,
    test: Option<String>,
    not: Option<Box<RuleCondition>>,
    any: Vec<RuleCondition>,
    /// There are no conditions: the rule matches every request.
    matches_all: bool,
}

struct ToolCondition {
    names: Vec<String>,
    matches: Vec<Pattern>,
    has: Vec<(String, ExpectedValues)>,
}

/// The expected values: one of them must match.
struct ExpectedValues(Vec<ValueMatcher>);

enum ValueMatcher {
    Equal(Value),
    Matches(Pattern),
}

/// The captures of a rule that matches.
#[derive(Debug, Default)]
pub(super) struct RuleMatch {
    pub(super) captures: Captures,
    /// The index of the tool result that matched.
    pub(super) tool_result: Option<usize>,
}

type Patterns = Result<Vec<Pattern>, String>;

fn patterns(many: Option<StringOrList>, tables: &Tables) -> Patterns {
    many.map(OneOrMany::into_vec).unwrap_or_default().iter().map(|text| Pattern::new(text, tables)).collect()
}

fn expectations(
    raw: IndexMap<String, OneOrMany<Value>>,
    tables: &Tables,
) -> Result<Vec<(String, ExpectedValues)>, String> {
    let one = |value: Value| match value {
        Value::String(text) => Pattern::new(&text, tables).map(ValueMatcher::Matches),
        other => Ok(ValueMatcher::Equal(other)),
    };
    raw.into_iter()
        .map(|(path, expected)| {
            let all: Result<Vec<ValueMatcher>, String> = expected.into_vec().into_iter().map(one).collect();
            Ok((path, ExpectedValues(all?)))
        })
        .collect()
}

impl RuleCondition {
    pub(super) fn new(raw: RawCondition, tables: &Tables, templates: &Environment<'_>) -> Result<Self, String> {
        if let Some(test) = &raw.test {
            templates.compile_expression(test).map_err(|error| invalid("test", test, &error))?;
        }
        let last_tool = match raw.last_tool {
            Some(tool) => Some(ToolCondition {
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
            matches_all: false,
        };
        when.matches_all = when.has_no_conditions();
        Ok(when)
    }

    fn has_no_conditions(&self) -> bool {
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

    /// The captures, if the rule matches the request.
    pub(super) fn matches(&self, facts: &RequestFacts<'_>) -> Option<RuleMatch> {
        // Only rules with a condition on tool results match after a tool result; others would repeat their own call for ever.
        if !self.matches_all
            && self.last_tool.is_none()
            && !facts.new_results.is_empty()
            && !self.has_nested_tool_condition()
        {
            return None;
        }
        self.holds(facts)
    }

    fn has_nested_tool_condition(&self) -> bool {
        self.any.iter().any(|any| any.last_tool.is_some() || any.has_nested_tool_condition())
    }

    fn holds(&self, facts: &RequestFacts<'_>) -> Option<RuleMatch> {
        let mut found = RuleMatch::default();
        let purpose = facts.request.purpose.as_str();
        let simple = (self.purposes.is_empty() || self.purposes.iter().any(|known| known == purpose))
            && (self.turns.is_empty() || self.turns.contains(&facts.turns()))
            && self.tools_are_offered(facts);
        if !simple {
            return None;
        }
        if let Some(tool) = &self.last_tool {
            let (at, captures) = tool.find(facts)?;
            found.tool_result = Some(at);
            found.captures = captures;
        }
        // Cheap conditions come first.
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
            found.tool_result = found.tool_result.or(any.tool_result);
        }
        if let Some(test) = &self.test {
            let expression = facts.script.templates.compile_expression(test).ok()?;
            let value = expression.eval(super::reply::context(facts, &found)).ok()?;
            value.is_true().then_some(())?;
        }
        Some(found)
    }

    fn tools_are_offered(&self, facts: &RequestFacts<'_>) -> bool {
        self.tools.iter().all(|wanted| match wanted.as_str() {
            "none" => facts.request.tools.is_empty(),
            name => facts.request.tools.iter().any(|tool| &*tool.name == name),
        })
    }
}

/// The captures of the first pattern that matches. `Some(None)`: there are no patterns. `None`: none of them matches.
fn any_of(patterns: &[Pattern], text: &str) -> Option<Option<Captures>> {
    if patterns.is_empty() {
        return Some(None);
    }
    patterns.iter().find_map(|pattern| pattern.find(text)).map(Some)
}

impl ToolCondition {
    /// The index of the newest unanswered tool result that matches, and the captures.
    fn find(&self, facts: &RequestFacts<'_>) -> Option<(usize, Captures)> {
        facts.new_results.iter().enumerate().rev().find_map(|(position, result)| {
            let is_named = self.names.is_empty() || self.names.iter().any(|name| name == result.name);
            let mut captures = is_named.then(|| any_of(&self.matches, result.text))??.unwrap_or_default();
            let json = result.json();
            let has_all = self.has.iter().all(|(path, expected)| expected.holds(at(&json, path), &mut captures));
            has_all.then_some((position, captures))
        })
    }
}

impl ExpectedValues {
    fn holds(&self, value: Option<&Value>, captures: &mut Captures) -> bool {
        let value = value.unwrap_or(&Value::Null);
        self.0.iter().any(|one| match one {
            ValueMatcher::Equal(expected) => expected == value,
            ValueMatcher::Matches(pattern) => {
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

pub(super) fn invalid(key: &str, text: &str, error: &dyn fmt::Display) -> String {
    format!("`{key}: {text}`: {error}")
}
