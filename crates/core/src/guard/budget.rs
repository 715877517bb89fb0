//! A budget that several groups share. Each has its fewest workers, and of the rest a part by its
//! weight; what one does not want is lent to those that do. What is lent comes back when its idle
//! workers go: no busy one ever has to.
//!
//! [`divide`] says what each may have; whoever knows all groups hands one's part to its decision with
//! the observation, so that a replay finds it there.

use serde::{Deserialize, Serialize};

use crate::decision::{Kind, Rule, Why};
use crate::guard::{Draft, Look};

/// What a group may have of the budget now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// So many workers.
    pub allowed: u32,
    /// All groups together.
    pub total: u32,
}

/// What one group asks of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The fewest workers that it must have.
    pub min: u32,
    /// Its part of what is left, against the others'; at least 1.
    pub weight: u32,
    /// The workers that it wants or has.
    pub wants: u32,
}

/// The part of each claim, in their order: its min, and what it wants beyond as far as its weight
/// goes; what others leave goes to those that want more, by weight again.
///
/// Together they are at most `total`, unless the mins alone are more.
pub fn divide(total: u32, claims: &[Claim]) -> Vec<u32> {
    let mut parts: Vec<u32> = claims.iter().map(|claim| claim.min).collect();
    let mins = parts.iter().fold(0, |sum: u32, min| sum.saturating_add(*min));
    for _ in mins..total {
        // The next worker goes to whoever has least for its weight; of equals, to the first.
        let least = |(i, claim): &(usize, &Claim)| {
            let beyond_min = u64::from(parts[*i] - claim.min) + 1;
            (beyond_min << 32) / u64::from(claim.weight.max(1))
        };
        let hungry = claims.iter().enumerate().filter(|(i, claim)| parts[*i] < claim.wants);
        let Some((next, _)) = hungry.min_by_key(least) else { break };
        parts[next] += 1;
    }
    parts
}

/// Cuts growth to what the group may have, and gives idle workers back that others want.
pub(crate) fn apply(budget: Option<Allowance>, look: &Look<'_>, draft: &mut Draft) {
    let Some(Allowance { allowed, total }) = budget else { return };
    let most = allowed.max(look.rules.workers.min);
    // What a pause or a silent source holds stays.
    let stays = draft.floor.max(draft.range.min.min(draft.current));
    let after = draft.wanted.min(most.max(stays));
    // A number that a person asked for has to fit, too.
    draft.range.min = draft.range.min.min(most.max(stays));
    if after < draft.wanted {
        let kind = if after < draft.current { Kind::ScaleIn } else { draft.kind };
        draft.rule(kind, Rule::Budget, after, Why::BudgetSpent { allowed: most, total });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::guard::{bounds, busy};
    use crate::scene::{Scene, range};

    fn claim((min, weight, wants): (u32, u32, u32)) -> Claim {
        Claim { min, weight, wants }
    }

    /// Name, total, claims, parts.
    type Row = (&'static str, u32, &'static [(u32, u32, u32)], &'static [u32]);

    #[test]
    fn each_has_its_part_and_what_others_leave() {
        // claims of (min, weight, wants)
        let table: [Row; 10] = [
            ("enough for all", 10, &[(1, 1, 3), (0, 1, 4)], &[3, 4]),
            ("halves", 10, &[(0, 1, 10), (0, 1, 10)], &[5, 5]),
            ("by weight", 9, &[(0, 2, 10), (0, 1, 10)], &[6, 3]),
            ("the odd one to the first", 5, &[(0, 1, 9), (0, 1, 9)], &[3, 2]),
            ("mins first, the rest by weight", 10, &[(4, 1, 10), (0, 1, 10)], &[7, 3]),
            ("what one leaves is lent", 10, &[(0, 1, 2), (0, 1, 20)], &[2, 8]),
            ("by weight again", 12, &[(0, 9, 3), (0, 2, 20), (0, 1, 20)], &[3, 6, 3]),
            ("a min that nobody wants stays", 10, &[(3, 1, 0), (0, 1, 20)], &[3, 7]),
            ("too many mins", 3, &[(2, 1, 9), (2, 1, 9)], &[2, 2]),
            ("nobody", 3, &[], &[]),
        ];
        for (name, total, claims, parts) in table {
            let claims: Vec<Claim> = claims.iter().copied().map(claim).collect();
            assert_eq!(divide(total, &claims), parts, "{name}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_wasted_and_no_part_is_too_small(
            total in 0..200_u32,
            claims in proptest::collection::vec((0..20_u32, 1..100_u32, 0..300_u32), 0..8),
        ) {
            let claims: Vec<Claim> = claims.into_iter().map(claim).collect();
            let parts = divide(total, &claims);
            let mins: u32 = claims.iter().map(|c| c.min).sum();
            let wishes: u32 = claims.iter().map(|c| c.min.max(c.wants)).sum();
            prop_assert_eq!(parts.iter().sum::<u32>(), wishes.min(total).max(mins));
            let weights: u32 = claims.iter().map(|c| c.weight).sum();
            for (part, Claim { min, weight, wants }) in parts.iter().zip(&claims) {
                let guaranteed = min + total.saturating_sub(mins) * weight / weights;
                prop_assert!(*part >= *min && *part <= *min.max(wants));
                prop_assert!(*part >= guaranteed.min(*wants), "{parts:?} of {claims:?}");
            }
            prop_assert_eq!(divide(total, &claims), parts);
        }
    }

    fn judge(scene: &Scene, allowed: u32, wanted: u32, change: impl Fn(&mut Draft)) -> Draft {
        scene.judge(wanted, |look, draft| {
            draft.kind = Kind::ScaleOut;
            change(draft);
            apply(Some(Allowance { allowed, total: 12 }), look, draft);
            bounds::apply(draft);
            busy::apply(look, draft);
        })
    }

    #[test]
    fn a_group_keeps_to_its_part() {
        // name, current, busy, wanted, allowed, expected (bounds 1 to 10)
        let table = [
            ("within it", 3, 3, 5, 6, 5),
            ("growth is cut", 3, 3, 8, 6, 6),
            ("no growth", 6, 6, 8, 6, 6),
            ("idle ones go back", 8, 2, 9, 6, 6),
            ("busy ones stay", 8, 7, 9, 6, 7),
            ("the policy lets more go", 8, 2, 3, 6, 3),
            ("min is its own", 0, 0, 4, 0, 1),
        ];
        for (name, current, busy, wanted, allowed, expected) in table {
            let mut scene = Scene::new(current);
            scene.fleet.busy = Some(busy);
            assert_eq!(judge(&scene, allowed, wanted, |_| {}).wanted, expected, "{name}");
        }
        assert_eq!(Scene::new(3).judge(9, |look, draft| apply(None, look, draft)).wanted, 9);
    }

    #[test]
    fn what_is_held_stays_and_what_is_asked_for_must_fit() {
        let mut scene = Scene::new(8);
        scene.fleet.busy = Some(0);
        let silence = |draft: &mut Draft| draft.floor = 8;
        assert_eq!(judge(&scene, 6, 9, silence).wanted, 8);
        let pause = |draft: &mut Draft| draft.range = range(8, 10);
        assert_eq!(judge(&scene, 6, 9, pause).wanted, 8);
        // 9 are asked for and 2 are there.
        let fixed = |draft: &mut Draft| draft.range = range(9, 9);
        let draft = judge(&Scene::new(2), 6, 9, fixed);
        assert_eq!((draft.wanted, draft.trail.len()), (6, 1));
        let said = "may have 6 of the budget of 12 workers";
        assert_eq!(draft.trail[0].why.to_string(), said);
    }
}
