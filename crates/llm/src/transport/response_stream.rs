//! Reads the body of a response within its deadlines and decodes it to deltas. Shared by all APIs.
//!
//! Deadlines hold for the first event, for each further event (bytes that complete no event do not count), and for the whole
//! call. A stream with too few events ends as well (`min_event_rate`). After the model's finish reason, the stream has
//! [`limits::MODEL_AFTER_END`] to send usage and the end marker of the API.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use segue_base::{
    clock::{Clock, Deadline},
    context::{CallContext, WaitError},
    limits,
};

use super::min_event_rate::MinEventRate;
use crate::{
    error::{LlmError, LlmErrorKind},
    message::ChatResponse,
    stream::Delta,
};

/// Decodes the bytes of one response to deltas, without I/O.
pub(crate) trait ResponseDecoder: Send {
    /// Decodes the next bytes.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), LlmError>;
    /// Handles the end of the body.
    fn end(&mut self) -> Result<(), LlmError>;
    /// The next delta, except `Done`.
    fn next_delta(&mut self) -> Option<Delta>;
    /// The number of events so far, without pings.
    fn events(&self) -> u64;
    /// Whether the model's finish reason came.
    fn is_finished(&self) -> bool;
    /// Whether the end marker of the API came, so that nothing more needs to be read.
    fn saw_end_marker(&self) -> bool;
    /// The complete response. Called at most once, last.
    fn response(&mut self) -> Result<ChatResponse, LlmError>;
}

/// Timeouts of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimeouts {
    /// From the request to the first event.
    pub(crate) first: Duration,
    /// Between two events.
    pub(crate) idle: Duration,
    /// The whole call.
    pub(crate) total: Duration,
}

impl Default for CallTimeouts {
    fn default() -> Self {
        Self { first: limits::MODEL_FIRST_TOKEN, idle: limits::MODEL_IDLE, total: limits::MODEL_TOTAL }
    }
}

impl CallTimeouts {
    /// The deadlines of a call that starts now.
    pub(crate) fn start(self, cx: &CallContext) -> CallDeadlines {
        CallDeadlines { first: cx.clock.deadline(self.first), total: cx.clock.deadline(self.total) }
    }
}

/// Deadlines of one call, in addition to the caller's deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDeadlines {
    /// The first event.
    pub(crate) first: Deadline,
    /// The whole call, by the model's entry.
    pub(crate) total: Deadline,
}

impl CallDeadlines {
    /// The error after a wait for an event that was due at `event`. Only the caller's deadline is final; after the other timeouts
    /// another model may be called.
    pub(crate) fn timeout_error(self, event: Deadline, is_first: bool, cx: &CallContext) -> LlmErrorKind {
        if cx.deadline <= event.min(self.total) {
            LlmErrorKind::DeadlineExceeded
        } else if is_first {
            LlmErrorKind::FirstTokenTimeout
        } else if event < self.total {
            LlmErrorKind::IdleTimeout
        } else {
            LlmErrorKind::CallTimeout
        }
    }
}

/// The body of a response, with transport errors already mapped.
pub(crate) type Body = BoxStream<'static, Result<Bytes, LlmError>>;

/// Decodes `body` to the deltas of a [`ChatStream`](crate::ChatStream). The body is dropped, which closes the connection, with the
/// stream or as soon as nothing more is needed.
pub(crate) fn decode_stream<D: ResponseDecoder + 'static>(
    body: Body,
    decoder: D,
    timeouts: CallTimeouts,
    deadlines: CallDeadlines,
    cx: CallContext,
) -> BoxStream<'static, Result<Delta, LlmError>> {
    let reader = ResponseReader {
        body: Some(body),
        decoder,
        failure: None,
        is_done: false,
        due: deadlines.first,
        deadlines,
        seen: 0,
        has_returned_delta: false,
        timeouts,
        rate: MinEventRate::default(),
        cancelled: Box::pin((*cx.cancel).clone().cancelled_owned()),
        timer: None,
        cx,
    };
    stream::try_unfold(reader, |mut reader| async move { Ok(reader.next().await?.map(|delta| (delta, reader))) })
        .boxed()
}

