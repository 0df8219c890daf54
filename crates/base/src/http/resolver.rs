//! The addresses of a host, in the order in which they are tried.
//!
//! The client tries the next address by itself while it connects. What fails later, at TLS or before a byte of a response, it does not:
//! then the caller says so, and the next connection begins with the next address.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Asks the system for addresses, and remembers by host with which one to begin. Clones share what they remember.
#[derive(Clone, Default)]
pub(super) struct RotatingResolver {
    /// How many addresses of a host are tried last: one more after each failure. Only hosts that failed are in it.
    offsets: Arc<Mutex<HashMap<String, usize>>>,
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    known: Option<(Arc<str>, Arc<[SocketAddr]>)>,
}

impl RotatingResolver {
    /// One host has these addresses; nobody is asked for them.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn knowing(host: &str, found: &[SocketAddr]) -> Self {
        Self { known: Some((host.into(), found.into())), ..Self::default() }
    }

    fn offsets(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of the addresses of `host` are tried last, as things stand.
    pub(super) fn start_offset(&self, host: &str) -> usize {
        self.offsets().get(&host.to_ascii_lowercase()).copied().unwrap_or(0)
    }

    /// The address that came first for `host` when its offset was `offset` is tried last from now on. Several requests that were under
    /// way to it together tell of one failure.
    pub(super) fn failed(&self, host: &str, offset: usize) {
        let mut offsets = self.offsets();
        let current = offsets.entry(host.to_ascii_lowercase()).or_insert(0);
        if *current == offset {
            *current = offset.wrapping_add(1);
        }
    }

    async fn find(&self, host: &str) -> std::io::Result<Vec<SocketAddr>> {
        #[cfg(any(test, debug_assertions, feature = "testing"))]
        if let Some((name, found)) = &self.known
            && **name == *host
        {
            return Ok(found.to_vec());
        }
        Ok(tokio::net::lookup_host((host, 0)).await?.collect())
    }
}

impl Resolve for RotatingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let mut found = this.find(name.as_str()).await?;
            if !found.is_empty() {
                let first = this.start_offset(name.as_str()) % found.len();
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
    async fn the_address_that_failed_is_tried_last() {
        let all: Vec<SocketAddr> = (1..=3).map(|n| SocketAddr::from(([192, 0, 2, n], 0))).collect();
        let resolver = RotatingResolver::knowing("models.test", &all);
        let order = || async { resolver.resolve("models.test".parse().unwrap()).await.unwrap().collect::<Vec<_>>() };
        assert_eq!(order().await, all, "as they are found");
        assert_eq!(order().await, all, "while nothing fails");
        let before = resolver.start_offset("models.test");
        resolver.failed("Models.test", before);
        assert_eq!(order().await, [all[1], all[2], all[0]]);
        resolver.failed("models.test", before);
        assert_eq!(
            order().await,
            [all[1], all[2], all[0]],
            "a request under way to the same address tells nothing new"
        );
        for _ in 0..2 {
            resolver.failed("models.test", resolver.start_offset("models.test"));
        }
        assert_eq!(order().await, all, "all of them in turn");
    }
}
