//! Messages and tools as JSON for hook servers (docs/how-to/hooks-in-python.md), without provider-specific data.

use std::{collections::HashMap, sync::Arc};

use segue_engine::project::{SlotDef, SlotType};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::llm::{ChatMessage, ToolArguments, ToolCall, ToolSpec, message::ReasoningBlocks};

/// The JSON of a message.
pub(super) fn message(message: &ChatMessage) -> Json {
    match message {
        ChatMessage::System { text } => json!({"role": "system", "text": &**text}),
        ChatMessage::User { text } => json!({"role": "user", "text": &**text}),
        ChatMessage::Assistant { text, tool_calls, .. } => {
            let mut it = json!({"role": "assistant", "text": &**text});
            if let (Some(it), false) = (it.as_object_mut(), tool_calls.is_empty()) {
                it.insert("tool_calls".to_owned(), tool_calls.iter().map(call).collect());
            }
            it
        }
        ChatMessage::Tool { call_id, name, text } => {
            json!({"role": "tool", "call_id": &**call_id, "name": &**name, "text": &**text})
        }
    }
}

fn call(call: &ToolCall) -> Json {
    let arguments = match &call.arguments {
        ToolArguments::Json(value) => (**value).clone(),
        ToolArguments::Malformed { text, .. } => Json::from(&**text),
        ToolArguments::Dropped { .. } => Json::from(""),
    };
    json!({"id": &*call.id, "name": &*call.name, "arguments": arguments})
}

/// The JSON of a tool.
pub(super) fn tool(tool: &ToolSpec) -> Json {
    json!({"name": &*tool.name, "description": &*tool.description, "parameters": &*tool.parameters})
}

/// The JSON of a slot.
pub(super) fn slot(slot: &SlotDef) -> Json {
    let mut it = json!({"name": slot.name.as_str(), "type": slot.kind.name()});
    if let (Some(it), SlotType::Categorical(values)) = (it.as_object_mut(), &slot.kind) {
        it.insert("values".to_owned(), values.iter().map(|value| &**value).collect());
    }
    it
}

/// A message in a response.
#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(super) enum Message {
    System {
        text: Arc<str>,
    },
    User {
        text: Arc<str>,
    },
    Assistant {
        #[serde(default)]
        text: Arc<str>,
        #[serde(default)]
        tool_calls: Vec<Call>,
    },
    Tool {
        call_id: Arc<str>,
        name: Arc<str>,
        text: Arc<str>,
    },
}

#[derive(Deserialize)]
pub(super) struct Call {
    id: Arc<str>,
    name: Arc<str>,
    #[serde(default)]
    arguments: Json,
}

/// A tool in a response: only what changes.
#[derive(Deserialize)]
pub(super) struct Tool {
    #[serde(default)]
    pub(super) name: Arc<str>,
    #[serde(default)]
    description: Option<Arc<str>>,
    #[serde(default)]
    parameters: Option<Map<String, Json>>,
}

impl Tool {
    /// The default tool with these changes.
    pub(super) fn apply_to(self, default: &ToolSpec) -> ToolSpec {
        let mut tool = default.clone();
        if let Some(description) = self.description {
            tool.description = description;
        }
        if let Some(parameters) = self.parameters {
            // It is not known whether the provider can enforce this schema.
            (tool.parameters, tool.strict) =
                (Arc::new(crate::tools::schema::with_object_type(Json::Object(parameters))), false);
        }
        tool
    }
}

