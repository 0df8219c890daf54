//! Values of inputs, as people and models give them.

use segue_engine::mission::{
    event::RunEventKind,
    inputs::{self, NewRunOptions, copy_names, files, parse},
    state::MissionStatus,
    tools::Arguments,
};
use serde_json::{Value as Json, json};

use crate::{
    definitions::mission,
    driver::{CallOptions, Run, object},
};

const INPUTS: &str = "
name: m
inputs:
  topic: {type: string, description: The market}
  depth: {type: integer, default: 2}
  ratio: {type: number, default: 0.5}
  deep: {type: boolean, default: false}
  names: {type: list, default: [], items: {type: string}}
  options: {type: object, default: {}}
  level: {type: string, default: low, enum: [low, high]}
  extra: {type: any, required: false}
  api_key: {type: string, protected: true}
tasks: {a: {}}
";

fn parsed(given: Json) -> Result<Json, Vec<String>> {
    let def = mission(INPUTS);
    let parsed = parse(&def.inputs, &object(given)).map(Json::Object);
    parsed.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[test]
fn values_are_json_of_the_type_or_text_of_the_same_content() {
    let cases = [
        (json!({"topic": "tea"}), json!({"topic": "tea"})),
        (json!({"topic": "t", "depth": 3}), json!({"topic": "t", "depth": 3})),
        (json!({"topic": "t", "depth": " 3 "}), json!({"topic": "t", "depth": 3})),
        (
            json!({"topic": "t", "depth": "9223372036854775807"}),
            json!({"topic": "t", "depth": 9223372036854775807_i64}),
        ),
        (json!({"topic": "t", "ratio": "1.25"}), json!({"topic": "t", "ratio": 1.25})),
        (json!({"topic": "t", "deep": "True"}), json!({"topic": "t", "deep": true})),
        (json!({"topic": "t", "names": ["a"]}), json!({"topic": "t", "names": ["a"]})),
        (json!({"topic": "t", "names": "[\"a\"]"}), json!({"topic": "t", "names": ["a"]})),
        (json!({"topic": "t", "options": "{\"a\": 1}"}), json!({"topic": "t", "options": {"a": 1}})),
        (json!({"topic": "t", "extra": [1, "x"]}), json!({"topic": "t", "extra": [1, "x"]})),
    ];
    for (given, expected) in cases {
        assert_eq!(parsed(given.clone()), Ok(expected), "{given}");
    }
}

#[test]
fn all_problems_of_inputs_come_sorted_in_one_list() {
    let given = json!({
        "depth": 2.5, "ratio": "NaN", "deep": "perhaps", "names": "x", "options": [], "level": "medium",
        "extra": null, "api_key": "k", "unknown": 1,
    });
    assert_eq!(
        parsed(given).unwrap_err(),
        [
            "input `api_key`: the mission has no such input",
            "input `deep`: a value of type boolean is expected, not \"perhaps\"",
            "input `depth`: a value of type integer is expected, not 2.5",
            "input `extra`: null is not a value; leave the input out",
            "input `level`: one of \"low\", \"high\" is expected",
            "input `names`: a value of type list is expected, not \"x\"",
            "input `options`: a value of type object is expected, not []",
            "input `ratio`: a value of type number is expected, not \"NaN\"",
            "input `topic`: it is required (The market)",
            "input `unknown`: the mission has no such input",
        ]
    );
    assert_eq!(parsed(json!({"topic": " "})).unwrap_err(), ["input `topic`: it is required and must not be empty"]);
    let long = json!({"topic": "t", "depth": "123456789012345678901234567890"});
    assert_eq!(parsed(long).unwrap_err(), ["input `depth`: the number has too many digits"]);
    let elements = json!({"topic": "t", "names": ["a", 5]});
    assert_eq!(parsed(elements).unwrap_err(), ["input `names`: /1: a text is expected, not a number"]);
}

#[test]
fn the_first_event_has_defaults_and_bound_datasets_but_no_protected_input() {
    let def = mission(
        "{name: m, inputs: {pages: {type: list}, key: {type: string, protected: true}, note: {type: string, default: none}},
          datasets: {d: {bind_to: pages, schema: {url: {type: string, required: true}}}, e: {items: [{n: 1}]}, f: {}}, tasks: {a: {}}}",
    );
    let start = |given: Json| inputs::start(&def, &"r1".into(), &object(given), NewRunOptions::default());
    let event = start(json!({"pages": [{"url": "u"}]})).unwrap().event;
    let RunEventKind::MissionStarted { inputs, datasets, .. } = event.kind else { panic!() };
    assert_eq!(Json::Object(inputs), json!({"pages": [{"url": "u"}], "note": "none"}));
    assert_eq!(json!(datasets), json!({"d": [{"url": "u"}], "e": [{"n": 1}]}));
    let problems = start(json!({"pages": [{"url": "u"}, {}, 5]})).unwrap_err();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["input `pages`: /1/url: this field is required", "input `pages`: /2: an object is expected"]);
    let options = NewRunOptions { entry: Some("x".into()), ..Default::default() };
    let problems = inputs::start(&def, &"r1".into(), &object(json!({"pages": []})), options).unwrap_err();
    assert_eq!(problems[0].to_string(), "input `entry`: the mission has no task `x`");
}

