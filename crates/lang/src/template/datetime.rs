//! The `current_datetime` object of prompts: attributes and methods of Python's `datetime`.

use std::{cmp::Ordering, fmt, str::FromStr, sync::Arc};

use chrono::{Datelike, NaiveDate, NaiveDateTime, Offset, TimeDelta, Timelike};
use chrono_tz::{OffsetName, Tz};
use minijinja::{
    Error, ErrorKind, State, Value,
    value::{DynObject, Kwargs, Object, ObjectRepr, from_args},
};

use super::strftime::{LocalTime, microsecond, offset, strftime};
use crate::{finding::did_you_mean, time::Timestamp};

/// The error of a name that is not in the IANA time zone database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {name:?} in the IANA list{}", .suggestion.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
pub struct UnknownTimeZone {
    /// The name as written.
    pub name: String,
    /// The most similar name in the database, if one is similar.
    pub suggestion: Option<&'static str>,
}

/// A point in time in the local time of a zone, like an aware Python `datetime`.
#[derive(Clone, Debug)]
pub struct ZonedTime(DateTimeObject);

impl ZonedTime {
    /// The point in time `at` in the zone with this IANA name, such as `Europe/Oslo`.
    ///
    /// # Errors
    /// The name is not in the IANA time zone database; names are case-sensitive.
    pub fn new(at: Timestamp, zone: &str) -> Result<Self, UnknownTimeZone> {
        let tz = Tz::from_str(zone).map_err(|_| UnknownTimeZone {
            name: zone.to_owned(),
            suggestion: did_you_mean(zone, chrono_tz::TZ_VARIANTS.iter().map(|tz| tz.name())),
        })?;
        let utc = at.to_utc();
        let local = utc.with_timezone(&tz);
        let seconds = local.offset().fix().local_minus_utc();
        let zone = Zone {
            name: tz.name(),
            abbreviation: local.offset().abbreviation().map(Arc::from).unwrap_or_else(|| numeric_abbreviation(seconds)),
            offset_seconds: seconds,
        };
        // At both ends of chrono's calendar the local time may be out of range; UTC is used then.
        let naive = utc.naive_utc();
        let time = naive.checked_add_signed(TimeDelta::seconds(i64::from(seconds))).unwrap_or(naive);
        Ok(Self(DateTimeObject { part: DateTimePart::DateTime, time, zone: Some(zone) }))
    }

    /// Formats it as Python's `strftime` does, in English.
    ///
    /// # Errors
    /// A message that names the unknown code of the format.
    pub fn strftime(&self, format: &str) -> Result<String, String> {
        strftime(self.0.local(), format)
    }

    /// The object for a template's context.
    pub fn to_value(&self) -> Value {
        Value::from_object(self.0.clone())
    }
}

/// The abbreviation of a zone that has no letters: its UTC offset, with minutes only if they are not zero (`-03`, `+0545`).
fn numeric_abbreviation(seconds: i32) -> Arc<str> {
    let text = offset(seconds, "");
    Arc::from(text.strip_suffix("00").filter(|short| short.len() == 3).unwrap_or(&text))
}

impl fmt::Display for ZonedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text(' ', Precision::Auto))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DateTimePart {
    DateTime,
    Date,
    Time,
}

#[derive(Clone, Debug)]
struct Zone {
    name: &'static str,
    abbreviation: Arc<str>,
    offset_seconds: i32,
}

/// The template object of a `datetime`, or of its `date()` or `time()`, which have no zone.
#[derive(Clone, Debug)]
struct DateTimeObject {
    part: DateTimePart,
    time: NaiveDateTime,
    zone: Option<Zone>,
}

/// The `timespec` of Python's `isoformat`.
#[derive(Clone, Copy)]
enum Precision {
    Auto,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
    Microseconds,
}

impl Precision {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "hours" => Self::Hours,
            "minutes" => Self::Minutes,
            "seconds" => Self::Seconds,
            "milliseconds" => Self::Milliseconds,
            "microseconds" => Self::Microseconds,
            _ => return None,
        })
    }
}

