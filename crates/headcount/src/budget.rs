//! The budget that the groups of one daemon share: who has and who wants how much of it. The core
//! divides it; here it is kept, so that no two groups take the same worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headcount_core::Decision;
use headcount_core::decision::{Rule, Why};
use headcount_core::guard::budget::{Allowance, Claim, divide};

use crate::config::{Config, GroupConfig};
use crate::targets::TargetConfig;

/// The budget of all groups.
#[derive(Debug, Default)]
pub struct Budget {
    ledger: Mutex<Ledger>,
}

/// A group's access to the budget.
#[derive(Clone, Debug)]
pub struct Member {
    budget: Arc<Budget>,
    name: String,
}

#[derive(Debug, Default)]
struct Ledger {
    total: Option<u32>,
    groups: BTreeMap<String, Account>,
}

/// One group's part of the ledger.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    min: u32,
    max: u32,
    weight: u32,
    /// Workers that are there or ordered; unknown before the first look.
    has: Option<u32>,
    /// Workers that it would have without a budget.
    wants: Option<u32>,
}

impl Budget {
    /// The budget of a configuration.
    pub fn new(config: &Config) -> Self {
        let budget = Self::default();
        budget.configure(config);
        budget
    }

    /// Takes over a new configuration. What is known of groups that stay is kept.
    pub fn configure(&self, config: &Config) {
        let mut ledger = self.ledger();
        ledger.total = config.budget;
        let mut known = std::mem::take(&mut ledger.groups);
        for group in config.groups.iter().filter(|group| takes_part(group)) {
            let Account { has, wants, .. } = known.remove(&group.name).unwrap_or_default();
            let GroupConfig { name, rules, weight, .. } = group;
            let (min, max) = (rules.workers.min, rules.workers.max);
            ledger.groups.insert(name.clone(), Account { min, max, weight: *weight, has, wants });
        }
    }

