//! Hooks behind the journal: what one gave is recorded, so a turn that runs again gets the same without asking.

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use segue_engine::project::SlotDef;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    agents::hooks::{
        AgentHooks, AgentInput, AgentOutput, HookCx, HookError, HookEvent, Later, OutputChange, ToolBatch,
        http::{Description, HookServer},
    },
    cx::Cx,
    effect::Effect,
    journal::{EffectJournal, JournalError, Once, Step, StepStatus},
    llm::{ChatMessage, ToolSpec},
    tools::Tool,
};

/// Where the hooks of an agent are.
#[derive(Clone)]
pub(super) enum HookSource {
    /// Registered.
    Own(Arc<dyn AgentHooks>),
    /// Behind an address.
    Server(Arc<HookServer>),
    /// A class of Python that nobody registered anything for: the agent works without.
    Class,
    /// Nowhere: why.
    Missing(Arc<str>),
}

/// Hooks that change nothing: they stand for those of another program while its record is replayed, and what the record has not
/// was changed by nobody.
struct Absent;

impl AgentHooks for Absent {}

/// The hooks of an agent for one run, where it has any.
///
/// # Errors
/// [`HookError`] when they are missing, or a hook server does not say what it has.
pub(super) async fn open(
    source: &HookSource,
    offline: bool,
    journal: &EffectJournal,
    cx: &Cx,
) -> Result<Option<Arc<dyn AgentHooks>>, HookError> {
    let inner: Arc<dyn AgentHooks> = match source {
        HookSource::Own(hooks) => hooks.clone(),
        HookSource::Class | HookSource::Missing(_) if offline => {
            let inner = Arc::new(Absent);
            return Ok(Some(Arc::new(JournaledHooks { inner, is_absent: true, journal: journal.clone() })));
        }
        HookSource::Class => return Ok(None),
        HookSource::Missing(problem) => return Err(HookError(problem.to_string())),
        HookSource::Server(server) => {
            let step = Step { key: &cx.key, kind: "hook", class: Effect::Read, request: "describe" };
            let described = journal.once_if_ok(step, server.describe(cx)).await.map_err(refused)??;
            let description: Description = described.known().map_err(refused)?;
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
struct Given<T> {
    said: Vec<Arc<str>>,
    result: Result<T, String>,
}

impl JournaledHooks {
    async fn recorded<'w, T: Serialize + DeserializeOwned + Send + Sync>(
        &self,
        name: &str,
        work: impl FnOnce() -> BoxFuture<'w, Result<T, HookError>> + Send,
        cx: &HookCx,
    ) -> Result<T, HookError> {
        let step = hook_step(name, cx);
        if self.is_absent && self.journal.status(step) == StepStatus::ReplayOnly {
            return work().await;
        }
        let asked = async { Given { result: work().await.map_err(|error| error.0), said: cx.said() } };
        let given = match self.journal.once(step, asked).await.map_err(refused)? {
            Once::Replayed(given) => {
                given.said.iter().for_each(|text| cx.say(text.clone()));
                given
            }
            performed => performed.known().map_err(refused)?,
        };
        given.result.map_err(HookError)
    }

    /// What may have to be waited for. On the way to saying so a hook may speak: one that has its record is not asked, and nor is
    /// one that has none where nobody is.
    fn later<'w, T: Serialize + DeserializeOwned + Send + Sync + 'w>(
        &'w self,
        name: &'static str,
        ask: impl FnOnce() -> Later<'w, T> + Send + 'w,
        cx: &'w HookCx,
    ) -> Later<'w, T> {
        let work: Box<dyn FnOnce() -> BoxFuture<'w, Result<Option<T>, HookError>> + Send + 'w> =
            match self.journal.status(hook_step(name, cx)) {
                StepStatus::ReplayOnly => return None,
                StepStatus::Open => {
                    let work = ask()?;
                    Box::new(move || work)
                }
                StepStatus::Done => Box::new(move || ask().unwrap_or_else(|| Box::pin(ready(Ok(None))))),
            };
        Some(Box::pin(self.recorded(name, work, cx)))
    }
}

fn hook_step<'a>(name: &'a str, cx: &'a HookCx) -> Step<'a> {
    Step { key: &cx.cx.key, kind: "hook", class: Effect::Read, request: name }
}

fn refused(error: JournalError) -> HookError {
    HookError(error.to_string())
}

impl AgentHooks for JournaledHooks {
    fn process_input<'a>(&'a self, input: AgentInput, cx: &'a HookCx) -> BoxFuture<'a, Result<AgentInput, HookError>> {
        Box::pin(async move {
            let usual = input.clone();
            // What stays as it was is not written down again at every turn.
            let before = usual.clone();
            let work = || -> BoxFuture<'_, Result<Option<AgentInput>, HookError>> {
                Box::pin(async move {
                    let changed = self.inner.process_input(input, cx).await?;
                    Ok((changed != before).then_some(changed))
                })
            };
            Ok(self.recorded("process_input", work, cx).await?.unwrap_or(usual))
        })
    }
    fn process_tool_output<'a>(
        &'a self,
        batch: &'a ToolBatch,
        cx: &'a HookCx,
    ) -> BoxFuture<'a, Result<Vec<HookEvent>, HookError>> {
        Box::pin(self.recorded("process_tool_output", move || self.inner.process_tool_output(batch, cx), cx))
    }
    fn process_output<'a>(
        &'a self,
        output: &'a AgentOutput,
        cx: &'a HookCx,
    ) -> BoxFuture<'a, Result<OutputChange, HookError>> {
        Box::pin(self.recorded("process_output", move || self.inner.process_output(output, cx), cx))
    }
    fn process_agent_output<'a>(
        &'a self,
        output: &'a AgentOutput,
        cx: &'a HookCx,
    ) -> BoxFuture<'a, Result<OutputChange, HookError>> {
        Box::pin(self.recorded("process_agent_output", move || self.inner.process_agent_output(output, cx), cx))
    }
    fn custom_tools(&self) -> Vec<Arc<dyn Tool>> {
        self.inner.custom_tools()
    }
    fn task_completed_tool(&self, usual: ToolSpec) -> ToolSpec {
        self.inner.task_completed_tool(usual)
    }
    fn empty_closing_message(&self, usual: String) -> String {
        self.inner.empty_closing_message(usual)
    }
    fn slot_tool(&self, slot: &SlotDef, usual: ToolSpec) -> ToolSpec {
        self.inner.slot_tool(slot, usual)
    }
    fn tools(&self, usual: Vec<ToolSpec>, input: &AgentInput) -> Vec<ToolSpec> {
        self.inner.tools(usual, input)
    }
    fn messages(&self, usual: Vec<Arc<ChatMessage>>, input: &AgentInput) -> Vec<Arc<ChatMessage>> {
        self.inner.messages(usual, input)
    }
    fn prompt(&self, usual: String, input: &AgentInput) -> String {
        self.inner.prompt(usual, input)
    }
    fn slot_tool_later<'a>(&'a self, slot: &'a SlotDef, usual: &'a ToolSpec, cx: &'a HookCx) -> Later<'a, ToolSpec> {
        self.later("slot_tool", move || self.inner.slot_tool_later(slot, usual, cx), cx)
    }
    fn tools_later<'a>(
        &'a self,
        usual: &'a [ToolSpec],
        input: &'a AgentInput,
        cx: &'a HookCx,
    ) -> Later<'a, Vec<ToolSpec>> {
        self.later("tools", move || self.inner.tools_later(usual, input, cx), cx)
    }
    fn messages_later<'a>(
        &'a self,
        usual: &'a [Arc<ChatMessage>],
        input: &'a AgentInput,
        cx: &'a HookCx,
    ) -> Later<'a, Vec<Arc<ChatMessage>>> {
        self.later("messages", move || self.inner.messages_later(usual, input, cx), cx)
    }
    fn prompt_later<'a>(&'a self, usual: &'a str, input: &'a AgentInput, cx: &'a HookCx) -> Later<'a, String> {
        self.later("prompt", move || self.inner.prompt_later(usual, input, cx), cx)
    }
}
