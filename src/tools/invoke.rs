//! One call (being built).
use super::*;
/// Stub.
pub async fn invoke(tool: &dyn Tool, arguments: Json, cx: &ToolCx) -> ToolOutcome {
    tool.call(arguments, cx).await
}
/// Stub.
pub fn text_for_model(outcome: &ToolOutcome) -> String {
    format!("{outcome:?}")
}
/// A failure of this kind.
pub fn failed(kind: FailureKind, message: impl Into<String>) -> ToolOutcome {
    ToolOutcome::Failed(ToolFailure { kind, message: message.into(), fatal: false })
}