#[test]
fn the_key_of_a_run_is_rendered_from_its_inputs() {
    let def = mission(
        "{name: m, key: 'issue-{{ inputs.issue }}{{ inputs.part }}', inputs: {issue: {type: integer}, part: {type: string, default: ''}}, tasks: {a: {}}}",
    );
    let key = |given: Json| {
        inputs::start(&def, &"r1".into(), given.as_object().unwrap(), NewRunOptions::default()).map(|start| start.key)
    };
    assert_eq!(key(json!({"issue": "7"})).unwrap().as_deref(), Some("issue-7"), "the parsed input, not its text");
    assert_eq!(key(json!({"issue": 7, "part": "b"})).unwrap().as_deref(), Some("issue-7b"));
    let def =
        mission("{name: m, key: '{{ inputs.part }}', inputs: {part: {type: string, default: ' '}}, tasks: {a: {}}}");
    let problem = |part: &str| {
        let given = object(json!({ "part": part }));
        inputs::start(&def, &"r1".into(), &given, NewRunOptions::default()).unwrap_err()[0].to_string()
    };
    assert_eq!(problem(" "), "input `concurrency.key`: the key that runs share is empty with these inputs");
    assert_eq!(
        problem(&"x".repeat(1025)),
        "input `concurrency.key`: the key that runs share has 1025 bytes with these inputs, more than 1024"
    );
}

fn items(count: usize) -> Json {
    (0..count).map(|n| json!({"id": n.to_string()})).collect()
}

/// The units of a run are limited, and a run that cannot fit would work for hours before it fails. Attempts are no reason: most items need one.
#[test]
fn a_run_that_cannot_fit_is_not_started() {
    let problems = |more: &str, count: usize| {
        let def = mission(
            &"{name: m, inputs: {list: {type: list}}, datasets: {d: {bind_to: list}},
              tasks: {read: {iterator: {dataset: d, parallel: true}}, last: {depends_on: [read]}}}"
                .replace("parallel: true}", &format!("parallel: true{more}")),
        );
        let given = object(json!({ "list": items(count) }));
        let problems = inputs::start(&def, &"r1".into(), &given, NewRunOptions::default()).err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(problems("}", 9_999), Vec::<String>::new());
    assert_eq!(
        problems("}", 10_000),
        [
            "input `list`: the run needs 10001 units of work, more than 10000 (`RUN_UNITS`): the task `read` needs 10000, \
          for 10000 items of the dataset `d`"
        ]
    );
    assert_eq!(problems(", max_retries: 2}, repeat: {until: 'summary', max: 50}", 9_999), Vec::<String>::new());
    let both = inputs::start(
        &mission(
            "{name: m, key: '{{ inputs.k }}', inputs: {k: {type: string, default: ''}, list: {type: list}}, datasets: {d: {bind_to: list, schema: {name: {type: string, required: true}}}}, tasks: {a: {iterator: {dataset: d, parallel: true}}}}",
        ),
        &"r1".into(),
        &object(json!({"list": items(20_000)})),
        NewRunOptions { entry: Some("nowhere".into()), ..Default::default() },
    );
    let named: Vec<String> = both.unwrap_err().iter().map(|problem| problem.input.to_string()).collect();
    assert!(["list", "entry", "concurrency.key"].iter().all(|one| named.iter().any(|name| name == one)), "{named:?}");
}

