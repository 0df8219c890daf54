//! Constructors of outcomes, and their text for models.

use std::fmt::Display;

use segue_engine::text::strip_hidden;
use serde_json::{Map, Value as Json};

use super::{
    EffectClass, FailureKind, ToolFailure, ToolOutcome, ToolOutput,
    messages::{ToolMessage, render_message},
};
use segue_base::{effect::Arrival, limits};

impl ToolOutput {
    /// A result of text only.
    pub fn text(text: impl Into<String>) -> Self {
        let part = Json::Object(Map::from_iter([
            ("type".to_owned(), Json::from("text")),
            ("text".to_owned(), Json::from(text.into())),
        ]));
        Self { content: vec![part], ..Self::default() }
    }

    /// A result of structured content only.
    pub fn structured(value: Json) -> Self {
        Self { structured: Some(value), ..Self::default() }
    }

    /// Adds structured content.
    #[must_use]
    pub fn with_structured(mut self, value: Json) -> Self {
        self.structured = Some(value);
        self
    }

    /// Sets `_meta`.
    #[must_use]
    pub fn with_meta(mut self, meta: Map<String, Json>) -> Self {
        self.meta = meta;
        self
    }

    /// The text parts, joined by newlines.
    pub fn joined_text(&self) -> String {
        let texts = self.content.iter().filter_map(part_text);
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The size of the result as JSON, without building the JSON.
    pub(super) fn bytes(&self) -> usize {
        let mut count = ByteCounter(0);
        // Writing to a counter cannot fail.
        let _ = serde_json::to_writer(&mut count, self);
        count.0
    }
}

struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl ToolFailure {
    /// A failure that does not end the agent run.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            fatal: false,
            missing_fields: Vec::new(),
            code: None,
            detail: None,
            meta: Map::new(),
        }
    }
}

impl ToolOutcome {
    /// A failure without effects.
    pub fn failed(kind: FailureKind, message: impl Into<String>) -> Self {
        Self::Failed(ToolFailure::new(kind, message))
    }

    /// The outcome of a call without a response: unknown for a `write` that may have arrived, otherwise a failure.
    pub fn without_response(
        effect: EffectClass,
        arrival: Arrival,
        kind: FailureKind,
        message: impl Into<String>,
    ) -> Self {
        let failure = ToolFailure::new(kind, message);
        if effect.in_doubt(arrival) { Self::Unknown(failure) } else { Self::Failed(failure) }
    }

    /// The outcome of a successful call with an invalid result: done for a call with effects, because they happened;
    /// otherwise a failure that may be retried.
    pub fn unusable(effect: EffectClass, message: impl Into<String>) -> Self {
        match effect {
            EffectClass::Read | EffectClass::Composite => Self::failed(FailureKind::BadResult, message),
            EffectClass::Write | EffectClass::Idempotent => {
                Self::Done(ToolOutput { unusable: Some(message.into()), ..ToolOutput::default() })
            }
        }
    }

    /// Whether it counts as a failed call of the agent run.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unknown(_))
    }

    /// The text of the result for a model: structured content as JSON, otherwise the text parts and a description of
    /// the others; for failures a short prefix and the message. At most [`limits::TOOL_RESULT`] bytes, with a mark
    /// where it was truncated, and without invisible characters.
    pub fn for_model(&self) -> String {
        truncated(&self.full_text(), limits::TOOL_RESULT)
    }

    /// The same text in full length, for callers that store long results and show a part.
    pub fn full_text(&self) -> String {
        let text = match self {
            Self::Done(output) => output_text(output),
            Self::Failed(failure) => failure_text(ToolMessage::Failed, failure),
            Self::Unknown(failure) => failure_text(ToolMessage::UnknownOutcome, failure),
            Self::Pending(task) => render_message(ToolMessage::Pending, &[("id", &task.id)]),
        };
        strip_hidden(&text).into_owned()
    }
}

impl FailureKind {
    /// The kind for models and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolError => "tool_error",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::UnknownTool => "unknown_tool",
            Self::BadArguments => "bad_arguments",
            Self::BadResult => "bad_result",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }
}

fn failure_text(message: ToolMessage, failure: &ToolFailure) -> String {
    render_message(message, &[("kind", &failure.kind.as_str()), ("message", &failure.message)])
}

fn output_text(output: &ToolOutput) -> String {
    if let Some(message) = &output.unusable {
        return render_message(ToolMessage::UnusableResult, &[("message", message)]);
    }
    let mut parts = Vec::new();
    match &output.structured {
        // Servers repeat structured content as text for old clients: the structured form is enough.
        Some(value) => {
            parts.push(match unwrap_result(value) {
                Json::String(text) => text.clone(),
                other => other.to_string(),
            });
            parts.extend(output.content.iter().filter(|part| part_text(part).is_none()).map(part_description));
        }
        None => parts.extend(
            output.content.iter().map(|part| part_text(part).map_or_else(|| part_description(part), str::to_owned)),
        ),
    }
    if parts.is_empty() { render_message(ToolMessage::EmptyResult, &[]) } else { parts.join("\n") }
}

/// The value inside `{"result": …}`, which some servers put around values other than objects.
fn unwrap_result(value: &Json) -> &Json {
    match value {
        Json::Object(map) if map.len() == 1 => map.get("result").unwrap_or(value),
        _ => value,
    }
}

