//! web/mod.
