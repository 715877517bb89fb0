//! The configurations that a search may try: the present one with some of its parameters changed.

use std::collections::HashSet;

use fastrand::Rng;
use headcount_core::Rules;
use serde::Serialize;
use serde_json::Value;

use super::parameters::Parameter;

/// How often another one is made up where one makes no sense or is known already.
const ATTEMPTS: usize = 30;

/// A configuration: for each parameter its value, `None` where it stays as it is.
pub type Point = Vec<Option<f64>>;

/// What differs from the present configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The key in the rules.
    pub key: &'static str,
    /// The present value as the file format writes it; absent where a default holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value that it changes to.
    pub to: String,
    /// What more of it does.
    pub more: &'static str,
}

/// All of them.
#[derive(Debug)]
pub struct Space {
    pub(super) parameters: Vec<Parameter>,
    base: Value,
    present: Vec<Option<f64>>,
    /// Those that were made up so far.
    known: HashSet<Vec<Option<u64>>>,
}

impl Space {
    /// What can be reached from these rules by changing these parameters.
    pub fn new(rules: &Rules, parameters: Vec<Parameter>) -> Self {
        let base = serde_json::to_value(rules).unwrap_or_default();
        let present = parameters.iter().map(|parameter| parameter.read(&base)).collect();
        Self { parameters, base, present, known: HashSet::new() }
    }

    /// The rules as they are.
    pub fn here(&self) -> Point {
        vec![None; self.parameters.len()]
    }

    /// The rules of a point.
    ///
    /// # Errors
    /// They make no sense; why.
    pub fn rules(&self, point: &Point) -> Result<Rules, String> {
        let mut value = self.base.clone();
        for (parameter, x) in self.parameters.iter().zip(point) {
            if let Some(x) = x {
                parameter.write(&mut value, *x);
            }
        }
        let rules: Rules = serde_json::from_value(value).map_err(|e| e.to_string())?;
        match rules.problems().first() {
            Some((key, what)) => Err(format!("{key}: {what}")),
            None => Ok(rules),
        }
    }

    /// What is different at a point.
    pub fn changes(&self, point: &Point) -> Vec<Change> {
        let all = self.parameters.iter().zip(&self.present).zip(point);
        let changed = all.filter_map(|((parameter, present), x)| {
            let from = present.map(|present| parameter.show(present));
            Some(Change {
                key: parameter.key,
                from,
                to: parameter.show((*x)?),
                more: parameter.what,
            })
        });
        changed.collect()
    }

    /// So many points all over, evenly: the additive sequence whose step is a power of the root of
    /// x^(d+1) = x + 1 (d parameters), from a seeded start. Each point leaves about half of the
    /// parameters as they are, so that it shows what the others do.
    pub(super) fn sample(&mut self, count: usize, rng: &mut Rng) -> Vec<Point> {
        let dimensions = self.parameters.len();
        let root = (0..64).fold(2.0_f64, |x, _| (1.0 + x).powf(1.0 / (dimensions + 1) as f64));
        let mut places: Vec<f64> = (0..dimensions).map(|_| rng.f64()).collect();
        self.collect(count, |space| {
            for (i, place) in places.iter_mut().enumerate() {
                *place = (*place + root.powi(-(i as i32 + 1))).fract();
            }
            let certain = rng.usize(0..dimensions.max(1));
            let at = |(i, place): (usize, &f64)| {
                (rng.bool() || i == certain).then(|| space.parameters[i].at(*place))
            };
            places.iter().enumerate().map(at).collect()
        })
    }

    /// So many points around these, each at most `radius` (of the whole range) away in one or some
    /// of the parameters.
    pub(super) fn around(
        &mut self,
        centres: &[Point],
        radius: f64,
        count: usize,
        rng: &mut Rng,
    ) -> Vec<Point> {
        let mut turn = 0;
        self.collect(count, |space| {
            let centre = &centres[turn % centres.len().max(1)];
            turn += 1;
            let certain = rng.usize(0..centre.len().max(1));
            let moved = |(i, x): (usize, &Option<f64>)| {
                if !(i == certain || rng.u8(0..3) == 0) {
                    return *x;
                }
                let parameter = &space.parameters[i];
                let from = x.or(space.present[i]).map_or(0.5, |x| parameter.place(x));
                Some(parameter.at(from + radius * (2.0 * rng.f64() - 1.0)))
            };
            centre.iter().enumerate().map(moved).collect()
        })
    }

