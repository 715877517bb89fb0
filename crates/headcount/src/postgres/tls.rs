//! TLS towards a PostgreSQL: whose certificates are believed, by the names that libpq gives it.

use std::sync::Arc;

use anyhow::Context;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Whether there is TLS and whose certificates are believed; from the least careful on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// None.
    Disable,
    /// Where the server has it; anyone is believed.
    Prefer,
    /// Always; anyone is believed, so nobody listens in, but it may be anybody.
    Require,
    /// Always; a known authority is believed, whatever name its certificate is for.
    VerifyCa,
    /// Always; a known authority is believed for this very host.
    VerifyFull,
}

/// Believes more than the usual verifier does.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    /// Without one, anyone is believed.
    authority: Option<Arc<WebPkiServerVerifier>>,
}

impl Mode {
    /// By its name in a url, `sslmode`.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        match name {
            "disable" => Ok(Self::Disable),
            "allow" | "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => {
                Err("has an sslmode that is not known; write disable, prefer, require, verify-ca \
                      or verify-full"
                    .into())
            }
        }
    }

    /// What the client library is told: the rest is for the certificates' verifier.
    pub(super) const fn ssl_mode(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }

    /// What makes connections so, with the authorities in `ca` (PEM) or those of the system, and with
    /// our own certificate and its key (PEM) for a server that asks for them.
    pub(super) fn connector(
        self,
        ca: Option<&[u8]>,
        own: Option<(&[u8], &[u8])>,
    ) -> anyhow::Result<MakeRustlsConnect> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        if self == Self::VerifyFull {
            return identified(builder.with_root_certificates(roots(ca)?), own);
        }
        let authority = match self {
            Self::VerifyCa => {
                let (roots, provider) = (Arc::new(roots(ca)?), Arc::clone(&provider));
                Some(WebPkiServerVerifier::builder_with_provider(roots, provider).build()?)
            }
            _ => None,
        };
        let verifier = Arc::new(Lenient { provider, authority });
        identified(builder.dangerous().with_custom_certificate_verifier(verifier), own)
    }
}

fn identified(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    own: Option<(&[u8], &[u8])>,
) -> anyhow::Result<MakeRustlsConnect> {
    let Some((certificate, key)) = own else {
        return Ok(MakeRustlsConnect::new(builder.with_no_client_auth()));
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .context("cert_file holds something that is no certificate")?;
    // The error of a key that is not understood names no part of it.
    let key = PrivateKeyDer::from_pem_slice(key).context("key_file holds no unencrypted key")?;
    let config = builder
        .with_client_auth_cert(chain, key)
        .context("cert_file and key_file are no certificate with its key")?;
    Ok(MakeRustlsConnect::new(config))
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn roots(ca: Option<&[u8]>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = ca {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.context("ca_file holds something that is no certificate")?)?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    anyhow::ensure!(!roots.is_empty(), "no certificate authority is known; set `ca_file`");
    Ok(roots)
}