/// The messages of a response. Reasoning blocks are restored at the calls that they belong to.
///
/// # Errors
/// A text: a call without exactly one result, or a result without its call; models reject both.
pub(super) fn messages(answer: Vec<Message>, default: &[Arc<ChatMessage>]) -> Result<Vec<Arc<ChatMessage>>, String> {
    let mut reasoning: HashMap<Arc<str>, Arc<ReasoningBlocks>> = HashMap::new();
    for message in default {
        if let ChatMessage::Assistant { tool_calls, reasoning: Some(blocks), .. } = &**message
            && let Some(first) = tool_calls.first()
        {
            reasoning.insert(first.id.clone(), blocks.clone());
        }
    }
    let mut open: Vec<Arc<str>> = Vec::new();
    let mut messages = Vec::with_capacity(answer.len());
    for message in answer {
        let is_result = matches!(message, Message::Tool { .. });
        if let (false, Some(id)) = (is_result, open.first()) {
            return Err(format!("the call `{id}` has no result"));
        }
        messages.push(Arc::new(match message {
            Message::System { text } => ChatMessage::System { text },
            Message::User { text } => ChatMessage::User { text },
            Message::Assistant { text, tool_calls } => {
                open = tool_calls.iter().map(|call| call.id.clone()).collect();
                let reasoning = open.first().and_then(|id| reasoning.get(id)).cloned();
                let calls = tool_calls.into_iter().map(|call| ToolCall {
                    id: call.id,
                    name: call.name,
                    arguments: match call.arguments {
                        // Malformed arguments are sent as a string.
                        Json::String(text) => ToolArguments::Malformed { text: text.into(), error: "".into() },
                        arguments => ToolArguments::json(arguments),
                    },
                });
                ChatMessage::Assistant { text, tool_calls: calls.collect(), reasoning }
            }
            Message::Tool { call_id, name, text } => {
                let Some(at) = open.iter().position(|id| *id == call_id) else {
                    return Err(format!("there is no call `{call_id}` before its result"));
                };
                open.remove(at);
                ChatMessage::Tool { call_id, name, text }
            }
        }));
    }
    match open.first() {
        Some(id) => Err(format!("the call `{id}` has no result")),
        None if messages.is_empty() => Err("there are no messages".to_owned()),
        None => Ok(messages),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::llm::message::ReasoningBlock;

    fn conversation() -> Vec<Arc<ChatMessage>> {
        let call = |id: &str, arguments| ToolCall { id: id.into(), name: "find".into(), arguments };
        let calls = vec![
            call("a", ToolArguments::json(json!({"port": "Arnvik"}))),
            call("b", ToolArguments::Malformed { text: "{\"po".into(), error: "EOF".into() }),
        ];
        let thought = ReasoningBlock { after: 0, block: Arc::new(json!({"closed": true})) };
        let reasoning = Some(Arc::new(ReasoningBlocks { model: "m".into(), blocks: vec![thought] }));
        let results = [ChatMessage::tool(&calls[0], "NW-1"), ChatMessage::tool(&calls[1], "no JSON")];
        let answer = ChatMessage::Assistant { text: "Let me look.".into(), tool_calls: calls, reasoning };
        let mut messages = vec![ChatMessage::system("Help."), ChatMessage::user("hi"), Arc::new(answer)];
        messages.extend(results);
        messages
    }

    fn back(sent: &Json, default: &[Arc<ChatMessage>]) -> Result<Vec<Arc<ChatMessage>>, String> {
        messages(serde_json::from_value(sent.clone()).unwrap(), default)
    }

    #[test]
    fn unchanged_messages_keep_their_reasoning_blocks() {
        let default = conversation();
        let sent: Json = default.iter().map(|it| message(it)).collect();
        assert_eq!(sent[2]["tool_calls"][0], json!({"id": "a", "name": "find", "arguments": {"port": "Arnvik"}}));
        assert!(!sent.to_string().contains("closed"), "reasoning blocks are not sent");
        let same = back(&sent, &default).unwrap();
        assert_eq!(same.len(), default.len());
        let ChatMessage::Assistant { reasoning, .. } = &*same[2] else { unreachable!() };
        assert!(reasoning.is_some());
        assert_eq!((&same[0], &same[1], &same[3], &same[4]), (&default[0], &default[1], &default[3], &default[4]));
    }

    #[test]
    fn messages_with_unmatched_calls_and_results_are_rejected() {
        let default = conversation();
        let sent: Vec<Json> = default.iter().map(|it| message(it)).collect();
        for (without, why) in [(3, "`a` has no result"), (4, "`b` has no result"), (2, "no call `a`")] {
            let mut fewer = sent.clone();
            fewer.remove(without);
            let error = back(&Json::Array(fewer), &default).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(back(&json!([]), &default).is_err());
    }

    #[test]
    fn a_response_changes_only_the_fields_of_a_tool_that_it_contains() {
        let parameters = Arc::new(json!({"type": "object", "properties": {}}));
        let default = ToolSpec { name: "find".into(), description: "Finds.".into(), parameters, strict: true };
        let apply = |answer: Json| serde_json::from_value::<Tool>(answer).unwrap().apply_to(&default);
        assert_eq!(apply(json!({"name": "find"})), default);
        let changed = apply(json!({"name": "find", "description": "Looks.", "parameters": {"properties": {"a": {}}}}));
        assert_eq!((&*changed.description, changed.strict), ("Looks.", false));
        assert_eq!(changed.parameters["type"], "object");
    }
}
