//! Missions are read with all their keys, and every mistake is found at its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use serde_json::json;

use super::super::super::{
    LoadResult, Project,
    load::tests::{clean, load, marked, places, sources},
    missions::{
        MissionDef, NextTasks, OnBreach, OnExhausted, OnIterationError, OnOverflow, RouteTarget, StorageDef, ValueKind,
    },
};

/// The complete example: every section, with keys that later versions will use.
const MARKET_REPORT: &str = r#"mission:
  name: market_report
  description: "Research a market and write a short report"
  directive: "Facts with sources; no speculation"
  commander:
    llm: {model_group: planner}
    reasoning: low
    plan: required
    max_turns: 60
    corrections: 3
    tool_response: {max_tokens: 16000}
    compaction: {token_limit: 60000, turn_retention: 10, summary: deterministic}
  agents: [researcher, writer]
  local_agents:
    writer: {description: "Writes clear prose", llm: {model_group: writer}, tools: [], skills: [style]}
  inputs:
    topic: {type: string, description: "Market", required: true}
    depth: {type: integer, default: 2}
    api_key: {type: string, protected: true, value: "${KEY}"}
  datasets:
    sources: {description: "Pages to read", schema: {url: {type: string, required: true}, title: {type: string}}}
  storage: {memory: "Finished reports", scratchpad: true, shared: [reference], packets: [playbooks]}
  budget: {tokens: 400000, dollars: 3.0, warn_at: 0.8, on_breach: fail}
  concurrency: {max_parallel: 3, overflow: skip, max_tasks: 8}
  schedules:
    - {at: ["09:00"], weekdays: [mon, tue], timezone: Europe/Berlin, inputs: {topic: energy}}
  trigger: {webhook_path: /market, secret: "${KEY}"}
  tasks:
    gather:
      objective: "Find pages about {{ inputs.topic }}, fill dataset sources"
      agents: [researcher]
    read:
      depends_on: [gather]
      objective: "Extract key facts from {{ item.url }}"
      iterator: {dataset: sources, parallel: true, concurrency_limit: 5, start_delay: 200, smoketest: true,
                 max_retries: 2, on_error: continue, min_success: 0.6}
      output:
        facts: {type: list, items: string, required: true, description: "Facts with source"}
        score: {type: number}
    judge:
      depends_on: [read]
      objective: "Decide whether the material is sufficient"
      router:
        - {to: write, when: "material is sufficient"}
        - {to: mission:deep_research, when: "important gaps remain"}
    write:
      objective: "Write the report"
      output: {report: {type: string, required: true}}
      budget: {tokens: 60000}
"#;

const ENDPOINTS: &str = "model_groups:
  - {id: planner, models: [{provider: scripted, script: a.yml, input_cost_per_token: 0.1}]}
  - {id: writer, models: [{provider: scripted, script: a.yml, output_cost_per_token: 0.1}]}
  - {id: free, models: [{provider: scripted, script: a.yml}]}
mcp_servers: [{name: web, type: http, url: 'http://localhost/mcp'}]
";
const RESEARCHER: &str =
    "agent: {name: researcher, description: finds pages}\nconnections: {mcp_servers: [{name: web}]}\n";
const DEEP: &str =
    "mission:\n  name: deep_research\n  description: x\n  agents: [researcher]\n  tasks: {dig: {objective: Dig}}\n";

/// Loads a mission with an agent `researcher`, a server `web`, two model groups and a second mission.
fn with(mission: &str) -> LoadResult {
    load(&[
        ("config.yml", ""),
        ("endpoints.yml", ENDPOINTS),
        ("sub_agents/r/config.yml", RESEARCHER),
        ("missions/deep.yml", DEEP),
        ("missions/m.yml", mission),
        (".agents/skills/style/SKILL.md", "---\nname: style\ndescription: How we write\n---\n"),
    ])
}

/// The findings of a mission, without its file name.
fn found(mission: &str) -> Vec<String> {
    let places = places(&with(mission).findings);
    places.iter().map(|place| place.replace("missions/m.yml:", "")).collect()
}

fn mission_of(project: &Project, name: &str) -> std::sync::Arc<MissionDef> {
    project.mission(name).expect("the mission").clone()
}

/// Loads a mission without findings.
fn read(mission: &str) -> std::sync::Arc<MissionDef> {
    let loaded = with(mission);
    assert!(loaded.findings.is_empty(), "{:#?}\n{mission}", loaded.findings);
    mission_of(&loaded.project.unwrap(), "m")
}

