//! What came back from a call, and its bytes.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use async_compression::tokio::bufread::GzipDecoder;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use hyper::{
    Response,
    body::{Body, Incoming},
    http::response::Parts,
};
use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use tokio_util::io::{ReaderStream, StreamReader};

use super::{Lost, line::Line, root};
use crate::limits;

/// What came back, as soon as its head is there. Dropping it, or the stream of its bytes, closes the connection unless
/// everything was read.
pub struct Reply {
    head: Parts,
    answer: Answer,
}

impl Reply {
    pub(super) fn new(response: Response<Incoming>, answer: impl FnOnce(Incoming) -> Answer) -> Self {
        let (head, body) = response.into_parts();
        Self { head, answer: answer(body) }
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// Whether the status is one of success.
    pub fn is_success(&self) -> bool {
        self.head.status.is_success()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The bytes as they come, unpacked when the server packed them. What goes wrong is named by `named`.
    ///
    /// Pieces that are there already come together: reading them one by one costs as many turns of the scheduler, and each of
    /// them drives the code of the reader out of the caches that the next one needs.
    pub fn read<E: Send + 'static>(self, named: fn(Lost) -> E) -> BoxStream<'static, Result<Bytes, E>> {
        let packed = self.headers().get(CONTENT_ENCODING).is_some_and(|name| name.as_bytes() == b"gzip");
        let bytes = Pieces { answer: self.answer, dry: false, end: None };
        if packed { unpacked(bytes, named) } else { bytes.map_err(move |error| named(cut(&error))).boxed() }
    }
}

fn unpacked<E: Send + 'static>(bytes: Pieces, named: fn(Lost) -> E) -> BoxStream<'static, Result<Bytes, E>> {
    let plain = GzipDecoder::new(StreamReader::new(bytes.map_err(std::io::Error::other)));
    ReaderStream::new(plain).map_err(move |error| named(cut(&error))).boxed()
}

fn cut(error: &(dyn Error + 'static)) -> Lost {
    Lost::Cut(root(error))
}

type Piece = Option<Result<Bytes, hyper::Error>>;

/// Where an answer comes from.
pub(super) struct Answer {
    /// None once it was read to its end.
    body: Option<Incoming>,
    /// The connection, if it is of HTTP/1 and not done with the answer: it is run here.
    line: Option<Box<Line>>,
}

impl Answer {
    pub(super) fn own(body: Incoming, line: Box<Line>) -> Self {
        Self { body: Some(body), line: Some(line) }
    }

    pub(super) fn shared(body: Incoming) -> Self {
        Self { body: Some(body), line: None }
    }

    /// A piece that is laid ready. Only an answer on a shared connection wakes who waits; the other does when it is run.
    fn poll_piece(&mut self, task: &mut Context<'_>) -> Poll<Piece> {
        let mut nobody = Context::from_waker(Waker::noop());
        let task = if self.line.is_some() { &mut nobody } else { task };
        while let Some(body) = &mut self.body {
            match ready!(Pin::new(body).poll_frame(task)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Err(_trailers) => {}
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.end(),
            }
        }
        Poll::Ready(None)
    }

    /// Lays the next piece ready, if it has come.
    fn run(&mut self, task: &mut Context<'_>) {
        if let Some(line) = &mut self.line {
            line.run(task);
        }
    }

    fn end(&mut self) {
        self.body = None;
        if let Some(line) = self.line.take() {
            line.go_back();
        }
    }
}

impl Drop for Answer {
    /// Hyper reads what is there of an answer that nobody wants, and closes the connection if that is not all.
    fn drop(&mut self) {
        self.end();
    }
}

/// The bytes of an answer; what is there already comes in one piece.
struct Pieces {
    answer: Answer,
    /// Nothing has come since the connection was last run.
    dry: bool,
    /// The end, or what broke off, behind pieces that were handed out first.
    end: Option<Piece>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, hyper::Error>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Piece> {
        let this = self.get_mut();
        if let Some(end) = this.end.take() {
            return Poll::Ready(end);
        }
        let (mut burst, mut nobody) = (Burst::default(), Context::from_waker(Waker::noop()));
        while burst.has_room() {
            // Who reads wants to be woken only when it is left with nothing.
            let waits = this.dry && burst.pieces == 0;
            if waits {
                this.answer.run(task);
            }
            match this.answer.poll_piece(if waits { &mut *task } else { &mut nobody }) {
                Poll::Ready(Some(Ok(bytes))) => {
                    this.dry = false;
                    burst.add(bytes);
                }
                Poll::Ready(end) if burst.pieces == 0 => return Poll::Ready(end),
                Poll::Ready(end) => {
                    this.end = Some(end);
                    break;
                }
                Poll::Pending if waits => {
                    // What comes wakes the reader, and the connection is run before it is waited for again.
                    this.dry = false;
                    return Poll::Pending;
                }
                Poll::Pending if this.dry => break,
                Poll::Pending => {
                    this.dry = true;
                    this.answer.run(&mut nobody);
                }
            }
        }
        Poll::Ready(Some(Ok(burst.into_bytes())))
    }
}

/// Pieces that are handed out as one.
#[derive(Default)]
struct Burst {
    pieces: usize,
    first: Bytes,
    /// The first and all others, once there are others.
    all: BytesMut,
}

impl Burst {
    fn has_room(&self) -> bool {
        self.pieces < limits::HTTP_BURST && self.first.len().max(self.all.len()) < limits::HTTP_BURST_BYTES
    }

    fn add(&mut self, piece: Bytes) {
        match self.pieces {
            0 => self.first = piece,
            1 => {
                self.all.reserve(BURST);
                self.all.extend_from_slice(&self.first);
                self.all.extend_from_slice(&piece);
            }
            _ => self.all.extend_from_slice(&piece),
        }
        self.pieces += 1;
    }

    fn into_bytes(self) -> Bytes {
        if self.pieces > 1 { self.all.freeze() } else { self.first }
    }
}

/// Bytes that most bursts have room in.
const BURST: usize = 4096;
