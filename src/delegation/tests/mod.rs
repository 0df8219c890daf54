//! Delegation with a scripted model, tools in this process, and a clock that is advanced by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod background;
mod budgets;
mod criteria;
mod harness;
mod lead;
mod records;
mod results;
mod runs;
mod skills;
mod tools;
