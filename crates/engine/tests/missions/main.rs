//! Tests of the mission core through its public interface: the rules of the graph, the scheduler, the tools of commanders with recorded
//! results (`tools/*.yml` and `tools/*.json`), and runs that continue from any point.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// The environment says whether recorded results are written.
#![allow(clippy::disallowed_methods)]

mod budgets;
mod continued;
mod definitions;
mod driver;
mod graph;
mod handed_over;
mod inputs;
mod learnings;
mod objectives;
mod people;
mod plans;
mod queries;
mod recorded;
mod reruns;
mod rounds;
mod scheduler;
