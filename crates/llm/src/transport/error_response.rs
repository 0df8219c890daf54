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
            _ => [text("message"), text("detail")].concat(),
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
        } else if code(&["context_length", "string_above_max_length", "request_too_large"])
            || message_has(&[
                "maximum context length",
                "context window",
                "context size",
                "prompt is too long",
                "context length",
            ])
        {
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
