//! Reads the tasks of a mission: objectives, routes and iterations.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;

use super::{
    super::{
        AgentDef, MISSION_TOOLS,
        check::mission::TaskPlaces,
        load_context::{LoadContext, MapFields, describe},
        missions::{
            FieldDef, HandOver, InputDef, IteratorDef, MissionDef, NextTasks, OnExhausted, OnIterationError,
            QuestionsDef, RepeatDef, RouteDef, RouteTarget, TaskDef,
        },
        schema::{ITERATOR, QUESTIONS, REPEAT, ROUTE, TASK, TASK_ROUTER},
        yaml::{Node, Value},
    },
    fields::{self, NamedNode},
    missions::{agent_names, agents_are_known, budget, clamped, plain},
    storage,
};
use crate::{
    finding::did_you_mean,
    ids::AgentName,
    limits::{MISSION_PARALLEL, MISSION_RETRIES, MISSION_ROUNDS},
    template::{Expression, Template, TemplateSource, UndefinedMode},
};

/// Keys of an iterator that fit only parallel iterations.
const PARALLEL: [&str; 9] = [
    "concurrency_limit",
    "start_delay",
    "smoketest",
    "max_retries",
    "retry",
    "retry_delay",
    "on_error",
    "min_success",
    "learnings",
];

/// Reads the tasks into the mission. Returns the locations of the names of other tasks.
pub(super) fn read(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    mission: &mut MissionDef,
    agents: &IndexMap<AgentName, Arc<AgentDef>>,
) -> TaskPlaces {
    let mut places = TaskPlaces::default();
    let tasks = fields::named(context, fields.node("tasks"), "a task");
    if tasks.is_empty() && fields.node("tasks").is_some_and(|node| node.map().is_some() || node.list().is_some()) {
        let help = "Add a task with an `objective`.";
        context.error("F0804", fields.at("tasks"), "the mission has no tasks", help);
    }
    for NamedNode { name, at, node } in tasks {
        context.identifier(name, at, "a task");
        if name == "none" {
            let help = "Choose another name: models answer `none` to take no route.";
            context.error("F0801", at, "`none` is not a name of a task", help);
        }
        let Some(fields) = context.fields(node, &TASK) else { continue };
        let Some(task) = task(context, &fields, (name, at), (mission, agents), &mut places) else { continue };
        agents_are_known(context, &fields, &mission.local_agents, agents);
        // An invalid list is reported already.
        let is_valid = !fields.has("agents") || fields.node("agents").is_some();
        if task.agents.is_empty() && mission.agents.is_empty() && is_valid {
            let message = format!("the task `{name}` has no agents, so its commander could do nothing");
            let help = "Add `agents: […]` to the task or to the mission.";
            context.error("F0821", at, message, help);
        }
        storage::packets(context, &fields, "packets", &mut mission.storage);
        mission.tasks.insert(task.name.clone(), task);
    }
    places
}

