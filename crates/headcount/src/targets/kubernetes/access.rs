//! How a cluster is found: by the service account of the pod that this process runs in, or by
//! kubeconfig files.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};

use crate::limits::{CERTIFICATE_BYTES, KUBERNETES_CONNECT};
use crate::regular_file;
use crate::targets::kubernetes::config::KubernetesConfig;

/// How a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// By the service account of the pod that this process runs in.
    InCluster {
        /// The folder with its token.
        folder: PathBuf,
        /// The API server.
        server: String,
    },
    /// By kubeconfig files, the first one counts most.
    Kubeconfig {
        /// The files.
        files: Vec<PathBuf>,
        /// The context, if not the current one.
        context: Option<String>,
    },
}

impl Access {
    /// How the cluster of `config` is reached, whose relative paths start at `base`.
    pub(super) fn of(config: &KubernetesConfig, base: &Path) -> anyhow::Result<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let context = config.context.clone();
        if let Some(file) = &config.kubeconfig {
            return Ok(Self::Kubeconfig { files: vec![base.join(file)], context });
        }
        if let (Some(host), true) = (set("KUBERNETES_SERVICE_HOST"), context.is_none()) {
            let host = host.to_string_lossy().into_owned();
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let port = set("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".into());
            let server = format!("https://{host}:{}", port.to_string_lossy());
            return Ok(Self::InCluster { folder: config.service_account.clone(), server });
        }
        let files: Vec<PathBuf> = match set("KUBECONFIG") {
            Some(paths) => {
                std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty()).collect()
            }
            None => {
                set("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect()
            }
        };
        if !files.iter().any(|file| file.try_exists().unwrap_or(true)) {
            let pod = match set("KUBERNETES_SERVICE_HOST") {
                Some(_) => "`context` asks for a kubeconfig",
                None => "no cluster is around this process (KUBERNETES_SERVICE_HOST is not set)",
            };
            let shown: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            let kubeconfig = match shown.is_empty() {
                true => "no kubeconfig is known".to_owned(),
                false => format!("there is no kubeconfig {}", shown.join(", ")),
            };
            bail!("{pod}, and {kubeconfig}: set `kubeconfig` or KUBECONFIG, or run in a pod");
        }
        Ok(Self::Kubeconfig { files, context })
    }

    /// The API server and the namespace that is meant if none is named.
    pub(super) fn place(&self) -> anyhow::Result<(String, String)> {
        match self {
            Self::InCluster { folder, server } => {
                let file = folder.join("namespace");
                let named = regular_file::read(&file, 1_024).ok();
                let named = named.and_then(|bytes| String::from_utf8(bytes).ok());
                let named =
                    named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                let why = || {
                    format!(
                        "no service account in {}: let its token be mounted \
                     (automountServiceAccountToken), or set `kubeconfig`",
                        folder.display()
                    )
                };
                Ok((server.clone(), named.with_context(why)?))
            }
            Self::Kubeconfig { context, .. } => {
                let all = self.kubeconfig()?;
                let context = context.as_ref().or(all.current_context.as_ref());
                let name =
                    context.context("the kubeconfig has no current context: set `context`")?;
                let context = all.contexts.iter().find(|c| c.name == *name);
                let Some(context) = context.and_then(|c| c.context.as_ref()) else {
                    let known: Vec<_> = all.contexts.iter().map(|c| c.name.as_str()).collect();
                    bail!("the kubeconfig has no context {name:?}; it has: {}", known.join(", "));
                };
                let cluster = all.clusters.iter().find(|c| c.name == context.cluster);
                let server = cluster.and_then(|c| c.cluster.as_ref()?.server.clone());
                let missing = || format!("the kubeconfig has no server for {:?}", context.cluster);
                let namespace = context.namespace.clone().unwrap_or_else(|| "default".into());
                Ok((server.with_context(missing)?, namespace))
            }
        }
    }

    /// The kubeconfig files, merged. What is wrong in one of them is not quoted: it may be a secret.
    fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        let Self::Kubeconfig { files, .. } = self else { bail!("there is no kubeconfig") };
        let mut merged = Kubeconfig::default();
        for file in files {
            let shown = file.display();
            let bytes = regular_file::read(file, CERTIFICATE_BYTES)
                .with_context(|| format!("kubeconfig {shown} cannot be read"))?;
            if bytes.len() as u64 > CERTIFICATE_BYTES {
                bail!("kubeconfig {shown} is too large");
            }
            let read = Kubeconfig::read_from(file).and_then(|next| merged.clone().merge(next));
            let Ok(read) = read else { bail!("kubeconfig {shown} is not one that makes sense") };
            merged = read;
        }
        Ok(merged)
    }

    /// What a client needs. Certificates other than the given ones are not trusted.
    pub(super) async fn config(&self) -> anyhow::Result<Config> {
        let mut config = match self {
            Self::InCluster { folder, server } => {
                let certificate = folder.join("ca.crt");
                let mut config = Config::new(server.parse().context("the server's address")?);
                config.root_cert_file = Some(certificate.clone());
                let bytes = regular_file::read(&certificate, CERTIFICATE_BYTES);
                let bytes = bytes.with_context(|| format!("{}", certificate.display()))?;
                config.root_cert = Some(certificates(&bytes)?);
                let token_file = Some(folder.join("token").to_string_lossy().into_owned());
                config.auth_info = AuthInfo { token_file, ..AuthInfo::default() };
                config
            }
            Self::Kubeconfig { context, .. } => {
                let all = self.kubeconfig()?;
                must_be_files(&all, context.as_ref())?;
                let options = KubeConfigOptions { context: context.clone(), ..<_>::default() };
                let made = Config::from_custom_kubeconfig(all, &options).await;
                match made {
                    Ok(config) => config,
                    Err(_) => bail!("the kubeconfig names a certificate or a key that is unusable"),
                }
            }
        };
        config.connect_timeout = Some(KUBERNETES_CONNECT);
        // Nobody reaches this machine by a proxy, whatever HTTPS_PROXY says.
        let host = config.cluster_url.host().unwrap_or_default();
        if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
            config.proxy_url = None;
        }
        // A retry that nobody sees would make a slow server slower.
        config.default_retry = false;
        Ok(config)
    }
}