    /// The access of one group, which had so many workers when it was last looked at.
    pub fn member(self: &Arc<Self>, name: &str, had: Option<u32>) -> Member {
        if let Some(account) = self.ledger().groups.get_mut(name) {
            account.has = account.has.or(had);
        }
        Member { budget: Arc::clone(self), name: name.into() }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Each change is one assignment, so a panic elsewhere leaves the ledger sound.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who only pretends takes nothing.
pub(crate) const fn takes_part(group: &GroupConfig) -> bool {
    !matches!(group.target, TargetConfig::DryRun(_))
}

impl Member {
    /// Has `decide` decide within what the group may have, now that it has `current` workers, and
    /// notes what it decided before any other group does.
    pub fn within(
        &self,
        current: Option<u32>,
        decide: impl FnOnce(Option<Allowance>) -> Decision,
    ) -> Decision {
        let mut ledger = self.budget.ledger();
        let decision = decide(ledger.allowance(&self.name, current));
        if let Some(account) = ledger.groups.get_mut(&self.name) {
            account.note(&decision);
        }
        decision
    }
}

impl Ledger {
    /// What a group may have: its part if it wanted all it can, but no worker that another one still
    /// has.
    fn allowance(&self, name: &str, current: Option<u32>) -> Option<Allowance> {
        let total = self.total?;
        let own = self.groups.get(name)?;
        let claim = |(other, account): (&String, &Account)| Claim {
            wants: if other == name { account.max } else { account.claims() },
            ..Claim { min: account.min, weight: account.weight, wants: 0 }
        };
        let claims: Vec<Claim> = self.groups.iter().map(claim).collect();
        let place = self.groups.keys().position(|other| other == name)?;
        let part = divide(total, &claims)[place];
        let others = self.groups.iter().filter(|(other, _)| *other != name);
        let taken = others.fold(0_u32, |sum, (_, a)| sum.saturating_add(a.has.unwrap_or(0)));
        let has = current.or(own.has).unwrap_or(0);
        let free = total.saturating_sub(taken).max(has);
        Some(Allowance { allowed: part.min(free).max(own.min), total })
    }
}

impl Account {
    /// Before the first look it may want all it can.
    fn claims(&self) -> u32 {
        self.wants.unwrap_or(self.max).max(self.has.unwrap_or(0))
    }

    fn note(&mut self, decision: &Decision) {
        let (Some(current), Some(wanted)) = (decision.current, decision.wanted) else { return };
        self.has = Some(current.max(wanted));
        let cut = decision.trail.iter().find(|step| step.rule == Rule::Budget);
        let rests = matches!(decision.trail.first().map(|s| &s.why), Some(Why::NotDue { .. }));
        // Between two polls a policy wants what there is; what it wanted last still holds.
        let still = self.wants.filter(|_| rests).unwrap_or(0);
        self.wants = Some(cut.map_or(wanted, |step| step.before).max(still));
    }
}

#[cfg(test)]
mod tests {
    use headcount_core::policy::occupancy::Occupancy;
    use headcount_core::state::Fixed;
    use headcount_core::{
        Cadence, FleetReading, HostReading, Observation, Outcome, Policy, QueueReading, Reading,
        Rules, Span, State, Timestamp, decide,
    };

    use super::*;

    /// Groups of (min, max, weight) that share a budget; each wants all it can while jobs wait.
    struct Scene {
        budget: Arc<Budget>,
        groups: Vec<(Member, Rules, State, u32)>,
        now: Timestamp,
    }

    impl Scene {
        fn new(total: u32, groups: &[(u32, u32, u32)]) -> Self {
            let account = |(min, max, weight): (u32, u32, u32)| Account {
                min,
                max,
                weight,
                ..Account::default()
            };
            let names = (0..groups.len()).map(|i| format!("g{i}"));
            let accounts = names.zip(groups.iter().copied().map(account)).collect();
            let ledger = Ledger { total: Some(total), groups: accounts };
            let budget = Arc::new(Budget { ledger: Mutex::new(ledger) });
            let group = |(i, (min, max, _)): (usize, &(u32, u32, u32))| {
                let policy = Occupancy { full_scale_jobs_waiting: Some(1), ..Occupancy::default() };
                let mut rules = Rules { policy: Policy::Occupancy(policy), ..Rules::default() };
                (rules.workers.min, rules.workers.max) = (*min, *max);
                (budget.member(&format!("g{i}"), None), rules, State::default(), 0)
            };
            let groups = groups.iter().enumerate().map(group).collect();
            Self { budget, groups, now: Timestamp::from_millis(1_790_000_000_000) }
        }

        /// One group with so many busy workers decides, because a person asks for so many; returns how
        /// many it has then.
        fn ask(&mut self, group: usize, workers: u32, busy: u32) -> u32 {
            self.groups[group].2.controls.fixed = Some(Fixed { workers, until: None });
            self.tick(group, 0, busy)
        }

        /// The same because so many jobs wait.
        fn tick(&mut self, group: usize, waiting: u64, busy: u32) -> u32 {
            self.now = self.now.plus(Span::from_secs(1));
            let now = self.now;
            let (member, rules, state, workers) = &mut self.groups[group];
            let queue = QueueReading { waiting, active: busy.into(), ..QueueReading::default() };
            let busy = Some(busy);
            let fleet = FleetReading { ready: *workers, busy, ..FleetReading::default() };
            let mut seen = Observation {
                t: now,
                queue: Reading::known(queue, now),
                host: Reading::known(HostReading::default(), now),
                fleet: Reading::known(fleet, now),
                budget: None,
            };
            let decision = member.within(Some(*workers), |allowance| {
                seen.budget = allowance;
                decide(rules, state, &seen, Cadence::EveryLook, now)
            });
            state.note(Outcome::Done, now);
            *workers = decision.wanted.unwrap_or(*workers);
            *workers
        }

        fn total(&self) -> u32 {
            self.groups.iter().map(|(.., workers)| workers).sum()
        }
    }

    #[test]
    fn what_one_group_does_not_want_is_lent_and_comes_back() {
        let mut scene = Scene::new(10, &[(0, 10, 1), (0, 7, 1)]);
        // Nobody knows yet what the other one wants.
        assert_eq!(scene.tick(0, 10, 0), 5);
        assert_eq!(scene.tick(1, 0, 0), 0);
        assert_eq!(scene.tick(0, 10, 0), 10);
        // Now it wants its part, and waits until workers are idle.
        assert_eq!(scene.tick(1, 7, 0), 0);
        assert_eq!(scene.tick(0, 10, 10), 10);
        // Two go, and are gone when the next look finds them so.
        assert_eq!((scene.tick(0, 10, 8), scene.tick(1, 7, 0)), (8, 0));
        assert_eq!((scene.tick(0, 10, 8), scene.tick(1, 7, 0)), (8, 2));
        assert_eq!((scene.tick(0, 10, 3), scene.tick(0, 10, 5)), (5, 5));
        assert_eq!(scene.tick(1, 7, 2), 5);
        assert_eq!(scene.total(), 10);
    }

    #[test]
    fn all_groups_together_stay_within_the_budget() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let groups: Vec<_> = (0..rng.usize(1..5))
                .map(|_| (rng.u32(0..3), rng.u32(3..12), rng.u32(1..4)))
                .collect();
            let total = 8 + rng.u32(0..8);
            let mut scene = Scene::new(total, &groups);
            for _ in 0..200 {
                let group = rng.usize(0..groups.len());
                let busy = rng.u32(0..6).min(scene.groups[group].3);
                let after = scene.ask(group, rng.u32(0..15), busy);
                assert!(after >= busy, "a busy worker went");
                assert!(scene.total() <= total, "{} of {total}: {groups:?}", scene.total());
            }
            // Idle groups leave all of it to one that wants it.
            (0..400).for_each(|i| _ = scene.ask(i % groups.len(), 0, 0));
            let others: u32 = groups.iter().skip(1).map(|(min, ..)| min).sum();
            let most = groups[0].1.min(total - others);
            scene.ask(0, 50, 0);
            assert_eq!(scene.ask(0, 50, 0), most, "{groups:?} of {total}: {:?}", scene.budget);
        }
    }

    #[test]
    fn without_a_budget_nobody_is_told_anything() {
        let scene = Scene::new(10, &[(0, 10, 1)]);
        let ledger = scene.budget.ledger();
        assert_eq!(ledger.allowance("g0", None).map(|a| a.allowed), Some(10));
        assert_eq!(ledger.allowance("dry", None), None);
        assert_eq!(Ledger::default().allowance("g0", None), None);
    }
}
