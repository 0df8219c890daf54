//! Reads files of end-to-end test cases and `conftest.yml`.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value as Json;

use super::{
    super::{
        SourceFile, Sources,
        load_context::{LoadContext, MapFields, describe},
        schema::{
            CONFTEST, LLM_JUDGE, MapSchema, STUB_ACTION, STUB_AGENT, STUB_TOOL, TEST_CASE, TEST_FILE, TEST_STEP,
            TEST_STEP_KINDS,
        },
        test_cases::{
            Fixture, LocatedName, SharedFixtures, SlotCheck, Stub, StubAction, StubAgent, StubStatus, StubTool,
            TestCase, TestFile, TestStep, TestStepKind, UserStep,
        },
        yaml::{Entry, Node},
    },
    assertions,
};
use crate::finding::Finding;

impl TestFile {
    /// Reads a file of test cases. Returns the file, or `None` if nothing in it is usable, and all findings about it.
    pub fn read(file: &SourceFile) -> (Option<Self>, Vec<Finding>) {
        read(file, &TEST_FILE)
    }

    /// Reads a `conftest.yml`, with the same results.
    pub fn read_conftest(file: &SourceFile) -> (Option<Self>, Vec<Finding>) {
        read(file, &CONFTEST)
    }
}

fn read(file: &SourceFile, schema: &'static MapSchema) -> (Option<TestFile>, Vec<Finding>) {
    let sources = Sources::default();
    let mut context = LoadContext::new(&sources);
    let read = context.open(file).and_then(|root| whole(&mut context, file, &root, schema));
    (read, context.findings.sorted())
}

fn whole(
    context: &mut LoadContext<'_>,
    file: &SourceFile,
    root: &Node,
    schema: &'static MapSchema,
) -> Option<TestFile> {
    let empty = Node::empty_map(root);
    // An empty `conftest.yml` is valid.
    let root = if root.is_null() && schema.name == CONFTEST.name { &empty } else { root };
    let fields = context.fields(root, schema)?;
    let shared = shared(context, &fields);
    let mut cases: Vec<TestCase> = Vec::new();
    for node in fields.list("test_cases") {
        let Some(case) = case(context, node) else { continue };
        if let Some(first) = cases.iter().find(|other| other.name == case.name) {
            let message = format!("duplicate test case `{}`, first on line {}", case.name, first.place.line);
            context.findings.error("E0102", &case.place, message, "Give each test case a unique name.");
            continue;
        }
        cases.push(case);
    }
    Some(TestFile { path: file.path.clone(), shared, cases })
}

