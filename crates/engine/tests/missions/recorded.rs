//! The results of the tools, compared with recorded ones: `tools/<name>.yml` has the cases, `tools/<name>.json` the results.
//!
//! A file has `mission`, `missions` (others, that routers choose) and `cases`. A case has `inputs`, steps `before`, and the `step` whose
//! result is recorded; `entry` and `chain` are those of the run. A step is `{<unit>: {<tool>: <arguments>}}`, with `agent` (it calls the tool), `busy` (agents that work), `results`
//! (stored results), `malformed` (arguments that are no JSON), `items` (so many empty items are the argument `items`), `clone` (a clone of
//! the commander calls it) beside it; or `{finished: {unit, agent, outcome, text}}`,
//! `{answered: {question, text}}` or `{answered: {question, error}}` for a question to a commander, `{person: {question, answer, timed_out}}`,
//! `{fail: {unit, error}}`.
//!
//! `SEGUE_RECORD=1` writes the results; read the difference before you commit it.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use segue_engine::{
    ids::AgentName,
    mission::{
        event::{CommanderAnswer, RunEventKind},
        inputs::NewRunOptions,
        tools::{self, Arguments, MissionTool, ToolAnswer},
    },
};
use serde_json::{Value as Json, json};

use crate::{
    definitions,
    driver::{CallOptions, Run},
};

/// The codes that tools return. The executor has others of its own.
const CODES: [&str; 46] = [
    "agent.busy",
    "agent.cancelled",
    "agent.capped",
    "agent.failed",
    "agent.no_question",
    "agent.no_result",
    "agent.unknown",
    "args.invalid",
    "ask.cancelled",
    "ask.empty",
    "ask.failed",
    "ask.index_required",
    "ask.index_unknown",
    "ask.limit",
    "ask.not_ancestor",
    "ask.timeout",
    "complete.dataset_open",
    "complete.output_missing",
    "complete.reason_missing",
    "complete.subtasks_open",
    "complete.summary_missing",
    "dataset.locked",
    "dataset.schema",
    "dataset.submit_first",
    "dataset.subtasks_open",
    "dataset.too_large",
    "dataset.unknown",
    "output.invalid",
    "output.not_current",
    "plan.empty",
    "plan.locked",
    "plan.required",
    "query.not_iterated",
    "query.not_ready",
    "query.task_unknown",
    "repeat.condition",
    "result.type",
    "result.unknown",
    "route.chain_limit",
    "route.condition",
    "route.inputs_missing",
    "route.mission_unknown",
    "route.required",
    "route.unknown",
    "tool.queued",
    "tool.unknown",
];