/// The text of a text part.
fn part_text(part: &Json) -> Option<&str> {
    if part.get("type").and_then(Json::as_str) == Some("text") { part.get("text").and_then(Json::as_str) } else { None }
}

/// The text that models see for a part that is not text.
fn part_description(part: &Json) -> String {
    let field = |name: &str| part.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let resource_name = |value: &Json| {
        let text = |name: &str| value.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
        text("name").or_else(|| text("uri")).unwrap_or("?").to_owned()
    };
    match part.get("type").and_then(Json::as_str).unwrap_or_default() {
        "image" => render_message(ToolMessage::Image, &[("kind", &field("mimeType"))]),
        "audio" => render_message(ToolMessage::Audio, &[("kind", &field("mimeType"))]),
        "resource_link" => render_message(ToolMessage::ResourceLink, &[("name", &resource_name(part))]),
        "resource" => match part.get("resource") {
            Some(resource) => match resource.get("text").and_then(Json::as_str) {
                Some(text) => text.to_owned(),
                None => render_message(ToolMessage::Resource, &[("name", &resource_name(resource))]),
            },
            None => render_message(ToolMessage::Resource, &[("name", &"?")]),
        },
        other => render_message(ToolMessage::OtherPart, &[("kind", &other)]),
    }
}

/// Truncates a text to `limit` bytes including the mark, never inside a character.
fn truncated(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mark =
        |shown: &dyn Display| render_message(ToolMessage::Truncated, &[("shown", shown), ("total", &text.len())]);
    let available = limit.saturating_sub(mark(&text.len()).len() + 1);
    let end = text.floor_char_boundary(available);
    format!("{}\n{}", text.get(..end).unwrap_or_default(), mark(&end))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    fn text_for_model(structured: Option<Json>, content: Json) -> String {
        let content = content.as_array().unwrap().clone();
        ToolOutcome::Done(ToolOutput { structured, content, ..ToolOutput::default() }).for_model()
    }

    #[test]
    fn structured_content_replaces_its_text_form() {
        let text = json!([{"type": "text", "text": "{\"a\": 1}"}]);
        assert_eq!(
            text_for_model(Some(json!({"a": 1, "b": [true, null]})), text.clone()),
            r#"{"a":1,"b":[true,null]}"#
        );
        assert_eq!(text_for_model(Some(json!({"result": [1, 2]})), text.clone()), "[1,2]");
        assert_eq!(text_for_model(Some(json!({"result": "plain"})), text), "plain");
    }

    #[test]
    fn non_text_parts_are_described() {
        let parts = json!([
            {"type": "text", "text": "Here:"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "x://y", "text": "inside"}},
            {"type": "hologram"}
        ]);
        let text = text_for_model(None, parts);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "Here:",
                "(an image, image/png; not shown)",
                "(a link to a resource: a)",
                "inside",
                "(a part of kind hologram; not shown)"
            ]
        );
        assert_eq!(text_for_model(None, json!([])), "(The tool answered, with no content.)");
    }

    #[test]
    fn failure_text_has_a_prefix_with_the_kind() {
        assert_eq!(ToolOutcome::failed(FailureKind::Timeout, "Late.").for_model(), "error[timeout]: Late.");
        let unknown =
            ToolOutcome::without_response(EffectClass::Write, Arrival::Possible, FailureKind::Unavailable, "Gone.")
                .for_model();
        assert!(unknown.starts_with("unknown[unavailable]: Gone. It may or may not have been done."), "{unknown}");
        let lost = |effect, arrival| ToolOutcome::without_response(effect, arrival, FailureKind::Timeout, "");
        assert!(matches!(lost(EffectClass::Read, Arrival::Possible), ToolOutcome::Failed(_)));
        assert!(matches!(lost(EffectClass::Write, Arrival::Impossible), ToolOutcome::Failed(_)));
    }

    #[test]
    fn long_results_are_truncated_with_a_mark_within_the_limit() {
        let text = text_for_model(None, json!([{"type": "text", "text": "é".repeat(limits::TOOL_RESULT)}]));
        assert!(text.len() <= limits::TOOL_RESULT && text.len() > limits::TOOL_RESULT - 8, "{}", text.len());
        assert!(text.ends_with("of 131072 bytes are shown]"), "{}", &text[text.len() - 60..]);
    }

    #[test]
    fn the_full_text_is_not_cut() {
        let text = "é".repeat(limits::TOOL_RESULT);
        assert_eq!(ToolOutcome::Done(ToolOutput::text(text.clone())).full_text(), text);
        let structured = ToolOutput {
            content: vec![json!({"type": "text", "text": "[1]"})],
            ..ToolOutput::structured(json!({"result": [1]}))
        };
        assert_eq!(ToolOutcome::Done(structured).full_text(), "[1]", "structured content wins");
    }

    #[test]
    fn hidden_characters_do_not_reach_the_model() {
        assert_eq!(
            text_for_model(None, json!([{"type": "text", "text": "a\u{200b}b\u{202e}c\u{e0041}\td\n"}])),
            "abc\td\n"
        );
    }

    #[test]
    fn bytes_is_the_length_of_the_json() {
        let output = ToolOutput::text("héllo");
        assert_eq!(output.bytes(), serde_json::to_string(&output).unwrap().len());
    }
}
