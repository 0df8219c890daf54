//! Agent hooks through the journal: their results are recorded, and used when the turn runs again.

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::project::SlotDef;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    agents::hooks::{
        AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, HookResult, OutputChange, ToolBatch,
        http::{HookServer, HookServerInfo},
    },
    context::CallContext,
    effect::EffectClass,
    journal::{EffectJournal, JournalError, Step, StepResult, StepStatus},
    llm::{ChatMessage, ToolSpec},
    tools::Tool,
};

/// Where the hooks of an agent come from.
#[derive(Clone)]
pub(in crate::runtime) enum HookSource {
    /// Registered in Rust.
    Registered(Arc<dyn AgentHooks>),
    /// A hook server.
    Server(Arc<HookServer>),
    /// A Python class without registered hooks: the agent runs without hooks.
    PythonClass,
    /// Not registered. Contains the problem and its fix.
    Missing(Arc<str>),
}

/// Hooks that change nothing. They replace hooks that this program does not have, while a conversation of another program is replayed.
struct NoopHooks;

impl AgentHooks for NoopHooks {}

/// The hooks of an agent for one run, if it has any.
///
/// # Errors
/// [`HookError`] if they are not registered, or the hook server does not describe its hooks.
pub(in crate::runtime) async fn open(
    source: &HookSource,
    offline: bool,
    journal: &EffectJournal,
    cx: &CallContext,
) -> Result<Option<Arc<dyn AgentHooks>>, HookError> {
    let inner: Arc<dyn AgentHooks> = match source {
        HookSource::Registered(hooks) => hooks.clone(),
        HookSource::PythonClass | HookSource::Missing(_) if offline => {
            let inner = Arc::new(NoopHooks);
            return Ok(Some(Arc::new(JournaledHooks { inner, is_placeholder: true, journal: journal.clone() })));
        }
        HookSource::PythonClass => return Ok(None),
        HookSource::Missing(problem) => return Err(HookError(problem.to_string())),
        HookSource::Server(server) => {
            let step = Step { key: &cx.key, kind: "hook", class: EffectClass::Read, request: "describe" };
            let described = journal.once_if_ok(step, server.describe(cx)).await.map_err(journal_error)??;
            let description: HookServerInfo = described.into_outcome().map_err(journal_error)?;
            Arc::new(server.hooks(description))
        }
    };
    Ok(Some(Arc::new(JournaledHooks { inner, is_placeholder: false, journal: journal.clone() })))
}

/// Hooks whose results are recorded.
struct JournaledHooks {
    inner: Arc<dyn AgentHooks>,
    /// Whether `inner` only replaces hooks that this program does not have.
    is_placeholder: bool,
    journal: EffectJournal,
}

/// The record of one hook call.
#[derive(Serialize, Deserialize)]
struct RecordedHookResult<T> {
    /// The texts that the hook sent to the user.
    #[serde(rename = "said")]
    texts: Vec<Arc<str>>,
    result: Result<T, String>,
}

impl JournaledHooks {
    /// Calls a hook once.
    async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, HookError>>,
        cx: &HookContext,
    ) -> Result<T, HookError> {
        let step = hook_step(name, cx);
        if self.is_placeholder && self.journal.status(step) == StepStatus::ReplayOnly {
            return work.await;
        }
        let recording =
            async { RecordedHookResult { result: work.await.map_err(|error| error.0), texts: cx.messages() } };
        replay_texts(self.journal.once(step, recording).await.map_err(journal_error)?, cx)
    }

    /// [`once`](Self::once) for a hook that rarely changes something. If it changed nothing and sent no text, nothing is recorded, and
    /// a replay does not call it.
    async fn once_if_changed<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        work: impl Future<Output = Result<Option<T>, HookError>>,
        cx: &HookContext,
    ) -> Result<Option<T>, HookError> {
        let step = hook_step(name, cx);
        if self.journal.status(step) == StepStatus::ReplayOnly {
            return Ok(None);
        }
        let recording = async {
            let (result, texts) = (work.await, cx.messages());
            match result {
                Ok(None) if texts.is_empty() => Err(NothingToRecord),
                result => Ok(RecordedHookResult { result: result.map_err(|error| error.0), texts }),
            }
        };
        match self.journal.once_if_ok(step, recording).await.map_err(journal_error)? {
            Ok(recorded) => replay_texts(recorded, cx),
            Err(NothingToRecord) => Ok(None),
        }
    }

    /// [`once_if_changed`](Self::once_if_changed) for a hook that can only send texts.
    async fn once_if_texts(&self, name: &str, work: impl Future<Output = HookResult>, cx: &HookContext) -> HookResult {
        let work = async { work.await.map(|()| None::<()>) };
        self.once_if_changed(name, work, cx).await.map(|_| ())
    }
}

