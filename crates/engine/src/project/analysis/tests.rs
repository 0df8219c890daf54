//! Each analysis finds its defects at the right location and does not report what may be intended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::super::load::tests::load_and_analyse;
use crate::finding::{Finding, Severity};

const DOMAIN: &str = "slots:
  amount: {type: float}
  limit: {type: float, initial_value: 1}
  name: {type: text}
  size: {type: categorical, values: [small, large]}
  ready: {type: bool}
  state: {type: categorical, values: [open, done], mappings: [{type: controlled}]}
  inside: {type: bool, mappings: [{type: controlled}]}
responses:
  utter_ask_amount: [{text: How much?}]
  utter_ask_limit: [{text: At most?}]
  utter_ask_name: [{text: Who?}]
  utter_ask_size: [{text: Which?}]
  utter_ask_ready: [{text: Ready?}]
  utter_ok: [{text: ok}]
  utter_all: [{text: '{amount} {limit} {name} {size} {ready} {state} {inside}'}]
";
const ENDPOINTS: &str = "mcp_servers: [{name: srv, url: 'http://localhost/mcp', type: http}]\n";
const AGENT: &str = "agent: {name: helper, description: helps}\nconnections: {mcp_servers: [{name: srv}]}\n";

fn findings(domain: &str, flows: &str) -> Vec<Finding> {
    let files = [
        ("config.yml", "recipe: default.v1\n"),
        ("endpoints.yml", ENDPOINTS),
        ("domain.yml", domain),
        ("data/a.yml", flows),
    ];
    let with_agent = flows.contains("call: helper");
    let agent = with_agent.then_some(("sub_agents/helper/config.yml", AGENT));
    load_and_analyse(&files.into_iter().chain(agent).collect::<Vec<_>>()).findings
}

/// The findings in flows, as `code line`, without those about unused definitions of the domain.
fn found(flows: &str) -> Vec<String> {
    let flows = flows.replace("HEAD", "description: does something useful\n    steps:");
    let all = findings(DOMAIN, &format!("flows:\n{flows}"));
    let reported = all.iter().filter(|f| &*f.place.file == "data/a.yml" && f.code != "F0247");
    reported.map(|f| format!("{} {}", f.code, f.place.line)).collect()
}

/// The same for the steps of one flow, which start on line 5.
fn steps(steps: &str) -> Vec<String> {
    found(&format!("  a:\n    HEAD\n{steps}"))
}

/// A collect step for `slot`, then a branch with `condition` on line 7.
fn branch(slot: &str, condition: &str) -> Vec<String> {
    steps(&format!(
        "      - collect: {slot}\n        next:\n          - if: {condition}\n            then: END\n          - else: on\n      - id: on\n        action: utter_ok\n"
    ))
}

#[test]
fn conditions_that_are_never_or_always_true() {
    for (slot, condition) in [
        ("amount", "slots.amount > 10 and slots.amount < 5"),
        ("size", "slots.size is \"small\" and slots.size is \"large\""),
        ("name", "slots.name is \"a\" and slots.name is null"),
        ("amount", "not (slots.amount > 5 or slots.amount is null) and slots.amount > 7"),
        ("ready", "slots.ready and not slots.ready"),
    ] {
        assert_eq!(branch(slot, condition), ["F0410 7"], "{condition}");
    }
    for (slot, condition) in [
        ("size", "slots.size != \"small\" or slots.size != \"large\""),
        ("size", "slots.size != \"huge\""),
        ("amount", "slots.amount is null or slots.amount <= 5 or slots.amount > 5"),
    ] {
        assert_eq!(branch(slot, condition), ["F0411 7"], "{condition}");
    }
    for (slot, condition) in [
        ("amount", "slots.amount > 5 and slots.amount < 10"),
        ("amount", "slots.amount > 5 and slots.limit < 4"),
        ("amount", "slots.amount > slots.limit and slots.amount < slots.limit"),
        ("name", "slots.name matches \"a\" and slots.name matches \"b\""),
        ("name", "slots.name contains \"a\" and slots.name != \"a\""),
        ("size", "slots.size is not \"small\""),
        ("ready", "slots.ready"),
    ] {
        assert_eq!(branch(slot, condition), [""; 0], "{condition}");
    }
}

