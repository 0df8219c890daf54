//! Delegation: an agent hands work to a sub-agent in a fresh context, and gets its report as the result of a tool call.
//!
//! The tool is `task`. Each call starts a sub-agent: a run of the ReAct loop whose only message is the prompt of the call.
//! A delegate has the tools of its parent, filtered by its type, without `task` itself. Its model and tool calls are recorded below the
//! key of the call, so that a turn that runs again replays them.
//!
//! [`Delegations`] is shared by all conversations of a process: it admits delegates, first in, first out, and fair between
//! conversations, knows the running ones by their id, and cancels them. Every delegate ends in exactly one [`TaskReport`].
//!
//! This module knows models, tools, prompts and the journal. It does not know agents, conversations and channels.

mod admission;
mod background;
mod criteria;
mod durable;
mod events;
mod executor;
mod ledger;
mod loop_host;
mod parent;
mod report;
mod task;
#[cfg(test)]
mod tests;
mod types;
mod writes;

pub(crate) use self::{
    background::Background,
    durable::{BackgroundState, BackgroundTasks, DelegateParts, OpenParts},
    ledger::Ledger,
    loop_host::BudgetCheck,
    parent::{DelegationParent, LeadPrompt, PARENT_TOOLS, RunCounts, SharedBudget},
    report::{replacement_text, writes_of},
    task::{SOURCE, with_delegation},
    types::{DELEGATES_ONLY, TASK, delegates_only},
    writes::{LostWrites, take_lost},
};
pub use self::{
    criteria::{CheckedCriterion, Verdict},
    events::{DiscardTaskEvents, LogTaskEvents, TaskEvent, TaskEventSink, TokenCounts},
    executor::{Delegations, TaskSummary},
    report::{ReportStatus, StopReason, TaskReport},
    types::{AgentDelegation, DelegationSettings},
};
