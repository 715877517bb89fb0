//! What several tests share.

<<<<<<< HEAD
pub mod wait;
pub mod workers;
=======
pub mod docker;
>>>>>>> 1a72723 (Add the compose target)