#[test]
fn values_from_earlier_steps_are_known() {
    // The slot has a value, and a rejection excludes the other values.
    assert_eq!(branch("name", "slots.name is null"), ["F0413 7"]);
    let limited = "      - collect: amount\n        rejections: [{if: slots.amount > 9, utter: utter_ok}]\n        next:\n          - if: slots.amount > 50\n            then: END\n          - else: END\n";
    assert_eq!(steps(limited), ["F0413 8"]);
    let state = |then: &str| {
        format!(
            "      - set_slots: [{{state: open}}]\n      - {then}\n        next:\n          - if: slots.state is \"done\"\n            then: END\n          - else: END\n"
        )
    };
    assert_eq!(steps(&state("action: utter_ok")), ["F0413 8"]);
    // A tool may have changed it, and so may another flow that sets it while the assistant waits.
    let call =
        "call: t\n        mcp_server: srv\n        mapping: {input: [], output: [{slot: state, value: result.x}]}";
    assert_eq!(steps(&state(call)), [""; 0]);
    let other = "  b:\n    description: something else entirely\n    steps:\n      - set_slots: [{state: done}]\n      - action: utter_all\n";
    assert_eq!(found(&format!("{other}  a:\n    HEAD\n{}", state("collect: name"))), [""; 0]);
    assert_eq!(found(&format!("  a:\n    HEAD\n{}", state("collect: name"))), ["F0413 8"]);
}

#[test]
fn branches_covered_by_branches_above() {
    let two = |slot: &str, first: &str, second: &str| {
        steps(&format!(
            "      - collect: {slot}\n        next:\n          - if: {first}\n            then: END\n          - if: {second}\n            then: END\n          - else: END\n"
        ))
    };
    assert_eq!(two("amount", "slots.amount > 10", "slots.amount > 100"), ["F0412 9"]);
    assert_eq!(two("amount", "slots.amount > 100", "slots.amount > 10"), [""; 0]);
    assert_eq!(two("name", "slots.name matches \"x\"", "slots.name matches \"x\""), ["F0412 9"]);
    assert_eq!(two("name", "slots.name matches \"x\"", "slots.name matches \"y\""), [""; 0]);
    // `else` is required: only a note.
    assert_eq!(two("ready", "slots.ready", "not slots.ready"), ["F0414 11"]);
    assert_eq!(two("size", "slots.size is \"small\"", "slots.size is \"large\""), ["F0414 11"]);
    assert_eq!(two("size", "slots.size is \"small\"", "slots.limit is null"), [""; 0]);
}

#[test]
fn steps_after_an_error_are_reachable_with_unknown_values() {
    // After the collect step the slot has a value; after its error it may be null.
    let flow = "      - collect: size\n        on_error: late\n        next: END\n      - id: late\n        action: utter_ok\n        next:\n          - if: slots.size is null\n            then: END\n          - else: END\n";
    assert_eq!(steps(flow), [""; 0]);
    let flow = "      - action: utter_ok\n        next: behind\n        on_error: failed\n      - id: behind\n        collect: size\n        next: END\n      - id: failed\n        action: utter_ok\n";
    assert_eq!(steps(flow), [""; 0]);
}

#[test]
fn findings_contain_the_shortest_path() {
    let flow = "flows:\n  a:\n    description: does something useful\n    steps:\n      - id: ask\n        collect: amount\n        next:\n          - if: slots.amount > 100\n            then:\n              - action: utter_ok\n                next:\n                  - if: slots.amount < 50\n                    then: END\n                  - else: END\n          - else: END\n";
    let all = findings(DOMAIN, flow);
    let one = all.iter().find(|f| f.code == "F0413").unwrap();
    assert_eq!(one.message, "this is never true here: `amount` is more than 100");
    assert!(
        one.help.ends_with("Reached by: start → ask → [slots.amount > 100] → utter_ok → [slots.amount < 50]."),
        "{}",
        one.help
    );
    // A long path is truncated in the middle.
    let chain = "      - action: utter_ok\n".repeat(crate::limits::PATH_STEPS + 5);
    let long = format!(
        "flows:\n  a:\n    description: does something useful\n    steps:\n{chain}      - collect: amount\n        next:\n          - if: slots.amount is null\n            then: END\n          - else: END\n"
    );
    let all = findings(DOMAIN, &long);
    let one = all.iter().find(|f| f.code == "F0413").unwrap();
    assert_eq!(one.help.matches(" → ").count(), crate::limits::PATH_STEPS, "{}", one.help);
    assert!(one.help.contains("→ … →"), "{}", one.help);
}

