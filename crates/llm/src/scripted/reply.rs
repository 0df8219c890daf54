//! The reply of a rule: its templates, and how they are rendered.

use std::{cell::OnceCell, collections::BTreeMap};

use minijinja::{Environment, value::Serde};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    matching::{RuleMatch, invalid},
    request_facts::RequestFacts,
    script::{FailureMode, StreamTiming, TemplateRegistry},
};
use crate::{LlmError, LlmErrorKind, retry::random};

/// A line of a reply: a text, or a text with a condition.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawLine {
    Text(String),
    If(RawConditionalLine),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConditionalLine {
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

/// A text that may contain template expressions.
pub(super) enum Template {
    /// A text without expressions.
    Plain(String),
    /// One expression only; its value keeps its type in arguments.
    Expression(String),
    /// Any other template, by its name in the environment.
    Named(String),
}

impl Template {
    pub(super) fn new(text: String, rule: usize, templates: &mut Environment<'static>) -> Result<Self, String> {
        if !text.contains("{{") && !text.contains("{%") && !text.contains("{#") {
            return Ok(Self::Plain(text));
        }
        let inside = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(expression) = inside.filter(|inside| !inside.contains("{{") && !inside.contains("}}")) {
            templates.compile_expression(expression).map_err(|error| invalid("template", &text, &error))?;
            return Ok(Self::Expression(expression.to_owned()));
        }
        let name = format!("{rule}.{}", templates.templates().count());
        templates.add_template_owned(name.clone(), text.clone()).map_err(|error| invalid("template", &text, &error))?;
        Ok(Self::Named(name))
    }

    fn value(
        &self,
        facts: &RequestFacts<'_>,
        context: &TemplateContext<'_, '_>,
    ) -> Result<minijinja::Value, minijinja::Error> {
        match self {
            Self::Plain(text) => Ok(text.as_str().into()),
            Self::Expression(expression) => facts.script.templates.compile_expression(expression)?.eval(context.get()),
            Self::Named(name) => Ok(facts.script.templates.get_template(name)?.render(context.get())?.into()),
        }
    }

    fn text(&self, facts: &RequestFacts<'_>, context: &TemplateContext<'_, '_>) -> Result<String, minijinja::Error> {
        let value = self.value(facts, context)?;
        Ok(if value.is_undefined() || value.is_none() { String::new() } else { value.to_string() })
    }
}

/// The reply of a rule, before it is rendered for a request.
#[derive(Default)]
pub(super) struct RawReply {
    say: Vec<Template>,
    lines: Vec<(Template, Option<Template>)>,
    calls: Vec<Call>,
    pub(super) timing: Option<StreamTiming>,
    pub(super) fail: Option<FailureMode>,
    pub(super) cut_by_length: bool,
}

struct Call {
    name: Template,
    arguments: ArgumentTemplate,
    test: Option<Template>,
}

/// Arguments of a tool call with templates at their leaves.
enum ArgumentTemplate {
    Leaf(Template),
    Fixed(Value),
    List(Vec<ArgumentTemplate>),
    Object(Vec<(String, ArgumentTemplate)>),
}

/// A rendered reply.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) calls: Vec<(String, Value)>,
    pub(super) timing: StreamTiming,
    pub(super) fail: Option<FailureMode>,
    pub(super) cut_by_length: bool,
}

impl RawReply {
    pub(super) fn new(
        say: Vec<String>,
        lines: Vec<RawLine>,
        calls: Vec<RawCall>,
        texts: &mut TemplateRegistry<'_>,
    ) -> Result<Self, String> {
        let mut reply = Self::default();
        for text in say {
            reply.say.push(texts.add(text)?);
        }
        for line in lines {
            reply.lines.push(match line {
                RawLine::Text(text) => (texts.add(text)?, None),
                RawLine::If(RawConditionalLine { line, test }) => (texts.add(line)?, Some(condition(test, texts)?)),
            });
        }
        for call in calls {
            reply.calls.push(Call {
                name: texts.add(call.name)?,
                arguments: ArgumentTemplate::new(Value::Object(call.arguments), texts)?,
                test: call.test.map(|test| condition(test, texts)).transpose()?,
            });
        }
        Ok(reply)
    }

    /// Whether the rule has no reply at all.
    pub(super) fn is_empty(&self) -> bool {
        self.say.is_empty() && self.lines.is_empty() && self.calls.is_empty() && self.fail.is_none()
    }

