//! The variables of a prompt template that the project supplies, as the templates of all Rasa command generators use them.

use minijinja::{Value, context};
use segue_engine::{
    ids::AgentName,
    project::{Collect, Flow},
    template::{ZonedTime, from_json},
};

use super::{
    context::{GeneratorContext, allowed_values},
    state,
};

/// The variables of the template. A slot without a value is the string `undefined`, as in Rasa.
pub(super) fn variables(context: &GeneratorContext<'_>, now: Option<&ZonedTime>) -> Value {
    let agent = |name: &AgentName| context! { name => name.as_str(), description => context.agent_description(name) };
    let current = context.current_flow();
    let flow_slots: Vec<Value> = current
        .and_then(|id| context.project.flow(id.as_str()))
        .map(|flow| context.collects(flow, |collect| context.is_extractable(collect)))
        .unwrap_or_default()
        .into_iter()
        .map(|collect| slot_values(context, collect, true))
        .collect();
    let open_question = context.open_question;
    let kind = open_question
        .and_then(|open_question| context.project.slot(open_question.slot.as_str()))
        .map(|slot| &slot.kind);
    let description = open_question
        .and_then(|open_question| open_question.collect)
        .and_then(|collect| collect.description.as_deref());
    context! {
        available_flows => context.shown.iter().map(|flow| flow_values(context, flow, &agent)).collect::<Vec<_>>(),
        current_conversation => state::history(context),
        flow_slots,
        current_flow => current.map(|id| id.as_str()),
        current_slot => open_question.map(|open_question| open_question.slot.as_str()),
        current_slot_description => description,
        current_slot_type => kind.map(|kind| kind.name()),
        current_slot_allowed_values => kind.and_then(allowed_values).map(|values| from_json(&values.into())),
        user_message => state::one_line(context.message()),
        is_repeat_command_enabled => true,
        active_agent => context.active_agent().map(agent),
        completed_agents => context.completed_agents().map(agent).collect::<Vec<_>>(),
        current_datetime => now.map(ZonedTime::to_value),
    }
}

fn flow_values<'a>(context: &GeneratorContext<'a>, flow: &'a Flow, agent: &dyn Fn(&AgentName) -> Value) -> Value {
    let collects = context.collects(flow, |collect| context.is_extractable(collect));
    let slots: Vec<Value> = collects.into_iter().map(|collect| slot_values(context, collect, false)).collect();
    let (name, description) = (flow.id.as_str(), &*flow.description);
    let agents = context.agents_of(flow);
    if agents.is_empty() {
        return context! { name, description, slots };
    }
    context! { name, description, slots, agent_info => agents.into_iter().map(agent).collect::<Vec<_>>() }
}

fn slot_values(context: &GeneratorContext<'_>, collect: &Collect, with_value: bool) -> Value {
    let name = collect.slot.as_str();
    let kind = context.project.slot(name).map(|slot| &slot.kind);
    let description = collect.description.as_deref();
    let allowed_values = kind.and_then(allowed_values).map(|values| from_json(&values.into()));
    if !with_value {
        return context! { name, description, allowed_values };
    }
    let value = match context.value(name) {
        serde_json::Value::Null => Value::from("undefined"),
        value => from_json(value),
    };
    context! { name, description, allowed_values, value, type => kind.map(|kind| kind.name()) }
}