#[test]
fn rejections_and_exit_conditions() {
    let reject = |condition: &str| {
        steps(&format!(
            "      - collect: amount\n        rejections:\n          - if: {condition}\n            utter: utter_ok\n      - action: utter_ok\n"
        ))
    };
    assert_eq!(reject("slots.amount < 1 and slots.amount > 9"), ["F0410 7"]);
    assert_eq!(reject("slots.amount < 10 or slots.amount > 9"), ["F0416 7"]);
    assert_eq!(reject("slots.amount < 1 or slots.amount > 9"), [""; 0]);
    assert_eq!(reject("not (slots.amount > 0)"), [""; 0]);
    let exit = |conditions: &str| {
        steps(&format!("      - call: helper\n        exit_if:\n          - {conditions}\n      - action: utter_all\n"))
    };
    assert_eq!(exit("slots.name is null"), ["F0521 7"]);
    assert_eq!(exit("slots.amount > 5\n          - slots.amount < 3"), ["F0520 7"]);
    assert_eq!(exit("slots.amount > 5 and slots.amount < 3"), ["F0410 7"]);
    assert_eq!(exit("slots.amount > 5\n          - slots.name is not null"), [""; 0]);
}

#[test]
fn cycles_that_never_wait_for_the_user() {
    let retry = |back: &str| {
        steps(&format!(
            "      - id: ask\n        collect: amount\n        next:\n          - if: slots.amount > 10\n            then:\n              - action: utter_ok\n{back}                next: ask\n          - else: END\n"
        ))
    };
    assert_eq!(retry(""), ["F0240 6"]);
    assert_eq!(retry("              - set_slots: [{amount: null}]\n"), [""; 0]);
    let tool = "      - id: try\n        call: t\n        mcp_server: srv\n        mapping: {input: [], output: [{slot: inside, value: result.x}]}\n        next:\n          - if: slots.inside\n            then: END\n          - else: try\n";
    assert_eq!(steps(tool), ["F0240 6"]);
    let forever = "      - id: one\n        collect: name\n        ask_before_filling: true\n      - action: utter_all\n        next: one\n";
    assert_eq!(steps(forever), ["F0241 6"]);
    // A collect step that waits for a correction of another slot.
    let dummy = "      - collect: amount\n      - id: again\n        collect: name\n        next: again\n";
    assert_eq!(steps(dummy), [""; 0]);
    let state = "      - id: one\n        noop: true\n        next:\n          - if: slots.state is \"done\"\n            then: END\n          - else:\n              - set_slots: [{state: done}]\n                next: one\n";
    assert_eq!(steps(state), [""; 0]);
    let link = |id: &str, to: &str, ask: &str| {
        format!("  {id}:\n    description: the way of {id}\n    steps:\n      - {ask}\n      - link: {to}\n")
    };
    let pair = |ask: &str| found(&(link("aa", "bb", "action: utter_ok") + &link("bb", "aa", ask)));
    assert_eq!(pair("action: utter_ok"), ["F0242 6"]);
    assert_eq!(pair("collect: name"), [""; 0]);
}

#[test]
fn slots_read_before_they_are_filled() {
    assert_eq!(steps("      - collect: name\n      - action: utter_ok\n      - collect: name\n"), ["F0243 7"]);
    let emptied = "      - collect: name\n      - set_slots: [{name: null}]\n      - collect: name\n";
    assert_eq!(steps(emptied), [""; 0]);
    let early = |condition: &str| {
        steps(&format!(
            "      - action: utter_ok\n        next:\n          - if: {condition}\n            then: END\n          - else: on\n      - id: on\n        collect: amount\n"
        ))
    };
    assert_eq!(early("slots.amount > 5"), ["F0244 7"]);
    // A test for null is allowed at any time.
    assert_eq!(early("slots.amount is not null"), [""; 0]);
    assert_eq!(early("slots.amount is not null and slots.amount > 5"), [""; 0]);
    let tool = "      - call: t\n        mcp_server: srv\n        mapping: {input: [{param: p, slot: name}]}\n      - collect: name\n";
    assert_eq!(steps(tool), ["F0244 5"]);
}

