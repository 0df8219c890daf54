//! The addresses of a host, in the order in which they are tried.
//!
//! The client tries the next address by itself while it connects. What fails later, at TLS or before a byte of an answer,
//! it does not: then whoever asked says so, and the next connection begins with the next address.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tower::Service;

/// Counters of failures. Hosts share them by chance, which costs at most another order of addresses.
const COUNTERS: usize = 64;

/// Finds addresses, and remembers where to begin. Clones are the same one.
#[derive(Clone)]
pub(super) struct Addresses {
    failures: Arc<[AtomicUsize; COUNTERS]>,
    #[cfg(test)]
    known: Option<(Arc<str>, Arc<[SocketAddr]>)>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            failures: Arc::new([const { AtomicUsize::new(0) }; COUNTERS]),
            #[cfg(test)]
            known: None,
        }
    }
}

impl Addresses {
    /// One host has these addresses; nobody is asked for them.
    #[cfg(test)]
    pub(super) fn knowing(host: &str, found: &[SocketAddr]) -> Self {
        Self { known: Some((host.into(), found.into())), ..Self::default() }
    }

    /// How many of the addresses of `host` are tried last, as things stand.
    pub(super) fn passed_over(&self, host: &str) -> usize {
        self.counter(host).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// The address that was tried first for `host` when so many were passed over is tried last from now on. Several that were
    /// under way to it together tell of one failure.
    pub(super) fn failed(&self, host: &str, passed_over: usize) {
        if let Some(counter) = self.counter(host) {
            let next = passed_over.wrapping_add(1);
            let _ = counter.compare_exchange(passed_over, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn counter(&self, host: &str) -> Option<&AtomicUsize> {
        let mut hasher = DefaultHasher::new();
        host.to_ascii_lowercase().hash(&mut hasher);
        self.failures.get(usize::try_from(hasher.finish() % COUNTERS as u64).ok()?)
    }

    async fn find(&self, host: &str) -> std::io::Result<Vec<SocketAddr>> {
        #[cfg(test)]
        if let Some((name, found)) = &self.known
            && **name == *host
        {
            return Ok(found.to_vec());
        }
        Ok(tokio::net::lookup_host((host, 0)).await?.collect())
    }

    async fn in_order(&self, host: &str) -> std::io::Result<std::vec::IntoIter<SocketAddr>> {
        let mut found = self.find(host).await?;
        if !found.is_empty() {
            let first = self.passed_over(host) % found.len();
            found.rotate_left(first);
        }
        Ok(found.into_iter())
    }
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move { Ok(Box::new(this.in_order(name.as_str()).await?) as Addrs) })
    }
}

impl Service<dns::Name> for Addresses {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, std::io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.in_order(name.as_str()).await })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[tokio::test]
    async fn who_failed_is_tried_last() {
        let all: Vec<SocketAddr> = (1..=3).map(|n| SocketAddr::from(([192, 0, 2, n], 0))).collect();
        let addresses = Addresses::knowing("models.test", &all);
        let order = || async { addresses.resolve("models.test".parse().unwrap()).await.unwrap().collect::<Vec<_>>() };
        assert_eq!(order().await, all, "as they are found");
        assert_eq!(order().await, all, "while nothing fails");
        let before = addresses.passed_over("models.test");
        addresses.failed("Models.test", before);
        assert_eq!(order().await, [all[1], all[2], all[0]]);
        addresses.failed("models.test", before);
        assert_eq!(order().await, [all[1], all[2], all[0]], "who was under way to the same one tells nothing new");
        for _ in 0..2 {
            addresses.failed("models.test", addresses.passed_over("models.test"));
        }
        assert_eq!(order().await, all, "all of them in turn");
    }
}
