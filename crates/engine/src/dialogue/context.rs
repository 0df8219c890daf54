//! What conditions and texts may look at: slots, and the facts of the frame on top as `context`.

use std::{borrow::Cow, cell::OnceCell};

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::{
    condition::{Condition, Evaluation, Scope},
    conversation::{Conversation, Frame, FrameKind, PatternFrame},
    project::Project,
    template::{Template, ValueLookup, from_json},
};

/// Slots and context at one moment. The context is built only when somebody asks for it.
pub(super) struct View<'a> {
    pub(super) project: &'a Project,
    pub(super) conversation: &'a Conversation,
    frames: &'a [Frame],
    context: OnceCell<Option<Json>>,
}

impl<'a> View<'a> {
    /// A view with that stack in place of the conversation's.
    pub(super) fn new(project: &'a Project, conversation: &'a Conversation, frames: &'a [Frame]) -> Self {
        Self { project, conversation, frames, context: OnceCell::new() }
    }

    /// Evaluates a condition.
    pub(super) fn eval(&self, condition: &Condition) -> Evaluation {
        condition.eval(self)
    }

    /// Renders a name with `context`, as action steps of patterns write them.
    pub(super) fn name(&self, template: &Template) -> Result<String, String> {
        template.render(self.variables(template, &Map::new())).map_err(|error| error.to_string())
    }

    /// What a Jinja text sees: `slots`, `context` and the arguments. The slots are converted only for a text that names them.
    pub(super) fn variables(&self, template: &Template, arguments: &Map<String, Json>) -> Value {
        let mut pairs: Vec<(&str, Value)> = Vec::with_capacity(2 + arguments.len());
        if template.source().text().contains("slots") {
            let slots = self.project.domain.slots.keys().map(|name| {
                let value = self.slot(name.as_str()).map_or(Value::from(()), from_json);
                (name.as_str(), value)
            });
            pairs.push(("slots", Value::from_pairs(slots)));
        }
        // Slots also go by their bare names, under which older projects print them; the names of the format come first.
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

impl Scope for View<'_> {
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
        self.context.get_or_init(|| facts(self.frames)).as_ref()
    }
}

fn empty_map() -> Value {
    Value::from_pairs(std::iter::empty::<(&str, Value)>())
}

/// Values of `{name}` in texts.
pub(super) struct Names<'a> {
    /// Asked first.
    pub(super) arguments: &'a Map<String, Json>,
    /// Then the slots.
    pub(super) view: &'a View<'a>,
}

impl ValueLookup for Names<'_> {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.arguments.get(name).or_else(|| self.view.slot(name)).map(Cow::Borrowed)
    }
}

/// The frame on top as an object. A question of a pattern also shows what the pattern below knows: its own
/// keys win.
pub(super) fn facts(frames: &[Frame]) -> Option<Json> {
    let (top, below) = frames.split_last()?;
    let mut facts = facts_of(top);
    if let (FrameKind::Pattern { context: PatternFrame::CollectInformation { .. } }, Some(asker)) =
        (&top.kind, below.last())
        && asker.is_pattern()
    {
        for (key, value) in facts_of(asker) {
            facts.entry(key).or_insert(value);
        }
    }
    Some(Json::Object(facts))
}

/// What one frame knows.
pub(super) fn facts_of(frame: &Frame) -> Map<String, Json> {
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
