//! What no single line shows: how flows run, and what their conditions can come to.
//!
//! * What for: findings that need a graph of each flow and the values that slots can have on each way through it: circles that
//!   never listen, branches that cannot be reached, slots that are read before anything fills them, flows that nobody can
//!   tell apart. What one line or one name shows is found by [`check`](super::check) before.
//! * Entry: [`run`], after every check across files, for `segue check`; a start does not wait for it.
//! * Must never: tell of one defect twice, or raise an alarm about what may be meant. Everything here is at most a warning,
//!   since a project that ran elsewhere runs here; where an action of the author's own might know better, nothing is said.
//!   `crates/engine/tests/analysis_recall` measures both; docs/checks.md has the figures.

mod branches;
mod cells;
mod circles;
mod conditions;
mod facts;
mod fills;
mod graph;
mod lifetimes;
mod links;
mod order;
mod responses;
mod survey;
#[cfg(test)]
mod tests;
mod tools;
mod unused;
mod wholes;

use self::survey::Survey;
use super::{
    Project, Sources,
    uses::{ConditionUse, SlotAssignment, Use},
};
use crate::{
    finding::{Findings, Severity, SourceLocation},
    ids::ActionName,
};

/// What the loaders noted down while they read.
pub(crate) struct Noted<'a> {
    /// Names that are used.
    pub(crate) uses: &'a [Use],
    /// Conditions with their places.
    pub(crate) conditions: &'a [ConditionUse],
    /// Values that steps and buttons give to slots.
    pub(crate) fills: &'a [SlotAssignment],
    /// Actions as the domain lists them, with their places.
    pub(crate) listed: &'a [(ActionName, SourceLocation)],
}

/// Looks through the whole project. Flows with errors are left out, since half a flow says nothing; what needs every flow is
/// asked only where there is no error at all.
pub(crate) fn run(project: &Project, sources: &Sources, noted: &Noted<'_>, findings: &mut Findings) {
    let survey = Survey::of(project, sources, noted, findings.as_slice());
    let is_sound = !findings.has_errors();
    let before = findings.as_slice().len();
    conditions::check(&survey, findings);
    fills::check(&survey, findings);
    responses::check(&survey, findings);
    wholes::check(&survey, findings);
    tools::check(&survey, findings);
    for flow in survey.own_flows() {
        let graph = graph::Graph::of(flow);
        let facts = facts::Facts::of(&survey, &graph);
        branches::check(&survey, &graph, &facts, findings);
        circles::check(&survey, &graph, &facts, findings);
        order::check(&survey, &graph, &facts, findings);
    }
    links::check(&survey, findings);
    if is_sound {
        lifetimes::check(&survey, findings);
        unused::check(&survey, findings);
    }
    let mine = findings.as_slice().get(before..).unwrap_or_default();
    debug_assert!(mine.iter().all(|f| f.severity != Severity::Error), "analysis never stops a project: {mine:?}");
}
