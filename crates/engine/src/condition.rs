//! condition (being built).
