//! The HTTP server of a stand-in.

use std::net::SocketAddr;

use axum::Router;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// It listens until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    app: Router,
    tls: Option<TlsAcceptor>,
    /// Empty while nobody listens.
    task: JoinSet<()>,
}

impl Server {
    /// Starts it on a free port.
    pub async fn start(app: Router) -> Self {
        Self::with(app, None).await
    }

    /// Starts it on a free port, behind TLS if it is said how.
    pub async fn with(app: Router, tls: Option<TlsAcceptor>) -> Self {
        let address = ([127, 0, 0, 1], 0).into();
        let mut server = Self { address, app, tls, task: JoinSet::new() };
        server.listen().await;
        server
    }

    async fn listen(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let (app, tls) = (self.app.clone(), self.tls.clone());
        self.task.spawn(async move {
            match tls {
                Some(acceptor) => axum::serve(Tls { listener, acceptor }, app).await.unwrap(),
                None => axum::serve(listener, app).await.unwrap(),
            }
        });
    }
}

#[cfg(any(feature = "aws", feature = "kubernetes"))]
impl Server {
    /// From now on nobody listens.
    pub fn stop(&mut self) {
        self.task = JoinSet::new();
    }

    /// Listens again, where it listened before.
    pub async fn resume(&mut self) {
        if self.task.is_empty() {
            self.listen().await;
        }
    }
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else { continue };
            // A client that does not trust us goes away here.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
