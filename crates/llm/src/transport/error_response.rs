//! Classifies error responses of providers, and masks API keys in their messages.

use std::time::Duration;

use segue_base::{clock::Timestamp, limits};
use serde_json::Value;

use super::json_repair;
use crate::error::{LlmError, LlmErrorKind};

/// The error of a response with a status other than 2xx.
pub(crate) fn error_from_status(status: u16, after: Option<Duration>, body: &[u8]) -> LlmError {
    let vendor = VendorError::parse(body);
    let kind = vendor.kind().unwrap_or(match status {
        402 => LlmErrorKind::QuotaExhausted,
        401 | 403 => LlmErrorKind::Unauthorised,
        404 => LlmErrorKind::NotFound,
        413 => LlmErrorKind::ContextLengthExceeded,
        429 => LlmErrorKind::RateLimited { after },
        408 | 409 | 425 | 500..=599 => LlmErrorKind::Overloaded { after },
        // Redirects are not followed, so the URL is wrong.
        300..=399 => LlmErrorKind::NotFound,
        _ => LlmErrorKind::BadRequest,
    });
    let kind = match kind {
        LlmErrorKind::RateLimited { .. } => LlmErrorKind::RateLimited { after },
        LlmErrorKind::Overloaded { .. } => LlmErrorKind::Overloaded { after },
        other => other,
    };
    LlmError::new(kind).with_detail(format_args!("{status} {}: {}", vendor.code, vendor.message))
}

/// The error of an error object within a stream that began with status 200.
pub(crate) fn error_from_event(body: &[u8]) -> LlmError {
    let vendor = VendorError::parse(body);
    let status = vendor.code.parse::<u16>().ok().filter(|status| (400..600).contains(status));
    let status = status.or(vendor.code.contains("invalid_request").then_some(400));
    let kind = vendor.kind().or_else(|| status.map(|status| error_from_status(status, None, b"{}").kind));
    LlmError::new(kind.unwrap_or(LlmErrorKind::Overloaded { after: None }))
        .with_detail(format_args!("{}: {}", vendor.code, vendor.message))
}

/// Codes and types of errors that say that the request is too long for the model.
const CODES_OF_TOO_LONG: [&str; 6] = [
    "context_length",
    "context_window",
    "exceed_context_size",
    "max_prompt_tokens_exceeded",
    "string_above_max_length",
    "request_too_large",
];

/// What providers say when the request is too long for the model, in lower case: all parts of one line occur. Servers without a code of
/// their own say it in words only.
const WORDS_OF_TOO_LONG: [&[&str]; 25] = [
    &["context length"],
    &["context window"],
    &["context size"],
    &["exceed context limit"],
    &["prompt is too long"],
    &["prompt too long"],
    &["input is too long"],
    &["is too long and exceeds limit"],
    &["maximum prompt length"],
    &["maximum model length"],
    &["maximum allowed input length"],
    &["exceeds max length"],
    &["input token count", "exceed"],
    &["input token count", "only supports"],
    &["prompt token count", "exceeds the limit"],
    &["input tokens", "exceeds maximum length"],
    &["max input tokens"],
    &["expected maxlength"],
    &["tokens in the prompt cannot exceed"],
    &["exceeded model token limit"],
    &["reduce the length of the messages"],
    &["range of input length should be"],
    &["max_new_tokens", "must be <="],
    &["`inputs` must have less than"],
    &["request payload size exceeds the limit"],
];

fn says_too_long(message: &str) -> bool {
    WORDS_OF_TOO_LONG.iter().any(|parts| parts.iter().all(|part| message.contains(part)))
}

/// Whether an error is about how much is sent in a time, which may name tokens too.
fn is_about_rate(code: &str, message: &str) -> bool {
    let in_message =
        ["rate limit", "per minute", "per min", "per second", "per hour", "per day", "too many requests", "throttl"];
    ["rate_limit", "throttl"].iter().any(|word| code.contains(word))
        || in_message.iter().any(|word| message.contains(word))
}

/// The code and message of a provider's error, in any of the known JSON shapes.
struct VendorError {
    /// All codes and types, in lower case.
    code: String,
    message: String,
}

