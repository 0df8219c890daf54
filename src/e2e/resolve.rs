//! Resolving cases: merging each case with the fixtures, metadata and stubs of its file and of every `conftest.yml` in its folder and
//! the folders above. The nearest definition of a name wins.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use chrono::{DateTime, NaiveDateTime};
use indexmap::IndexMap;
use segue_engine::{
    finding::{Findings, SourceLocation, did_you_mean},
    project::{
        Project,
        test_cases::{
            AssertionKind, BotMessageExpectation, FlowEnd, Flows, LocatedName, SharedFixtures, SlotCheck, TestCase,
            TestStepKind, UserStep,
        },
    },
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::discover::{Selection, display_path, folders_above};

/// The slot that sets the start time of a case when a fixture contains it; the same name as in Rasa.
pub(super) const CLOCK_SLOT: &str = "mocked_datetime";

/// A case with the fixtures, metadata and stubs that apply to it.
#[derive(Debug)]
pub struct ResolvedCase {
    /// The path of the file, as passed by the caller or found in a folder.
    pub(super) file: String,
    /// The path of the file relative to the project's folder, which does not depend on the current directory. For a file outside the
    /// project its name.
    pub(super) path_in_project: String,
    /// The case. `whole` is false if it has an error, or refers to a fixture or metadata that does not exist.
    pub(crate) case: TestCase,
    /// The merged definitions of its file and of the `conftest.yml` files.
    pub(super) shared: SharedFixtures,
    /// The slot values of its fixtures, in order.
    pub(super) slots: Vec<(LocatedName, Json)>,
    /// The start time, if a fixture sets [`CLOCK_SLOT`].
    pub(super) started_at: Option<Timestamp>,
}

/// Resolves each selected case whose name contains `name_contains`. A reference to something undefined is a finding, and the case is
/// marked as not `whole`.
pub(super) fn resolve_cases(
    selection: &Selection,
    name_contains: Option<&str>,
    findings: &mut Findings,
) -> Vec<Arc<ResolvedCase>> {
    let mut resolved: Vec<Arc<ResolvedCase>> = Vec::new();
    for selected in &selection.files {
        let mut shared = selected.file.shared.clone();
        for folder in folders_above(&selection.root, &selected.path) {
            if let Some(conftest) = selection.conftests.get(&folder) {
                merge_missing(&mut shared, &conftest.shared);
            }
        }
        let path_in_project = path_in_project(&selection.root, &selected.path);
        for case in &selected.file.cases {
            let is_selected = selected.only.as_deref().is_none_or(|only| *case.name == *only);
            let matches = name_contains.is_none_or(|part| case.name.contains(part));
            let file = selected.file.path.to_string();
            // Two arguments of the command line may select the same case.
            let is_duplicate = resolved.iter().any(|other| other.file == file && other.case.name == case.name);
            if is_selected && matches && !is_duplicate {
                resolved.push(Arc::new(resolve_case((file, path_in_project.clone()), case, &shared, findings)));
            }
        }
    }
    resolved
}

fn path_in_project(root: &Path, path: &Path) -> String {
    let absolute = |path: &Path| path.canonicalize().ok();
    let relative =
        absolute(root).zip(absolute(path)).and_then(|(root, path)| Some(path.strip_prefix(root).ok()?.to_path_buf()));
    display_path(&relative.unwrap_or_else(|| path.file_name().map(PathBuf::from).unwrap_or_default()))
}

/// Adds the definitions whose names are missing: the nearer definition wins.
fn merge_missing(into: &mut SharedFixtures, from: &SharedFixtures) {
    fn merge<T: Clone>(into: &mut IndexMap<Arc<str>, T>, from: &IndexMap<Arc<str>, T>) {
        for (name, value) in from {
            into.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    merge(&mut into.fixtures, &from.fixtures);
    merge(&mut into.metadata, &from.metadata);
    merge(&mut into.actions, &from.actions);
    merge(&mut into.tools, &from.tools);
    merge(&mut into.agents, &from.agents);
    into.llm = into.llm.take().or_else(|| from.llm.clone());
    into.judge = into.judge.take().or_else(|| from.judge.clone());
    into.endpoints = into.endpoints.take().or_else(|| from.endpoints.clone());
}

fn resolve_case(
    (file, path_in_project): (String, String),
    case: &TestCase,
    shared: &SharedFixtures,
    findings: &mut Findings,
) -> ResolvedCase {
    let mut slots = Vec::new();
    let mut is_valid = true;
    for fixture in &case.fixtures {
        match shared.fixtures.get(&fixture.name) {
            Some(definition) => slots.extend(definition.slots.iter().cloned()),
            None => {
                is_valid = false;
                unknown_name(findings, "fixture", fixture, shared.fixtures.keys());
            }
        }
    }
    let of_steps = case.steps.iter().filter_map(|step| match &step.kind {
        TestStepKind::User(user) => user.metadata.as_ref(),
        _ => None,
    });
    for named in case.metadata.iter().chain(of_steps) {
        if !shared.metadata.contains_key(&named.name) {
            is_valid = false;
            unknown_name(findings, "metadata", named, shared.metadata.keys());
        }
    }
    let mut started_at = None;
    for (slot, value) in slots.iter().filter(|(slot, _)| *slot.name == *CLOCK_SLOT) {
        started_at = value.as_str().and_then(parse_time);
        if started_at.is_none() && !value.is_null() {
            is_valid = false;
            let help = "Write for example `\"2026-06-15T10:00:00+00:00\"`.";
            findings.error(
                "E0105",
                &slot.place,
                format!("`{CLOCK_SLOT}` must be an ISO 8601 time, found {value}"),
                help,
            );
        }
    }
    let case = TestCase { whole: case.whole && is_valid, ..case.clone() };
    ResolvedCase { file, path_in_project, case, shared: shared.clone(), slots, started_at }
}

/// Adds the finding for a fixture or metadata that is not defined; `what` is one of these words.
fn unknown_name<'a>(
    findings: &mut Findings,
    what: &str,
    named: &LocatedName,
    known: impl Iterator<Item = &'a Arc<str>>,
) {
    let help = match did_you_mean(&named.name, known.map(|name| &**name)) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Define it under `{what}` of this file, or in the `conftest.yml` of its folder."),
    };
    let list = if what == "fixture" { "fixtures" } else { what };
    let help = help.replace("`fixture`", &format!("`{list}`"));
    findings.error("E0103", &named.place, format!("there is no {what} `{}`", named.name), help);
}

/// Parses an ISO 8601 time. A time without an offset is UTC.
fn parse_time(text: &str) -> Option<Timestamp> {
    let micros = match DateTime::parse_from_rfc3339(text) {
        Ok(at) => at.timestamp_micros(),
        Err(_) => text.parse::<NaiveDateTime>().ok()?.and_utc().timestamp_micros(),
    };
    Some(Timestamp::from_micros(micros))
}

impl ResolvedCase {
    /// The stub of a name: the one for this case, or else the one for all cases.
    pub(super) fn stub<'a, T>(&self, stubs: &'a IndexMap<Arc<str>, T>, name: &str) -> Option<&'a T> {
        stubs.get(format!("{}::{name}", self.case.name).as_str()).or_else(|| stubs.get(name))
    }

    /// The names that have a stub in this case, without duplicates.
    pub(super) fn stubbed_names<'a, T>(&'a self, stubs: &'a IndexMap<Arc<str>, T>) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for key in stubs.keys() {
            let name = match key.rsplit_once("::") {
                Some((case, name)) if *case == *self.case.name => name,
                Some(_) => continue,
                None => key,
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The metadata of a message: that of the case, overridden by that of the step.
    pub(super) fn metadata(&self, user: &UserStep) -> Map<String, Json> {
        let named = self.case.metadata.iter().chain(&user.metadata);
        named
            .filter_map(|named| self.shared.metadata.get(&named.name))
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    /// The path of a file that a test file refers to, relative to the folder of that test file.
    pub(super) fn path_of(named: &LocatedName) -> PathBuf {
        let folder = named.place.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        PathBuf::from(folder).join(&*named.name)
    }
}

/// Adds a warning for each name that the project does not have: an expectation about it cannot be met.
pub(super) fn check_names(case: &ResolvedCase, project: &Project, findings: &mut Findings) {
    let mut names = NameCheck { project, findings };
    for (slot, _) in &case.slots {
        names.slot(&slot.name, &slot.place);
    }
    for step in &case.case.steps {
        match &step.kind {
            TestStepKind::Utter(name) => names.response(name, &step.place),
            TestStepKind::SlotWasSet(slots) | TestStepKind::SlotWasNotSet(slots) => names.slots(slots, &step.place),
            TestStepKind::User(user) => {
                for assertion in &user.assertions {
                    names.assertion(&assertion.kind, &assertion.place);
                }
            }
            TestStepKind::Bot(_) | TestStepKind::Commands(_) => {}
        }
    }
    for (name, stub) in &case.shared.actions {
        let action = name.rsplit("::").next().unwrap_or(name);
        if !project.lists_action(action) {
            names.warn("custom action", action, &stub.place, project.domain.actions.keys().map(|name| name.as_str()));
        }
    }
    for (name, stub) in &case.shared.agents {
        names.agent(name.rsplit("::").next().unwrap_or(name), &stub.place);
    }
}

/// Checks names against a project.
struct NameCheck<'a> {
    project: &'a Project,
    findings: &'a mut Findings,
}

