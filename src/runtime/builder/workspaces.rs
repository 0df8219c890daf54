//! The tools for the files of conversations and runs, the sandbox of their commands, and the built-in tools of agents.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use segue_engine::project::{
    BuiltinTools, Preset, SandboxProgram, WorkspaceAccess,
    missions::{MissionDef, StorageDef},
};

use super::AssistantBuilder;
use crate::{
    delegation::{DELEGATES_ONLY, DelegationSettings},
    environment, limits,
    missions::LocalTools,
    secret::Secret,
    tools::{
        Tool, ToolHandler,
        builtin::{self, HttpTools},
        workspace::{
            ASK_CLARIFICATION, BASH, PRESENT_FILES, Sandbox, SandboxError, SandboxPreset, Slot, SlotSettings, Slots,
            WorkspaceSettings, WorkspaceTools, Workspaces,
        },
    },
};

/// Parts of the names of environment variables whose values are masked in what agents read.
const SECRET_NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Values that are shorter are no secrets.
const SHORTEST_SECRET: usize = 8;

/// The tools of agents by name, as they are registered.
pub(super) type AgentTools = HashMap<String, Vec<Arc<dyn ToolHandler>>>;

impl AssistantBuilder {
    /// Sets the folder that contains the folders of conversations and of runs. Default: `.segue/runs` of the project.
    #[must_use]
    pub fn workspace_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workspace_folder = Some(folder.into());
        self
    }

    /// The workspaces of this process.
    pub(super) fn workspaces(&self) -> Workspaces {
        let settings = WorkspaceSettings::for_project(&self.root);
        let mut settings = settings.unwrap_or_else(|_| WorkspaceSettings::new(".segue/runs"));
        if let Some(folder) = &self.workspace_folder {
            settings.folder.clone_from(folder);
        }
        settings.max_bytes = self.project.endpoints.workspace_bytes.unwrap_or(settings.max_bytes);
        settings.secrets = secrets();
        Workspaces::new(settings)
    }

    /// The sandbox of commands; `None` if the project sets none.
    pub(super) fn sandbox(&self) -> Option<Sandbox> {
        let def = self.project.endpoints.sandbox.as_ref().filter(|_| !self.offline)?;
        let command = match &def.program {
            SandboxProgram::Command(command) => Ok(command.iter().map(|part| part.to_string()).collect()),
            SandboxProgram::Bubblewrap { network, read_only } => {
                let preset = SandboxPreset::new().network(*network);
                let preset = read_only.iter().fold(preset, |preset, folder| preset.read_only(&**folder));
                preset.command(environment::variable("PATH").unwrap_or_default().as_ref())
            }
        };
        // Agents without commands can work: those with commands get an error from each.
        let command = command.unwrap_or_else(|error: SandboxError| {
            tracing::warn!(code = error.code(), %error, "agents cannot run commands");
            vec!["bwrap".to_owned()]
        });
        let mut sandbox = match Sandbox::new(command) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                tracing::warn!(code = error.code(), %error, "agents cannot run commands");
                return None;
            }
        };
        if let Some(limit) = def.timeout {
            sandbox = sandbox.time_limit(limit);
        }
        if let Some(most) = def.max_parallel {
            sandbox = sandbox.parallel(most);
        }
        Some(match &def.path {
            Some(path) => sandbox.path(path.to_string()),
            None => sandbox,
        })
    }

    /// Gives agents of conversations the tools of their workspace, and those of a lead to agents with a workspace or sub-agents.
    pub(super) fn add_conversation_tools(&self, workspaces: &Workspaces, agents: &mut AgentTools) {
        let tools = WorkspaceTools::of_conversations(workspaces.clone()).sandbox(self.sandbox());
        let delegation = self.delegation_settings();
        for agent in self.project.agents.values().filter(|agent| agent.remote.is_none()) {
            if !agent.builtin_tools.is_none() {
                agents.entry(agent.name.to_string()).or_default().extend(self.builtin_tools(&agent.builtin_tools));
            }
            let (access, settings) = (&agent.workspace, delegation.get(agent.name.as_str()));
            if access.is_none() && settings.is_none() {
                continue;
            }
            let mut names = access.tools().to_vec();
            if access.changes_files() || settings.is_some_and(|settings| !delegates_only(access, settings).is_empty()) {
                names.push(PRESENT_FILES);
            }
            names.push(ASK_CLARIFICATION);
            let own = names.into_iter().filter_map(|name| tools.tool(name));
            let delegates = settings.map(|settings| delegates_only(access, settings)).unwrap_or_default();
            let delegates = delegates.into_iter().filter_map(|name| tools.tool(name));
            let all = own.chain(delegates.map(|tool| tool.source(DELEGATES_ONLY)));
            agents.entry(agent.name.to_string()).or_default().extend(all.map(handler));
        }
    }

    /// Gives agents of missions the tools of the workspace of their run. Returns those of agents that exist in one mission only, by mission
    /// and agent.
    pub(super) fn add_run_tools(&self, workspaces: &Workspaces, agents: &mut AgentTools) -> LocalTools {
        let tools = WorkspaceTools::of_runs(workspaces.clone()).sandbox(self.sandbox());
        let of = |access: &WorkspaceAccess, builtin: &BuiltinTools| -> Vec<Arc<dyn ToolHandler>> {
            let own = access.tools().iter().filter_map(|name| tools.tool(name)).map(handler);
            own.chain(self.builtin_tools(builtin)).collect()
        };
        let delegation = self.delegation_settings();
        for agent in self.project.agents.values().filter(|agent| agent.remote.is_none()) {
            let mut own = of(&agent.workspace, &agent.builtin_tools);
            let settings = delegation.get(agent.name.as_str());
            let delegates = settings.map(|settings| delegates_only(&agent.workspace, settings)).unwrap_or_default();
            let delegates = delegates.into_iter().filter_map(|name| tools.tool(name));
            own.extend(delegates.map(|tool| handler(tool.source(DELEGATES_ONLY))));
            if !own.is_empty() {
                agents.entry(agent.name.to_string()).or_default().extend(own);
            }
        }
        let missions = self.project.missions.iter();
        let local = missions.flat_map(|(mission, def)| def.local_agents.iter().map(move |local| (mission, local)));
        local
            .map(|(mission, (name, agent))| {
                ((mission.clone(), name.clone()), of(&agent.workspace, &agent.builtin_tools))
            })
            .collect()
    }

    /// The built-in tools of an agent.
    fn builtin_tools(&self, def: &BuiltinTools) -> Vec<Arc<dyn ToolHandler>> {
        let utils = if def.utils { builtin::utils() } else { Vec::new() };
        let http = match def.http.is_empty() || self.offline {
            true => Vec::new(),
            false => HttpTools::new(def.http.clone(), &self.outbound).tools(),
        };
        utils.into_iter().chain(http).map(handler).collect()
    }

    /// The tools for the folders of missions, by mission.
    pub(super) fn file_tools(&self, workspaces: &Workspaces) -> HashMap<Arc<str>, Vec<Arc<dyn ToolHandler>>> {
        let settings = SlotSettings {
            project: self.root.clone(),
            runs: workspaces.folder().to_path_buf(),
            max_bytes: self.project.endpoints.workspace_bytes.unwrap_or(limits::WORKSPACE_BYTES),
            secrets: secrets(),
        };
        let tools = |(name, mission): (&Arc<str>, &Arc<MissionDef>)| {
            let StorageDef { memory, scratchpad, shared, packets } = &mission.storage;
            let memory = memory.iter().map(|description| Slot::memory(name.clone(), description.clone()));
            let scratchpad = scratchpad.then(Slot::scratchpad);
            let shared = shared.iter().map(|(name, description)| Slot::shared(name.clone(), description.clone()));
            let packets = packets.iter().map(|(name, one)| Slot::packet(name, &one.path, one.description.clone()));
            let slots = memory.chain(scratchpad).chain(shared).chain(packets).collect();
            let tools = Slots::new(slots, settings.clone()).tools();
            (name.clone(), tools.into_iter().map(handler).collect())
        };
        self.project.missions.iter().map(tools).collect()
    }

    /// The longest time of a command with its wait, or of `sleep`; `None` if no agent has one of them.
    pub(super) fn longest_command(&self) -> Option<Duration> {
        let agents = || self.project.agents.values();
        let sleep = agents().any(|agent| agent.builtin_tools.utils).then_some(limits::SLEEP_LONGEST);
        let sandbox =
            self.project.endpoints.sandbox.as_ref().filter(|_| agents().any(|agent| agent.workspace.has(BASH)));
        let command = sandbox
            .map(|sandbox| sandbox.timeout.unwrap_or(limits::SANDBOX_TIME).saturating_add(limits::SANDBOX_QUEUE));
        sleep.max(command)
    }
}

