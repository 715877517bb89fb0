//! store/mod.
