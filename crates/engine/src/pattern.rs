//! pattern (being built).
