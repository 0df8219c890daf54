//! Hooks behind the recorded door: what one gave is recorded, so a turn that runs again gets the same without asking.

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use segue_engine::project::SlotDef;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::recorded::Door;
use crate::{
    agents::hooks::{
        AgentHooks, AgentInput, AgentOutput, HookCx, HookError, HookEvent, Later, OutputChange, ToolBatch,
        http::{Description, HookServer},
    },
    cx::Cx,
    effect::Effect,
    llm::{ChatMessage, ToolSpec},
    store::Standing,
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
    door: &Door,
    cx: &Cx,
) -> Result<Option<Arc<dyn AgentHooks>>, HookError> {
    let inner: Arc<dyn AgentHooks> = match source {
        HookSource::Own(hooks) => hooks.clone(),
        HookSource::Class | HookSource::Missing(_) if offline => {
            let inner = Arc::new(Absent);
            return Ok(Some(Arc::new(RecordedHooks { inner, is_absent: true, door: door.clone() })));
        }
        HookSource::Class => return Ok(None),
        HookSource::Missing(problem) => return Err(HookError(problem.to_string())),
        HookSource::Server(server) => {
            let recorded = door.begin::<Description>(cx, "hook", Effect::Read, "describe").await;
            let description = match recorded.map_err(|shut| HookError(shut.to_string()))? {
                Some(description) => description,
                None => {
                    let description = server.describe(cx).await?;
                    door.finish(cx, &description).await.map_err(|shut| HookError(shut.to_string()))?;
                    description
                }
            };
            Arc::new(server.hooks(description))
        }
    };
    Ok(Some(Arc::new(RecordedHooks { inner, is_absent: false, door: door.clone() })))
}

/// Hooks whose answers are recorded.
struct RecordedHooks {
    inner: Arc<dyn AgentHooks>,
    /// Whether the inner ones only stand for others.
    is_absent: bool,
    door: Door,
}

/// The record of one call.
#[derive(Serialize, Deserialize)]
struct Given<T> {
    said: Vec<Arc<str>>,
    result: Result<T, String>,
}

impl RecordedHooks {
    async fn recorded<'w, T: Serialize + DeserializeOwned + Send + Sync>(
        &self,
        name: &str,
        work: impl FnOnce() -> BoxFuture<'w, Result<T, HookError>> + Send,
        cx: &HookCx,
    ) -> Result<T, HookError> {
        if self.is_absent && self.door.standing(&cx.cx, "hook", name) == Standing::Never {
            return work().await;
        }
        let shut = |shut: super::recorded::Shut| HookError(shut.to_string());
        if let Some(given) = self.door.begin::<Given<T>>(&cx.cx, "hook", Effect::Read, name).await.map_err(shut)? {
            given.said.into_iter().for_each(|text| cx.say(text));
            return given.result.map_err(HookError);
        }
        let given = Given { result: work().await.map_err(|error| error.0), said: cx.said() };
        self.door.finish(&cx.cx, &given).await.map_err(shut)?;
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
            match self.door.standing(&cx.cx, "hook", name) {
                Standing::Never => return None,
                Standing::Open => {
                    let work = ask()?;
                    Box::new(move || work)
                }
                Standing::Done => Box::new(move || ask().unwrap_or_else(|| Box::pin(ready(Ok(None))))),
            };
        Some(Box::pin(self.recorded(name, work, cx)))
    }
}

impl AgentHooks for RecordedHooks {
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
