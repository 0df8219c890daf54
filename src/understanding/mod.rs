//! Stub.
use crate::{cx::Cx, llm::Llm, prompts::PromptSet};
use segue_engine::{conversation::*, project::Project, time::Timestamp};
use std::sync::Arc;
/// Stub.
#[derive(Clone)]
pub struct Understander;
/// Stub.
pub struct Understanding {
    /// Stub.
    pub commands: Vec<Command>,
    /// Stub.
    pub failures: Vec<String>,
}
impl Understander {
    /// Stub.
    pub fn new(_: Arc<PromptSet>) -> Self {
        Self
    }
    /// Stub.
    pub async fn understand(
        &self,
        _: &Arc<Project>,
        _: &Conversation,
        _: Timestamp,
        _: &Arc<dyn Llm>,
        _: &Cx,
    ) -> Understanding {
        Understanding { commands: vec![], failures: vec![] }
    }
}
