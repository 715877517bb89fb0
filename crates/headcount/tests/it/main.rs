//! Tests against the real thing: Redis, Docker, processes. `./test.sh` installs what they need.

mod compose;
mod process;
mod script;
mod cli;
mod config;
mod process;
mod replay;
mod support;
