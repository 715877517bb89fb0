//! Somebody else who sets the same number. One change of theirs is corrected; one that comes back each
//! time is told once, and corrected ever more rarely. It is no failure of the fleet.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{CONTEST_BACK_OFF, CONTEST_BACK_OFF_MAX, CONTESTED};

/// What became of the numbers that were set.
#[derive(Debug, Default)]
pub(super) struct Contest {
    /// The number set last, until the next look.
    set: Option<u32>,
    /// So often in a row it was another one at the next look.
    undone: u32,
    /// The number that is contested, and when it may be set again.
    rest: Option<(u32, Instant)>,
    told: bool,
}

impl Contest {
    /// A look shows that the target is asked for this many; `None` if it does not tell.
    pub(super) fn saw(&mut self, asked_for: Option<u32>) {
        let (Some(set), Some(there)) = (self.set, asked_for) else { return };
        self.set = None;
        match there == set {
            true => *self = Self::default(),
            false => self.undone = self.undone.saturating_add(1),
        }
    }

    /// Whether it is too early to set the number to `to` again.
    pub(super) fn rests(&self, to: u32) -> bool {
        self.rest.is_some_and(|(contested, until)| contested == to && Instant::now() < until)
    }

    /// The number was set to `to`. Whether that is contested, and was told before.
    pub(super) fn did(&mut self, to: u32) -> Contested {
        self.set = Some(to);
        let Some(doublings) = self.undone.checked_sub(CONTESTED) else { return Contested::No };
        let rest = CONTEST_BACK_OFF.saturating_mul(1 << doublings.min(16));
        let rest: Duration = rest.min(CONTEST_BACK_OFF_MAX);
        self.rest = Some((to, Instant::now() + rest));
        match std::mem::replace(&mut self.told, true) {
            true => Contested::Again,
            false => Contested::News,
        }
    }
}

/// Whether somebody else sets the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contested {
    /// Not that we know.
    No,
    /// Yes, and nobody was told yet.
    News,
    /// Yes, as was told.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_number_that_never_stays_is_set_ever_more_rarely() {
        let mut contest = Contest::default();
        let mut at = Vec::new();
        for second in 0..2_000 {
            contest.saw(Some(5));
            if !contest.rests(3) {
                let expected = match at.len() {
                    0..3 => Contested::No,
                    3 => Contested::News,
                    _ => Contested::Again,
                };
                assert_eq!(contest.did(3), expected, "{at:?}");
                at.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(at, [0, 1, 2, 3, 8, 18, 38, 78, 158, 318, 618, 918, 1218, 1518, 1818]);
        assert!(!contest.rests(4), "another number is another matter");
        contest.saw(None);
        contest.did(3);
        contest.saw(Some(3));
        assert!(!contest.rests(3), "it stays now");
        assert_eq!(contest.did(3), Contested::No);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_of_somebody_else_is_none() {
        let mut contest = Contest::default();
        for _ in 0..20 {
            assert_eq!(contest.did(3), Contested::No);
            contest.saw(Some(5));
            assert!(!contest.rests(3));
            assert_eq!(contest.did(3), Contested::No);
            contest.saw(Some(3));
        }
    }
}
