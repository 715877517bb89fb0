//! The headcount program.

fn main() {}