impl VendorError {
    fn parse(body: &[u8]) -> Self {
        let Ok((value, _)) = json_repair::parse::<Value>(body) else {
            return Self { code: String::new(), message: String::from_utf8_lossy(body).into_owned() };
        };
        // Some servers wrap the error in a list.
        let value = match value {
            Value::Array(mut list) if !list.is_empty() => list.swap_remove(0),
            other => other,
        };
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(&value);
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let inner = error.pointer("/innererror/code").and_then(Value::as_str).unwrap_or_default();
        let detail = error.pointer("/details/error_code").and_then(Value::as_str).unwrap_or_default();
        let code = [text("code"), text("type"), text("status"), inner.into(), detail.into()].join(" ");
        let message = match error {
            Value::String(text) => text.clone(),
            // Gateways such as OpenRouter put the words of the provider behind their own.
            _ => {
                let raw = error.pointer("/metadata/raw").and_then(Value::as_str).unwrap_or_default();
                [text("message"), text("detail"), raw.to_owned()].join(" ").trim().to_owned()
            }
        };
        Self { code: code.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase(), message }
    }

    /// The kind of error that the code or the message proves, whatever the status.
    fn kind(&self) -> Option<LlmErrorKind> {
        let code = |words: &[&str]| words.iter().any(|word| self.code.contains(word));
        let message = self.message.to_lowercase();
        let message_has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if code(&["insufficient_quota", "billing", "credit", "quota_exceeded", "spend_limit"])
            || message_has(&["credit balance is too low", "reached your specified api usage limits"])
        {
            Some(LlmErrorKind::QuotaExhausted)
        } else if code(&CODES_OF_TOO_LONG) || (!is_about_rate(&self.code, &message) && says_too_long(&message)) {
            Some(LlmErrorKind::ContextLengthExceeded)
        } else if code(&["content_filter", "content_policy", "responsibleaipolicy"]) {
            Some(LlmErrorKind::ContentFilter)
        } else if code(&["invalid_api_key", "authentication_error", "permission_error"]) {
            Some(LlmErrorKind::Unauthorised)
        } else if code(&["model_not_found", "deploymentnotfound", "not_found_error"]) {
            Some(LlmErrorKind::NotFound)
        } else if code(&["rate_limit"]) {
            Some(LlmErrorKind::RateLimited { after: None })
        } else if code(&["overloaded", "server_error", "unavailable"]) {
            Some(LlmErrorKind::Overloaded { after: None })
        } else {
            None
        }
    }
}

/// How long the provider asks to wait, up to [`limits::MODEL_RETRY_AFTER`]: `retry-after-ms`, or `Retry-After` in seconds or as a
/// date (RFC 9110, section 10.2.3).
pub(super) fn retry_after(millis: Option<&str>, after: Option<&str>, now: Timestamp) -> Option<Duration> {
    parse_retry_after(millis, after, now).map(|wait| wait.min(limits::MODEL_RETRY_AFTER))
}

fn parse_retry_after(millis: Option<&str>, after: Option<&str>, now: Timestamp) -> Option<Duration> {
    if let Some(millis) = millis.and_then(|text| text.trim().parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1e3).ok();
    }
    let text = after?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = chrono::DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros();
    Some(Duration::from_micros(u64::try_from(Timestamp::from_micros(at).since(now)).unwrap_or(0)))
}

