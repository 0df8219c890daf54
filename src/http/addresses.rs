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
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

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

    /// The address that was tried first for `host` is tried last from now on.
    pub(super) fn failed(&self, host: &str) {
        if let Some(counter) = self.counter(host) {
            counter.fetch_add(1, Ordering::Relaxed);
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
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let mut found = this.find(host).await?;
            let first = this.counter(host).map_or(0, |counter| counter.load(Ordering::Relaxed));
            if !found.is_empty() {
                let first = first % found.len();
                found.rotate_left(first);
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
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
        addresses.failed("Models.test");
        assert_eq!(order().await, [all[1], all[2], all[0]]);
        addresses.failed("models.test");
        addresses.failed("models.test");
        assert_eq!(order().await, all, "all of them in turn");
    }
}
