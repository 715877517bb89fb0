//! Certificates of an authority of our own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

fn openssl(folder: &Path, args: &str) {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(args.split(' '));
    let output = command.output().expect("no openssl: run ./test.sh first");
    assert!(output.status.success(), "openssl {args}: {output:?}");
}

/// An authority and two certificates it signed: `server` for 127.0.0.1, `client`.
pub fn certificates(folder: &Path) {
    openssl(
        folder,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca",
    );
    std::fs::write(folder.join("ext"), "subjectAltName=IP:127.0.0.1").unwrap();
    for name in ["server", "client"] {
        let request = format!("-keyout {name}.key -out {name}.csr -subj /CN={name}");
        openssl(folder, &format!("req -newkey rsa:2048 -nodes {request}"));
        let sign =
            format!("-in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem");
        openssl(folder, &format!("x509 -req -days 2 -extfile ext {sign}"));
    }
}

/// Shows the certificate `server`, and asks for none.
pub fn acceptor(folder: &Path) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
