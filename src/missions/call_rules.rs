//! What a run allows in calls of tools: those of commanders, of agents, and of the sub-agents that agents start.
//!
//! The rules of an agent's own file (`max_calls`, confirmations) come after these; see [`MissionAgentHost`](super::agent).

use std::sync::Arc;

use async_trait::async_trait;
use minijinja::context;
use segue_engine::conversation::{WriteState, Writes, request_hash};
use serde_json::Value as Json;

use super::secrets::Secrets;
use crate::{
    prompts::PromptSet,
    tools::{CallWrapper, EffectClass, FailureKind, ToolCallContext, ToolHandler, ToolOutcome},
};

/// The rules of one unit.
#[derive(Clone)]
pub(super) struct CallRules {
    pub(super) prompts: Arc<PromptSet>,
    /// Whether calls that change something are rejected.
    pub(super) dry_run: bool,
    /// What earlier attempts of the same work changed that ended without success: none of it is done again. Empty if the mission allows
    /// that (`retry: also_after_writes`).
    pub(super) done_before: Arc<Writes>,
    pub(super) secrets: Secrets,
}

impl CallRules {
    /// Why a call is rejected, for the model; `None` if it is allowed.
    pub(super) fn rejection(&self, tool: &str, arguments: Option<&Json>, class: EffectClass) -> Option<String> {
        if self.dry_run && class.changes().is_some() {
            return Some(self.text(context! { envelope => "dry_run", text => tool }));
        }
        let arguments = arguments?;
        if let Some(name) = self.secrets.unknown(arguments) {
            return Some(self.text(context! { envelope => "unknown_secret", text => name }));
        }
        if class != EffectClass::Write || self.done_before.is_empty() {
            return None;
        }
        Some(match self.done_before.find(request_hash(tool, arguments))? {
            (WriteState::Done, result) => {
                self.text(context! { envelope => "done_before", text => result.unwrap_or_default() })
            }
            (WriteState::InDoubt, _) => self.text(context! { envelope => "maybe_done_before", text => "" }),
        })
    }

    fn text(&self, variables: minijinja::Value) -> String {
        self.prompts.render(&self.prompts.mission_envelopes, variables).unwrap_or_default().trim().to_owned()
    }
}

#[async_trait]
impl CallWrapper for CallRules {
    async fn call(&self, inner: &dyn ToolHandler, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let info = inner.info();
        match self.rejection(&info.name, Some(&arguments), cx.effect(info)) {
            Some(text) => ToolOutcome::failed(FailureKind::Refused, text),
            None => inner.call(arguments, cx).await,
        }
    }
}
