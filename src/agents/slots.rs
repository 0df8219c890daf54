//! The slots of one run: the values of the conversation, overridden by those that the run has recorded.

use std::{borrow::Cow, fmt, sync::Arc};

use indexmap::IndexMap;
use segue_engine::{
    condition::{Condition, Scope},
    conversation::Conversation,
    ids::SlotName,
    project::{Project, SlotDef, SlotType},
    template::{SlotInfo, SlotsLookup, ValueLookup},
};
use serde_json::{Map, Value as Json};

/// Internal slots that agents do not see.
const HIDDEN: &[&str] = &[
    "requested_slot",
    "flow_hashes",
    "session_started_metadata",
    "route_session_to_calm",
    "silence_timeout",
    "consecutive_silence_timeouts",
    "confirm_correction",
    "interrupted_flow_to_continue",
    "continue_interrupted_flow_confirmation",
    "max_clarification_options",
    "continue_conversation",
    "csat_score",
    "return_value",
];

/// The slots as one run sees them.
pub(super) struct RunSlots<'a> {
    project: &'a Arc<Project>,
    conversation: &'a Conversation,
    recorded: IndexMap<Arc<str>, Json>,
    /// The slots after a hook changed them, `None` if none did.
    view: Option<Arc<Map<String, Json>>>,
}

impl<'a> RunSlots<'a> {
    /// The slots with the values of the conversation.
    pub(super) fn new(project: &'a Arc<Project>, conversation: &'a Conversation) -> Self {
        Self { project, conversation, recorded: IndexMap::new(), view: None }
    }
    /// The same with the slots of a hook: a slot that is missing in `view` does not exist for this run.
    pub(super) fn with_view(mut self, view: Option<Arc<Map<String, Json>>>) -> Self {
        self.view = view;
        self
    }
    /// Whether the slot exists for this run.
    pub(super) fn is_visible(&self, name: &str) -> bool {
        self.view.as_ref().is_none_or(|view| view.contains_key(name))
    }
    /// Records a value for this run.
    pub(super) fn record(&mut self, name: &str, value: Json) {
        self.recorded.insert(name.into(), value);
    }
    /// What this run recorded, in order.
    pub(super) fn recorded(&self) -> &IndexMap<Arc<str>, Json> {
        &self.recorded
    }
    /// The definition of a slot.
    pub(super) fn definition(&self, name: &str) -> Option<&'a SlotDef> {
        self.project.slot(name)
    }
    /// The current value; null if there is none.
    pub(super) fn value(&self, name: &str) -> &Json {
        self.slot(name).unwrap_or(&Json::Null)
    }
    /// Whether there are conditions and all are true.
    pub(super) fn all_true(&self, conditions: &[Condition]) -> bool {
        !conditions.is_empty() && conditions.iter().all(|condition| self.is_true(condition))
    }
    /// Whether a condition is true.
    pub(super) fn is_true(&self, condition: &Condition) -> bool {
        condition.eval(self).holds
    }
    /// The names of the slots that agents may see, in the order of the domain.
    pub(super) fn visible_names(&self) -> Vec<&'a str> {
        let slots = self.project.domain.slots.iter();
        let seen = slots.filter(|(name, definition)| {
            !HIDDEN.contains(&name.as_str()) && (!definition.builtin || *name == "language")
        });
        seen.map(|(name, _)| name.as_str()).collect()
    }
    /// A snapshot for templates: every visible slot with a value, and `always` whatever their value.
    pub(super) fn snapshot(&self, always: &[Arc<str>]) -> Snapshot {
        let mut shown = Vec::new();
        for (at, (name, definition)) in self.project.domain.slots.iter().enumerate() {
            // Most slots are built in and not requested.
            let hidden = (definition.builtin && name != "language") || HIDDEN.contains(&name.as_str());
            let wanted = always.iter().any(|wanted| **wanted == *name.as_str());
            if (hidden && !wanted) || (!self.is_visible(name.as_str()) && !self.recorded.contains_key(name.as_str())) {
                continue;
            }
            let value = self.value(name.as_str());
            if wanted || !value.is_null() {
                shown.push((at, value.clone()));
            }
        }
        Snapshot { project: self.project.clone(), shown }
    }
}

impl Scope for RunSlots<'_> {
    fn slot(&self, name: &str) -> Option<&Json> {
        if let Some(view) = &self.view {
            return self.recorded.get(name).or_else(|| view.get(name)).or(Some(&Json::Null));
        }
        self.recorded
            .get(name)
            .or_else(|| self.conversation.slots.get(name))
            .or_else(|| self.project.slot(name).map(|slot| &slot.initial))
    }
    fn slot_count(&self) -> usize {
        self.project.domain.slots.len()
    }
    fn context(&self) -> Option<&Json> {
        None
    }
    fn template_variables(&self) -> minijinja::Value {
        minijinja::context! { slots => self.snapshot(&[]).into_value() }
    }
}

fn info(definition: &SlotDef) -> SlotInfo {
    let allowed_values = match &definition.kind {
        SlotType::Categorical(values) => Some(values.iter().map(|value| Json::from(&**value)).collect()),
        SlotType::Bool => Some(vec![Json::Bool(true), Json::Bool(false)]),
        _ => None,
    };
    SlotInfo { type_name: definition.kind.name().into(), allowed_values }
}

/// Slots with their values at one moment, as templates see them.
pub(super) struct Snapshot {
    project: Arc<Project>,
    /// The index of each slot in the domain, ascending, and its value.
    shown: Vec<(usize, Json)>,
}

impl Snapshot {
    fn slots(&self) -> impl Iterator<Item = (&SlotName, &Json)> {
        let name = |at: usize| self.project.domain.slots.get_index(at).map(|(name, _)| name);
        self.shown.iter().filter_map(move |(at, value)| Some((name(*at)?, value)))
    }
    /// Converts it to a map.
    pub(super) fn to_map(&self) -> Map<String, Json> {
        self.slots().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }
    /// Converts it to a template value.
    pub(super) fn into_value(self) -> minijinja::Value {
        segue_engine::template::SlotsView::new(Arc::new(self)).into_value()
    }
    /// Whether it contains no slots.
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.slots()).finish()
    }
}

impl ValueLookup for Snapshot {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        let at = self.project.domain.slots.get_index_of(name)?;
        let found = self.shown.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        self.shown.get(found).map(|(_, value)| Cow::Borrowed(value))
    }
}

impl SlotsLookup for Snapshot {
    fn names(&self) -> Vec<Arc<str>> {
        self.slots().map(|(name, _)| name.into()).collect()
    }
    fn info(&self, name: &str) -> Option<SlotInfo> {
        self.value(name)?;
        self.project.slot(name).map(info)
    }
}
