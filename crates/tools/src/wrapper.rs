//! A tool around another tool: it changes the calls, and nothing else.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value as Json;

use super::{ArgumentCheck, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome};

/// What happens around the calls of a tool.
#[async_trait]
pub trait CallWrapper: Send + Sync {
    /// Calls `inner`, or does not; the arguments, the context and the outcome may be changed.
    async fn call(&self, inner: &dyn ToolHandler, arguments: Json, context: &ToolCallContext) -> ToolOutcome;
    /// Tells `inner` about a call whose outcome is read from a record; see [`ToolHandler::replayed`].
    fn replayed(&self, inner: &dyn ToolHandler, arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext) {
        inner.replayed(arguments, outcome, context);
    }
}

/// A tool whose calls go through a [`CallWrapper`]. Its description, the check of its arguments and its timeouts are those of the inner
/// tool.
pub struct WrappedTool<W> {
    inner: Arc<dyn ToolHandler>,
    wrapper: W,
}

impl<W: CallWrapper> WrappedTool<W> {
    /// The tool `inner` with `wrapper` around its calls.
    pub fn new(inner: Arc<dyn ToolHandler>, wrapper: W) -> Self {
        Self { inner, wrapper }
    }
}

#[async_trait]
impl<W: CallWrapper> ToolHandler for WrappedTool<W> {
    fn info(&self) -> &ToolInfo {
        self.inner.info()
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.inner.argument_check()
    }
    fn idle_timeout(&self) -> Option<Duration> {
        self.inner.idle_timeout()
    }
    fn total_timeout(&self) -> Option<Duration> {
        self.inner.total_timeout()
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        self.wrapper.call(&*self.inner, arguments, context).await
    }
    fn replayed(&self, arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext) {
        self.wrapper.replayed(&*self.inner, arguments, outcome, context);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::{FailureKind, fixture::context};

    /// A tool that returns its arguments, with settings that no default has.
    struct Echo(ToolInfo, Arc<ArgumentCheck>);

    #[async_trait]
    impl ToolHandler for Echo {
        fn info(&self) -> &ToolInfo {
            &self.0
        }
        fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
            Some(self.1.clone())
        }
        fn idle_timeout(&self) -> Option<Duration> {
            Some(Duration::from_secs(7))
        }
        fn total_timeout(&self) -> Option<Duration> {
            Some(Duration::from_secs(8))
        }
        async fn call(&self, arguments: Json, _: &ToolCallContext) -> ToolOutcome {
            ToolOutcome::Done(crate::ToolOutput::structured(arguments))
        }
    }

    /// Calls the tool only with an amount, which it doubles.
    struct Double;

    #[async_trait]
    impl CallWrapper for Double {
        async fn call(&self, inner: &dyn ToolHandler, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
            match arguments.get("amount").and_then(Json::as_i64) {
                Some(amount) => inner.call(json!({"amount": amount * 2}), context).await,
                None => ToolOutcome::failed(FailureKind::Refused, "there is no amount"),
            }
        }
    }

    #[tokio::test]
    async fn a_wrapped_tool_differs_from_the_inner_one_in_its_calls_only() {
        let check = Arc::new(ArgumentCheck::compile(&json!({"type": "object"})).unwrap());
        let echo = Arc::new(Echo(ToolInfo::new("echo", "Returns its arguments"), check.clone()));
        let tool = WrappedTool::new(echo.clone(), Double);
        assert_eq!(tool.info(), echo.info());
        assert!(tool.argument_check().is_some_and(|same| Arc::ptr_eq(&same, &check)));
        assert_eq!((tool.idle_timeout(), tool.total_timeout()), (echo.idle_timeout(), echo.total_timeout()));
        let doubled = tool.call(json!({"amount": 3}), &context()).await;
        assert_eq!(doubled, ToolOutcome::Done(crate::ToolOutput::structured(json!({"amount": 6}))));
        assert!(
            matches!(tool.call(json!({}), &context()).await, ToolOutcome::Failed(_)),
            "the inner tool is not called"
        );
    }
}
