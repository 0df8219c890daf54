//! Hooks behind the journal: what one gave is recorded, so a turn that runs again gets the same without asking.

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

/// Where the hooks of an agent are.
#[derive(Clone)]
pub(in crate::runtime) enum HookSource {
    /// Registered.
    Registered(Arc<dyn AgentHooks>),
    /// Behind an address.
    Server(Arc<HookServer>),
    /// A class of Python that nobody registered anything for: the agent works without.
    PythonClass,
    /// DiscardingSink: why.
    Missing(Arc<str>),
}

/// Hooks that change nothing: they stand for those of another program while its record is replayed, and what the record has not
/// was changed by nobody.
struct NoopHooks;

impl AgentHooks for NoopHooks {}

/// The hooks of an agent for one run, where it has any.
///
/// # Errors
/// [`HookError`] when they are missing, or a hook server does not say what it has.
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
            return Ok(Some(Arc::new(JournaledHooks { inner, is_absent: true, journal: journal.clone() })));
        }
        HookSource::PythonClass => return Ok(None),
        HookSource::Missing(problem) => return Err(HookError(problem.to_string())),
        HookSource::Server(server) => {
            let step = Step { key: &cx.key, kind: "hook", class: EffectClass::Read, request: "describe" };
            let described = journal.once_if_ok(step, server.describe(cx)).await.map_err(refused)??;
            let description: HookServerInfo = described.into_outcome().map_err(refused)?;
            Arc::new(server.hooks(description))
        }
    };
    Ok(Some(Arc::new(JournaledHooks { inner, is_absent: false, journal: journal.clone() })))
}

/// Hooks whose answers are recorded.
struct JournaledHooks {
    inner: Arc<dyn AgentHooks>,
    /// Whether the inner ones only stand for others.
    is_absent: bool,
    journal: EffectJournal,
}

/// The record of one call.
#[derive(Serialize, Deserialize)]
struct RecordedHookResult<T> {
    said: Vec<Arc<str>>,
    result: Result<T, String>,
}

impl JournaledHooks {
    /// Asks a hook, once.
    async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, HookError>>,
        cx: &HookContext,
    ) -> Result<T, HookError> {
        let step = hook_step(name, cx);
        if self.is_absent && self.journal.status(step) == StepStatus::ReplayOnly {
            return work.await;
        }
        let asked = async { RecordedHookResult { result: work.await.map_err(|error| error.0), said: cx.messages() } };
        taken(self.journal.once(step, asked).await.map_err(refused)?, cx)
    }

    /// As [`once`](Self::once), for a hook that may change nothing: where it also said nothing, nothing is recorded, and a
    /// replay does not ask it.
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
        let asked = async {
            let (result, said) = (work.await, cx.messages());
            match result {
                Ok(None) if said.is_empty() => Err(Unchanged),
                result => Ok(RecordedHookResult { result: result.map_err(|error| error.0), said }),
            }
        };
        match self.journal.once_if_ok(step, asked).await.map_err(refused)? {
            Ok(recorded) => taken(recorded, cx),
            Err(Unchanged) => Ok(None),
        }
    }

    /// The same for a hook that only says something.
    async fn once_if_said(&self, name: &str, work: impl Future<Output = HookResult>, cx: &HookContext) -> HookResult {
        let work = async { work.await.map(|()| None::<()>) };
        self.once_if_changed(name, work, cx).await.map(|_| ())
    }
}

/// A hook changed nothing and said nothing.
struct Unchanged;

/// What a hook gave; what it said is said again where it is read from the record.
fn taken<T>(recorded: StepResult<RecordedHookResult<T>>, cx: &HookContext) -> Result<T, HookError> {
    if let StepResult::Replayed(recorded) = &recorded {
        recorded.said.iter().for_each(|text| cx.say(text.clone()));
    }
    recorded.into_outcome().map_err(refused)?.result.map_err(HookError)
}

fn hook_step<'a>(name: &'a str, cx: &'a HookContext) -> Step<'a> {
    Step { key: &cx.cx.key, kind: "hook", class: EffectClass::Read, request: name }
}

fn refused(error: JournalError) -> HookError {
    HookError(error.to_string())
}

#[async_trait]
impl AgentHooks for JournaledHooks {
    async fn before_run(&self, cx: &HookContext) -> HookResult {
        self.once_if_said("before_run", self.inner.before_run(cx), cx).await
    }
    async fn after_run(&self, cx: &HookContext) -> HookResult {
        self.once_if_said("after_run", self.inner.after_run(cx), cx).await
    }
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> HookResult {
        // What stays as it was is not written down again at every turn.
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
