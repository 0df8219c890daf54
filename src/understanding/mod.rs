//! The command generator: turns a user's message into commands for the dialogue engine by calling a model.
//!
//! [`CommandGenerator::generate`] never fails: a failed call is an `error` command, and [`Understanding::failures`] says why.
//! It executes no command, and returns none of an answer whose stream did not end with a finish reason. User messages are
//! data in every prompt. Buttons, structured messages and answers that the dialogue engine understands without a model do
//! not reach this module.
//!
//! | file | contents |
//! | --- | --- |
//! | `context` | what the generator sees: startable flows, the active flow, the open question |
//! | `state`, `custom_template` | how it is shown in the built-in prompt, and in a template of the project |
//! | `retrieval` | flow retrieval: which flows are shown when there are many |
//! | `prompt_builder` | the requests to the model |
//! | `grammar` | the text forms of commands |
//! | `answer_parser` | from a model's answer to commands |
//! | `flow_guards` | drops commands that start a flow whose guard is false |

mod answer_parser;
mod context;
mod custom_template;
#[cfg(test)]
mod fixture;
mod flow_guards;
mod grammar;
mod prompt_builder;
mod retrieval;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use segue_engine::{
    conversation::{Command, Conversation},
    ids::FlowId,
    project::Project,
    time::Timestamp,
};
use serde_json::Map;

pub use self::retrieval::FlowSelection;
use self::{context::GeneratorContext, grammar::Grammar, prompt_builder::PromptBuilder, retrieval::Retrieval};
use crate::{
    context::CallContext,
    limits,
    llm::{ChatRequest, ChatResponse, Embedder, Llm, LlmError},
    prompts::PromptSet,
};

/// The `reason` of `cannot handle` when no command was found, as in Rasa.
const CANNOT_HANDLE: &str = "cannot_handle_default";
/// The `error_type` when the model fails, as in Rasa.
const INTERNAL_ERROR: &str = "rasa_internal_error_default";

/// The result of one run of the command generator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Understanding {
    /// The commands in the order of the answer. Empty only while an agent waits for input: then the message is for the agent.
    pub commands: Vec<Command>,
    /// The parts of the model's answers that were dropped, and why; shown in the trace.
    pub notes: Vec<String>,
    /// The errors of the model or of a prompt template, for operators; usually empty.
    pub failures: Vec<String>,
    /// How often the model was called.
    pub model_calls: u32,
}

/// Generates commands from messages. There is one per project, shared by all its conversations.
#[derive(Debug)]
pub struct CommandGenerator {
    prompt_builder: PromptBuilder,
    retrieval: Retrieval,
}

impl CommandGenerator {
    /// A generator with these prompts and without an embedding model.
    pub fn new(prompts: Arc<PromptSet>) -> Self {
        Self { prompt_builder: PromptBuilder::new(prompts), retrieval: Retrieval::default() }
    }

