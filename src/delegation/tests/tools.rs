//! The tools of delegates.

use std::sync::Arc;

use crate::{
    delegation::{DelegationSettings, types::inherited},
    tools::{Tool, ToolHandler, ToolInfo, ToolOutcome, ToolOutput, tool_set::ToolSet},
};

#[test]
fn tools_that_start_delegates_or_speak_to_the_user_are_never_inherited() {
    let names = ["find", "task", "task_status", "task_result", "task_cancel", "ask_clarification", "present_files"];
    let tool = |name: &'static str| -> Arc<dyn ToolHandler> {
        Arc::new(Tool::from_fn(ToolInfo::new(name, "does"), |_, _| async { ToolOutcome::Done(ToolOutput::text("x")) }))
    };
    let parent = names.into_iter().fold(ToolSet::builder(), |set, name| set.tool(tool(name))).build();
    let mut kind = DelegationSettings::default().types["general-purpose"].clone();
    for listed in [None, Some(names.map(Arc::from).to_vec())] {
        kind.tools = listed;
        let tools = inherited(&kind, parent.clone());
        assert_eq!(tools.infos().map(|info| &*info.name).collect::<Vec<_>>(), ["find"], "even if the type lists them");
    }
}
