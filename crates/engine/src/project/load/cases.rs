//! Files of end-to-end cases and `conftest.yml`, read by the tables of their keys.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value as Json;

use super::{
    super::{
        SourceFile, Sources,
        cases::{
            CaseFile, CaseStep, CaseStepKind, Fixture, Named, SharedFixtures, SlotCheck, Stub, StubAction, StubAgent,
            StubEnd, StubTool, TestCase, UserStep,
        },
        reader::{Fields, Reader, said},
        schema::{
            CONFTEST, LLM_JUDGE, MapSchema, STUB_ACTION, STUB_AGENT, STUB_TOOL, TEST_CASE, TEST_FILE, TEST_STEP,
            TEST_STEP_KINDS,
        },
        yaml::{Entry, Node},
    },
    assertions,
};
use crate::finding::Finding;

impl CaseFile {
    /// Reads a file of cases, with every finding about it at once. The file is absent when nothing in it can be used.
    pub fn read(file: &SourceFile) -> (Option<Self>, Vec<Finding>) {
        read(file, &TEST_FILE)
    }

    /// Reads a `conftest.yml`.
    pub fn read_conftest(file: &SourceFile) -> (Option<Self>, Vec<Finding>) {
        read(file, &CONFTEST)
    }
}

fn read(file: &SourceFile, schema: &'static MapSchema) -> (Option<CaseFile>, Vec<Finding>) {
    let sources = Sources::default();
    let mut reader = Reader::new(&sources);
    let read = reader.open(file).and_then(|root| whole(&mut reader, file, &root, schema));
    (read, reader.findings.sorted())
}

fn whole(reader: &mut Reader<'_>, file: &SourceFile, root: &Node, schema: &'static MapSchema) -> Option<CaseFile> {
    let empty = Node::empty_map(root);
    // An empty `conftest.yml` says nothing, which is fine.
    let root = if root.is_null() && schema.name == CONFTEST.name { &empty } else { root };
    let fields = reader.fields(root, schema)?;
    let shared = shared(reader, &fields);
    let mut cases: Vec<TestCase> = Vec::new();
    for node in fields.list("test_cases") {
        let Some(case) = case(reader, node) else { continue };
        if let Some(first) = cases.iter().find(|other| other.name == case.name) {
            let message =
                format!("there are two cases named `{}`; the first stands in line {}", case.name, first.place.line);
            reader.findings.error("E0102", &case.place, message, "Give one of them another name.");
            continue;
        }
        cases.push(case);
    }
    Some(CaseFile { path: file.path.clone(), shared, cases })
}

fn shared(reader: &mut Reader<'_>, fields: &Fields<'_>) -> SharedFixtures {
    let mut shared = SharedFixtures::default();
    for entry in named_items(reader, fields, "fixtures") {
        let slots = slots(reader, &entry.node);
        shared.fixtures.insert(entry.key.as_str().into(), Fixture { slots });
    }
    for entry in named_items(reader, fields, "metadata") {
        if entry.node.map().is_none() {
            let message = format!("metadata is a map, but this is {}", said(&entry.node));
            reader.error("F0108", &entry.node, message, "Write for example `channel: phone` below its name.");
            continue;
        }
        shared.metadata.insert(entry.key.as_str().into(), entry.node.json_map());
    }
    for entry in fields.map("stub_custom_actions") {
        if let Some(stub) = stub_action(reader, entry) {
            shared.actions.insert(entry.key.as_str().into(), stub);
        }
    }
    for entry in fields.map("stub_mcp_tools") {
        if !entry.key.rsplit("::").next().is_some_and(|name| name.contains('.')) {
            let message = format!("`{}` does not say which server the tool is of", entry.key);
            reader.error("E0103", &entry.at, message, "Write `server.tool`, or `case::server.tool`.");
            continue;
        }
        stub(reader, entry, stub_tool, &mut shared.tools);
    }
    for entry in fields.map("stub_agents") {
        stub(reader, entry, stub_agent, &mut shared.agents);
    }
    shared.llm = fields.node("stub_llm").and_then(|node| named(reader, node));
    shared.endpoints = fields.node("endpoints").and_then(|node| named(reader, node));
    if let Some(node) = fields.node("llm_judge")
        && let Some(judge) = reader.fields(node, &LLM_JUDGE)
    {
        shared.judge = judge.json_map("llm");
    }
    shared
}

fn named(reader: &Reader<'_>, node: &Node) -> Option<Named> {
    Some(Named { name: node.text()?.into(), place: reader.place(node) })
}

