//! Failpoints: named points at which a test lets the process crash. They exist in debug builds and with the feature `failpoints`; in a
//! release build they compile to nothing.
//!
//! `SEGUE_FAILPOINT=C04` crashes at the first hit of the failpoint C04, `C04@3` at the third. Before it crashes, the process writes the
//! name of the failpoint to the file named by `SEGUE_FAILPOINT_PROOF` and syncs it to disk, so that a test can distinguish a hit from
//! another exit. The process aborts: no destructor runs and no buffer is flushed, as in a real crash.
//!
//! `SEGUE_TEST_CLOCK_AHEAD=120` moves the wall clock of the process 120 seconds ahead, so that a test can recover a turn later without
//! waiting.

/// Crashes if the failpoint `name` is armed and this is its hit.
#[cfg(not(any(feature = "failpoints", debug_assertions)))]
#[inline(always)]
pub fn hit(_name: &str) {}

/// Crashes if the failpoint `name` is armed and this is its hit.
#[cfg(any(feature = "failpoints", debug_assertions))]
pub fn hit(name: &str) {
    static ARMED: std::sync::OnceLock<Option<armed::Armed>> = std::sync::OnceLock::new();
    if let Some(armed) = ARMED.get_or_init(armed::from_environment) {
        armed.pass(name);
    }
}

/// As [`hit`], with a name that is made only if a failpoint is armed.
pub fn hit_named(name: impl FnOnce() -> String) {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    if armed::is_any() {
        hit(&name());
    }
    #[cfg(not(any(feature = "failpoints", debug_assertions)))]
    let _ = name;
}

/// Crashes after `after`, if the failpoint `name` is armed; otherwise never completes. For a crash while a request is sent and its
/// response has not arrived.
pub async fn while_waiting(name: &str, after: std::time::Duration) {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    if armed::is_armed(name) {
        tokio::time::sleep(after).await;
        hit(name);
    }
    let _ = (name, after);
    std::future::pending().await
}

/// By how many microseconds the wall clock of this process is ahead, for tests; 0 in a release build.
pub fn clock_offset_micros() -> i64 {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let offset = {
        static OFFSET: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
        let read = || crate::environment::variable("SEGUE_TEST_CLOCK_AHEAD")?.trim().parse::<i64>().ok();
        *OFFSET.get_or_init(|| read().unwrap_or_default().saturating_mul(1_000_000))
    };
    #[cfg(not(any(feature = "failpoints", debug_assertions)))]
    let offset = 0;
    offset
}

/// Whether the failpoint `name` is armed; never in a release build.
pub fn is_armed(name: &str) -> bool {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let set = armed::is_armed(name);
    #[cfg(not(any(feature = "failpoints", debug_assertions)))]
    let set = {
        let _ = name;
        false
    };
    set
}

/// A writer that, if the failpoint `name` is armed, writes half of the first buffer that contains `marker` and then crashes. Otherwise it
/// writes everything to `writer`.
pub fn torn_write<W: tokio::io::AsyncWrite + Unpin>(
    name: &'static str,
    marker: &'static str,
    writer: W,
) -> impl tokio::io::AsyncWrite + Unpin {
    #[cfg(any(feature = "failpoints", debug_assertions))]
    let writer = torn_write::TornWriter { writer, name, marker, is_armed: armed::is_armed(name) };
    let _ = (name, marker);
    writer
}

#[cfg(any(feature = "failpoints", debug_assertions))]
mod torn_write {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::AsyncWrite;

    /// See [`super::torn_write`].
    pub(super) struct TornWriter<W> {
        pub(super) writer: W,
        pub(super) name: &'static str,
        pub(super) marker: &'static str,
        pub(super) is_armed: bool,
    }

    impl<W: AsyncWrite + Unpin> AsyncWrite for TornWriter<W> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let marker = self.marker.as_bytes();
            if !self.is_armed || !bytes.windows(marker.len().max(1)).any(|part| part == marker) {
                return Pin::new(&mut self.writer).poll_write(cx, bytes);
            }
            let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
            let written = std::task::ready!(Pin::new(&mut self.writer).poll_write(cx, half))?;
            super::hit(self.name);
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.writer).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.writer).poll_shutdown(cx)
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

    /// The armed failpoint.
    pub(super) struct Armed {
        name: String,
        /// Remaining hits, including the one that crashes.
        left: AtomicU64,
        proof: Option<String>,
    }

    /// Whether the failpoint `name` is armed.
    pub(super) fn is_armed(name: &str) -> bool {
        from_environment().is_some_and(|armed| armed.name == name)
    }

    /// Whether any failpoint is armed.
    pub(super) fn is_any() -> bool {
        from_environment().is_some()
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
                    // If the file cannot be written, the test that waits for it fails; there is nothing else to do here.
                    let _ = File::create(path).and_then(|mut file| {
                        file.write_all(name.as_bytes())?;
                        file.sync_all()
                    });
                }
                std::process::abort();
            }
        }

        fn is_due(&self, name: &str) -> bool {
            // 0 means that another thread is already crashing; the count must not wrap.
            name == self.name
                && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Ok(1)
        }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

        use super::*;

        #[test]
        fn the_nth_hit_of_the_armed_failpoint_crashes() {
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
