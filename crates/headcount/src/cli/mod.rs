//! cli/mod.
