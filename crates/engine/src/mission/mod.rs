//! The mission core: what a run of a mission is, what may happen in it next, and the tools of its commanders.
//!
//! | module | content |
//! | --- | --- |
//! | [`event`] | what happened in a run; the only record of it |
//! | [`state`] | the state of a run, computed from its events |
//! | [`unit`](mod@unit) | one unit of work: what one commander does |
//! | [`handed_over`] | what a run may read of the run before it |
//! | [`graph`] | the order of the tasks in a run |
//! | [`scheduler`] | what to start, to cancel or to end next |
//! | [`inputs`] | the inputs of a run and its first event |
//! | [`objective`] | the objectives of tasks |
//! | [`context`] | the tasks before a task, for the prompt of its commander |
//! | [`dataset`] | datasets and their items |
//! | [`items`] | the items of an iteration |
//! | [`routes`] | what follows a completed task |
//! | [`sizes`] | how many units a run still needs |
//! | [`rerun`] | what a rerun from a task takes over |
//! | [`rounds`] | the rounds of a repeated task |
//! | [`plan`] | what a run would do at most, without a model |
//! | [`query`] | filters, order, pages and aggregates over outputs |
//! | [`budget`] | warnings and breaches of budgets |
//! | [`learnings`] | what iterations pass on to later ones |
//! | [`tools`] | the tools of commanders and agents, as functions |
//!
//! Nothing here waits, reads a clock, draws a random number or calls a model: times, ids and seeds are arguments, and what needs a model
//! or a person is returned as a request. The runtime stores events and performs decisions and requests.

pub mod budget;
pub mod context;
pub mod dataset;
pub mod event;
pub mod graph;
pub mod handed_over;
pub mod inputs;
pub mod items;
pub mod learnings;
pub mod objective;
pub mod plan;
pub mod query;
pub mod rerun;
pub mod rounds;
pub mod routes;
pub mod scheduler;
pub mod sizes;
pub mod state;
pub mod tools;
pub mod unit;
