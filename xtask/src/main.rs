//! Repository rules and the jobs of the gate.
fn main() {}