fn task(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    (name, at): (&str, &Node),
    (mission, known): (&MissionDef, &IndexMap<AgentName, Arc<AgentDef>>),
    places: &mut TaskPlaces,
) -> Option<TaskDef> {
    let agents = agent_names(fields);
    let callable = if agents.is_empty() { &mission.agents } else { &agents };
    let iterator = fields.node("iterator").and_then(|node| iterator(context, node, mission));
    let objective = fields.node("objective").and_then(|node| objective(context, node, mission, iterator.as_ref()));
    let output = fields::fields(context, fields.node("output"));
    let mut names = |key: &'static str| -> Vec<Arc<str>> {
        let nodes = fields.texts(key).into_iter().filter_map(|node| Some((node, plain(node.text()?, "tasks."))));
        let found: Vec<(&Node, &str)> = nodes.collect();
        found.iter().for_each(|(node, target)| places.add(name, key, target, context.place(node)));
        found.into_iter().map(|(_, target)| target.into()).collect()
    };
    let (depends_on, send_to) = (names("depends_on"), names("send_to"));
    let readable = Readable { output: &output, iterated: fields.has("iterator"), mission };
    let routes = fields.node("router").map(|node| router(context, node, readable));
    let questions =
        fields.node("questions").and_then(|node| questions(context, node, callable, known)).unwrap_or_default();
    let repeat = fields.node("repeat").and_then(|node| repeat(context, node, readable));
    if let (Some(_), true) = (&routes, fields.has("send_to")) {
        let message = format!("the task `{name}` has both `router` and `send_to`");
        let help = "Remove one: `router` takes one of its routes, `send_to` starts all of its tasks.";
        context.error("F0839", fields.at("send_to"), message, help);
    }
    let next = match routes {
        Some(routes) => NextTasks::Router(routes),
        None if send_to.is_empty() => NextTasks::None,
        None => NextTasks::SendTo(send_to),
    };
    let budget = budget(context, fields);
    if let (Some(own), Some(all)) = (&budget, &mission.budget) {
        let is_above = own.limits.tokens.zip(all.limits.tokens).is_some_and(|(own, all)| own > all)
            || own.limits.cost.zip(all.limits.cost).is_some_and(|(own, all)| own > all);
        if is_above {
            let message = format!("the budget of the task `{name}` is larger than that of the mission");
            let help = "The run ends when the budget of the mission is used up; lower this one.";
            context.warning("F0811", fields.at("budget"), message, help);
        }
    }
    let objective = objective.or_else(|| empty_template(context))?;
    let place = context.place(at);
    let (title, always) = (fields.shared("title"), fields.flag("always"));
    for key in ["depends_on", "router", "send_to", "iterator", "repeat"] {
        if always && fields.has(key) {
            let message = format!("a task with `always` runs when all others have ended, so it cannot have `{key}`");
            context.error("F0848", fields.at(key), message, format!("Remove `{key}`, or `always`."));
        }
    }
    let name = name.into();
    Some(TaskDef {
        name,
        title,
        always,
        objective,
        agents,
        depends_on,
        next,
        iterator,
        questions,
        repeat,
        output,
        budget,
        place,
    })
}

/// Reads `questions`. `callable`: the agents of the task; `known`: those of the project.
fn questions(
    context: &mut LoadContext<'_>,
    node: &Node,
    callable: &[AgentName],
    known: &IndexMap<AgentName, Arc<AgentDef>>,
) -> Option<QuestionsDef> {
    let fields = context.fields(node, &QUESTIONS)?;
    for node in fields.list("agents") {
        let name = plain(node.text().unwrap_or_default(), "agents.");
        if !callable.iter().any(|agent| agent.as_str() == name) {
            let help = match did_you_mean(name, callable.iter().map(AgentName::as_str)) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => "Name agents of the task; commanders may ask people anyway.".to_owned(),
            };
            context.error("F0849", node, format!("the task has no agent `{name}` that could ask people"), help);
        } else if known.get(name).is_some_and(|agent| agent.remote.is_some()) {
            let message = format!("`{name}` is a remote agent, which cannot ask people");
            context.error("F0849", node, message, "Remove it: its questions go to the commander.");
        }
    }
    if fields.has("default") && !fields.has("timeout_seconds") {
        let message = "`default` has no effect without `timeout_seconds`, unless a question sets a time limit itself";
        context.warning("F0846", fields.at("default"), message, "Add `timeout_seconds`.");
    }
    Some(QuestionsDef {
        timeout_seconds: fields.whole("timeout_seconds"),
        default: fields.shared("default"),
        agents: agent_names(&fields),
    })
}

/// Reads `repeat`. A condition that reads nothing is always the same, so that further rounds are of no use.
fn repeat(context: &mut LoadContext<'_>, node: &Node, readable: Readable<'_>) -> Option<RepeatDef> {
    let fields = context.fields(node, &REPEAT)?;
    let written = fields.node("until")?;
    let until = condition(context, written, readable)?;
    let reads = context.engine.expression_variables(&until);
    if reads.iter().all(|name| name.split('.').next() == Some("inputs")) {
        let message = "`until` reads neither `output` nor `summary`, so it is the same after each round";
        context.error("F0844", written, message, "Write for example `until: output.passed`.");
    }
    Some(RepeatDef {
        until,
        max: clamped(context, &fields, "max", 3, 1, MISSION_ROUNDS),
        on_exhausted: match fields.text("on_exhausted") {
            Some("continue") => OnExhausted::Continue,
            _ => OnExhausted::Fail,
        },
    })
}

/// In place of an objective with an error, so that the checks of the graph see the task.
fn empty_template(context: &LoadContext<'_>) -> Option<Template> {
    let source = TemplateSource::from_project_file(context.file.clone(), "");
    context.engine.compile(&source, UndefinedMode::Strict).ok()
}

