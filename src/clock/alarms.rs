//! Alarms that are set again instead of being made anew.
//!
//! Nearly every alarm watches over something that ends in time: it is set and taken back again and again. A new timer locks the
//! timers of the runtime, and wakes the thread that waits for events when none is set there for an earlier time; a timer that is put off does neither
//! (`tokio::time::Sleep::reset`). So an alarm that was taken back stays set, and its thread keeps it for whoever wants the next one.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::{Handle, Id},
    time::{Instant, Sleep},
};

use crate::limits;

/// Completes after some time. Dropping it takes it back.
pub(super) struct Alarm {
    /// None where that is so far away that it never comes.
    at: Option<Instant>,
    /// None before anybody waits, for many who might wait find what they wait for; and once it has gone off.
    timer: Option<Timer>,
    is_over: bool,
}

/// A timer, and the runtime that moves it.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    runtime: Id,
}

thread_local! {
    /// Those that were taken back on this thread.
    static KEPT: RefCell<Vec<Timer>> = const { RefCell::new(Vec::new()) };
}

/// An alarm that goes off after this time. It panics, as a timer of tokio does, when it is waited for outside of a runtime.
pub(super) fn set(after: Duration) -> Alarm {
    Alarm { at: Instant::now().checked_add(after), timer: None, is_over: false }
}

impl Timer {
    fn set(at: Option<Instant>) -> Self {
        let runtime = Handle::current().id();
        match at.and_then(|at| Some((taken(runtime)?, at))) {
            Some((mut timer, at)) => {
                timer.sleep.as_mut().reset(at);
                timer
            }
            None => {
                let sleep = at.map_or_else(|| tokio::time::sleep(Duration::MAX), tokio::time::sleep_until);
                Self { sleep: Box::pin(sleep), runtime }
            }
        }
    }
}

/// A kept one of this runtime. Those that went off unheard are thrown away, and so are those of a runtime that is gone, which lets all its
/// timers go off. None is dropped while the list is borrowed: with its waker other alarms may go.
fn taken(runtime: Id) -> Option<Timer> {
    let pop = || KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
    std::iter::from_fn(pop).find(|timer| timer.runtime == runtime && !timer.sleep.is_elapsed())
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let Self { at, timer, is_over } = &mut *self;
        if !*is_over {
            ready!(timer.get_or_insert_with(|| Timer::set(*at)).sleep.as_mut().poll(task));
            *is_over = true;
        }
        Poll::Ready(())
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let Some(timer) = self.timer.take().filter(|timer| !timer.sleep.is_elapsed()) else { return };
        let mut timer = Some(timer);
        // A thread that ends keeps nothing. What has no room is dropped after the list is given back.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < limits::ALARMS_KEPT {
                kept.extend(timer.take());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::{Arc, Mutex},
        task::{Wake, Waker},
    };

    use futures::poll;
    use tokio::{runtime::Builder, time::advance};

    use super::*;

    fn kept() -> usize {
        KEPT.with_borrow(Vec::len)
    }

    async fn taken_back(seconds: u64) {
        assert!(poll!(&mut set(Duration::from_secs(seconds))).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_is_set_again_goes_off_at_its_new_time() {
        for (first, second) in [(10, 20), (10, 4)] {
            taken_back(first).await;
            assert_eq!(kept(), 1);
            drop(set(Duration::from_secs(second)));
            assert_eq!(kept(), 1, "nobody waited");
            let mut alarm = set(Duration::from_secs(second));
            assert!(poll!(&mut alarm).is_pending());
            assert_eq!(kept(), 0, "it is the same one");
            advance(Duration::from_secs(second - 1)).await;
            assert!(poll!(&mut alarm).is_pending());
            advance(Duration::from_secs(1)).await;
            assert!(poll!(&mut alarm).is_ready());
            drop(alarm);
            assert_eq!(kept(), 0, "one that went off is not kept");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_went_off_unheard_is_not_used_again() {
        taken_back(10).await;
        advance(Duration::from_secs(11)).await;
        let mut alarm = set(Duration::from_secs(5));
        assert!(poll!(&mut alarm).is_pending());
        advance(Duration::from_secs(5)).await;
        assert!(poll!(&mut alarm).is_ready());
    }

    #[test]
    fn no_runtime_gets_an_alarm_of_another() {
        let [one, two] = [0; 2].map(|_| Builder::new_current_thread().enable_time().build().unwrap());
        one.block_on(taken_back(60));
        two.block_on(async {
            assert!(poll!(&mut set(Duration::from_secs(60))).is_pending());
            assert_eq!(kept(), 1, "that of the first is gone, that of the second is kept");
        });
        drop(two);
        one.block_on(async {
            assert!(poll!(&mut set(Duration::from_secs(60))).is_pending());
            assert_eq!(kept(), 1, "now it is the other way round");
            set(Duration::from_millis(1)).await;
            assert_eq!(kept(), 0);
        });
        one.block_on(taken_back(60));
        drop(one);
        assert!(KEPT.with_borrow(|kept| kept.iter().all(|timer| timer.sleep.is_elapsed())), "its runtime is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_keeps_so_many_and_no_more() {
        let mut alarms = Vec::new();
        for _ in 0..=limits::ALARMS_KEPT {
            let mut alarm = set(Duration::from_secs(9));
            assert!(poll!(&mut alarm).is_pending());
            alarms.push(alarm);
        }
        drop(alarms);
        assert_eq!(kept(), limits::ALARMS_KEPT);
    }

    /// Its task goes with its last waker, and with it another alarm.
    struct Holder(#[allow(dead_code, reason = "held to be dropped")] Mutex<Alarm>);

    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn what_goes_with_an_alarm_may_take_back_another() {
        let [one, two] = [0; 2].map(|_| Builder::new_current_thread().enable_time().build().unwrap());
        one.block_on(async {
            let [mut inner, mut outer] = [0; 2].map(|_| set(Duration::from_secs(60)));
            assert!(poll!(&mut inner).is_pending());
            let holder = Waker::from(Arc::new(Holder(Mutex::new(inner))));
            assert!(Pin::new(&mut outer).poll(&mut Context::from_waker(&holder)).is_pending());
        });
        assert_eq!(kept(), 1, "the outer one, with the waker that holds the inner one");
        two.block_on(set(Duration::from_millis(1)));
        assert_eq!(kept(), 0);
    }

    #[tokio::test]
    async fn a_time_that_never_comes_is_waited_for() {
        taken_back(60).await;
        assert!(poll!(&mut set(Duration::MAX)).is_pending());
    }
}
