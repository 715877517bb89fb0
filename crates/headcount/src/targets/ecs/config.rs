//! What the configuration file says of an ECS target. Built in or not, the keys are known, so that a
//! file that needs what was left out is told so.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::registry::not_built_in;
use crate::secret;

/// The tasks of an Amazon ECS service.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EcsConfig {
    /// The cluster's name or ARN.
    pub cluster: String,
    /// The service's name or ARN.
    pub service: String,
    /// The region. Default: that of an ARN above, else `AWS_REGION`, the profile's, or the
    /// instance's.
    pub region: Option<String>,
    /// Where the API is. Default: AWS' own for the region, or what `AWS_ENDPOINT_URL_ECS` and
    /// `AWS_ENDPOINT_URL` say. One that is not AWS' own stands in for every service of AWS, also for
    /// assuming a role.
    pub endpoint: Option<String>,
    /// The profile in the shared files of the AWS tools. Default: `AWS_PROFILE`, else `default`.
    pub profile: Option<String>,
    /// A shared credentials file of its own, relative to this file. Default:
    /// `AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`. With this or with `profile` the keys
    /// in the environment do not count.
    pub credentials_file: Option<PathBuf>,
    /// A role to assume, by ARN.
    pub role_arn: Option<String>,
    /// Protect tasks that hold a job from scale-in, before the number is lowered.
    pub protect: bool,
    /// Protect every task but the chosen ones, and refuse to shrink where that does not work.
    pub require_victims: bool,
}

impl Default for EcsConfig {
    fn default() -> Self {
        Self {
            cluster: "default".into(),
            service: String::new(),
            region: None,
            endpoint: None,
            profile: None,
            credentials_file: None,
            role_arn: None,
            protect: true,
            require_victims: false,
        }
    }
}

/// The parts of an ARN: `arn:partition:service:region:account:resource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arn<'a> {
    service: &'a str,
    region: &'a str,
    account: &'a str,
    resource: &'a str,
}

impl<'a> Arn<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(6, ':');
        let (arn, _partition) = (parts.next()?, parts.next()?);
        let (service, region) = (parts.next()?, parts.next()?);
        let (account, resource) = (parts.next()?, parts.next()?);
        (arn == "arn").then_some(Self { service, region, account, resource })
    }

    /// The same if it names one of these, with what comes after `kind/`.
    fn of(text: &'a str, kind: &str) -> Option<(Self, &'a str)> {
        let arn = Self::parse(text).filter(|arn| arn.service == "ecs")?;
        Some((arn, arn.resource.strip_prefix(kind)?.strip_prefix('/')?))
    }
}

impl EcsConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut bad = |key: &str, what: String| problems.push((key.to_owned(), what));
        if cfg!(not(feature = "aws")) {
            bad("", not_built_in("aws"));
        }
        if self.service.is_empty() {
            bad("service", "is missing; `aws ecs list-services` shows them".into());
        } else if !is_name(self.service_name()) {
            bad("service", format!("{:?} is neither a name nor an ARN of a service", self.service));
        }
        if !is_name(self.cluster_name()) {
            bad("cluster", format!("{:?} is neither a name nor an ARN of a cluster", self.cluster));
        }
        if let Some(region) = self.region.as_deref().filter(|region| !is_region(region)) {
            bad("region", format!("{region:?} is no region such as `eu-central-1`"));
        }
        if let (Some(region), Some(other)) = (&self.region, self.region_of_arn())
            && region != other
        {
            bad("region", format!("is {region}, but the ARN names {other}; remove it"));
        }
        if self.endpoint.as_deref().is_some_and(secret::has_login) {
            bad("endpoint", "must not hold a name or a password; use credentials_file".into());
        } else if let Some(endpoint) = &self.endpoint
            && !is_endpoint(endpoint)
        {
            bad("endpoint", format!("{endpoint:?} is no address such as `https://host:port`"));
        }
        if let Some(role) = &self.role_arn {
            let arn = Arn::parse(role);
            if !arn.is_some_and(|arn| arn.service == "iam" && arn.resource.starts_with("role/")) {
                bad("role_arn", format!("{role:?} is no `arn:aws:iam::ACCOUNT:role/NAME`"));
            }
        }
        if self.require_victims && !self.protect {
            bad("require_victims", "needs `protect: true`: nothing else makes ECS choose".into());
        }
        problems
    }

    /// The cluster's name, without the rest of an ARN.
    pub(crate) fn cluster_name(&self) -> &str {
        Arn::of(&self.cluster, "cluster").map_or(&self.cluster, |(_, name)| name)
    }

    /// The service's name, without the rest of an ARN: `service/CLUSTER/NAME`, or an old `service/NAME`.
    pub(crate) fn service_name(&self) -> &str {
        let of_arn = Arn::of(&self.service, "service");
        of_arn.map_or(&self.service, |(_, rest)| rest.rsplit('/').next().unwrap_or(rest))
    }

    /// The region that an ARN names.
    pub(crate) fn region_of_arn(&self) -> Option<&str> {
        let service = Arn::of(&self.service, "service").map(|(arn, _)| arn.region);
        service.or_else(|| Arn::of(&self.cluster, "cluster").map(|(arn, _)| arn.region))
    }

    /// Whether it is asked on this machine: no proxy of the environment stands between.
    #[cfg(feature = "aws")]
    pub(crate) fn is_near(&self) -> bool {
        let uri = self.endpoint.as_ref().and_then(|at| at.parse::<axum::http::Uri>().ok());
        let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or("");
        let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }

    /// What tells this account from others, as far as the file says.
    #[cfg(any(feature = "aws", test))]
    pub(crate) fn account(&self) -> &str {
        let of_arn = |text| Arn::parse(text).map(|arn| arn.account).filter(|a| !a.is_empty());
        [self.service.as_str(), &self.cluster, self.role_arn.as_deref().unwrap_or("")]
            .into_iter()
            .find_map(of_arn)
            .or(self.profile.as_deref())
            .unwrap_or("")
    }
}

