//! Reads a model's bytes within their deadlines and turns them into deltas: the same for every wire.
//!
//! Deadlines: the first event, then each event (bytes that complete no event do not count), and the whole call; events that come
//! too seldom end it as well (`drip`). After the model's terminal mark only [`limits::MODEL_AFTER_END`] is granted for usage and
//! the wire's end mark.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    drip::Drip,
    error::{LlmError, LlmErrorKind},
    message::Answer,
    stream::Delta,
};
use crate::{
    clock::Deadline,
    cx::{Cx, Stopped},
    limits,
};

/// Turns the bytes of one answer into deltas. Waits for nothing.
pub(crate) trait Decode: Send {
    /// Takes the next bytes.
    fn feed(&mut self, bytes: Bytes) -> Result<(), LlmError>;
    /// Takes the end of the bytes.
    fn end(&mut self) -> Result<(), LlmError>;
    /// The next delta, except `Done`.
    fn pop(&mut self) -> Option<Delta>;
    /// How many events came.
    fn events(&self) -> u64;
    /// Whether the model's terminal mark came.
    fn is_finished(&self) -> bool;
    /// Whether the wire's own end mark came: nothing more is to be read.
    fn is_closed(&self) -> bool;
    /// The whole answer. Called at most once, last.
    fn answer(&mut self) -> Result<Answer, LlmError>;
}

/// How long a call may wait for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// From the request to the first event.
    pub(crate) first: Duration,
    /// Between two events.
    pub(crate) idle: Duration,
    /// The whole call.
    pub(crate) total: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { first: limits::MODEL_FIRST_TOKEN, idle: limits::MODEL_IDLE, total: limits::MODEL_TOTAL }
    }
}

/// Until when the waits of one call last, beside the caller's own deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// The first event.
    pub(crate) first: Deadline,
    /// The whole call, by the model's entry.
    pub(crate) total: Deadline,
}

impl Due {
    /// Which wait ended when the next event was due at `event`. Only the end of the caller's own time is final: what the
    /// entry allows says nothing of another model.
    pub(crate) fn passed(self, event: Deadline, is_first: bool, cx: &Cx) -> LlmErrorKind {
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

/// The bytes of an answer, with transport failures already named.
pub(crate) type Body = BoxStream<'static, Result<Bytes, LlmError>>;

/// Reads `body` into the deltas of a [`ChatStream`](super::ChatStream). `cx` is the caller's; `ends` is when the first event and
/// the end of the call are due.
pub(crate) fn pump<D: Decode + Unpin>(body: Body, decoder: D, waits: Waits, ends: Due, cx: Cx) -> Pump<D> {
    Pump {
        body: Some(body),
        decoder,
        failure: None,
        ended: false,
        due: ends.first,
        ends,
        seen: 0,
        delivered: false,
        waits,
        watch: None,
        drip: Drip::default(),
        cx,
    }
}

/// The deltas of one call.
pub(crate) struct Pump<D> {
    /// Dropped as soon as nothing more is wanted: that closes the connection.
    body: Option<Body>,
    decoder: D,
    /// Told after the deltas that came before it.
    failure: Option<LlmError>,
    ended: bool,
    /// When the next event is due.
    due: Deadline,
    ends: Due,
    seen: u64,
    /// A delta was handed out since the last read: the time its reader took is not the model's silence.
    delivered: bool,
    waits: Waits,
    /// Made when bytes are waited for the first time.
    watch: Option<Watch>,
    drip: Drip,
    cx: Cx,
}

/// What may end a wait before bytes come. Made once a call and not at every wait: a model's text comes in many pieces.
struct Watch {
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When `alarm` goes off. It may lie before the deadline of the present wait, and is then set again.
    set_to: Deadline,
    alarm: BoxFuture<'static, ()>,
}

/// Polled by hand and not an `async` block: a text comes in many pieces, and each costs as little as can be.
impl<D: Decode + Unpin> Stream for Pump<D> {
    type Item = Result<Delta, LlmError>;
    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            // What came together with a delta that was handed on is not wanted any more either.
            if this.delivered && this.cx.cancel.is_cancelled() {
                this.close();
                return Poll::Ready(Some(Err(LlmErrorKind::Cancelled.into())));
            }
            if let Some(delta) = this.decoder.pop() {
                this.delivered = true;
                return Poll::Ready(Some(Ok(delta)));
            }
            if let Some(failure) = this.failure.take() {
                this.close();
                return Poll::Ready(Some(Err(failure)));
            }
            if this.decoder.is_closed() || this.body.is_none() {
                this.close();
                return Poll::Ready(Some(this.decoder.answer().map(|answer| Delta::Done(Arc::new(answer)))));
            }
            ready!(this.poll_read(task));
        }
    }
}