/// The pairs of a list of small maps, as fixtures and metadata are written.
fn named_items<'n>(reader: &mut Reader<'_>, fields: &Fields<'n>, key: &str) -> Vec<&'n Entry> {
    let mut entries = Vec::new();
    for item in fields.list(key) {
        match item.map() {
            Some(pairs) => entries.extend(pairs),
            None => {
                let message = format!("an item of `{key}` is a map from a name, but this is {}", said(item));
                reader.error("F0108", item, message, "Write `- name:` with its values below.");
            }
        }
    }
    entries
}

/// Slots and values: a list of small maps, or one map.
fn slots(reader: &mut Reader<'_>, node: &Node) -> Vec<(Named, Json)> {
    let single = std::slice::from_ref(node);
    let mut slots = Vec::new();
    for item in node.list().unwrap_or(single) {
        match item.map() {
            Some(pairs) => {
                let slot = |entry: &Entry| {
                    (Named { name: entry.key.as_str().into(), place: reader.place(&entry.at) }, entry.node.json())
                };
                slots.extend(pairs.iter().map(slot));
            }
            None if item.is_null() => {}
            None => {
                let message = format!("a fixture is a list of slots with values, but this is {}", said(item));
                reader.error("F0108", item, message, "Write `- slot: value`.");
            }
        }
    }
    slots
}

fn stub_action(reader: &mut Reader<'_>, entry: &Entry) -> Option<StubAction> {
    let empty = Node::empty_map(&entry.node);
    let node = if entry.node.is_null() { &empty } else { &entry.node };
    let fields = reader.fields(node, &STUB_ACTION)?;
    let mut maps = |key: &str| -> Vec<Json> {
        let mut maps = Vec::new();
        for item in fields.list(key) {
            if item.map().is_some() {
                maps.push(item.json());
            } else {
                let message = format!("an item of `{key}` is a map, but this is {}", said(item));
                reader.error("F0108", item, message, "Write it as an action server would send it.");
            }
        }
        maps
    };
    let (events, responses) = (maps("events"), maps("responses"));
    for event in fields.list("events").iter().filter(|event| event.map().is_some() && event.get("event").is_none()) {
        reader.error("F0109", event, "an event needs `event`", "Write for example `{event: slot, name: …, value: …}`.");
    }
    Some(StubAction { events, responses, place: reader.place(&entry.at) })
}

