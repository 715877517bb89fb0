//! What `headcount demo` shows: an embedded job table, real workers that take jobs from it, and a
//! bursty load.

mod folder;
pub mod load;
pub mod stage;
pub mod table;
pub mod worker;
