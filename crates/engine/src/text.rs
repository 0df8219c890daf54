//! text (being built).
