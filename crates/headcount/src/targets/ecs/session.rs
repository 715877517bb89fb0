//! Who asks, and where: credentials from the standard chain, and the addresses of AWS.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use headcount_core::Silence;

use crate::brief::brief;
use crate::clock;
use crate::limits::DETAIL_CHARS;
use crate::targets::ecs::config::EcsConfig;
use crate::targets::ecs::error::{ApiError, chain_of};

/// Credentials are fetched anew this long before they end.
const BEFORE_THE_END: Duration = Duration::from_secs(2 * 60);

/// How an account is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    region: Option<String>,
    endpoint: Option<String>,
    profile: Option<String>,
    credentials_file: Option<PathBuf>,
    role_arn: Option<String>,
}

/// Who asks, and where.
#[derive(Clone)]
pub(super) struct Session {
    /// The region.
    pub(super) region: String,
    /// Where ECS is, if not where AWS has it.
    pub(super) endpoint: Option<String>,
    is_fips: bool,
    is_dual_stack: bool,
    pub(super) credentials: Credentials,
}

/// A service of AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// The one that runs tasks.
    Ecs,
    /// The one that scales services by itself.
    AutoScaling,
    /// The one that tells who asks.
    Sts,
    /// The one that tells who may do what.
    Iam,
}

impl Api {
    /// As hosts and signatures name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ecs => "ecs",
            Self::AutoScaling => "application-autoscaling",
            Self::Sts => "sts",
            Self::Iam => "iam",
        }
    }

    /// What stands before an action's name.
    pub(super) const fn target(self) -> &'static str {
        match self {
            Self::Ecs => "AmazonEC2ContainerServiceV20141113",
            _ => "AnyScaleFrontendService",
        }
    }
}

/// Whether an address is one of AWS' own, which serves one service only.
fn is_of_aws(endpoint: &str) -> bool {
    let uri = endpoint.parse::<axum::http::Uri>().ok();
    let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or("");
    [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| host.ends_with(end))
}

impl Access {
    /// That of `config`, whose relative paths start at `base`.
    pub(super) fn of(config: &EcsConfig, base: &Path) -> Self {
        let region = config.region.as_deref().or_else(|| config.region_of_arn());
        Self {
            region: region.map(str::to_owned),
            endpoint: config.endpoint.clone(),
            profile: config.profile.clone(),
            credentials_file: config.credentials_file.as_ref().map(|file| base.join(file)),
            role_arn: config.role_arn.clone(),
        }
    }

    /// The whole chain, from its beginning: files may have changed.
    ///
    /// # Errors
    /// No credentials, or no region.
    pub(super) async fn log_in(&self) -> Result<Session, ApiError> {
        let Access { region, endpoint, profile, credentials_file, role_arn } = self;
        let mut chain = aws_config::defaults(BehaviorVersion::latest());
        if let Some(region) = region {
            chain = chain.region(Region::new(region.clone()));
        }
        let mut from_files = ProfileFileCredentialsProvider::builder();
        if let Some(profile) = profile {
            chain = chain.profile_name(profile);
            from_files = from_files.profile_name(profile);
        }
        if let Some(file) = credentials_file {
            let files = EnvConfigFiles::builder()
                .include_default_config_file(true)
                .with_file(EnvConfigFileKind::Credentials, file)
                .build();
            chain = chain.profile_files(files.clone());
            from_files = from_files.profile_files(files);
        }
        // The standard chain would let the environment go first.
        if profile.is_some() || credentials_file.is_some() {
            let place = match region {
                Some(region) => {
                    ProviderConfig::without_region().with_region(Some(Region::new(region.clone())))
                }
                None => ProviderConfig::with_default_region().await,
            };
            chain = chain.credentials_provider(from_files.configure(&place).build());
        }
        if let Some(endpoint) = endpoint.as_ref().filter(|endpoint| !is_of_aws(endpoint)) {
            chain = chain.endpoint_url(endpoint);
        }
        let known = chain.load().await;
        let Some(region) = known.region().map(ToString::to_string) else {
            let detail = "no region is known: set `region`, or AWS_REGION";
            return Err(ApiError::silence(Silence::Denied, detail.into()));
        };
        let set = std::env::var("AWS_ENDPOINT_URL_ECS").ok().filter(|url| !url.is_empty());
        let endpoint = endpoint.clone().or(set).or_else(|| known.endpoint_url().map(str::to_owned));
        Ok(Session {
            credentials: credentials(&known, role_arn.as_deref()).await?,
            is_fips: known.use_fips().unwrap_or(false),
            is_dual_stack: known.use_dual_stack().unwrap_or(false),
            region,
            endpoint,
        })
    }
}