#[test]
fn results_shown_with_changed_arguments() {
    let call = "      - call: t\n        mcp_server: srv\n        mapping: {input: [{param: p, slot: name}], output: [{slot: inside, value: result.x}]}\n";
    let (ask, shows) = ("      - collect: name\n", "      - action: utter_all\n");
    let reported = |text: &str| steps(text).into_iter().filter(|f| f.starts_with("F0259")).collect::<Vec<_>>();
    assert_eq!(reported(&format!("{call}{ask}{shows}")), ["F0259 5"]);
    assert_eq!(reported(&format!("{ask}{call}{shows}")), [""; 0]);
    // The call is made again before anything is shown.
    assert_eq!(reported(&format!("{call}{ask}{call}{shows}")), [""; 0]);
    let other = "      - set_slots: [{name: x}]\n";
    assert_eq!(reported(&format!("{call}{other}{shows}")), ["F0259 5"]);
}

#[test]
fn a_collect_step_after_an_agent_allows_corrections() {
    let agent = "      - call: helper\n        exit_if: [slots.name is not null]\n";
    let ask = "      - collect: name\n";
    let reported = |text: &str| steps(text).into_iter().filter(|f| f.starts_with("F0243")).collect::<Vec<_>>();
    assert_eq!(reported(&format!("{agent}{ask}")), [""; 0]);
    assert_eq!(reported(&format!("{agent}{ask}{ask}")), ["F0243 8"]);
}

#[test]
fn slots_that_nothing_fills_or_persists() {
    let read = "      - action: utter_ok\n        next:\n          - if: slots.inside\n            then: END\n          - else: END\n";
    assert!(steps(read).contains(&"F0245 7".to_owned()), "{:?}", steps(read));
    let login = |persisted: &str| {
        format!(
            "  log_in:\n    description: lets somebody in\n{persisted}    steps:\n      - set_slots: [{{inside: true}}]\n      - collect: name\n  secret:\n    description: tells a secret\n    if: slots.inside\n    steps:\n      - action: utter_ok\n"
        )
    };
    let gone =
        |persisted: &str| found(&login(persisted)).into_iter().filter(|f| f.starts_with("F0246")).collect::<Vec<_>>();
    assert_eq!(gone(""), ["F0246 9"]);
    assert_eq!(gone("    persisted_slots: [inside]\n"), [""; 0]);
    // Custom code may fill any slot.
    let own = findings(&format!("{DOMAIN}actions: [action_x]\n"), &format!("flows:\n{}", login("")));
    assert!(own.iter().all(|f| &*f.place.file == "domain.yml"), "{own:?}");
}

#[test]
fn results_of_remote_agents_fill_mapped_slots() {
    let agent = "agent: {name: other, description: helps, protocol: A2A}\nconfiguration:\n  agent_card: http://h\n  output_mapping: [{slot: inside, value: result.data.x}]\n";
    let flows = "flows:\n  a:\n    description: x\n    steps:\n      - call: other\n        next:\n          - if: slots.inside\n            then: END\n          - else: END\n";
    let files = [
        ("config.yml", "recipe: default.v1\n"),
        ("domain.yml", DOMAIN),
        ("data/a.yml", flows),
        ("sub_agents/other/config.yml", agent),
    ];
    let loaded = load_and_analyse(&files);
    let never = loaded.findings.iter().filter(|finding| finding.code == "F0245" && finding.message.contains("inside"));
    assert_eq!((loaded.project.is_some(), never.count()), (true, 0), "{:?}", loaded.findings);
}

#[test]
fn flows_that_cannot_be_distinguished_or_started() {
    let flow = |id: &str, keys: &str| format!("  {id}:\n{keys}    steps:\n      - action: utter_ok\n");
    let pair = |a: &str, b: &str| found(&(flow("aa", a) + &flow("bb", b)));
    let says = |text: &str| format!("    description: {text}\n");
    assert_eq!(pair(&says("Send money abroad"), &says("The user wants to send money abroad.")), ["F0249 6"]);
    assert_eq!(pair(&says("Send money abroad"), &says("Send money home")), [""; 0]);
    let guarded = |guard: &str| format!("{}    if: {guard}\n", says("Send money abroad"));
    let apart = pair(&guarded("slots.ready"), &guarded("not slots.ready"));
    assert!(!apart.iter().any(|f| f.starts_with("F0249")), "{apart:?}");
    let named = |text: &str| format!("    name: pay\n{}", says(text));
    assert_eq!(pair(&named("Send money"), &named("Settle a bill")), ["F0250 7"]);
    assert_eq!(found(&flow("aa", &says("TBD"))), ["F0251 2"]);
    assert_eq!(found(&flow("aa", &format!("{}    if: false\n", says("Send money")))), ["F0248 2"]);
    let pattern = |action: &str| {
        found(&format!("  pattern_cancel_flow:\n    description: stops\n    steps:\n      - action: {action}\n"))
    };
    assert_eq!(pattern("utter_ok"), ["F0252 2"]);
    assert_eq!(pattern("action_cancel_flow"), [""; 0]);
}