/// A hook changed nothing and sent no text.
struct NothingToRecord;

/// The result of a hook. Texts of a replayed result are sent again.
fn replay_texts<T>(recorded: StepResult<RecordedHookResult<T>>, cx: &HookContext) -> Result<T, HookError> {
    if let StepResult::Replayed(recorded) = &recorded {
        recorded.texts.iter().for_each(|text| cx.say(text.clone()));
    }
    recorded.into_outcome().map_err(journal_error)?.result.map_err(HookError)
}

fn hook_step<'a>(name: &'a str, cx: &'a HookContext) -> Step<'a> {
    Step { key: &cx.cx.key, kind: "hook", class: EffectClass::Read, request: name }
}

fn journal_error(error: JournalError) -> HookError {
    HookError(error.to_string())
}

#[async_trait]
impl AgentHooks for JournaledHooks {
    async fn before_run(&self, cx: &HookContext) -> HookResult {
        self.once_if_texts("before_run", self.inner.before_run(cx), cx).await
    }
    async fn after_run(&self, cx: &HookContext) -> HookResult {
        self.once_if_texts("after_run", self.inner.after_run(cx), cx).await
    }
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> HookResult {
        // An unchanged input is not recorded.
        let work = async {
            let mut changed = input.clone();
            self.inner.process_input(&mut changed, cx).await?;
            Ok::<_, HookError>((changed != *input).then_some(changed))
        };
        if let Some(changed) = self.once("process_input", work, cx).await? {
            *input = changed;
        }
        Ok(())
    }
    async fn process_tool_output(&self, batch: &ToolBatch, cx: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.once("process_tool_output", self.inner.process_tool_output(batch, cx), cx).await
    }
    async fn process_output(&self, output: &AgentOutput, cx: &HookContext) -> Result<OutputChange, HookError> {
        self.once("process_output", self.inner.process_output(output, cx), cx).await
    }
    async fn process_agent_output(&self, output: &AgentOutput, cx: &HookContext) -> Result<OutputChange, HookError> {
        self.once("process_agent_output", self.inner.process_agent_output(output, cx), cx).await
    }
    fn custom_tools(&self) -> Vec<Tool> {
        self.inner.custom_tools()
    }
    fn task_completed_tool(&self, usual: ToolSpec) -> ToolSpec {
        self.inner.task_completed_tool(usual)
    }
    fn empty_closing_message(&self, usual: String) -> String {
        self.inner.empty_closing_message(usual)
    }
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        usual: &ToolSpec,
        cx: &HookContext,
    ) -> Result<Option<ToolSpec>, HookError> {
        self.once_if_changed("slot_tool", self.inner.slot_tool(slot, usual, cx), cx).await
    }
    async fn tools(
        &self,
        usual: &[ToolSpec],
        input: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<ToolSpec>>, HookError> {
        self.once_if_changed("tools", self.inner.tools(usual, input, cx), cx).await
    }
    async fn messages(
        &self,
        usual: &[Arc<ChatMessage>],
        input: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<Arc<ChatMessage>>>, HookError> {
        self.once_if_changed("messages", self.inner.messages(usual, input, cx), cx).await
    }
    async fn prompt(&self, usual: &str, input: &AgentInput, cx: &HookContext) -> Result<Option<String>, HookError> {
        self.once_if_changed("prompt", self.inner.prompt(usual, input, cx), cx).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// Stored journals contain these names.
    #[test]
    fn field_names_of_stored_hook_results_do_not_change() {
        let stored = json!({"said": ["One moment."], "result": {"Ok": 1}});
        let read: RecordedHookResult<u32> = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), stored);
    }
}
