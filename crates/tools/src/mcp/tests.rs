//! The client against a scripted server, over pipes and over HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod auth;
mod calls;
mod fake;
mod faults;
mod http;
mod listing;
mod requests;