#[test]
fn inputs_that_are_too_long_to_be_stored_are_a_problem_of_the_start() {
    let def = mission("{name: m, inputs: {text: {type: string}}, tasks: {a: {}}}");
    let given = object(json!({"text": "x".repeat(8 * 1024 * 1024)}));
    let problems = inputs::start(&def, &"r1".into(), &given, NewRunOptions::default()).unwrap_err();
    assert!(problems[0].to_string().contains("`RUN_TEXT`"), "{problems:?}");
}

/// The model that wrote the inputs of the next mission can correct them only before its task is completed.
#[test]
fn what_keeps_the_next_mission_from_starting_is_told_before_the_task_is_completed() {
    let next = |more: &str| {
        format!(
            "{{name: next_one, {more}, tasks: {{a: {{iterator: {{dataset: d, parallel: true, max_retries: 1}}}}}}}}"
        )
    };
    let bound = "datasets: {d: {bind_to: list, schema: {name: {type: string, required: true}}}}";
    let cases = [
        (
            next(&format!("inputs: {{list: {{type: list}}}}, {bound}")),
            json!({"list": [{"nam": "acme"}]}),
            "/0/name: this field is required",
        ),
        (
            next(&format!("inputs: {{list: {{type: list}}}}, {bound}")),
            json!({"list": "acme"}),
            "a value of type list is expected",
        ),
        (
            next("inputs: {issue: {type: string, default: ''}}, key: '{{ inputs.issue }}', datasets: {d: {items: []}}"),
            json!({}),
            "the key that runs share is empty",
        ),
        (
            next("inputs: {list: {type: list}}, datasets: {d: {bind_to: list}}"),
            json!({"list": items(10_001)}),
            "more than 10000",
        ),
        (
            next("inputs: {list: {type: list}}, datasets: {d: {bind_to: list}}"),
            json!({"lst": []}),
            "the mission has no such input",
        ),
    ];
    for (next, given, problem) in cases {
        let mut run = Run::new(mission("{name: m, tasks: {a: {router: [{to: 'mission:next_one', when: always}]}}}"));
        run.missions.insert("next_one".into(), mission(&next).into());
        let mut run = run.started(&Json::Null, NewRunOptions::default());
        let arguments = json!({"summary": "s", "route": "next_one", "mission_inputs": given});
        let answer = run.try_call("a", "task_complete", Arguments::Json(&arguments), &CallOptions::default());
        assert_eq!(answer.result["code"], "route.inputs_missing", "{problem}");
        assert!(answer.result["message"].as_str().unwrap().contains(problem), "{problem}: {}", answer.result);
        assert_eq!(run.open(), ["a"], "the commander can correct it");
    }
}

/// A dataset that a task fills is judged when it is filled, with those that were filled before.
#[test]
fn items_that_do_not_fit_the_run_are_not_stored() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {}}, tasks: {fill: {}, read: {depends_on: [fill], iterator: {dataset: d, parallel: true, max_retries: 1}}}}",
    );
    run.call("fill", "set_dataset", json!({"name": "d", "items": items(9_000)}));
    let more = json!({"name": "d", "append": true, "items": items(1_000)});
    assert_eq!(run.refused("fill", "set_dataset", more), "dataset.too_large");
    run.call("fill", "set_dataset", json!({"name": "d", "append": true, "items": items(999)}));
}

fn with_units(yaml: &str, units: u64) -> Run {
    let mut run = Run::new(mission(yaml));
    run.state.units = units;
    run.started(&Json::Null, NewRunOptions::default())
}

fn failure(run: &Run) -> (&str, &str) {
    run.state.failure.as_ref().map(|failure| (&*failure.code, &*failure.error)).unwrap()
}

/// The first unit is paid for only if the last one has a place.
#[test]
fn an_iteration_begins_only_if_its_items_and_the_tasks_after_it_fit() {
    const YAML: &str = "{name: m, datasets: {d: {items: [{id: x}, {id: y}, {id: z}]}}, tasks: {read: {iterator: {dataset: d, parallel: true}}, last: {depends_on: [read]}, other: {depends_on: [read], router: [{to: extra, when: needed}]}, extra: {}}}";
    let run = with_units(YAML, 9_996);
    assert_eq!(failure(&run).0, "run.too_large");
    assert!(failure(&run).1.contains("9996 units") && failure(&run).1.contains("3 items of the dataset `d`"));
    assert_eq!((run.starts(), run.state.status), (Vec::new(), MissionStatus::Failed));
    let fits = with_units(YAML, 9_995);
    assert_eq!(fits.starts(), ["read[0]", "read[1]", "read[2]"], "an optional task needs no place");
}

