//! `slots` in prompts: a mapping that also iterates as objects, built from a view and not from a copy.

use std::{borrow::Cow, cmp::Ordering, fmt, sync::Arc};

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{DynObject, Enumerator, Object, ObjectRepr, Tuple, from_args},
};
use serde_json::Value as Json;

use super::{engine::from_json, interpolate::ValueLookup};

/// What a template may ask about a slot besides its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotInfo {
    /// The slot's type as written in the domain: `text`, `categorical`, ….
    pub type_name: Arc<str>,
    /// The values a categorical or boolean slot may take.
    pub allowed_values: Option<Vec<Json>>,
}

/// A view of slots for templates. [`ValueLookup::value`] gives the value; `None` means the slot is not shown at all.
pub trait SlotsLookup: ValueLookup + Send + Sync + fmt::Debug {
    /// The names of the slots shown, in order.
    fn names(&self) -> Vec<Arc<str>>;
    /// Type and allowed values of a slot.
    fn info(&self, name: &str) -> Option<SlotInfo>;
}

/// The object behind `slots`: `slots.city`, `slots["city"]`, `"city" in slots`, `.get()`, `.items()`; a loop over it yields
/// values that print as the slot's name and have `.name`, `.value`, `.type` and `.allowed_values`.
///
/// Both generations of prompts render with it: those that expect names and those that expect objects. Values are
/// converted when they are read, so a prompt that reads two of a hundred slots pays for two.
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
        // `for s in slots: slots[s]` looks up with what the loop yields.
        match key.downcast_object_ref::<Entry>() {
            Some(entry) => self.read(&entry.name),
            None => self.read(key.as_str()?),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.read(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let entry = |name| Value::from_object(Entry { name, slots: Arc::clone(&self.0) });
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
            _ => Err(Error::from(ErrorKind::UnknownMethod)), // `get` and the rest come from the engine's Python methods
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

/// What a loop over `slots` yields.
#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    slots: Arc<dyn SlotsLookup>,
}

impl Object for Entry {
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
        // A prompt that expects names may call methods of a text on it: `slot.upper()`, `slot.replace("_", " ")`.
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
