//! Named places where a process may die, for the kill tests. They are in debug builds, which
//! `cargo test` makes, and behind the feature `failpoints`; in a release a hit compiles to nothing.
//!
//! `SEGUE_FAILPOINT=C04` dies at the first hit of C04, `C04@3` at the third. Before it dies the process writes the name of the
//! point to the file named by `SEGUE_FAILPOINT_PROOF` and forces it to the disk, so that a test can tell a hit from
//! another end. No destructor runs and no buffer is flushed: what is not durable is lost, as in a real crash.
//!
//! `SEGUE_FAILPOINT=defect:NAME` takes one protection back, so that the fault harness (`tests/outside/`) can show that it notices.
//!
//! `SEGUE_TEST_CLOCK_AHEAD=120` moves the wall clock of the process two minutes on, so that a test can take a turn over later
//! without waiting.

/// Passes the point `name`, or dies there.
#[cfg(not(any(feature = "failpoints", debug_assertions)))]
#[inline(always)]
pub fn hit(_name: &str) {}

/// Passes the point `name`, or dies there.
#[cfg(any(feature = "failpoints", debug_assertions))]
pub fn hit(name: &str) {
    static ARMED: std::sync::OnceLock<Option<armed::Armed>> = std::sync::OnceLock::new();
    if let Some(armed) = ARMED.get_or_init(armed::from_environment) {
        armed.pass(name);
    }
}

/// Dies at the point `name` once `after` has passed, when the point is armed; otherwise never ends. For points in the middle of a
/// wait for somebody else: "the request is out, the answer is not in".
pub async fn while_waiting(name: &str, after: std::time::Duration) {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    if armed::named(name) {
        tokio::time::sleep(after).await;
        hit(name);
    }
    let _ = (name, after);
    std::future::pending().await
}

/// How many microseconds the wall clock of this process is ahead, for tests; 0 in a release.
pub fn clock_ahead() -> i64 {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let ahead = {
        static AHEAD: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
        let read = || crate::environment::variable("SEGUE_TEST_CLOCK_AHEAD")?.trim().parse::<i64>().ok();
        *AHEAD.get_or_init(|| read().unwrap_or_default().saturating_mul(1_000_000))
    };
    #[cfg(not(any(feature = "failpoints", debug_assertions)))]
    let ahead = 0;
    ahead
}

/// Whether the point `name` is the one that is set; never in a release.
pub fn is_set(name: &str) -> bool {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let set = armed::named(name);
    #[cfg(not(any(feature = "failpoints", debug_assertions)))]
    let set = {
        let _ = name;
        false
    };
    set
}

/// A pipe that, when the point `name` is armed, takes half of the first write that holds `mark` and dies there: "the request is half
/// written". Otherwise the pipe as it is.
pub fn torn<W: tokio::io::AsyncWrite + Unpin>(
    name: &'static str,
    mark: &'static str,
    pipe: W,
) -> impl tokio::io::AsyncWrite + Unpin {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let pipe = torn::Torn { pipe, name, mark, armed: armed::named(name) };
    let _ = (name, mark);
    pipe
}

#[cfg(any(feature = "failpoints", debug_assertions))]
mod torn {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::AsyncWrite;

    /// See [`super::torn`].
    pub(super) struct Torn<W> {
        pub(super) pipe: W,
        pub(super) name: &'static str,
        pub(super) mark: &'static str,
        pub(super) armed: bool,
    }

    impl<W: AsyncWrite + Unpin> AsyncWrite for Torn<W> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let mark = self.mark.as_bytes();
            if !self.armed || !bytes.windows(mark.len().max(1)).any(|part| part == mark) {
                return Pin::new(&mut self.pipe).poll_write(cx, bytes);
            }
            let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
            let written = std::task::ready!(Pin::new(&mut self.pipe).poll_write(cx, half))?;
            super::hit(self.name);
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.pipe).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.pipe).poll_shutdown(cx)
        }
    }
}

#[cfg(any(feature = "failpoints", debug_assertions))]
mod armed {
    use std::{
        fs::File,
        io::Write,
        sync::atomic::{AtomicU64, Ordering},
    };

    use crate::environment;

    /// The point that is set to kill.
    pub(super) struct Armed {
        name: String,
        /// Hits that are left, the deadly one included.
        left: AtomicU64,
        proof: Option<String>,
    }

    /// Whether the point `name` is the one that is set.
    pub(super) fn named(name: &str) -> bool {
        from_environment().is_some_and(|armed| armed.name == name)
    }

    pub(super) fn from_environment() -> Option<Armed> {
        parse(&environment::variable("SEGUE_FAILPOINT")?, environment::variable("SEGUE_FAILPOINT_PROOF"))
    }

    fn parse(text: &str, proof: Option<String>) -> Option<Armed> {
        let (name, hits) = text.split_once('@').unwrap_or((text, "1"));
        let left = AtomicU64::new(hits.trim().parse().ok().filter(|hits| *hits > 0)?);
        Some(Armed { name: name.trim().to_owned(), left, proof })
    }

    impl Armed {
        pub(super) fn pass(&self, name: &str) {
            if self.is_due(name) {
                if let Some(path) = &self.proof {
                    // A proof that cannot be written fails the test that waits for it; there is nobody to tell here.
                    let _ = File::create(path).and_then(|mut file| {
                        file.write_all(name.as_bytes())?;
                        file.sync_all()
                    });
                }
                std::process::abort();
            }
        }

        fn is_due(&self, name: &str) -> bool {
            // 0 means that another thread is dying already; the count must not wrap.
            name == self.name
                && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Ok(1)
        }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

        use super::*;

        #[test]
        fn the_nth_hit_of_the_named_point_is_due() {
            let armed = parse("C04@2", None).unwrap();
            assert_eq!(
                ["C05", "C04", "C05", "C04", "C04"].map(|name| armed.is_due(name)),
                [false, false, false, true, false]
            );
            assert!(parse("C04", None).unwrap().is_due("C04"));
            assert!(parse("C04@0", None).is_none());
        }
    }
}
