//! Which TCP connections belong to which process group.

use std::collections::HashMap;
use std::net::SocketAddr;

/// The local addresses of the TCP sockets of the given process groups.
pub fn peers_of_groups(_groups: &[u32]) -> HashMap<SocketAddr, u32> {
    HashMap::new()
}