/// The certificates in a PEM file.
fn certificates(pem: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.ok().filter(|all| !all.is_empty()).context("ca.crt holds no certificate")?;
    Ok(all.into_iter().map(|certificate| certificate.to_vec()).collect())
}

/// Certificates and keys that the context names are read later, by somebody who would wait for a pipe.
fn must_be_files(all: &Kubeconfig, context: Option<&String>) -> anyhow::Result<()> {
    let name = context.or(all.current_context.as_ref());
    let context = all.contexts.iter().find(|c| Some(&c.name) == name);
    let Some(context) = context.and_then(|c| c.context.as_ref()) else { return Ok(()) };
    let cluster = all.clusters.iter().find(|c| c.name == context.cluster);
    let cluster = cluster.and_then(|c| c.cluster.as_ref());
    let user = all.auth_infos.iter().find(|u| Some(&u.name) == context.user.as_ref());
    let user = user.and_then(|u| u.auth_info.as_ref());
    let files = [
        cluster.and_then(|cluster| cluster.certificate_authority.as_ref()),
        user.and_then(|user| user.client_certificate.as_ref()),
        user.and_then(|user| user.client_key.as_ref()),
    ];
    for file in files.into_iter().flatten() {
        let bytes = regular_file::read(Path::new(file), CERTIFICATE_BYTES)
            .with_context(|| format!("{file} cannot be read"))?;
        if bytes.len() as u64 > CERTIFICATE_BYTES {
            bail!("{file} is too large for a certificate or a key");
        }
    }
    Ok(())
}
