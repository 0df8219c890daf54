//! The chunks of an answer are cast in one mould: from one to the next only the text differs. What lies before and behind the
//! text of one is remembered, and the next that begins and ends alike is not parsed again.

use crate::llm::json;

/// What lies around the text of the last chunk that brought nothing but text.
#[derive(Default)]
pub(super) struct Mould {
    before: Vec<u8>,
    /// Empty: nothing is remembered.
    behind: Vec<u8>,
}

impl Mould {
    /// Remembers a chunk. `text` is the part of `data` that is its text, without its quotes, and stands there as it is.
    pub(super) fn learn(&mut self, data: &[u8], text: &str) {
        let start = (text.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let parts = data.split_at_checked(start).and_then(|(before, rest)| Some((before, rest.get(text.len()..)?)));
        let Some((before, behind)) = parts else { return };
        self.before.clear();
        self.before.extend_from_slice(before);
        self.behind.clear();
        self.behind.extend_from_slice(behind);
    }

    /// The text of a chunk that differs from the remembered one in its text alone. `None`: it has to be parsed.
    pub(super) fn text<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        if self.behind.is_empty() {
            return None;
        }
        let text = data.strip_prefix(&*self.before)?.strip_suffix(&*self.behind)?;
        // Without a quote or an escape in it, the string ends where the remembered one did.
        (json::plain(text) == text.len()).then(|| std::str::from_utf8(text).ok())?
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::borrow::Cow;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
        also: u8,
    }

    fn read(data: &[u8]) -> Option<Chunk<'_>> {
        serde_json::from_slice(data).ok()
    }

    fn taught(data: &[u8]) -> Mould {
        let mut mould = Mould::default();
        if let Some(Chunk { text: Cow::Borrowed(text), .. }) = read(data) {
            mould.learn(data, text);
        }
        mould
    }

    #[test]
    fn only_the_text_may_differ() {
        let mould = taught(br#"{"text":"one","also":1}"#);
        assert_eq!(mould.text(br#"{"text":"two and \u2192","also":1}"#), None, "an escape is the parser's matter");
        assert_eq!(mould.text("{\"text\":\"zwölf\",\"also\":1}".as_bytes()), Some("zwölf"));
        assert_eq!(mould.text(br#"{"text":"","also":1}"#), Some(""));
        for other in [
            br#"{"text":"two","also":2}"#.as_slice(),
            br#"{"text":"two" ,"also":1}"#,
            br#"{"text":"two","x":"","also":1}"#,
            br#"{"text":"","also":1"#,
            br#"{"text":"#,
            b"{\"text\":\"\xff\",\"also\":1}",
            b"{\"text\":\"a\nb\",\"also\":1}",
            b"",
        ] {
            assert_eq!(mould.text(other), None, "{}", String::from_utf8_lossy(other));
        }
        assert_eq!(Mould::default().text(b""), None);
    }

    proptest! {
        #[test]
        fn what_it_says_is_what_parsing_says(
            one in "[a-z\"\\\\{},:]{0,4}", also in 0..3_u8, data in "\\{\"text\":\"[a-z\"\\\\,]{0,5}\",\"also\":[0-2]\\}"
        ) {
            let first = format!("{{\"text\":{},\"also\":{also}}}", serde_json::to_string(&one).unwrap());
            if let Some(text) = taught(first.as_bytes()).text(data.as_bytes()) {
                let parsed = read(data.as_bytes()).unwrap();
                prop_assert_eq!((text, also), (&*parsed.text, parsed.also));
            }
        }
    }
}
