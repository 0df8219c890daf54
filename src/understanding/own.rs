//! The variables of a project's own prompt template, of all generations.

use minijinja::{Value, context};
use segue_engine::{
    ids::AgentName,
    project::{Collect, Flow},
    template::{ZonedTime, from_json},
};

use super::{
    state,
    view::{View, allowed_values},
};

/// The variables. Unset values read `undefined`, as such templates expect.
pub(super) fn variables(view: &View<'_>, now: Option<&ZonedTime>) -> Value {
    let agent = |name: &AgentName| context! { name => name.as_str(), description => view.agent_description(name) };
    let current = view.current_flow();
    let flow_slots: Vec<Value> = current
        .and_then(|id| view.project.flow(id.as_str()))
        .map(|flow| view.collects(flow, |collect| view.is_extractable(collect)))
        .unwrap_or_default()
        .into_iter()
        .map(|collect| slot(view, collect, true))
        .collect();
    let asked = view.asked;
    let kind = asked.and_then(|asked| view.project.slot(asked.slot.as_str())).map(|slot| &slot.kind);
    let description = asked.and_then(|asked| asked.collect).and_then(|collect| collect.description.as_deref());
    context! {
        available_flows => view.shown.iter().map(|flow| flow_shown(view, flow, &agent)).collect::<Vec<_>>(),
        current_conversation => state::history(view),
        flow_slots,
        current_flow => current.map(|id| id.as_str()),
        current_slot => asked.map(|asked| asked.slot.as_str()),
        current_slot_description => description,
        current_slot_type => kind.map(|kind| kind.name()),
        current_slot_allowed_values => kind.and_then(allowed_values).map(|values| from_json(&values.into())),
        user_message => state::one_line(view.message()),
        is_repeat_command_enabled => true,
        active_agent => view.active_agent().map(agent),
        completed_agents => view.completed_agents().map(agent).collect::<Vec<_>>(),
        current_datetime => now.map(ZonedTime::to_value),
    }
}

fn flow_shown<'a>(view: &View<'a>, flow: &'a Flow, agent: &dyn Fn(&AgentName) -> Value) -> Value {
    let collects = view.collects(flow, |collect| view.is_extractable(collect));
    let slots: Vec<Value> = collects.into_iter().map(|collect| slot(view, collect, false)).collect();
    let (name, description) = (flow.id.as_str(), &*flow.description);
    let agents = view.agents_of(flow);
    if agents.is_empty() {
        return context! { name, description, slots };
    }
    context! { name, description, slots, agent_info => agents.into_iter().map(agent).collect::<Vec<_>>() }
}

fn slot(view: &View<'_>, collect: &Collect, with_value: bool) -> Value {
    let name = collect.slot.as_str();
    let kind = view.project.slot(name).map(|slot| &slot.kind);
    let description = collect.description.as_deref();
    let allowed_values = kind.and_then(allowed_values).map(|values| from_json(&values.into()));
    if !with_value {
        return context! { name, description, allowed_values };
    }
    let value = match view.value(name) {
        serde_json::Value::Null => Value::from("undefined"),
        value => from_json(value),
    };
    context! { name, description, allowed_values, value, type => kind.map(|kind| kind.name()) }
}
