//! Messages and tools as hook servers read and write them (docs/how-to/hooks-in-python.md): plain JSON, without what only a vendor understands.

use std::{collections::HashMap, sync::Arc};

use segue_engine::project::{SlotDef, SlotType};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::llm::{ChatMessage, ToolArguments, ToolCall, ToolSpec, message::ReasoningBlocks};

/// A message as it is sent.
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
    };
    json!({"id": &*call.id, "name": &*call.name, "arguments": arguments})
}

/// A tool as it is sent.
pub(super) fn tool(tool: &ToolSpec) -> Json {
    json!({"name": &*tool.name, "description": &*tool.description, "parameters": &*tool.parameters})
}

/// A slot as it is sent.
pub(super) fn slot(slot: &SlotDef) -> Json {
    let mut it = json!({"name": slot.name.as_str(), "type": slot.kind.name()});
    if let (Some(it), SlotType::Categorical(values)) = (it.as_object_mut(), &slot.kind) {
        it.insert("values".to_owned(), values.iter().map(|value| &**value).collect());
    }
    it
}

/// A message as it comes back.
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

/// A tool as it comes back: only what changes.
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
    /// The tool with what the answer says of it.
    pub(super) fn over(self, usual: &ToolSpec) -> ToolSpec {
        let mut tool = usual.clone();
        if let Some(description) = self.description {
            tool.description = description;
        }
        if let Some(parameters) = self.parameters {
            // Whether a schema of others may be enforced by a vendor is not known.
            (tool.parameters, tool.strict) =
                (Arc::new(crate::tools::schema::completed(Json::Object(parameters))), false);
        }
        tool
    }
}

/// The messages of an answer. What a model thought goes back to the calls that it belongs to.
///
/// # Errors
/// In words: a call without its one result, or a result without its call, which no model takes.
pub(super) fn messages(answer: Vec<Message>, usual: &[Arc<ChatMessage>]) -> Result<Vec<Arc<ChatMessage>>, String> {
    let mut reasoning: HashMap<Arc<str>, Arc<ReasoningBlocks>> = HashMap::new();
    for message in usual {
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
                        // What is no object was no JSON when it was sent.
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

    fn talk() -> Vec<Arc<ChatMessage>> {
        let call = |id: &str, arguments| ToolCall { id: id.into(), name: "find".into(), arguments };
        let calls = vec![
            call("a", ToolArguments::json(json!({"port": "Arnvik"}))),
            call("b", ToolArguments::Malformed { text: "{\"po".into(), error: "EOF".into() }),
        ];
        let thought = ReasoningBlock { after: 0, block: Arc::new(json!({"closed": true})) };
        let reasoning = Some(Arc::new(ReasoningBlocks { model: "m".into(), blocks: vec![thought] }));
        let results = [ChatMessage::tool(&calls[0], "NW-1"), ChatMessage::tool(&calls[1], "no JSON")];
        let answer = ChatMessage::Assistant { text: "Let me look.".into(), tool_calls: calls, reasoning };
        let mut talk = vec![ChatMessage::system("Help."), ChatMessage::user("hi"), Arc::new(answer)];
        talk.extend(results);
        talk
    }

    fn back(sent: &Json, usual: &[Arc<ChatMessage>]) -> Result<Vec<Arc<ChatMessage>>, String> {
        messages(serde_json::from_value(sent.clone()).unwrap(), usual)
    }

    #[test]
    fn messages_that_come_back_as_they_were_sent_are_the_same_and_keep_what_was_thought() {
        let usual = talk();
        let sent: Json = usual.iter().map(|it| message(it)).collect();
        assert_eq!(sent[2]["tool_calls"][0], json!({"id": "a", "name": "find", "arguments": {"port": "Arnvik"}}));
        assert!(!sent.to_string().contains("closed"), "what a model thought is nobody's business");
        let same = back(&sent, &usual).unwrap();
        assert_eq!(same.len(), usual.len());
        let ChatMessage::Assistant { reasoning, .. } = &*same[2] else { unreachable!() };
        assert!(reasoning.is_some());
        assert_eq!((&same[0], &same[1], &same[3], &same[4]), (&usual[0], &usual[1], &usual[3], &usual[4]));
    }

    #[test]
    fn messages_that_no_model_takes_are_refused() {
        let usual = talk();
        let sent: Vec<Json> = usual.iter().map(|it| message(it)).collect();
        for (without, why) in [(3, "`a` has no result"), (4, "`b` has no result"), (2, "no call `a`")] {
            let mut fewer = sent.clone();
            fewer.remove(without);
            let error = back(&Json::Array(fewer), &usual).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(back(&json!([]), &usual).is_err());
    }

    #[test]
    fn of_a_tool_only_what_the_answer_says_changes() {
        let parameters = Arc::new(json!({"type": "object", "properties": {}}));
        let usual = ToolSpec { name: "find".into(), description: "Finds.".into(), parameters, strict: true };
        let over = |answer: Json| serde_json::from_value::<Tool>(answer).unwrap().over(&usual);
        assert_eq!(over(json!({"name": "find"})), usual);
        let changed = over(json!({"name": "find", "description": "Looks.", "parameters": {"properties": {"a": {}}}}));
        assert_eq!((&*changed.description, changed.strict), ("Looks.", false));
        assert_eq!(changed.parameters["type"], "object");
    }
}
