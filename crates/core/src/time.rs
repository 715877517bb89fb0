//! Time as the core sees it: a number that is handed in, never read from a clock.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signed length of time.
pub type Span = jiff::SignedDuration;

/// A point in time: milliseconds since the Unix epoch. Serialised as seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The point `seconds` after the Unix epoch, to the nearest millisecond.
    ///
    /// `None` for a number that is not finite or beyond the year 292 million.
    pub fn from_seconds(seconds: f64) -> Option<Self> {
        let millis = (seconds * 1000.0).round();
        let fits = millis.is_finite() && millis.abs() < i64::MAX as f64 / 4.0;
        fits.then_some(Self(millis as i64))
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Seconds since the Unix epoch.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// How long after `earlier` this is; negative when it is before.
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This point moved by `span`; stops at the ends of the range.
    pub fn plus(self, span: Span) -> Self {
        let millis = span.as_millis().clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Self(self.0.saturating_add(millis))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.as_seconds())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(from)?;
        Self::from_seconds(seconds)
            .ok_or_else(|| serde::de::Error::custom("time must be Unix seconds within range"))
    }
}

/// Seconds as a plain number, for messages and JSON.
pub fn seconds(span: Span) -> f64 {
    span.as_millis() as f64 / 1000.0
}

/// A span from a plain number of seconds; `None` if it is negative or not finite.
pub fn span_of_seconds(seconds: f64) -> Option<Span> {
    let fits = seconds.is_finite() && (0.0..1e12).contains(&seconds);
    fits.then(|| Span::from_millis((seconds * 1000.0).round() as i64))
}

/// Serialises an optional [`Span`] as a number of seconds.
pub mod as_seconds {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Span, seconds, span_of_seconds};

    /// Writes seconds or null.
    pub fn serialize<S: Serializer>(span: &Option<Span>, to: S) -> Result<S::Ok, S::Error> {
        span.map(seconds).serialize(to)
    }

    /// Reads seconds or null; negative and non-finite numbers are errors.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
        let read = |s| span_of_seconds(s).ok_or_else(|| super::not_a_span(s));
        Option::<f64>::deserialize(from)?.map(read).transpose()
    }
}

/// Serialises a list of [`Span`] as numbers of seconds.
pub mod as_seconds_list {
    use super::{Deserialize, Deserializer, Serializer, Span, seconds, span_of_seconds};

    /// Writes a list of seconds.
    pub fn serialize<S: Serializer>(spans: &[Span], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(spans.iter().map(|s| seconds(*s)))
    }

    /// Reads a list of seconds; negative and non-finite numbers are errors.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Span>, D::Error> {
        let read = |s| span_of_seconds(s).ok_or_else(|| super::not_a_span(s));
        Vec::<f64>::deserialize(from)?.into_iter().map(read).collect()
    }
}

/// Serialises lists of [`Span`] by name as numbers of seconds.
pub mod as_seconds_lists {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Serialize, Serializer, Span, as_seconds_list};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct List(#[serde(with = "as_seconds_list")] Vec<Span>);

    /// Writes lists of seconds.
    pub fn serialize<S: Serializer>(
        lists: &BTreeMap<String, Vec<Span>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(lists.iter().map(|(name, list)| (name, List(list.clone()))))
    }

    /// Reads lists of seconds; negative and non-finite numbers are errors.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, Vec<Span>>, D::Error> {
        let lists = BTreeMap::<String, List>::deserialize(from)?;
        Ok(lists.into_iter().map(|(name, list)| (name, list.0)).collect())
    }
}

fn not_a_span<E: serde::de::Error>(seconds: f64) -> E {
    E::custom(format!("{seconds} is no length of time: use seconds, 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_overflowing() {
        let last = Timestamp::from_millis(i64::MAX);
        assert_eq!(last.plus(Span::MAX), last);
        let first = Timestamp::from_millis(i64::MIN);
        assert_eq!(first.plus(Span::MIN), first);
        assert_eq!(last.since(Timestamp::from_millis(i64::MIN)), Span::from_millis(i64::MAX));
        assert_eq!(Timestamp::from_seconds(f64::NAN), None);
        assert_eq!(Timestamp::from_seconds(1e300), None);
    }

    #[test]
    fn seconds_survive_a_round_trip() {
        let t: Timestamp = serde_json::from_str("1793024.125").unwrap();
        assert_eq!(t.as_millis(), 1_793_024_125);
        assert_eq!(serde_json::to_string(&t).unwrap(), "1793024.125");
    }
}
