//! Reads the body of a response within its deadlines and turns it into deltas: the same for every API.
//!
//! Deadlines: the first event, then each event (bytes that complete no event do not count), and the whole call; events that come
//! too seldom end it as well (`min_event_rate`). After the model's finish reason only [`limits::MODEL_AFTER_END`] is granted for usage and
//! the end marker of the API.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use segue_base::{
    clock::Deadline,
    context::{CallContext, WaitError},
    limits,
};

use super::min_event_rate::MinEventRate;
use crate::{
    error::{LlmError, LlmErrorKind},
    message::ChatResponse,
    stream::Delta,
};

/// Turns the bytes of one response into deltas. Waits for nothing.
pub(crate) trait ResponseDecoder: Send {
    /// Takes the next bytes.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), LlmError>;
    /// Takes the end of the bytes.
    fn end(&mut self) -> Result<(), LlmError>;
    /// The next delta, except `Done`.
    fn next_delta(&mut self) -> Option<Delta>;
    /// How many events came.
    fn events(&self) -> u64;
    /// Whether the model's finish reason came.
    fn is_finished(&self) -> bool;
    /// Whether the end marker of the API came: nothing more is to be read.
    fn saw_end_marker(&self) -> bool;
    /// The whole answer. Called at most once, last.
    fn answer(&mut self) -> Result<ChatResponse, LlmError>;
}

/// How long a call may wait for what.
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
    /// The deadlines of a call that begins now.
    pub(crate) fn begin(self, cx: &CallContext) -> CallDeadlines {
        CallDeadlines { first: cx.clock.deadline(self.first), total: cx.clock.deadline(self.total) }
    }
}

/// Deadlines of one call, beside the caller's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDeadlines {
    /// The first event.
    pub(crate) first: Deadline,
    /// The whole call, by the model's entry.
    pub(crate) total: Deadline,
}

impl CallDeadlines {
    /// Which wait ended when the next event was due at `event`. Only the end of the caller's own time is final: what the
    /// entry allows says nothing of another model.
    pub(crate) fn passed(self, event: Deadline, is_first: bool, cx: &CallContext) -> LlmErrorKind {
        if cx.deadline <= event.min(self.total) {
            LlmErrorKind::Total
        } else if is_first {
            LlmErrorKind::FirstTokenTimeout
        } else if event < self.total {
            LlmErrorKind::Idle
        } else {
            LlmErrorKind::CallTimeout
        }
    }
}

/// The body of a response, with transport failures already named.
pub(crate) type Body = BoxStream<'static, Result<Bytes, LlmError>>;

/// Reads `body` into the deltas of a [`ChatStream`](crate::ChatStream). `cx` is the caller's. The body is dropped, which closes the
/// connection, with the stream or as soon as nothing more is wanted.
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
        handed_out: false,
        timeouts,
        rate: MinEventRate::default(),
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
    /// Told after the deltas that came before it.
    failure: Option<LlmError>,
    is_done: bool,
    /// When the next event is due.
    due: Deadline,
    deadlines: CallDeadlines,
    /// Events so far.
    seen: u64,
    /// A delta was handed out since the last read: the time its reader took is not the model's silence.
    handed_out: bool,
    timeouts: CallTimeouts,
    rate: MinEventRate,
    cx: CallContext,
}

