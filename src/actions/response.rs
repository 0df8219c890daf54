//! Conversion of the response of an action server, status and body, to an outcome.

use segue_base::json::from_slice_lossy;
use segue_engine::{
    conversation::{ActionOutcome, ActionServerResponse, StepError},
    text::{ELLIPSIS, TextLimit, strip_hidden, truncate},
};
use serde_json::{Map, Value as Json};

/// Characters of a server's error text that are kept.
const MAX_ERROR_CHARS: usize = 500;

/// The meaning of a response.
#[derive(Debug, PartialEq)]
pub(super) enum ActionResponse {
    /// The outcome of the action.
    Outcome(ActionOutcome),
    /// The server needs the domain first.
    DomainRequired,
}

/// Reads the response to the action `name`; `compressed`: the request was compressed.
pub(super) fn read(name: &str, status: u16, body: &[u8], compressed: bool) -> ActionResponse {
    let json: Option<Json> = if body.trim_ascii().is_empty() {
        Some(Json::Null)
    } else {
        from_slice_lossy(body).ok().map(|(json, is_repaired)| {
            if is_repaired {
                tracing::warn!(
                    action = name,
                    "the response of the action server has invalid text, which is replaced by U+FFFD"
                );
            }
            json
        })
    };
    // Errors of the SDK name the action; those of a proxy do not.
    let names_action = json.as_ref().is_some_and(|json| json.get("action_name").is_some());
    let error_text = || error_text(json.as_ref(), body);
    ActionResponse::Outcome(match status {
        200 | 204 => match json {
            Some(Json::Null) => ActionOutcome::ServerResponse(ActionServerResponse::default()),
            Some(Json::Object(map)) => ActionOutcome::ServerResponse(answer(map)),
            _ => in_doubt("bad_answer", "its response is not a JSON object"),
        },
        400 if names_action => ActionOutcome::Rejected { reason: error_text() },
        404 if names_action => failed("not_found", format!("the action server has no action `{name}`")),
        404 => failed("not_found", "there is no action server at this address: `url` ends with `/webhook` as a rule"),
        449 => return ActionResponse::DomainRequired,
        // If an action raises an exception, the SDK echoes the request in its response and fails on a compressed one.
        400 if compressed => reported("server_error", format!("it failed ({status}): {}", error_text())),
        400 | 413 | 415 | 422 => failed("bad_request", format!("it refused the request ({status}): {}", error_text())),
        401 | 403 => failed("refused", format!("it rejected our credentials ({status}): {}", error_text())),
        500 => reported("server_error", format!("it failed ({status}): {}", error_text())),
        // From a proxy: the action server behind it may still be running the action.
        501.. => in_doubt("server_error", format!("it failed ({status}): {}", error_text())),
        _ => in_doubt("bad_answer", format!("it responded with the status {status}: {}", error_text())),
    })
}

/// The response of a gRPC call.
#[cfg(feature = "grpc")]
pub(super) fn from_grpc(map: Map<String, Json>) -> ActionResponse {
    ActionResponse::Outcome(ActionOutcome::ServerResponse(answer(map)))
}

fn failed(code: &str, message: impl Into<String>) -> ActionOutcome {
    ActionOutcome::Failed(StepError::new(code, message))
}

fn reported(code: &str, message: impl Into<String>) -> ActionOutcome {
    ActionOutcome::Failed(StepError::reported(code, message))
}

fn in_doubt(code: &str, message: impl Into<String>) -> ActionOutcome {
    ActionOutcome::Failed(StepError::in_doubt(code, message))
}

fn answer(mut map: Map<String, Json>) -> ActionServerResponse {
    let mut maps = |key: &str| -> Vec<Map<String, Json>> {
        let Some(Json::Array(items)) = map.shift_remove(key) else { return Vec::new() };
        let maps = items.into_iter().filter_map(|item| match item {
            Json::Object(map) => Some(map),
            _ => None,
        });
        maps.collect()
    };
    ActionServerResponse { responses: maps("responses"), events: maps("events") }
}

