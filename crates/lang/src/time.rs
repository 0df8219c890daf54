//! A point in time as data. Nothing here reads a clock: every time is an argument.

use chrono::{DateTime, TimeZone, Utc};
use serde::{Deserialize, Serialize};

/// A point in wall-clock time: microseconds since 1970-01-01 00:00 UTC.
///
/// Serialised as float seconds, the form of event timestamps in Rasa trackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }
    /// Float seconds since 1970, the form in events.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// From float seconds since 1970, rounded to the microsecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e6).round() as i64)
    }
    /// The same point as a calendar value. A value out of chrono's range becomes 1970-01-01.
    pub fn to_utc(self) -> DateTime<Utc> {
        Utc.timestamp_micros(self.0).single().unwrap_or(DateTime::UNIX_EPOCH)
    }
    /// From an RFC 3339 time such as `2026-11-03T08:00:00+01:00`; `None` for any other text.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        DateTime::parse_from_rfc3339(text).ok().map(|time| Self(time.timestamp_micros()))
    }
    /// Whole microseconds from `earlier` to `self`; negative when `self` is before it.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.as_seconds())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self::from_seconds(f64::deserialize(d)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_seconds_round_trip_to_the_microsecond() {
        for micros in [0, 1, 999_999, 1_763_726_400_123_456, 4_102_444_799_999_999] {
            let at = Timestamp::from_micros(micros);
            let text = serde_json::to_string(&at).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Timestamp>(&text).ok(), Some(at), "{text}");
        }
    }
}
