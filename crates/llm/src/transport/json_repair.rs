//! Parses JSON with broken characters. Some providers split text between the bytes of a character or between the halves of a
//! surrogate pair.

use serde::de::DeserializeOwned;

use crate::error::{InvalidResponse, LlmError, LlmErrorKind};

/// Parses the JSON of one event. Broken characters are replaced by U+FFFD; then the second value is `true`.
///
/// # Errors
/// [`LlmErrorKind::Truncated`] when the JSON ends too early, else [`InvalidResponse::NotJson`].
pub(crate) fn parse<T: DeserializeOwned>(data: &[u8]) -> Result<(T, bool), LlmError> {
    match serde_json::from_slice(data) {
        Ok(value) => Ok((value, false)),
        Err(error) if error.is_eof() => Err(LlmError::new(LlmErrorKind::Truncated).with_detail(error)),
        Err(_) => match serde_json::from_str(&repair(data)) {
            Ok(value) => Ok((value, true)),
            Err(error) => Err(LlmError::from(InvalidResponse::NotJson).with_detail(error)),
        },
    }
}

/// Replaces invalid UTF-8 and escapes of unpaired surrogates by U+FFFD.
fn repair(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        let length = match surrogate(tail) {
            // A complete pair stays, a half is replaced.
            Some(0xD800..=0xDBFF) if matches!(tail.get(6..).and_then(surrogate), Some(0xDC00..=0xDFFF)) => 12,
            Some(_) => {
                out.push('\u{FFFD}');
                rest = tail.get(6..).unwrap_or_default();
                continue;
            }
            None => 1 + tail.chars().nth(1).map_or(0, char::len_utf8),
        };
        let (head, tail) = tail.split_at(length);
        out.push_str(head);
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// The code unit of the escape at the start of `text`, if it is half of a surrogate pair.
fn surrogate(text: &str) -> Option<u16> {
    let unit = u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()?;
    (0xD800..=0xDFFF).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;

    #[test]
    fn broken_characters_are_replaced_and_valid_ones_stay() {
        let text = br#"{"a":"\ud83d\ude00 \ud83d x \udc00 \\ud800 \n "#.to_vec();
        let whole = [&text[..], b"\xFF\"}"].concat();
        let (value, repaired): (Value, bool) = parse(&whole).unwrap();
        assert!(repaired);
        assert_eq!(value["a"], "😀 \u{FFFD} x \u{FFFD} \\ud800 \n \u{FFFD}");
    }
}
