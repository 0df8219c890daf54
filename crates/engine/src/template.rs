//! template (being built).
