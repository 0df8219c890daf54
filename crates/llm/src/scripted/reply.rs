//! What a rule answers.

use std::{cell::OnceCell, collections::BTreeMap};

use minijinja::{Environment, value::Serde};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    facts::Facts,
    matching::{Found, wrong},
    script::{Fail, Pace, Texts},
};
use crate::{LlmError, LlmErrorKind, retry::random};

/// A line of an answer: a text, or a text with a condition.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawLine {
    Text(String),
    If(RawIf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawIf {
    line: String,
    #[serde(rename = "if")]
    test: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCall {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default, rename = "if")]
    test: Option<String>,
}

/// A text with templates in it.
pub(super) enum Template {
    /// As it stands.
    Plain(String),
    /// One expression and nothing else: keeps its type within arguments.
    Expression(String),
    /// The name of a template.
    Named(String),
}

impl Template {
    pub(super) fn new(text: String, rule: usize, templates: &mut Environment<'static>) -> Result<Self, String> {
        if !text.contains("{{") && !text.contains("{%") && !text.contains("{#") {
            return Ok(Self::Plain(text));
        }
        let inside = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(expression) = inside.filter(|inside| !inside.contains("{{") && !inside.contains("}}")) {
            templates.compile_expression(expression).map_err(|error| wrong("template", &text, &error))?;
            return Ok(Self::Expression(expression.to_owned()));
        }
        let name = format!("{rule}.{}", templates.templates().count());
        templates.add_template_owned(name.clone(), text.clone()).map_err(|error| wrong("template", &text, &error))?;
        Ok(Self::Named(name))
    }

    fn value(&self, facts: &Facts<'_>, context: &View<'_, '_>) -> Result<minijinja::Value, minijinja::Error> {
        match self {
            Self::Plain(text) => Ok(text.as_str().into()),
            Self::Expression(expression) => facts.script.templates.compile_expression(expression)?.eval(context.get()),
            Self::Named(name) => Ok(facts.script.templates.get_template(name)?.render(context.get())?.into()),
        }
    }

    fn text(&self, facts: &Facts<'_>, context: &View<'_, '_>) -> Result<String, minijinja::Error> {
        let value = self.value(facts, context)?;
        Ok(if value.is_undefined() || value.is_none() { String::new() } else { value.to_string() })
    }
}

/// The answer of a rule, before the request is known.
#[derive(Default)]
pub(super) struct RawReply {
    say: Vec<Template>,
    lines: Vec<(Template, Option<Template>)>,
    calls: Vec<Call>,
    pub(super) pace: Option<Pace>,
    pub(super) fail: Option<Fail>,
    pub(super) cut_by_length: bool,
}

struct Call {
    name: Template,
    arguments: Tree,
    test: Option<Template>,
}

/// Arguments with templates at their leaves.
enum Tree {
    Leaf(Template),
    Fixed(Value),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// An answer.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) calls: Vec<(String, Value)>,
    pub(super) pace: Pace,
    pub(super) fail: Option<Fail>,
    pub(super) cut_by_length: bool,
}

impl RawReply {
    pub(super) fn new(
        say: Vec<String>,
        lines: Vec<RawLine>,
        calls: Vec<RawCall>,
        texts: &mut Texts<'_>,
    ) -> Result<Self, String> {
        let mut reply = Self::default();
        for text in say {
            reply.say.push(texts.add(text)?);
        }
        for line in lines {
            reply.lines.push(match line {
                RawLine::Text(text) => (texts.add(text)?, None),
                RawLine::If(RawIf { line, test }) => (texts.add(line)?, Some(condition(test, texts)?)),
            });
        }
        for call in calls {
            reply.calls.push(Call {
                name: texts.add(call.name)?,
                arguments: Tree::new(Value::Object(call.arguments), texts)?,
                test: call.test.map(|test| condition(test, texts)).transpose()?,
            });
        }
        Ok(reply)
    }

    /// Whether the rule answers nothing at all.
    pub(super) fn is_silent(&self) -> bool {
        self.say.is_empty() && self.lines.is_empty() && self.calls.is_empty() && self.fail.is_none()
    }

    /// The answer to one request.
    ///
    /// # Errors
    /// [`LlmErrorKind::Unscripted`] when a template fails, with its reason for operators.
    pub(super) fn render(&self, facts: &Facts<'_>, found: &Found, pace: Pace) -> Result<Reply, LlmError> {
        self.rendered(facts, found, pace).map_err(|error| LlmError::new(LlmErrorKind::Unscripted).because(error))
    }

    fn rendered(&self, facts: &Facts<'_>, found: &Found, pace: Pace) -> Result<Reply, minijinja::Error> {
        let context = View { facts, found, made: OnceCell::new() };
        let holds = |test: &Option<Template>| match test {
            Some(test) => Ok(test.value(facts, &context)?.is_true()),
            None => Ok::<bool, minijinja::Error>(true),
        };
        let mut texts = Vec::new();
        if let Some(one) = choose(&self.say, &facts.user) {
            texts.push(one.text(facts, &context)?);
        }
        for (line, test) in &self.lines {
            if holds(test)? {
                texts.push(line.text(facts, &context)?.trim().to_owned());
            }
        }
        texts.retain(|text| !text.trim().is_empty());
        let mut calls = Vec::new();
        for call in &self.calls {
            if holds(&call.test)? {
                calls.push((call.name.text(facts, &context)?, call.arguments.value(facts, &context)?));
            }
        }
        Ok(Reply {
            text: texts.join("\n").trim_end().to_owned(),
            calls,
            pace: self.pace.unwrap_or(pace),
            fail: self.fail.clone(),
            cut_by_length: self.cut_by_length,
        })
    }
}

