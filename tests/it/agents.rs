//! Agents from outside, over whole assistants: what no model can make them do, what waits for a yes across a restart, hooks.

mod confirm;
mod custom;
mod hooks;
mod pins;
mod vectors;
mod worst_case;
