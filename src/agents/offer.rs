//! What a model is offered in a run, and the texts around it, as hooks want them.

use std::sync::Arc;

use segue_engine::conversation::AgentKind;

use super::{
    AgentRequest,
    completion::{self, Ledger},
    hooked::{Asked, Hooked, heard},
    hooks::HookError,
    profile::Profile,
    slot_tools,
    slots::RunSlots,
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    llm::{ChatMessage, ToolList, ToolSpec},
    prompts::PromptSet,
};

/// What the hooks of a run are asked with.
pub(super) struct Asking<'r, 'a> {
    pub(super) task: &'r AgentRequest<'a>,
    pub(super) hooked: Option<&'r Hooked<'a>>,
    pub(super) ledger: &'r mut Ledger<'a>,
    pub(super) out: &'r mut dyn ReplySink,
    pub(super) cx: &'r CallContext,
}

impl Asking<'_, '_> {
    /// The tools that the model is offered: servers' and custom ones, then the profile's own.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn tools(
        &mut self,
        profile: &Profile,
        slots: &RunSlots<'_>,
        prompts: &PromptSet,
    ) -> Result<ToolList, HookError> {
        let own = self.task.tools.specs().map(|spec| ToolSpec {
            name: spec.name.clone(),
            description: spec.description.clone(),
            parameters: spec.parameters.clone(),
            strict: spec.strict,
        });
        let built_in = completion::built_in_tools(profile, slots, prompts);
        match self.hooked {
            None => Ok(own.chain(built_in).collect()),
            Some(hooked) => Box::pin(self.hooked_tools(hooked, own.collect(), built_in, profile, slots)).await,
        }
    }

    async fn hooked_tools(
        &mut self,
        hooked: &Hooked<'_>,
        mut usual: Vec<ToolSpec>,
        built_in: impl IntoIterator<Item = ToolSpec>,
        profile: &Profile,
        slots: &RunSlots<'_>,
    ) -> Result<ToolList, HookError> {
        for tool in built_in {
            usual.push(self.built_in(hooked, tool, profile, slots).await?);
        }
        let names: Vec<Arc<str>> = usual.iter().map(|tool| tool.name.clone()).collect();
        let mut asked = Asked::new(self.task, "hook.tools", self.cx);
        let work = hooked.hooks.tools(&usual, &hooked.input, &asked.given);
        let chosen = heard(work, &mut asked.speech, self.ledger, self.out, &asked.cx).await?;
        Ok(chosen.unwrap_or(usual).into_iter().filter(|tool| names.contains(&tool.name)).collect())
    }

    /// A tool of the profile as hooks want it. The loop knows its tools by their names alone.
    async fn built_in(
        &mut self,
        hooked: &Hooked<'_>,
        usual: ToolSpec,
        profile: &Profile,
        slots: &RunSlots<'_>,
    ) -> Result<ToolSpec, HookError> {
        let name = usual.name.clone();
        let slot = name.strip_prefix(slot_tools::PREFIX).filter(|_| profile.kind == AgentKind::Task);
        let Some(slot) = slot.and_then(|slot| slots.definition(slot)) else {
            return Ok(ToolSpec { name, ..hooked.hooks.task_completed_tool(usual) });
        };
        let mut asked = Asked::new(self.task, &format!("hook.slot_tool.{}", slot.name), self.cx);
        let work = hooked.hooks.slot_tool(slot, &usual, &asked.given);
        let changed = heard(work, &mut asked.speech, self.ledger, self.out, &asked.cx).await?;
        Ok(ToolSpec { name, ..changed.unwrap_or(usual) })
    }

    /// The prompt.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn prompt(&mut self, usual: Arc<ChatMessage>) -> Result<Arc<ChatMessage>, HookError> {
        let Some(hooked) = self.hooked else { return Ok(usual) };
        let mut asked = Asked::new(self.task, "hook.prompt", self.cx);
        let work = hooked.hooks.prompt(usual.text(), &hooked.input, &asked.given);
        let changed = heard(work, &mut asked.speech, self.ledger, self.out, &asked.cx).await?;
        Ok(changed.map_or(usual, ChatMessage::system))
    }

    /// The messages of one model call.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn messages(&mut self, usual: Vec<Arc<ChatMessage>>) -> Result<Vec<Arc<ChatMessage>>, HookError> {
        let Some(hooked) = self.hooked else { return Ok(usual) };
        let mut asked = Asked::new(self.task, "hook.messages", self.cx);
        let work = hooked.hooks.messages(&usual, &hooked.input, &asked.given);
        let changed = heard(work, &mut asked.speech, self.ledger, self.out, &asked.cx).await?;
        Ok(changed.unwrap_or(usual))
    }
}