fn shared(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> SharedFixtures {
    let mut shared = SharedFixtures::default();
    for entry in named_items(context, fields, "fixtures") {
        let slots = slots(context, &entry.node);
        shared.fixtures.insert(entry.key.as_str().into(), Fixture { slots });
    }
    for entry in named_items(context, fields, "metadata") {
        if entry.node.map().is_none() {
            let message = format!("metadata must be a map, but this is {}", describe(&entry.node));
            context.error("F0108", &entry.node, message, "Write for example `channel: phone` below its name.");
            continue;
        }
        shared.metadata.insert(entry.key.as_str().into(), entry.node.json_map());
    }
    for entry in fields.map("stub_custom_actions") {
        if let Some(stub) = stub_action(context, entry) {
            shared.actions.insert(entry.key.as_str().into(), stub);
        }
    }
    for entry in fields.map("stub_mcp_tools") {
        if !entry.key.rsplit("::").next().is_some_and(|name| name.contains('.')) {
            let message = format!("`{}` does not name the server of the tool", entry.key);
            context.error("E0103", &entry.at, message, "Write `server.tool`, or `case::server.tool`.");
            continue;
        }
        stub(context, entry, stub_tool, &mut shared.tools);
    }
    for entry in fields.map("stub_agents") {
        stub(context, entry, stub_agent, &mut shared.agents);
    }
    shared.llm = fields.node("stub_llm").and_then(|node| named(context, node));
    shared.endpoints = fields.node("endpoints").and_then(|node| named(context, node));
    if let Some(node) = fields.node("llm_judge")
        && let Some(judge) = context.fields(node, &LLM_JUDGE)
    {
        shared.judge = judge.json_map("llm");
    }
    shared
}

fn named(context: &LoadContext<'_>, node: &Node) -> Option<LocatedName> {
    Some(LocatedName { name: node.text()?.into(), place: context.place(node) })
}

/// The entries of all maps in a list, the form of `fixtures` and `metadata`.
fn named_items<'n>(context: &mut LoadContext<'_>, fields: &MapFields<'n>, key: &str) -> Vec<&'n Entry> {
    let mut entries = Vec::new();
    for item in fields.list(key) {
        match item.map() {
            Some(pairs) => entries.extend(pairs),
            None => {
                let message = format!("an item of `{key}` must be a map with a name, but this is {}", describe(item));
                context.error("F0108", item, message, "Write `- name:` with the values below.");
            }
        }
    }
    entries
}

/// Reads slots with values: a map, or a list of maps.
fn slots(context: &mut LoadContext<'_>, node: &Node) -> Vec<(LocatedName, Json)> {
    let single = std::slice::from_ref(node);
    let mut slots = Vec::new();
    for item in node.list().unwrap_or(single) {
        match item.map() {
            Some(pairs) => {
                let slot = |entry: &Entry| {
                    (
                        LocatedName { name: entry.key.as_str().into(), place: context.place(&entry.at) },
                        entry.node.json(),
                    )
                };
                slots.extend(pairs.iter().map(slot));
            }
            None if item.is_null() => {}
            None => {
                let message = format!("a fixture must be a list of slots with values, but this is {}", describe(item));
                context.error("F0108", item, message, "Write `- slot: value`.");
            }
        }
    }
    slots
}

fn stub_action(context: &mut LoadContext<'_>, entry: &Entry) -> Option<StubAction> {
    let empty = Node::empty_map(&entry.node);
    let node = if entry.node.is_null() { &empty } else { &entry.node };
    let fields = context.fields(node, &STUB_ACTION)?;
    let mut maps = |key: &str| -> Vec<Json> {
        let mut maps = Vec::new();
        for item in fields.list(key) {
            if item.map().is_some() {
                maps.push(item.json());
            } else {
                let message = format!("an item of `{key}` must be a map, but this is {}", describe(item));
                context.error("F0108", item, message, "Write it in the format of an action server.");
            }
        }
        maps
    };
    let (events, responses) = (maps("events"), maps("responses"));
    for event in fields.list("events").iter().filter(|event| event.map().is_some() && event.get("event").is_none()) {
        context.error(
            "F0109",
            event,
            "an event needs `event`",
            "Write for example `{event: slot, name: …, value: …}`.",
        );
    }
    Some(StubAction { events, responses, place: context.place(&entry.at) })
}

/// Reads a result, or a list of results for successive calls.
fn stub<T>(
    context: &mut LoadContext<'_>,
    entry: &Entry,
    read: fn(&mut LoadContext<'_>, &Node) -> Option<T>,
    into: &mut IndexMap<Arc<str>, Stub<T>>,
) {
    let single = std::slice::from_ref(&entry.node);
    let answers: Vec<T> = entry.node.list().unwrap_or(single).iter().filter_map(|node| read(context, node)).collect();
    if !answers.is_empty() {
        into.insert(entry.key.as_str().into(), Stub { answers, place: context.place(&entry.at) });
    }
}

fn stub_tool(context: &mut LoadContext<'_>, node: &Node) -> Option<StubTool> {
    let fields = context.fields(node, &STUB_TOOL)?;
    match (fields.node("result"), fields.shared("error"), fields.node("outcome")) {
        (Some(result), None, None) => Some(StubTool::Result(result.json())),
        (None, Some(error), None) => Some(StubTool::Error(error)),
        (None, None, Some(_)) => Some(StubTool::Unknown),
        _ => {
            let help = "Write the result under `result`, the error message under `error`, or `outcome: unknown`.";
            context.error("E0103", node, "a stub of a tool needs one of `result`, `error` and `outcome`", help);
            None
        }
    }
}

fn stub_agent(context: &mut LoadContext<'_>, node: &Node) -> Option<StubAgent> {
    let fields = context.fields(node, &STUB_AGENT)?;
    let ends = match fields.text("status") {
        Some("awaiting_user") => StubStatus::AwaitingUser,
        Some("failed") => StubStatus::Failed,
        _ => StubStatus::Finished,
    };
    let says = fields.texts("says").into_iter().filter_map(|node| node.text().map(Into::into)).collect();
    Some(StubAgent { says, slots: fields.json_map("slots").unwrap_or_default(), ends })
}

fn case(context: &mut LoadContext<'_>, node: &Node) -> Option<TestCase> {
    let fields = context.fields(node, &TEST_CASE)?;
    let before = context.findings.as_slice().len();
    let name = fields.node("test_case").and_then(|node| named(context, node))?;
    let fixtures = fields.texts("fixtures").into_iter().filter_map(|node| named(context, node)).collect();
    let metadata = fields.node("metadata").and_then(|node| named(context, node));
    let steps: Vec<TestStep> = fields.list("steps").iter().filter_map(|step| self::step(context, step)).collect();
    let mut case =
        TestCase { name: name.name, place: name.place, fixtures, metadata, steps, written: node.json(), whole: true };
    let user = |step: &TestStep| matches!(step.kind, TestStepKind::User(_));
    let complete = case.steps.len() == fields.list("steps").len();
    match case.steps.first() {
        Some(first) if complete && !user(first) => {
            let help = "Start with `- user: …`; expectations follow the message of the user.";
            context.findings.error("E0103", &first.place, "a test case must start with a `user` step", help);
        }
        None if complete => {
            let help = "Add `- user: …`, or remove the test case.";
            context.warning("E0103", fields.at("steps"), "this test case has no step, so it always passes", help);
        }
        _ => {}
    }
    if case.asserts() {
        let looked_at = |step: &TestStep| user(step) || matches!(step.kind, TestStepKind::Commands(_));
        if let Some(step) = case.steps.iter().find(|step| !looked_at(step)) {
            let message = "this step is not checked, because the test case has assertions";
            let help = "Write it as an assertion of the previous `user` step, or remove it.";
            context.findings.warning("E0104", &step.place, message, help);
        }
    }
    let has_errors =
        context.findings.as_slice().iter().skip(before).any(|f| f.severity == crate::finding::Severity::Error);
    case.whole = !has_errors;
    Some(case)
}

fn step(context: &mut LoadContext<'_>, node: &Node) -> Option<TestStep> {
    let fields = context.fields(node, &TEST_STEP)?;
    let written: Vec<&str> = TEST_STEP_KINDS.into_iter().filter(|kind| fields.has(kind)).collect();
    let kind = match written.as_slice() {
        ["user"] | ["user", "commands"] => user(context, &fields)?,
        [kind @ ("bot" | "utter" | "slot_was_set" | "slot_was_not_set" | "commands")] => {
            let strange = ["metadata", "assertions", "assertion_order_enabled"].into_iter().find(|key| fields.has(key));
            if let Some(key) = strange {
                let help = format!("Move `{key}` to the previous `user` step.");
                context.error("E0103", fields.at(key), format!("`{key}` is a key of `user` steps"), help);
            }
            expected(context, &fields, kind)?
        }
        // The unknown key is already reported; it may be a misspelt kind.
        [] if node.map()?.iter().any(|entry| TEST_STEP.key(&entry.key).is_none()) => return None,
        [] => {
            let known = TEST_STEP_KINDS.join("`, `");
            context.error("E0103", node, "this step has no kind", format!("Add one of `{known}`."));
            return None;
        }
        several => {
            let message = format!("this step has several kinds: `{}`", several.join("`, `"));
            context.error("E0103", node, message, "Write each as a separate step, starting with `- `.");
            return None;
        }
    };
    Some(TestStep { place: context.place(node), kind })
}

fn user(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<TestStepKind> {
    let text = fields.shared("user")?;
    let metadata = fields.node("metadata").and_then(|node| named(context, node));
    let ordered = fields.flag("assertion_order_enabled");
    let assertions = fields.list("assertions").iter().filter_map(|node| assertions::assertion(context, node)).collect();
    let commands = fields.list("commands").iter().map(Node::json).collect();
    Some(TestStepKind::User(Box::new(UserStep { text, metadata, ordered, assertions, commands })))
}

fn expected(context: &mut LoadContext<'_>, fields: &MapFields<'_>, kind: &str) -> Option<TestStepKind> {
    Some(match kind {
        "bot" => TestStepKind::Bot(fields.shared(kind)?),
        "utter" => TestStepKind::Utter(fields.shared(kind)?),
        "commands" => TestStepKind::Commands(fields.list(kind).iter().map(Node::json).collect()),
        "slot_was_set" => TestStepKind::SlotWasSet(named_slots(context, fields.node(kind)?)),
        _ => TestStepKind::SlotWasNotSet(named_slots(context, fields.node(kind)?)),
    })
}

/// Reads the slots of a `slot_was_set` step: a name, a map `name: value`, or a list of both.
fn named_slots(context: &mut LoadContext<'_>, node: &Node) -> Vec<SlotCheck> {
    let single = std::slice::from_ref(node);
    let mut checks = Vec::new();
    for item in node.list().unwrap_or(single) {
        match (item.map(), item.text()) {
            (Some(pairs), _) => checks.extend(
                pairs.iter().map(|entry| SlotCheck { name: entry.key.as_str().into(), value: Some(entry.node.json()) }),
            ),
            (None, Some(name)) => checks.push(SlotCheck { name: name.into(), value: None }),
            (None, None) => {
                let message = format!("slots must be names or `name: value`, but this is {}", describe(item));
                context.error("F0108", item, message, "Write `- slot: value`, or `- slot` for any value.");
            }
        }
    }
    checks
}

#[cfg(test)]
mod tests;