/// What the templates of one answer see; made when the first needs it.
struct View<'a, 'f> {
    facts: &'a Facts<'f>,
    found: &'a Found,
    made: OnceCell<minijinja::Value>,
}

impl View<'_, '_> {
    fn get(&self) -> &minijinja::Value {
        self.made.get_or_init(|| context(self.facts, self.found))
    }
}

fn condition(test: String, texts: &mut Texts<'_>) -> Result<Template, String> {
    texts.add(format!("{{{{{test}}}}}"))
}

impl Tree {
    fn new(value: Value, texts: &mut Texts<'_>) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Leaf(texts.add(text)?),
            Value::Array(list) => {
                Self::List(list.into_iter().map(|item| Self::new(item, texts)).collect::<Result<_, _>>()?)
            }
            Value::Object(object) => Self::Object(
                object
                    .into_iter()
                    .map(|(key, item)| Ok((key, Self::new(item, texts)?)))
                    .collect::<Result<_, String>>()?,
            ),
            other => Self::Fixed(other),
        })
    }

    fn value(&self, facts: &Facts<'_>, context: &View<'_, '_>) -> Result<Value, minijinja::Error> {
        Ok(match self {
            Self::Leaf(template) => serde_json::to_value(template.value(facts, context)?).unwrap_or(Value::Null),
            Self::Fixed(value) => value.clone(),
            Self::List(list) => {
                Value::Array(list.iter().map(|item| item.value(facts, context)).collect::<Result<_, _>>()?)
            }
            Self::Object(object) => {
                let mut out = Map::new();
                for (key, item) in object {
                    let value = item.value(facts, context)?;
                    // An expression that yields nothing leaves its argument out.
                    if !(matches!(item, Self::Leaf(Template::Expression(_))) && value.is_null()) {
                        out.insert(key.clone(), value);
                    }
                }
                Value::Object(out)
            }
        })
    }
}

/// What templates see. Names of our own win over names of `let`, these over names of captures.
pub(super) fn context(facts: &Facts<'_>, found: &Found) -> minijinja::Value {
    let mut all: BTreeMap<&str, minijinja::Value> =
        found.captures.named.iter().map(|(name, text)| (name.as_str(), text.as_str().into())).collect();
    all.extend(named(facts).iter().map(|(name, value)| (*name, value.clone())));
    all.extend(given(facts, found));
    minijinja::Value::from_pairs(all)
}

/// The values of `let`, worked out once for a request. One that cannot be worked out is empty.
fn named<'f>(facts: &'f Facts<'_>) -> &'f [(&'f str, minijinja::Value)] {
    facts.named.get_or_init(|| {
        let mut seen: BTreeMap<&str, minijinja::Value> = given(facts, &Found::default()).into_iter().collect();
        let mut named = Vec::with_capacity(facts.script.names.len());
        for (name, expression) in &facts.script.names {
            let view = minijinja::Value::from_pairs(seen.iter().map(|(name, value)| (*name, value.clone())));
            let value =
                facts.script.templates.compile_expression(expression).and_then(|expression| expression.eval(view));
            let value = value.unwrap_or_default();
            seen.insert(name, value.clone());
            named.push((name.as_str(), value));
        }
        named
    })
}

/// What every rule sees of a request.
fn given<'f>(facts: &'f Facts<'_>, found: &Found) -> Vec<(&'f str, minijinja::Value)> {
    let outcome = found.outcome.or(facts.fresh.len().checked_sub(1)).and_then(|at| facts.fresh.get(at));
    let offered: Vec<&str> = facts.request.tools.iter().map(|tool| &*tool.name).collect();
    vec![
        ("user", facts.user.as_str().into()),
        ("m", Serde(&found.captures.numbered).into()),
        ("fact", Serde(facts.all_read()).into()),
        ("state", Serde(facts.state()).into()),
        ("tool", outcome.map(|outcome| minijinja::Value::from(Serde(outcome.json()))).into()),
        ("tool_name", outcome.map(|outcome| outcome.name).into()),
        ("tool_text", outcome.map(|outcome| outcome.text).into()),
        ("results", Serde(facts.results()).into()),
        ("data", facts.script.data.clone()),
        ("purpose", facts.request.purpose.as_str().into()),
        ("turn", facts.turns().into()),
        ("offered", Serde(offered).into()),
    ]
}

fn choose<'a, T>(all: &'a [T], text: &str) -> Option<&'a T> {
    all.get(luck(text, all.len()))
}

/// A number below `many` that depends on `text` alone: the same words get the same alternative.
fn luck(text: &str, many: usize) -> usize {
    let seed = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    usize::try_from(random(seed, 0) % many.max(1) as u64).unwrap_or(0)
}

/// Filter `pick`: one of a list, chosen by a text; the same text picks the same.
pub(super) fn pick(list: Vec<minijinja::Value>, by: String) -> minijinja::Value {
    choose(&list, &by).cloned().unwrap_or_default()
}
