//! What an agent's run asks of its surroundings: notes in the record, texts of the project, and the operators' ear.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use segue_engine::dialogue;
use serde_json::{Map, Value as Json};

use super::{effects::Failures, stop::Scene};
use crate::{
    agents::Desk,
    cx::Cx,
    effect::Effect,
    journal::{Once, Step},
};

/// The desk of one run.
pub(super) struct RunDesk<'a> {
    scene: &'a Scene<'a>,
    warnings: Mutex<Failures>,
}

impl<'a> RunDesk<'a> {
    /// For a run in this conversation.
    pub(super) fn new(scene: &'a Scene<'a>) -> Self {
        Self { scene, warnings: Mutex::default() }
    }
    /// What operators should know.
    pub(super) fn warnings(self) -> Failures {
        self.warnings.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk for RunDesk<'_> {
    fn once<'a>(&'a self, cx: &'a Cx, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>> {
        Box::pin(async move {
            let step = Step { key: &cx.key, kind: "note", class: Effect::Read, request: "" };
            // What cannot be noted is decided anew, should the turn run again.
            match self.scene.record.journal.once(step, work).await {
                Ok(Once::Replayed(noted)) => Some(noted),
                Ok(Once::Performed(_) | Once::Unknown) | Err(_) => None,
            }
        })
    }
    fn words(&self, response: &str, values: &Map<String, Json>, lot: u64) -> Option<Arc<str>> {
        let message = dialogue::compose(&self.scene.parts.project, self.scene.conversation, response, values, lot)?;
        message.reply.text.map(|text| text.to_string().into())
    }
    fn warn(&self, code: &'static str, matter: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push((code.to_owned(), matter));
    }
}
