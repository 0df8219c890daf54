//! A connection that whoever reads from it may look after itself.
//!
//! Hyper runs each connection in a task of its own, which lays one piece of an answer ready and is woken when it is taken. A
//! burst of pieces so costs two turns of the scheduler for each. Here the reader, when it has taken a piece, may run the
//! connection at once, in its own turn; the task stays, and does the same whenever it is woken.
//!
//! With each answer hyper also has work that gives the connection back to the pool once it is free, and wants a task for it. Whoever
//! reads the answer knows when that is, and does it (`Return`).

use std::{
    cell::{Cell, RefCell},
    io::{IoSlice, Result},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak},
    task::{Context, Poll, Waker},
};

use futures::future::BoxFuture;
use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::runtime::Handle;

/// Runs the tasks of connections.
#[derive(Clone)]
pub(super) struct Lines;

impl Executor<BoxFuture<'static, ()>> for Lines {
    fn execute(&self, work: BoxFuture<'static, ()>) {
        match CAUGHT.take() {
            None => spawn(work),
            Some(earlier) => {
                CAUGHT.set(Some(Some(work)));
                earlier.into_iter().for_each(spawn);
            }
        }
    }
}

fn spawn(work: BoxFuture<'static, ()>) {
    tokio::spawn(Task(Arc::new(Line(Mutex::new(State { work: Some(work), task: None })))));
}

thread_local! {
    /// While a request is run: the latest work that it wants done beside it. None at all other times.
    static CAUGHT: Cell<Option<Option<BoxFuture<'static, ()>>>> = const { Cell::new(None) };
}

/// Runs a request. The work that it wants done beside it when its answer is there comes with the answer: it gives the connection back. At any
/// other time it is the work of a new connection, and gets its task.
pub(super) fn poll_request<T>(run: impl FnOnce() -> Poll<T>) -> Poll<(T, Return)> {
    let catching = Catching::begin();
    let answer = run();
    let work = catching.end();
    match answer {
        Poll::Ready(answer) => Poll::Ready((answer, Return(Mutex::new(work)))),
        Poll::Pending => {
            work.into_iter().for_each(spawn);
            Poll::Pending
        }
    }
}

/// Ends the catching even when the request panics.
struct Catching;

impl Catching {
    fn begin() -> Self {
        CAUGHT.set(Some(None));
        Self
    }
    fn end(self) -> Option<BoxFuture<'static, ()>> {
        CAUGHT.take().flatten()
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        CAUGHT.set(None);
    }
}

/// Gives a connection back to the pool, at the latest when it is dropped. The lock is never taken: it only lets answers be shared.
pub(super) struct Return(Mutex<Option<BoxFuture<'static, ()>>>);

impl Return {
    /// Call it when everything was read: the connection is free then, or is so soon and gets a task for it.
    pub(super) fn done(&mut self) {
        let work = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut work) = work else { return };
        let waits = work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        // Outside of a runtime nobody runs connections any more.
        if waits && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

impl Drop for Return {
    fn drop(&mut self) {
        self.done();
    }
}

/// What a connection does, run by its task or by who reads from it.
struct Line(Mutex<State>);

struct State {
    /// None once it is done.
    work: Option<BoxFuture<'static, ()>>,
    /// Wakes the task. Whoever runs the work leaves this with it and not a waker of its own, so that nothing is missed.
    task: Option<Waker>,
}

thread_local! {
    /// The line whose task is running: its connection finds it here.
    static RUNNING: RefCell<Weak<Line>> = const { RefCell::new(Weak::new()) };
}

impl State {
    fn run(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        let done = work.as_mut().poll(task);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

struct Task(Arc<Line>);

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        // A reader holds it for no longer than one look takes.
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut state.task {
            Some(waker) => waker.clone_from(task.waker()),
            none => *none = Some(task.waker().clone()),
        }
        RUNNING.set(Arc::downgrade(&self.0));
        let done = state.run(task);
        RUNNING.set(Weak::new());
        done
    }
}

/// Where the line of a connection is found, once its task has run.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<OnceLock<Weak<Line>>>);

impl Slot {
    /// Runs the connection once, unless its task is running.
    pub(super) fn look(&self) {
        let Some(line) = self.0.get().and_then(Weak::upgrade) else { return };
        let mut state = match line.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let Some(task) = state.task.clone() else { return };
        if state.run(&mut Context::from_waker(&task)).is_ready() {
            // The task has only its own end to find out.
            task.wake();
        }
    }
}

/// A connection that tells its line.
pub(super) struct Wire<T> {
    io: T,
    slot: Slot,
}

impl<T> Wire<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, slot: Slot::default() }
    }
}

impl<T: Connection> Connection for Wire<T> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.slot.clone())
    }
}

impl<T: Read + Unpin> Read for Wire<T> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: ReadBufCursor<'_>) -> Poll<Result<()>> {
        if self.slot.0.get().is_none() {
            let running = RUNNING.with_borrow(Weak::clone);
            if running.strong_count() > 0 {
                // It is set here alone, and only while it is not.
                let _ = self.slot.0.set(running);
            }
        }
        Pin::new(&mut self.io).poll_read(task, bytes)
    }
}

impl<T: Write + Unpin> Write for Wire<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.io).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(task)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(task, bytes)
    }
}
