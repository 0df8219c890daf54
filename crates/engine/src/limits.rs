//! limits (being built).
