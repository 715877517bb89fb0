//! What the configuration file says of a Nomad target, completed by Nomad's own environment
//! variables.

use std::path::{Path, PathBuf};

use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Place;
use crate::secret::Secret;
use crate::targets::Target;
use crate::targets::nomad::Nomad;
use crate::targets::nomad::client::{Address, Client};

/// Where an agent listens unless told otherwise.
const STANDARD_ADDRESS: &str = "http://127.0.0.1:4646";

/// The allocations of a task group of a Nomad job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NomadConfig {
    /// The id of the job. Required.
    pub job: String,
    /// The task group whose allocations are the workers. Required.
    pub group: String,
    /// Where an agent is: `http://host:port`, `https://host:port` or `unix:///path`. Default:
    /// `NOMAD_ADDR`, else `http://127.0.0.1:4646`.
    pub address: Option<String>,
    /// The ACL token; best as `${ENV}`. Default: `NOMAD_TOKEN`.
    pub token: Option<Secret>,
    /// A file with the ACL token, read again for each request: a workload identity's is renewed.
    pub token_file: Option<PathBuf>,
    /// The namespace of the job. Default: `NOMAD_NAMESPACE`, else `default`.
    pub namespace: Option<String>,
    /// The region of the job. Default: `NOMAD_REGION`, else the agent's own.
    pub region: Option<String>,
    /// TLS, for an address with `https://`.
    pub tls: NomadTls,
    /// Scale although a soft-mandatory Sentinel policy forbids it (Nomad Enterprise).
    pub policy_override: bool,
    /// Refuse to shrink where it is not certain who goes. Nomad removes the allocations with the
    /// highest numbers; another one goes instead only if Nomad sees in time that it was stopped.
    pub require_victims: bool,
}

/// TLS towards Nomad.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NomadTls {
    /// The authority that signed the agent's certificate, PEM; no other is believed then. Default:
    /// `NOMAD_CACERT`, else those of the system.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate, PEM, where the agent asks for one. Default: `NOMAD_CLIENT_CERT`.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM. Default: `NOMAD_CLIENT_KEY`.
    pub key_file: Option<PathBuf>,
    /// The name in the agent's certificate if it is not that of the address, as
    /// `server.global.nomad`. Default: `NOMAD_TLS_SERVER_NAME`.
    pub server_name: Option<String>,
    /// Believe any certificate. Whoever sits in between can then read the token.
    pub insecure: bool,
}

