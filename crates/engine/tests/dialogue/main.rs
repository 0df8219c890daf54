//! Tests of the dialogue engine through its public interface: conversations as data (`cases/*.yml`), and random
//! conversations: `invariants` checks what must hold after every turn, `random` generates projects and conversations
//! and checks them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// `rng.of(…)` returns a reference into any list: without the `*` its type is not known.
#![allow(clippy::explicit_auto_deref)]
// Tests read their counts and seeds from the environment and print them.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

mod cases;
mod confirmed_writes;
mod driver;
mod invariants;
mod limits;
mod project;
mod properties;
mod random;
mod stored_state;
mod turn_state;