/// Compiles an objective and checks what it reads.
fn objective(
    context: &mut LoadContext<'_>,
    node: &Node,
    mission: &MissionDef,
    iterator: Option<&IteratorDef>,
) -> Option<Template> {
    let text = node.text()?;
    if text.trim().is_empty() {
        context.error("F0109", node, "the objective is empty", "Write what the task must achieve.");
    }
    foreign_values(context, node, text, mission);
    let template = strict_template(context, node)?;
    for name in context.engine.variables(&template) {
        let mut parts = name.split('.');
        match (parts.next().unwrap_or_default(), parts.next()) {
            ("inputs", Some(input)) => input_is_readable(context, node, &name, input, &mission.inputs, "an objective"),
            ("inputs", None) => {}
            ("item", field) => item_is_readable(context, node, &name, field, mission, iterator),
            (root, _) => {
                let message = format!("the objective reads `{name}`, but only `inputs` and `item` exist");
                let help = match did_you_mean(root, ["inputs", "item"]) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None if mission.inputs.contains_key(root) => format!("Write `inputs.{root}`."),
                    None => "Declare an input, and write `{{ inputs.<name> }}`.".to_owned(),
                };
                report(context, "F0812", node, &name, message, help);
            }
        }
    }
    tool_names(context, node, mission);
    Some(template)
}

/// Reports words that look like a tool of commanders and are none: `dataset_set`, `complete_task`.
fn tool_names(context: &mut LoadContext<'_>, node: &Node, mission: &MissionDef) {
    let text = node.text().unwrap_or_default();
    let is_word = |character: char| character.is_ascii_lowercase() || character == '_';
    let own = |word: &str| {
        mission.inputs.contains_key(word)
            || mission.datasets.contains_key(word)
            || mission.datasets.values().any(|dataset| dataset.schema.contains_key(word))
    };
    let mut reported = Vec::new();
    for word in text.split(|character: char| !is_word(character)).filter(|word| word.contains('_')) {
        if MISSION_TOOLS.contains(&word) || word.starts_with("result_") || own(word) || reported.contains(&word) {
            continue;
        }
        let parts = |name: &str| {
            let mut parts: Vec<String> = name.split('_').map(str::to_owned).collect();
            parts.sort_unstable();
            parts
        };
        let same_parts = MISSION_TOOLS.iter().find(|tool| parts(tool) == parts(word)).copied();
        let near =
            same_parts.or_else(|| did_you_mean(word, MISSION_TOOLS.iter().copied().filter(|tool| tool.contains('_'))));
        if let Some(near) = near {
            reported.push(word);
            let place = word_place(context, node, word);
            let message = format!("`{word}` is no tool of a commander");
            let help = format!("Did you mean `{near}`? Ignore this if it is a word of the text.");
            context.findings.warning("F0847", &place, message, help);
        }
    }
}

/// Compiles the key that runs share which exclude one another, and checks what it reads.
pub(super) fn concurrency_key(
    context: &mut LoadContext<'_>,
    node: &Node,
    inputs: &IndexMap<Arc<str>, InputDef>,
) -> Option<Template> {
    let template = strict_template(context, node)?;
    let names = context.engine.variables(&template);
    for name in &names {
        match name.split_once('.') {
            Some(("inputs", input)) => {
                let input = input.split('.').next().unwrap_or_default();
                input_is_readable(context, node, name, input, inputs, "a key");
            }
            _ => {
                let message = format!("the key reads `{name}`, but only `inputs.<name>` exists");
                report(context, "F0812", node, name, message, "Write `{{ inputs.<name> }}`.".to_owned());
            }
        }
    }
    Some(template)
}

/// Compiles a template whose names must all have values.
fn strict_template(context: &mut LoadContext<'_>, node: &Node) -> Option<Template> {
    let source = TemplateSource::from_project_file(context.file.clone(), node.text()?).starting_at_line(node.line);
    let compiled = context.engine.compile(&source, UndefinedMode::Strict);
    let template = context.compiled(compiled, "F0406", Some(node))?;
    for error in context.engine.unknown_names(&template) {
        context.compiled::<()>(Err(error), "F0406", Some(node));
    }
    Some(template)
}

/// Adds an error at a word of a text.
fn report(context: &mut LoadContext<'_>, code: &'static str, node: &Node, word: &str, message: String, help: String) {
    let place = word_place(context, node, word);
    context.findings.error(code, &place, message, help);
}

