//! Tests against the real thing: Redis, Docker, processes. `./test.sh` installs what they need.

<<<<<<< HEAD
mod process;
=======
mod compose;
>>>>>>> 1a72723 (Add the compose target)
mod script;
mod support;