impl NomadConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut bad = |key: &str, what: String| problems.push((key.to_owned(), what));
        for (key, value, of) in
            [("job", &self.job, "the job"), ("group", &self.group, "its task group")]
        {
            if value.is_empty() {
                bad(key, format!("is missing: write the name of {of}"));
            } else if value.chars().any(|c| c.is_control() || c.is_whitespace()) {
                bad(key, format!("{value:?} must not have spaces in it"));
            }
        }
        if let Some(Err(what)) = self.address.as_deref().map(Address::parse) {
            bad("address", what);
        }
        for (key, value) in [("namespace", &self.namespace), ("region", &self.region)] {
            match value.as_deref() {
                Some("") => bad(key, "is empty: leave it out for the default".into()),
                Some("*") => bad(key, "must be a single one".into()),
                _ => {}
            }
        }
        if self.token.is_some() && self.token_file.is_some() {
            bad("token_file", "has no meaning beside token; remove one of them".into());
        }
        let breaks = |token: &Secret| token.expose().chars().any(char::is_control);
        if self.token.as_ref().is_some_and(breaks) {
            bad("token", "has a line break or another control character in it".into());
        }
        let NomadTls { cert_file, key_file, server_name, .. } = &self.tls;
        match (cert_file, key_file) {
            (Some(_), None) => bad("tls.key_file", "is missing: cert_file needs its key".into()),
            (None, Some(_)) => bad("tls.cert_file", "is missing: key_file is its key".into()),
            _ => {}
        }
        if let Some(name) = server_name
            && Url::parse(&format!("https://{name}/")).is_err()
        {
            bad("tls.server_name", format!("{name:?} is no host name"));
        }
        let plain = self.address.as_deref().is_some_and(|text| text.starts_with("http://"));
        if plain && self.tls != NomadTls::default() {
            bad("tls", "has no effect with an address that starts with http://".into());
        }
        problems
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        let environment = |name: &str| std::env::var(name).ok();
        let config = self.completed(&place.base_dir, environment);
        let client = Client::new(&config, &place.base_dir)?;
        Ok(Box::new(Nomad::new(config, client, place.group.clone())))
    }

    /// With what Nomad's environment variables say where the file says nothing. Paths in the file
    /// start at `base`, those of the environment at the working directory.
    pub(super) fn completed(
        &self,
        base: &Path,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let or = |own: &Option<String>, name: &str| own.clone().or_else(|| variable(name));
        let path = |own: &Option<PathBuf>, name: &str| {
            let own = own.as_ref().map(|path| base.join(path));
            own.or_else(|| variable(name).map(PathBuf::from))
        };
        let own_token = self.token.clone().filter(|token| !token.expose().is_empty());
        let token = match &self.token_file {
            Some(_) => None,
            None => own_token.or_else(|| Some(Secret::from(variable("NOMAD_TOKEN")?.as_str()))),
        };
        let address = or(&self.address, "NOMAD_ADDR");
        Self {
            address: Some(address.unwrap_or_else(|| STANDARD_ADDRESS.into())),
            token,
            namespace: or(&self.namespace, "NOMAD_NAMESPACE").or_else(|| Some("default".into())),
            region: or(&self.region, "NOMAD_REGION"),
            tls: NomadTls {
                ca_file: path(&self.tls.ca_file, "NOMAD_CACERT"),
                cert_file: path(&self.tls.cert_file, "NOMAD_CLIENT_CERT"),
                key_file: path(&self.tls.key_file, "NOMAD_CLIENT_KEY"),
                server_name: or(&self.tls.server_name, "NOMAD_TLS_SERVER_NAME"),
                insecure: self.tls.insecure
                    || variable("NOMAD_SKIP_VERIFY").is_some_and(|v| v == "true" || v == "1"),
            },
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_named_by_its_key() {
        let config = NomadConfig {
            job: "my job".into(),
            address: Some("nomad:4646".into()),
            token: Some(Secret::from("a")),
            token_file: Some("b".into()),
            namespace: Some("*".into()),
            tls: NomadTls {
                cert_file: Some("c".into()),
                server_name: Some("a b".into()),
                ..NomadTls::default()
            },
            ..NomadConfig::default()
        };
        let keys: Vec<String> = config.problems().into_iter().map(|(key, _)| key).collect();
        let expected = [
            "job",
            "group",
            "address",
            "namespace",
            "token_file",
            "tls.key_file",
            "tls.server_name",
        ];
        assert_eq!(keys, expected);
        let plain = NomadConfig {
            job: "a".into(),
            group: "b".into(),
            address: Some("http://nomad:4646".into()),
            tls: NomadTls { ca_file: Some("ca".into()), ..NomadTls::default() },
            ..NomadConfig::default()
        };
        assert_eq!(plain.problems()[0].0, "tls");
        let broken = NomadConfig {
            token: Some(Secret::from("hush\n")),
            address: Some("http://u:hush@nomad:4646".into()),
            tls: NomadTls::default(),
            ..plain
        };
        let problems = broken.problems();
        assert_eq!(
            problems.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
            ["address", "token"]
        );
        assert!(!format!("{problems:?}").contains("hush"), "{problems:?}");
    }

    #[test]
    fn the_file_goes_before_the_environment() {
        let environment = |name: &str| {
            let value = match name {
                "NOMAD_ADDR" => "https://there:4646",
                "NOMAD_TOKEN" => "from outside",
                "NOMAD_NAMESPACE" => "theirs",
                "NOMAD_REGION" => "",
                "NOMAD_CACERT" => "ca.pem",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let given = |config: &NomadConfig| {
            let whole = config.completed(Path::new("/etc/headcount"), environment);
            let token = whole.token.as_ref().map(|token| token.expose().to_owned());
            (whole.address, token, whole.namespace, whole.region, whole.tls.ca_file)
        };
        let text = |text: &str| Some(text.to_owned());
        let (ca, own_ca) = (Some("ca.pem".into()), Some("/etc/headcount/own.pem".into()));
        let expected =
            (text("https://there:4646"), text("from outside"), text("theirs"), None, ca.clone());
        assert_eq!(given(&NomadConfig::default()), expected);
        let own = NomadConfig {
            address: text("http://here:1"),
            token_file: Some("token".into()),
            namespace: text("ours"),
            region: text("eu"),
            tls: NomadTls { ca_file: Some("own.pem".into()), ..NomadTls::default() },
            ..NomadConfig::default()
        };
        let expected = (text("http://here:1"), None, text("ours"), text("eu"), own_ca);
        assert_eq!(given(&own), expected);
        let nothing = NomadConfig::default().completed(Path::new(""), |_| None);
        assert_eq!(nothing.address.as_deref(), Some(STANDARD_ADDRESS));
        assert_eq!(nothing.namespace.as_deref(), Some("default"));
    }
}
