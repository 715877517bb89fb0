//! A way to a back end that speaks HTTP/1.1, through which a fault can be put on it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Fault;
use crate::support::docker::Docker;

/// So many changes pass before [`Fault::HalfDone`] fails at the rest.
const HALF: u32 = 2;

/// The way, which leads from a place of its own to the back end.
pub struct Door {
    front: Place,
    back: Place,
    fault: watch::Sender<Option<Fault>>,
    open: Option<JoinHandle<()>>,
}

/// Where somebody listens.
#[derive(Clone)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Door {
    /// A door with a free port that leads to a server.
    pub async fn before(server: SocketAddr) -> Self {
        Self::open(Place::Tcp(([127, 0, 0, 1], 0).into()), Place::Tcp(server)).await
    }

    /// A door in `folder` that leads to a Docker daemon.
    pub async fn before_docker(docker: &Docker, folder: &Path) -> Self {
        let socket = docker.socket().into();
        Self::open(Place::Unix(folder.join("door.sock")), Place::Unix(socket)).await
    }

    async fn open(front: Place, back: Place) -> Self {
        let mut door = Self { front, back, fault: watch::Sender::new(None), open: None };
        door.listen().await;
        door
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        match &self.front {
            Place::Unix(path) => format!("unix://{}", path.display()),
            Place::Tcp(address) => address.to_string(),
        }
    }

    /// Puts a fault on the back end, or takes it away. Connections that are open end.
    pub async fn set(&mut self, fault: Option<Fault>) {
        if let Some(open) = self.open.take() {
            open.abort();
            let _ = open.await;
        }
        self.fault.send_replace(fault);
        if fault != Some(Fault::Down) {
            self.listen().await;
        }
    }

    /// Puts a fault on a back end that makes each change by one request: it cannot be half done,
    /// which is `false`.
    pub async fn set_undivided(&mut self, fault: Fault) -> bool {
        let possible = fault != Fault::HalfDone;
        if possible {
            self.set(Some(fault)).await;
        }
        possible
    }

    async fn listen(&mut self) {
        let listener = match &mut self.front {
            Place::Unix(path) => {
                let _ = std::fs::remove_file(&path);
                Listener::Unix(UnixListener::bind(path).expect("the path is ours"))
            }
            Place::Tcp(address) => {
                let bound = TcpListener::bind(*address).await.expect("the port is ours");
                *address = bound.local_addr().expect("it is bound");
                Listener::Tcp(bound)
            }
        };
        let (back, fault) = (self.back.clone(), self.fault.subscribe());
        let changes = Arc::new(AtomicU32::new(0));
        self.open = Some(tokio::spawn(async move {
            loop {
                let client: Box<dyn Stream> = match &listener {
                    Listener::Unix(unix) => match unix.accept().await {
                        Ok((stream, _)) => Box::new(stream),
                        Err(_) => continue,
                    },
                    Listener::Tcp(tcp) => match tcp.accept().await {
                        Ok((stream, _)) => Box::new(stream),
                        Err(_) => continue,
                    },
                };
                let (back, mut fault) = (back.clone(), fault.clone());
                let changes = Arc::clone(&changes);
                tokio::spawn(async move {
                    let now = *fault.borrow_and_update();
                    tokio::select! {
                        _ = fault.changed() => {}
                        _ = serve(client, &back, now, &changes) => {}
                    }
                });
            }
        }));
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.abort();
        }
    }
}

impl Place {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp(address) => Box::new(TcpStream::connect(address).await?),
        })
    }
}

async fn serve(
    mut client: Box<dyn Stream>,
    back: &Place,
    fault: Option<Fault>,
    changes: &AtomicU32,
) -> io::Result<()> {
    match fault {
        None => {
            io::copy_bidirectional(&mut client, &mut back.connect().await?).await?;
        }
        Some(Fault::Slow | Fault::Down) => {
            io::copy(&mut client, &mut io::sink()).await?;
            std::future::pending::<()>().await;
        }
        Some(Fault::Refuses) => refuse(&mut client, "403 Forbidden").await?,
        Some(Fault::Fails) => refuse(&mut client, "500 Internal Server Error").await?,
        Some(Fault::HalfDone) => half(client, back, changes).await?,
    }
    Ok(())
}

/// Answers one request.
async fn refuse(client: &mut Box<dyn Stream>, status: &str) -> io::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    match client.read(&mut chunk).await? {
        0 => Ok(()),
        _ => answer(client, status).await,
    }
}

async fn answer(client: &mut (dyn Stream + '_), status: &str) -> io::Result<()> {
    let body = format!("{{\"message\":\"a test says {status}\"}}");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    client.write_all((head + &body).as_bytes()).await?;
    client.shutdown().await
}

/// Passes everything on until too much was changed. A request begins where a read does: clients
/// wait for each answer.
async fn half(client: Box<dyn Stream>, back: &Place, changes: &AtomicU32) -> io::Result<()> {
    let back = back.connect().await?;
    let (mut from_back, mut to_back) = io::split(back);
    let (mut from_client, mut to_client) = io::split(client);
    let refused = async {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let read = from_client.read(&mut chunk).await?;
            if read == 0 {
                return Ok::<_, io::Error>(false);
            }
            if is_change(&chunk[..read]) && changes.fetch_add(1, Ordering::Relaxed) >= HALF {
                return Ok(true);
            }
            to_back.write_all(&chunk[..read]).await?;
        }
    };
    let refused = tokio::select! {
        refused = refused => refused?,
        _ = io::copy(&mut from_back, &mut to_client) => false,
    };
    if refused {
        answer(&mut from_client.unsplit(to_client), "500 Internal Server Error").await?;
    }
    Ok(())
}

fn is_change(chunk: &[u8]) -> bool {
    let line = chunk.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let changes = ["POST ", "PUT ", "PATCH ", "DELETE "].iter().any(|m| line.starts_with(m));
    changes && !line.contains("/wait")
}