    /// The point with each of its changes taken back, one at a time.
    pub(super) fn simpler(&self, point: &Point) -> Vec<Point> {
        let changed = (0..point.len()).filter(|i| point[*i].is_some());
        let without = |i: usize| {
            let mut simpler = point.clone();
            simpler[i] = None;
            simpler
        };
        changed.map(without).filter(|point| self.rules(point).is_ok()).collect()
    }

    /// Up to so many points that make sense and are new.
    fn collect(&mut self, count: usize, mut make: impl FnMut(&Self) -> Point) -> Vec<Point> {
        let mut found = Vec::with_capacity(count);
        for _ in 0..count.saturating_mul(ATTEMPTS) {
            if found.len() == count {
                break;
            }
            let mut point = make(self);
            for (x, present) in point.iter_mut().zip(&self.present) {
                x.take_if(|x| Some(*x) == *present);
            }
            let name = point.iter().map(|x| x.map(f64::to_bits)).collect();
            let is_here = point.iter().all(Option::is_none);
            if !is_here && self.rules(&point).is_ok() && self.known.insert(name) {
                found.push(point);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::parameters;
    use super::*;

    fn space(vary: &[&str]) -> Space {
        let rules: Rules = serde_json::from_str(r#"{"policy": {"cpu_aware": {}}}"#).unwrap();
        let mut all = parameters(&rules, 8);
        all.retain(|p| vary.is_empty() || vary.iter().any(|name| p.is_called(name)));
        Space::new(&rules, all)
    }

    #[test]
    fn a_sample_is_spread_evenly_and_makes_sense() {
        let mut space = space(&["alpha_up", "alpha_down"]);
        let points = space.sample(40, &mut Rng::with_seed(1));
        assert_eq!(points.len(), 40);
        let changed: Vec<f64> = points.iter().filter_map(|point| point[0]).collect();
        let low = changed.iter().filter(|x| **x < 0.5).count();
        assert!((changed.len() / 3..changed.len()).contains(&low), "{changed:?}");
        assert!(points.iter().all(|point| space.rules(point).is_ok()));
    }

    #[test]
    fn points_are_new_and_none_is_the_present_one() {
        // 101 percentages and no more: it ends, though it is asked for more.
        let mut space = space(&["emergency"]);
        let mut rng = Rng::with_seed(1);
        let mut points = space.sample(1000, &mut rng);
        points.extend(space.around(&[points[0].clone()], 0.5, 100, &mut rng));
        // 70 to 101, but no less than scale_out_below, and 88 is there already.
        assert_eq!(points.len(), 31);
        assert!(points.iter().all(|point| point[0].is_some_and(|x| x != 88.0)));
        let mut names: Vec<u64> = points.iter().map(|p| p[0].unwrap().to_bits()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), points.len());
    }

    #[test]
    fn changes_can_be_told_and_taken_back_one_by_one() {
        let space = space(&["cooldown", "alpha_down", "max"]);
        let point = vec![Some(30.0), None, Some(6.0)];
        let changes = space.changes(&point);
        assert_eq!(
            changes.iter().map(|c| (c.key, c.from.as_deref(), &*c.to)).collect::<Vec<_>>(),
            [("policy.cpu_aware.cooldown", Some("1m 30s"), "30s"), ("workers.max", Some("4"), "6")]
        );
        let simpler = space.simpler(&point);
        assert_eq!(simpler, [vec![None, None, Some(6.0)], vec![Some(30.0), None, None]]);
        let rules = space.rules(&point).unwrap();
        assert_eq!(rules.workers.max, 6);
        let none = space.rules(&vec![None, None, Some(0.0)]).unwrap_err();
        assert!(none.starts_with("workers.m"), "{none}");
    }
}
