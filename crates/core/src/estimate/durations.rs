//! How long jobs take, of all classes and of each.

use serde::{Deserialize, Serialize};

use super::sample::{MOST, Sample};
use super::{Estimate, Last};
use crate::reading::QueueReading;
use crate::time::seconds;

/// A job takes this long until one has finished.
const UNKNOWN: f64 = 30.0;
/// The classes that are told apart: those heard of last.
const MOST_CLASSES: usize = 16;
/// Durations that are remembered of a class: enough for its mean.
const MOST_OF_CLASS: usize = 32;
/// Until so many jobs of a class are known, those of all classes have their say.
const FEW: usize = 5;
/// A class with a longer name, in bytes, is not learnt.
const LONGEST_NAME: usize = 64;

/// How long the jobs of each class took, the class heard of last at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Classes(Vec<(String, Sample)>);

impl Classes {
    fn add(&mut self, class: &str, durations: impl Iterator<Item = f64>) {
        if class.len() > LONGEST_NAME {
            return;
        }
        let known = self.0.iter().position(|(name, _)| name == class);
        let mut entry = match known {
            Some(place) => self.0.remove(place),
            None => (class.to_owned(), Sample::default()),
        };
        durations.for_each(|duration| entry.1.add(duration, MOST_OF_CLASS));
        self.0.push(entry);
        let extra = self.0.len().saturating_sub(MOST_CLASSES);
        self.0.drain(..extra);
    }

    /// What is known of a class.
    pub fn get(&self, class: &str) -> Option<&Sample> {
        self.0.iter().find(|(name, _)| name == class).map(|(_, sample)| sample)
    }
}

impl Estimate {
    /// Durations as told, or the work done per finished job.
    pub(super) fn learn_durations(
        &mut self,
        queue: &QueueReading,
        gap: f64,
        last: Option<Last>,
        finished: u64,
    ) {
        for duration in &queue.durations {
            self.durations.add(seconds(*duration), MOST);
        }
        for (class, durations) in &queue.durations_by_tag {
            self.classes.add(class, durations.iter().map(|duration| seconds(*duration)));
        }
        if !queue.durations.is_empty() {
            self.unfinished = 0.0;
            return;
        }
        let active = last.map_or(0, |last| last.active.min(1_000_000));
        self.unfinished += gap * active as f64;
        if finished > 0 && self.unfinished > 0.0 {
            let each = self.unfinished / finished as f64;
            (0..finished.min(32)).for_each(|_| self.durations.add(each, MOST));
            self.unfinished = 0.0;
        }
    }

    /// How long a job of this age will still run, s.
    pub(crate) fn rest(&self, age: f64) -> f64 {
        self.durations.median_rest(age).unwrap_or(age.max(UNKNOWN))
    }

    /// How old so many running jobs are at least, on average, s, where the source does not tell:
    /// none has finished for so long.
    pub(crate) fn least_age(&self, active: f64) -> f64 {
        self.unfinished / active.max(1.0)
    }

    /// How long a job keeps a worker from its next within `limit`, s; above 0.
    pub(crate) fn duration(&self, limit: f64) -> f64 {
        self.durations.mean_up_to(limit).unwrap_or(UNKNOWN).max(0.001)
    }

    /// As `duration` for a job of a class; where little is known of it, as for any job.
    pub fn duration_of(&self, class: &str, limit: f64) -> f64 {
        let any = self.duration(limit);
        let Some((sample, mean)) =
            self.classes.get(class).and_then(|sample| Some((sample, sample.mean_up_to(limit)?)))
        else {
            return any;
        };
        let weight = (sample.len() as f64 / FEW as f64).min(1.0);
        (weight * mean + (1.0 - weight) * any).max(0.001)
    }

    /// As `duration` for the jobs that wait, by their classes where the source tells.
    pub fn duration_of_waiting(&self, queue: &QueueReading, limit: f64) -> f64 {
        let told = queue.tags.iter().filter(|(_, jobs)| **jobs > 0);
        let (mut jobs, mut work) = (0.0, 0.0);
        for (class, n) in told.take(MOST_CLASSES) {
            jobs += *n as f64;
            work += *n as f64 * self.duration_of(class, limit);
        }
        if jobs > 0.0 { work / jobs } else { self.duration(limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Scene;
    use crate::time::Span;

    #[test]
    fn rests_are_the_median_of_what_lasted_longer() {
        let mut estimate = Estimate::default();
        assert_eq!((estimate.rest(5.0), estimate.rest(50.0)), (30.0, 50.0));
        for duration in [1.0, 2.0, 3.0, 10.0, 100.0] {
            estimate.durations.add(duration, MOST);
        }
        assert_eq!((estimate.rest(0.0), estimate.rest(4.0)), (3.0, 96.0));
        assert_eq!(estimate.rest(400.0), 400.0, "as long again");
        assert_eq!(estimate.duration(10.0), 26.0 / 5.0, "an outlier counts as the limit");
    }

    #[test]
    fn jobs_of_a_class_take_what_its_jobs_took() {
        let (mut estimate, mut scene) = (Estimate::default(), Scene::new(1));
        let span = Span::from_secs;
        let mut finish = |class: &str, seconds: &[i64]| {
            let queue = scene.queue.as_mut().unwrap();
            queue.durations = seconds.iter().copied().map(span).collect();
            queue.durations_by_tag = [(class.to_string(), queue.durations.clone())].into();
            let look = scene.look();
            estimate.observe(&look, look.queue.unwrap());
        };
        finish("mail", &[1; 6]);
        finish("video", &[100; 3]);
        let long = "long".repeat(50);
        finish(&long, &[100; 3]);
        let any = (6.0 + 600.0) / 12.0;
        let of = |class| estimate.duration_of(class, 1000.0);
        assert_eq!((of("mail"), of("unheard"), of(&long)), (1.0, any, any));
        // Three of five: the rest is as for any job.
        assert!((of("video") - (0.6 * 100.0 + 0.4 * any)).abs() < 1e-9);
        let waiting = |tags: &[(&str, u64)]| {
            let tags = tags.iter().map(|(name, n)| ((*name).to_string(), *n)).collect();
            let queue = QueueReading { tags, ..QueueReading::default() };
            estimate.duration_of_waiting(&queue, 1000.0)
        };
        assert_eq!(waiting(&[]), any);
        assert_eq!(waiting(&[("mail", 3), ("other", 0)]), 1.0);
        assert_eq!(waiting(&[("mail", 1), ("other", 1)]), (1.0 + any) / 2.0);
    }

    #[test]
    fn the_classes_heard_of_last_are_remembered() {
        let mut classes = Classes::default();
        for class in 0..100 {
            classes.add(&class.to_string(), [1.0; 50].into_iter());
            classes.add("often", [2.0].into_iter());
        }
        assert_eq!(classes.0.len(), MOST_CLASSES);
        assert!(classes.get("often").is_some() && classes.get("99").is_some());
        assert!(classes.get("50").is_none());
        assert!(classes.0.iter().all(|(_, sample)| sample.len() <= MOST_OF_CLASS));
    }
}