/// Reads one response.
struct ResponseReader<D> {
    /// `None` when nothing more is to be read.
    body: Option<Body>,
    decoder: D,
    /// Returned after the deltas that came before it.
    failure: Option<LlmError>,
    is_done: bool,
    /// When the next event is due.
    due: Deadline,
    deadlines: CallDeadlines,
    /// Events so far.
    seen: u64,
    /// Whether a delta was returned since the last read. The time that its consumer takes does not count as the model's idle time.
    has_returned_delta: bool,
    timeouts: CallTimeouts,
    rate: MinEventRate,
    /// Completes when the call is cancelled. One for all reads, as the timer is: a response has many short ones.
    cancelled: BoxFuture<'static, ()>,
    timer: Option<Timer>,
    cx: CallContext,
}

/// A wait for a time. The deadline of the reads moves later with each event; the timer is set again only when it has rung.
struct Timer {
    until: Deadline,
    rings: BoxFuture<'static, ()>,
}

impl Timer {
    fn set(clock: Arc<dyn Clock>, until: Deadline) -> Self {
        Self { until, rings: Box::pin(async move { clock.sleep(until).await }) }
    }
}

impl<D: ResponseDecoder> ResponseReader<D> {
    async fn next(&mut self) -> Result<Option<Delta>, LlmError> {
        loop {
            if self.is_done {
                return Ok(None);
            }
            // Cancellation also drops deltas that are already decoded.
            if self.has_returned_delta && self.cx.cancel.is_cancelled() {
                return Err(LlmErrorKind::Cancelled.into());
            }
            if let Some(delta) = self.decoder.next_delta() {
                self.has_returned_delta = true;
                return Ok(Some(delta));
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.decoder.saw_end_marker() || self.body.is_none() {
                (self.is_done, self.body) = (true, None);
                return Ok(Some(Delta::Done(Arc::new(self.decoder.response()?))));
            }
            self.read().await;
        }
    }

    /// Reads and decodes once; stores a failure, to return it after the deltas.
    async fn read(&mut self) {
        if std::mem::take(&mut self.has_returned_delta) && !self.decoder.is_finished() {
            self.due = self.cx.clock.deadline(self.timeouts.idle);
            self.rate.resume(self.due.0.saturating_sub(self.timeouts.idle));
        }
        let outcome = match self.next_bytes().await {
            Ok(Some(Ok(bytes))) => self.decoder.feed(&bytes),
            Ok(None) => {
                self.body = None;
                self.decoder.end()
            }
            // After the finish reason, a timeout or a broken connection costs at most the usage.
            Err(WaitError::DeadlinePassed) | Ok(Some(Err(_))) if self.decoder.is_finished() => {
                self.body = None;
                Ok(())
            }
            Ok(Some(Err(error))) => Err(error),
            Err(WaitError::Cancelled) => Err(LlmErrorKind::Cancelled.into()),
            Err(WaitError::DeadlinePassed) => Err(self.timeout_error().into()),
        };
        if let Err(error) = outcome {
            self.fail(error);
        }
        if self.decoder.events() != self.seen {
            self.seen = self.decoder.events();
            let grace = if self.decoder.is_finished() { limits::MODEL_AFTER_END } else { self.timeouts.idle };
            self.due = self.cx.clock.deadline(grace);
            self.check_rate(self.due.0.saturating_sub(grace));
        } else if self.body.is_some() && self.cx.clock.elapsed() >= self.due.0 {
            // Bytes keep coming without completing an event.
            if self.decoder.is_finished() { self.body = None } else { self.fail(self.timeout_error().into()) }
        }
    }

    /// The next bytes. Bytes that have already arrived are returned even if their event is overdue, but not after the end of the
    /// call.
    async fn next_bytes(&mut self) -> Result<Option<Result<Bytes, LlmError>>, WaitError> {
        let end = self.cx.deadline.min(self.deadlines.total);
        if !self.cx.cancel.is_cancelled() && self.cx.clock.elapsed() >= end.0 {
            return Err(WaitError::DeadlinePassed);
        }
        let until = end.min(self.due);
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            // One that rings earlier is kept.
            let timer = self.timer.take().filter(|timer| timer.until <= until);
            let timer = self.timer.insert(timer.unwrap_or_else(|| Timer::set(self.cx.clock.clone(), until)));
            // The order matters: a cancelled body is not read again, and bytes that are there count even after the deadline.
            tokio::select! {
                biased;
                () = &mut self.cancelled => return Err(WaitError::Cancelled),
                bytes = body.next() => return Ok(bytes),
                () = &mut timer.rings => self.timer = None,
            }
            if self.cx.clock.elapsed() >= until.0 {
                return Err(WaitError::DeadlinePassed);
            }
        }
    }

