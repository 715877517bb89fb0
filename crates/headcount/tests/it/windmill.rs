//! The Windmill queue against a real PostgreSQL with the tables of every era.

mod eras;
mod failures;
mod rights;
mod shared;
mod transcripts;
mod whole;
