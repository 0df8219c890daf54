//! The runtime and the binary, from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod conversations;
mod kills;
mod trials;
