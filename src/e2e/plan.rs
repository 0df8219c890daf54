//! What each case gets: from itself, from its file, and from every `conftest.yml` above it, the nearest first.

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

use super::discover::{Selection, folders_above, shown};

/// The slot of a fixture that sets the clock.
pub(super) const CLOCK_SLOT: &str = "mocked_datetime";

/// A case with everything it runs with.
#[derive(Debug)]
pub struct Planned {
    /// The file, as people write it.
    pub(super) file: String,
    /// The file from the project's folder, where it lies in it: the same wherever the program is started.
    pub(super) inside: String,
    pub(crate) case: TestCase,
    /// Stubs, judge, endpoints; those of the file before those of the folders.
    pub(super) shared: SharedFixtures,
    /// Slot values of its fixtures, in order.
    pub(super) slots: Vec<(LocatedName, Json)>,
    /// When it begins, where a fixture says so.
    pub(super) began: Option<Timestamp>,
}

/// Joins each case of the selection with what stands around it. What does not fit is a finding, and the case no longer whole.
pub(super) fn plan(selection: &Selection, only_matching: Option<&str>, findings: &mut Findings) -> Vec<Arc<Planned>> {
    let mut planned: Vec<Arc<Planned>> = Vec::new();
    for selected in &selection.files {
        let mut shared = selected.file.shared.clone();
        for folder in folders_above(&selection.root, &selected.path) {
            if let Some(conftest) = selection.conftests.get(&folder) {
                add(&mut shared, &conftest.shared);
            }
        }
        let inside = inside(&selection.root, &selected.path);
        for case in &selected.file.cases {
            let wanted = selected.only.as_deref().is_none_or(|only| *case.name == *only);
            let matches = only_matching.is_none_or(|part| case.name.contains(part));
            let file = selected.file.path.to_string();
            // Two paths on the command line may lead to one case.
            let known = planned.iter().any(|other| other.file == file && other.case.name == case.name);
            if wanted && matches && !known {
                planned.push(Arc::new(one((file, inside.clone()), case, &shared, findings)));
            }
        }
    }
    planned
}

fn inside(root: &Path, path: &Path) -> String {
    let real = |path: &Path| path.canonicalize().ok();
    let inside = real(root).zip(real(path)).and_then(|(root, path)| Some(path.strip_prefix(root).ok()?.to_path_buf()));
    shown(&inside.unwrap_or_else(|| path.file_name().map(PathBuf::from).unwrap_or_default()))
}

/// Adds what is not there yet: the nearer definition wins.
fn add(into: &mut SharedFixtures, from: &SharedFixtures) {
    fn missing<T: Clone>(into: &mut IndexMap<Arc<str>, T>, from: &IndexMap<Arc<str>, T>) {
        for (name, value) in from {
            into.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    missing(&mut into.fixtures, &from.fixtures);
    missing(&mut into.metadata, &from.metadata);
    missing(&mut into.actions, &from.actions);
    missing(&mut into.tools, &from.tools);
    missing(&mut into.agents, &from.agents);
    into.llm = into.llm.take().or_else(|| from.llm.clone());
    into.judge = into.judge.take().or_else(|| from.judge.clone());
    into.endpoints = into.endpoints.take().or_else(|| from.endpoints.clone());
}

fn one((file, inside): (String, String), case: &TestCase, shared: &SharedFixtures, findings: &mut Findings) -> Planned {
    let mut slots = Vec::new();
    let mut fine = true;
    for fixture in &case.fixtures {
        match shared.fixtures.get(&fixture.name) {
            Some(found) => slots.extend(found.slots.iter().cloned()),
            None => {
                fine = false;
                unknown(findings, "fixture", fixture, shared.fixtures.keys());
            }
        }
    }
    let of_steps = case.steps.iter().filter_map(|step| match &step.kind {
        TestStepKind::User(user) => user.metadata.as_ref(),
        _ => None,
    });
    for named in case.metadata.iter().chain(of_steps) {
        if !shared.metadata.contains_key(&named.name) {
            fine = false;
            unknown(findings, "metadata", named, shared.metadata.keys());
        }
    }
    let mut began = None;
    for (slot, value) in slots.iter().filter(|(slot, _)| *slot.name == *CLOCK_SLOT) {
        began = value.as_str().and_then(point_in_time);
        if began.is_none() && !value.is_null() {
            fine = false;
            let help = "Write for example `\"2026-06-15T10:00:00+00:00\"`.";
            findings.error(
                "E0105",
                &slot.place,
                format!("`{CLOCK_SLOT}` is a point in time, but this is {value}"),
                help,
            );
        }
    }
    let case = TestCase { whole: case.whole && fine, ..case.clone() };
    Planned { file, inside, case, shared: shared.clone(), slots, began }
}

fn unknown<'a>(findings: &mut Findings, what: &str, named: &LocatedName, known: impl Iterator<Item = &'a Arc<str>>) {
    let help = match did_you_mean(&named.name, known.map(|name| &**name)) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Define it under `{what}` of this file, or in the `conftest.yml` of its folder."),
    };
    let list = if what == "fixture" { "fixtures" } else { what };
    let help = help.replace("`fixture`", &format!("`{list}`"));
    findings.error("E0103", &named.place, format!("there is no {what} `{}`", named.name), help);
}

