//! Scenarios in the format of the Messages API.

use serde_json::{Value, json};

use super::{Api, ErrorCase, ResponsePart, Scenario, Skip, StopReason, TokenCounts};
use crate::{anthropic::response::decoder, transport::ResponseDecoder};

pub(super) struct Anthropic;

const NO_REFUSALS: Skip = "the API has no refusal content; refusals are text";
const NO_REASONING: Skip = "the API does not count reasoning tokens separately";
const NO_FILTER: Skip = "the content filter is a stop reason, never an error";

/// Writes events; content blocks are numbered in the order in which they begin.
#[derive(Default)]
struct Writer {
    out: String,
    blocks: u64,
    /// The index of the open text block.
    text: Option<u64>,
    /// The scenario's index and the block index of each call.
    calls: Vec<(u64, u64)>,
}

impl Writer {
    fn event(&mut self, data: &Value) {
        self.out += &format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    }

    fn open(&mut self, block: Value) -> u64 {
        let index = self.blocks;
        if let Some(last) = index.checked_sub(1) {
            self.event(&json!({"type": "content_block_stop", "index": last}));
        }
        self.blocks += 1;
        self.text = None;
        self.event(&json!({"type": "content_block_start", "index": index, "content_block": block}));
        index
    }

    fn delta(&mut self, index: u64, delta: Value) {
        self.event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn text(&mut self, text: &str) {
        let index = match self.text {
            Some(index) => index,
            None => self.open(json!({"type": "text", "text": ""})),
        };
        self.text = Some(index);
        self.delta(index, json!({"type": "text_delta", "text": text}));
    }

    fn call(&mut self, at: u64, id: &str, name: &str) {
        let index = self.open(json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
        self.calls.push((at, index));
        self.delta(index, json!({"type": "input_json_delta", "partial_json": ""}));
    }

    fn part(&mut self, part: &ResponsePart, usage: &Value) {
        match part {
            ResponsePart::Text(text) => self.text(text),
            ResponsePart::Long(length) => self.text(&"x".repeat(*length)),
            ResponsePart::Refusal(_) => {}
            ResponsePart::Reasoning(text) => {
                let index = self.open(json!({"type": "thinking", "thinking": "", "signature": ""}));
                self.delta(index, json!({"type": "thinking_delta", "thinking": text}));
                self.delta(index, json!({"type": "signature_delta", "signature": "c2lnbmVk"}));
            }
            ResponsePart::Call(at, id, name) => self.call(*at, id, name),
            ResponsePart::Arguments(at, text) => {
                let (_, index) = *self.calls.iter().rfind(|(place, _)| place == at).unwrap();
                self.delta(index, json!({"type": "input_json_delta", "partial_json": text}));
            }
            ResponsePart::Many(count) => (0..*count).for_each(|at| self.call(at, &format!("c{at}"), "find")),
            ResponsePart::Ping(times) => (0..*times).for_each(|_| self.event(&json!({"type": "ping"}))),
            ResponsePart::Unknown(times) => {
                (0..*times).for_each(|_| self.event(&json!({"type": "something_new", "sparkle": {"a": [1]}})));
            }
            ResponsePart::Error(case) => self.event(&error(*case)),
            ResponsePart::End(end) => {
                let delta = json!({"stop_reason": reason(*end), "stop_sequence": null});
                let mut event = json!({"type": "message_delta", "delta": delta});
                if let Some(output) = usage.get("output_tokens") {
                    event["usage"] = json!({"output_tokens": output});
                }
                self.event(&event);
            }
        }
    }
}

fn reason(end: StopReason) -> &'static str {
    match end {
        StopReason::Stop => "end_turn",
        StopReason::Calls => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Filter => "refusal",
        StopReason::Pause => "pause_turn",
        StopReason::Other => "something_new",
    }
}

/// Usage as the API counts it: `input_tokens` excludes tokens read from and written to the cache.
fn usage(counts: Option<TokenCounts>) -> Result<Value, Skip> {
    let Some(counts) = counts else { return Ok(Value::Null) };
    if counts.reasoning > 0 {
        return Err(NO_REASONING);
    }
    Ok(json!({
        "input_tokens": counts.input - counts.cached - counts.cache_written,
        "cache_creation_input_tokens": counts.cache_written,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.output,
    }))
}

fn error(case: ErrorCase) -> Value {
    let (kind, message) = match case {
        ErrorCase::Rate => ("rate_limit_error", "This request would exceed your rate limit"),
        ErrorCase::Quota => ("billing_error", "There is an issue with your billing"),
        ErrorCase::Server => ("api_error", "Internal server error"),
        ErrorCase::Overloaded => ("overloaded_error", "Overloaded"),
        ErrorCase::Key => ("authentication_error", "invalid x-api-key"),
        ErrorCase::Model => ("not_found_error", "model: m"),
        ErrorCase::Invalid => ("invalid_request_error", "messages: at least one message is required"),
        ErrorCase::TooLong => ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        ErrorCase::TooLarge => ("request_too_large", "Request exceeds the maximum size"),
        ErrorCase::Filter | ErrorCase::Html => ("", ""),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

fn check_refusals(scenario: &Scenario) -> Result<(), Skip> {
    let refuses = scenario.response.iter().any(|part| matches!(part, ResponsePart::Refusal(_)));
    if refuses { Err(NO_REFUSALS) } else { Ok(()) }
}

impl Api for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }
    fn provider(&self) -> &'static str {
        "anthropic"
    }
    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(decoder("m".into(), 2, 400))
    }

    fn stream(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        check_refusals(scenario)?;
        let usage = usage(scenario.usage)?;
        let mut writer = Writer::default();
        let mut message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []});
        if !usage.is_null() {
            message["usage"] = usage.clone();
            message["usage"]["output_tokens"] = json!(1);
        }
        writer.event(&json!({"type": "message_start", "message": message}));
        for part in &scenario.response {
            writer.part(part, &usage);
        }
        if scenario.end_marker {
            writer.event(&json!({"type": "message_stop"}));
        }
        Ok(writer.out.into_bytes())
    }

    fn json(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        check_refusals(scenario)?;
        let (mut content, mut stop) = (Vec::<Value>::new(), "end_turn");
        for part in &scenario.response {
            match part {
                ResponsePart::Text(text) => content.push(json!({"type": "text", "text": text})),
                ResponsePart::Reasoning(text) => {
                    content.push(json!({"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}));
                }
                ResponsePart::Call(_, id, name) => {
                    content.push(json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
                }
                ResponsePart::Arguments(_, text) => {
                    content.last_mut().unwrap()["input"] = serde_json::from_str(text).unwrap();
                }
                ResponsePart::End(end) => stop = reason(*end),
                other => panic!("not in a JSON response: {other:?}"),
            }
        }
        let usage = usage(scenario.usage)?;
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage,
        });
        Ok(body.to_string().into_bytes())
    }

    fn error_body(&self, case: ErrorCase) -> Result<Vec<u8>, Skip> {
        if case == ErrorCase::Filter {
            return Err(NO_FILTER);
        }
        Ok(error(case).to_string().into_bytes())
    }
}