/// A name as ECS has them for clusters and services.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=255).contains(&name.len()) && name.chars().all(plain)
}

fn is_region(region: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (3..=32).contains(&region.len()) && region.chars().all(plain)
}

fn is_endpoint(endpoint: &str) -> bool {
    let uri = endpoint.parse::<axum::http::Uri>();
    let good = |uri: axum::http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some()
            && uri.query().is_none()
    };
    uri.is_ok_and(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, service: &str) -> EcsConfig {
        EcsConfig { cluster: cluster.into(), service: service.into(), ..EcsConfig::default() }
    }

    #[test]
    fn names_and_arns_mean_the_same() {
        let cluster = "arn:aws:ecs:eu-west-1:123456789012:cluster/main";
        let service = "arn:aws:ecs:eu-west-1:123456789012:service/main/worker";
        let old = "arn:aws:ecs:eu-west-1:123456789012:service/worker";
        for config in [config("main", "worker"), config(cluster, service), config(cluster, old)] {
            assert_eq!((config.cluster_name(), config.service_name()), ("main", "worker"));
        }
        assert_eq!(config(cluster, "worker").region_of_arn(), Some("eu-west-1"));
        assert_eq!(config("main", service).account(), "123456789012");
        assert_eq!(config("main", "worker").region_of_arn(), None);
        let profile = EcsConfig { profile: Some("prod".into()), ..config("main", "worker") };
        assert_eq!(profile.account(), "prod");
    }

    #[test]
    fn nonsense_is_named_by_its_key() {
        let keys = |config: EcsConfig| {
            let keys: Vec<String> = config.problems().into_iter().map(|(key, _)| key).collect();
            keys.into_iter().filter(|key| !key.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(keys(config("main", "worker")), [""; 0]);
        assert_eq!(keys(EcsConfig::default()), ["service"]);
        let all = EcsConfig {
            region: Some("Frankfurt am Main".into()),
            endpoint: Some("localhost:4566".into()),
            role_arn: Some("arn:aws:iam::123456789012:user/me".into()),
            protect: false,
            require_victims: true,
            ..config("a b", "arn:aws:sqs:eu-west-1:1:service/x")
        };
        let expected = ["service", "cluster", "region", "endpoint", "role_arn", "require_victims"];
        assert_eq!(keys(all), expected);
        let service = "arn:aws:ecs:eu-west-1:123456789012:service/main/worker";
        let elsewhere = EcsConfig { region: Some("us-east-1".into()), ..config("main", service) };
        assert_eq!(keys(elsewhere), ["region"]);
        let endpoint = Some("http://user:hush@x".into());
        let login = EcsConfig { endpoint, ..config("main", "worker") };
        assert!(!format!("{:?}", login.problems()).contains("hush"));
        assert_eq!(keys(login), ["endpoint"]);
        for good in ["http://127.0.0.1:4566", "https://ecs.eu-west-1.amazonaws.com/"] {
            assert!(is_endpoint(good), "{good}");
        }
        for bad in ["ftp://x", "http://", "https://x?a=b"] {
            assert!(!is_endpoint(bad), "{bad}");
        }
    }
}
