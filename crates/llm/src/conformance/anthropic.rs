//! Scenarios in the words of the messages wire.

use serde_json::{Value, json};

use super::{End, Figures, Part, Scenario, Skip, Trouble, Wire};
use crate::{anthropic::response::decoder, transport::ResponseDecoder};

pub(super) struct Anthropic;

const NO_REFUSALS: Skip = "the wire has no part for words of refusal; the model says them as text";
const NO_REASONING: Skip = "the wire does not count thoughts apart";
const NO_FILTER: Skip = "the vendor's filter is a reason to stop, never an error";

/// Writes events; the blocks of an answer are numbered as they begin.
#[derive(Default)]
struct Writer {
    out: String,
    blocks: u64,
    /// The block of text that is open.
    text: Option<u64>,
    /// The blocks of calls, by the scenario's places.
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

    fn part(&mut self, part: &Part, usage: &Value) {
        match part {
            Part::Text(text) => self.text(text),
            Part::Long(length) => self.text(&"x".repeat(*length)),
            Part::Refusal(_) => {}
            Part::Thought(text) => {
                let index = self.open(json!({"type": "thinking", "thinking": "", "signature": ""}));
                self.delta(index, json!({"type": "thinking_delta", "thinking": text}));
                self.delta(index, json!({"type": "signature_delta", "signature": "c2lnbmVk"}));
            }
            Part::Call(at, id, name) => self.call(*at, id, name),
            Part::Arguments(at, text) => {
                let (_, index) = *self.calls.iter().rfind(|(place, _)| place == at).unwrap();
                self.delta(index, json!({"type": "input_json_delta", "partial_json": text}));
            }
            Part::Many(count) => (0..*count).for_each(|at| self.call(at, &format!("c{at}"), "find")),
            Part::Ping(times) => (0..*times).for_each(|_| self.event(&json!({"type": "ping"}))),
            Part::Unknown(times) => {
                (0..*times).for_each(|_| self.event(&json!({"type": "something_new", "sparkle": {"a": [1]}})));
            }
            Part::Error(trouble) => self.event(&error(*trouble)),
            Part::End(end) => {
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

fn reason(end: End) -> &'static str {
    match end {
        End::Stop => "end_turn",
        End::Calls => "tool_use",
        End::Length => "max_tokens",
        End::Filter => "refusal",
        End::Pause => "pause_turn",
        End::Other => "something_new",
    }
}

/// Figures as the wire counts them: what the cache gave and took is not among the input.
fn usage(figures: Option<Figures>) -> Result<Value, Skip> {
    let Some(figures) = figures else { return Ok(Value::Null) };
    if figures.reasoning > 0 {
        return Err(NO_REASONING);
    }
    Ok(json!({
        "input_tokens": figures.input - figures.cached - figures.cache_written,
        "cache_creation_input_tokens": figures.cache_written,
        "cache_read_input_tokens": figures.cached,
        "output_tokens": figures.output,
    }))
}

fn error(trouble: Trouble) -> Value {
    let (kind, message) = match trouble {
        Trouble::Rate => ("rate_limit_error", "This request would exceed your rate limit"),
        Trouble::Quota => ("billing_error", "There is an issue with your billing"),
        Trouble::Server => ("api_error", "Internal server error"),
        Trouble::Overloaded => ("overloaded_error", "Overloaded"),
        Trouble::Key => ("authentication_error", "invalid x-api-key"),
        Trouble::Model => ("not_found_error", "model: m"),
        Trouble::Invalid => ("invalid_request_error", "messages: at least one message is required"),
        Trouble::TooLong => ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        Trouble::TooLarge => ("request_too_large", "Request exceeds the maximum size"),
        Trouble::Filter | Trouble::Page => ("", ""),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

fn has_words(scenario: &Scenario) -> Result<(), Skip> {
    let refuses = scenario.answer.iter().any(|part| matches!(part, Part::Refusal(_)));
    if refuses { Err(NO_REFUSALS) } else { Ok(()) }
}

impl Wire for Anthropic {
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
        has_words(scenario)?;
        let usage = usage(scenario.usage)?;
        let mut writer = Writer::default();
        let mut message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []});
        if !usage.is_null() {
            message["usage"] = usage.clone();
            message["usage"]["output_tokens"] = json!(1);
        }
        writer.event(&json!({"type": "message_start", "message": message}));
        for part in &scenario.answer {
            writer.part(part, &usage);
        }
        if !scenario.cut {
            writer.event(&json!({"type": "message_stop"}));
        }
        Ok(writer.out.into_bytes())
    }

    fn whole(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        has_words(scenario)?;
        let (mut content, mut stop) = (Vec::<Value>::new(), "end_turn");
        for part in &scenario.answer {
            match part {
                Part::Text(text) => content.push(json!({"type": "text", "text": text})),
                Part::Thought(text) => {
                    content.push(json!({"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}));
                }
                Part::Call(_, id, name) => {
                    content.push(json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
                }
                Part::Arguments(_, text) => {
                    content.last_mut().unwrap()["input"] = serde_json::from_str(text).unwrap();
                }
                Part::End(end) => stop = reason(*end),
                other => panic!("not in a whole answer: {other:?}"),
            }
        }
        let usage = usage(scenario.usage)?;
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage,
        });
        Ok(body.to_string().into_bytes())
    }

    fn refusal(&self, trouble: Trouble) -> Result<Vec<u8>, Skip> {
        if trouble == Trouble::Filter {
            return Err(NO_FILTER);
        }
        Ok(error(trouble).to_string().into_bytes())
    }
}