impl<D: ResponseDecoder> ResponseReader<D> {
    async fn next(&mut self) -> Result<Option<Delta>, LlmError> {
        loop {
            if self.is_done {
                return Ok(None);
            }
            // What came together with a delta that was handed out is not wanted any more either.
            if self.handed_out && self.cx.cancel.is_cancelled() {
                return Err(LlmErrorKind::Cancelled.into());
            }
            if let Some(delta) = self.decoder.next_delta() {
                self.handed_out = true;
                return Ok(Some(delta));
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.decoder.saw_end_marker() || self.body.is_none() {
                (self.is_done, self.body) = (true, None);
                return Ok(Some(Delta::Done(Arc::new(self.decoder.answer()?))));
            }
            self.read().await;
        }
    }

    /// Reads once, decodes, and keeps a failure for later.
    async fn read(&mut self) {
        if std::mem::take(&mut self.handed_out) && !self.decoder.is_finished() {
            self.due = self.cx.clock.deadline(self.timeouts.idle);
            self.rate.resume(self.due.0.saturating_sub(self.timeouts.idle));
        }
        let outcome = match self.next_bytes().await {
            Ok(Some(Ok(bytes))) => self.decoder.feed(&bytes),
            Ok(None) => {
                self.body = None;
                self.decoder.end()
            }
            // Silence or a break after the model said that it is done costs at most the usage.
            Err(WaitError::DeadlinePassed) | Ok(Some(Err(_))) if self.decoder.is_finished() => {
                self.body = None;
                Ok(())
            }
            Ok(Some(Err(error))) => Err(error),
            Err(WaitError::Cancelled) => Err(LlmErrorKind::Cancelled.into()),
            Err(WaitError::DeadlinePassed) => Err(self.overdue().into()),
        };
        if let Err(error) = outcome {
            self.fail(error);
        }
        if self.decoder.events() != self.seen {
            self.seen = self.decoder.events();
            let grace = if self.decoder.is_finished() { limits::MODEL_AFTER_END } else { self.timeouts.idle };
            self.due = self.cx.clock.deadline(grace);
            self.judge_rate(self.due.0.saturating_sub(grace));
        } else if self.body.is_some() && self.cx.clock.elapsed() >= self.due.0 {
            // A flood of bytes without events: each of them came before its deadline was looked at.
            if self.decoder.is_finished() { self.body = None } else { self.fail(self.overdue().into()) }
        }
    }

    /// The next bytes; those that are here already come although their event is overdue, but not after the end of the call.
    async fn next_bytes(&mut self) -> Result<Option<Result<Bytes, LlmError>>, WaitError> {
        let end = self.cx.deadline.min(self.deadlines.total);
        if !self.cx.cancel.is_cancelled() && self.cx.clock.elapsed() >= end.0 {
            return Err(WaitError::DeadlinePassed);
        }
        let waiting = CallContext { deadline: end.min(self.due), idle_timeout: None, ..self.cx.clone() };
        let Some(body) = &mut self.body else { return Ok(None) };
        waiting.wait(body.next()).await
    }

    /// Ends a stream whose events come too seldom; what came so far is told first.
    fn judge_rate(&mut self, now: Duration) {
        let goes_on = self.body.is_some() && !self.decoder.is_finished();
        if goes_on && let Err(error) = self.rate.came(self.seen, now, self.timeouts.idle) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: LlmError) {
        self.failure = Some(error);
        self.body = None;
    }

    fn overdue(&self) -> LlmErrorKind {
        self.deadlines.passed(self.due, self.seen == 0, &self.cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::stream;
    use segue_base::manual_clock::ManualClock;

    use super::*;
    use crate::openai::response::decoder;

    const ROLE: &[u8] = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    const TEXT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    const STOP: &[u8] = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    fn due(cx: &CallContext) -> CallDeadlines {
        CallTimeouts::default().begin(cx)
    }

    /// Reads pieces that come `apart` from each other, the last one for ever, and gives the texts told and the end.
    async fn read(pieces: &[&'static [u8]], apart: Duration) -> (usize, Result<ChatResponse, LlmErrorKind>) {
        let clock = ManualClock::new();
        let (pieces, last) = (pieces.to_vec(), *pieces.last().unwrap());
        let ticking = clock.clone();
        let bytes = stream::iter(pieces).chain(stream::repeat(last)).map(move |piece| {
            ticking.advance(apart);
            Ok(Bytes::from_static(piece))
        });
        let cx = clock.context(Duration::from_secs(60));
        let mut deltas = decode_stream(bytes.boxed(), decoder(1, 0), CallTimeouts::default(), due(&cx), cx);
        let mut told = 0;
        loop {
            match deltas.next().await.unwrap() {
                Ok(Delta::Done(answer)) => return (told, Ok(ChatResponse::clone(&answer))),
                Ok(_) => told += 1,
                Err(error) => {
                    assert!(deltas.next().await.is_none(), "a failure is told once");
                    return (told, Err(error.kind));
                }
            }
        }
    }

    #[tokio::test]
    async fn cancelling_counts_in_the_middle_of_a_burst() {
        let clock = ManualClock::new();
        let cx = clock.context(Duration::from_secs(45));
        let burst = stream::iter([Ok(Bytes::from([TEXT, TEXT, STOP].concat()))]).chain(stream::pending());
        let mut deltas = decode_stream(burst.boxed(), decoder(1, 0), CallTimeouts::default(), due(&cx), cx.clone());
        assert_eq!(deltas.next().await, Some(Ok(Delta::Text("a".into()))));
        cx.cancel.cancel();
        assert_eq!(deltas.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Cancelled);
        assert!(deltas.next().await.is_none());
    }

    #[tokio::test]
    async fn bytes_that_complete_no_event_are_silence() {
        let second = Duration::from_secs(1);
        assert_eq!(read(&[b": ping\n\n"], second).await, (0, Err(LlmErrorKind::FirstTokenTimeout)));
        assert_eq!(read(&[TEXT, b": ping\n\n"], second).await, (1, Err(LlmErrorKind::Idle)));
        assert_eq!(read(&[TEXT, b"d"], second).await, (1, Err(LlmErrorKind::Idle)));
    }

    #[tokio::test]
    async fn a_stream_with_too_few_events_is_ended() {
        let (told, end) = read(&[ROLE, TEXT], Duration::from_secs(9)).await;
        assert_eq!((told, end), (3, Err(LlmErrorKind::Idle)), "what came is told first");
    }

    #[tokio::test]
    async fn events_are_life_until_the_whole_call_ends() {
        let (told, end) = read(&[ROLE, ROLE, ROLE, TEXT], Duration::from_secs(2)).await;
        assert_eq!((told, end), (20, Err(LlmErrorKind::CallTimeout)));
    }

    /// What the entry allows ends the call to this model; only the caller's own time is over for all.
    #[tokio::test]
    async fn the_callers_time_is_told_apart_from_that_of_the_entry() {
        let clock = ManualClock::new();
        for (caller, told) in [(7, LlmErrorKind::Total), (60, LlmErrorKind::CallTimeout)] {
            let cx = clock.context(Duration::from_secs(caller));
            let ticking = clock.clone();
            let bytes = stream::repeat(TEXT).map(move |piece| {
                ticking.advance(Duration::from_secs(2));
                Ok(Bytes::from_static(piece))
            });
            let due = CallDeadlines { total: cx.clock.deadline(Duration::from_secs(20)), ..due(&cx) };
            let mut deltas = decode_stream(bytes.boxed(), decoder(1, 0), CallTimeouts::default(), due, cx);
            let end = loop {
                if let Err(error) = deltas.next().await.unwrap() {
                    break error.kind;
                }
            };
            assert_eq!(end, told, "the caller has {caller} s");
        }
    }

    #[tokio::test]
    async fn after_the_models_mark_noise_costs_only_the_grace() {
        let (told, end) = read(&[TEXT, STOP, b": ping\n\n"], Duration::from_millis(200)).await;
        assert_eq!((told, &*end.unwrap().text), (1, "a"));
    }
}
