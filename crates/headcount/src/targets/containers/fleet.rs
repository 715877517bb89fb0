//! What the containers of a target are: workers, workers that leave, remains. And what stands
//! between them and a larger number. Pure.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{FleetReading, Span, Timestamp};

use crate::queues::Identity;
use crate::targets::FleetSeen;
use crate::targets::docker_engine::{Container, Details, Health, Life};

/// A worker that ends by itself within this time after its start died young.
const YOUNG: Span = Span::from_secs(60);

/// A container that was created this long ago and never ran: its start failed.
const START_FAILED_AFTER: Span = Span::from_secs(60);

/// What a container is to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::targets) enum Role {
    /// Serves, or soon will.
    Serves,
    /// Runs but takes no jobs: unhealthy or frozen.
    Stuck,
    /// Crashes again and again.
    Crashing,
    /// Created and about to be started.
    Coming,
    /// Was told to go.
    Leaves,
    /// Was told to go, and has ended.
    Left,
    /// Does not run and is not being removed.
    Remains,
    /// Is being removed.
    Going,
}

/// What a container is to the target, `told` if it was told to go.
pub(in crate::targets) fn role(container: &Container, told: bool, now: Timestamp) -> Role {
    match container.life {
        life if told && life.is_alive() => Role::Leaves,
        Life::Running if container.health == Some(Health::Unhealthy) => Role::Stuck,
        Life::Running => Role::Serves,
        Life::Paused => Role::Stuck,
        Life::Restarting => Role::Crashing,
        Life::Created => {
            let is_old = container.created_at.is_some_and(|at| now.since(at) > START_FAILED_AFTER);
            if is_old { Role::Remains } else { Role::Coming }
        }
        Life::Exited(_) if told => Role::Left,
        Life::Exited(_) | Life::Dead => Role::Remains,
        Life::Removing => Role::Going,
    }
}

/// Whether the change from `old` to `new` contains an end soon after a start.
pub(in crate::targets) fn died_young(old: Option<&Details>, new: &Details) -> bool {
    if new.ends <= old.map_or(0, |old| old.ends) {
        return false;
    }
    match (new.lived, old.and_then(|old| old.started_at), new.started_at) {
        (Some(lived), _, _) => lived < YOUNG,
        // It runs again already: it lived no longer than from one start to the next.
        (None, Some(before), Some(after)) => after.since(before) < YOUNG,
        (None, _, _) => true,
    }
}

/// How a look is shown.
pub(in crate::targets) struct Shown {
    pub(in crate::targets) ready_after: Span,
    pub(in crate::targets) is_local: bool,
    pub(in crate::targets) now: Timestamp,
}

/// The look at the fleet.
pub(in crate::targets) fn seen(
    listed: &[(Container, Role)],
    details: &HashMap<String, Details>,
    died: u32,
    shown: &Shown,
) -> FleetSeen {
    let hostname = |c: &Container| details.get(&c.id).and_then(|d| d.hostname.as_deref());
    let mut hostnames: HashMap<&str, u32> = HashMap::new();
    for name in listed.iter().filter_map(|(c, _)| hostname(c)) {
        *hostnames.entry(name).or_default() += 1;
    }
    let mut workers = Vec::new();
    let mut known_as = HashMap::new();
    for (container, role) in listed {
        let known = details.get(&container.id);
        let started_at = known.and_then(|d| d.started_at).or(container.created_at);
        let by_compose = container.labels.get("com.docker.compose.config-hash");
        let version = by_compose.or(container.image.as_ref()).cloned();
        let id = container.id.clone();
        let state = state(container, *role, started_at, shown);
        workers.push(Worker { id: id.clone(), state, busy: None, started_at, version });
        let mut names = vec![Identity::Container(id.clone())];
        // A host name that several share tells nobody apart.
        let own_name = hostname(container).filter(|name| hostnames.get(name) == Some(&1));
        names.extend(own_name.map(|name| Identity::Hostname(name.to_owned())));
        let any_port = |ip| Identity::Peer(SocketAddr::new(ip, 0));
        names.extend(container.addresses.iter().copied().map(any_port));
        let pid = known.and_then(|d| d.pid).filter(|_| shown.is_local && container.life.is_alive());
        names.extend(pid.map(Identity::Process));
        known_as.insert(id, names);
    }
    let mut reading = FleetReading::of(workers);
    reading.died = died;
    FleetSeen { reading, known_as }
}

fn state(
    container: &Container,
    role: Role,
    started_at: Option<Timestamp>,
    shown: &Shown,
) -> WorkerState {
    match role {
        Role::Leaves => WorkerState::Draining,
        Role::Stuck | Role::Crashing | Role::Coming => WorkerState::Broken,
        Role::Left | Role::Going => WorkerState::Stopped,
        Role::Remains => match container.life {
            Life::Exited(Some(0 | 143)) => WorkerState::Stopped,
            _ => WorkerState::Broken,
        },
        Role::Serves => match container.health {
            Some(Health::Starting) => WorkerState::Starting,
            Some(_) => WorkerState::Ready,
            None => {
                let age = started_at.map_or(Span::MAX, |at| shown.now.since(at));
                if age < shown.ready_after { WorkerState::Starting } else { WorkerState::Ready }
            }
        },
    }
}