/// One answer, or several in order.
fn stub<T>(
    reader: &mut Reader<'_>,
    entry: &Entry,
    read: fn(&mut Reader<'_>, &Node) -> Option<T>,
    into: &mut IndexMap<Arc<str>, Stub<T>>,
) {
    let single = std::slice::from_ref(&entry.node);
    let answers: Vec<T> = entry.node.list().unwrap_or(single).iter().filter_map(|node| read(reader, node)).collect();
    if !answers.is_empty() {
        into.insert(entry.key.as_str().into(), Stub { answers, place: reader.place(&entry.at) });
    }
}

fn stub_tool(reader: &mut Reader<'_>, node: &Node) -> Option<StubTool> {
    let fields = reader.fields(node, &STUB_TOOL)?;
    match (fields.node("result"), fields.shared("error")) {
        (Some(result), None) => Some(StubTool::Result(result.json())),
        (None, Some(error)) => Some(StubTool::Error(error)),
        _ => {
            let help = "Write what the tool answers under `result`, or what it says when it fails under `error`.";
            reader.error("E0103", node, "a stub of a tool has either `result` or `error`", help);
            None
        }
    }
}

fn stub_agent(reader: &mut Reader<'_>, node: &Node) -> Option<StubAgent> {
    let fields = reader.fields(node, &STUB_AGENT)?;
    let ends = match fields.text("status") {
        Some("awaiting_user") => StubEnd::AwaitingUser,
        Some("failed") => StubEnd::Failed,
        _ => StubEnd::Finished,
    };
    let says = fields.texts("says").into_iter().filter_map(|node| node.text().map(Into::into)).collect();
    Some(StubAgent { says, slots: fields.json_map("slots").unwrap_or_default(), ends })
}

fn case(reader: &mut Reader<'_>, node: &Node) -> Option<TestCase> {
    let fields = reader.fields(node, &TEST_CASE)?;
    let before = reader.findings.as_slice().len();
    let name = fields.node("test_case").and_then(|node| named(reader, node))?;
    let fixtures = fields.texts("fixtures").into_iter().filter_map(|node| named(reader, node)).collect();
    let metadata = fields.node("metadata").and_then(|node| named(reader, node));
    let steps: Vec<CaseStep> = fields.list("steps").iter().filter_map(|step| self::step(reader, step)).collect();
    let mut case =
        TestCase { name: name.name, place: name.place, fixtures, metadata, steps, written: node.json(), whole: true };
    let user = |step: &CaseStep| matches!(step.kind, CaseStepKind::User(_));
    let complete = case.steps.len() == fields.list("steps").len();
    match case.steps.first() {
        Some(first) if complete && !user(first) => {
            let help = "Begin with `- user: …`; what is expected stands after what the user says.";
            reader.findings.error("E0103", &first.place, "a case begins with a step of the user", help);
        }
        None if complete => {
            let help = "Add `- user: …`, or take the case away.";
            reader.warning("E0103", fields.at("steps"), "this case has no step, so it holds whatever happens", help);
        }
        _ => {}
    }
    if case.asserts() {
        let looked_at = |step: &CaseStep| user(step) || matches!(step.kind, CaseStepKind::Commands(_));
        if let Some(step) = case.steps.iter().find(|step| !looked_at(step)) {
            let message = "this step is not looked at, because the case has assertions";
            let help = "Write it as an assertion of the user's step before it, or take it away.";
            reader.findings.warning("E0104", &step.place, message, help);
        }
    }
    let broken = reader.findings.as_slice().iter().skip(before).any(|f| f.severity == crate::finding::Severity::Error);
    case.whole = !broken;
    Some(case)
}

fn step(reader: &mut Reader<'_>, node: &Node) -> Option<CaseStep> {
    let fields = reader.fields(node, &TEST_STEP)?;
    let written: Vec<&str> = TEST_STEP_KINDS.into_iter().filter(|kind| fields.has(kind)).collect();
    let kind = match written.as_slice() {
        ["user"] | ["user", "commands"] => user(reader, &fields)?,
        [kind @ ("bot" | "utter" | "slot_was_set" | "slot_was_not_set" | "commands")] => {
            let strange = ["metadata", "assertions", "assertion_order_enabled"].into_iter().find(|key| fields.has(key));
            if let Some(key) = strange {
                let help = format!("Move `{key}` to the step of the user before it.");
                reader.error("E0103", fields.at(key), format!("`{key}` belongs to a step with `user`"), help);
            }
            expected(reader, &fields, kind)?
        }
        // A key that is not known was told; it may have been meant.
        [] if node.map()?.iter().any(|entry| TEST_STEP.key(&entry.key).is_none()) => return None,
        [] => {
            let known = TEST_STEP_KINDS.join("`, `");
            reader.error("E0103", node, "this step says nothing", format!("Give it one of `{known}`."));
            return None;
        }
        several => {
            let message = format!("this step is several at once: `{}`", several.join("`, `"));
            reader.error("E0103", node, message, "Write each as a step of its own, with `- ` before it.");
            return None;
        }
    };
    Some(CaseStep { place: reader.place(node), kind })
}

fn user(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<CaseStepKind> {
    let text = fields.shared("user")?;
    let metadata = fields.node("metadata").and_then(|node| named(reader, node));
    let ordered = fields.flag("assertion_order_enabled");
    let assertions = fields.list("assertions").iter().filter_map(|node| assertions::assertion(reader, node)).collect();
    let commands = fields.list("commands").iter().map(Node::json).collect();
    Some(CaseStepKind::User(Box::new(UserStep { text, metadata, ordered, assertions, commands })))
}

fn expected(reader: &mut Reader<'_>, fields: &Fields<'_>, kind: &str) -> Option<CaseStepKind> {
    Some(match kind {
        "bot" => CaseStepKind::Bot(fields.shared(kind)?),
        "utter" => CaseStepKind::Utter(fields.shared(kind)?),
        "commands" => CaseStepKind::Commands(fields.list(kind).iter().map(Node::json).collect()),
        "slot_was_set" => CaseStepKind::SlotWasSet(named_slots(reader, fields.node(kind)?)),
        _ => CaseStepKind::SlotWasNotSet(named_slots(reader, fields.node(kind)?)),
    })
}

/// Slots of a step of their own: names, `name: value`, or a list of both.
fn named_slots(reader: &mut Reader<'_>, node: &Node) -> Vec<SlotCheck> {
    let single = std::slice::from_ref(node);
    let mut checks = Vec::new();
    for item in node.list().unwrap_or(single) {
        match (item.map(), item.text()) {
            (Some(pairs), _) => checks.extend(
                pairs.iter().map(|entry| SlotCheck { name: entry.key.as_str().into(), value: Some(entry.node.json()) }),
            ),
            (None, Some(name)) => checks.push(SlotCheck { name: name.into(), value: None }),
            (None, None) => {
                let message = format!("slots are names or `name: value`, but this is {}", said(item));
                reader.error("F0108", item, message, "Write `- slot: value`, or `- slot` where any value will do.");
            }
        }
    }
    checks
}

#[cfg(test)]
mod tests;
