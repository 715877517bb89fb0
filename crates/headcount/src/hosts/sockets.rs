//! Which process group a network connection belongs to: a broker knows a worker by the address its
//! connections come from, the `process` target by its process group.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::hosts::processes;

/// Open files of one process are looked at up to this many.
const FILES_PER_PROCESS: usize = 65_536;
/// A table of connections is read up to this, bytes: some 100,000 connections.
const TABLE_BYTES: u64 = 16 << 20;
/// The state of an open connection in the table: `TCP_ESTABLISHED`.
const ESTABLISHED: &str = "01";

/// The local addresses of every open TCP connection of these process groups, each with its group.
///
/// Walks `/proc` once: for once a look, not for each connection.
pub fn peers_of_groups(groups: &[u32]) -> HashMap<SocketAddr, u32> {
    let wanted: HashSet<u32> = groups.iter().copied().collect();
    let mut owners: HashMap<u64, u32> = HashMap::new();
    let mut networks: HashMap<PathBuf, u32> = HashMap::new();
    if wanted.is_empty() {
        return HashMap::new();
    }
    for process in processes::all().into_iter().filter(|p| wanted.contains(&p.group)) {
        let inodes = sockets_of(process.pid);
        if inodes.is_empty() {
            continue;
        }
        owners.extend(inodes.into_iter().map(|inode| (inode, process.group)));
        if let Ok(network) = std::fs::read_link(format!("/proc/{}/ns/net", process.pid)) {
            networks.entry(network).or_insert(process.pid);
        }
    }
    let tables = networks.values().flat_map(|pid| ["tcp", "tcp6"].map(|t| (*pid, t)));
    tables.flat_map(|(pid, table)| peers_in(&format!("/proc/{pid}/net/{table}"), &owners)).collect()
}

/// The inodes of a process' sockets.
fn sockets_of(pid: u32) -> Vec<u64> {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links =
        files.take(FILES_PER_PROCESS).flatten().filter_map(|f| std::fs::read_link(f.path()).ok());
    let inode = |link: PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    };
    links.filter_map(inode).collect()
}

fn peers_in(table: &str, owners: &HashMap<u64, u32>) -> Vec<(SocketAddr, u32)> {
    let Ok(file) = std::fs::File::open(table) else { return Vec::new() };
    let lines = BufReader::new(file.take(TABLE_BYTES)).lines().map_while(Result::ok);
    lines.filter_map(|line| peer(&line, owners)).collect()
}

/// One line: `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...`.
fn peer(line: &str, owners: &HashMap<u64, u32>) -> Option<(SocketAddr, u32)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if *fields.get(3)? != ESTABLISHED {
        return None;
    }
    let group = owners.get(&fields.get(9)?.parse().ok()?)?;
    Some((address(fields.get(1)?)?, *group))
}

/// `0100007F:1F90`: 32-bit words in the machine's byte order, then the port. An IPv4 address that
/// is written as IPv6 comes out as IPv4, as brokers show it.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = (0..ip.len() / 8)
        .map(|i| u32::from_str_radix(ip.get(i * 8..i * 8 + 8)?, 16).ok())
        .collect::<Option<Vec<u32>>>()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn reads_addresses_as_the_kernel_writes_them() {
        let table = [
            ("0100007F:1F90", "127.0.0.1:8080"),
            ("0000000000000000FFFF00000100007F:0050", "127.0.0.1:80"),
            ("00000000000000000000000001000000:C350", "[::1]:50000"),
        ];
        for (text, meant) in table {
            assert_eq!(address(text), Some(meant.parse().unwrap()), "{text}");
        }
        for nonsense in ["", "0100007F", "0100007F:", "01:0050", "xx00007F:1F90", "ä100007:1F90"] {
            assert_eq!(address(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn finds_the_group_of_a_connection_held_by_a_grandchild() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        // bash connects; the sleep it starts inherits the connection and stays in the group.
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; sleep 60 & exec sleep 60");
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (_connection, peer) = server.accept().unwrap();
        let found = peers_of_groups(&[child.id()]);
        let strangers = peers_of_groups(&[std::process::id()]);
        processes::signal_group(child.id(), rustix::process::Signal::KILL);
        child.wait().unwrap();
        assert_eq!(found.get(&peer), Some(&child.id()));
        assert_eq!(strangers.get(&peer), None);
        assert_eq!(peers_of_groups(&[]), HashMap::new());
    }
}