/// How to reach a number of serving workers by adding.
#[derive(Debug, Default, PartialEq)]
pub(in crate::targets) struct Plan {
    /// Workers that serve now.
    pub(in crate::targets) capacity: u32,
    /// Those that serve or take the place of one that does.
    pub(in crate::targets) places: u32,
    /// What runs, or starts again and again.
    pub(in crate::targets) existing: u32,
    /// What Compose's `--scale` must say. Never less than `existing`: it would remove some.
    pub(in crate::targets) scale: u32,
    /// Ids and names of those to be removed first: Compose would start them again.
    pub(in crate::targets) remains: Vec<(String, String)>,
    /// Ids and names of those to be replaced: they never stay up.
    pub(in crate::targets) crashing: Vec<(String, String)>,
    /// Names of those that hold a place but take no jobs.
    pub(in crate::targets) stuck: Vec<String>,
    /// All ids before the change.
    pub(in crate::targets) ids: HashSet<String>,
    /// All names before the change.
    pub(in crate::targets) names: HashSet<String>,
}

impl Plan {
    /// The plan to go from `listed` to `to` serving workers.
    pub(in crate::targets) fn new(listed: &[(Container, Role)], to: u32) -> Self {
        let mut plan = Self::default();
        let (mut places, mut coming, mut leaving) = (0_u32, 0_u32, 0_u32);
        for (Container { id, name, .. }, role) in listed {
            plan.ids.insert(id.clone());
            plan.names.insert(name.clone());
            match role {
                Role::Serves => (plan.capacity, places) = (plan.capacity + 1, places + 1),
                Role::Stuck => {
                    plan.stuck.push(name.clone());
                    places += 1;
                }
                Role::Coming => coming += 1,
                Role::Leaves => leaving += 1,
                Role::Crashing => {
                    plan.crashing.push((id.clone(), name.clone()));
                    places += 1;
                }
                Role::Left | Role::Remains => plan.remains.push((id.clone(), name.clone())),
                Role::Going => {}
            }
        }
        plan.places = places;
        plan.existing = places + leaving;
        plan.scale = to.max(places + coming) + leaving;
        plan
    }