impl DateTimeObject {
    fn local(&self) -> LocalTime<'_> {
        LocalTime {
            time: self.time,
            offset_seconds: self.zone.as_ref().map(|z| z.offset_seconds),
            abbreviation: self.zone.as_ref().map_or("", |z| &z.abbreviation),
        }
    }

    fn time_text(&self, precision: Precision) -> String {
        let (h, m, s, micro) = (self.time.hour(), self.time.minute(), self.time.second(), microsecond(self.time));
        match precision {
            Precision::Hours => format!("{h:02}"),
            Precision::Minutes => format!("{h:02}:{m:02}"),
            Precision::Milliseconds => format!("{h:02}:{m:02}:{s:02}.{:03}", micro / 1000),
            Precision::Microseconds => format!("{h:02}:{m:02}:{s:02}.{micro:06}"),
            Precision::Auto if micro > 0 => format!("{h:02}:{m:02}:{s:02}.{micro:06}"),
            Precision::Auto | Precision::Seconds => format!("{h:02}:{m:02}:{s:02}"),
        }
    }

    fn text(&self, separator: char, precision: Precision) -> String {
        let date = format!("{:04}-{:02}-{:02}", self.time.year(), self.time.month(), self.time.day());
        match self.part {
            DateTimePart::Date => date,
            DateTimePart::Time => self.time_text(precision),
            DateTimePart::DateTime => {
                let zone = self.zone.as_ref().map(|z| offset(z.offset_seconds, ":")).unwrap_or_default();
                format!("{date}{separator}{}{zone}", self.time_text(precision))
            }
        }
    }

    /// Microseconds since 1970 in UTC; without a zone, in local time.
    fn micros(&self) -> i64 {
        let seconds = self.zone.as_ref().map_or(0, |z| z.offset_seconds);
        self.time.and_utc().timestamp_micros().saturating_sub(i64::from(seconds) * 1_000_000)
    }

    fn date_attribute(&self, name: &str) -> Option<Value> {
        Some(match name {
            "year" => Value::from(self.time.year()),
            "month" => Value::from(self.time.month()),
            "day" => Value::from(self.time.day()),
            _ => return None,
        })
    }

    fn time_attribute(&self, name: &str) -> Option<Value> {
        Some(match name {
            "hour" => Value::from(self.time.hour()),
            "minute" => Value::from(self.time.minute()),
            "second" => Value::from(self.time.second()),
            "microsecond" => Value::from(microsecond(self.time)),
            "tzinfo" => self.zone.as_ref().map_or(Value::from(()), |z| Value::from(z.name)),
            _ => return None,
        })
    }

    fn isoformat(&self, args: &[Value]) -> Result<Value, Error> {
        let (separator, precision, options): (Option<char>, Option<&str>, Kwargs) = from_args(args)?;
        let separator = separator.or(options.get("sep")?).unwrap_or('T');
        let precision = precision.or(options.get("timespec")?).unwrap_or("auto");
        options.assert_all_used()?;
        let precision = Precision::from_name(precision)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("unknown timespec {precision:?}")))?;
        Ok(Value::from(self.text(separator, precision)))
    }

    /// The methods that only a `datetime` has, not its `date()` and `time()`.
    fn call_datetime_method(&self, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
        if self.part != DateTimePart::DateTime {
            return None;
        }
        let part = |part, time| Value::from_object(DateTimeObject { part, time, zone: None });
        let result = match method {
            "date" => part(DateTimePart::Date, self.time.date().and_time(chrono::NaiveTime::MIN)),
            // Python formats the date codes of a `time` as those of 1900-01-01.
            "time" => {
                let first = NaiveDate::from_ymd_opt(1900, 1, 1).unwrap_or_default();
                part(DateTimePart::Time, first.and_time(self.time.time()))
            }
            "tzname" => self.zone.as_ref().map_or(Value::from(()), |z| Value::from(&z.abbreviation)),
            "timestamp" => Value::from(Timestamp::from_micros(self.micros()).as_seconds()),
            "utcoffset" => {
                self.zone.as_ref().map_or(Value::from(()), |z| Value::from_object(TimeDeltaObject(z.offset_seconds)))
            }
            _ => return None,
        };
        Some(from_args(args).map(|()| result))
    }
}

impl Object for DateTimeObject {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match self.part {
            DateTimePart::DateTime => self.date_attribute(key).or_else(|| self.time_attribute(key)),
            DateTimePart::Date => self.date_attribute(key),
            DateTimePart::Time => self.time_attribute(key),
        }
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        match (method, self.part) {
            ("strftime", _) => {
                let (format,): (&str,) = from_args(args)?;
                strftime(self.local(), format)
                    .map(Value::from)
                    .map_err(|message| Error::new(ErrorKind::InvalidOperation, message))
            }
            ("isoformat", _) => self.isoformat(args),
            ("weekday", DateTimePart::DateTime | DateTimePart::Date) => {
                from_args(args).map(|()| Value::from(self.time.weekday().num_days_from_monday()))
            }
            ("isoweekday", DateTimePart::DateTime | DateTimePart::Date) => {
                from_args(args).map(|()| Value::from(self.time.weekday().number_from_monday()))
            }
            _ => self.call_datetime_method(method, args).unwrap_or_else(|| {
                let message = format!("a date or time has no method `{method}`");
                Err(Error::new(ErrorKind::UnknownMethod, message))
            }),
        }
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        Some((self.part as u8, self.micros()).cmp(&(other.part as u8, other.micros())))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(' ', Precision::Auto))
    }
}

/// The result of `utcoffset()`: Python's `timedelta`, in seconds.
#[derive(Debug)]
struct TimeDeltaObject(i32);

impl Object for TimeDeltaObject {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "days" => Some(Value::from(self.0.div_euclid(86_400))),
            "seconds" => Some(Value::from(self.0.rem_euclid(86_400))),
            _ => None,
        }
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        match method {
            "total_seconds" => from_args(args).map(|()| Value::from(f64::from(self.0))),
            _ => Err(Error::new(ErrorKind::UnknownMethod, format!("a timedelta has no method `{method}`"))),
        }
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        Some(self.0.cmp(&other.downcast_ref::<Self>()?.0))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        if days != 0 {
            write!(f, "{days} day{}, ", if days.abs() == 1 { "" } else { "s" })?;
        }
        write!(f, "{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}
