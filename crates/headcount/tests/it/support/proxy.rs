//! A way to a server that can be blocked: stands before the socket of the Docker daemon and fails
//! as a network or a broken daemon does.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is nobody: the connection ends at once.
    Down,
    /// It never answers.
    Slow,
    /// It answers each request with this status.
    Answers(u16),
    /// It answers each request with this status and this message.
    Says(u16, &'static str),
    /// The same, but only to the first request.
    SaysOnce(u16, &'static str),
    /// It answers half a head.
    Cut,
}

/// The fault, and the part of the request's first line that it is for.
type Faults = Arc<Mutex<Option<(String, Fault)>>>;

/// A proxy; it ends with the test's process.
pub struct Proxy {
    folder: tempfile::TempDir,
    faults: Faults,
}

impl Proxy {
    /// A proxy to the socket of `host`, `unix:///path`.
    pub fn start(host: &str) -> Self {
        let server = PathBuf::from(host.strip_prefix("unix://").expect("a socket"));
        let folder = tempfile::tempdir().expect("no temporary folder");
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let faults = Faults::default();
        let shared = Arc::clone(&faults);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, faults) = (server.clone(), Arc::clone(&shared));
                thread::spawn(move || serve(client, &server, &faults));
            }
        });
        Self { folder, faults }
    }

    /// Its address.
    pub fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("s").display())
    }

    /// From now on all requests fail so, or none.
    pub fn fault(&self, fault: Option<Fault>) {
        *self.faults.lock().unwrap() = fault.map(|fault| (String::new(), fault));
    }

    /// From now on requests fail so whose method and path contain `part`.
    pub fn fault_on(&self, part: &str, fault: Fault) {
        *self.faults.lock().unwrap() = Some((part.to_owned(), fault));
    }
}

/// One connection: its requests one after the other, each with its head read.
fn serve(mut client: UnixStream, server: &PathBuf, faults: &Faults) {
    let mut link: Option<UnixStream> = None;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = client.read(&mut buffer).unwrap_or(0);
        if read == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let first = text.lines().next().unwrap_or_default();
        let is_head = first.ends_with("HTTP/1.1");
        let fault =
            faults.lock().unwrap().clone().filter(|(part, _)| is_head && first.contains(part));
        match fault.map(|(_, fault)| fault) {
            None => {}
            Some(Fault::Down) => break,
            Some(Fault::Slow) => thread::sleep(Duration::from_secs(60)),
            Some(Fault::Answers(status)) => {
                answer(&mut client, status, "no, says the proxy");
                break;
            }
            Some(Fault::Says(status, message)) => {
                answer(&mut client, status, message);
                break;
            }
            Some(Fault::SaysOnce(status, message)) => {
                *faults.lock().unwrap() = None;
                answer(&mut client, status, message);
                break;
            }
            Some(Fault::Cut) => {
                let _ = client.write_all(b"HTTP/1.1 200 O");
                break;
            }
        }
        let server = match &mut link {
            Some(server) => server,
            None => {
                let Ok(server) = UnixStream::connect(server) else { break };
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                link.insert(server)
            }
        };
        if server.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    if let Some(server) = link {
        let _ = server.shutdown(Shutdown::Both);
    }
}

fn answer(client: &mut UnixStream, status: u16, message: &str) {
    let body = format!("{{\"message\":\"{message}\"}}");
    let head = format!("HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n");
    let rest = format!("Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    let _ = client.write_all((head + &rest).as_bytes());
}
