//! project (being built).