/// The location of a word in a text of one line; else that of the text.
fn word_place(context: &LoadContext<'_>, node: &Node, word: &str) -> crate::finding::SourceLocation {
    let text = node.text().unwrap_or_default();
    match text.find(word).and_then(|at| text.get(..at)).filter(|before| !before.contains('\n')) {
        Some(before) => node.place_at(&context.file, before.chars().count(), word.chars().count()),
        None => context.place(node),
    }
}

fn input_is_readable(
    context: &mut LoadContext<'_>,
    node: &Node,
    written: &str,
    input: &str,
    inputs: &IndexMap<Arc<str>, InputDef>,
    reader: &str,
) {
    match inputs.get(input) {
        Some(def) if def.protected => {
            let message = format!("`{input}` is a protected input, which {reader} cannot read");
            let help = format!("Write `${{secrets.{input}}}`: the value is put in when a tool is called.");
            report(context, "F0813", node, written, message, help);
        }
        Some(_) => {}
        None => {
            let names = inputs.iter().filter(|(_, input)| !input.protected).map(|(name, _)| &**name);
            let help = match did_you_mean(input, names) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Add `{input}` under `inputs` of the mission."),
            };
            report(context, "F0812", node, written, format!("the mission has no input `{input}`"), help);
        }
    }
}

fn item_is_readable(
    context: &mut LoadContext<'_>,
    node: &Node,
    written: &str,
    field: Option<&str>,
    mission: &MissionDef,
    iterator: Option<&IteratorDef>,
) {
    let Some(iterator) = iterator.filter(|iterator| iterator.parallel) else {
        let help = if iterator.is_some() {
            "Write `parallel: true`, or leave it out: a sequential commander fetches each item with a tool."
        } else {
            "Add an `iterator` with `parallel: true`, or write an input."
        };
        let message = "the objective reads `item`, which exists only in parallel iterations";
        return report(context, "F0814", node, written, message.to_owned(), help.to_owned());
    };
    let Some(dataset) = mission.datasets.get(&iterator.dataset) else { return };
    let Some(field) = field.filter(|field| !dataset.schema.is_empty() && !dataset.schema.contains_key(*field)) else {
        return;
    };
    let message = format!("the dataset `{}` declares no field `{field}`", iterator.dataset);
    let help = match did_you_mean(field, dataset.schema.keys().map(|name| &**name)) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Add `{field}` to its `schema`, or read another field."),
    };
    report(context, "F0815", node, written, message, help);
}

/// Reports `${…}` in an objective: it is not an environment variable, and `${inputs.x}` is the form of HCL.
fn foreign_values(context: &mut LoadContext<'_>, node: &Node, text: &str, mission: &MissionDef) {
    for part in text.split("${").skip(1) {
        let Some((name, _)) = part.split_once('}') else { continue };
        let written = format!("${{{name}}}");
        let help = match name.split_once('.') {
            Some(("secrets", secret)) if mission.inputs.get(secret).is_some_and(|input| input.protected) => continue,
            Some(("secrets", secret)) => format!("Add the protected input `{secret}`, or correct the name."),
            Some(("inputs" | "item", _)) => format!("Write `{{{{ {name} }}}}`."),
            _ => {
                "Objectives do not read the environment; declare an input. Ignore this if the text is meant as written."
                    .to_owned()
            }
        };
        let place = word_place(context, node, &written);
        context.findings.warning("F0816", &place, format!("`{written}` stays in the objective as written"), help);
    }
}

