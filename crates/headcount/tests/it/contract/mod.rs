//! The contract that every target keeps, proved the same way against each of them. A rig is one
//! back end with workers that really run, or as near to that as a test can come; `contract!` makes
//! one test of each case with it. What a back end cannot do (a hook that says `false`), its cases
//! pass over; the table of targets in the README says what that leaves out.

mod cases;
mod compose;
mod docker;
mod door;
mod dry_run;
#[cfg(feature = "aws")]
mod ecs;
mod group;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod nomad;
mod process;
mod script;
mod swarm;
mod webhook;
mod windmill_script;

use async_trait::async_trait;
use headcount::targets::Target;

/// A back end, and what can happen to it.
#[async_trait]
pub trait Rig: Send {
    /// A target over it, opened as a configuration opens it, for the group `g`. It has no workers
    /// at first. Every target that is opened is over the same workers.
    fn open(&self) -> Box<dyn Target>;

    /// The ids, as the target names them, of the workers that really run, draining ones included,
    /// seen without the target and whatever is broken at the moment.
    async fn really(&mut self) -> Vec<String>;

    /// Somebody else sets the number. `false`: that cannot happen here, or nobody could see it.
    async fn set_outside(&mut self, n: u32) -> bool;

    /// From now on the back end has this fault. `false`: it cannot have it.
    async fn break_it(&mut self, fault: Fault) -> bool;

    /// It is well again.
    async fn mend(&mut self);

    /// These workers take up a job. Told to go, they drain until [`Rig::finish`]. `false`: workers
    /// are only a number here.
    async fn busy(&mut self, _ids: &[String]) -> bool {
        false
    }

    /// These workers finish their job.
    async fn finish(&mut self, _ids: &[String]) {}

    /// Workers that are started from now on, through targets that are opened from now on, stay
    /// starting. `false`: nobody can tell that here.
    async fn start_slowly(&mut self) -> bool {
        false
    }

    /// The back end picks who goes and cannot be told who is busy: that they may finish is all.
    fn picks_blindly(&self) -> bool {
        false
    }

    /// This worker takes no jobs any more but is still there. `false`: nobody can tell that here.
    async fn cripple(&mut self, _id: &str) -> bool {
        false
    }
}

/// What can be wrong with a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody is there: connections are refused, the program is missing.
    Down,
    /// It takes a request and does not answer.
    Slow,
    /// It refuses every request, as by HTTP status 403.
    Refuses,
    /// It fails at every request, as by HTTP status 500.
    Fails,
    /// It does a part of what changes something, and fails at the rest.
    HalfDone,
}

/// One test of each case, with the rig that the expression makes anew for each.
macro_rules! contract {
    ($rig:expr) => {
        $crate::contract::contract!($rig;
            reaches_every_number_from_any,
            the_same_number_again_changes_nothing,
            tells_starting_from_ready,
            a_worker_that_takes_no_jobs_is_no_capacity,
            scale_in_removes_whom_it_says,
            a_busy_worker_drains_and_is_no_capacity,
            down_is_no_answer_and_no_change,
            slow_is_no_answer_and_no_change,
            a_refusal_is_no_answer_and_no_change,
            a_failure_is_no_answer_and_no_change,
            half_done_is_an_error_and_the_rest_follows,
            what_somebody_else_does_is_seen_and_can_be_undone,
            check_finds_a_broken_back_end,
            a_dry_run_changes_nothing,
        );
        $crate::contract::contract!(in group, $rig;
            a_lost_lease_stops_everything,
            the_events_of_a_dry_run_are_marked,
            the_loop_recovers_from_an_outage,
        );
    };
    ($rig:expr; $($case:ident,)*) => { $crate::contract::contract!(in cases, $rig; $($case,)*); };
    (in $part:ident, $rig:expr; $($case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::contract::$part::$case(&mut $rig).await;
            }
        )*
    };
}

pub(crate) use contract;