#[test]
fn slots_that_a_server_asks_for_and_agents_of_missions_are_used() {
    let server = "mcp_servers: [{name: srv, url: 'http://localhost/mcp', type: http, elicitation: {mail: account}}]\n";
    let agent = |name: &str| {
        format!("agent: {{name: {name}, description: helps}}\nconnections: {{mcp_servers: [{{name: srv}}]}}\n")
    };
    let (helper, builder, idle) = (agent("helper"), agent("builder"), agent("idle"));
    let loaded = load_and_analyse(&[
        ("config.yml", "recipe: default.v1\n"),
        ("endpoints.yml", server),
        (
            "domain.yml",
            "slots: {account: {type: text}}\nresponses:\n  utter_ask_account: [{text: Which account?}]\n  utter_ok: [{text: ok}]\n",
        ),
        ("data/a.yml", "flows:\n  a:\n    description: does something useful\n    steps:\n      - action: utter_ok\n"),
        ("sub_agents/helper/config.yml", &helper),
        ("sub_agents/builder/config.yml", &builder),
        ("sub_agents/idle/config.yml", &idle),
        (
            "missions/m.yml",
            "mission:\n  name: m\n  description: x\n  agents: [helper]\n  tasks: {a: {objective: Work}, b: {objective: Build, agents: [builder]}}\n",
        ),
    ]);
    let unused = loaded.findings.iter().filter(|finding| finding.code == "F0324").map(|finding| &*finding.message);
    assert_eq!(unused.collect::<Vec<_>>(), ["no flow and no mission calls the agent `idle`"]);
}

#[test]
fn values_and_responses() {
    assert_eq!(steps("      - set_slots: [{state: closed}]\n      - action: utter_all\n"), ["F0320 5"]);
    assert_eq!(steps("      - set_slots: [{state: DONE}, {inside: 1}]\n      - action: utter_all\n"), [""; 0]);
    let domain = |response: &str| format!("{DOMAIN}  utter_more:\n{response}");
    let said = |response: &str| {
        let flows = "flows:\n  a:\n    description: x\n    steps:\n      - collect: size\n      - action: utter_more\n      - action: utter_all\n";
        let all = findings(&domain(response), flows);
        let reported = all.iter().filter(|f| !matches!(f.code, "F0324" | "F0245") && f.severity != Severity::Error);
        reported.map(|f| format!("{} {}", f.code, f.place.line)).collect::<Vec<_>>()
    };
    let button = |payload: &str| said(&format!("    - text: x\n      buttons: [{{title: y, payload: {payload}}}]\n"));
    assert_eq!(button("/SetSlots(size=huge)"), ["F0321 19"]);
    assert_eq!(button("/SetSlots(size=Small)"), [""; 0]);
    assert_eq!(button("/SetSlots(size=none)"), [""; 0]);
    assert_eq!(button("'/SetSlots(amount={limit})'"), [""; 0]);
    assert_eq!(button("/SetSlots(amount=few)"), ["F0321 19"]);
    assert_eq!(button("/faq/ask_name"), ["F0322 19"]);
    let when = |values: &[&str]| {
        let line = |value: &&str| format!("    - {{text: x, condition: slots.size is \"{value}\"}}\n");
        said(&values.iter().map(line).collect::<String>())
    };
    assert_eq!(when(&["small"]), ["F0323 17"]);
    assert_eq!(when(&["small", "large"]), [""; 0]);
    assert_eq!(said("    - {text: x, channel: slack}\n"), ["F0323 17"]);
    assert_eq!(said("    - {text: x, channel: slack}\n    - {text: y}\n"), [""; 0]);
    let older = "    - {text: x, condition: [{type: slot, name: size, value: small}]}\n";
    assert_eq!(said(older), ["F0323 17"]);
}