impl<D: Decode> Pump<D> {
    fn close(&mut self) {
        self.ended = true;
        self.body = None;
    }

    /// Reads once, decodes, and keeps a failure for later.
    fn poll_read(&mut self, task: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.delivered) && !self.decoder.is_finished() {
            self.due = self.cx.clock.deadline(self.waits.idle);
            self.drip.resume(self.due.0.saturating_sub(self.waits.idle));
        }
        let outcome = match ready!(self.poll_bytes(task)) {
            Ok(Some(Ok(bytes))) => self.decoder.feed(bytes),
            Ok(None) => {
                self.body = None;
                self.decoder.end()
            }
            // Silence or a break after the model said that it is done costs at most the usage.
            Err(Stopped::DeadlinePassed) | Ok(Some(Err(_))) if self.decoder.is_finished() => {
                self.body = None;
                Ok(())
            }
            Ok(Some(Err(error))) => Err(error),
            Err(Stopped::Cancelled) => Err(LlmErrorKind::Cancelled.into()),
            Err(Stopped::DeadlinePassed) => Err(self.overdue().into()),
        };
        if let Err(error) = outcome {
            self.failure = Some(error);
            self.body = None;
        }
        if self.decoder.events() != self.seen {
            self.seen = self.decoder.events();
            let grace = if self.decoder.is_finished() { limits::MODEL_AFTER_END } else { self.waits.idle };
            self.due = self.cx.clock.deadline(grace);
            self.judge_rate(self.due.0.saturating_sub(grace));
        } else if self.failure.is_none() && self.body.is_some() && self.cx.clock.elapsed() >= self.due.0 {
            // A flood of bytes without events never lets the alarm below be looked at.
            self.body = None;
            self.failure = (!self.decoder.is_finished()).then(|| self.overdue().into());
        }
        Poll::Ready(())
    }

    /// Ends a stream that drips; what came so far is told first.
    fn judge_rate(&mut self, now: Duration) {
        let goes_on = self.body.is_some() && self.failure.is_none() && !self.decoder.is_finished();
        if goes_on && let Err(error) = self.drip.came(self.seen, now, self.waits.idle) {
            self.failure = Some(error);
            self.body = None;
        }
    }

    fn poll_bytes(&mut self, task: &mut Context<'_>) -> Poll<Result<Option<Result<Bytes, LlmError>>, Stopped>> {
        let Some(body) = self.body.as_mut() else { return Poll::Ready(Ok(None)) };
        if self.cx.cancel.is_cancelled() {
            return Poll::Ready(Err(Stopped::Cancelled));
        }
        if self.cx.clock.elapsed() >= self.cx.deadline.min(self.ends.total).0 {
            return Poll::Ready(Err(Stopped::DeadlinePassed));
        }
        // Bytes that are here already cost no timer.
        if let Poll::Ready(item) = body.poll_next_unpin(task) {
            return Poll::Ready(Ok(item));
        }
        let (until, cx) = (self.cx.deadline.min(self.ends.total).min(self.due), &self.cx);
        let watch = self.watch.get_or_insert_with(|| Watch::new(cx, until));
        if watch.cancelled.poll_unpin(task).is_ready() {
            return Poll::Ready(Err(Stopped::Cancelled));
        }
        watch.poll_until(until, cx, task).map(|()| Err(Stopped::DeadlinePassed))
    }

    fn overdue(&self) -> LlmErrorKind {
        self.ends.passed(self.due, self.seen == 0, &self.cx)
    }
}