/// Masks `key`, and everything that looks like a key with the common prefix `sk-`, in the detail of an error.
pub(super) fn mask_key(error: LlmError, key: Option<&str>) -> LlmError {
    let Some(detail) = error.detail.as_deref() else { return error };
    let mut clean = detail.to_owned();
    if let Some(key) = key.filter(|key| key.len() >= 4) {
        clean = clean.replace(key, "…");
        // The detail is shortened, so it may end with the beginning of the key.
        let mut parts = (4..key.len()).rev().filter_map(|length| key.get(..length));
        if let Some(rest) = parts.find_map(|part| clean.strip_suffix(part)) {
            clean = format!("{rest}…");
        }
    }
    let key_start = |word: &str| {
        let mut found = word.match_indices("sk-").map(|(at, _)| at);
        found.find(|at| !word.get(..*at).unwrap_or_default().ends_with(char::is_alphanumeric))
    };
    let words = clean.split_inclusive(char::is_whitespace).map(|word| match key_start(word) {
        // Providers quote wrong keys partly masked, as `sk-ab***yz`.
        Some(at) => format!("{}sk-… ", word.get(..at).unwrap_or_default()),
        None => word.to_owned(),
    });
    let clean: String = words.collect();
    LlmError { detail: Some(clean.trim_end().into()), ..error }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn statuses_and_codes_are_classified() {
        use LlmErrorKind as K;
        let after = Some(Duration::from_secs(2));
        let cases: [(u16, &str, K); 19] = [
            (429, "{}", K::RateLimited { after }),
            (429, r#"{"error":{"code":"rate_limit_exceeded"}}"#, K::RateLimited { after }),
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, K::QuotaExhausted),
            (402, "", K::QuotaExhausted),
            (500, "<html>", K::Overloaded { after }),
            (529, "{}", K::Overloaded { after }),
            (503, r#"{"error":{"code":"overloaded"}}"#, K::Overloaded { after }),
            (400, r#"{"error":{"code":"context_length_exceeded"}}"#, K::ContextLengthExceeded),
            (
                400,
                r#"{"error":{"message":"the request exceeds the available context size"}}"#,
                K::ContextLengthExceeded,
            ),
            (
                400,
                r#"{"error":{"code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
                K::ContentFilter,
            ),
            (400, r#"{"error":"bad"}"#, K::BadRequest),
            (
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
                K::QuotaExhausted,
            ),
            (413, r#"{"type":"error","error":{"type":"request_too_large"}}"#, K::ContextLengthExceeded),
            (401, r#"{"error":{"message":"Incorrect key"}}"#, K::Unauthorised),
            (403, "", K::Unauthorised),
            (404, r#"{"detail":"Not Found"}"#, K::NotFound),
            (404, r#"[{"error":{"code":404,"status":"NOT_FOUND"}}]"#, K::NotFound),
            (302, "", K::NotFound),
            (413, "", K::ContextLengthExceeded),
        ];
        for (status, body, kind) in cases {
            assert_eq!(error_from_status(status, after, body.as_bytes()).kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn requests_that_are_too_long_are_recognised_in_the_words_of_each_provider() {
        let too_long = [
            ("Anthropic", "prompt is too long: 213462 tokens > 200000 maximum"),
            ("Anthropic", "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000"),
            ("OpenAI", "Your input exceeds the context window of this model. Please adjust your input and try again."),
            ("Gemini", "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."),
            ("Gemini", "The input token count exceeds the maximum number of tokens allowed (1048576)."),
            (
                "Vertex",
                "Unable to submit request because the input token count is 3000000 but model only supports up to 1048576.",
            ),
            ("Gemini", "Request payload size exceeds the limit: 20971520 bytes."),
            ("Bedrock", "Input is too long for requested model."),
            ("Bedrock", "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum"),
            ("Bedrock", "Too many input tokens. Max input tokens: 8192, request input token count: 10450"),
            (
                "Bedrock",
                "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input.",
            ),
            (
                "Bedrock",
                "Malformed input request: expected maxLength: 42000, actual: 50024, please reformat your input and try again.",
            ),
            ("xAI", "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
            (
                "vLLM",
                "This model's maximum context length is 131072 tokens. However, you requested 150000 tokens (146000 in the messages, 4000 in the completion).",
            ),
            ("vLLM", "The decoder prompt (length 140000) is longer than the maximum model length of 131072."),
            ("vLLM", "Input prompt (5000 tokens) is too long and exceeds limit of 4096"),
            ("SGLang", "The input (140000 tokens) is longer than the model's context length (131072 tokens)."),
            (
                "TGI",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4300 `inputs` tokens and 512 `max_new_tokens`",
            ),
            ("TGI", "Input validation error: `inputs` must have less than 1024 tokens. Given: 4000"),
            ("Mistral", "Prompt contains 300000 tokens, too large for model with 131072 maximum context length"),
            ("Ollama", "prompt too long; exceeded max context length by 4096 tokens"),
            ("Ollama", "the input length exceeds the context length"),
            ("llama.cpp", "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"),
            ("llama.cpp", "input is larger than the max context size. skipped"),
            ("LM Studio", "The number of tokens to keep from the initial prompt is greater than the context length."),
            ("Groq", "Please reduce the length of the messages or completion."),
            ("Cohere", "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000."),
            ("Copilot", "prompt token count of 145000 exceeds the limit of 128000"),
            ("Moonshot", "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"),
            ("MiniMax", "invalid params, context window exceeds limit (2013)"),
            ("Qwen", "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"),
            ("Zhipu", "Prompt exceeds max length"),
            (
                "OpenRouter",
                "This endpoint's maximum context length is 1048576 tokens. However, you requested about 1293741 tokens",
            ),
            ("Poolside", "Input length 131393 exceeds the maximum allowed input length of 131072 tokens."),
        ];
        for (vendor, message) in too_long {
            let wrapped =
                serde_json::json!({"message": "Provider returned error", "code": 400, "metadata": {"raw": message}});
            for body in [
                serde_json::json!({"error": {"message": message, "code": 400, "status": "INVALID_ARGUMENT"}}),
                serde_json::json!([{"error": {"message": message}}]),
                serde_json::json!({"error": message}),
                serde_json::json!({"object": "error", "message": message, "type": "BadRequestError"}),
                serde_json::json!({"error": wrapped}),
            ] {
                let body = body.to_string();
                let kind = error_from_status(400, None, body.as_bytes()).kind;
                assert_eq!(kind, LlmErrorKind::ContextLengthExceeded, "{vendor}: {body}");
                assert_eq!(error_from_event(body.as_bytes()).kind, kind, "{vendor}: {body}");
            }
        }
        let after = None;
        for message in [
            "Too many tokens, please wait before trying again.",
            "Too many tokens per minute for this context window, retry later",
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 20000, Requested 15000.",
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
            "You exceeded your current quota. Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000",
            "This request would exceed your organization's rate limit of 30,000 input tokens per minute, reduce the prompt length",
            "Number of input tokens per minute exceeds the limit: prompt token count of 9000 exceeds the limit of 8000",
        ] {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            let kind = error_from_status(429, after, body.as_bytes()).kind;
            assert_eq!(kind, LlmErrorKind::RateLimited { after }, "{message}");
        }
        for message in ["`temperature` is too long", "the tool name is too long", "max_tokens is too large: 99999"] {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            assert_eq!(error_from_status(400, None, body.as_bytes()).kind, LlmErrorKind::BadRequest, "{message}");
        }
    }

    #[test]
    fn errors_within_a_stream_are_classified() {
        use LlmErrorKind as K;
        for (body, kind) in [
            (r#"{"error":{"code":"429","message":"slow"}}"#, K::RateLimited { after: None }),
            (r#"{"error":{"code":401}}"#, K::Unauthorised),
            (r#"{"error":{"type":"server_error"}}"#, K::Overloaded { after: None }),
            (r#"{"type":"error","error":{"type":"overloaded_error"}}"#, K::Overloaded { after: None }),
            (r#"{"type":"error","error":{"type":"api_error"}}"#, K::Overloaded { after: None }),
            (r#"{"type":"error","error":{"type":"invalid_request_error"}}"#, K::BadRequest),
            ("rubbish", K::Overloaded { after: None }),
        ] {
            assert_eq!(error_from_event(body.as_bytes()).kind, kind, "{body}");
        }
    }

    #[test]
    fn retry_after_is_parsed_in_every_form() {
        let now = Timestamp::from_seconds(784_111_777.0);
        let date = "Sun, 06 Nov 1994 08:49:47 GMT";
        assert_eq!(retry_after(None, Some(date), now), Some(Duration::from_secs(10)));
        assert_eq!(retry_after(None, Some("1.5"), now), Some(Duration::from_millis(1500)));
        assert_eq!(retry_after(Some("20"), Some("9"), now), Some(Duration::from_millis(20)));
        for bad in ["-1", "NaN", "soon", "1e300"] {
            assert_eq!(retry_after(None, Some(bad), now), None, "{bad}");
        }
        for too_long in ["18446744073709549568", "Sun, 06 Nov 9994 08:49:47 GMT"] {
            assert_eq!(retry_after(None, Some(too_long), now), Some(limits::MODEL_RETRY_AFTER), "{too_long}");
        }
    }

    #[test]
    fn keys_are_masked() {
        let error = LlmError::new(LlmErrorKind::Unauthorised).with_detail("wrong key: sk-proj-abc, hunter22 given");
        assert_eq!(mask_key(error, Some("hunter22")).detail.as_deref(), Some("wrong key: sk-… … given"));
    }

    #[test]
    fn a_key_at_the_end_of_a_shortened_detail_is_masked() {
        let key = "hunter22-and-a-long-tail";
        for before in 470..500 {
            let body = format!(r#"{{"error":{{"message":"{} {key}"}}}}"#, "x".repeat(before));
            let error = mask_key(error_from_status(401, None, body.as_bytes()), Some(key));
            assert!(!error.detail.as_deref().unwrap().contains("hunt"), "{before}: {error:?}");
        }
    }

    #[test]
    fn words_that_contain_the_key_prefix_inside_stay() {
        let error = LlmError::new(LlmErrorKind::BadRequest).with_detail("task-7 failed: disk-full, key=sk-ab***yz");
        assert_eq!(mask_key(error, None).detail.as_deref(), Some("task-7 failed: disk-full, key=sk-…"));
    }
}
