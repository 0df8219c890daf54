//! The inputs of a run: parsed by their declared types, and the first event of the run.

use std::{fmt, sync::Arc};

use indexmap::IndexMap;
use minijinja::Value;
use serde_json::{Map, Number, Value as Json};

use super::{
    dataset,
    event::{NewEvent, PreviousRun, RunEventKind},
    sizes,
};
use crate::{
    limits::{MISSION_DATASET_ITEMS, RUN_NAME, RUN_TEXT},
    project::{
        field_values,
        missions::{HandOver, InputDef, MissionDef, ValueKind},
    },
    template::from_json,
};

/// Bytes by which an event is longer where it is stored: its number and its time.
const EVENT_FRAME: usize = 256;

/// What is wrong with one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputProblem {
    /// Its name.
    pub input: Arc<str>,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input `{}`: {}", self.input, self.problem)
    }
}

fn problem(input: &str, problem: impl Into<String>) -> InputProblem {
    InputProblem { input: input.into(), problem: problem.into() }
}

/// The name of a type, as projects write it.
pub fn kind_name(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::String => "string",
        ValueKind::Number => "number",
        ValueKind::Integer => "integer",
        ValueKind::Boolean => "boolean",
        ValueKind::List => "list",
        ValueKind::Object => "object",
        ValueKind::Map => "map",
        ValueKind::Any => "any",
        ValueKind::File => "file",
    }
}

/// Whether a run must set the input.
pub fn is_required(input: &InputDef) -> bool {
    !input.protected && input.default.is_none() && input.field.required
}

/// Parses the values that are given for the inputs of a mission: JSON of the declared type, or a text with the same content. Defaults are
/// not filled in. Protected inputs cannot be given.
///
/// # Errors
/// All problems, sorted by the names of the inputs.
pub fn parse(
    inputs: &IndexMap<Arc<str>, InputDef>,
    given: &Map<String, Json>,
) -> Result<Map<String, Json>, Vec<InputProblem>> {
    let (mut parsed, mut problems) = (Map::new(), Vec::new());
    for (name, value) in given {
        match inputs.get(name.as_str()).filter(|input| !input.protected) {
            None => problems.push(problem(name, "the mission has no such input")),
            Some(input) => match parse_value(input, value) {
                Ok(value) => drop(parsed.insert(name.clone(), value)),
                Err(reason) => problems.push(problem(name, reason)),
            },
        }
    }
    for (name, input) in inputs {
        if is_required(input) && !given.contains_key(&**name) {
            let about = match &*input.field.description {
                "" => String::new(),
                description => format!(" ({description})"),
            };
            problems.push(problem(name, format!("it is required{about}")));
        }
    }
    if problems.is_empty() {
        return Ok(parsed);
    }
    problems.sort_by(|a, b| a.input.cmp(&b.input));
    Err(problems)
}

fn parse_value(input: &InputDef, value: &Json) -> Result<Json, String> {
    let kind = input.field.kind;
    let wrong = || format!("a value of type {} is expected, not {value}", kind_name(kind));
    let from_text = |text: &str| serde_json::from_str::<Json>(text.trim()).map_err(|_| wrong());
    let parsed = match (kind, value) {
        (_, Json::Null) => return Err("null is not a value; leave the input out".into()),
        (ValueKind::String | ValueKind::File, Json::String(text)) if text.trim().is_empty() && is_required(input) => {
            return Err("it is required and must not be empty".into());
        }
        (ValueKind::String | ValueKind::File, Json::String(_)) | (ValueKind::Any, _) => value.clone(),
        (ValueKind::Boolean, Json::Bool(_)) => value.clone(),
        (ValueKind::Boolean, Json::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Json::Bool(true),
            "false" | "0" => Json::Bool(false),
            _ => return Err(wrong()),
        },
        (ValueKind::Number | ValueKind::Integer, Json::String(text)) => match from_text(text)? {
            Json::Number(number) => Json::Number(exact(text, number)?),
            _ => return Err(wrong()),
        },
        (ValueKind::Number | ValueKind::Integer, Json::Number(_)) => value.clone(),
        (ValueKind::List, Json::Array(_)) => value.clone(),
        (ValueKind::Object | ValueKind::Map, Json::Object(_)) => value.clone(),
        (ValueKind::List | ValueKind::Object | ValueKind::Map, Json::String(text)) => from_text(text)?,
        _ => return Err(wrong()),
    };
    let fits = match (kind, &parsed) {
        (ValueKind::Integer, Json::Number(number)) => field_values::is_whole(number),
        (ValueKind::List, parsed) => parsed.is_array(),
        (ValueKind::Object | ValueKind::Map, parsed) => parsed.is_object(),
        _ => true,
    };
    if !fits {
        return Err(wrong());
    }
    match field_values::check(&input.field.schema, &parsed).first() {
        None => Ok(parsed),
        Some(violation) if violation.pointer.is_empty() => Err(violation.problem.clone()),
        Some(violation) => Err(format!("{}: {}", violation.pointer, violation.problem)),
    }
}

