//! DNS resolution that rotates the addresses of a host after failures.
//!
//! While connecting, the HTTP client tries the next address by itself. It does not after a later failure (in the TLS handshake, or before
//! the first byte of a response). Then the caller reports the failure, and the next connection starts with the next address.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Resolves names with the operating system, and remembers for each host the address to start with. Clones share this state.
#[derive(Clone, Default)]
pub(super) struct RotatingResolver {
    /// By how many positions the addresses of a host are rotated: one more after each failure. Contains only hosts with failures.
    offsets: Arc<Mutex<HashMap<String, usize>>>,
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    resolved: Option<(Arc<str>, Arc<[SocketAddr]>)>,
}

impl RotatingResolver {
    /// A resolver that knows the addresses of one host.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn with_resolved(host: &str, addresses: &[SocketAddr]) -> Self {
        Self { resolved: Some((host.into(), addresses.into())), ..Self::default() }
    }

    fn offsets(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By how many positions the addresses of `host` are currently rotated.
    pub(super) fn start_offset(&self, host: &str) -> usize {
        self.offsets().get(&host.to_ascii_lowercase()).copied().unwrap_or(0)
    }

    /// Reports a failure of the address that was first when the offset of `host` was `offset`; it is tried last from now on. Several
    /// concurrent requests that fail with the same offset count as one failure.
    pub(super) fn report_failure(&self, host: &str, offset: usize) {
        let mut offsets = self.offsets();
        let current = offsets.entry(host.to_ascii_lowercase()).or_insert(0);
        if *current == offset {
            *current = offset.wrapping_add(1);
        }
    }

    async fn find(&self, host: &str) -> std::io::Result<Vec<SocketAddr>> {
        #[cfg(any(test, debug_assertions, feature = "testing"))]
        if let Some((name, addresses)) = &self.resolved
            && **name == *host
        {
            return Ok(addresses.to_vec());
        }
        Ok(tokio::net::lookup_host((host, 0)).await?.collect())
    }
}

impl Resolve for RotatingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let mut addresses = this.find(name.as_str()).await?;
            if !addresses.is_empty() {
                let first = this.start_offset(name.as_str()) % addresses.len();
                addresses.rotate_left(first);
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
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
        let resolver = RotatingResolver::with_resolved("models.test", &all);
        let order = || async { resolver.resolve("models.test".parse().unwrap()).await.unwrap().collect::<Vec<_>>() };
        assert_eq!(order().await, all, "as resolved");
        assert_eq!(order().await, all, "unchanged without a failure");
        let before = resolver.start_offset("models.test");
        resolver.report_failure("Models.test", before);
        assert_eq!(order().await, [all[1], all[2], all[0]]);
        resolver.report_failure("models.test", before);
        assert_eq!(order().await, [all[1], all[2], all[0]], "a concurrent failure of the same address counts once");
        for _ in 0..2 {
            resolver.report_failure("models.test", resolver.start_offset("models.test"));
        }
        assert_eq!(order().await, all, "after each of them failed");
    }
}
