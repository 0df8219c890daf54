//! Server-sent events, decoded from bytes as they arrive.
//!
//! Own work because a model's stream needs what the libraries leave out: a limit per line, tolerance of broken UTF-8
//! (the reader replaces it), and the last event of a stream that lacks its blank line.
//! Rules: <https://html.spec.whatwg.org/multipage/server-sent-events.html>, section 9.2.6.

use bytes::{Buf, Bytes, BytesMut};

use super::error::Fault;
use crate::limits;

/// Turns bytes, cut anywhere, into events. Holds at most one line and one event.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    /// Bytes not yet consumed start at `start`; those before `scanned` hold no line end.
    buffer: BytesMut,
    start: usize,
    scanned: usize,
    /// The last line ended with CR, so that an LF right after it belongs to it.
    after_cr: bool,
    /// The start of the stream was checked for a byte order mark.
    checked_mark: bool,
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    /// `data` and `name` were handed out and are to be cleared before the next line.
    handed_out: bool,
}

/// One event. Valid until the next call of the decoder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    /// The `event:` field; empty when there was none.
    pub(crate) name: &'a [u8],
    /// The `data:` lines, joined with line feeds. Not necessarily UTF-8.
    pub(crate) data: &'a [u8],
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

impl SseDecoder {
    /// Takes the next bytes. They are not copied when nothing is left of those before and nobody else holds them.
    pub(crate) fn feed(&mut self, bytes: Bytes) {
        if self.start == self.buffer.len() {
            (self.start, self.scanned) = (0, 0);
            self.buffer = bytes.into();
            return;
        }
        if self.start > limits::MODEL_LINE {
            self.buffer.advance(self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(&bytes);
    }

    /// The next whole event, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<SseEvent<'_>>, Fault> {
        if self.handed_out {
            self.clear_event();
        }
        if !self.checked_mark {
            let head = self.buffer.get(self.start..).unwrap_or_default();
            if head.len() < MARK.len() && MARK.starts_with(head) {
                return Ok(None);
            }
            if head.starts_with(MARK) {
                self.start += MARK.len();
                self.scanned = self.start;
            }
            self.checked_mark = true;
        }
        while let Some((from, to)) = self.line()? {
            if from < to {
                self.field(from, to)?;
            } else if self.has_data {
                return Ok(Some(self.hand_out()));
            } else {
                self.clear_event();
            }
        }
        Ok(None)
    }

    /// After the last byte: the event that lacks its blank line or even its line end, if there is one.
    pub(crate) fn end(&mut self) -> Result<Option<SseEvent<'_>>, Fault> {
        if self.handed_out {
            self.clear_event();
        }
        let (from, to) = (self.start, self.buffer.len());
        self.start = to;
        if from < to {
            self.field(from, to)?;
        }
        Ok(self.has_data.then(|| self.hand_out()))
    }

    /// The bounds of the next line within the buffer, without its end; consumes it.
    fn line(&mut self) -> Result<Option<(usize, usize)>, Fault> {
        if self.after_cr && self.start < self.buffer.len() {
            if self.buffer.get(self.start) == Some(&b'\n') {
                self.start += 1;
            }
            self.after_cr = false;
        }
        let from = self.start;
        let scan = self.scanned.max(from);
        let rest = self.buffer.get(scan..).unwrap_or_default();
        let Some(at) = memchr::memchr2(b'\n', b'\r', rest) else {
            self.scanned = self.buffer.len();
            return if self.buffer.len() - from > limits::MODEL_LINE { Err(Fault::LineTooLong) } else { Ok(None) };
        };
        let to = scan + at;
        self.after_cr = rest.get(at) == Some(&b'\r');
        self.start = to + 1;
        self.scanned = self.start;
        if to - from > limits::MODEL_LINE { Err(Fault::LineTooLong) } else { Ok(Some((from, to))) }
    }

    fn field(&mut self, from: usize, to: usize) -> Result<(), Fault> {
        let line = self.buffer.get(from..to).unwrap_or_default();
        let (key, value) = match memchr::memchr(b':', line) {
            Some(at) => (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default()),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match key {
            b"data" => {
                if self.data.len() + value.len() > limits::MODEL_LINE {
                    return Err(Fault::LineTooLong);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments (empty key), ids, retry times and unknown fields mean nothing to a model call.
            _ => {}
        }
        Ok(())
    }

    fn hand_out(&mut self) -> SseEvent<'_> {
        self.handed_out = true;
        SseEvent { name: &self.name, data: &self.data }
    }

    fn clear_event(&mut self) {
        self.data.clear();
        self.name.clear();
        self.has_data = false;
        self.handed_out = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Every second piece is one that somebody else holds as well.
    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<(String, Vec<u8>)>, Fault> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        let mut held = Vec::new();
        for (at, chunk) in chunks.into_iter().enumerate() {
            let bytes = Bytes::copy_from_slice(chunk);
            if at % 2 == 1 {
                held.push(bytes.clone());
            }
            decoder.feed(bytes);
            while let Some(event) = decoder.next()? {
                events.push((String::from_utf8_lossy(event.name).into_owned(), event.data.to_vec()));
            }
        }
        if let Some(event) = decoder.end()? {
            events.push((String::from_utf8_lossy(event.name).into_owned(), event.data.to_vec()));
        }
        Ok(events)
    }

    fn data(text: &[u8]) -> Vec<Vec<u8>> {
        decode([text]).unwrap().into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn the_standards_corner_cases() {
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
    fn the_name_belongs_to_its_event_alone() {
        let events = decode([&b"event: error\ndata: a\n\ndata: b\n\n"[..]]).unwrap();
        assert_eq!(events, [("error".into(), b"a".to_vec()), (String::new(), b"b".to_vec())]);
    }

    #[test]
    fn bytes_that_nobody_else_holds_are_not_copied() {
        let mut decoder = SseDecoder::default();
        let feed = |decoder: &mut SseDecoder, shared: bool| {
            let bytes = Bytes::from(b"data: a\n\n".to_vec());
            let held = shared.then(|| bytes.clone());
            let place = bytes.as_ptr();
            decoder.feed(bytes);
            let taken = decoder.buffer.as_ptr() == place;
            assert!(decoder.next().unwrap().is_some_and(|event| event.data == b"a"));
            assert!(decoder.next().unwrap().is_none());
            drop(held);
            taken
        };
        assert_eq!([false, true, false].map(|shared| feed(&mut decoder, shared)), [true, false, true]);
        decoder.feed(Bytes::from_static(b"da"));
        assert!(decoder.next().unwrap().is_none());
        decoder.feed(Bytes::from(b"ta: b\n\n".to_vec()));
        assert!(decoder.next().unwrap().is_some_and(|event| event.data == b"b"), "what was left goes before it");
    }

    #[test]
    fn endless_lines_and_events_are_refused() {
        let long = vec![b'x'; limits::MODEL_LINE + 2];
        assert_eq!(decode([&long[..]]), Err(Fault::LineTooLong));
        let many = b"data: 0123456789\n".repeat(limits::MODEL_LINE / 10 + 2);
        assert_eq!(decode(many.chunks(4096)), Err(Fault::LineTooLong));
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                &b"data: "[..], b"\n", b"\r", b"\r\n", b": c", b"event: e", "ü😀".as_bytes(), b"\xFF", b"\xEF\xBB\xBF", b"{\"a\":1}",
            ]), 0..40),
            sizes in proptest::collection::vec(1usize..7, 1..40),
        ) {
            let whole = pieces.concat();
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
