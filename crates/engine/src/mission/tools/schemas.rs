//! The JSON Schemas of the tools' parameters.

use serde_json::{Map, Value as Json, json};

use super::{MissionTool, ToolContext, agents, commanders};
use crate::mission::{
    inputs,
    query::{MOST_ITEMS, OPERATORS},
    routes,
};
use crate::project::{
    field_values::{self, Extra},
    missions::RouteTarget,
};

/// The schema that a model is given: names are restricted to those that exist in the run.
pub fn schema(tool: MissionTool, cx: &ToolContext<'_>) -> Json {
    build(tool, cx, true)
}

/// The schema that arguments are checked against. Unknown names pass it: they have errors of their own.
pub(super) fn unrestricted(tool: MissionTool, cx: &ToolContext<'_>) -> Json {
    build(tool, cx, false)
}

fn build(tool: MissionTool, cx: &ToolContext<'_>, restricted: bool) -> Json {
    let unit = &cx.unit;
    let name = |names: Vec<&str>, about: &str| match restricted && !names.is_empty() {
        true => json!({"type": "string", "enum": names, "description": about}),
        false => json!({"type": "string", "description": about}),
    };
    let text = |about: &str| json!({"type": "string", "description": about});
    let index = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    let flag = |about: &str| json!({"type": "boolean", "default": false, "description": about});
    let datasets = || unit.def.datasets.keys().map(|name| &**name).collect();
    let ancestors = commanders::ancestors(unit);
    let ancestors = || ancestors.iter().map(|name| &**name).collect::<Vec<&str>>();
    match tool {
        MissionTool::GetSubtasks | MissionTool::CompleteSubtask | MissionTool::DatasetNext => object(json!({}), &[]),
        MissionTool::SetSubtasks => {
            let titles = json!({"type": "array", "minItems": 1, "maxItems": 10,
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "description": "The titles of the subtasks, in their order."});
            object(json!({"subtasks": titles}), &["subtasks"])
        }
        MissionTool::TaskComplete => task_complete(cx, restricted),
        MissionTool::SubmitOutput => {
            let output = match restricted {
                true => field_values::object_schema(&unit.task.output, Extra::Refused),
                false => json!({"type": "object"}),
            };
            object(json!({"output": output}), &["output"])
        }
        MissionTool::CallAgent => {
            let names = agents::allowed(unit).iter().map(|agent| agent.as_str()).collect();
            let properties = json!({
                "name": name(names, "The agent."),
                "task": text("A new assignment. Exactly one of `task` and `response`."),
                "response": text("The answer to the agent's question."),
            });
            object(properties, &["name"])
        }
        MissionTool::AskAgent => {
            let known = agents::known(unit);
            let names = known.iter().map(|agent| agent.as_str()).collect();
            let properties = json!({
                "agent_id": name(names, "An agent that has completed an assignment."),
                "question": text("The question; the agent answers from what it knows, without tools."),
            });
            object(properties, &["agent_id", "question"])
        }
        MissionTool::QueryTaskOutput => {
            let handed_over = cx.handed_over();
            let names = ancestors().into_iter().chain(handed_over.iter().map(|(name, ..)| &**name));
            query(name(names.collect(), "A completed task before this one."))
        }
        MissionTool::AskCommander if !cx.is_commander() => object(
            json!({"question": text("The question to the commander that gave you the assignment.")}),
            &["question"],
        ),
        MissionTool::AskCommander => {
            let properties = json!({
                "task_name": name(ancestors(), "A completed task before this one."),
                "question": text("The question."),
                "index": index("The index of the item, for tasks with a commander for each item."),
            });
            object(properties, &["task_name", "question"])
        }
        MissionTool::ListCommanderQuestions => {
            let properties = json!({
                "task_name": name(ancestors(), "A completed task before this one."),
                "iteration": index("Only the questions to the commander of this item."),
            });
            object(properties, &["task_name"])
        }
        MissionTool::GetCommanderAnswer => {
            let properties = json!({
                "task_name": name(ancestors(), "A completed task before this one."),
                "index": index("The number of the question in the list."),
                "iteration": index("The same as for the list."),
            });
            object(properties, &["task_name", "index"])
        }
        MissionTool::SetDataset => {
            let properties = json!({
                "name": name(datasets(), "The dataset."),
                "items": {"type": "array", "items": {"type": "object"}, "description": "The items."},
                "append": flag("Adds the items to those that are there."),
            });
            let required = ["name", "items"];
            match restricted {
                true => object(properties, &required),
                // Items that are no objects have an error of their own, with the number of the item.
                false => object(with(properties, "items", json!({"type": "array"})), &required),
            }
        }
        MissionTool::DatasetSample => {
            let properties = json!({
                "name": name(datasets(), "The dataset."),
                "count": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5, "description": "How many items."},
                "seed": index("The same seed draws the same items."),
            });
            object(properties, &["name"])
        }
        MissionTool::DatasetCount => object(json!({"name": name(datasets(), "The dataset.")}), &["name"]),
        MissionTool::ResultToDataset => {
            let properties = json!({
                "id": text("The id of a stored result that is a list."),
                "dataset_name": name(datasets(), "The dataset."),
                "append": flag("Adds the items to those that are there."),
            });
            object(properties, &["id", "dataset_name"])
        }
        MissionTool::Ask => {
            let properties = json!({
                "question": text("The question."),
                "short_summary": {"type": "string", "maxLength": 80, "description": "The question in a few words."},
                "additional_context": text("What the person should know, in Markdown."),
                "choices": {"type": "array", "maxItems": 24, "items": {"type": "string"}, "description": "Answers to choose from."},
                "multi_select": flag("Whether several choices may be taken."),
                "timeout_seconds": {"type": "integer", "minimum": 1, "description": "How long to wait, if the mission does not declare it; without it, as long as it takes."},
                "default": text("The answer that counts if nobody answers in time. Only with a time limit, and only if the mission does not declare what holds then."),
            });
            object(properties, &["question"])
        }
    }
}

