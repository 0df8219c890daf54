//! The canonical form of a request: JSON in which the keys of schemas and arguments are sorted. The hash of a request is taken
//! of it, and journals and cassettes hold such hashes: not a byte of it may ever change.
//!
//! Hot path: it is made for every model call, so it is written into one buffer, without a sorted copy of anything.

use std::{cell::RefCell, sync::Arc};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    json,
    message::{Arguments, ChatMessage, ToolCall},
    profile::Effort,
    request::{ChatRequest, Purpose, ToolChoice, ToolSpec},
    tool_list::Form,
};

/// Room that a thread keeps for canonical forms, in bytes: a longer one gets its own.
const KEPT: usize = 64 * 1024;

thread_local! {
    /// Filled and read at once in each model call: the same room again is in the processor's caches, a new one is not.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Does something with the canonical form.
pub(super) fn with<T>(request: &ChatRequest, work: impl FnOnce(&[u8]) -> T) -> T {
    written(
        |room| {
            room.extend_from_slice(BEGIN);
            write_messages(&request.messages, 0, room);
            write_rest(request, room);
        },
        work,
    )
}

/// The messages of a request that was hashed, and the hash as it stood behind them.
#[derive(Clone)]
pub(crate) struct Hashed {
    messages: Vec<Arc<ChatMessage>>,
    state: Sha256,
}

/// The hash of the canonical form. In a loop each request begins with the messages of the one before: these are not written
/// and hashed again, if they are the very same.
pub(super) fn hash(request: &ChatRequest, before: &mut Option<Hashed>) -> [u8; 32] {
    let begins = |known: &Hashed| {
        let same = |(one, other): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(one, other);
        known.messages.len() <= request.messages.len() && known.messages.iter().zip(&request.messages).all(same)
    };
    let (mut state, known) = match before.take().filter(begins) {
        Some(Hashed { messages, state }) => (state, messages.len()),
        None => (Sha256::new_with_prefix(BEGIN), 0),
    };
    // As one piece each: those in which JSON is written are too small for a hasher.
    written(|room| write_messages(&request.messages, known, room), |bytes| state.update(bytes));
    *before = Some(Hashed { messages: request.messages.clone(), state: state.clone() });
    written(|room| write_rest(request, room), |bytes| state.update(bytes));
    state.finalize().into()
}

/// Writes into the room of this thread, and does something with what was written.
fn written<T>(write: impl FnOnce(&mut Vec<u8>), work: impl FnOnce(&[u8]) -> T) -> T {
    let mut room = ROOM.take();
    room.clear();
    write(&mut room);
    let done = work(&room);
    if room.capacity() <= KEPT {
        ROOM.set(room);
    }
    done
}

const BEGIN: &[u8] = b"{\"messages\":[";

/// Writes the messages behind the first `known`.
fn write_messages(messages: &[Arc<ChatMessage>], known: usize, out: &mut Vec<u8>) {
    for (i, message) in messages.iter().enumerate().skip(known) {
        if i > 0 {
            out.push(b',');
        }
        // The serialiser of plain data cannot fail, and neither can a buffer.
        let _ = write_message(message, out);
    }
}

fn write_rest(request: &ChatRequest, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Settings<'a> {
        purpose: &'a Purpose,
        tool_choice: &'a ToolChoice,
        parallel_tool_calls: Option<bool>,
        temperature: Option<f64>,
        max_tokens: Option<u32>,
        reasoning_effort: Option<Effort>,
    }
    out.extend_from_slice(b"],\"settings\":");
    let settings = Settings {
        purpose: &request.purpose,
        tool_choice: &request.tool_choice,
        parallel_tool_calls: request.parallel_tool_calls,
        temperature: request.temperature,
        max_tokens: request.max_tokens,
        reasoning_effort: request.reasoning_effort,
    };
    let _ = serde_json::to_writer(&mut *out, &settings);
    out.extend_from_slice(request.tools.written(Form::Canonical, write_tools));
    out.push(b'}');
}

fn write_tools(tools: &[ToolSpec], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"tools\":[");
    let _ = json::list(tools, out, |tool, out| {
        // The keys of a tool, sorted like all others.
        json::field("{\"description\":", &tool.description, out);
        json::field(",\"name\":", &tool.name, out);
        out.extend_from_slice(b",\"parameters\":");
        write_sorted(&tool.parameters, out)?;
        out.extend_from_slice(if tool.strict { b",\"strict\":true}" } else { b",\"strict\":false}" });
        Ok(())
    });
    out.push(b']');
}