#[test]
fn the_tools_of_missions_answer_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/missions/tools");
    let write = std::env::var("SEGUE_RECORD").is_ok();
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
    files.sort();
    let (mut tools, mut codes, mut failures) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for path in files {
        let file: Json = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let results: Vec<Json> =
            file["cases"].as_array().unwrap().iter().map(|case| run_case(&file, case, &mut tools)).collect();
        for result in &results {
            codes.extend(result["result"]["code"].as_str().map(str::to_owned));
        }
        let text = format!("{}\n", serde_json::to_string_pretty(&results).unwrap());
        let recorded = path.with_extension("json");
        if write {
            fs::write(&recorded, &text).unwrap();
        } else if fs::read_to_string(&recorded).unwrap_or_default() != text {
            failures.push(format!("{}: now\n{text}", recorded.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let all: BTreeSet<&str> = MissionTool::ALL.into_iter().map(MissionTool::name).collect();
    assert_eq!(tools.iter().map(String::as_str).collect::<BTreeSet<_>>(), all, "each tool has cases");
    assert_eq!(
        codes.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        CODES.into_iter().collect(),
        "each code has a case"
    );
}

fn run_case(file: &Json, case: &Json, tools: &mut BTreeSet<String>) -> Json {
    let mut run =
        Run::new(definitions::from_json(if case["mission"].is_null() { &file["mission"] } else { &case["mission"] }));
    for mission in file["missions"].as_array().into_iter().flatten() {
        let mission = definitions::from_json(mission);
        run.missions.insert(mission.name.clone(), Arc::new(mission));
    }
    let chain = case["chain"].as_u64().map_or(0, |chain| chain as u32);
    let options = NewRunOptions { entry: case["entry"].as_str().map(Arc::from), chain, ..Default::default() };
    let mut run = run.started(&case["inputs"], options);
    for step in case["before"].as_array().into_iter().flatten() {
        let answer = perform(&mut run, step, &mut BTreeSet::new());
        assert!(!answer.is_error(), "{}: {step}: {}", case["case"], answer.result);
    }
    let mut recorded = json!({"case": case["case"]});
    if let Some(schema) = case["schema"].as_object() {
        let (unit, tool) = schema.iter().next().unwrap();
        let tool = MissionTool::from_name(tool.as_str().unwrap()).unwrap();
        recorded["schema"] = run.context(unit, &options_of(&case["with"]), |cx| tools::schema(tool, cx));
        return recorded;
    }
    let answer = perform(&mut run, &case["step"], tools);
    recorded["result"] = answer.result;
    let events: Vec<Json> = answer.events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    if !events.is_empty() {
        recorded["events"] = json!(events);
    }
    if answer.then != tools::Then::Continue {
        recorded["then"] = json!(format!("{:?}", answer.then));
    }
    recorded
}

fn options_of(step: &Json) -> CallOptions {
    let agents =
        |json: &Json| json.as_array().into_iter().flatten().map(|name| name.as_str().unwrap().into()).collect();
    CallOptions {
        agent: step["agent"].as_str().map(AgentName::from),
        busy: agents(&step["busy"]),
        results: step["results"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(id, items)| (id.clone(), items.clone()))
            .collect(),
        learnings: None,
        call: step["call"].as_str().map(str::to_owned),
    }
}

fn perform(run: &mut Run, step: &Json, tools: &mut BTreeSet<String>) -> ToolAnswer {
    let (name, what) = step.as_object().unwrap().iter().next().unwrap();
    let text = |field: &str| what[field].as_str().unwrap_or_default().to_owned();
    let answer = match name.as_str() {
        "finished" => {
            let outcome = serde_json::from_value(what["outcome"].clone()).unwrap();
            tools::agents::finished(
                &run.unit(&text("unit")),
                &AgentName::new(text("agent")),
                outcome,
                &text("text"),
                what["changes"].as_str(),
            )
        }
        "answered" => {
            let question = &run.state.commander_questions[what["question"].as_u64().unwrap() as usize];
            let answer = match what["error"].as_str() {
                Some(error) => CommanderAnswer::Error(error.into()),
                None => CommanderAnswer::Answer(text("text").into()),
            };
            tools::commanders::answered(&run.unit(&question.asked_by), &question.id, answer)
        }
        "person" => {
            let index = what["question"].as_u64().unwrap() as usize;
            let id = run.state.human_inputs.get_index(index).unwrap().0.clone();
            run.record(RunEventKind::HumanInputResolved {
                question_id: id.clone(),
                answer: what["answer"].as_str().map(Arc::from),
                timed_out: what["timed_out"] == true,
                responder: None,
            });
            return ToolAnswer::of(tools::people::answer(&run.state.human_inputs[&id]));
        }
        "fail" => {
            run.fail(&text("unit"), &text("error"));
            return ToolAnswer::of(Json::Null);
        }
        unit => {
            let (tool, arguments) = what.as_object().unwrap().iter().next().unwrap();
            let mut arguments = arguments.clone();
            if let Some(items) = step["items"].as_u64() {
                arguments["items"] = (0..items).map(|_| json!({})).collect();
            }
            if step["clone"] == true {
                let call = Arguments::Json(&arguments);
                return run.context(unit, &options_of(step), |cx| tools::call_of_clone(tool, call, cx));
            }
            tools.insert(tool.clone());
            let arguments = match step["malformed"].as_str() {
                Some(reason) => Arguments::Malformed(reason),
                None => Arguments::Json(&arguments),
            };
            if MissionTool::from_name(tool).is_none() {
                tools.remove(tool);
            }
            return run.try_call(unit, tool, arguments, &options_of(step));
        }
    };
    run.append(answer.events.clone());
    run.settle();
    answer
}

#[test]
fn the_check_of_projects_knows_the_tools_of_missions() {
    assert_eq!(tools::MissionTool::ALL.map(tools::MissionTool::name), segue_engine::project::MISSION_TOOLS);
}
