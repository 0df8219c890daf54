//! Missions from YAML, in a short form without checks.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use segue_engine::{
    finding::SourceLocation,
    ids::AgentName,
    project::{
        BudgetLimits,
        missions::{
            BudgetDef, CommanderDef, ConcurrencyDef, DatasetDef, FieldDef, HandOver, InputDef, IteratorDef, MissionDef,
            NextTasks, OnBreach, OnExhausted, OnIterationError, QuestionsDef, RepeatDef, RouteDef, RouteTarget,
            StorageDef, TaskDef, ValueKind,
        },
    },
    template::{Expression, TemplateEngine, TemplateSource, UndefinedMode},
};
use serde_json::{Map, Value as Json, json};

pub(crate) fn mission(yaml: &str) -> MissionDef {
    from_json(&serde_yaml::from_str(yaml).unwrap())
}

pub(crate) fn from_json(json: &Json) -> MissionDef {
    let text = |value: &Json| -> Arc<str> { value.as_str().unwrap_or_default().into() };
    let engine = TemplateEngine::new();
    MissionDef {
        name: text(&json["name"]),
        title: None,
        description: text(&json["description"]),
        directive: "".into(),
        commander: CommanderDef { plan_required: json["plan"] == "required", ..CommanderDef::default() },
        agents: names(&json["agents"]).iter().map(|name| AgentName::new(name.clone())).collect(),
        local_agents: IndexMap::new(),
        inputs: entries(&json["inputs"]).map(|(name, input)| (name.into(), input_def(input))).collect(),
        datasets: entries(&json["datasets"]).map(|(name, dataset)| (name.into(), dataset_def(dataset))).collect(),
        storage: StorageDef::default(),
        budget: budget(&json["budget"]),
        concurrency: ConcurrencyDef {
            max_tasks: number(&json["max_tasks"], 8),
            key: json["key"].as_str().map(|key| {
                let source = TemplateSource::from_project_file("missions/m.yml", key);
                engine.compile(&source, UndefinedMode::Strict).unwrap()
            }),
            ..ConcurrencyDef::default()
        },
        tasks: entries(&json["tasks"]).map(|(name, task)| (name.into(), task_def(name, task, &engine))).collect(),
        place: place(),
    }
}

fn task_def(name: &str, json: &Json, engine: &TemplateEngine) -> TaskDef {
    let objective = json["objective"].as_str().unwrap_or("Do it");
    let source = TemplateSource::from_project_file("missions/m.yml", objective);
    TaskDef {
        name: name.into(),
        title: None,
        always: json["always"] == true,
        objective: engine.compile(&source, UndefinedMode::Strict).unwrap(),
        agents: names(&json["agents"]).iter().map(|name| AgentName::new(name.clone())).collect(),
        depends_on: names(&json["depends_on"]),
        next: match (&json["send_to"], &json["router"]) {
            (Json::Null, Json::Null) => NextTasks::None,
            (Json::Null, routes) => {
                NextTasks::Router(routes.as_array().unwrap().iter().map(|route| route_def(route, engine)).collect())
            }
            (targets, _) => NextTasks::SendTo(names(targets)),
        },
        iterator: json["iterator"].is_object().then(|| iterator(&json["iterator"])),
        questions: QuestionsDef {
            timeout_seconds: json["questions"]["timeout_seconds"].as_u64(),
            default: json["questions"]["default"].as_str().map(Arc::from),
            agents: names(&json["questions"]["agents"]).iter().map(|name| AgentName::new(name.clone())).collect(),
        },
        repeat: json["repeat"].is_object().then(|| repeat(&json["repeat"], engine)),
        output: fields(&json["output"]),
        budget: budget(&json["budget"]),
        place: place(),
    }
}

fn repeat(json: &Json, engine: &TemplateEngine) -> RepeatDef {
    let on_exhausted = if json["on_exhausted"] == "continue" { OnExhausted::Continue } else { OnExhausted::Fail };
    let until = expression(json["until"].as_str().unwrap(), engine);
    RepeatDef { until, max: number(&json["max"], 3), on_exhausted }
}

fn expression(text: &str, engine: &TemplateEngine) -> Expression {
    engine.compile_expression(&TemplateSource::from_project_file("missions/m.yml", text)).unwrap()
}

