//! What a unit keeps between its slices: one JSON object that people can read.

use std::sync::Arc;

use indexmap::IndexMap;
use segue_engine::{ids::AgentName, mission::learnings::Learnings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::calls::OpenCall;
use crate::{
    agents::remote::RemoteSession,
    journal::ListedTool,
    llm::{ChatMessage, ToolSpec},
    react::LoopState,
    store::JournalRecord,
};

/// What a unit keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct UnitCheckpoint {
    /// The session of the commander.
    pub(super) commander: CommanderSession,
    /// The sessions of the agents that it called.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(super) agents: IndexMap<AgentName, AgentSession>,
    /// The calls of agents in the response that the commander's loop works on, by their keys.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(super) calls: IndexMap<Arc<str>, OpenCall>,
    /// The records of that response, without those of its agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) records: Vec<JournalRecord>,
    /// The questions to commanders of completed tasks with their answers, by unit: a later question follows the earlier ones.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(super) questions: IndexMap<Arc<str>, Vec<Arc<ChatMessage>>>,
    /// What was learned about the current item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learnings: Option<Learnings>,
}

/// The session of a commander.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CommanderSession {
    /// How it began; empty before its first model call.
    pub(super) start: SessionStart,
    /// The loop.
    pub(super) state: LoopState,
    /// Model calls before the current item of a sequential iteration.
    pub(super) calls_before: u32,
}

/// How a session began. It is a step of the journal, so that a repetition after a crash sends the model the same requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionStart {
    /// The first messages.
    pub(super) messages: Vec<Arc<ChatMessage>>,
    /// The tools of the mission.
    pub(super) control: Vec<ToolSpec>,
    /// The tools of servers and of the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<ListedTool>,
}

/// The session of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgentSession {
    /// How it began.
    pub(super) start: SessionStart,
    /// The loop; its messages are those since the start.
    pub(super) state: LoopState,
    /// The latest assignment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assignment: Option<Arc<str>>,
    /// The ids of a remote agent's context and task.
    #[serde(skip_serializing_if = "RemoteSession::is_empty")]
    pub(super) remote: RemoteSession,
    /// The state of its rules: counted calls.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) policy: Map<String, Json>,
    /// How long it has worked on the latest assignment, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) worked_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}
