//! The numbers of `/metrics`, in the Prometheus text format.

use std::sync::atomic::AtomicU64;

use headcount_core::{FleetReading, Outcome, QueueReading, Reading, Rule};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::group::Tick;

type Float = Gauge<f64, AtomicU64>;

/// All metrics.
pub struct Metrics {
    registry: Registry,
    workers: Family<WorkerLabels, Gauge>,
    busy: Family<GroupLabels, Gauge>,
    wanted: Family<GroupLabels, Gauge>,
    policy_wanted: Family<GroupLabels, Gauge>,
    waiting: Family<GroupLabels, Gauge>,
    active: Family<GroupLabels, Gauge>,
    orphaned: Family<GroupLabels, Gauge>,
    oldest_wait: Family<GroupLabels, Float>,
    cpu: Family<CpuLabels, Float>,
    memory: Family<GroupLabels, Float>,
    known: Family<SourceLabels, Gauge>,
    leading: Family<GroupLabels, Gauge>,
    looks: Family<GroupLabels, Counter>,
    looked_at: Family<GroupLabels, Float>,
    actions: Family<ActionLabels, Counter>,
    least: Family<GroupLabels, Gauge>,
    most: Family<GroupLabels, Gauge>,
    paused: Family<GroupLabels, Gauge>,
    alerts: Family<AlertLabels, Gauge>,
    loop_failures: Family<GroupLabels, Counter>,
    store_ok: Gauge,
    config_ok: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GroupLabels {
    group: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WorkerLabels {
    group: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CpuLabels {
    group: String,
    smoothing: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabels {
    group: String,
    source: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AlertLabels {
    group: String,
    alert: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ActionLabels {
    group: String,
    kind: &'static str,
    outcome: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("headcount");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running version", build);
        let mut made = Self {
            registry: Registry::default(),
            workers: Family::default(),
            busy: Family::default(),
            wanted: Family::default(),
            policy_wanted: Family::default(),
            waiting: Family::default(),
            active: Family::default(),
            orphaned: Family::default(),
            oldest_wait: Family::default(),
            cpu: Family::default(),
            memory: Family::default(),
            known: Family::default(),
            leading: Family::default(),
            looks: Family::default(),
            looked_at: Family::default(),
            actions: Family::default(),
            least: Family::default(),
            most: Family::default(),
            paused: Family::default(),
            alerts: Family::default(),
            loop_failures: Family::default(),
            store_ok: Gauge::default(),
            config_ok: Gauge::default(),
        };
        registry.register("workers", "Workers by state", made.workers.clone());
        registry.register("workers_busy", "Workers that hold a job", made.busy.clone());
        registry.register("wanted", "Workers that should be running", made.wanted.clone());
        let help = "Workers the policy wanted, before the guards";
        registry.register("policy_wanted", help, made.policy_wanted.clone());
        registry.register("queue_waiting", "Jobs waiting", made.waiting.clone());
        registry.register("queue_active", "Jobs a live worker holds", made.active.clone());
        registry.register("queue_orphaned", "Jobs whose worker is gone", made.orphaned.clone());
        let help = "How long the oldest waiting job has waited";
        registry.register_with_unit(
            "queue_oldest_wait",
            help,
            Unit::Seconds,
            made.oldest_wait.clone(),
        );
        registry.register("cpu_percent", "CPU of the host", made.cpu.clone());
        registry.register("memory_percent", "Memory of the host in use", made.memory.clone());
        let help = "Whether a source answers (1) or is silent (0)";
        registry.register("reading_known", help, made.known.clone());
        let help = "Whether this process acts for the group (1) or stands by (0)";
        registry.register("leading", help, made.leading.clone());
        registry.register("looks", "Looks at a group", made.looks.clone());
        let help = "When the group was last looked at, Unix time";
        registry.register_with_unit(
            "last_look_timestamp",
            help,
            Unit::Seconds,
            made.looked_at.clone(),
        );
        registry.register("actions", "Changes by kind and outcome", made.actions.clone());
        registry.register("workers_min", "The fewest workers by the rules", made.least.clone());
        registry.register("workers_max", "The most workers by the rules", made.most.clone());
        registry.register("paused", "Whether a person paused scaling", made.paused.clone());
        registry.register("alert", "Whether an alert is raised", made.alerts.clone());
        let help = "Times that the loop of a group broke and had to start again";
        registry.register("loop_failures", help, made.loop_failures.clone());
        registry.register("store_writable", "Whether state can be kept", made.store_ok.clone());
        let help = "Whether the configuration file in place is the one in use";
        registry.register("config_current", help, made.config_ok.clone());
        made.registry = registry;
        made
    }
}

impl Metrics {
    /// Takes in one tick.
    pub fn observe(&self, tick: &Tick) {
        let group = GroupLabels { group: tick.group.clone() };
        self.leading.get_or_create(&group).set(i64::from(tick.stand_by.is_none()));
        self.least.get_or_create(&group).set(tick.bounds.0.into());
        self.most.get_or_create(&group).set(tick.bounds.1.into());
        let (Some(seen), Some(decision)) = (&tick.seen, &tick.decision) else { return };
        let paused = decision.trail.iter().any(|step| step.rule == Rule::Pause);
        self.paused.get_or_create(&group).set(paused.into());
        for (alert, raised) in tick.alerts {
            let labels = AlertLabels { group: tick.group.clone(), alert: alert.name() };
            self.alerts.get_or_create(&labels).set(raised.into());
        }
        self.looks.get_or_create(&group).inc();
        self.looked_at.get_or_create(&group).set(seen.t.as_seconds());
        for (gauge, number) in
            [(&self.wanted, decision.wanted), (&self.policy_wanted, decision.policy_wanted)]
        {
            if let Some(number) = number {
                gauge.get_or_create(&group).set(number.into());
            }
        }
        self.observe_queue(&group, &seen.queue);
        self.observe_fleet(&group, &seen.fleet);
        let known = seen.host.value().is_some();
        self.know(&group, "host", known);
        if let Some(host) = seen.host.value() {
            self.cpu(&group, "raw", host.cpu_raw);
            if let Some(mem) = host.mem {
                self.memory.get_or_create(&group).set(mem);
            }
        }
        if let Some(ema) = tick.cpu_ema {
            self.cpu(&group, "ema", ema);
        }
        if let Some((outcome, _)) = &tick.outcome {
            let outcome = match outcome {
                Outcome::Done => "done",
                Outcome::Failed => "failed",
                Outcome::NotNow => "not_now",
                Outcome::Pretended => "pretended",
            };
            let labels =
                ActionLabels { group: tick.group.clone(), kind: decision.kind.name(), outcome };
            self.actions.get_or_create(&labels).inc();
        }
    }

    /// The loop of a group broke.
    pub fn count_loop_failure(&self, group: &str) {
        self.loop_failures.get_or_create(&GroupLabels { group: group.to_owned() }).inc();
    }

    /// Whether the store can be written and the configuration file is the one in use.
    pub fn set_health(&self, store_ok: bool, config_ok: bool) {
        self.store_ok.set(store_ok.into());
        self.config_ok.set(config_ok.into());
    }

    /// The page.
    pub fn text(&self) -> String {
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }

    fn observe_queue(&self, group: &GroupLabels, reading: &Reading<QueueReading>) {
        let queue = reading.value();
        self.know(group, "queue", queue.is_some());
        let Some(queue) = queue else { return };
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.waiting.get_or_create(group).set(count(queue.waiting));
        self.active.get_or_create(group).set(count(queue.active));
        if let Some(orphaned) = queue.orphaned {
            self.orphaned.get_or_create(group).set(count(orphaned));
        }
        let oldest = queue.oldest_wait.map_or(0.0, |w| w.as_secs_f64());
        self.oldest_wait.get_or_create(group).set(oldest);
    }

    fn observe_fleet(&self, group: &GroupLabels, reading: &Reading<FleetReading>) {
        let fleet = reading.value();
        self.know(group, "target", fleet.is_some());
        let Some(fleet) = fleet else { return };
        let states = [
            ("ready", fleet.ready),
            ("starting", fleet.starting),
            ("draining", fleet.draining),
            ("broken", fleet.broken),
        ];
        for (state, n) in states {
            let labels = WorkerLabels { group: group.group.clone(), state };
            self.workers.get_or_create(&labels).set(n.into());
        }
        if let Some(busy) = fleet.busy {
            self.busy.get_or_create(group).set(busy.into());
        }
    }

    fn know(&self, group: &GroupLabels, source: &'static str, known: bool) {
        let labels = SourceLabels { group: group.group.clone(), source };
        self.known.get_or_create(&labels).set(known.into());
    }

    fn cpu(&self, group: &GroupLabels, smoothing: &'static str, percent: f64) {
        let labels = CpuLabels { group: group.group.clone(), smoothing };
        self.cpu.get_or_create(&labels).set(percent);
    }
}

/// The page in the older text format (0.0.4), for those who do not ask for OpenMetrics: there a
/// counter and an info are named as their samples are.
pub fn plain(page: &str) -> String {
    let suffix = |kind: &str| match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        _ => ("", ""),
    };
    let mut text = String::with_capacity(page.len());
    let mut help: Option<(&str, &str)> = None;
    for line in page.lines() {
        if let Some((name, words)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            help = Some((name, words));
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            let (end, renamed) = suffix(kind);
            let kind = if renamed.is_empty() { kind } else { renamed };
            if let Some((_, words)) = help.take().filter(|(of, _)| *of == name) {
                text += &format!("# HELP {name}{end} {words}\n");
            }
            text += &format!("# TYPE {name}{end} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_as_their_samples() {
        let metrics = Metrics::default();
        let labels = GroupLabels { group: "g".into() };
        metrics.looks.get_or_create(&labels).inc();
        metrics.waiting.get_or_create(&labels).set(3);
        let page = plain(&metrics.text());
        assert!(page.contains("# HELP headcount_looks_total Looks at a group.\n# TYPE headcount_looks_total counter\nheadcount_looks_total{group=\"g\"} 1\n"), "{page}");
        assert!(
            page.contains("# TYPE headcount_build_info gauge\nheadcount_build_info{"),
            "{page}"
        );
        assert!(
            page.contains(
                "# TYPE headcount_queue_waiting gauge\nheadcount_queue_waiting{group=\"g\"} 3\n"
            ),
            "{page}"
        );
        assert!(!page.contains("# EOF"));
    }
}
