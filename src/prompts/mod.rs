//! The prompt templates: the files `prompts/*.j2`, compiled once.
//!
//! Entry: [`PromptSet::new`]. A project replaces a built-in template with a file of the same name in its own `prompts/` folder. In built-in
//! templates a missing variable is an error; in those of a project it renders as nothing. This module does not decide when a prompt is
//! used.

use std::sync::Arc;

use minijinja::Value;
use segue_engine::template::{Template, TemplateEngine, TemplateError, TemplateSource, UndefinedMode};

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
    /// End-to-end tests: whether a text is supported by its sources.
    judge_grounded = "judge_grounded.j2",
    /// End-to-end tests: whether a text answers the user's message.
    judge_relevant = "judge_relevant.j2",
}

impl PromptSet {
    /// Renders one template of this set.
    ///
    /// # Errors
    /// [`TemplateError`] when a variable of a built-in template is missing or a limit is exceeded.
    pub fn render(&self, prompt: &Template, context: Value) -> Result<String, TemplateError> {
        self.engine.render(prompt, context)
    }
}
