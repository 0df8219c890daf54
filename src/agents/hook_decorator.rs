//! Tools, prompt and messages of a model call, after the hooks changed them.

use std::sync::Arc;

use segue_engine::conversation::AgentKind;

use super::{
    AgentRequest,
    completion::{self, RunRecorder},
    hook_run::{HookCall, HookRun, await_hook},
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
    react::tool_spec,
};

/// Applies the hooks of a run to tools, prompt and messages.
pub(super) struct HookDecorator<'r, 'a> {
    pub(super) request: &'r AgentRequest<'a>,
    pub(super) hooks: Option<&'r HookRun<'a>>,
    pub(super) recorder: &'r mut RunRecorder<'a>,
    pub(super) out: &'r mut dyn ReplySink,
    pub(super) cx: &'r CallContext,
}

impl HookDecorator<'_, '_> {
    /// The tools that the model is offered: those of servers and custom ones, then the built-in tools of the profile.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn tools(
        &mut self,
        profile: &Profile,
        slots: &RunSlots<'_>,
        prompts: &PromptSet,
    ) -> Result<ToolList, HookError> {
        let own = self.request.tools.infos().map(tool_spec);
        let built_in = completion::built_in_tools(profile, slots, prompts);
        match self.hooks {
            None => Ok(own.chain(built_in).collect()),
            Some(hook_run) => Box::pin(self.decorated_tools(hook_run, own.collect(), built_in, profile, slots)).await,
        }
    }

    async fn decorated_tools(
        &mut self,
        hook_run: &HookRun<'_>,
        mut default: Vec<ToolSpec>,
        built_in: impl IntoIterator<Item = ToolSpec>,
        profile: &Profile,
        slots: &RunSlots<'_>,
    ) -> Result<ToolList, HookError> {
        for tool in built_in {
            default.push(self.built_in(hook_run, tool, profile, slots).await?);
        }
        let names: Vec<Arc<str>> = default.iter().map(|tool| tool.name.clone()).collect();
        let mut hook_call = HookCall::new(self.request, "hook.tools", self.cx);
        let work = hook_run.hooks.tools(&default, &hook_run.input, &hook_call.context);
        let chosen = await_hook(work, &mut hook_call.messages, self.recorder, self.out, &hook_call.cx).await?;
        Ok(chosen.unwrap_or(default).into_iter().filter(|tool| names.contains(&tool.name)).collect())
    }

    /// A built-in tool after the hooks changed it. Its name stays, because the loop recognises built-in tools by name.
    async fn built_in(
        &mut self,
        hook_run: &HookRun<'_>,
        default: ToolSpec,
        profile: &Profile,
        slots: &RunSlots<'_>,
    ) -> Result<ToolSpec, HookError> {
        let name = default.name.clone();
        let slot = name.strip_prefix(slot_tools::PREFIX).filter(|_| profile.kind == AgentKind::Task);
        let Some(slot) = slot.and_then(|slot| slots.definition(slot)) else {
            return Ok(ToolSpec { name, ..hook_run.hooks.task_completed_tool(default) });
        };
        let mut hook_call = HookCall::new(self.request, &format!("hook.slot_tool.{}", slot.name), self.cx);
        let work = hook_run.hooks.slot_tool(slot, &default, &hook_call.context);
        let changed = await_hook(work, &mut hook_call.messages, self.recorder, self.out, &hook_call.cx).await?;
        Ok(ToolSpec { name, ..changed.unwrap_or(default) })
    }

    /// The prompt.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn prompt(&mut self, default: Arc<ChatMessage>) -> Result<Arc<ChatMessage>, HookError> {
        let Some(hook_run) = self.hooks else { return Ok(default) };
        let mut hook_call = HookCall::new(self.request, "hook.prompt", self.cx);
        let work = hook_run.hooks.prompt(default.text(), &hook_run.input, &hook_call.context);
        let changed = await_hook(work, &mut hook_call.messages, self.recorder, self.out, &hook_call.cx).await?;
        Ok(changed.map_or(default, ChatMessage::system))
    }

    /// The messages of one model call.
    ///
    /// # Errors
    /// [`HookError`].
    pub(super) async fn messages(
        &mut self,
        default: Vec<Arc<ChatMessage>>,
    ) -> Result<Vec<Arc<ChatMessage>>, HookError> {
        let Some(hook_run) = self.hooks else { return Ok(default) };
        let mut hook_call = HookCall::new(self.request, "hook.messages", self.cx);
        let work = hook_run.hooks.messages(&default, &hook_run.input, &hook_call.context);
        let changed = await_hook(work, &mut hook_call.messages, self.recorder, self.out, &hook_call.cx).await?;
        Ok(changed.unwrap_or(default))
    }
}