/// A whole number that does not fit would lose digits.
fn exact(text: &str, number: Number) -> Result<Number, String> {
    let is_whole_text = text.trim().trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    if is_whole_text && number.is_f64() {
        return Err("the number has too many digits".into());
    }
    Ok(number)
}

/// The key by which a run excludes others; `None` if the mission declares none.
fn concurrency_key(def: &MissionDef, inputs: &Map<String, Json>) -> Result<Option<Arc<str>>, InputProblem> {
    let Some(key) = &def.concurrency.key else { return Ok(None) };
    let named = inputs.iter().map(|(name, value)| (name.as_str(), from_json(value)));
    let context = Value::from_pairs([("inputs", Value::from_pairs(named))]);
    let rejected = |reason: String| problem("concurrency.key", reason);
    let text = key.render(context).map_err(|error| rejected(error.to_string()))?;
    match text.trim() {
        "" => Err(rejected("the key that runs share is empty with these inputs".into())),
        text if text.len() > RUN_NAME => {
            let bytes = text.len();
            Err(rejected(format!("the key that runs share has {bytes} bytes with these inputs, more than {RUN_NAME}")))
        }
        text => Ok(Some(text.into())),
    }
}

/// The inputs of type `file` that are given: their names and paths.
pub fn files<'a>(
    inputs: &'a IndexMap<Arc<str>, InputDef>,
    given: &'a Map<String, Json>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a str)> {
    let files = inputs.iter().filter(|(_, input)| input.field.kind == ValueKind::File);
    let given = files.filter_map(|(name, _)| Some((name, given.get(&**name)?.as_str()?)));
    given.filter(|(_, path)| !path.trim().is_empty())
}

/// The names of the copies of files in the folder of the run, in their order: the last part of each path. A name that another file has
/// already begins with the name of the input.
pub fn copy_names<'a>(files: impl IntoIterator<Item = (&'a Arc<str>, &'a str)>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (input, path) in files {
        let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
        let mut name = last.to_owned();
        while names.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
            name = format!("{input}_{name}");
        }
        names.push(name);
    }
    names
}

/// How a run is started.
#[derive(Clone, Debug, Default)]
pub struct NewRunOptions {
    /// The task to enter; the first ones if absent.
    pub entry: Option<Arc<str>>,
    /// The run before this one.
    pub previous: Option<PreviousRun>,
    /// How many runs come before it in its chain.
    pub chain: u32,
    /// The id of its chain; that of the run itself if absent.
    pub chain_id: Option<Arc<str>>,
    /// What it may read of the run before.
    pub hand_over: HandOver,
    /// The run that it repeats.
    pub rerun_of: Option<Arc<str>>,
    /// Whether tools that write are refused.
    pub dry_run: bool,
    /// The items of datasets that it takes over from the run that it repeats, instead of those of the inputs.
    pub datasets: IndexMap<Arc<str>, Vec<Json>>,
}

/// A run that may start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// Its first event: its inputs with defaults, and the datasets that are filled from the start.
    pub event: NewEvent,
    /// The key by which it excludes others; `None` if the mission declares none.
    pub key: Option<Arc<str>>,
}