fn iterator(context: &mut LoadContext<'_>, node: &Node, mission: &MissionDef) -> Option<IteratorDef> {
    let fields = context.fields(node, &ITERATOR)?;
    let dataset = plain(fields.text("dataset")?, "datasets.");
    if !mission.datasets.contains_key(dataset) {
        let help = match did_you_mean(dataset, mission.datasets.keys().map(|name| &**name)) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => format!("Add `{dataset}` under `datasets` of the mission."),
        };
        context.error("F0827", fields.node("dataset")?, format!("there is no dataset `{dataset}`"), help);
    }
    let parallel = fields.flag("parallel");
    let unfit: Vec<&str> = if parallel { vec!["session"] } else { PARALLEL.to_vec() };
    for key in unfit.into_iter().filter(|key| fields.has(key)) {
        let (fits, help) = if parallel {
            ("sequential", "Remove it: each item has a session of its own.")
        } else {
            ("parallel", "Add `parallel: true`, or remove it.")
        };
        context.error("F0829", fields.at(key), format!("`{key}` fits only a {fits} iteration"), help);
    }
    let on_error = match fields.text("on_error") {
        Some("finish_then_fail") => OnIterationError::FinishThenFail,
        Some("continue") => OnIterationError::Continue,
        _ => OnIterationError::FailFast,
    };
    let min_success = fields.number("min_success").unwrap_or(0.0);
    if !(0.0..=1.0).contains(&min_success) {
        let message = "`min_success` is a share of the items, from 0 to 1";
        context.error("F0829", fields.at("min_success"), message, "Write for example `min_success: 0.6`.");
    } else if parallel && fields.has("min_success") && on_error != OnIterationError::Continue {
        let message = "`min_success` fits only `on_error: continue`";
        context.error("F0829", fields.at("min_success"), message, "Add `on_error: continue`, or remove it.");
    }
    let milliseconds = |key: &str, default: u64| Duration::from_millis(fields.whole(key).unwrap_or(default));
    Some(IteratorDef {
        dataset: dataset.into(),
        parallel,
        concurrency_limit: clamped(context, &fields, "concurrency_limit", 5, 1, MISSION_PARALLEL),
        start_delay: milliseconds("start_delay", 0),
        smoke_test: fields.flag("smoketest"),
        max_retries: clamped(context, &fields, "max_retries", 0, 0, MISSION_RETRIES),
        retry_delay: milliseconds("retry_delay", 1_000),
        retry_after_writes: fields.text("retry") == Some("also_after_writes"),
        on_error,
        min_success,
        share_learnings: fields.text("learnings") == Some("share"),
        fresh_session: fields.text("session") == Some("fresh"),
    })
}

/// What the conditions of a task's routes may read.
#[derive(Clone, Copy)]
struct Readable<'m> {
    /// The fields of the output.
    output: &'m IndexMap<Arc<str>, FieldDef>,
    /// Whether the output is a list, with one for each item.
    iterated: bool,
    /// The mission with its inputs.
    mission: &'m MissionDef,
}

fn router(context: &mut LoadContext<'_>, node: &Node, readable: Readable<'_>) -> Vec<RouteDef> {
    let nodes = match node.list() {
        Some(nodes) => nodes,
        None => match context.fields(node, &TASK_ROUTER) {
            Some(fields) if fields.node("route").is_some() => fields.list("route"),
            // Reported: a missing or an unknown key.
            _ => return Vec::new(),
        },
    };
    if nodes.is_empty() {
        let help = "Add a route with `to`, or remove `router`.";
        context.error("F0841", node, "the router has no routes", help);
    }
    let mut routes: Vec<RouteDef> = Vec::new();
    for node in nodes {
        let Some(route) = route(context, node, readable) else { continue };
        let is_otherwise = |route: &RouteDef| route.is_otherwise();
        if let Some(first) = routes.iter().find(|other| is_otherwise(other)).filter(|_| is_otherwise(&route)) {
            let message = format!("a route without `when` and `if` is already on line {}", first.place.line);
            let help = "Only one route can be taken if no other is; add `when` or `if` to this one.";
            context.error("F0841", node, message, help);
        }
        routes.push(route);
    }
    routes
}

