//! Each analysis finds what it is for at the right place, and leaves alone what may be meant.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