    /// Names of those that take no jobs and hold places, for people.
    pub(in crate::targets) fn holders(&self) -> String {
        let crashing = self.crashing.iter().map(|(_, name)| name);
        self.stuck.iter().chain(crashing).map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// What was done, for people: what started of those that were `asked` for, what went.
    pub(in crate::targets) fn note(&self, started: &[String], asked: u32) -> String {
        let mut note = match started {
            // Not listed yet.
            [] => format!("asked for {asked} more"),
            names => format!("started {}", names.join(", ")),
        };
        let names = |of: &[(String, String)]| {
            of.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        if !self.remains.is_empty() {
            note += &format!("; removed exited {}", names(&self.remains));
        }
        if !self.crashing.is_empty() {
            note += &format!("; told crashing {} to go", names(&self.crashing));
        }
        if !self.stuck.is_empty() {
            let (take, count) =
                if self.stuck.len() == 1 { ("takes", "counts") } else { ("take", "count") };
            let names = self.stuck.join(", ");
            note += &format!("; {names} {take} no jobs but {count} as replicas");
        }
        note
    }
}

/// What was done with the workers `names`, which have `grace` to finish, for people.
pub(in crate::targets) fn farewell(names: &[&str], grace: Span) -> String {
    let have = if names.len() == 1 { "it has" } else { "they have" };
    format!("chose {} (idle first, then youngest); {have} {grace:#} to finish", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

    fn container(id: &str, life: Life, health: Option<Health>) -> Container {
        Container {
            id: id.into(),
            name: format!("w-{id}"),
            life,
            health,
            is_fresh: false,
            created_at: Some(NOW),
            image: None,
            addresses: Vec::new(),
            labels: HashMap::new(),
        }
    }

    #[test]
    fn each_container_has_one_role_and_one_state() {
        let shown = Shown { ready_after: Span::ZERO, is_local: true, now: NOW };
        let (starting, sick) = (Some(Health::Starting), Some(Health::Unhealthy));
        let cases = [
            (Life::Running, None, false, Role::Serves, WorkerState::Ready),
            (Life::Running, starting, false, Role::Serves, WorkerState::Starting),
            (Life::Running, sick, false, Role::Stuck, WorkerState::Broken),
            (Life::Running, sick, true, Role::Leaves, WorkerState::Draining),
            (Life::Running, None, true, Role::Leaves, WorkerState::Draining),
            (Life::Restarting, None, true, Role::Leaves, WorkerState::Draining),
            (Life::Restarting, None, false, Role::Crashing, WorkerState::Broken),
            (Life::Paused, None, false, Role::Stuck, WorkerState::Broken),
            (Life::Created, None, false, Role::Coming, WorkerState::Broken),
            (Life::Exited(Some(0)), None, false, Role::Remains, WorkerState::Stopped),
            (Life::Exited(Some(1)), None, false, Role::Remains, WorkerState::Broken),
            (Life::Exited(Some(137)), None, true, Role::Left, WorkerState::Stopped),
            (Life::Dead, None, false, Role::Remains, WorkerState::Broken),
            (Life::Removing, None, false, Role::Going, WorkerState::Stopped),
        ];
        for (life, health, told, expected, expected_state) in cases {
            let container = container("a", life, health);
            let role = role(&container, told, NOW);
            assert_eq!(role, expected, "{container:?}");
            assert_eq!(state(&container, role, None, &shown), expected_state, "{container:?}");
        }
        let failed = container("a", Life::Created, None);
        assert_eq!(role(&failed, false, NOW.plus(Span::from_secs(61))), Role::Remains);
    }

    #[test]
    fn compose_is_told_all_that_it_counts_and_never_fewer_than_there_are() {
        let fleet = |roles: &[Role]| {
            let name =
                |(i, role): (usize, &Role)| (container(&i.to_string(), Life::Running, None), *role);
            roles.iter().enumerate().map(name).collect::<Vec<_>>()
        };
        use Role::{Coming, Crashing, Going, Leaves, Left, Remains, Serves, Stuck};
        let cases: [(&[Role], u32, u32, u32); 8] = [
            (&[], 2, 0, 2),
            (&[Serves], 3, 1, 3),
            (&[Serves, Leaves, Leaves], 2, 3, 4),
            (&[Serves, Remains, Left, Going], 2, 1, 2),
            (&[Serves, Stuck], 2, 2, 2),
            (&[Serves, Crashing], 3, 2, 3),
            (&[Serves, Coming], 2, 1, 2),
            (&[Stuck, Stuck, Stuck, Coming], 1, 3, 4),
        ];
        for (roles, to, existing, scale) in cases {
            let plan = Plan::new(&fleet(roles), to);
            assert_eq!((plan.existing, plan.scale), (existing, scale), "{roles:?} to {to}");
        }
    }

    #[test]
    fn what_was_done_is_told_in_a_sentence() {
        let plan = Plan { stuck: vec!["w-2".into()], ..Plan::default() };
        let note = plan.note(&["w-3".into()], 1);
        assert_eq!(note, "started w-3; w-2 takes no jobs but counts as replicas");
        assert_eq!(Plan::default().note(&[], 1), "asked for 1 more");
        let ten = Span::from_mins(10);
        let one = farewell(&["w-3"], ten);
        assert_eq!(one, "chose w-3 (idle first, then youngest); it has 10m to finish");
        let two = farewell(&["w-3", "w-2"], ten);
        assert_eq!(two, "chose w-3, w-2 (idle first, then youngest); they have 10m to finish");
    }

    #[test]
    fn an_end_soon_after_a_start_is_a_young_death_and_counts_once() {
        let at = |s: i64| Some(Timestamp::from_millis(s * 1000));
        let running = |start, ends| Details {
            alive: true,
            started_at: at(start),
            ends,
            ..Details::default()
        };
        let ended = |lived, ends| Details {
            started_at: at(10),
            lived: Some(Span::from_secs(lived)),
            ends,
            ..Details::default()
        };
        let cases = [
            (None, ended(3, 1), true),
            (None, ended(3600, 1), false),
            (None, running(10, 0), false),
            (Some(running(10, 0)), ended(3, 1), true),
            (Some(ended(3, 1)), ended(3, 1), false),
            (Some(running(10, 0)), running(14, 1), true),
            (Some(running(10, 0)), running(7200, 1), false),
            (Some(running(14, 1)), running(14, 1), false),
        ];
        for (old, new, died) in cases {
            assert_eq!(died_young(old.as_ref(), &new), died, "{old:?} to {new:?}");
        }
    }

    #[test]
    fn a_shared_host_name_tells_nobody_apart() {
        let shown = Shown { ready_after: Span::ZERO, is_local: false, now: NOW };
        let named = |name: &str| Details { hostname: Some(name.into()), ..Details::default() };
        let ids = ["a", "b", "c"];
        let listed = ids.map(|id| (container(id, Life::Running, None), Role::Serves));
        let names = [("a", "shared"), ("b", "shared"), ("c", "own")];
        let details = names.map(|(id, name)| (id.to_owned(), named(name))).into();
        let seen = seen(&listed, &details, 0, &shown);
        assert_eq!(seen.known_as["a"], [Identity::Container("a".into())]);
        let expected = [Identity::Container("c".into()), Identity::Hostname("own".into())];
        assert_eq!(seen.known_as["c"], expected);
    }
}