/// Checks that a mission has the findings with these codes, in this order, each where the text has a `¦`. Reports all differences.
fn assert_found(cases: &[(&str, String)]) {
    let mut differences = Vec::new();
    for (codes, text) in cases {
        let (text, places) = marked(text);
        assert_eq!(codes.split_whitespace().count(), places.len(), "a mark for each code: {text}");
        let expected: Vec<String> =
            codes.split_whitespace().zip(&places).map(|(code, at)| format!("{code} {at}")).collect();
        let found = found(&text);
        if found != expected {
            differences.push(format!("{text}\n  found {found:?}\n  not   {expected:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

const HEAD: &str = "mission:\n  name: m\n  description: x\n  agents: [researcher]\n";

/// A mission with these lines after the first four, each indented by two.
fn lines(rest: &str) -> String {
    rest.lines().fold(HEAD.to_owned(), |text, line| format!("{text}  {line}\n"))
}

/// A mission with this section and one task.
fn section(text: &str) -> String {
    lines(&format!("{text}\ntasks: {{a: {{objective: Work}}}}"))
}

#[test]
fn folders_have_names_descriptions_and_paths() {
    let mission = read(&lines(
        "memories: [facts]\nstorage:\n  shared: {reference: What is known}\n  packets:\n    rules: ./handbook/rules/\n    style: {path: style, description: How to write}\nlocal_agents:\n  writer: {description: writes, workspace: files}\ntasks:\n  a: {objective: Work, agents: [writer], packets: [style, extra]}",
    ));
    let shared: Vec<(&str, &str)> = mission.storage.shared.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(shared, [("reference", "What is known"), ("facts", "")]);
    let packets = &mission.storage.packets;
    let packets: Vec<_> = packets.iter().map(|(name, one)| (&**name, &*one.path, &*one.description)).collect();
    let expected =
        [("rules", "handbook/rules", ""), ("style", "style", "How to write"), ("extra", "packets/extra", "")];
    assert_eq!(packets, expected);
    assert!(mission.local_agents["writer"].workspace.changes_files());
    assert!(StorageDef::default().is_empty() && !mission.storage.is_empty());
}

#[test]
fn mistakes_in_folders_are_found() {
    assert_found(&[
        ("F0856", section("storage: {shared: [¦memory]}")),
        ("F0856", section("storage: {shared: [a, ¦a]}")),
        ("F0801", section("storage: {shared: [¦A]}")),
        ("F0108", section("storage: {packets: ¦5}")),
        ("F0856", section("storage: {packets: {a: ¦../other}}")),
        ("F0856", section("storage: {packets: {a: ¦/etc}}")),
        ("F0856", section("storage: {packets: {a: ¦.}}")),
        ("F0856", section("storage: {packets: {a: {¦path: 'a/../..'}}}")),
        ("F0856", section("storage: {packets: {a: x}}\npackets: {¦a: y}")),
        ("F0109", section("storage: {packets: {a: ¦{description: x}}}")),
    ]);
}

#[test]
fn the_complete_example_is_read_with_all_its_values() {
    let loaded = with(MARKET_REPORT);
    // Schedules and the webhook are accepted with a warning.
    let warnings = ["F0116 missions/m.yml:25:3", "F0116 missions/m.yml:27:3"];
    assert_eq!(places(&loaded.findings), warnings, "{:#?}", loaded.findings);
    assert!(loaded.findings.iter().all(|finding| !finding.message.contains("Rasa")), "{:?}", loaded.findings);
    let mission = mission_of(&loaded.project.unwrap(), "market_report");
    assert_eq!(&*mission.directive, "Facts with sources; no speculation");
    let commander = &mission.commander;
    assert_eq!((commander.model_group.as_deref(), commander.reasoning.as_deref()), (Some("planner"), Some("low")));
    assert!(commander.plan_required && commander.max_turns == 60 && commander.corrections == 3);
    assert_eq!((commander.context.tool_response_tokens, commander.context.compact_above), (16_000, Some(60_000)));
    assert_eq!(mission.agents, ["researcher", "writer"]);
    let writer = &mission.local_agents["writer"];
    assert_eq!((writer.model_group.as_deref(), writer.tools.len()), (Some("writer"), 0));
    assert_eq!(writer.skills.as_ref().unwrap().skills.len(), 1);
    assert!(mission.inputs["topic"].field.required && !mission.inputs["depth"].field.required);
    assert_eq!(mission.inputs["depth"].default, Some(json!(2)));
    let key = &mission.inputs["api_key"];
    assert_eq!((key.protected, key.secret.as_deref(), key.field.required), (true, Some("hidden"), false));
    assert!(mission.datasets["sources"].schema["url"].required && mission.datasets["sources"].items.is_none());
    assert_eq!((mission.storage.memory.as_deref(), mission.storage.scratchpad), (Some("Finished reports"), true));
    assert!(mission.storage.shared.contains_key("reference"));
    assert_eq!(&*mission.storage.packets["playbooks"].path, "packets/playbooks");
    let budget = mission.budget.unwrap();
    assert_eq!(
        (budget.limits.tokens, budget.limits.cost, budget.on_breach),
        (Some(400_000), Some(3.0), OnBreach::Fail)
    );
    assert_eq!((mission.concurrency.max_parallel, mission.concurrency.max_tasks), (3, 8));
    assert_eq!(mission.tasks.keys().map(|name| &**name).collect::<Vec<_>>(), ["gather", "read", "judge", "write"]);
    let read = &mission.tasks["read"];
    let iterator = read.iterator.as_ref().unwrap();
    assert!(iterator.parallel && iterator.smoke_test && iterator.on_error == OnIterationError::Continue);
    assert_eq!((iterator.start_delay.as_millis(), iterator.max_retries, iterator.min_success), (200, 2, 0.6));
    assert_eq!(*read.output["facts"].schema, json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!((read.output["facts"].kind, read.output["facts"].required), (ValueKind::List, true));
    let NextTasks::Router(routes) = &mission.tasks["judge"].next else { panic!() };
    assert_eq!(routes[0].target, RouteTarget::Task("write".into()));
    assert_eq!(routes[1].target, RouteTarget::Mission("deep_research".into(), None));
    assert_eq!(routes[1].when.as_deref(), Some("important gaps remain"));
    assert_eq!(mission.tasks["write"].budget.unwrap().limits.tokens, Some(60_000));
    assert_eq!((mission.place.line, mission.tasks["judge"].place.line), (2, 40));
}

#[test]
fn a_secret_is_in_no_finding_and_in_no_debug_output() {
    let text = MARKET_REPORT
        .replace("llm: {model_group: planner}", "llm: {provider: openai, model: x, api_key: '${KEY}'}")
        .replace("llm: {model_group: writer}", "llm: {provider: openai, model: x, api_key: '${KEY}'}")
        .replace("depth: {type: integer, default: 2}", "depth: {type: integer, default: '${KEY}'}")
        .replace("{type: string, protected: true, value", "{type: integer, protected: true, value");
    let loaded = with(&text);
    let codes: Vec<&str> = loaded.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == "F0807").count(), 2, "{codes:?}");
    assert!(!format!("{:?}", loaded.findings).contains("hidden"), "{:?}", loaded.findings);
    let text = MARKET_REPORT.replace("{model_group: planner}", "{provider: openai, model: x, api_key: '${KEY}'}");
    let text = text.replace("{model_group: writer}", "{provider: openai, model: x, api_key: '${KEY}'}");
    let project = with(&text).project.unwrap();
    let mission = mission_of(&project, "market_report");
    assert_eq!(mission.inputs["api_key"].secret.as_deref(), Some("hidden"));
    assert_eq!(mission.commander.llm["api_key"], "hidden");
    assert!(!format!("{mission:?}").contains("hidden"), "{mission:?}");
    assert!(!format!("{project:?}").contains("hidden"));
}

#[test]
fn the_forms_of_hcl_and_of_yaml_are_read_alike() {
    let map = "datasets: {pages: {schema: {url: string}, items: [{url: u}]}}\ntasks:\n  a:\n    objective: Work\n    output: {ok: bool, names: {type: list, items: string}}\n    router:\n      - {if: output.ok, then: b}\n      - {to: c, when: more is needed}\n      - else: d\n  b: {objective: B, agents: [researcher], iterator: {dataset: pages}}\n  c: {objective: C}\n  d: {objective: D}\n";
    let list = "dataset: [{name: pages, schema: [{name: url, type: string}], items: [{url: u}]}]\ntask:\n  - name: a\n    objective: Work\n    output: {field: [{name: ok, type: boolean}, {name: names, type: array, items: {type: string}}]}\n    router:\n      route:\n        - {target: tasks.b, if: output.ok}\n        - {target: task:c, condition: more is needed}\n        - {target: d, else: true}\n  - {name: b, objective: B, agents: [agents.researcher], iterator: {dataset: datasets.pages}}\n  - {name: c, objective: C}\n  - {name: d, objective: D}\n";
    let shape = |text: &str| {
        let mission = read(&lines(text));
        let task = &mission.tasks["a"];
        let NextTasks::Router(routes) = &task.next else { panic!() };
        let of_route = |route: &crate::project::missions::RouteDef| {
            let condition = route.condition.as_ref().map(|condition| condition.source().text().to_owned());
            format!("{:?} {:?} {condition:?}", route.target, route.when)
        };
        let output: Vec<String> = task.output.iter().map(|(name, field)| format!("{name} {field:?}")).collect();
        let routes: Vec<String> = routes.iter().map(of_route).collect();
        let b = &mission.tasks["b"];
        let dataset = &mission.datasets["pages"];
        format!("{output:?} {routes:?} {:?} {:?} {:?} {:?}", b.agents, b.iterator, dataset.schema, dataset.items)
    };
    assert_eq!(shape(map), shape(list));
    assert!(shape(map).contains("output.ok"), "{}", shape(map));
}

#[test]
fn fields_are_read_in_short_and_long_form() {
    let output = r#"tasks:
  a:
    objective: Work
    output:
      a: 'list(map(number), "Rows", true)'
      b: {type: array, items: {type: object, properties: {url: {type: string, required: true}, rank: integer}}}
      c: {type: map, values: {type: integer, minimum: 1, maximum: 5}}
      d: {type: string, enum: [yes, 'no', 3], pattern: '^[yn3]'}
      e: any_primitive
      f: {type: object, properties: [{name: x, type: any}]}
"#;
    let mission = read(&lines(output));
    let schema = |name: &str| (*mission.tasks["a"].output[name].schema).clone();
    assert_eq!(
        schema("a"),
        json!({"type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}})
    );
    assert!(mission.tasks["a"].output["a"].required && &*mission.tasks["a"].output["a"].description == "Rows");
    let row = json!({"type": "object", "properties": {"url": {"type": "string"}, "rank": {"type": "integer"}}, "required": ["url"]});
    assert_eq!(schema("b"), json!({"type": "array", "items": row}));
    let values = json!({"type": "integer", "minimum": 1, "maximum": 5});
    assert_eq!(schema("c"), json!({"type": "object", "additionalProperties": values}));
    assert_eq!(schema("d"), json!({"type": "string", "enum": ["yes", "no", "3"], "pattern": "^[yn3]"}));
    assert_eq!(schema("e"), json!({"type": ["string", "number", "boolean"]}));
    assert_eq!(schema("f"), json!({"type": "object", "properties": {"x": {}}}));
}

#[test]
fn defaults_are_read_by_the_type_of_the_input() {
    let mission = read(&section(
        "inputs:\n  a: {type: string, default: 010}\n  b: {type: integer, default: '${PORT}'}\n  c: {type: list, items: number, default: '[1, 2]'}\n  d: {type: bool, default: 'false'}\n  e: {type: string, default: null, required: false}\n  f: 'number(\"Rate\", {default = 0.5})'\n  g: 'string(\"Name\", false)'\n  h: {type: object, default: {x: 1}}",
    ));
    let defaults: Vec<_> =
        mission.inputs.values().map(|input| input.default.clone().unwrap_or(json!("none"))).collect();
    assert_eq!(
        defaults,
        [
            json!("010"),
            json!(5055),
            json!([1, 2]),
            json!(false),
            json!(null),
            json!(0.5),
            json!("none"),
            json!({"x": 1})
        ]
    );
    let required: Vec<&str> =
        mission.inputs.iter().filter(|(_, input)| input.field.required).map(|(name, _)| &**name).collect();
    assert_eq!(required, ["g"]);
}

#[test]
fn protection_of_a_part_makes_the_whole_input_protected() {
    let text = "inputs:\n  ¦login:\n    type: object\n    properties: {key: 'string(\"Key\", {protected = true})'}\n";
    assert_found(&[
        ("F0808", section(text)),
        // The variable is not set: one finding, and none about the value.
        ("F0110", section(&format!("{}    value: ¦'${{LOGIN}}'", text.replace('¦', "")))),
    ]);
}

#[test]
fn the_name_of_a_mission_is_that_of_its_file_by_default() {
    let mission = read(
        "mission:\n  description: x\n  commander: planner\n  agents: [researcher]\n  tasks: {a: {objective: Work}}\n",
    );
    assert_eq!((&*mission.name, mission.commander.model_group.as_deref()), ("m", Some("planner")));
    assert_eq!((mission.commander.max_turns, mission.concurrency.max_tasks), (60, 8));
    assert!(matches!(mission.tasks["a"].next, NextTasks::None));
}

#[test]
fn objectives_may_have_conditions_and_loops() {
    let objective = "tasks:\n  a:\n    objective: |\n      {% if inputs.deep %}Dig {% else %}Look {% endif %}\n      {% for name in inputs.names %}{{ loop.index }}. {{ name | upper }}\n      {% endfor %}Use ${secrets.token}.";
    let inputs = "inputs: {deep: bool, names: list(string), token: {type: string, protected: true, value: '${KEY}'}}\n";
    let mission = read(&lines(&format!("{inputs}{objective}")));
    let context = minijinja::context! { inputs => minijinja::context! { deep => true, names => ["a", "b"] } };
    let text = mission.tasks["a"].objective.render(context).unwrap();
    assert_eq!(text, "Dig \n1. A\n2. B\nUse ${secrets.token}.");
    let missing = minijinja::context! { inputs => minijinja::context! { names => ["a"] } };
    assert!(mission.tasks["a"].objective.render(missing).is_err(), "a missing input is an error");
}

#[test]
fn names_and_their_mistakes_are_found() {
    let head = HEAD.replace("name: m", "name: ¦Market Report");
    assert_found(&[
        ("F0801", format!("{head}  tasks: {{a: {{objective: W}}}}\n")),
        ("F0801 F0801", lines("tasks: {¦Do It: {objective: W}, ¦none: {objective: N}}")),
        ("F0802 F0109", lines("tasks: [{name: a, objective: W}, {name: ¦a, objective: W}, ¦{objective: W}]")),
        ("F0802", lines("tasks: {a: {name: ¦b, objective: W}}")),
        ("F0804", lines("¦tasks: {}")),
        ("F0108", lines("tasks: ¦a")),
        ("F0801", section("inputs: {¦a-b: string}")),
        ("F0802", DEEP.replace("name: ", "name: ¦")),
        ("F0803", section("local_agents: {¦researcher: {description: x}}")),
        ("F0822 F0505", section("local_agents: {¦own: {description: x, tools: [web.search, ¦mcp.nowhere.all]}}")),
    ]);
    let flow = "flows:\n  m:\n    description: x\n    steps: [{action: action_listen}]\n";
    let loaded = load(&[
        ("config.yml", ""),
        ("endpoints.yml", ENDPOINTS),
        ("sub_agents/r/config.yml", RESEARCHER),
        ("data/a.yml", flow),
        ("missions/m.yml", &section("")),
        ("missions/n.yml", &section("").replace("name: m", "name: researcher")),
    ]);
    assert_eq!(places(&loaded.findings), ["F0803 missions/m.yml:2:9", "F0803 missions/n.yml:2:9"]);
}

#[test]
fn unknown_and_later_keys_are_found_in_every_block() {
    assert_found(&[
        ("F0214", section("¦folders: [a]")),
        ("F0107", section("¦colour: red")),
        ("F0107", section("commander: {¦modle: x}")),
        ("F0116", section("commander: {¦pruning: {prune_on: 3}}")),
        ("F0116", section("commander: {compaction: {token_limit: 9, ¦summary: model}}")),
        ("F0107", section("commander: {tool_response: {¦bytes: 9}}")),
        ("F0107", section("storage: {¦disk: x}")),
        ("F0107", section("budget: {tokens: 5, ¦euros: 3}")),
        ("F0111", section("budget: {tokens: 5, on_breach: ¦wait}")),
        ("F0116", section("concurrency: {¦overflow: replace}")),
        ("F0107", section("inputs: {a: {type: string, ¦secret: true}}")),
        ("F0107", section("datasets: {a: {¦rows: []}}")),
        ("F0116 F0107", section("¦trigger: {¦path: x}")),
        ("F0116 F0601", section("¦trigger: {secret: ¦written}")),
        ("F0116", section("¦notification: {gateway: {enabled: true}}")),
        ("F0843", lines("tasks: {a: {objective: W, repeat: {until: ¦x}}}")),
        ("F0107", lines("tasks: {a: {objective: W, ¦routers: []}}")),
        ("F0214", lines("tasks: {a: {objective: W, router: [{to: b, ¦max_visits: 3}]}, b: {objective: B}}")),
        ("F0109 F0107", lines("tasks: {a: {objective: W, router: ¦{¦rout: []}}}")),
        ("F0107", lines("datasets: {x: {items: []}}\ntasks: {a: {objective: W, iterator: {dataset: x, ¦width: 3}}}")),
        ("F0107", lines("tasks: {a: {objective: W, output: {a: {type: string, ¦format: x}}}}")),
    ]);
}

#[test]
fn mistakes_in_fields_and_inputs_are_found() {
    let input = |text: &str| section(&format!("inputs: {{{text}}}"));
    assert_found(&[
        ("F0805", input("a: ¦text")),
        ("F0805", input("a: ¦'list(file)'")),
        ("F0805", input("a: {type: list, items: ¦file}")),
        ("F0805", lines("tasks: {a: {objective: W, output: {x: ¦file}}}")),
        ("F0111", lines("tasks: {a: {objective: W, output: {x: {type: ¦file}}}}")),
        ("F0805", input("a: ¦list(strin)")),
        ("F0111", input("a: {type: ¦text}")),
        ("F0806", input("a: {type: number, ¦pattern: x}")),
        ("F0806", input("a: {type: string, pattern: ¦'('}")),
        ("F0806", input("a: {type: integer, minimum: 5, ¦maximum: 1}")),
        ("F0806", input("a: {type: string, ¦enum: []}")),
        ("F0806", input("a: {type: integer, enum: [1, ¦x]}")),
        ("F0806", input("a: {type: string, ¦items: string}")),
        ("F0805", input("a: {type: list, items: ¦strnig}")),
        ("F0807", input("a: {type: integer, default: ¦two}")),
        ("F0807", input("a: {type: list, items: number, default: ¦[x]}")),
        ("F0807", input("a: {type: integer, maximum: 5, default: ¦9}")),
        ("F0807", input("¦a: 'integer(\"x\", {default = \"y\"})'")),
        ("F0808", input("¦a: {type: string, protected: true}")),
        ("F0808", input("a: {type: string, ¦value: '${KEY}'}")),
        ("F0808", input("a: {type: string, default: x, ¦tools: [web]}")),
        ("F0808", input("a: {type: string, protected: true, value: ¦'${SHORT}'}")),
        ("F0808", input("a: {type: boolean, protected: true, value: ¦'${YES}'}")),
        ("F0505", input("a: {type: string, protected: true, value: '${KEY}', tools: [web.look, http_get, ¦bash]}")),
        ("F0601", input("a: {type: string, protected: true, value: ¦plain}")),
        ("F0808", input("a: {type: string, protected: true, value: '${KEY}', ¦default: x}")),
        ("F0809", input("a: {type: string, ¦required: false}")),
        ("F0809", input("a: {type: string, ¦required: true, default: x}")),
        ("F0801", lines("tasks: {a: {objective: W, output: {¦a.b: string}}}")),
    ]);
}

#[test]
fn values_outside_their_range_are_replaced_with_a_warning() {
    let text = "commander: {max_turns: 5000, corrections: 99, tool_response: {max_tokens: 250000}}\nconcurrency: {max_parallel: 1000}";
    let loaded = with(&section(text));
    assert_eq!(
        places(&loaded.findings),
        [
            "F0810 missions/m.yml:5:15",
            "F0810 missions/m.yml:5:32",
            "F0810 missions/m.yml:5:65",
            "F0810 missions/m.yml:6:17"
        ]
    );
    let mission = mission_of(&loaded.project.unwrap(), "m");
    assert_eq!((mission.commander.max_turns, mission.commander.corrections), (1_000, 20));
    assert_eq!((mission.commander.context.tool_response_tokens, mission.concurrency.max_parallel), (64_000, 64));
}

#[test]
fn mistakes_in_budgets_are_found() {
    assert_found(&[
        ("F0811", section("¦budget: {}")),
        ("F0811", section("budget: {¦tokens: 0}")),
        ("F0811", section("budget: {¦dollars: -1}")),
        ("F0811", section("budget: {tokens: 1, ¦warn_at: 80}")),
        ("F0108", section("budget: {tokens: ¦many}")),
        (
            "F0817",
            section("budget: {dollars: 5}\ncommander: {llm: {model_group: free}}").replace("name: m", "name: ¦m"),
        ),
        ("F0811", lines("budget: {tokens: 100}\ntasks: {a: {objective: W, ¦budget: {tokens: 200}}}")),
    ]);
}

#[test]
fn objectives_that_read_what_does_not_exist_are_found() {
    let inputs = "inputs: {topic: string, token: {type: string, protected: true, value: '${KEY}'}}";
    let datasets = "datasets: {pages: {schema: {url: string}, items: [{url: u}]}}";
    let task = |text: &str| lines(&format!("{inputs}\n{datasets}\ntasks:\n  a:\n    objective: {text}\n"));
    assert_found(&[
        ("", task("Write about {{ inputs.topic }}")),
        ("F0812", task("'Write about {{ ¦inputs.topci }}'")),
        ("F0812", task("About {{ ¦topic }}")),
        ("F0812", task("About {{ ¦vars.x }}")),
        ("F0812", task("|\n      ¦About\n      {{ vars.x }}")),
        ("F0813", task("Call with {{ ¦inputs.token }}")),
        ("F0814", task("Read {{ ¦item.url }}")),
        ("F0814", task("Read {{ ¦item.url }}\n    iterator: {dataset: pages}")),
        ("", task("Read {{ item.url }}\n    iterator: {dataset: pages, parallel: true}")),
        ("F0815", task("Read {{ ¦item.link }}\n    iterator: {dataset: pages, parallel: true}")),
        ("F0816 F0816", task("Write about ¦${inputs.topic} in ¦${HOME}")),
        ("F0816", task("Use ${secrets.token} and ¦${secrets.other}")),
        ("F0406", task("'Broken {{ inputs.¦topic'")),
        ("F0406", task("'{{ inputs.topic | ¦uper }}'")),
        ("F0109", task("¦''")),
    ]);
}

#[test]
fn agents_must_be_known() {
    let agents = HEAD.replace("[researcher]", "[¦resercher, researcher, ¦researcher]");
    assert_found(&[
        ("F0820 F0832", format!("{agents}  tasks: {{a: {{objective: W}}}}\n")),
        ("F0820", lines("tasks: {a: {objective: W, agents: [¦writer]}}")),
        ("F0821", HEAD.replace("[researcher]", "[]") + "  tasks: {¦a: {objective: W, agents: []}}\n"),
        ("F0108", HEAD.replace("  agents: [researcher]\n", "") + "  tasks: {a: {objective: W, agents: ¦writer}}\n"),
        ("F0821", "mission:\n  name: m\n  description: x\n  tasks: {¦a: {objective: W}}\n".to_owned()),
    ]);
}

#[test]
fn mistakes_in_datasets_and_iterators_are_found() {
    let iterator = |text: &str, mark: &str| {
        let datasets = "datasets: {pages: {items: [{url: u}]}, empty: }";
        lines(&format!("{datasets}\ntasks: {{{mark}a: {{objective: W, iterator: {{{text}}}}}}}"))
    };
    assert_found(&[
        ("F0108", section("datasets: {a: {items: ¦x}}")),
        ("F0825", section("datasets: {a: {items: [¦x]}}")),
        ("F0825", section("datasets: {a: {schema: {url: 'string(\"\", true)'}, items: [{url: u}, ¦{name: n}]}}")),
        ("F0825", section("datasets: {a: {schema: {n: integer}, items: [{n: 1}, {n: ¦x}]}}")),
        ("F0826", section("inputs: {rows: list}\ndatasets: {a: {items: [], ¦bind_to: rows}}")),
        ("F0826", section("inputs: {rows: list}\ndatasets: {a: {¦bind_to: row}}")),
        ("F0826", section("inputs: {rows: string}\ndatasets: {a: {¦bind_to: rows}}")),
        ("F0827", iterator("dataset: ¦pags, parallel: true", "")),
        ("F0828", iterator("dataset: empty, parallel: true", "¦")),
        ("F0829 F0829", iterator("dataset: pages, ¦max_retries: 2, ¦on_error: continue", "")),
        ("F0829", iterator("dataset: pages, parallel: true, ¦session: fresh", "")),
        ("F0829", iterator("dataset: pages, parallel: true, ¦min_success: 0.5", "")),
        ("F0829", iterator("dataset: pages, parallel: true, on_error: continue, ¦min_success: 5", "")),
        ("F0810", iterator("dataset: pages, parallel: true, ¦concurrency_limit: 500", "")),
        ("", iterator("dataset: pages, session: fresh", "")),
        (
            "",
            lines(
                "datasets: {pages: {}}\ntasks: {a: {objective: F}, b: {objective: W, depends_on: a, iterator: {dataset: pages}}}",
            ),
        ),
    ]);
}

/// A mission with tasks that are written as `name: keys`.
fn tasks(tasks: &[&str]) -> String {
    let task = |task: &&str| format!("\n  {}}}", task.replacen(": ", ": {objective: W, ", 1));
    lines(&format!("tasks:{}", tasks.iter().map(task).collect::<String>()))
}

#[test]
fn mistakes_in_the_graph_are_found() {
    assert_found(&[
        ("F0836", tasks(&["a: depends_on: []", "b: depends_on: [a]", "c: depends_on: [¦a, b]"])),
        ("F0830", tasks(&["a: send_to: [b, ¦d]", "b: depends_on: []"])),
        ("F0830", tasks(&["a: depends_on: [¦x]"])),
        ("F0831", tasks(&["a: depends_on: [¦a]", "b: depends_on: []"])),
        ("F0832", tasks(&["a: send_to: [b, ¦b]", "b: depends_on: []"])),
        ("F0832", tasks(&["a: router: [{to: b}, {to: ¦b, when: x}]", "b: depends_on: []"])),
        ("F0833", tasks(&["s: depends_on: []", "¦a: depends_on: [b]", "b: depends_on: [a]"])),
        (
            "F0833 F0840",
            tasks(&["s: depends_on: []", "¦a: depends_on: [b]", "b: depends_on: [a]", "¦c: depends_on: [b]"]),
        ),
        // What only follows from the cycle is not reported.
        ("F0833", tasks(&["¦a: depends_on: [b], send_to: [b]", "b: depends_on: []"])),
        ("F0834", tasks(&["a: send_to: [b]", "c: depends_on: []", "¦b: depends_on: [c]"])),
        ("F0835", tasks(&["a: send_to: [b]", "b: depends_on: []", "c: depends_on: [¦b]"])),
        ("F0833", tasks(&["¦a: depends_on: [b]", "b: depends_on: [a]"])),
        ("F0839", tasks(&["a: router: [{to: b}], ¦send_to: [b]", "b: depends_on: []"])),
        (
            "F0838",
            lines(
                "datasets: {pages: {items: [{url: u}]}}\ntasks:\n  ¦a: {objective: W, iterator: {dataset: pages, parallel: true}, router: [{to: b}]}\n  b: {objective: W}",
            ),
        ),
    ]);
    let text = tasks(&["s: send_to: [a]", "a: send_to: [b]", "b: send_to: [a]"]);
    let cycle = with(&text).findings.into_iter().find(|finding| finding.code == "F0833").unwrap();
    assert!(cycle.message.ends_with("`a` → `b` → `a`"), "{cycle:?}");
}

#[test]
fn mistakes_in_routes_are_found() {
    let routes = |routes: &str| {
        tasks(&[&format!("a: output: {{ok: bool}}, router: {routes}"), "b: depends_on: []", "c: depends_on: []"])
    };
    let iterated = |condition: &str| {
        let task = format!(
            "a: {{objective: W, output: {{ok: bool}}, iterator: {{dataset: d}}, router: [{{to: b, if: {condition}}}]}}"
        );
        lines(&format!("datasets: {{d: {{items: []}}}}\ntasks:\n  {task}\n  b: {{objective: B}}"))
    };
    assert_found(&[
        ("", routes("[{to: b, if: output.ok}, {to: c}]")),
        ("", routes("[{to: 'mission:deep_research#dig', if: 'inputs | length == 0'}, {else: c}]")),
        ("F0841", routes("¦[]")),
        ("F0841", routes("[¦{when: x}]")),
        ("F0841", routes("[{to: ¦'mission:'}]")),
        ("F0841", routes("[{to: ¦'mission:deep_research#'}]")),
        ("F0841", routes("[{to: b, when: x, ¦if: output.ok}]")),
        ("F0841", routes("[{to: b, if: output.ok, ¦else: true}]")),
        ("F0841", routes("[{to: b, else: ¦c}]")),
        ("F0841", routes("[{to: b}, ¦{to: c}]")),
        ("F0842", routes("[{to: ¦mission:deep}]")),
        ("F0842", routes("[{to: ¦'mission:deep_research#digg'}]")),
        ("F0843", routes("[{to: b, if: ¦output.okay}]")),
        ("F0843", routes("[{to: b, if: ¦ok}]")),
        ("F0812", routes("[{to: b, if: ¦inputs.x}]")),
        ("F0407", routes("[{to: b, if: '¦{{ output.ok }}'}]")),
        ("F0843", tasks(&["a: router: [{to: b, if: ¦output.ok}]", "b: depends_on: []"])),
        ("F0843", iterated("¦output.ok")),
        ("", iterated("'output | length > 2'")),
        ("F0832", tasks(&["a: router: [{to: b}, {to: ¦'tasks.b', when: x}]", "b: depends_on: []"])),
    ]);
}

#[test]
fn a_file_needs_an_agent_that_reads_it_and_no_route_can_pass_one() {
    let mission = |agent: &str, input: &str| {
        format!(
            "mission:\n  description: x\n  agents: [w]\n  local_agents: {{w: {{description: x{agent}}}}}\n  inputs: {{notes: {input}}}\n  tasks: {{a: {{objective: 'Read {{{{ inputs.notes }}}}'}}}}\n"
        )
    };
    let found = |files: &[(&str, &str)]| places(&load(&[&[("config.yml", "")], files].concat()).findings);
    let short = "'file(\"What is known\")'";
    let reads = mission(", workspace: read", short);
    assert_eq!(found(&[("missions/m.yml", &reads)]), [""; 0]);
    assert_eq!(found(&[("missions/m.yml", &mission("", short))]), ["F0818 missions/m.yml:1:1"]);
    for (code, input) in [
        ("F0807", "{type: file, ¦default: x}"),
        ("F0808", "{type: file, ¦protected: true}"),
        ("F0806", "{type: file, ¦enum: [x]}"),
        ("F0806", "{type: file, ¦pattern: x}"),
    ] {
        let (text, at) = marked(&mission(", workspace: read", input));
        assert_eq!(found(&[("missions/m.yml", &text)]), [format!("{code} missions/m.yml:{}", at[0])], "{input}");
    }
    let before = "mission:\n  description: x\n  agents: [w]\n  local_agents: {w: {description: x}}\n  tasks: {a: {objective: W, router: [{to: 'mission:m', when: x}]}}\n";
    assert_eq!(found(&[("missions/m.yml", &reads), ("missions/n.yml", before)]), ["F0819 missions/n.yml:5:43"]);
}

#[test]
fn a_project_without_missions_has_none() {
    let project = clean(&[("config.yml", "")]);
    assert!(project.missions.is_empty() && project.subagents.types.len() == 1);
}

#[test]
fn a_large_graph_is_checked_in_one_pass() {
    // A chain of activated tasks against the order of declaration, and a task that waits for many.
    let mut text = String::from("tasks:");
    for at in (1..800).rev() {
        text += &format!("\n  t{at}: {{objective: W, send_to: [t{}]}}", at + 1);
    }
    text += "\n  t800: {objective: W}";
    let names: Vec<String> = (0..200).map(|at| format!("s{at}")).collect();
    names.iter().for_each(|name| text += &format!("\n  {name}: {{objective: W}}"));
    text += &format!("\n  end: {{objective: W, depends_on: [{}]}}", names.join(", "));
    assert_eq!(read(&lines(&text)).tasks.len(), 1_001);
}

#[test]
fn a_damaged_mission_has_findings_and_never_a_secret_in_them() {
    let written: Vec<&str> = MARKET_REPORT.lines().collect();
    for at in 0..written.len() {
        for value in [None, Some("~"), Some("[x]"), Some("{x: 1}"), Some("5"), Some("'${KEY}'")] {
            let mut changed = written.clone();
            let line = match (value, written[at].split_once(": ")) {
                (Some(value), Some((key, _))) => format!("{key}: {value}"),
                _ => String::new(),
            };
            changed[at] = &line;
            let text = changed.join("\n");
            let files = [("endpoints.yml", ENDPOINTS), ("missions/deep.yml", DEEP), ("missions/m.yml", &text)];
            let loaded = Project::load(&sources(&files));
            assert!(loaded.project.is_some() || !loaded.findings.is_empty(), "{line}");
            assert!(!format!("{:?}", loaded.findings).contains("hidden"), "{line}: {:?}", loaded.findings);
        }
    }
}

#[test]
fn rounds_questions_and_limits_over_runs_are_read() {
    let text = lines(
        "inputs: {issue: {type: string}}\nconcurrency: {key: 'issue-{{ inputs.issue }}', limit: 2, overflow: queue}\ntasks: {a: {title: 'Quality: \"Assurance\"', objective: W, output: {ok: bool}, repeat: {until: output.ok, max: 5, on_exhausted: continue}, questions: {timeout_seconds: 60, default: later, agents: [researcher]}, router: [{to: b, no_answer: true}, {to: 'mission:deep_research#dig', when: good, hand_over: [outputs]}]}, b: {objective: B}, end: {objective: E, always: true}}",
    );
    let mission = read(&text);
    assert!(mission.concurrency.key.is_some());
    assert_eq!((mission.concurrency.limit, mission.concurrency.overflow), (2, OnOverflow::Queue));
    let task = &mission.tasks["a"];
    let repeat = task.repeat.as_ref().unwrap();
    assert_eq!((repeat.until.source().text(), repeat.max), ("output.ok", 5));
    assert_eq!(repeat.on_exhausted, OnExhausted::Continue);
    assert_eq!((task.questions.timeout_seconds, task.questions.default.as_deref()), (Some(60), Some("later")));
    assert_eq!(task.questions.agents, ["researcher"]);
    assert_eq!(task.title.as_deref(), Some("Quality: \"Assurance\""));
    let NextTasks::Router(routes) = &task.next else { panic!() };
    assert!(routes[0].no_answer && routes[0].hand_over.is_empty());
    assert!(routes[1].hand_over.outputs && !routes[1].hand_over.summaries);
    assert!(mission.tasks["end"].always);
}

#[test]
fn mistakes_in_rounds_limits_and_last_tasks_are_found() {
    assert_found(&[
        ("F0812", section("concurrency: {key: '{{ ¦inputs.issue }}'}")),
        ("F0812", section("concurrency: {key: '{{ ¦topic }}'}")),
        ("F0845", section("concurrency: {¦limit: 2}")),
        ("F0846", lines("tasks: {a: {objective: W, questions: {¦default: x}}}")),
        ("F0849", lines("tasks: {a: {objective: W, questions: {agents: [researcher, ¦researchr]}}}")),
        ("F0847", lines("tasks: {a: {objective: Call ¦dataset_set now.}}")),
        ("F0847", lines("tasks: {a: {objective: Then ¦task_completed.}}")),
        ("F0848", lines("tasks: {a: {objective: W}, b: {objective: W, always: true, ¦depends_on: [a]}}")),
        (
            "F0841",
            lines("tasks: {a: {objective: W, router: [{to: b, when: x, ¦hand_over: [outputs]}]}, b: {objective: B}}"),
        ),
        ("F0841", lines("tasks: {a: {objective: W, router: [{to: b, when: x, ¦no_answer: true}]}, b: {objective: B}}")),
    ]);
}
