//! Scenarios in the format of Chat Completions.

use serde_json::{Value, json};

use super::{Api, ErrorCase, ResponsePart, Scenario, Skip, StopReason, TokenCounts};
use crate::{openai::response::decoder, transport::ResponseDecoder};

pub(super) struct OpenAi;

const NO_REASONING: Skip = "the API has no signed blocks of reasoning";
const NO_CACHE_WRITES: Skip = "the API does not report cache writes";
const NO_PAUSE: Skip = "the API has no stop reason for provider-side tools";

fn chunk(delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    event(&json!({"id": "x", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}))
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn reason(end: StopReason) -> Result<&'static str, Skip> {
    Ok(match end {
        StopReason::Stop => "stop",
        StopReason::Calls => "tool_calls",
        StopReason::Length => "length",
        StopReason::Filter => "content_filter",
        StopReason::Other => "eos",
        StopReason::Pause => return Err(NO_PAUSE),
    })
}

fn usage(counts: TokenCounts) -> Result<Value, Skip> {
    if counts.cache_written > 0 {
        return Err(NO_CACHE_WRITES);
    }
    Ok(json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }))
}

fn call(at: u64, id: &str, name: &str) -> Value {
    json!({"index": at, "id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

fn error(case: ErrorCase) -> Value {
    let (kind, code, message) = match case {
        ErrorCase::Rate => ("requests", "rate_limit_exceeded", "Rate limit reached"),
        ErrorCase::Quota => ("insufficient_quota", "insufficient_quota", "You exceeded your current quota"),
        ErrorCase::Server => ("server_error", "", "The server had an error"),
        ErrorCase::Overloaded => ("overloaded", "", "That model is overloaded"),
        ErrorCase::Key => ("invalid_request_error", "invalid_api_key", "Incorrect API key"),
        ErrorCase::Model => ("invalid_request_error", "model_not_found", "The model does not exist"),
        ErrorCase::Invalid => ("invalid_request_error", "", "Unrecognized request argument"),
        ErrorCase::TooLong => ("invalid_request_error", "context_length_exceeded", "maximum context length"),
        ErrorCase::TooLarge => ("invalid_request_error", "", "Request too large"),
        ErrorCase::Filter => ("invalid_request_error", "content_filter", "The response was filtered"),
        ErrorCase::Html => ("", "", ""),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

impl Api for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }
    fn provider(&self) -> &'static str {
        "self-hosted"
    }
    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(decoder("m".into(), 2, 400))
    }

    fn stream(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        let mut out = chunk(json!({"role": "assistant", "content": ""}), None);
        for part in &scenario.response {
            out += &match part {
                ResponsePart::Text(text) => chunk(json!({"content": text}), None),
                ResponsePart::Long(length) => chunk(json!({"content": "x".repeat(*length)}), None),
                ResponsePart::Refusal(text) => chunk(json!({"refusal": text}), None),
                ResponsePart::Reasoning(_) => return Err(NO_REASONING),
                ResponsePart::Call(at, id, name) => chunk(json!({"tool_calls": [call(*at, id, name)]}), None),
                ResponsePart::Arguments(at, text) => {
                    chunk(json!({"tool_calls": [{"index": at, "function": {"arguments": text}}]}), None)
                }
                ResponsePart::Many(count) => (0..*count)
                    .map(|at| chunk(json!({"tool_calls": [call(at, &format!("c{at}"), "find")]}), None))
                    .collect(),
                ResponsePart::Ping(times) => ": ping\n\n".repeat(*times),
                ResponsePart::Unknown(times) => {
                    event(&json!({"object": "something.new", "sparkle": {"a": [1]}})).repeat(*times)
                }
                ResponsePart::Error(case) => event(&error(*case)),
                ResponsePart::End(end) => chunk(json!({}), Some(reason(*end)?)),
            };
        }
        if let Some(counts) = scenario.usage {
            out += &event(&json!({"choices": [], "usage": usage(counts)?}));
        }
        if scenario.end_marker {
            out += "data: [DONE]\n\n";
        }
        Ok(out.into_bytes())
    }

    fn json(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        let (mut text, mut calls, mut finish) = (String::new(), Vec::<Value>::new(), "stop");
        for part in &scenario.response {
            match part {
                ResponsePart::Text(more) => text += more,
                ResponsePart::Call(at, id, name) => calls.push(call(*at, id, name)),
                ResponsePart::Arguments(_, text) => calls.last_mut().unwrap()["function"]["arguments"] = json!(text),
                ResponsePart::End(end) => finish = reason(*end)?,
                ResponsePart::Reasoning(_) => return Err(NO_REASONING),
                other => panic!("not in a JSON response: {other:?}"),
            }
        }
        let message = json!({"role": "assistant", "content": text, "tool_calls": calls});
        let mut body = json!({"object": "chat.completion", "model": "m-1"});
        body["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish}]);
        if let Some(counts) = scenario.usage {
            body["usage"] = usage(counts)?;
        }
        Ok(body.to_string().into_bytes())
    }

    fn error_body(&self, case: ErrorCase) -> Result<Vec<u8>, Skip> {
        Ok(error(case).to_string().into_bytes())
    }
}
