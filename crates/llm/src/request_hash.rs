//! The canonical form of a request and its hash. Journals and cassettes store these hashes, so the canonical form must never change.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ChatMessage, ChatRequest, Purpose, ToolCall, ToolSpec, profile::ReasoningEffort, request::ToolChoice};

/// The hash of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestHash(pub [u8; 32]);

impl ChatRequest {
    /// SHA-256 of [`Self::canonical`]: equal for equal requests, on every machine and in every later version.
    pub fn hash(&self) -> RequestHash {
        RequestHash(Sha256::digest(self.canonical()).into())
    }

    /// The request as JSON with sorted object keys in schemas and arguments: the input of [`Self::hash`].
    pub fn canonical(&self) -> String {
        let canonical = Canonical {
            messages: self.messages.iter().map(|message| CanonicalMessage(message)).collect(),
            settings: Settings {
                purpose: &self.purpose,
                tool_choice: &self.tool_choice,
                parallel_tool_calls: self.parallel_tool_calls,
                temperature: self.temperature,
                max_tokens: self.max_tokens,
                reasoning_effort: self.reasoning_effort,
            },
            tools: self
                .tools
                .iter()
                .map(|ToolSpec { name, description, parameters, strict }| CanonicalTool {
                    description,
                    name,
                    parameters: Sorted(parameters),
                    strict: *strict,
                })
                .collect(),
        };
        // Serialising the types of a request cannot fail.
        serde_json::to_string(&canonical).unwrap_or_default()
    }
}

// The order of the fields in these types is part of the stored format.

#[derive(Serialize)]
struct Canonical<'a> {
    messages: Vec<CanonicalMessage<'a>>,
    settings: Settings<'a>,
    tools: Vec<CanonicalTool<'a>>,
}

#[derive(Serialize)]
struct Settings<'a> {
    purpose: &'a Purpose,
    tool_choice: &'a ToolChoice,
    parallel_tool_calls: Option<bool>,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    reasoning_effort: Option<ReasoningEffort>,
}

#[derive(Serialize)]
struct CanonicalTool<'a> {
    description: &'a str,
    name: &'a str,
    parameters: Sorted<'a>,
    strict: bool,
}

/// A message. The keys of messages with tool calls are sorted; the order of the others is part of the stored format.
struct CanonicalMessage<'a>(&'a ChatMessage);

#[derive(Serialize)]
struct MessageWithCalls<'a> {
    role: &'static str,
    text: &'a str,
    tool_calls: Vec<CanonicalCall<'a>>,
}

#[derive(Serialize)]
struct CanonicalCall<'a> {
    arguments: CanonicalArguments<'a>,
    id: &'a str,
    name: &'a str,
}

impl<'a> CanonicalCall<'a> {
    /// `None` if the arguments are no JSON.
    fn of(call: &'a ToolCall) -> Option<Self> {
        let json = Sorted(call.arguments.as_json()?);
        Some(Self { arguments: CanonicalArguments { json }, id: &call.id, name: &call.name })
    }
}

#[derive(Serialize)]
struct CanonicalArguments<'a> {
    json: Sorted<'a>,
}

impl Serialize for CanonicalMessage<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let ChatMessage::Assistant { text, tool_calls, reasoning } = self.0 else { return self.0.serialize(s) };
        if tool_calls.is_empty() {
            return self.0.serialize(s);
        }
        let calls: Option<Vec<_>> = tool_calls.iter().map(CanonicalCall::of).collect();
        let Some(calls) = calls.filter(|_| reasoning.is_none()) else {
            // Rare: arguments that are no JSON, or data of the provider.
            let mut value = serde_json::to_value(self.0).unwrap_or_default();
            value.sort_all_objects();
            return value.serialize(s);
        };
        MessageWithCalls { role: "assistant", text, tool_calls: calls }.serialize(s)
    }
}

/// A JSON value with sorted object keys.
struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                s.collect_map(entries.into_iter().map(|(key, value)| (key, Sorted(value))))
            }
            Value::Array(items) => s.collect_seq(items.iter().map(Sorted)),
            scalar => scalar.serialize(s),
        }
    }
}

