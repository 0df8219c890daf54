//! JSON whose text is not quite valid: invalid UTF-8, halves of surrogate pairs, a byte order mark.
//!
//! Servers and clients cut texts between the bytes of a character or between the halves of a pair, and some write a mark
//! in front of their JSON. What they say is clear nevertheless, and after a call it would be a loss not to know it.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Parses JSON. Broken characters are replaced by U+FFFD; then the second value is `true`.
///
/// # Errors
/// It is not JSON of the expected shape, even after that.
pub fn from_slice_lossy<T: DeserializeOwned>(data: &[u8]) -> Result<(T, bool), serde_json::Error> {
    let data = data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data);
    match serde_json::from_slice(data) {
        Ok(value) => Ok((value, false)),
        Err(error) => match repair(data) {
            Cow::Borrowed(_) => Err(error),
            Cow::Owned(text) => serde_json::from_str(&text).map(|value| (value, true)),
        },
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text of JSON, without a byte order mark, and with invalid UTF-8 and escapes of unpaired surrogates replaced by
/// U+FFFD. Borrowed if there is nothing to replace.
pub fn repair(data: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data));
    match replace_halves(&text) {
        Some(repaired) => Cow::Owned(repaired),
        None => text,
    }
}

/// The text without escapes of unpaired surrogates; `None` if it has none.
fn replace_halves(text: &str) -> Option<String> {
    if !text.contains("\\u") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut is_changed = false;
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        let length = match surrogate(tail) {
            // A complete pair stays, a half is replaced.
            Some(0xD800..=0xDBFF) if matches!(tail.get(6..).and_then(surrogate), Some(0xDC00..=0xDFFF)) => 12,
            Some(_) => {
                out.push('\u{FFFD}');
                is_changed = true;
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
    is_changed.then_some(out)
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
        let whole = [BYTE_ORDER_MARK, &text[..], b"\xFF\"}"].concat();
        let (value, repaired): (Value, bool) = from_slice_lossy(&whole).unwrap();
        assert!(repaired);
        assert_eq!(value["a"], "😀 \u{FFFD} x \u{FFFD} \\ud800 \n \u{FFFD}");
    }

    #[test]
    fn valid_json_is_not_changed_and_other_text_stays_an_error() {
        let valid = br#"{"a":"\ud83d\ude00"}"#;
        assert!(matches!(repair(valid), Cow::Borrowed(_)));
        assert!(!from_slice_lossy::<Value>(&[BYTE_ORDER_MARK, valid].concat()).unwrap().1);
        assert!(from_slice_lossy::<Value>(b"{\"a\": \"\\ud83d").unwrap_err().is_eof());
        assert!(from_slice_lossy::<Value>(b"nonsense \xff").is_err());
    }
}