    /// The reply to one request.
    ///
    /// # Errors
    /// [`LlmErrorKind::NotInScript`] when a template fails; the detail has the reason.
    pub(super) fn render(
        &self,
        facts: &RequestFacts<'_>,
        found: &RuleMatch,
        timing: StreamTiming,
    ) -> Result<Reply, LlmError> {
        self.try_render(facts, found, timing)
            .map_err(|error| LlmError::new(LlmErrorKind::NotInScript).with_detail(error))
    }

    fn try_render(
        &self,
        facts: &RequestFacts<'_>,
        found: &RuleMatch,
        timing: StreamTiming,
    ) -> Result<Reply, minijinja::Error> {
        let context = TemplateContext { facts, found, value: OnceCell::new() };
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
            timing: self.timing.unwrap_or(timing),
            fail: self.fail.clone(),
            cut_by_length: self.cut_by_length,
        })
    }
}

/// The variables of the templates of one reply, computed on first use.
struct TemplateContext<'a, 'f> {
    facts: &'a RequestFacts<'f>,
    found: &'a RuleMatch,
    value: OnceCell<minijinja::Value>,
}

impl TemplateContext<'_, '_> {
    fn get(&self) -> &minijinja::Value {
        self.value.get_or_init(|| context(self.facts, self.found))
    }
}

fn condition(test: String, texts: &mut TemplateRegistry<'_>) -> Result<Template, String> {
    texts.add(format!("{{{{{test}}}}}"))
}

impl ArgumentTemplate {
    fn new(value: Value, texts: &mut TemplateRegistry<'_>) -> Result<Self, String> {
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

    fn value(&self, facts: &RequestFacts<'_>, context: &TemplateContext<'_, '_>) -> Result<Value, minijinja::Error> {
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
                    // An expression without a value omits its argument.
                    if !(matches!(item, Self::Leaf(Template::Expression(_))) && value.is_null()) {
                        out.insert(key.clone(), value);
                    }
                }
                Value::Object(out)
            }
        })
    }
}

/// The variables of templates. Built-in names override names of `let`, and these override names of captures.
pub(super) fn context(facts: &RequestFacts<'_>, found: &RuleMatch) -> minijinja::Value {
    let mut all: BTreeMap<&str, minijinja::Value> =
        found.captures.named.iter().map(|(name, text)| (name.as_str(), text.as_str().into())).collect();
    all.extend(let_values(facts).iter().map(|(name, value)| (*name, value.clone())));
    all.extend(built_in_values(facts, found));
    minijinja::Value::from_pairs(all)
}

/// The values of `let`, computed once per request. A value that cannot be computed is empty.
fn let_values<'f>(facts: &'f RequestFacts<'_>) -> &'f [(&'f str, minijinja::Value)] {
    facts.named.get_or_init(|| {
        let mut seen: BTreeMap<&str, minijinja::Value> =
            built_in_values(facts, &RuleMatch::default()).into_iter().collect();
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

/// The built-in variables.
fn built_in_values<'f>(facts: &'f RequestFacts<'_>, found: &RuleMatch) -> Vec<(&'f str, minijinja::Value)> {
    let result = found.tool_result.or(facts.new_results.len().checked_sub(1)).and_then(|at| facts.new_results.get(at));
    let offered: Vec<&str> = facts.request.tools.iter().map(|tool| &*tool.name).collect();
    vec![
        ("user", facts.user.as_str().into()),
        ("m", Serde(&found.captures.numbered).into()),
        ("fact", Serde(facts.all_read()).into()),
        ("state", Serde(facts.state()).into()),
        ("tool", result.map(|result| minijinja::Value::from(Serde(result.json()))).into()),
        ("tool_name", result.map(|result| result.name).into()),
        ("tool_text", result.map(|result| result.text).into()),
        ("results", Serde(facts.results()).into()),
        ("data", facts.script.data.clone()),
        ("purpose", facts.request.purpose.as_str().into()),
        ("turn", facts.turns().into()),
        ("offered", Serde(offered).into()),
    ]
}

fn choose<'a, T>(all: &'a [T], text: &str) -> Option<&'a T> {
    all.get(hash_index(text, all.len()))
}

/// An index below `count` that depends on `text` only, so that the same text gets the same alternative.
fn hash_index(text: &str, count: usize) -> usize {
    let seed = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    usize::try_from(random(seed, 0) % count.max(1) as u64).unwrap_or(0)
}

/// Filter `pick`: one item of a list, chosen by the hash of a text.
pub(super) fn pick(list: Vec<minijinja::Value>, by: String) -> minijinja::Value {
    choose(&list, &by).cloned().unwrap_or_default()
}
