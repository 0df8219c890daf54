//! The dialogue engine from outside: conversations as data (`cases/*.yml`), and properties over random ones: `sound` says
//! what must hold after every turn, `storm` makes up projects and conversations and holds them to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cases;
mod driver;
mod limits;
mod project;
mod properties;
mod rows;
mod sound;
mod storm;