fn route(context: &mut LoadContext<'_>, node: &Node, readable: Readable<'_>) -> Option<RouteDef> {
    let fields = context.fields(node, &ROUTE)?;
    let otherwise = fields.node("else");
    // `else: write` names the target, as in a flow.
    let short = otherwise.filter(|node| matches!(node.value, Value::Text(_)));
    let target = match (fields.node("to"), short) {
        (Some(node), None) | (None, Some(node)) => node,
        (Some(_), Some(short)) => {
            let message = "the route has two targets: `to` and `else`";
            context.error("F0841", short, message, "Write `else: true`.");
            return None;
        }
        (None, None) => {
            if !fields.has("to") {
                context.error("F0841", node, "the route has no target", "Add `to: <task>`.");
            }
            return None;
        }
    };
    let is_otherwise = short.is_some() || otherwise.and_then(Node::bool) == Some(true);
    let kinds = ["when", "if", "else"].into_iter();
    let kinds: Vec<&str> = kinds.filter(|key| fields.has(key) && (*key != "else" || is_otherwise)).collect();
    if let [first, second, ..] = kinds.as_slice() {
        let message = format!("the route has both `{first}` and `{second}`");
        let help = "Write `when` for a decision of the model, `if` for one of code, or neither for all other cases.";
        context.error("F0841", fields.at(second), message, help);
    }
    let target_def = route_target(context, target)?;
    let names = |word: &str| fields.list("hand_over").iter().any(|node| node.text() == Some(word));
    let hand_over = HandOver { summaries: names("summaries"), outputs: names("outputs") };
    let is_mission = matches!(target_def, RouteTarget::Mission(..));
    if !hand_over.is_empty() && !is_mission {
        let message = "`hand_over` is of routes to missions: a task reads the results before it anyway";
        context.error("F0841", fields.at("hand_over"), message, "Remove it.");
    }
    let no_answer = fields.flag("no_answer");
    if let (true, Some(first)) = (no_answer, kinds.first()) {
        let message = format!("the route has both `no_answer` and `{first}`");
        context.error("F0841", fields.at("no_answer"), message, "Write two routes to the same target, or remove one.");
    } else if no_answer && is_mission {
        let message = "a route with `no_answer` leads to a mission, whose inputs nobody would set";
        context.error("F0841", fields.at("no_answer"), message, "Write a task that has a route to the mission.");
    }
    Some(RouteDef {
        no_answer,
        hand_over,
        target: target_def,
        when: fields.shared("when"),
        condition: fields.node("if").and_then(|node| condition(context, node, readable)),
        place: context.place(target),
    })
}

/// Reads `task`, `mission:x` or `mission:x#task`; references of HCL are `tasks.x` and `missions.x`.
fn route_target(context: &mut LoadContext<'_>, node: &Node) -> Option<RouteTarget> {
    let text = node.text().unwrap_or_default();
    let mission = text.strip_prefix("mission:").or_else(|| text.strip_prefix("missions."));
    let target = match mission {
        Some(rest) => match rest.split_once('#') {
            Some((name, task)) => RouteTarget::Mission(name.trim().into(), Some(task.trim().into())),
            None => RouteTarget::Mission(rest.trim().into(), None),
        },
        None => RouteTarget::Task(plain(plain(text, "tasks."), "task:").trim().into()),
    };
    let is_empty = match &target {
        RouteTarget::Task(name) => name.is_empty(),
        RouteTarget::Mission(name, task) => name.is_empty() || task.as_deref() == Some(""),
    };
    if is_empty {
        let message = format!("a target must be a task or a mission, but this is {}", describe(node));
        context.error("F0841", node, message, "Write `<task>`, `mission:<name>` or `mission:<name>#<task>`.");
        return None;
    }
    Some(target)
}

/// Compiles the condition of a route and checks what it reads.
fn condition(context: &mut LoadContext<'_>, node: &Node, readable: Readable<'_>) -> Option<Expression> {
    let Readable { output, iterated, mission } = readable;
    let expression = context.expression(node)?;
    for name in context.engine.expression_variables(&expression) {
        let mut parts = name.split('.');
        match (parts.next().unwrap_or_default(), parts.next()) {
            ("inputs", Some(input)) => input_is_readable(context, node, &name, input, &mission.inputs, "a condition"),
            ("output", _) if output.is_empty() => {
                let message = "the condition reads `output`, but the task has no structured output".to_owned();
                report(context, "F0843", node, &name, message, "Add `output` to the task.".to_owned());
            }
            ("output", Some(field)) if iterated => {
                let message = format!("the condition reads `{name}`, but the output of an iteration is a list");
                let help = format!("Write for example `output | map(attribute=\"{field}\") | list`.");
                report(context, "F0843", node, &name, message, help);
            }
            ("output", Some(field)) if !output.contains_key(field) => {
                let help = match did_you_mean(field, output.keys().map(|name| &**name)) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None => format!("Add `{field}` to `output` of the task."),
                };
                report(context, "F0843", node, &name, format!("the output has no field `{field}`"), help);
            }
            ("inputs" | "output" | "summary", _) => {}
            (root, _) => {
                let message = format!("the condition reads `{name}`, but only `output`, `inputs` and `summary` exist");
                let help = match did_you_mean(root, ["output", "inputs", "summary"]) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None if output.contains_key(root) => format!("Write `output.{root}`."),
                    None => "Write for example `output.score >= 7`.".to_owned(),
                };
                report(context, "F0843", node, &name, message, help);
            }
        }
    }
    Some(expression)
}