fn write_message(message: &ChatMessage, out: &mut Vec<u8>) -> serde_json::Result<()> {
    match message {
        ChatMessage::System { text } => json::field("{\"role\":\"system\",\"text\":", text, out),
        ChatMessage::User { text } => json::field("{\"role\":\"user\",\"text\":", text, out),
        ChatMessage::Assistant { text, tool_calls, thoughts: None } => {
            json::field("{\"role\":\"assistant\",\"text\":", text, out);
            if !tool_calls.is_empty() {
                out.extend_from_slice(b",\"tool_calls\":[");
                json::list(tool_calls, out, write_call)?;
                out.push(b']');
            }
        }
        ChatMessage::Assistant { tool_calls, .. } if !tool_calls.is_empty() => {
            return write_sorted(&serde_json::to_value(message)?, out);
        }
        ChatMessage::Assistant { .. } => return serde_json::to_writer(out, message),
        ChatMessage::Tool { call_id, name, text } => {
            json::field("{\"role\":\"tool\",\"call_id\":", call_id, out);
            json::field(",\"name\":", name, out);
            json::field(",\"text\":", text, out);
        }
    }
    out.push(b'}');
    Ok(())
}

/// Writes a call, its keys sorted.
fn write_call(call: &ToolCall, out: &mut Vec<u8>) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"arguments\":");
    match &call.arguments {
        Arguments::Json(value) => {
            out.extend_from_slice(b"{\"json\":");
            write_sorted(value, out)?;
            out.push(b'}');
        }
        malformed => write_sorted(&serde_json::to_value(malformed)?, out)?,
    }
    json::field(",\"id\":", &call.id, out);
    json::field(",\"name\":", &call.name, out);
    out.push(b'}');
    Ok(())
}

/// Writes JSON with sorted keys, without a sorted copy of it.
fn write_sorted(value: &Value, out: &mut Vec<u8>) -> serde_json::Result<()> {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push(b'{');
            json::list(entries, out, |(key, value), out| {
                json::text(key, out);
                out.push(b':');
                write_sorted(value, out)
            })?;
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            json::list(items, out, write_sorted)?;
            out.push(b']');
        }
        Value::String(text) => json::text(text, out),
        plain => serde_json::to_writer(out, plain)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::llm::message::Thoughts;

    fn of(message: ChatMessage) -> String {
        let canonical = ChatRequest::new(Purpose::AGENT, vec![Arc::new(message)]).canonical();
        let (messages, _) = canonical.strip_prefix("{\"messages\":[").unwrap().split_once("],\"settings\":").unwrap();
        messages.to_owned()
    }

    #[test]
    fn a_message_without_calls_is_written_as_it_is_stored() {
        let text: Arc<str> = "a \"quoted\"\n\tline \u{1}\u{7f}ü".into();
        let thoughts = Arc::new(Thoughts { model: "m".into(), blocks: Vec::new() });
        let said = |thoughts| ChatMessage::Assistant { text: text.clone(), tool_calls: Vec::new(), thoughts };
        for message in [
            ChatMessage::System { text: text.clone() },
            ChatMessage::User { text: text.clone() },
            ChatMessage::Tool { call_id: "c\\1".into(), name: "find\n".into(), text: text.clone() },
            said(None),
            said(Some(thoughts)),
        ] {
            let stored = serde_json::to_string(&message).unwrap();
            assert_eq!(of(message), stored);
        }
    }

    #[test]
    fn tools_are_written_as_their_sorted_copy_would_be() {
        let schema = json!({"type": "object", "b": [{"z": 1, "a": "ü\n"}, null, 1.5], "a": {"d": true, "c": {}}});
        let tool = |strict| ToolSpec {
            name: "find".into(),
            description: "finds \"it\"".into(),
            parameters: Arc::new(schema.clone()),
            strict,
        };
        let request = ChatRequest::new(Purpose::AGENT, Vec::new()).with_tools([tool(false), tool(true)]);
        let mut sorted = serde_json::to_value(&request.tools).unwrap();
        sorted.sort_all_objects();
        assert!(request.canonical().ends_with(&format!(",\"tools\":{sorted}}}")), "{}", request.canonical());
    }

    #[test]
    fn calls_are_written_as_their_sorted_copy_would_be() {
        let broken = Arguments::Malformed { text: "{\"a".into(), error: "ends \"early\"".into() };
        let call = |id: &str, arguments| ToolCall { id: id.into(), name: "find\n".into(), arguments };
        let calls = vec![call("c1", Arguments::json(json!({"y": [1], "x": {"b": null, "a": 2}}))), call("c2", broken)];
        let message = ChatMessage::Assistant { text: "so \"be\" it".into(), tool_calls: calls, thoughts: None };
        let mut sorted = serde_json::to_value(&message).unwrap();
        sorted.sort_all_objects();
        assert_eq!(of(message), sorted.to_string());
    }

    proptest! {
        /// Whatever was hashed before, the hash is that of the whole.
        #[test]
        fn what_is_known_of_the_request_before_changes_no_hash(
            asked in prop::collection::vec(prop::collection::vec(0..4_usize, 0..5), 1..5)
        ) {
            let pool = ["a", "b\n", "c", "a"].map(ChatMessage::user);
            let mut before = None;
            for places in asked {
                let messages = places.into_iter().map(|place| pool[place].clone()).collect();
                let request = ChatRequest::new(Purpose::AGENT, messages);
                let whole: [u8; 32] = Sha256::digest(request.canonical()).into();
                prop_assert_eq!(hash(&request, &mut before), whole);
            }
        }
    }
}