/// The error text of a server, for operators.
fn error_text(json: Option<&Json>, body: &[u8]) -> String {
    let said = json.and_then(|json| json.get("error")?.as_str());
    let text = said.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    truncate(strip_hidden(&text).trim(), TextLimit::Chars(MAX_ERROR_CHARS), ELLIPSIS).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    fn code(status: u16, body: &str) -> (String, bool) {
        match read("action_a", status, body.as_bytes(), false) {
            ActionResponse::Outcome(ActionOutcome::Failed(error)) => (error.code, error.may_have_run),
            other => panic!("{status} {body}: {other:?}"),
        }
    }

    #[test]
    fn broken_characters_are_replaced_and_the_response_counts() {
        let body = [b"\xef\xbb\xbf{\"events\": [], \"responses\": [{\"text\": \"cut \\ud83d ".as_slice(), b"\xff\"}]}"]
            .concat();
        let ActionResponse::Outcome(ActionOutcome::ServerResponse(response)) = read("action_a", 200, &body, false)
        else {
            panic!("it has a response")
        };
        assert!(format!("{response:?}").contains("cut \u{FFFD} \u{FFFD}"), "{response:?}");
    }

    #[test]
    fn every_status_has_its_outcome() {
        let named = r#"{"error": "no", "action_name": "action_a"}"#;
        for (status, body, wanted) in [
            (200, "[1]", ("bad_answer", true)),
            (200, "<html>", ("bad_answer", true)),
            (302, "", ("bad_answer", true)),
            (400, r#"{"error": "Invalid body request"}"#, ("bad_request", false)),
            (401, "", ("refused", false)),
            (404, named, ("not_found", false)),
            (404, "<html>not here</html>", ("not_found", false)),
            (413, "", ("bad_request", false)),
            (500, r#"{"error": "boom", "request_body": {}}"#, ("server_error", true)),
            (502, "bad gateway", ("server_error", true)),
        ] {
            let (code, in_doubt) = code(status, body);
            assert_eq!((code.as_str(), in_doubt), wanted, "{status} {body}");
        }
        assert_eq!(read("a", 449, b"{}", true), ActionResponse::DomainRequired);
        let rejected = ActionOutcome::Rejected { reason: "no".into() };
        assert_eq!(read("a", 400, named.as_bytes(), true), ActionResponse::Outcome(rejected));
        let ActionResponse::Outcome(ActionOutcome::Failed(error)) = read("a", 400, b"cannot parse", true) else {
            panic!()
        };
        assert_eq!((error.code.as_str(), error.may_have_run), ("server_error", true));
    }

    #[test]
    fn empty_responses_are_valid_and_invalid_items_are_excluded() {
        let empty = ActionResponse::Outcome(ActionOutcome::ServerResponse(ActionServerResponse::default()));
        for body in ["", " \n", "null", "{}", r#"{"events": null, "responses": [null, 1]}"#] {
            assert_eq!(read("a", 200, body.as_bytes(), false), empty, "{body}");
        }
        let body = r#"{"events": [{"event": "slot"}, 7], "responses": [{"text": "hi"}]}"#;
        let ActionResponse::Outcome(ActionOutcome::ServerResponse(answer)) = read("a", 200, body.as_bytes(), false)
        else {
            panic!()
        };
        assert_eq!((answer.events.len(), &answer.responses[0]["text"]), (1, &json!("hi")));
    }

    #[test]
    fn long_error_texts_are_shortened() {
        let body = json!({"error": "é\u{1b}".repeat(10_000)}).to_string();
        let ActionResponse::Outcome(ActionOutcome::Failed(error)) = read("a", 500, body.as_bytes(), false) else {
            panic!()
        };
        assert!(
            error.message.chars().count() < MAX_ERROR_CHARS + 50 && !error.message.contains('\u{1b}'),
            "{}",
            error.message.len()
        );
    }
}
