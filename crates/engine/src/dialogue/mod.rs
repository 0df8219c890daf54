//! dialogue (being built).