impl Watch {
    fn new(cx: &Cx, until: Deadline) -> Self {
        let cancelled = Box::pin(cx.cancel.as_ref().clone().cancelled_owned());
        Self { cancelled, set_to: until, alarm: alarm(cx, until) }
    }

    /// Ready once `until` has passed.
    fn poll_until(&mut self, until: Deadline, cx: &Cx, task: &mut Context<'_>) -> Poll<()> {
        if until < self.set_to {
            self.set(until, cx);
        }
        while self.alarm.poll_unpin(task).is_ready() {
            if cx.clock.elapsed() >= until.0 {
                return Poll::Ready(());
            }
            self.set(until, cx);
        }
        Poll::Pending
    }

    fn set(&mut self, until: Deadline, cx: &Cx) {
        self.set_to = until;
        self.alarm = alarm(cx, until);
    }
}

fn alarm(cx: &Cx, until: Deadline) -> BoxFuture<'static, ()> {
    let clock = cx.clock.clone();
    Box::pin(async move { clock.sleep(until).await })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::stream;

    use super::*;
    use crate::llm::{openai::stream::ChunkDecoder, testing::ManualClock};

    const ROLE: &[u8] = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    const TEXT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    const STOP: &[u8] = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    fn due(cx: &Cx) -> Due {
        let Waits { first, total, .. } = Waits::default();
        Due { first: cx.clock.deadline(first), total: cx.clock.deadline(total) }
    }

    /// Reads pieces that come `apart` from each other, the last one for ever, and gives the texts told and the end.
    async fn read(pieces: &[&'static [u8]], apart: Duration) -> (usize, Result<Answer, LlmErrorKind>) {
        let clock = ManualClock::new();
        let (pieces, last) = (pieces.to_vec(), *pieces.last().unwrap());
        let ticking = clock.clone();
        let bytes = stream::iter(pieces).chain(stream::repeat(last)).map(move |piece| {
            ticking.advance(apart);
            Ok(Bytes::from_static(piece))
        });
        let cx = clock.cx(Duration::from_secs(60));
        let mut deltas = pump(bytes.boxed(), ChunkDecoder::new(1, 0), Waits::default(), due(&cx), cx);
        let mut told = 0;
        loop {
            match deltas.next().await.unwrap() {
                Ok(Delta::Done(answer)) => return (told, Ok(Answer::clone(&answer))),
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
        let cx = clock.cx(Duration::from_secs(45));
        let burst = stream::iter([Ok(Bytes::from([TEXT, TEXT, STOP].concat()))]).chain(stream::pending());
        let mut deltas = pump(burst.boxed(), ChunkDecoder::new(1, 0), Waits::default(), due(&cx), cx.clone());
        assert_eq!(deltas.next().await, Some(Ok(Delta::Text("a".into()))));
        cx.cancel.cancel();
        assert_eq!(deltas.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Cancelled);
        assert!(deltas.next().await.is_none());
    }

    #[tokio::test]
    async fn a_drip_that_completes_no_event_is_silence() {
        let second = Duration::from_secs(1);
        assert_eq!(read(&[b": ping\n\n"], second).await, (0, Err(LlmErrorKind::FirstTokenTimeout)));
        assert_eq!(read(&[TEXT, b": ping\n\n"], second).await, (1, Err(LlmErrorKind::Idle)));
        assert_eq!(read(&[TEXT, b"d"], second).await, (1, Err(LlmErrorKind::Idle)));
    }

    #[tokio::test]
    async fn a_stream_that_drips_is_cut() {
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
            let cx = clock.cx(Duration::from_secs(caller));
            let ticking = clock.clone();
            let bytes = stream::repeat(TEXT).map(move |piece| {
                ticking.advance(Duration::from_secs(2));
                Ok(Bytes::from_static(piece))
            });
            let due = Due { total: cx.clock.deadline(Duration::from_secs(20)), ..due(&cx) };
            let mut deltas = pump(bytes.boxed(), ChunkDecoder::new(1, 0), Waits::default(), due, cx);
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
