//! The dialogue engine from outside: conversations as data (`cases/*.yml`), and properties over random ones: `sound` says
//! what must hold after every turn, `storm` makes up projects and conversations and holds them to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// `chance.of(…)` gives a reference into any list: without the star its type is not known.
#![allow(clippy::explicit_auto_deref)]
// Tests are told their counts and seeds by the environment, and say them.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

mod cases;
mod driver;
mod limits;
mod project;
mod properties;
mod rows;
mod sound;
mod storm;
mod turns;
mod writes;