/// Judges what a run is started with, before anything depends on it: the inputs, the items of datasets, the entry, the key that runs share,
/// and whether the run fits. Each start asks this: of a person, of a rerun, and of a mission that follows another one, there before the task
/// that leads to it is completed.
///
/// # Errors
/// All problems of the inputs; if there are none, all problems of what follows from them.
pub fn start(
    def: &MissionDef,
    run: &Arc<str>,
    given: &Map<String, Json>,
    options: NewRunOptions,
) -> Result<RunStart, Vec<InputProblem>> {
    let parsed = parse(&def.inputs, given)?;
    let mut problems = Vec::new();
    let mut inputs = Map::new();
    for (name, input) in def.inputs.iter().filter(|(_, input)| !input.protected) {
        let value = parsed.get(&**name).or(input.default.as_ref()).cloned();
        // A template may read an optional input that has no value.
        inputs.insert(name.to_string(), value.unwrap_or(Json::Null));
    }
    let datasets = datasets(def, &inputs, options.datasets, &mut problems);
    if let Some(entry) = options.entry.as_ref().filter(|entry| !def.tasks.contains_key(*entry)) {
        problems.push(problem("entry", format!("the mission has no task `{entry}`")));
    }
    let items = |name: &str| datasets.get(name).map(|items: &Vec<Json>| u64::try_from(items.len()).unwrap_or(u64::MAX));
    if let Err(found) = sizes::check(def, options.entry.as_deref(), items) {
        let bound = found.dataset.as_ref().and_then(|dataset| def.datasets.get(dataset)?.bind_to.clone());
        let input = bound.unwrap_or_else(|| format!("iterator of {}", found.task).into());
        problems.push(InputProblem { input, problem: found.problem });
    }
    let key = concurrency_key(def, &inputs).map_err(|found| problems.push(found)).ok().flatten();
    let event = NewEvent::of_run(RunEventKind::MissionStarted {
        mission: def.name.clone(),
        run: run.clone(),
        task_count: u32::try_from(def.tasks.len()).unwrap_or(u32::MAX),
        inputs,
        datasets,
        entry: options.entry,
        previous: options.previous,
        chain: options.chain,
        chain_id: options.chain_id,
        hand_over: options.hand_over,
        rerun_of: options.rerun_of,
        dry_run: options.dry_run,
    });
    // The store keeps it as one text, with its number and time.
    let bytes = serde_json::to_string(&event).map_or(0, |text| text.len());
    if bytes > RUN_TEXT.saturating_sub(EVENT_FRAME) {
        let reason = format!("they have {bytes} bytes with the items of datasets, more than {RUN_TEXT} (`RUN_TEXT`)");
        problems.push(problem("inputs", reason));
    }
    if problems.is_empty() { Ok(RunStart { event, key }) } else { Err(problems) }
}

/// The items of the datasets that are filled from the start: those of the run that is repeated, of the bound input, or of the mission.
fn datasets(
    def: &MissionDef,
    inputs: &Map<String, Json>,
    mut taken: IndexMap<Arc<str>, Vec<Json>>,
    problems: &mut Vec<InputProblem>,
) -> IndexMap<Arc<str>, Vec<Json>> {
    let mut datasets = IndexMap::new();
    for (name, dataset) in &def.datasets {
        let bound = dataset.bind_to.as_ref().and_then(|input| Some((input, inputs.get(&**input)?.as_array()?)));
        let (input, items): (Arc<str>, _) = match (taken.swap_remove(name), bound, &dataset.items) {
            (Some(items), ..) => (format!("dataset {name}").into(), items),
            (None, Some((input, items)), _) => (input.clone(), items.clone()),
            (None, None, Some(items)) => (format!("dataset {name}").into(), items.clone()),
            (None, None, None) => continue,
        };
        if items.len() > MISSION_DATASET_ITEMS {
            let count = items.len();
            let reason = format!("the dataset `{name}` would have {count} items, more than {MISSION_DATASET_ITEMS}");
            problems.push(problem(&input, reason));
        }
        let at = |found: field_values::Violation| problem(&input, format!("{}: {}", found.pointer, found.problem));
        problems.extend(dataset::check_items(dataset, &items).into_iter().map(at));
        datasets.insert(name.clone(), items);
    }
    datasets
}