impl fmt::Display for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
impl fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl std::str::FromStr for RequestHash {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err("expected 64 hexadecimal digits");
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).map_err(|_| "expected 64 hexadecimal digits")?;
        }
        Ok(Self(bytes))
    }
}
impl Serialize for RequestHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for RequestHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        Purpose, ToolArguments, ToolCall, ToolSpec,
        message::{ReasoningBlock, ReasoningBlocks},
    };

    fn request(parameters: Value, arguments: Value) -> ChatRequest {
        let call = ToolCall { id: "c1".into(), name: "find".into(), arguments: ToolArguments::json(arguments) };
        ChatRequest::new(
            Purpose::AGENT,
            vec![
                ChatMessage::system("be brief"),
                Arc::new(ChatMessage::Assistant { text: "".into(), tool_calls: vec![call.clone()], reasoning: None }),
                ChatMessage::tool(&call, "{}"),
            ],
        )
        .with_tools([ToolSpec {
            name: "find".into(),
            description: "finds".into(),
            parameters: Arc::new(parameters),
            strict: false,
        }])
    }

    /// The canonical form by way of a value: how journals and cassettes of earlier releases have computed it.
    fn by_value(request: &ChatRequest) -> String {
        let message = |message: &Arc<ChatMessage>| {
            let mut value = serde_json::to_value(message).unwrap();
            if value.get("tool_calls").is_some() {
                value.sort_all_objects();
            }
            value
        };
        let messages: Vec<Value> = request.messages.iter().map(message).collect();
        let mut tools = serde_json::to_value(&request.tools).unwrap();
        tools.sort_all_objects();
        let settings = json!({
            "purpose": request.purpose, "tool_choice": request.tool_choice,
            "parallel_tool_calls": request.parallel_tool_calls, "temperature": request.temperature,
            "max_tokens": request.max_tokens, "reasoning_effort": request.reasoning_effort,
        });
        json!({"messages": messages, "settings": settings, "tools": tools}).to_string()
    }

    #[test]
    fn the_canonical_form_is_that_of_earlier_releases() {
        let odd = json!({
            "z": {"b": [{"y": 1, "x": -0.0}, [], {}], "a": 1e300, "ä": "\u{1F600} \"\\\n\u{7}"},
            "n": [u64::MAX, i64::MIN, 9007199254740993_u64, 0.1, 1.0, null, true], "": {"k": ""}, "A": 0, "a": 0,
        });
        let reasoning = |block: Value| {
            let block = ReasoningBlock { after: 1, block: Arc::new(block) };
            Some(Arc::new(ReasoningBlocks { model: "m".into(), blocks: vec![block] }))
        };
        let call = |arguments| ToolCall { id: "c1".into(), name: "find".into(), arguments };
        let malformed = || ToolArguments::Malformed { text: "{".into(), error: "expected".into() };
        let dropped = || ToolArguments::Dropped { reason: crate::DropReason::TooLong };
        let mut requests = vec![request(odd.clone(), odd.clone()), request(json!({}), json!("no object"))];
        for (arguments, reasoning) in [
            (ToolArguments::json(odd.clone()), None),
            (ToolArguments::json(odd.clone()), reasoning(odd.clone())),
            (malformed(), None),
            (dropped(), None),
        ] {
            for tool_calls in
                [vec![call(arguments.clone())], vec![call(ToolArguments::json(json!({}))), call(arguments)], vec![]]
            {
                let message = ChatMessage::Assistant { text: "ä\n".into(), tool_calls, reasoning: reasoning.clone() };
                requests.push(ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user("u"), Arc::new(message)]));
            }
        }
        let mut settings = request(odd.clone(), odd);
        settings.temperature = Some(0.1);
        settings.max_tokens = Some(7);
        settings.parallel_tool_calls = Some(false);
        settings.tool_choice = ToolChoice::Tool("find".into());
        settings.reasoning_effort = Some(ReasoningEffort::Low);
        requests.push(settings);
        for request in &requests {
            assert_eq!(request.canonical(), by_value(request));
        }
    }

    #[test]
    fn the_hash_ignores_only_the_order_of_keys() {
        let a = request(json!({"type": "object", "properties": {"b": {}, "a": {}}}), json!({"x": 1, "y": 2}));
        let b = request(json!({"properties": {"a": {}, "b": {}}, "type": "object"}), json!({"y": 2, "x": 1}));
        assert_eq!(a.hash(), b.hash());
        let c = request(json!({"type": "object", "properties": {"b": {}, "a": {}}}), json!({"x": 1, "y": 3}));
        assert_ne!(a.hash(), c.hash());
        let mut warm = a.clone();
        warm.temperature = Some(0.5);
        assert_ne!(a.hash(), warm.hash());
    }

    #[test]
    fn the_canonical_form_of_a_small_request_never_changes() {
        // If this test fails, the hashes in journals and cassettes no longer match.
        let request = ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user("hi")]);
        assert_eq!(
            request.canonical(),
            r#"{"messages":[{"role":"user","text":"hi"}],"settings":{"purpose":"commands","tool_choice":"auto","parallel_tool_calls":null,"temperature":null,"max_tokens":null,"reasoning_effort":null},"tools":[]}"#
        );
    }

    #[test]
    fn the_canonical_form_of_every_part_never_changes() {
        let call = |id: &str, arguments| ToolCall { id: id.into(), name: "find".into(), arguments };
        let broken = ToolArguments::Malformed { text: "{\"a".into(), error: "EOF".into() };
        let calls =
            vec![call("c1", ToolArguments::json(json!({"y": [1], "x": {"b": null, "a": 2}}))), call("c2", broken)];
        let block = ReasoningBlock { after: 1, block: Arc::new(json!({"type": "thinking", "a": 1})) };
        let reasoning = Some(Arc::new(ReasoningBlocks { model: "m".into(), blocks: vec![block] }));
        let assistant = |text: &str, tool_calls, reasoning| {
            Arc::new(ChatMessage::Assistant { text: text.into(), tool_calls, reasoning })
        };
        let mut request = request(json!({"b": 1.5, "a": {}}), json!({"x": 1}));
        request.messages = vec![
            assistant("a \"q\"\n", calls.clone(), None),
            assistant("", Vec::new(), reasoning.clone()),
            assistant("", vec![calls[0].clone()], reasoning),
            ChatMessage::tool(&calls[0], "{}"),
        ];
        request.tool_choice = crate::ToolChoice::Tool("find".into());
        request.parallel_tool_calls = Some(false);
        (request.temperature, request.max_tokens) = (Some(0.5), Some(7));
        request.reasoning_effort = Some(crate::ReasoningEffort::Low);
        let called = r#"{"arguments":{"json":{"x":{"a":2,"b":null},"y":[1]}},"id":"c1","name":"find"}"#;
        let malformed = r#"{"arguments":{"malformed":{"error":"EOF","text":"{\"a"}},"id":"c2","name":"find"}"#;
        let expected = [
            r#"{"messages":[{"role":"assistant","text":"a \"q\"\n","tool_calls":["#,
            &format!("{called},{malformed}"),
            r#"]},{"role":"assistant","text":"","thoughts":{"model":"m","blocks":[{"after":1,"block":{"type":"thinking","a":1}}]}},"#,
            r#"{"role":"assistant","text":"","thoughts":{"blocks":[{"after":1,"block":{"a":1,"type":"thinking"}}],"model":"m"},"tool_calls":["#,
            called,
            r#"]},{"role":"tool","call_id":"c1","name":"find","text":"{}"}],"settings":{"purpose":"agent","tool_choice":{"tool":"find"},"#,
            r#""parallel_tool_calls":false,"temperature":0.5,"max_tokens":7,"reasoning_effort":"low"},"#,
            r#""tools":[{"description":"finds","name":"find","parameters":{"a":{},"b":1.5},"strict":false}]}"#,
        ];
        assert_eq!(request.canonical(), expected.concat());
    }

    #[test]
    fn requests_and_hashes_round_trip_through_json() {
        let a = request(json!({"type": "object"}), json!({"x": [1, "ü"]}));
        let text = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<ChatRequest>(&text).unwrap(), a);
        assert_eq!(a.hash().to_string().parse(), Ok(a.hash()));
        assert!("zz".parse::<RequestHash>().is_err());
        assert!("é".repeat(32).parse::<RequestHash>().is_err());
    }
}
