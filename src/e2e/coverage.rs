//! Which steps of the flows the cases walked.

use std::collections::{BTreeMap, BTreeSet};

use segue_engine::{
    ids::{FlowId, StepId},
    project::Project,
};
use serde::Serialize;

use super::{CaseResult, Outcome, Results};

/// The steps that were walked, apart for cases that passed and for those that did not.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    /// By cases that passed.
    pub passed: Part,
    /// By cases that did not.
    pub failed: Part,
}

/// What some of the cases walked.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// How many cases there are.
    pub cases: usize,
    /// Steps of all flows.
    pub steps: usize,
    /// Steps that were walked.
    pub walked: usize,
    /// Flow by flow, in the order of the project.
    pub flows: Vec<FlowCoverage>,
    /// Commands that were understood, by kind.
    pub commands: BTreeMap<String, u64>,
}

/// One flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowCoverage {
    /// Its id.
    pub flow: String,
    /// Its file.
    pub file: String,
    /// How many steps it has.
    pub steps: usize,
    /// How many were walked.
    pub walked: usize,
    /// Those that were not.
    pub missing: Vec<MissingStep>,
}

/// A step that was not walked.
#[derive(Clone, Debug, Serialize)]
pub struct MissingStep {
    /// Its id.
    pub step: String,
    /// Its line.
    pub line: u32,
}

impl Coverage {
    pub(super) fn of(project: &Project, results: &Results) -> Self {
        let part = |passed: bool| {
            let cases = results.cases.iter().filter(|case| (case.outcome == Outcome::Passed) == passed);
            Part::of(project, &cases.collect::<Vec<_>>())
        };
        Self { passed: part(true), failed: part(false) }
    }
}

impl Part {
    fn of(project: &Project, cases: &[&CaseResult]) -> Self {
        let walked: BTreeSet<&(FlowId, StepId)> = cases.iter().flat_map(|case| &case.visited).collect();
        // Patterns of the author count; those that come with the program are not the author's to test.
        let own = project.flows.values().filter(|flow| !flow.place.file.starts_with("(built in)"));
        let flows: Vec<FlowCoverage> = own
            .map(|flow| {
                let missed = flow.steps.iter().filter(|step| !walked.contains(&(flow.id.clone(), step.id.clone())));
                let missing: Vec<MissingStep> =
                    missed.map(|step| MissingStep { step: step.id.to_string(), line: step.place.line }).collect();
                FlowCoverage {
                    flow: flow.id.to_string(),
                    file: flow.place.file.to_string(),
                    steps: flow.steps.len(),
                    walked: flow.steps.len() - missing.len(),
                    missing,
                }
            })
            .collect();
        let mut commands = BTreeMap::new();
        for (kind, count) in cases.iter().flat_map(|case| &case.commands) {
            *commands.entry(kind.clone()).or_default() += count;
        }
        let (steps, walked) =
            flows.iter().fold((0, 0), |(steps, walked), flow| (steps + flow.steps, walked + flow.walked));
        Self { cases: cases.len(), steps, walked, flows, commands }
    }

    /// A table for people.
    pub fn text(&self) -> String {
        let width = self.flows.iter().map(|flow| flow.flow.chars().count()).max().unwrap_or(0).max(4);
        let mut out = format!("{:<width$}  steps  walked   share  not walked\n", "flow");
        for flow in &self.flows {
            let missing: Vec<String> =
                flow.missing.iter().map(|step| format!("{} (line {})", step.step, step.line)).collect();
            let share = share(flow.walked, flow.steps);
            let row = format!(
                "{:<width$}  {:>5}  {:>6}  {share:>5.1}%  {}",
                flow.flow,
                flow.steps,
                flow.walked,
                missing.join(", ")
            );
            out.push_str(row.trim_end());
            out.push('\n');
        }
        let share = share(self.walked, self.steps);
        out.push_str(&format!("{:<width$}  {:>5}  {:>6}  {share:>5.1}%\n", "all", self.steps, self.walked));
        for (kind, count) in &self.commands {
            out.push_str(&format!("command {kind}: {count}\n"));
        }
        out
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}