#[test]
fn types_and_context() {
    let with_all = |condition: &str| branch("name", condition);
    assert_eq!(with_all("slots.name = slots.limit"), ["F0417 7"]);
    assert_eq!(branch("size", "slots.state = slots.size or slots.state is null"), ["F0245 7"]);
    assert_eq!(branch("amount", "slots.amount > slots.limit"), [""; 0]);
    assert_eq!(with_all("context.reasn is \"x\""), ["F0415 7"]);
    assert_eq!(with_all("context.reason is \"x\""), [""; 0]);
}

#[test]
fn beyond_limits_there_are_fewer_findings_and_no_false_ones() {
    // Too many assignments: the slots with the most values are unknown.
    let count = 16;
    let slots: String = (0..count).map(|n| format!("  b{n}: {{type: bool, initial_value: true}}\n")).collect();
    let domain = DOMAIN.replace("responses:", &format!("{slots}responses:"));
    let all: String = (0..count).map(|n| format!("slots.b{n} and ")).collect();
    let flow = |condition: &str| {
        format!(
            "flows:\n  a:\n    description: x\n    steps:\n      - action: utter_ok\n        next:\n          - if: {condition}\n            then: END\n          - else: END\n"
        )
    };
    let codes = |domain: &str, condition: &str| {
        let found = findings(domain, &flow(condition));
        found.iter().filter(|f| &*f.place.file == "data/a.yml").map(|f| f.code).collect::<Vec<_>>()
    };
    assert!(3_u64.pow(count) > crate::limits::ANALYSIS_CASES);
    assert_eq!(codes(&domain, &format!("{all} not slots.b0")), ["F0410"]);
    assert_eq!(codes(&domain, &format!("{all} not slots.b{}", count - 1)), [""; 0]);
    // Too many literals for the domain of a slot.
    let numbers = |count: usize| {
        let any: Vec<String> = (0..count).map(|n| format!("slots.amount = {n}")).collect();
        codes(
            &DOMAIN.replace("{type: float}", "{type: float, initial_value: 0}"),
            &format!("slots.amount > 1000 and ({})", any.join(" or ")),
        )
    };
    assert_eq!(numbers(20), ["F0410"]);
    assert_eq!(numbers(crate::limits::ANALYSIS_CELLS), [""; 0]);
}

#[test]
fn an_analysis_beyond_the_visit_limit_is_aborted() {
    // Each iteration sets one more value, which propagates through a long chain: more visits than the limit.
    let (values, chain) = (55, 300);
    let names: Vec<String> = (0..values).map(|n| format!("v{n}")).collect();
    let domain = DOMAIN.replace("values: [open, done]", &format!("values: [{}]", names.join(", ")));
    let branches: String = (1..values)
        .map(|n| format!("          - if: slots.state is \"v{}\"\n            then:\n              - set_slots: [{{state: v{n}}}]\n                next: down\n", n - 1))
        .collect();
    let flow = |last: &str| {
        format!(
            "flows:\n  a:\n    description: x\n    steps:\n      - set_slots: [{{state: v0}}]\n      - id: top\n        noop: true\n        next:\n{branches}          - else: END\n      - id: down\n        action: utter_ok\n{}      - action: utter_ok\n        next:\n          - if: slots.state is \"{last}\"\n            then: END\n          - else: top\n",
            "      - action: utter_ok\n".repeat(chain)
        )
    };
    let visits = values * chain;
    assert!(visits > crate::limits::ANALYSIS_VISITS * (chain + values + 3));
    let found = findings(&domain, &flow("v0"));
    assert!(found.iter().all(|f| &*f.place.file == "domain.yml"), "{found:?}");
}

#[test]
fn on_error_edges_are_followed() {
    // Without the `on_error` edge the last step would be unreachable and the value known.
    let flow = |condition: &str| {
        format!(
            "      - set_slots: [{{state: open}}]\n      - call: t\n        mcp_server: srv\n        mapping: {{input: [], output: []}}\n        on_error: sorry\n      - set_slots: [{{state: done}}]\n      - id: sorry\n        action: utter_ok\n        next:\n          - if: {condition}\n            then: END\n          - else: END\n"
        )
    };
    assert_eq!(steps(&flow("slots.state is \"open\"")), [""; 0]);
    assert_eq!(steps(&flow("slots.state is null")), ["F0413 14"]);
    let again = "      - id: one\n        call: t\n        mcp_server: srv\n        mapping: {input: [], output: []}\n        on_error: one\n";
    assert_eq!(steps(again), ["F0240 6"]);
}