impl Session {
    /// The address of a service, and the region that its signature names.
    pub(super) fn address(&self, api: Api) -> (String, &str) {
        let region = self.region.as_str();
        if let Some(endpoint) = &self.endpoint
            && (api == Api::Ecs || self.is_stand_in())
        {
            return (format!("{}/", endpoint.trim_end_matches('/')), region);
        }
        let china = region.starts_with("cn-");
        let (name, dns) = (api.name(), if china { "amazonaws.com.cn" } else { "amazonaws.com" });
        match api {
            Api::Iam if china => (format!("https://iam.cn-north-1.{dns}/"), "cn-north-1"),
            Api::Iam => (format!("https://iam.{dns}/"), "us-east-1"),
            Api::Ecs if self.is_dual_stack && !china => {
                (format!("https://ecs.{region}.api.aws/"), region)
            }
            Api::Ecs if self.is_fips => (format!("https://ecs-fips.{region}.{dns}/"), region),
            _ => (format!("https://{name}.{region}.{dns}/"), region),
        }
    }

    /// Whether it is something that only resembles AWS.
    pub(super) fn is_stand_in(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| !is_of_aws(endpoint))
    }

    /// Whether it is time to get new credentials.
    pub(super) fn ends_soon(&self) -> bool {
        let left = |end: SystemTime| end.duration_since(now()).unwrap_or_default();
        self.credentials.expiry().is_some_and(|end| left(end) < BEFORE_THE_END)
    }

    /// Whether the credentials are of no use any more.
    pub(super) fn has_ended(&self) -> bool {
        self.credentials.expiry().is_some_and(|end| end <= now())
    }
}

/// The time now.
pub(super) fn now() -> SystemTime {
    let millis = u64::try_from(clock::now().as_millis()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_millis(millis)
}

async fn credentials(known: &SdkConfig, role: Option<&str>) -> Result<Credentials, ApiError> {
    let chain = known.credentials_provider();
    let found = match (chain, role) {
        (None, _) => Err(CredentialsError::not_loaded_no_source()),
        (Some(chain), None) => chain.provide_credentials().await,
        (Some(_), Some(role)) => {
            let role = aws_config::sts::AssumeRoleProvider::builder(role)
                .session_name("headcount")
                .configure(known);
            role.build().await.provide_credentials().await
        }
    };
    found.map_err(|error| {
        let why = match error {
            CredentialsError::ProviderTimedOut(_) => Silence::Timeout,
            _ => Silence::Denied,
        };
        let which = role.map_or(String::new(), |role| format!(" for {role}"));
        ApiError::silence(
            why,
            format!("no credentials{which}: {}", without_output(&chain_of(&error))),
        )
    })
}

/// What a `credential_process` printed may hold anything.
fn without_output(said: &str) -> String {
    let said = said.split(" Stderr:").next().unwrap_or(said);
    brief(said, 2 * DETAIL_CHARS)
}

#[cfg(test)]
impl Session {
    pub(super) fn for_tests(region: &str, endpoint: Option<&str>) -> Self {
        Self {
            region: region.into(),
            endpoint: endpoint.map(str::to_owned),
            is_fips: false,
            is_dual_stack: false,
            credentials: Credentials::new("AKID", "hunter2", Some("token2".into()), None, "test"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_its_address() {
        let at = |session: Session, api| {
            let (address, region) = session.address(api);
            format!("{address} {region}")
        };
        let (de, own) = ("eu-central-1", Some("http://127.0.0.1:4566"));
        let vpc = Some("https://vpce-1.ecs.eu-central-1.vpce.amazonaws.com/");
        let expected = "https://ecs.eu-central-1.amazonaws.com/ eu-central-1";
        assert_eq!(at(Session::for_tests(de, None), Api::Ecs), expected);
        let expected = "https://iam.amazonaws.com/ us-east-1";
        assert_eq!(at(Session::for_tests(de, None), Api::Iam), expected);
        let expected = "https://sts.cn-north-1.amazonaws.com.cn/ cn-north-1";
        assert_eq!(at(Session::for_tests("cn-north-1", None), Api::Sts), expected);
        let expected = "http://127.0.0.1:4566/ eu-central-1";
        assert_eq!(at(Session::for_tests(de, own), Api::Ecs), expected);
        assert_eq!(at(Session::for_tests(de, own), Api::Sts), expected);
        let expected = "https://vpce-1.ecs.eu-central-1.vpce.amazonaws.com/ eu-central-1";
        assert_eq!(at(Session::for_tests(de, vpc), Api::Ecs), expected);
        let expected = "https://sts.eu-central-1.amazonaws.com/ eu-central-1";
        assert_eq!(at(Session::for_tests(de, vpc), Api::Sts), expected);
    }

    #[test]
    fn no_secret_is_shown() {
        let printed = without_output("exited with code 1. Stderr: hunter2");
        assert_eq!(printed, "exited with code 1.");
        let long = "the provider was not enabled ".repeat(20);
        assert!(without_output(&long).ends_with(" was not…"), "words stay whole");
        assert!(!format!("{:?}", Session::for_tests("x", None).credentials).contains("hunter2"));
    }
}
