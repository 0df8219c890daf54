//! Every text a model reads: the files of `prompts/`, compiled once.
//!
//! Entry: [`PromptSet::new`]. A project replaces any of them by a file of the same name in its own `prompts/` folder. Our
//! texts are compiled strictly: a variable that is missing is an error of ours, found by a test, never a gap in a prompt.
//! This room holds no logic about when a text is used.

use std::sync::Arc;

use minijinja::Value;
use segue_engine::template::{Template, TemplateEngine, TemplateError, TemplateSource, UndefinedMode};

macro_rules! prompts {
    ($($(#[$doc:meta])* $field:ident = $file:literal),* $(,)?) => {
        /// The compiled texts.
        #[derive(Debug)]
        pub struct PromptSet {
            engine: TemplateEngine,
            $($(#[$doc])* pub $field: Template,)*
        }

        impl PromptSet {
            /// Compiles all texts; `replacement` may give another text for a file name.
            ///
            /// # Errors
            /// [`TemplateError`] when a replacement has a syntax error; it names the file and line.
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
            /// The names of the files.
            pub const FILES: &'static [&'static str] = &[$($file,)*];
        }
    };
}

prompts! {
    /// The command generator: task, grammar and rules; stable for a project.
    commands = "commands.j2",
    /// The command generator: state, history and message; new at every turn.
    commands_turn = "commands_turn.j2",
    /// The command generator: what was wrong with its answer.
    commands_repair = "commands_repair.j2",
    /// The command generator: after an empty answer.
    commands_retry_empty = "commands_retry_empty.j2",
    /// The rephraser: task and rules; stable for a language.
    rephrase = "rephrase.j2",
    /// The rephraser: history, message and text; new at every response.
    rephrase_turn = "rephrase_turn.j2",
    /// Answers from documents: task and rules; stable for a project.
    knowledge = "knowledge.j2",
    /// Answers from documents: passages, history and question; new at every question.
    knowledge_turn = "knowledge_turn.j2",
    /// An open agent: stable for the agent.
    agent_open = "agent_open.j2",
    /// A task agent: stable for the agent.
    agent_task = "agent_task.j2",
    /// Both kinds: time, values, resume and restart; new at every turn.
    agent_context = "agent_context.j2",
    /// Asks for the closing line.
    agent_closing = "agent_closing.j2",
    /// The two lines around an earlier run.
    agent_markers = "agent_markers.j2",
    /// After a reply that a crash cut off.
    agent_interrupted = "agent_interrupted.j2",
    /// After an empty answer.
    agent_retry_empty = "agent_retry_empty.j2",
    /// Description of `task_completed`.
    tool_task_completed = "tool_task_completed.j2",
    /// Description of `set_slot_<name>`.
    tool_set_slot = "tool_set_slot.j2",
    /// What `set_slot_<name>` answers.
    agent_slot_results = "agent_slot_results.j2",
    /// What a call answers that reached no tool.
    agent_tool_results = "agent_tool_results.j2",
    /// What a call answers that the author's rules stopped, and what the user said to calls they were shown.
    agent_gate = "agent_gate.j2",
    /// After a claim that nothing proves.
    agent_unproven = "agent_unproven.j2",
    /// Tests: is everything that a text says supported?
    judge_grounded = "judge_grounded.j2",
    /// Tests: does a text answer what was said?
    judge_relevant = "judge_relevant.j2",
}

impl PromptSet {
    /// Renders one text.
    ///
    /// # Errors
    /// [`TemplateError`] when a variable is missing or a limit is passed.
    pub fn render(&self, prompt: &Template, context: Value) -> Result<String, TemplateError> {
        self.engine.render(prompt, context)
    }
}
