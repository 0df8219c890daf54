//! The `slots` object of prompts: a mapping whose iteration yields slot objects. It is a view, not a copy.

use std::{borrow::Cow, cmp::Ordering, fmt, sync::Arc};

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{DynObject, Enumerator, Object, ObjectRepr, Tuple, from_args},
};
use serde_json::Value as Json;

use super::{engine::from_json, interpolate::ValueLookup};

/// Metadata of a slot for templates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotInfo {
    /// The slot's type as written in the domain: `text`, `categorical`, ….
    pub type_name: Arc<str>,
    /// The values a categorical or boolean slot may take.
    pub allowed_values: Option<Vec<Json>>,
}

/// The slots that templates see. [`ValueLookup::value`] returns a value; `None` means that the slot is not visible.
pub trait SlotsLookup: ValueLookup + Send + Sync + fmt::Debug {
    /// The names of the visible slots, in order.
    fn names(&self) -> Vec<Arc<str>>;
    /// Type and allowed values of a slot.
    fn info(&self, name: &str) -> Option<SlotInfo>;
}

/// The `slots` object: `slots.city`, `slots["city"]`, `"city" in slots`, `.get()`, `.items()`. A loop over it yields objects that print
/// as the name of the slot and have `.name`, `.value`, `.type` and `.allowed_values`.
///
/// It serves Rasa prompts that expect slot names as well as those that expect slot objects. Values are converted when they are read, so a
/// prompt that reads two of a hundred slots converts two.
#[derive(Clone, Debug)]
pub struct SlotsView(Arc<dyn SlotsLookup>);

impl SlotsView {
    /// A view over shared slots.
    pub fn new(slots: Arc<dyn SlotsLookup>) -> Self {
        Self(slots)
    }
    /// The object for a template's context.
    pub fn into_value(self) -> Value {
        Value::from_object(self)
    }

    fn read(&self, name: &str) -> Option<Value> {
        self.0.value(name).map(|value| from_json(&value))
    }
}

impl Object for SlotsView {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        // In `for s in slots: slots[s]` the key is the object that the loop yields.
        match key.downcast_object_ref::<SlotEntry>() {
            Some(entry) => self.read(&entry.name),
            None => self.read(key.as_str()?),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.read(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let entry = |name| Value::from_object(SlotEntry { name, slots: Arc::clone(&self.0) });
        Enumerator::Values(self.0.names().into_iter().map(entry).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.names().len())
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        let names = self.0.names();
        let value = |name: &str| self.read(name).unwrap_or_default();
        match method {
            "items" => from_args(args)
                .map(|()| names.iter().map(|n| Value::from(Tuple::from([Value::from(n), value(n)]))).collect()),
            "keys" => from_args(args).map(|()| names.iter().map(Value::from).collect()),
            "values" => from_args(args).map(|()| names.iter().map(|n| value(n)).collect()),
            _ => Err(Error::from(ErrorKind::UnknownMethod)), // `get` and others are in `methods.rs`
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for name in self.0.names() {
            map.entry(&Value::from(&name), &self.read(&name).unwrap_or_default());
        }
        map.finish()
    }
}

/// The object that a loop over `slots` yields.
#[derive(Debug)]
struct SlotEntry {
    name: Arc<str>,
    slots: Arc<dyn SlotsLookup>,
}

impl Object for SlotEntry {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let info = || self.slots.info(&self.name).unwrap_or_default();
        match key.as_str()? {
            "name" => Some(Value::from(&self.name)),
            "value" => Some(self.slots.value(&self.name).map_or(Value::from(()), |value| from_json(&value))),
            "type" => Some(Value::from(info().type_name)),
            "allowed_values" => Some(info().allowed_values.map_or(Value::from(()), |values| from_json(&values.into()))),
            _ => None,
        }
    }

    fn call_method(self: &Arc<Self>, state: &mut State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        // A prompt that expects names may call string methods: `slot.upper()`, `slot.replace("_", " ")`.
        Value::from(&self.name).call_method(state, method, args)
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        Some(self.name.cmp(&other.downcast_ref::<Self>()?.name))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl ValueLookup for SlotsView {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        self.0.value(name)
    }
}
