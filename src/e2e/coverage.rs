//! Step coverage: which steps of the project's flows the cases executed.

use std::collections::{BTreeMap, BTreeSet};

use segue_engine::{
    ids::{FlowId, StepId},
    project::Project,
};
use serde::Serialize;

use super::{CaseOutcome, CaseResult, Results};

/// Step coverage, separately for cases that passed and cases that did not: a step that only failing cases execute is not tested.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    /// Of the cases that passed.
    pub passed: CoverageSummary,
    /// Of the cases that failed or could not run.
    pub failed: CoverageSummary,
}

/// Step coverage of a set of cases.
#[derive(Clone, Debug, Serialize)]
pub struct CoverageSummary {
    /// The number of cases.
    pub cases: usize,
    /// The number of steps of all flows.
    pub steps: usize,
    /// The number of executed steps.
    #[serde(rename = "walked")]
    pub covered: usize,
    /// The flows of the project, in its order. Built-in flows are not counted.
    pub flows: Vec<FlowCoverage>,
    /// The number of commands of each kind, before the engine cleans them up. They come from a model or a structured message.
    pub commands: BTreeMap<String, u64>,
}

/// Step coverage of one flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowCoverage {
    /// The id of the flow.
    pub flow: String,
    /// The file of the flow.
    pub file: String,
    /// The number of its steps.
    pub steps: usize,
    /// The number of its executed steps.
    #[serde(rename = "walked")]
    pub covered: usize,
    /// The steps that were not executed.
    #[serde(rename = "missing")]
    pub uncovered: Vec<UncoveredStep>,
}

/// A step that no case executed.
#[derive(Clone, Debug, Serialize)]
pub struct UncoveredStep {
    /// The id of the step.
    pub step: String,
    /// The line of the step in the file of the flow.
    pub line: u32,
}

impl Coverage {
    pub(super) fn of(project: &Project, results: &Results) -> Self {
        let summary = |passed: bool| {
            let cases = results.cases.iter().filter(|case| (case.outcome == CaseOutcome::Passed) == passed);
            CoverageSummary::of(project, &cases.collect::<Vec<_>>())
        };
        Self { passed: summary(true), failed: summary(false) }
    }
}

impl CoverageSummary {
    fn of(project: &Project, cases: &[&CaseResult]) -> Self {
        let executed: BTreeSet<&(FlowId, StepId)> = cases.iter().flat_map(|case| &case.executed_steps).collect();
        // Patterns that the project replaces are counted, built-in ones are not.
        let own = project.flows.values().filter(|flow| !flow.place.file.starts_with("(built in)"));
        let flows: Vec<FlowCoverage> = own
            .map(|flow| {
                let steps = flow.steps.iter();
                let missing = steps.filter(|step| !executed.contains(&(flow.id.clone(), step.id.clone())));
                let uncovered: Vec<UncoveredStep> =
                    missing.map(|step| UncoveredStep { step: step.id.to_string(), line: step.place.line }).collect();
                FlowCoverage {
                    flow: flow.id.to_string(),
                    file: flow.place.file.to_string(),
                    steps: flow.steps.len(),
                    covered: flow.steps.len() - uncovered.len(),
                    uncovered,
                }
            })
            .collect();
        let mut commands = BTreeMap::new();
        for (kind, count) in cases.iter().flat_map(|case| &case.commands) {
            *commands.entry(kind.clone()).or_default() += count;
        }
        let (steps, covered) =
            flows.iter().fold((0, 0), |(steps, covered), flow| (steps + flow.steps, covered + flow.covered));
        Self { cases: cases.len(), steps, covered, flows, commands }
    }

    /// The coverage as a text table.
    pub fn text(&self) -> String {
        let width = self.flows.iter().map(|flow| flow.flow.chars().count()).max().unwrap_or(0).max(4);
        let mut out = format!("{:<width$}  steps  covered   share  not covered\n", "flow");
        for flow in &self.flows {
            let uncovered: Vec<String> =
                flow.uncovered.iter().map(|step| format!("{} (line {})", step.step, step.line)).collect();
            let share = share(flow.covered, flow.steps);
            let row = format!(
                "{:<width$}  {:>5}  {:>7}  {share:>5.1}%  {}",
                flow.flow,
                flow.steps,
                flow.covered,
                uncovered.join(", ")
            );
            out.push_str(row.trim_end());
            out.push('\n');
        }
        let share = share(self.covered, self.steps);
        out.push_str(&format!("{:<width$}  {:>5}  {:>7}  {share:>5.1}%\n", "all", self.steps, self.covered));
        for (kind, count) in &self.commands {
            out.push_str(&format!("command {kind}: {count}\n"));
        }
        out
    }
}

/// A share in percent; 100 of nothing.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}
