//! What only the agent that talks with the user does with its files: it asks a question with options or a form (`ask_clarification`), and
//! shows files (`present_files`). Both are ordinary tools; here their results become messages.

use std::sync::Arc;

use segue_engine::conversation::{BotKind, Button, Reply};
use serde_json::{Map, Value as Json, json};

use crate::{
    llm::ToolCall,
    tools::{
        ToolOutcome,
        tool_set::ToolSet,
        workspace::{ASK_CLARIFICATION, Clarification, PRESENT_FILES, SOURCE, WRITE_FILE},
    },
};

/// What the tools for files allow, for the prompt. `None` without such tools.
pub(crate) fn file_prompt_variables(tools: &ToolSet) -> Option<minijinja::Value> {
    let has = |name: &str| is_own(name, tools);
    has("read_file").then(|| {
        minijinja::context! {
            can_write => has(WRITE_FILE),
            can_run => has("bash"),
            presents => has(PRESENT_FILES),
        }
    })
}

/// The question of a call of `ask_clarification` that succeeded.
pub(super) fn question(call: &ToolCall, outcome: &ToolOutcome, tools: &ToolSet) -> Option<Clarification> {
    serde_json::from_value(result(ASK_CLARIFICATION, call, outcome, tools)?.clone()).ok()
}

/// The message with the files of a call of `present_files` that succeeded.
pub(super) fn presented(call: &ToolCall, outcome: &ToolOutcome, tools: &ToolSet) -> Option<Reply> {
    let files = result(PRESENT_FILES, call, outcome, tools)?.get("files")?.clone();
    Some(Reply { attachment: Some(json!({"type": "files", "files": files})), ..Reply::default() })
}

fn result<'o>(name: &str, call: &ToolCall, outcome: &'o ToolOutcome, tools: &ToolSet) -> Option<&'o Json> {
    match outcome {
        ToolOutcome::Done(output) if &*call.name == name && is_own(name, tools) => output.structured.as_ref(),
        _ => None,
    }
}

/// Whether the tool of this name is that of a workspace, and not one of the project's own.
fn is_own(name: &str, tools: &ToolSet) -> bool {
    tools.get(name).is_some_and(|entry| &*entry.info.source == SOURCE)
}

/// The message that asks a question: its text, and buttons for its options. A form is written below the text, and channels that can show
/// one find it in `custom`.
pub(super) fn message(question: &Clarification) -> (Reply, BotKind) {
    let fields = question.fields.iter().map(|field| match field.options.as_slice() {
        [] => format!("- {}", field.label),
        options => format!("- {} ({})", field.label, options.join(", ")),
    });
    let context = question.context.iter().filter(|text| !text.trim().is_empty()).cloned();
    let parts: Vec<String> = context.chain([question.question.clone()]).collect();
    let lines: Vec<String> = std::iter::once(parts.join("\n\n")).chain(fields).collect();
    let button = |option: &String| {
        let text: Arc<str> = option.as_str().into();
        Button { title: text.clone(), payload: text, extra: Map::new() }
    };
    let custom = (!question.fields.is_empty()).then(|| json!({"clarification": question}));
    let reply = Reply {
        text: Some(lines.join("\n").into()),
        buttons: question.options.iter().map(button).collect(),
        custom,
        ..Reply::default()
    };
    (reply, BotKind::InputRequired)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_are_buttons_and_a_form_is_also_data() {
        let question: Clarification = serde_json::from_value(json!({
            "question": "Which format?", "clarification_type": "approach_choice", "context": "Both can be printed.",
            "options": ["PDF", "HTML"],
            "fields": [
                {"name": "n", "label": "Copies", "type": "number"},
                {"name": "c", "label": "Colour", "type": "select", "options": ["red", "blue"]},
            ],
        }))
        .unwrap();
        let (reply, kind) = message(&question);
        let text = "Both can be printed.\n\nWhich format?\n- Copies\n- Colour (red, blue)";
        assert_eq!((reply.text.as_deref(), kind), (Some(text), BotKind::InputRequired));
        let buttons: Vec<_> = reply.buttons.iter().map(|button| (&*button.title, &*button.payload)).collect();
        assert_eq!(buttons, [("PDF", "PDF"), ("HTML", "HTML")]);
        assert_eq!(reply.custom.unwrap()["clarification"]["fields"][1]["name"], "c");
    }
}
