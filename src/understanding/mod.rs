//! From words to commands.
//!
//! *For*: what the person means, as commands for the dialogue engine, where that needs a model. Buttons, structured messages and
//! answers that are plain by themselves never come here. *Entry*: [`CommandGenerator::understand`]. *Never*: executes a command;
//! lets a command act before the model's terminal mark came (guarded by `a_broken_answer_yields_no_command`); takes what a
//! person wrote for anything but data; fails: what goes wrong is a command too, and [`Understanding::failures`] says why.
//!
//! | file | holds |
//! | --- | --- |
//! | `view` | what of project and conversation matters: startable flows, the flow under way, the open question |
//! | `state`, `own` | how it is shown: to our prompt, to a template of the project |
//! | `retrieval` | which flows are shown when there are many |
//! | `generator` | the requests; the stable part is rendered once |
//! | `grammar` | text forms to commands |
//! | `repair` | what to do with answers that are not quite commands |
//! | `sift` | which commands may not be given now |

#[cfg(test)]
mod fixture;
mod generator;
mod grammar;
mod own;
mod repair;
mod retrieval;
mod sift;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use segue_engine::{
    conversation::{Command, Conversation},
    ids::FlowId,
    project::Project,
    time::Timestamp,
};
use serde_json::Map;

pub use self::retrieval::Choice;
use self::{generator::Generator, grammar::Grammar, retrieval::Retrieval, view::View};
use crate::{
    context::CallContext,
    limits,
    llm::{ChatRequest, ChatResponse, Embedder, Llm, LlmError},
    prompts::PromptSet,
};

/// The reason of `cannot handle` when nothing was understood.
const CANNOT_HANDLE: &str = "cannot_handle_default";
/// The kind of error when the model fails.
const INTERNAL_ERROR: &str = "rasa_internal_error_default";

/// What a message was understood as.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Understanding {
    /// The commands, in the order of the message. Empty only while an agent waits: the message is for the agent.
    pub commands: Vec<Command>,
    /// What was left out of the model's answers, and why; for the trace.
    pub notes: Vec<String>,
    /// What went wrong on our side, for operators; empty when all is well.
    pub failures: Vec<String>,
    /// How often the model was asked.
    pub model_calls: u32,
}

/// Finds commands in messages. One for a project, shared by all its conversations.
#[derive(Debug)]
pub struct CommandGenerator {
    generator: Generator,
    retrieval: Retrieval,
}

impl CommandGenerator {
    /// An understander that asks with these prompts.
    pub fn new(prompts: Arc<PromptSet>) -> Self {
        Self { generator: Generator::new(prompts), retrieval: Retrieval::default() }
    }

