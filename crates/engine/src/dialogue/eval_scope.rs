//! The scope of conditions and templates: slots, and `context`, which is the frame on top.

use std::{borrow::Cow, cell::OnceCell};

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::{
    condition::{Condition, Evaluation, Scope},
    conversation::{Conversation, Frame, FrameKind, PatternFrame},
    project::Project,
    template::{Template, ValueLookup, from_json},
};

/// The values that conditions and templates can use. The context is built on first use.
pub(super) struct EvalScope<'a> {
    pub(super) project: &'a Project,
    pub(super) conversation: &'a Conversation,
    frames: &'a [Frame],
    context: OnceCell<Option<Json>>,
}

impl<'a> EvalScope<'a> {
    /// A scope with this stack instead of the conversation's.
    pub(super) fn new(project: &'a Project, conversation: &'a Conversation, frames: &'a [Frame]) -> Self {
        Self { project, conversation, frames, context: OnceCell::new() }
    }

    /// Evaluates a condition.
    pub(super) fn eval(&self, condition: &Condition) -> Evaluation {
        condition.eval(self)
    }

    /// Renders the templated name of an action step.
    pub(super) fn name(&self, template: &Template) -> Result<String, String> {
        template.render(self.variables(template, &Map::new())).map_err(|error| error.to_string())
    }

    /// The variables of a Jinja template: `slots`, `context` and the arguments. `slots` is converted only for a
    /// template that names it.
    pub(super) fn variables(&self, template: &Template, arguments: &Map<String, Json>) -> Value {
        let mut pairs: Vec<(&str, Value)> = Vec::with_capacity(2 + arguments.len());
        if template.source().text().contains("slots") {
            let slots = self.project.domain.slots.keys().map(|name| {
                let value = self.slot(name.as_str()).map_or(Value::from(()), from_json);
                (name.as_str(), value)
            });
            pairs.push(("slots", Value::from_pairs(slots)));
        }
        // Slots are also available by their bare names, which older projects use; `slots` and `context` have priority.
        let text = template.source().text();
        let bare = self.project.domain.slots.keys().map(|name| name.as_str()).filter(|name| text.contains(*name));
        for name in bare.filter(|name| !["slots", "context"].contains(name)) {
            pairs.push((name, self.slot(name).map_or(Value::from(()), from_json)));
        }
        pairs.push(("context", self.context().map_or_else(empty_map, from_json)));
        pairs.extend(arguments.iter().map(|(name, value)| (name.as_str(), from_json(value))));
        Value::from_pairs(pairs)
    }
}

impl Scope for EvalScope<'_> {
    fn slot(&self, name: &str) -> Option<&Json> {
        self.conversation.set_value(name).filter(|_| self.project.slot(name).is_some()).or_else(|| {
            let slot = self.project.slot(name)?;
            Some(&slot.initial)
        })
    }
    fn slot_count(&self) -> usize {
        self.project.domain.slots.len()
    }
    fn context(&self) -> Option<&Json> {
        self.context.get_or_init(|| context_json(self.frames)).as_ref()
    }
}

fn empty_map() -> Value {
    Value::from_pairs(std::iter::empty::<(&str, Value)>())
}

/// Values of `{name}` in texts.
pub(super) struct ResponseValues<'a> {
    /// First priority.
    pub(super) arguments: &'a Map<String, Json>,
    /// Second priority: the slots.
    pub(super) view: &'a EvalScope<'a>,
}

impl ValueLookup for ResponseValues<'_> {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.arguments.get(name).or_else(|| self.view.slot(name)).map(Cow::Borrowed)
    }
}

/// The `context` of the frame on top as JSON. A collect step of a pattern also sees the context of the pattern below;
/// its own keys have priority.
pub(super) fn context_json(frames: &[Frame]) -> Option<Json> {
    let (top, below) = frames.split_last()?;
    let mut facts = frame_context(top);
    if let (FrameKind::Pattern { context: PatternFrame::CollectInformation { .. } }, Some(asker)) =
        (&top.kind, below.last())
        && asker.is_pattern()
    {
        for (key, value) in frame_context(asker) {
            facts.entry(key).or_insert(value);
        }
    }
    Some(Json::Object(facts))
}

/// The context of one frame.
pub(super) fn frame_context(frame: &Frame) -> Map<String, Json> {
    let mut facts = match &frame.kind {
        FrameKind::Pattern { context } => match serde_json::to_value(context) {
            Ok(Json::Object(mut facts)) => {
                facts.remove("pattern");
                facts
            }
            _ => Map::new(),
        },
        FrameKind::Agent(agent) => Map::from_iter([("agent_id".to_owned(), agent.agent_id.as_str().into())]),
        FrameKind::Flow { .. } => Map::new(),
    };
    if let Some(error) = &frame.error {
        facts.insert("error".into(), serde_json::to_value(error).unwrap_or_default());
    }
    facts.insert("flow_id".into(), frame.flow_id.as_str().into());
    facts.insert("frame_id".into(), frame.frame_id.as_str().into());
    facts
}
