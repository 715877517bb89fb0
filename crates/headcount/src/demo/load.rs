//! The load of the demo: bursts of light jobs, each followed by a pause that is long enough for
//! scale-in.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock;
use crate::demo::table::Table;

/// A burst arrives in so many parts, half a second apart.
const PARTS: usize = 3;

/// One burst and the pause after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// How long each job takes, seconds.
    pub costs_s: Vec<f64>,
    /// The time until the next burst.
    pub pause: Duration,
}

/// The bursts of a seed, without end.
pub fn bursts(seed: u64) -> impl Iterator<Item = Burst> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || {
        // Some 14 s of work: one worker alone would need that long, so that more are worth it.
        let jobs = random.usize(13..=18);
        let costs_s = (0..jobs).map(|_| 0.5 + random.f64()).collect();
        let pause = Duration::from_millis(random.u64(23_000..27_000));
        Burst { costs_s, pause }
    })
}

/// Puts the bursts of a seed into the table at `database`, for ever.
///
/// # Errors
/// The table cannot be written.
pub async fn run(database: &Path, seed: u64) -> anyhow::Result<()> {
    let mut table = Table::open(database)?;
    for Burst { costs_s, pause } in bursts(seed) {
        for part in costs_s.chunks(costs_s.len().div_ceil(PARTS)) {
            table.put(part, clock::now())?;
            sleep(Duration::from_millis(500)).await;
        }
        sleep(pause).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_bursts_again_and_each_is_worth_more_workers() {
        let ten = |seed| bursts(seed).take(10).collect::<Vec<_>>();
        assert_eq!(ten(7), ten(7));
        assert_ne!(ten(7), ten(8));
        for burst in ten(7) {
            let work: f64 = burst.costs_s.iter().sum();
            assert!((8.0..28.0).contains(&work), "{work}");
        }
    }
}
