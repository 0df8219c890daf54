//! The dialogue engine from outside: conversations as data (`cases/*.yml`), and properties over random ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cases;
mod driver;
mod limits;
mod project;
mod properties;
mod rows;
