//! Static analysis of flows and conditions, for `segue check`.
//!
//! It finds defects that need the control flow graph of a flow and the possible values of slots: cycles that never wait for the
//! user, branches that are never taken, slots that are read before a step fills them, flows that the model cannot distinguish.
//! [`check`](super::check) runs before and finds what single lines and names show.
//!
//! It never reports a defect twice and never reports what may be intended: where a custom action may change a slot, there is no
//! finding. All findings are warnings or notes, because a project that runs in Rasa must load. `crates/engine/tests/analysis_recall`
//! measures missed defects and false alarms.

mod assignments;
mod branches;
mod conditions;
mod cycles;
mod dataflow;
mod fill_order;
mod flow_graph;
mod flow_set;
mod lifetimes;
mod link_cycles;
mod project_index;
mod responses;
mod slot_domains;
#[cfg(test)]
mod tests;
mod tool_mappings;
mod unused;

use self::project_index::ProjectIndex;
use super::{
    Project, Sources,
    references::{ConditionReference, NameReference, SlotAssignment},
};
use crate::{
    finding::{Findings, Severity, SourceLocation},
    ids::ActionName,
};

/// What the loaders recorded.
pub(crate) struct ProjectReferences<'a> {
    /// References to names.
    pub(crate) references: &'a [NameReference],
    /// Conditions.
    pub(crate) conditions: &'a [ConditionReference],
    /// Values that steps and buttons assign to slots.
    pub(crate) assignments: &'a [SlotAssignment],
    /// Actions that the domain lists, with their locations.
    pub(crate) listed_actions: &'a [(ActionName, SourceLocation)],
}

/// Analyses the whole project. Flows with errors are excluded, because they are incomplete. Analyses that need all flows run
/// only if the project has no error.
pub(crate) fn run(project: &Project, sources: &Sources, recorded: &ProjectReferences<'_>, findings: &mut Findings) {
    let index = ProjectIndex::of(project, sources, recorded, findings.as_slice());
    let has_no_errors = !findings.has_errors();
    let before = findings.as_slice().len();
    conditions::check(&index, findings);
    assignments::check(&index, findings);
    responses::check(&index, findings);
    flow_set::check(&index, findings);
    tool_mappings::check(&index, findings);
    for flow in index.own_flows() {
        let graph = flow_graph::FlowGraph::of(flow);
        let dataflow = dataflow::Dataflow::of(&index, &graph);
        branches::check(&index, &graph, &dataflow, findings);
        cycles::check(&index, &graph, &dataflow, findings);
        fill_order::check(&index, &graph, &dataflow, findings);
    }
    link_cycles::check(&index, findings);
    if has_no_errors {
        lifetimes::check(&index, findings);
        unused::check(&index, findings);
    }
    let mine = findings.as_slice().get(before..).unwrap_or_default();
    debug_assert!(mine.iter().all(|f| f.severity != Severity::Error), "analysis never stops a project: {mine:?}");
}