fn object(properties: Json, required: &[&str]) -> Json {
    let mut schema = json!({"type": "object", "properties": properties});
    if let Some(schema) = schema.as_object_mut() {
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        schema.insert("additionalProperties".into(), json!(false));
    }
    schema
}

fn with(mut properties: Json, name: &str, value: Json) -> Json {
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(name.into(), value);
    }
    properties
}

fn task_complete(cx: &ToolContext<'_>, restricted: bool) -> Json {
    let task = cx.unit.task;
    let mut properties = json!({
        "summary": {"type": "string", "description": "Findings and results, for the tasks that follow."},
        "succeed": {"type": "boolean", "default": true, "description": "Whether the task succeeded."},
        "reason": {"type": "string", "description": "Why it did not succeed."},
        "questions": {"type": "array", "maxItems": 10, "items": {"type": "string"},
            "description": "With `succeed: false`: questions that people must answer before the task can go on. It does not fail then."},
    });
    let mut keys: Vec<String> = routes::offered(task).map(|route| routes::key(task, &route.target)).collect();
    if !keys.is_empty() {
        keys.push(routes::NONE.into());
        let about = "The route to take.";
        let route = match restricted {
            true => json!({"type": "string", "enum": keys, "description": about}),
            false => json!({"type": "string", "description": about}),
        };
        properties = with(properties, "route", route);
    }
    let mut of_missions = Map::new();
    let mut has_missions = false;
    for route in routes::routes(task) {
        let RouteTarget::Mission(name, _) = &route.target else { continue };
        let Some(mission) = cx.missions.mission(name) else { continue };
        for (name, input) in mission.inputs.iter().filter(|(_, input)| !input.protected) {
            has_missions = true;
            // Texts with the same content are accepted too; two missions may use one name for different types.
            let need = if inputs::is_required(input) { "required" } else { "optional" };
            let about = format!("{}, {need}. {}", inputs::kind_name(input.field.kind), input.field.description);
            of_missions.entry(name.to_string()).or_insert_with(|| json!({"description": about.trim()}));
        }
    }
    // Without any input the parameter is accepted all the same, and unknown names are reported.
    if has_missions || routes::routes(task).iter().any(|route| matches!(route.target, RouteTarget::Mission(..))) {
        let inputs = match restricted {
            true => object(Json::Object(of_missions), &[]),
            false => json!({"type": "object"}),
        };
        properties = with(properties, "mission_inputs", inputs);
    }
    object(properties, &[])
}

fn query(task: Json) -> Json {
    let operations = ["count", "sum", "avg", "min", "max", "distinct", "group_by"];
    let group_operations = ["count", "sum", "avg", "min", "max"];
    let filter = object(
        json!({
            "field": {"type": "string", "description": "`index`, `item_id`, `status` or a field of the output; dots for nested ones."},
            "op": {"type": "string", "enum": OPERATORS},
            "value": {"description": "The value to compare with; a list for `in` and `nin`."},
        }),
        &["field", "op"],
    );
    let aggregate = object(
        json!({
            "op": {"type": "string", "enum": operations},
            "field": {"type": "string"},
            "group_by": {"type": "string"},
            "group_op": {"type": "string", "enum": group_operations},
        }),
        &["op"],
    );
    let properties = json!({
        "task": task,
        "filters": {"type": "array", "items": filter, "description": "All of them must hold."},
        "item_ids": {"type": "array", "items": {"type": "string"}, "description": "Only these items."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS, "default": 20},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
        "order_by": {"type": "string"},
        "desc": {"type": "boolean", "default": false},
        "aggregate": aggregate,
        "format": {"type": "string", "enum": ["json", "text"], "default": "json"},
    });
    object(properties, &["task"])
}