/// ISO 8601; a time without a zone is UTC.
fn point_in_time(text: &str) -> Option<Timestamp> {
    let micros = match DateTime::parse_from_rfc3339(text) {
        Ok(at) => at.timestamp_micros(),
        Err(_) => text.parse::<NaiveDateTime>().ok()?.and_utc().timestamp_micros(),
    };
    Some(Timestamp::from_micros(micros))
}

impl Planned {
    /// The stub of a name: the one for this case, else the one for all.
    pub(super) fn stub<'a, T>(&self, stubs: &'a IndexMap<Arc<str>, T>, name: &str) -> Option<&'a T> {
        stubs.get(format!("{}::{name}", self.case.name).as_str()).or_else(|| stubs.get(name))
    }

    /// The names that are stubbed here, each once.
    pub(super) fn stubbed<'a, T>(&'a self, stubs: &'a IndexMap<Arc<str>, T>) -> Vec<&'a str> {
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

    /// Metadata of a message: that of the case, and over it that of the step.
    pub(super) fn metadata(&self, user: &UserStep) -> Map<String, Json> {
        let named = self.case.metadata.iter().chain(&user.metadata);
        named
            .filter_map(|named| self.shared.metadata.get(&named.name))
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    /// A file that this case names, from the folder that the name stands in.
    pub(super) fn beside(named: &LocatedName) -> PathBuf {
        let folder = named.place.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        PathBuf::from(folder).join(&*named.name)
    }
}

/// Names that the project does not have: what is expected of them can never hold, so it is a warning.
pub(super) fn check_names(planned: &Planned, project: &Project, findings: &mut Findings) {
    let mut names = Names { project, findings };
    for (slot, _) in &planned.slots {
        names.slot(&slot.name, &slot.place);
    }
    for step in &planned.case.steps {
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
    for (name, stub) in &planned.shared.actions {
        let action = name.rsplit("::").next().unwrap_or(name);
        if !project.lists_action(action) {
            names.tell("custom action", action, &stub.place, project.domain.actions.keys().map(|name| name.as_str()));
        }
    }
    for (name, stub) in &planned.shared.agents {
        names.agent(name.rsplit("::").next().unwrap_or(name), &stub.place);
    }
}

struct Names<'a> {
    project: &'a Project,
    findings: &'a mut Findings,
}

impl Names<'_> {
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
            self.tell("slot", name, place, known);
        }
    }

    fn flow(&mut self, name: &str, place: &SourceLocation) {
        if self.project.flow(name).is_none() {
            let known = self.project.flows.keys().map(|name| name.as_str());
            self.tell("flow", name, place, known);
        }
    }

    fn response(&mut self, name: &str, place: &SourceLocation) {
        // Actions may bring responses of their own making.
        if self.project.response(name).is_none() && name.starts_with("utter_") {
            let known = self.project.domain.responses.keys().map(|name| name.as_str());
            self.tell("response", name, place, known);
        }
    }

    fn agent(&mut self, name: &str, place: &SourceLocation) {
        if self.project.agent(name).is_none() {
            let known = self.project.agents.keys().map(|name| name.as_str());
            self.tell("agent", name, place, known);
        }
    }

    fn tell<'n>(&mut self, what: &str, name: &str, place: &SourceLocation, known: impl Iterator<Item = &'n str>) {
        let help = match did_you_mean(name, known) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => "Correct the name, or add it to the project.".to_owned(),
        };
        let message = format!("the project has no {what} `{name}`");
        // Several cases of a file share stubs and fixtures: each name is told once.
        let told =
            self.findings.as_slice().iter().any(|f| f.code == "E0106" && f.place == *place && f.message == message);
        if !told {
            self.findings.warning("E0106", place, message, help);
        }
    }
}
