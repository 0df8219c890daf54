//! Scenarios in the words of chat completions.

use serde_json::{Value, json};

use super::{End, Figures, Part, Scenario, Skip, Trouble, Wire};
use crate::{openai::response::decoder, transport::ResponseDecoder};

pub(super) struct OpenAi;

const NO_THOUGHTS: Skip = "the wire has no thoughts that are given back";
const NO_WRITES: Skip = "the wire does not tell what was written to the cache";
const NO_PAUSE: Skip = "the vendor runs no tools on this wire";

fn chunk(delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    event(&json!({"id": "x", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}))
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn reason(end: End) -> Result<&'static str, Skip> {
    Ok(match end {
        End::Stop => "stop",
        End::Calls => "tool_calls",
        End::Length => "length",
        End::Filter => "content_filter",
        End::Other => "eos",
        End::Pause => return Err(NO_PAUSE),
    })
}

fn usage(figures: Figures) -> Result<Value, Skip> {
    if figures.cache_written > 0 {
        return Err(NO_WRITES);
    }
    Ok(json!({
        "prompt_tokens": figures.input,
        "completion_tokens": figures.output,
        "prompt_tokens_details": {"cached_tokens": figures.cached},
        "completion_tokens_details": {"reasoning_tokens": figures.reasoning},
    }))
}

fn call(at: u64, id: &str, name: &str) -> Value {
    json!({"index": at, "id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

fn error(trouble: Trouble) -> Value {
    let (kind, code, message) = match trouble {
        Trouble::Rate => ("requests", "rate_limit_exceeded", "Rate limit reached"),
        Trouble::Quota => ("insufficient_quota", "insufficient_quota", "You exceeded your current quota"),
        Trouble::Server => ("server_error", "", "The server had an error"),
        Trouble::Overloaded => ("overloaded", "", "That model is overloaded"),
        Trouble::Key => ("invalid_request_error", "invalid_api_key", "Incorrect API key"),
        Trouble::Model => ("invalid_request_error", "model_not_found", "The model does not exist"),
        Trouble::Invalid => ("invalid_request_error", "", "Unrecognized request argument"),
        Trouble::TooLong => ("invalid_request_error", "context_length_exceeded", "maximum context length"),
        Trouble::TooLarge => ("invalid_request_error", "", "Request too large"),
        Trouble::Filter => ("invalid_request_error", "content_filter", "The response was filtered"),
        Trouble::Page => ("", "", ""),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

impl Wire for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }
    fn provider(&self) -> &'static str {
        "self-hosted"
    }
    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(decoder(2, 400))
    }

    fn stream(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        let mut out = chunk(json!({"role": "assistant", "content": ""}), None);
        for part in &scenario.answer {
            out += &match part {
                Part::Text(text) => chunk(json!({"content": text}), None),
                Part::Long(length) => chunk(json!({"content": "x".repeat(*length)}), None),
                Part::Refusal(text) => chunk(json!({"refusal": text}), None),
                Part::Thought(_) => return Err(NO_THOUGHTS),
                Part::Call(at, id, name) => chunk(json!({"tool_calls": [call(*at, id, name)]}), None),
                Part::Arguments(at, text) => {
                    chunk(json!({"tool_calls": [{"index": at, "function": {"arguments": text}}]}), None)
                }
                Part::Many(count) => (0..*count)
                    .map(|at| chunk(json!({"tool_calls": [call(at, &format!("c{at}"), "find")]}), None))
                    .collect(),
                Part::Ping(times) => ": ping\n\n".repeat(*times),
                Part::Unknown(times) => {
                    event(&json!({"object": "something.new", "sparkle": {"a": [1]}})).repeat(*times)
                }
                Part::Error(trouble) => event(&error(*trouble)),
                Part::End(end) => chunk(json!({}), Some(reason(*end)?)),
            };
        }
        if let Some(figures) = scenario.usage {
            out += &event(&json!({"choices": [], "usage": usage(figures)?}));
        }
        if !scenario.cut {
            out += "data: [DONE]\n\n";
        }
        Ok(out.into_bytes())
    }

    fn whole(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip> {
        let (mut text, mut calls, mut finish) = (String::new(), Vec::<Value>::new(), "stop");
        for part in &scenario.answer {
            match part {
                Part::Text(more) => text += more,
                Part::Call(at, id, name) => calls.push(call(*at, id, name)),
                Part::Arguments(_, text) => calls.last_mut().unwrap()["function"]["arguments"] = json!(text),
                Part::End(end) => finish = reason(*end)?,
                Part::Thought(_) => return Err(NO_THOUGHTS),
                other => panic!("not in a whole answer: {other:?}"),
            }
        }
        let message = json!({"role": "assistant", "content": text, "tool_calls": calls});
        let mut body = json!({"object": "chat.completion", "model": "m-1"});
        body["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish}]);
        if let Some(figures) = scenario.usage {
            body["usage"] = usage(figures)?;
        }
        Ok(body.to_string().into_bytes())
    }

    fn refusal(&self, trouble: Trouble) -> Result<Vec<u8>, Skip> {
        Ok(error(trouble).to_string().into_bytes())
    }
}