fn handler(tool: Tool) -> Arc<dyn ToolHandler> {
    Arc::new(tool)
}

/// The tools that an agent does not have itself and that a type of its sub-agents names: a type that runs commands, for an agent that runs
/// none.
fn delegates_only(access: &WorkspaceAccess, settings: &DelegationSettings) -> Vec<&'static str> {
    let types = settings.types.values().filter(|kind| kind.preset == Some(Preset::Bash) || names(&kind.tools, BASH));
    let types: Vec<_> = types.collect();
    let is_named = |tool: &&str| types.iter().any(|kind| names(&kind.tools, tool));
    WorkspaceAccess::TOOLS.into_iter().filter(|tool| !access.has(tool)).filter(is_named).collect()
}

fn names(tools: &Option<Vec<Arc<str>>>, tool: &str) -> bool {
    tools.as_ref().is_some_and(|tools| tools.iter().any(|name| **name == *tool))
}

/// The values of environment variables that look like secrets.
fn secrets() -> Vec<Secret> {
    let is_secret = |name: &str| SECRET_NAMES.iter().any(|part| name.to_ascii_uppercase().contains(part));
    let all = environment::all().into_iter();
    all.filter(|(name, value)| value.len() >= SHORTEST_SECRET && is_secret(name))
        .map(|(_, value)| Secret::new(value))
        .collect()
}