impl NameCheck<'_> {
    fn assertion(&mut self, kind: &AssertionKind, place: &SourceLocation) {
        match kind {
            AssertionKind::FlowStarted(Flows { flows, .. }) => {
                for flow in flows {
                    self.flow(flow, place);
                }
            }
            AssertionKind::FlowCompleted(FlowEnd { flow, .. }) | AssertionKind::FlowCancelled(FlowEnd { flow, .. }) => {
                self.flow(flow, place);
            }
            AssertionKind::SlotWasSet(slots) | AssertionKind::SlotWasNotSet(slots) => self.slots(slots, place),
            AssertionKind::BotUttered(BotMessageExpectation { utter_name: Some(name), .. })
            | AssertionKind::BotDidNotUtter(BotMessageExpectation { utter_name: Some(name), .. }) => {
                self.response(name, place)
            }
            AssertionKind::Agent(_, agent) => self.agent(agent, place),
            _ => {}
        }
    }

    fn slots(&mut self, slots: &[SlotCheck], place: &SourceLocation) {
        for slot in slots {
            self.slot(&slot.name, place);
        }
    }

    fn slot(&mut self, name: &str, place: &SourceLocation) {
        if self.project.slot(name).is_none() {
            let known = self.project.domain.slots.keys().map(|name| name.as_str());
            self.warn("slot", name, place, known);
        }
    }

    fn flow(&mut self, name: &str, place: &SourceLocation) {
        if self.project.flow(name).is_none() {
            let known = self.project.flows.keys().map(|name| name.as_str());
            self.warn("flow", name, place, known);
        }
    }

    fn response(&mut self, name: &str, place: &SourceLocation) {
        // A custom action may name responses that are not in the domain.
        if self.project.response(name).is_none() && name.starts_with("utter_") {
            let known = self.project.domain.responses.keys().map(|name| name.as_str());
            self.warn("response", name, place, known);
        }
    }

    fn agent(&mut self, name: &str, place: &SourceLocation) {
        if self.project.agent(name).is_none() {
            let known = self.project.agents.keys().map(|name| name.as_str());
            self.warn("agent", name, place, known);
        }
    }

    fn warn<'n>(&mut self, what: &str, name: &str, place: &SourceLocation, known: impl Iterator<Item = &'n str>) {
        let help = match did_you_mean(name, known) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => "Correct the name, or add it to the project.".to_owned(),
        };
        let message = format!("the project has no {what} `{name}`");
        // Cases share stubs and fixtures; each name is reported once.
        let is_reported =
            self.findings.as_slice().iter().any(|f| f.code == "E0106" && f.place == *place && f.message == message);
        if !is_reported {
            self.findings.warning("E0106", place, message, help);
        }
    }
}
