//! Values of inputs, as people and models give them.

use segue_engine::mission::{
    event::RunEventKind,
    inputs::{NewRunOptions, concurrency_key, copy_names, files, mission_started, parse},
};
use serde_json::{Value as Json, json};

use crate::{definitions::mission, driver::object};

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
    let start = |given: Json| mission_started(&def, &"r1".into(), &object(given), NewRunOptions::default());
    let event = start(json!({"pages": [{"url": "u"}]})).unwrap();
    let RunEventKind::MissionStarted { inputs, datasets, .. } = event.kind else { panic!() };
    assert_eq!(Json::Object(inputs), json!({"pages": [{"url": "u"}], "note": "none"}));
    assert_eq!(json!(datasets), json!({"d": [{"url": "u"}], "e": [{"n": 1}]}));
    let problems = start(json!({"pages": [{"url": "u"}, {}, 5]})).unwrap_err();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["input `pages`: /1/url: this field is required", "input `pages`: /2: an object is expected"]);
    let options = NewRunOptions { entry: Some("x".into()), ..Default::default() };
    let problems = mission_started(&def, &"r1".into(), &object(json!({"pages": []})), options).unwrap_err();
    assert_eq!(problems[0].to_string(), "input `entry`: the mission has no task `x`");
}

#[test]
fn the_key_of_a_run_is_rendered_from_its_inputs() {
    let def = mission(
        "{name: m, key: 'issue-{{ inputs.issue }}{{ inputs.part }}', inputs: {issue: {type: integer}, part: {type: string, default: ''}}, tasks: {a: {}}}",
    );
    let key = |given: Json| {
        let started = mission_started(&def, &"r1".into(), given.as_object().unwrap(), NewRunOptions::default());
        concurrency_key(&def, &started.unwrap())
    };
    assert_eq!(key(json!({"issue": "7"})).unwrap().as_deref(), Some("issue-7"), "the parsed input, not its text");
    assert_eq!(key(json!({"issue": 7, "part": "b"})).unwrap().as_deref(), Some("issue-7b"));
    let def =
        mission("{name: m, key: '{{ inputs.part }}', inputs: {part: {type: string, default: ' '}}, tasks: {a: {}}}");
    let started = mission_started(&def, &"r1".into(), &serde_json::Map::new(), NewRunOptions::default()).unwrap();
    assert_eq!(
        concurrency_key(&def, &started).unwrap_err()[0].to_string(),
        "input `concurrency.key`: the key that runs share is empty with these inputs"
    );
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