    /// Sets the embedding model for flow retrieval.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Option<Arc<dyn Embedder>>) -> Self {
        self.retrieval = Retrieval::new(embedder);
        self
    }

    /// Whether flow retrieval is active and there are more startable flows than the prompt may show.
    pub fn needs_flow_retrieval(&self, project: &Project, conversation: &Conversation) -> bool {
        Retrieval::is_needed(project, conversation)
    }

    /// Selects the flows that fit the newest message. It never fails: without an embedding service, or when the service fails,
    /// it uses the lexical score alone.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the embedding service; it has no other effect.
    pub async fn select_flows(
        &self,
        project: &Project,
        conversation: &Conversation,
        cx: &CallContext,
    ) -> FlowSelection {
        self.retrieval.select_flows(project, conversation, cx).await
    }

    /// The flows that the prompt shows with this selection, in the order of the project.
    pub fn flows_in_prompt(
        &self,
        selection: &FlowSelection,
        project: &Project,
        conversation: &Conversation,
    ) -> Vec<FlowId> {
        let mut context = GeneratorContext::new(project, conversation);
        context.show_only(&selection.flows);
        context.shown.iter().map(|flow| flow.id.clone()).collect()
    }

    /// Generates commands for the newest message of `conversation`. `at` is the time that prompts show as now.
    ///
    /// It never fails. When the model fails, the result is one `error` command. When no command is found, it is
    /// `cannot handle`, or no command while an agent waits for input. The model is called once, and once more if its answer
    /// cannot be used.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection to the model; it has no other effect. A cancelled `cx` or a passed deadline
    /// counts as a failure of the model.
    pub async fn generate(
        &self,
        project: &Arc<Project>,
        conversation: &Conversation,
        at: Timestamp,
        llm: &Arc<dyn Llm>,
        cx: &CallContext,
    ) -> Understanding {
        self.generate_with_flows(None, project, conversation, at, llm, cx).await
    }

    /// Like [`Self::generate`], but the prompt shows the selected flows instead of all startable ones.
    pub async fn generate_with_flows(
        &self,
        selection: Option<&FlowSelection>,
        project: &Arc<Project>,
        conversation: &Conversation,
        at: Timestamp,
        llm: &Arc<dyn Llm>,
        cx: &CallContext,
    ) -> Understanding {
        let mut context = GeneratorContext::new(project, conversation);
        let mut result = Understanding::default();
        if let Some(selection) = selection {
            context.show_only(&selection.flows);
        }
        let is_empty = context.message().trim().is_empty();
        let has_no_flows =
            context.startable.is_empty() && conversation.stack.is_empty() && project.config.search.is_none();
        if is_empty || has_no_flows {
            result.notes.push(if is_empty { "the message is empty" } else { "there is no flow to start" }.to_owned());
            result.commands = or_cannot_handle(&context, Vec::new());
            return result;
        }
        match self.call_model(&context, at, llm, cx, &mut result).await {
            Ok(commands) => {
                let commands = flow_guards::drop_guarded_flows(&context, commands, &mut result.notes);
                result.commands = or_cannot_handle(&context, commands);
            }
            Err(failure) => {
                result.failures.push(failure);
                result.commands = vec![Command::Error { error_type: INTERNAL_ERROR.into(), info: Map::new() }];
            }
        }
        result
    }

    /// Calls the model and parses its answer; calls it again to repair an unusable answer.
    async fn call_model(
        &self,
        context: &GeneratorContext<'_>,
        at: Timestamp,
        llm: &Arc<dyn Llm>,
        cx: &CallContext,
        result: &mut Understanding,
    ) -> Result<Vec<Command>, String> {
        let grammar = Grammar { project: context.project, active: context.cancellable() };
        let first = self.prompt_builder.request(context, at, llm.profile())?;
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
            let answer = match complete_answer(llm, request, cx).await {
                Ok(answer) => answer,
                // A failed repair counts as an unusable answer, not as a failure of the model.
                Err(error) if round > 0 => {
                    result.notes.push(format!("the answer could not be repaired: {}", describe_error(&error)));
                    return Ok(Vec::new());
                }
                Err(error) => return Err(describe_error(&error)),
            };
            let parsed = answer_parser::parse(&answer, &grammar);
            result.notes.extend(parsed.dropped.iter().map(ToString::to_string));
            // While an agent waits, a message without commands goes to the agent, so a repair would only cost time. An empty
            // answer says nothing about the message and is requested again.
            let may_help = parsed.is_blank || (!parsed.mistakes.is_empty() && context.active_agent().is_none());
            let is_done = !may_help;
            if is_done || round == limits::COMMAND_REPAIRS {
                if !is_done {
                    result.notes.push("the second answer cannot be used either".to_owned());
                }
                return Ok(parsed.commands);
            }
            request = if parsed.is_blank {
                result.notes.push("the answer is empty".to_owned());
                self.prompt_builder.empty_answer_request(&first)?
            } else {
                self.prompt_builder.repair_request(&first, &answer.text, &parsed.mistakes)?
            };
        }
        Ok(Vec::new())
    }
}

/// The complete answer, after its finish reason. Parsing deltas earlier could execute commands of an answer that fails later.
async fn complete_answer(
    llm: &Arc<dyn Llm>,
    request: ChatRequest,
    cx: &CallContext,
) -> Result<Arc<ChatResponse>, LlmError> {
    llm.chat(request, cx).await?.finish().await
}

fn describe_error(error: &LlmError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {error} ({detail})", error.code()),
        None => format!("{}: {error}", error.code()),
    }
}

/// Replaces an empty list by `cannot handle`, unless an agent waits for input: then the message is for the agent.
fn or_cannot_handle(context: &GeneratorContext<'_>, commands: Vec<Command>) -> Vec<Command> {
    if commands.is_empty() && context.active_agent().is_none() { vec![cannot_handle()] } else { commands }
}

fn cannot_handle() -> Command {
    Command::CannotHandle { reason: CANNOT_HANDLE.into() }
}