    /// Fails a stream with too few events, after the deltas that came so far.
    fn check_rate(&mut self, now: Duration) {
        let is_running = self.body.is_some() && !self.decoder.is_finished();
        if is_running && let Err(error) = self.rate.record(self.seen, now, self.timeouts.idle) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: LlmError) {
        self.failure = Some(error);
        self.body = None;
    }

    fn timeout_error(&self) -> LlmErrorKind {
        self.deadlines.timeout_error(self.due, self.seen == 0, &self.cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::task::Poll;

    use futures::stream;
    use segue_base::manual_clock::ManualClock;

    use super::*;
    use crate::openai::response::decoder;

    const ROLE: &[u8] = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    const TEXT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    const STOP: &[u8] = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    fn due(cx: &CallContext) -> CallDeadlines {
        CallTimeouts::default().start(cx)
    }

    /// Reads chunks that arrive `apart` from each other, the last one repeatedly. Returns the number of deltas and the result.
    async fn read(chunks: &[&'static [u8]], apart: Duration) -> (usize, Result<ChatResponse, LlmErrorKind>) {
        let clock = ManualClock::new();
        let (chunks, last) = (chunks.to_vec(), *chunks.last().unwrap());
        let ticking = clock.clone();
        let bytes = stream::iter(chunks).chain(stream::repeat(last)).map(move |chunk| {
            ticking.advance(apart);
            Ok(Bytes::from_static(chunk))
        });
        let cx = clock.context(Duration::from_secs(60));
        let mut deltas = decode_stream(bytes.boxed(), decoder("m".into(), 1, 0), CallTimeouts::default(), due(&cx), cx);
        let mut count = 0;
        loop {
            match deltas.next().await.unwrap() {
                Ok(Delta::Done(answer)) => return (count, Ok(ChatResponse::clone(&answer))),
                Ok(_) => count += 1,
                Err(error) => {
                    assert!(deltas.next().await.is_none(), "a failure is returned once");
                    return (count, Err(error.kind));
                }
            }
        }
    }

    #[tokio::test]
    async fn cancelling_drops_deltas_that_are_already_decoded() {
        let clock = ManualClock::new();
        let cx = clock.context(Duration::from_secs(45));
        let burst = stream::iter([Ok(Bytes::from([TEXT, TEXT, STOP].concat()))]).chain(stream::pending());
        let mut deltas =
            decode_stream(burst.boxed(), decoder("m".into(), 1, 0), CallTimeouts::default(), due(&cx), cx.clone());
        assert_eq!(deltas.next().await, Some(Ok(Delta::Text("a".into()))));
        cx.cancel.cancel();
        assert_eq!(deltas.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Cancelled);
        assert!(deltas.next().await.is_none());
    }

    /// A body that sends these chunks and then nothing more. Returns the seconds after which the stream ends, and how.
    async fn silent_after(chunks: &[&'static [u8]]) -> (f64, Result<Arc<str>, LlmErrorKind>) {
        let clock = ManualClock::new();
        let cx = clock.context(Duration::from_secs(60));
        let bytes = stream::iter(chunks.to_vec()).map(|chunk| Ok(Bytes::from_static(chunk))).chain(stream::pending());
        let mut deltas = decode_stream(bytes.boxed(), decoder("m".into(), 1, 0), CallTimeouts::default(), due(&cx), cx);
        loop {
            match futures::poll!(deltas.next()) {
                Poll::Pending => clock.advance(Duration::from_millis(100)),
                Poll::Ready(Some(Ok(Delta::Done(answer)))) => {
                    return (clock.elapsed().as_secs_f64(), Ok(answer.text.clone()));
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return (clock.elapsed().as_secs_f64(), Err(error.kind)),
                Poll::Ready(None) => panic!("the stream has neither response nor failure"),
            }
        }
    }

    /// One timer is set for all reads: it must not ring for a deadline that has moved, nor miss one that comes earlier.
    #[tokio::test]
    async fn a_silent_body_ends_at_the_deadline_that_holds_now() {
        let (first, idle) = (limits::MODEL_FIRST_TOKEN.as_secs_f64(), limits::MODEL_IDLE.as_secs_f64());
        assert_eq!(silent_after(&[]).await, (first, Err(LlmErrorKind::FirstTokenTimeout)));
        assert_eq!(silent_after(&[TEXT]).await, (idle, Err(LlmErrorKind::IdleTimeout)));
        let grace = limits::MODEL_AFTER_END.as_secs_f64();
        assert!(grace < idle);
        assert_eq!(silent_after(&[TEXT, STOP]).await, (grace, Ok("a".into())));
    }

    #[tokio::test]
    async fn cancelling_ends_a_read() {
        let clock = ManualClock::new();
        let cx = clock.context(Duration::from_secs(45));
        let mut deltas = decode_stream(
            stream::pending().boxed(),
            decoder("m".into(), 1, 0),
            CallTimeouts::default(),
            due(&cx),
            cx.clone(),
        );
        let mut next = deltas.next();
        assert!(futures::poll!(&mut next).is_pending());
        cx.cancel.cancel();
        assert_eq!(next.await.unwrap().unwrap_err().kind, LlmErrorKind::Cancelled);
    }

    #[tokio::test]
    async fn bytes_without_events_do_not_extend_deadlines() {
        let second = Duration::from_secs(1);
        assert_eq!(read(&[b": ping\n\n"], second).await, (0, Err(LlmErrorKind::FirstTokenTimeout)));
        assert_eq!(read(&[TEXT, b": ping\n\n"], second).await, (1, Err(LlmErrorKind::IdleTimeout)));
        assert_eq!(read(&[TEXT, b"d"], second).await, (1, Err(LlmErrorKind::IdleTimeout)));
    }

    #[tokio::test]
    async fn a_stream_with_too_few_events_fails() {
        let (count, end) = read(&[ROLE, TEXT], Duration::from_secs(9)).await;
        assert_eq!((count, end), (3, Err(LlmErrorKind::IdleTimeout)), "deltas come before the failure");
    }

    #[tokio::test]
    async fn events_extend_the_idle_deadline_until_the_call_times_out() {
        let (count, end) = read(&[ROLE, ROLE, ROLE, TEXT], Duration::from_secs(2)).await;
        assert_eq!((count, end), (20, Err(LlmErrorKind::CallTimeout)));
    }

    /// The `timeout` of an entry ends the call to one model; the caller's deadline ends it for all models.
    #[tokio::test]
    async fn the_callers_deadline_differs_from_the_timeout_of_the_entry() {
        let clock = ManualClock::new();
        for (caller, expected) in [(7, LlmErrorKind::DeadlineExceeded), (60, LlmErrorKind::CallTimeout)] {
            let cx = clock.context(Duration::from_secs(caller));
            let ticking = clock.clone();
            let bytes = stream::repeat(TEXT).map(move |chunk| {
                ticking.advance(Duration::from_secs(2));
                Ok(Bytes::from_static(chunk))
            });
            let due = CallDeadlines { total: cx.clock.deadline(Duration::from_secs(20)), ..due(&cx) };
            let mut deltas = decode_stream(bytes.boxed(), decoder("m".into(), 1, 0), CallTimeouts::default(), due, cx);
            let end = loop {
                if let Err(error) = deltas.next().await.unwrap() {
                    break error.kind;
                }
            };
            assert_eq!(end, expected, "the caller has {caller} s");
        }
    }

    #[tokio::test]
    async fn after_the_finish_reason_only_the_grace_period_is_waited() {
        let (count, end) = read(&[TEXT, STOP, b": ping\n\n"], Duration::from_millis(200)).await;
        assert_eq!((count, &*end.unwrap().text), (1, "a"));
    }
}