fn route_def(json: &Json, engine: &TemplateEngine) -> RouteDef {
    let to = json["to"].as_str().unwrap();
    let target = match to.strip_prefix("mission:") {
        None => RouteTarget::Task(to.into()),
        Some(mission) => match mission.split_once('#') {
            None => RouteTarget::Mission(mission.into(), None),
            Some((mission, entry)) => RouteTarget::Mission(mission.into(), Some(entry.into())),
        },
    };
    let condition = json["if"].as_str().map(|condition| expression(condition, engine));
    let hands = |word: &str| names(&json["hand_over"]).iter().any(|name| &**name == word);
    RouteDef {
        target,
        when: json["when"].as_str().map(Arc::from),
        condition,
        no_answer: json["no_answer"] == true,
        hand_over: HandOver { summaries: hands("summaries"), outputs: hands("outputs") },
        place: place(),
    }
}

fn iterator(json: &Json) -> IteratorDef {
    IteratorDef {
        dataset: json["dataset"].as_str().unwrap().into(),
        parallel: json["parallel"] == true,
        concurrency_limit: number(&json["limit"], 5),
        start_delay: Duration::from_millis(json["start_delay"].as_u64().unwrap_or(0)),
        smoke_test: json["smoketest"] == true,
        max_retries: number(&json["max_retries"], 0),
        retry_delay: Duration::from_millis(json["retry_delay"].as_u64().unwrap_or(0)),
        retry_after_writes: json["retry"] == "also_after_writes",
        on_error: match json["on_error"].as_str() {
            None | Some("fail_fast") => OnIterationError::FailFast,
            Some("finish_then_fail") => OnIterationError::FinishThenFail,
            Some("continue") => OnIterationError::Continue,
            Some(other) => panic!("{other}"),
        },
        min_success: json["min_success"].as_f64().unwrap_or(0.0),
        share_learnings: json["learnings"] == "share",
        fresh_session: json["session"] == "fresh",
    }
}

fn input_def(json: &Json) -> InputDef {
    let default = json.get("default").cloned();
    let required = default.is_none() && json["required"] != false;
    InputDef {
        field: FieldDef { required, ..field(json) },
        default,
        protected: json["protected"] == true,
        secret: json["protected"].as_bool().map(|_| "s3cret".into()),
        secret_tools: None,
    }
}

fn dataset_def(json: &Json) -> DatasetDef {
    DatasetDef {
        description: "".into(),
        schema: fields(&json["schema"]),
        items: json["items"].as_array().cloned(),
        bind_to: json["bind_to"].as_str().map(Arc::from),
        place: place(),
    }
}

pub(crate) fn fields(json: &Json) -> IndexMap<Arc<str>, FieldDef> {
    entries(json).map(|(name, json)| (name.into(), field(json))).collect()
}

fn field(json: &Json) -> FieldDef {
    let written = json["type"].as_str().or(json.as_str()).unwrap_or("any");
    let (kind, name) = match written {
        "string" => (ValueKind::String, "string"),
        "number" => (ValueKind::Number, "number"),
        "integer" => (ValueKind::Integer, "integer"),
        "boolean" => (ValueKind::Boolean, "boolean"),
        "list" => (ValueKind::List, "array"),
        "object" => (ValueKind::Object, "object"),
        "map" => (ValueKind::Map, "object"),
        "file" => (ValueKind::File, "string"),
        _ => (ValueKind::Any, ""),
    };
    let mut schema = Map::new();
    if !name.is_empty() {
        schema.insert("type".into(), json!(name));
    }
    for key in ["enum", "pattern", "minimum", "maximum", "items", "properties"] {
        if let Some(value) = json.get(key) {
            schema.insert(key.into(), value.clone());
        }
    }
    FieldDef {
        kind,
        description: json["description"].as_str().unwrap_or_default().into(),
        required: json["required"] == true,
        schema: Arc::new(Json::Object(schema)),
    }
}

fn budget(json: &Json) -> Option<BudgetDef> {
    json.as_object()?;
    Some(BudgetDef {
        limits: BudgetLimits {
            tokens: json["tokens"].as_u64(),
            cost: json["cost"].as_f64(),
            warn_at: json["warn_at"].as_f64().or(Some(0.8)),
        },
        on_breach: match json["on_breach"].as_str() {
            Some("finish_turn") => OnBreach::FinishTurn,
            Some("ask") => OnBreach::Ask,
            _ => OnBreach::Fail,
        },
    })
}

fn entries(json: &Json) -> impl Iterator<Item = (&str, &Json)> {
    json.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn names(json: &Json) -> Vec<Arc<str>> {
    json.as_array().into_iter().flatten().map(|name| name.as_str().unwrap().into()).collect()
}

fn number(json: &Json, default: u32) -> u32 {
    json.as_u64().map_or(default, |number| u32::try_from(number).unwrap())
}

fn place() -> SourceLocation {
    SourceLocation { file: "missions/m.yml".into(), line: 1, column: 1, width: 1 }
}
