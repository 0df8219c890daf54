//! The services of the runtime for one agent run: recorded values, response texts, warnings for operators.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use segue_engine::dialogue;
use serde_json::{Map, Value as Json};

use crate::{
    agents::AgentHost,
    context::CallContext,
    effect::EffectClass,
    journal::{Step, StepResult},
    runtime::turn::{TurnContext, TurnFailures},
};

/// The services for one run.
pub(in crate::runtime) struct TurnAgentHost<'a> {
    turn: &'a TurnContext<'a>,
    warnings: Mutex<TurnFailures>,
}

impl<'a> TurnAgentHost<'a> {
    /// For a run in this turn.
    pub(in crate::runtime) fn new(turn: &'a TurnContext<'a>) -> Self {
        Self { turn, warnings: Mutex::default() }
    }
    /// The warnings for operators.
    pub(in crate::runtime) fn warnings(self) -> TurnFailures {
        self.warnings.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentHost for TurnAgentHost<'_> {
    fn once<'a>(&'a self, cx: &'a CallContext, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>> {
        Box::pin(async move {
            let step = Step { key: &cx.key, kind: "note", class: EffectClass::Read, request: "" };
            // A value that cannot be recorded is computed again if the turn runs again.
            match self.turn.record.journal.once(step, work).await {
                Ok(StepResult::Replayed(noted)) => Some(noted),
                Ok(StepResult::Performed(_) | StepResult::Unknown) | Err(_) => None,
            }
        })
    }
    fn render_response(&self, response: &str, values: &Map<String, Json>, seed: u64) -> Option<Arc<str>> {
        let message = dialogue::compose(&self.turn.runtime.project, self.turn.conversation, response, values, seed)?;
        message.reply.text.map(|text| text.to_string().into())
    }
    fn report_warning(&self, code: &'static str, message: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push((code.to_owned(), message));
    }
}
