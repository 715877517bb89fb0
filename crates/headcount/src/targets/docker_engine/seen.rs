//! What the engine tells of containers, read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use bollard::models::{
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, EndpointSettings,
};
use headcount_core::{Span, Timestamp};

use crate::targets::docker_engine::EngineError;

/// One container of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its full id.
    pub id: String,
    /// Its name, without the leading slash.
    pub name: String,
    /// Where it is in its life.
    pub life: Life,
    /// What its health check says; absent if it has none.
    pub health: Option<Health>,
    /// Whether its present state is younger than a minute, so that it may change between two
    /// looks without a trace in a list.
    pub is_fresh: bool,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// The id of its image.
    pub image: Option<String>,
    /// Its addresses in all its networks.
    pub addresses: Vec<IpAddr>,
    /// Its labels.
    pub labels: HashMap<String, String>,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Never started, or its start failed.
    Created,
    /// Its main process runs.
    Running,
    /// Exited, and the engine will start it again.
    Restarting,
    /// Frozen.
    Paused,
    /// Its main process is gone; with its exit code, where the list tells it.
    Exited(Option<i64>),
    /// Being removed.
    Removing,
    /// Could not be removed.
    Dead,
}

impl Life {
    /// Whether it has a main process, or soon will by itself.
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Running | Self::Restarting | Self::Paused)
    }
}

/// What a health check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not passed yet.
    Starting,
    /// Passed.
    Healthy,
    /// Failed several times in a row.
    Unhealthy,
}

/// What only an inspection of a container tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Whether it has a main process, or soon will by itself.
    pub alive: bool,
    /// When its main process was started last, as the engine writes it: a name of that life.
    pub life: String,
    /// The same as a time.
    pub started_at: Option<Timestamp>,
    /// How long its main process ran, if that is over.
    pub lived: Option<Span>,
    /// The exit code of its main process, if that is over.
    pub exit_code: Option<i64>,
    /// How often its main process has ended so far.
    pub ends: u64,
    /// The main process, as the host numbers it.
    pub pid: Option<u32>,
    /// Its own host name; absent if it uses the host's.
    pub hostname: Option<String>,
    /// The signal that tells it to go.
    pub stop_signal: String,
    /// How long the engine waits after that signal, if the container says so.
    pub stop_timeout: Option<Duration>,
}

pub(super) fn container(listed: ContainerSummary) -> Result<Container, EngineError> {
    use ContainerSummaryStateEnum as State;
    let without = |what: &str| EngineError::not_understood(format!("a container without {what}"));
    let id = listed.id.filter(|id| !id.is_empty()).ok_or_else(|| without("an id"))?;
    let status = listed.status.unwrap_or_default();
    let life = match listed.state.ok_or_else(|| without("a state"))? {
        State::RUNNING | State::STOPPING => Life::Running,
        State::RESTARTING => Life::Restarting,
        State::PAUSED => Life::Paused,
        State::EXITED => Life::Exited(exit_code(&status)),
        State::REMOVING => Life::Removing,
        State::DEAD => Life::Dead,
        State::CREATED | State::EMPTY => Life::Created,
    };
    let networks = listed.network_settings.and_then(|n| n.networks).unwrap_or_default();
    let name = listed.names.unwrap_or_default().into_iter().next().unwrap_or_default();
    Ok(Container {
        id,
        name: name.trim_start_matches('/').to_owned(),
        life,
        health: health(&status),
        is_fresh: status.contains("second"),
        created_at: listed.created.map(|s| Timestamp::from_millis(s.saturating_mul(1000))),
        image: listed.image_id,
        addresses: networks.values().flat_map(addresses).collect(),
        labels: listed.labels.unwrap_or_default(),
    })
}

/// Engines before API 1.52 tell the health only in the text: `Up 3 minutes (healthy)`.
fn health(status: &str) -> Option<Health> {
    let (_, said) = status.rsplit_once('(')?;
    match said.trim_end_matches(')') {
        "healthy" => Some(Health::Healthy),
        "unhealthy" => Some(Health::Unhealthy),
        "health: starting" => Some(Health::Starting),
        _ => None,
    }
}

/// The code in `Exited (137) 3 seconds ago`.
fn exit_code(status: &str) -> Option<i64> {
    status.split_once('(')?.1.split_once(')')?.0.parse().ok()
}

fn addresses(endpoint: &EndpointSettings) -> Vec<IpAddr> {
    let written = [&endpoint.ip_address, &endpoint.global_ipv6_address];
    written.into_iter().flatten().filter_map(|ip| ip.parse().ok()).collect()
}

pub(super) fn details(seen: &ContainerInspectResponse) -> Details {
    let state = seen.state.clone().unwrap_or_default();
    let config = seen.config.clone().unwrap_or_default();
    let alive = state.running.unwrap_or_default();
    let life = state.started_at.unwrap_or_default();
    let started_at = time(&life);
    let finished_at = state.finished_at.as_deref().and_then(time);
    let lived = match (started_at, finished_at) {
        (Some(start), Some(end)) if end >= start => Some(end.since(start)),
        _ => None,
    };
    let restarts = seen.restart_count.and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
    let mode = seen.host_config.as_ref().and_then(|host| host.network_mode.as_deref());
    Details {
        alive,
        life,
        started_at,
        lived,
        exit_code: state.exit_code.filter(|_| !alive),
        ends: restarts.saturating_add(u64::from(!alive && started_at.is_some())),
        pid: state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0),
        hostname: config.hostname.filter(|name| !name.is_empty() && mode != Some("host")),
        stop_signal: config.stop_signal.unwrap_or_else(|| "SIGTERM".into()),
        stop_timeout: config
            .stop_timeout
            .and_then(|s| Some(Duration::from_secs(s.try_into().ok()?))),
    }
}

/// A time as the engine writes it; the year 1 means never.
fn time(written: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = written.parse().ok()?;
    (at > jiff::Timestamp::UNIX_EPOCH).then(|| Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_text_tells_health_exit_code_and_age() {
        assert_eq!(health("Up 3 minutes (healthy)"), Some(Health::Healthy));
        assert_eq!(health("Up 3 minutes (unhealthy)"), Some(Health::Unhealthy));
        assert_eq!(health("Up 2 seconds (health: starting)"), Some(Health::Starting));
        assert_eq!(health("Up 2 hours"), None);
        assert_eq!(health("Exited (137) 3 seconds ago"), None);
        assert_eq!(exit_code("Exited (137) 3 seconds ago"), Some(137));
        assert_eq!(exit_code("Up 2 hours"), None);
    }

    #[test]
    fn a_container_that_is_not_told_whole_is_no_answer() {
        let state = Some(ContainerSummaryStateEnum::RUNNING);
        let good = ContainerSummary { id: Some("a".into()), state, ..<_>::default() };
        assert!(container(good.clone()).is_ok());
        for odd in [
            ContainerSummary::default(),
            ContainerSummary { id: None, ..good.clone() },
            ContainerSummary { id: Some(String::new()), ..good.clone() },
            ContainerSummary { state: None, ..good },
        ] {
            let error = container(odd).unwrap_err();
            assert_eq!(error.why, headcount_core::Silence::Malformed, "{error}");
        }
    }

    #[test]
    fn the_year_one_is_never() {
        assert_eq!(time("0001-01-01T00:00:00Z"), None);
        assert_eq!(time("1970-01-01T00:00:01.5Z"), Some(Timestamp::from_millis(1500)));
    }
}