#[test]
fn attempts_that_may_not_fit_are_warned_about_and_never_take_the_place_of_a_task() {
    let mut run = with_units(
        "{name: m, datasets: {d: {items: [{id: x}, {id: y}, {id: z}]}}, tasks: {read: {iterator: {dataset: d, parallel: true, limit: 1, max_retries: 2, on_error: continue}}, last: {depends_on: [read]}}}",
        9_995,
    );
    let warned = run.of_kind("mission_issue");
    assert_eq!((warned.len(), &warned[0]["severity"]), (1, &json!("warning")));
    assert!(warned[0]["message"].as_str().unwrap().contains("after 1 attempts that fail"), "{warned:?}");
    run.fail("read[0]", "first");
    run.complete("read[0]");
    assert!(run.state.failure.is_none());
    run.fail("read[1]", "second");
    assert_eq!(failure(&run).0, "run.too_large");
    assert_eq!(run.state.status, MissionStatus::Failed, "at once, and not after the last item");
}

#[test]
fn a_plan_says_that_attempts_and_rounds_may_not_fit() {
    let warning = |more: &str| {
        let def = mission(&format!(
            "{{name: m, inputs: {{list: {{type: list}}}}, datasets: {{d: {{bind_to: list}}}}, tasks: {{read: {{iterator: {{dataset: d, parallel: true{more}}}}}}}"
        ));
        let given = object(json!({ "list": items(5_000) }));
        segue_engine::mission::plan::plan(&def, Some(&given), None).unwrap().warning
    };
    assert_eq!(warning(", max_retries: 1}"), None);
    let retries = warning(", max_retries: 2}").unwrap();
    assert!(
        retries.contains("15000") && retries.contains("of the dataset `d` with up to 3 attempts each"),
        "{retries}"
    );
    assert!(warning("}, repeat: {until: summary, max: 50}").unwrap().contains("in up to 50 rounds"));
}

/// Attempts of a run that is resumed again and again are not known before.
#[test]
fn a_run_without_units_left_fails_and_names_the_iteration() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{id: x}, {id: y}, {id: z}]}}, tasks: {read: {iterator: {dataset: d, parallel: true, limit: 1}}, clean: {always: true}}}",
    );
    run.state.units = 9_999;
    run.complete("read[0]");
    assert_eq!(failure(&run).0, "run.too_large");
    assert!(failure(&run).1.contains("3 items of the dataset `d`"), "{:?}", run.state.failure);
    assert_eq!(run.open(), ["clean"], "what always runs has a place");
    run.complete("clean");
    assert_eq!(run.state.status, MissionStatus::Failed);
}

#[test]
fn files_are_paths_and_their_copies_have_unique_names() {
    let def = mission("{name: m, inputs: {notes: {type: file}, more: {type: file}, other: {type: file}, x: {}}}");
    let given = json!({"notes": "/home/ada/Notes.md", "more": "C:\\\\docs\\\\notes.MD", "other": "plan.md", "x": "y"});
    let given = given.as_object().unwrap();
    let given_files: Vec<_> = files(&def.inputs, given).collect();
    assert_eq!(given_files.iter().map(|(name, _)| &***name).collect::<Vec<_>>(), ["notes", "more", "other"]);
    assert_eq!(copy_names(given_files), ["Notes.md", "more_notes.MD", "plan.md"]);
    let taken =
        [("x", "d/b_report.md"), ("a", "1/report.md"), ("b", "2/report.md")].map(|(name, path)| (name.into(), path));
    let names = copy_names(taken.iter().map(|(name, path)| (name, *path)));
    assert_eq!(names, ["b_report.md", "report.md", "b_b_report.md"], "no copy replaces another");
    let problems = parse(&def.inputs, &object(json!({"notes": " ", "more": 5, "x": "y"}))).unwrap_err();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "input `more`: a value of type file is expected, not 5",
            "input `notes`: it is required and must not be empty",
            "input `other`: it is required",
        ]
    );
}