    /// The same, which compares the meanings of flows and messages by this model.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Option<Arc<dyn Embedder>>) -> Self {
        self.retrieval = Retrieval::new(embedder);
        self
    }

    /// Whether flows must be chosen for the prompt: there are more to start than it may show.
    pub fn must_choose(&self, project: &Project, conversation: &Conversation) -> bool {
        Retrieval::is_needed(project, conversation)
    }

    /// Chooses the flows that fit the newest message. Never fails: without an embedding service, or when it fails, words decide.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the embedding service; nothing else is held.
    pub async fn choose(&self, project: &Project, conversation: &Conversation, cx: &CallContext) -> Choice {
        self.retrieval.choose(project, conversation, cx).await
    }

    /// The flows that the prompt shows with a choice, in the order of the project.
    pub fn flows_in_prompt(&self, choice: &Choice, project: &Project, conversation: &Conversation) -> Vec<FlowId> {
        let mut view = View::new(project, conversation);
        view.choose(&choice.flows);
        view.shown.iter().map(|flow| flow.id.clone()).collect()
    }

    /// Finds the commands in the newest message of `conversation`. `at` is what prompts show as the present time.
    ///
    /// Never fails: a failure of the model is one `error` command, a message without a command is `cannot handle`; with an
    /// agent waiting, no command at all. The model is asked once, and once more where its answer is doubtful.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the model; nothing else is held. When `cx` is cancelled or its deadline
    /// passes, it ends like a failure of the model.
    pub async fn understand(
        &self,
        project: &Arc<Project>,
        conversation: &Conversation,
        at: Timestamp,
        llm: &Arc<dyn Llm>,
        cx: &CallContext,
    ) -> Understanding {
        self.understand_among(None, project, conversation, at, llm, cx).await
    }

    /// The same, with the flows of a choice in the prompt in place of all that can be started.
    pub async fn understand_among(
        &self,
        choice: Option<&Choice>,
        project: &Arc<Project>,
        conversation: &Conversation,
        at: Timestamp,
        llm: &Arc<dyn Llm>,
        cx: &CallContext,
    ) -> Understanding {
        let mut view = View::new(project, conversation);
        let mut result = Understanding::default();
        if let Some(choice) = choice {
            view.choose(&choice.flows);
        }
        let is_silent = view.message().trim().is_empty();
        let has_nothing = view.startable.is_empty() && conversation.stack.is_empty() && project.config.search.is_none();
        if is_silent || has_nothing {
            result.notes.push(if is_silent { "the message is empty" } else { "there is no flow to start" }.to_owned());
            result.commands = or_nothing(&view, Vec::new());
            return result;
        }
        match self.ask(&view, at, llm, cx, &mut result).await {
            Ok(commands) => {
                let commands = sift::sift(&view, commands, &mut result.notes);
                result.commands = or_nothing(&view, commands);
            }
            Err(failure) => {
                result.failures.push(failure);
                result.commands = vec![Command::Error { error_type: INTERNAL_ERROR.into(), info: Map::new() }];
            }
        }
        result
    }

    /// Asks, reads, and asks again if that may help.
    async fn ask(
        &self,
        view: &View<'_>,
        at: Timestamp,
        llm: &Arc<dyn Llm>,
        cx: &CallContext,
        result: &mut Understanding,
    ) -> Result<Vec<Command>, String> {
        let grammar = Grammar { project: view.project, active: view.cancellable() };
        let first = self.generator.request(view, at, llm.profile())?;
        let mut request = first.clone();
        for round in 0..=limits::COMMAND_REPAIRS {
            let step;
            let cx = if round == 0 {
                cx
            } else {
                step = cx.step(format_args!("repair.{round}"));
                &step
            };
            result.model_calls += 1;
            let answer = match call(llm, request, cx).await {
                Ok(answer) => answer,
                // The first answer came; that the second did not is no worse than that it is useless.
                Err(error) if round > 0 => {
                    result.notes.push(format!("the answer could not be mended: {}", told(&error)));
                    return Ok(Vec::new());
                }
                Err(error) => return Err(told(&error)),
            };
            let reading = repair::read(&answer, &grammar);
            result.notes.extend(reading.dropped.iter().map(ToString::to_string));
            // An agent that waits takes every message in which no command is found: asking again only costs time. An empty
            // answer is none.
            let may_help = reading.is_blank || (!reading.mistakes.is_empty() && view.active_agent().is_none());
            let is_done = !may_help;
            if is_done || round == limits::COMMAND_REPAIRS {
                if !is_done {
                    result.notes.push("the second answer cannot be used either".to_owned());
                }
                return Ok(reading.commands);
            }
            request = if reading.is_blank {
                result.notes.push("the answer is empty".to_owned());
                self.generator.nudge(&first)?
            } else {
                self.generator.mend(&first, &answer.text, &reading.mistakes)?
            };
        }
        Ok(Vec::new())
    }
}

/// One whole answer: nothing of it is read before its terminal mark.
async fn call(llm: &Arc<dyn Llm>, request: ChatRequest, cx: &CallContext) -> Result<Arc<ChatResponse>, LlmError> {
    llm.chat(request, cx).await?.finish().await
}

fn told(error: &LlmError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {error} ({detail})", error.code()),
        None => format!("{}: {error}", error.code()),
    }
}

/// No command means that nothing was understood, unless an agent waits: then the message is for the agent.
fn or_nothing(view: &View<'_>, commands: Vec<Command>) -> Vec<Command> {
    if commands.is_empty() && view.active_agent().is_none() { vec![cannot_handle()] } else { commands }
}

fn cannot_handle() -> Command {
    Command::CannotHandle { reason: CANNOT_HANDLE.into() }
}
