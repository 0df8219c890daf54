//! conversation (being built).
