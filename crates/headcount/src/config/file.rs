//! The configuration as written: `headcount.yaml`.
