//! Shared fixtures of the tests: a clock that follows tokio's paused time, and a context.

use std::{
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;

use super::ToolCallContext;
use segue_base::{
    clock::{Clock, Deadline, Timestamp},
    context::CallContext,
};

/// A clock on tokio's time, which tests pause.
pub(super) struct PausedClock(Instant);

impl PausedClock {
    pub(super) fn shared() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

#[async_trait]
impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        tokio::time::sleep(until.0.saturating_sub(self.elapsed())).await
    }
}

/// A context with a timeout of one minute.
pub(super) fn context() -> ToolCallContext {
    ToolCallContext::new(CallContext::new(PausedClock::shared(), Duration::from_secs(60)), "c", "k")
}

/// The log output of a future, which must not move to another thread.
pub(crate) async fn log_of<T>(work: impl Future<Output = T>) -> String {
    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    // With only one subscriber, tracing caches for a callsite that a thread without subscriber reaches first that it is disabled
    // (https://docs.rs/tracing-core/latest/tracing_core/callsite/index.html). A global subscriber keeps all of them enabled.
    static ENABLE_ALL: Once = Once::new();
    ENABLE_ALL.call_once(|| {
        let sink = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        let _ = tracing::subscriber::set_global_default(sink);
    });
    let guard = tracing::subscriber::set_default(subscriber);
    work.await;
    drop(guard);
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}
