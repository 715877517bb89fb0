//! Time in the world: whole microseconds since its start, so that sums are exact.

use headcount_core::{Span, Timestamp};

/// A point in the world's time, or a length of it: microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// The world starts on Monday, 2024-01-01 00:00 UTC: schedules see a whole week.
const EPOCH_MS: i64 = 1_704_067_200_000;

impl Moment {
    /// So many microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The nearest microsecond; `None` for a negative number, one that is not finite, or more than
    /// 100 years.
    pub fn from_seconds(seconds: f64) -> Option<Self> {
        let fits = seconds.is_finite() && (0.0..=100.0 * 366.0 * 86_400.0).contains(&seconds);
        fits.then_some(Self((seconds * 1e6).round() as u64))
    }

    /// The same length of time; a negative one is zero.
    pub fn from_span(span: Span) -> Self {
        Self(u64::try_from(span.as_micros().max(0)).unwrap_or(u64::MAX))
    }

    /// Microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Hours.
    pub fn as_hours(self) -> f64 {
        self.as_seconds() / 3600.0
    }

    /// The length of time as the core writes it.
    pub fn as_span(self) -> Span {
        Span::from_micros(i64::try_from(self.0).unwrap_or(i64::MAX))
    }

    /// The point in time as the core writes it.
    pub fn as_timestamp(self) -> Timestamp {
        Timestamp::from_millis(EPOCH_MS).plus(self.as_span())
    }

    /// Later by `length`; stops at the end of time.
    pub const fn plus(self, length: Self) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// How long after `earlier`; zero if it is before.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_kept_to_the_microsecond() {
        let at = Moment::from_seconds(0.123_456_7).unwrap();
        assert_eq!(at, Moment::from_micros(123_457));
        assert_eq!(at.as_span(), Span::from_micros(123_457));
        for nonsense in [-0.1, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(Moment::from_seconds(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let last = Moment::from_micros(u64::MAX);
        assert_eq!(last.plus(last), last);
        assert_eq!(Moment::default().since(last), Moment::default());
        assert_eq!(Moment::from_span(Span::from_secs(-1)), Moment::default());
    }
}
