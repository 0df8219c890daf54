//! A connection of HTTP/1 that has no task: whoever asks on it has it alone, and runs it until the answer was read.
//!
//! What comes of a run is looked at right after it, in the same turn of the scheduler. So nothing of a request or an answer needs to wake
//! anybody: only the connection itself is run with the waker of its holder, and that last, when nothing is left to be looked at.

use std::{
    pin::Pin,
    sync::Weak,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response,
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{self, Connection, SendRequest},
    },
};
use tokio::task::unconstrained;

use super::{Post, connector::Wire, pool::Host};

/// A connection and who may ask on it.
pub(super) struct Line {
    send: SendRequest<Full<Bytes>>,
    /// None once it is closed.
    work: Option<Connection<Wire, Full<Bytes>>>,
    home: Weak<Host>,
}

/// What came back, and the request if nothing of it was sent.
pub(super) type Head = Result<Response<Incoming>, TrySendError<Post>>;

impl Line {
    /// # Errors
    /// Those of the connection.
    pub(super) async fn new(wire: Wire, home: Weak<Host>) -> hyper::Result<Box<Self>> {
        let (send, work) = http1::handshake(wire).await?;
        Ok(Box::new(Self { send, work: Some(work), home }))
    }

    /// The answer to a request. It comes by running the connection and is woken by nothing else; the budget of a task does not hold for
    /// it, because who has none left must be woken again, and that the connection sees to.
    pub(super) fn send(&mut self, post: Post) -> impl Future<Output = Head> + use<> {
        unconstrained(self.send.try_send_request(post))
    }

    /// Runs the connection, once.
    pub(super) fn run(&mut self, task: &mut Context<'_>) {
        if self.work.as_mut().is_some_and(|work| Pin::new(work).poll(task).is_ready()) {
            self.work = None;
        }
    }

    /// Runs the connection and looks for the answer. `again`: it was run for this request before.
    pub(super) fn poll(
        &mut self,
        task: &mut Context<'_>,
        again: bool,
        mut answer: Pin<&mut impl Future<Output = Head>>,
    ) -> Poll<Head> {
        let mut nobody = Context::from_waker(Waker::noop());
        if again {
            self.run(&mut nobody);
            if let Poll::Ready(head) = answer.as_mut().poll(&mut nobody) {
                return Poll::Ready(head);
            }
        }
        self.run(task);
        answer.poll(&mut nobody)
    }

    /// Whether the next request may go this way. Nobody is woken by the connection after that until it is run again.
    pub(super) fn is_free(&mut self) -> bool {
        self.run(&mut Context::from_waker(Waker::noop()));
        self.work.is_some() && self.send.is_ready()
    }

    /// Goes back to where the next call finds it, if it is free, and is closed otherwise.
    pub(super) fn go_back(mut self: Box<Self>) {
        if let Some(home) = self.home.upgrade().filter(|_| self.is_free()) {
            home.keep(self);
        }
    }
}
