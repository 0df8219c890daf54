//! A decoder of server-sent events: <https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>.
//!
//! Models and remote agents send them. It differs from existing crates: lines have a length limit, the last event of a stream may lack its blank line, and a byte
//! order mark is accepted. Invalid UTF-8 stays as it is; the caller replaces it.

use std::collections::VecDeque;

/// A line, or an event with its last line, is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Decodes bytes in chunks of any size to events. Buffers at most one line, one event, and the events of the last chunk.
#[derive(Debug)]
pub struct SseDecoder {
    /// The most bytes of one event and the line after it.
    limit: usize,
    /// The incomplete line.
    line: Vec<u8>,
    /// The last line ended with CR, so an LF right after it belongs to the same line end.
    after_cr: bool,
    /// Whether the first line, which may begin with a byte order mark, is complete.
    past_first_line: bool,
    /// The incomplete event.
    event: SseEvent,
    has_data: bool,
    /// Complete events that [`Self::pop`] has not returned yet.
    events: VecDeque<SseEvent>,
}

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field; empty when there was none.
    pub name: Vec<u8>,
    /// The `data:` lines, joined with line feeds. Not necessarily UTF-8.
    pub data: Vec<u8>,
}

impl SseDecoder {
    /// A decoder that buffers at most this many bytes of an event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_cr: false,
            past_first_line: false,
            event: SseEvent::default(),
            has_data: false,
            events: VecDeque::new(),
        }
    }

    /// Decodes the next bytes. After an error, [`Self::pop`] still returns the events before it.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            if std::mem::take(&mut self.after_cr) && part == b"\n" {
                continue;
            }
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            if self.line.len() + text.len() + self.event.data.len() > self.limit {
                return Err(TooLong);
            }
            self.line.extend_from_slice(text);
            if end.is_some() {
                self.after_cr = end == Some(b'\r');
                self.end_line();
            }
        }
        Ok(())
    }

    /// The next complete event, if there is one.
    pub fn pop(&mut self) -> Option<SseEvent> {
        self.events.pop_front()
    }

    /// Call after the last byte. Returns the event that lacks its blank line or even its line end, if there is one.
    pub fn end(&mut self) -> Option<SseEvent> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.end_event();
        self.pop()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.past_first_line, true);
        let line = line.strip_prefix(b"\xEF\xBB\xBF").filter(|_| is_first).unwrap_or(&line);
        if line.is_empty() {
            self.end_event();
            return;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match key {
            b"data" => {
                let data = &mut self.event.data;
                if std::mem::replace(&mut self.has_data, true) {
                    data.push(b'\n');
                }
                data.extend_from_slice(value);
            }
            b"event" => self.event.name = value.to_vec(),
            // Comments (empty key), ids, retry times and unknown fields are ignored.
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            self.events.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 4096;

    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<(String, Vec<u8>)>, TooLong> {
        let (mut decoder, mut events) = (SseDecoder::new(LIMIT), Vec::new());
        for chunk in chunks {
            decoder.feed(chunk)?;
            events.extend(std::iter::from_fn(|| decoder.pop()));
        }
        events.extend(decoder.end());
        Ok(events.into_iter().map(|event| (String::from_utf8_lossy(&event.name).into_owned(), event.data)).collect())
    }

    fn data(text: &[u8]) -> Vec<Vec<u8>> {
        decode([text]).unwrap().into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn line_ends_comments_and_fields_follow_the_standard() {
        let cases: [(&[u8], &[&[u8]]); 12] = [
            (b"data: a\n\ndata: b\n\n", &[b"a", b"b"]),
            (b"data: a\r\n\r\ndata: b\r\n\r\n", &[b"a", b"b"]),
            (b"data: a\r\rdata: b\r\r", &[b"a", b"b"]),
            (b"\xEF\xBB\xBFdata: a\n\n", &[b"a"]),
            (b": ping\n\ndata: a\n: ping\n\n", &[b"a"]),
            (b"data: a\ndata: b\n\n", &[b"a\nb"]),
            (b"data:a\ndata:  b\n\n", &[b"a\n b"]),
            (b"data\n\n", &[b""]),
            (b"id: 1\nretry: 3\nfoo: x\n\ndata: a\n\n", &[b"a"]),
            (b"data: a\n", &[b"a"]),
            (b"data: a", &[b"a"]),
            (b"\n\n\r\n", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(data(text), expected, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn an_event_name_holds_for_one_event() {
        let events = decode([&b"event: error\ndata: a\n\ndata: b\n\n"[..]]).unwrap();
        assert_eq!(events, [("error".into(), b"a".to_vec()), (String::new(), b"b".to_vec())]);
    }

    #[test]
    fn lines_and_events_over_the_limit_fail() {
        let long = vec![b'x'; LIMIT + 2];
        assert_eq!(decode([&long[..]]), Err(TooLong));
        let many = b"data: 0123456789\n".repeat(LIMIT / 10 + 2);
        assert_eq!(decode(many.chunks(100)), Err(TooLong));
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                &b"data: "[..], b"\n", b"\r", b"\r\n", b": c", b"event: e", "ü😀".as_bytes(), b"\xFF", b"\xEF\xBB\xBF", b"{\"a\":1}",
            ]), 0..40),
            sizes in proptest::collection::vec(1usize..7, 1..40),
        ) {
            let whole = parts.concat();
            let mut chunks = Vec::new();
            let mut rest = &whole[..];
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*size).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            prop_assert_eq!(decode([&whole[..]]), decode(chunks));
        }
    }
}
