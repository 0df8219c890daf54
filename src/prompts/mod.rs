//! The prompt templates: the files `prompts/*.j2`, compiled once.
//!
//! Entry: [`PromptSet::new`]. A project replaces a built-in template with a file of the same name in its own `prompts/` folder. In built-in
//! templates a missing variable is an error; in those of a project it renders as nothing. This module does not decide when a prompt is
//! used.

use std::sync::Arc;

use minijinja::Value;
use segue_engine::{
    conversation::Writes,
    template::{Template, TemplateEngine, TemplateError, TemplateSource, UndefinedMode, from_json},
};

macro_rules! prompts {
    ($($(#[$doc:meta])* $field:ident = $file:literal),* $(,)?) => {
        /// The compiled templates.
        #[derive(Debug)]
        pub struct PromptSet {
            engine: TemplateEngine,
            $($(#[$doc])* pub $field: Template,)*
        }

        impl PromptSet {
            /// Compiles all templates. `replacement` returns the project's own text for a file name, if it has one.
            ///
            /// # Errors
            /// [`TemplateError`] with file and line when a replacement has a syntax error.
            pub fn new(replacement: impl Fn(&str) -> Option<Arc<str>>) -> Result<Self, TemplateError> {
                let engine = TemplateEngine::new();
                $(let $field = match replacement($file) {
                    Some(text) => engine.compile(
                        &TemplateSource::from_project_file(concat!("prompts/", $file), &text), UndefinedMode::Lenient)?,
                    None => engine.compile(
                        &TemplateSource::embedded(concat!("prompts/", $file), include_str!(concat!("../../prompts/", $file))),
                        UndefinedMode::Strict)?,
                };)*
                Ok(Self { engine, $($field,)* })
            }
            /// The file names of all templates.
            pub const FILES: &'static [&'static str] = &[$($file,)*];
        }
    };
}

prompts! {
    /// Command generator: task, grammar and rules; constant for a project.
    commands = "commands.j2",
    /// Command generator: state, history and message; rendered at every turn.
    commands_turn = "commands_turn.j2",
    /// Command generator: the problems of its answer.
    commands_repair = "commands_repair.j2",
    /// Command generator: the retry after an empty answer.
    commands_retry_empty = "commands_retry_empty.j2",
    /// Rephraser: task and rules; constant for a language.
    rephrase = "rephrase.j2",
    /// Rephraser: history, message and text; rendered for every response.
    rephrase_turn = "rephrase_turn.j2",
    /// Answers from documents: task and rules; constant for a project.
    knowledge = "knowledge.j2",
    /// Answers from documents: passages, history and question; rendered for every question.
    knowledge_turn = "knowledge_turn.j2",
    /// Open agent: the system prompt; constant for an agent.
    agent_open = "agent_open.j2",
    /// Task agent: the system prompt; constant for an agent.
    agent_task = "agent_task.j2",
    /// Both kinds of agent: time, values, resume and restart; rendered at every turn.
    agent_context = "agent_context.j2",
    /// Agent: asks for the closing message.
    agent_closing = "agent_closing.j2",
    /// Agent: the lines before and after an earlier run.
    agent_markers = "agent_markers.j2",
    /// Agent: the note after a reply that a crash truncated.
    agent_interrupted = "agent_interrupted.j2",
    /// Agent: the retry after an empty answer.
    agent_retry_empty = "agent_retry_empty.j2",
    /// The description of the tool `task_completed`.
    tool_task_completed = "tool_task_completed.j2",
    /// The description of the tools `set_slot_<name>`.
    tool_set_slot = "tool_set_slot.j2",
    /// The results of `set_slot_<name>`.
    agent_slot_results = "agent_slot_results.j2",
    /// The results of calls that reached no tool.
    agent_tool_results = "agent_tool_results.j2",
    /// The results of calls that a policy of the project refused or that need a confirmation, and the user's answers to confirmations.
    agent_gate = "agent_gate.j2",
    /// Agent: the retry after a claim without grounds in tool results.
    agent_unproven = "agent_unproven.j2",
    /// What became of a call that has no result.
    loop_healing = "loop_healing.j2",
    /// The message in place of the older messages of a long run.
    loop_summary = "loop_summary.j2",
    /// The preview of a long tool result, and the texts of the tools that read the rest.
    loop_results = "loop_results.j2",
    /// Warnings about repeated calls and spent budgets, and the request to answer at once.
    loop_guards = "loop_guards.j2",
    /// Every agent with skills: their names and descriptions; stable for an agent.
    agent_skills = "agent_skills.j2",
    /// The instructions of the loaded skills.
    agent_skills_loaded = "agent_skills_loaded.j2",
    /// The descriptions of the tools for skills, as JSON.
    tool_skills = "tool_skills.j2",
    /// The results of the tools for skills, and of calls that skills do not allow.
    agent_skill_results = "agent_skill_results.j2",
    /// A sub-agent: role, rules and report; stable for a type.
    delegate = "delegate.j2",
    /// The same for the built-in type `bash`.
    delegate_bash = "delegate_bash.j2",
    /// A sub-agent: its limits, and what was wrong with its response.
    delegate_turn = "delegate_turn.j2",
    /// The result of `task` and of the tools for background sub-agents.
    delegate_results = "delegate_results.j2",
    /// Descriptions and parameters of `task`, `task_status`, `task_result`, `task_cancel` and `submit_result`, as JSON.
    tool_task = "tool_task.j2",
    /// An agent that may delegate: types and policy; stable for the agent.
    agent_delegation = "agent_delegation.j2",
    /// An agent that may delegate: its sub-agents so far.
    agent_delegation_ledger = "agent_delegation_ledger.j2",
    /// An agent with a workspace: its folders; stable for the agent.
    agent_workspace = "agent_workspace.j2",
    /// Commander of a task: its role, the task, the tasks before it, output and routes.
    mission_commander = "mission_commander.j2",
    /// Commander: the first message, with the objective.
    mission_objective = "mission_objective.j2",
    /// Commander: the message after an answer without a tool call.
    mission_correction = "mission_correction.j2",
    /// Agent of a mission: its role, its datasets and secrets.
    mission_agent = "mission_agent.j2",
    /// Commander or agent of a mission: which tools reach which files.
    mission_folders = "mission_folders.j2",
    /// The messages that a commander or an agent of a mission is sent.
    mission_envelopes = "mission_envelopes.j2",
    /// Commander: what a summary of its session contains.
    mission_facts = "mission_facts.j2",
    /// The descriptions of the tools of commanders and of agents in missions.
    mission_tools = "mission_tools.j2",
    /// What work that ended has changed, for those who go on with it.
    writes = "writes.j2",
    /// End-to-end tests: whether a text is supported by its sources.
    judge_grounded = "judge_grounded.j2",
    /// End-to-end tests: whether a text answers the user's message.
    judge_relevant = "judge_relevant.j2",
}

/// Whose writes a text lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritesOf {
    /// Those of work whose end is told beside them.
    EndedWork,
    /// Those of an earlier run of an agent, which did not complete its task.
    UnfinishedRun,
    /// Those of an earlier attempt.
    Attempt,
}

impl PromptSet {
    /// Renders one template of this set.
    ///
    /// # Errors
    /// [`TemplateError`] when a variable of a built-in template is missing or a limit is exceeded.
    pub fn render(&self, prompt: &Template, context: Value) -> Result<String, TemplateError> {
        self.engine.render(prompt, context)
    }

    /// What work that ended has changed, for a model that goes on with it; `None` if that is nothing. `role` says what kind of work it was.
    pub(crate) fn writes_text(&self, writes: &Writes, role: WritesOf) -> Option<String> {
        if writes.is_empty() {
            return None;
        }
        let context = minijinja::context! {
            unfinished => role == WritesOf::UnfinishedRun,
            attempt => role == WritesOf::Attempt,
            done => from_json(&serde_json::json!(writes.done)),
            in_doubt => from_json(&serde_json::json!(writes.in_doubt)),
            omitted => writes.omitted.len(),
        };
        self.render(&self.writes, context).ok().map(|text| text.trim().to_owned())
    }
}
