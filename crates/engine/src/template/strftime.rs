//! Dates as text, by the codes of C that Python's `strftime` takes, in English.
//!
//! Written here and not left to the calendar library because that one prints `%f` with nine digits, fails inside printing
//! on unknown codes, and knows other variants. The table in `tests/data/strftime.jsonl` comes from CPython on Linux.

use std::{borrow::Cow, fmt::Write};

use chrono::{Datelike, NaiveDateTime, Timelike};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The moment to print, in local time, with the zone if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local<'a> {
    pub(super) time: NaiveDateTime,
    pub(super) offset_seconds: Option<i32>,
    pub(super) abbreviation: &'a str,
}

/// Prints `local` by `format`.
///
/// # Errors
/// The format has a code nobody knows, or ends inside one. The text says which.
pub(super) fn strftime(local: Local<'_>, format: &str) -> Result<String, String> {
    let mut out = String::with_capacity(format.len() * 3);
    append(local, format, &mut out).map(|()| out)
}

fn append(local: Local<'_>, format: &str, out: &mut String) -> Result<(), String> {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flag = None;
        let code = loop {
            match chars.next() {
                Some(f @ ('-' | '_' | '0' | '^' | '#' | ':')) if flag.is_none() => flag = Some(f),
                Some(code) => break code,
                None => return Err(format!("the date format {format:?} ends inside a code")),
            }
        };
        if !write_code(local, code, flag, out) {
            let flag = flag.map(String::from).unwrap_or_default();
            return Err(format!("the date format {format:?} has the unknown code `%{flag}{code}`"));
        }
    }
    Ok(())
}

/// Appends one code; false if there is no such code.
fn write_code(local: Local<'_>, code: char, flag: Option<char>, out: &mut String) -> bool {
    let whole = match code {
        'D' | 'x' => "%m/%d/%y",
        'F' => "%Y-%m-%d",
        'T' | 'X' => "%H:%M:%S",
        'R' => "%H:%M",
        'r' => "%I:%M:%S %p",
        'c' => "%a %b %e %H:%M:%S %Y",
        _ => "",
    };
    if !whole.is_empty() && flag.is_none() {
        // These formats hold plain codes only, so this goes one level deep.
        return append(local, whole, out).is_ok();
    }
    if let Some((value, width, fill)) = number(local.time, code) {
        let (width, fill) = match flag {
            None => (width, fill),
            Some('-') => (0, fill),
            Some('_') => (width, ' '),
            Some('0') => (width, '0'),
            Some(_) => return false,
        };
        return match fill {
            '0' => write!(out, "{value:0>width$}"),
            _ => write!(out, "{value: >width$}"),
        }
        .is_ok();
    }
    match (word(local, code, flag == Some(':')), flag) {
        (Some(text), None) => out.push_str(&text),
        (Some(text), Some(':')) if code == 'z' => out.push_str(&text),
        (Some(text), Some('^')) => out.push_str(&text.to_uppercase()),
        (Some(text), Some('#')) if code == 'p' => out.push_str(&text.to_lowercase()),
        (Some(text), Some('#')) => out.push_str(&text.to_uppercase()),
        _ => return false,
    }
    true
}

/// The value of a numeric code, with the width it is filled to and what fills it.
fn number(time: NaiveDateTime, code: char) -> Option<(i64, usize, char)> {
    let day_of_year = time.ordinal0() + 7;
    let hour12 = time.hour12().1;
    let (value, width, fill) = match code {
        'd' => (time.day(), 2, '0'),
        'e' => (time.day(), 2, ' '),
        'm' => (time.month(), 2, '0'),
        'H' => (time.hour(), 2, '0'),
        'I' => (hour12, 2, '0'),
        'k' => (time.hour(), 2, ' '),
        'l' => (hour12, 2, ' '),
        'M' => (time.minute(), 2, '0'),
        'S' => (time.second(), 2, '0'),
        'j' => (time.ordinal(), 3, '0'),
        'U' => ((day_of_year - time.weekday().num_days_from_sunday()) / 7, 2, '0'),
        'W' => ((day_of_year - time.weekday().num_days_from_monday()) / 7, 2, '0'),
        'V' => (time.iso_week().week(), 2, '0'),
        'u' => (time.weekday().number_from_monday(), 1, '0'),
        'w' => (time.weekday().num_days_from_sunday(), 1, '0'),
        'Y' => return Some((i64::from(time.year()), 1, '0')),
        'G' => return Some((i64::from(time.iso_week().year()), 1, '0')),
        'y' => return Some((i64::from(time.year().rem_euclid(100)), 2, '0')),
        'g' => return Some((i64::from(time.iso_week().year().rem_euclid(100)), 2, '0')),
        'C' => return Some((i64::from(time.year().div_euclid(100)), 2, '0')),
        _ => return None,
    };
    Some((i64::from(value), width, fill))
}

fn word<'a>(local: Local<'a>, code: char, colon: bool) -> Option<Cow<'a, str>> {
    let name = |names: &[&'static str], at: u32| names.get(at as usize).copied().unwrap_or_default();
    let short = |text: &'static str| text.get(..3).unwrap_or(text);
    let time = local.time;
    Some(match code {
        'A' => name(&DAYS, time.weekday().num_days_from_monday()).into(),
        'a' => short(name(&DAYS, time.weekday().num_days_from_monday())).into(),
        'B' => name(&MONTHS, time.month0()).into(),
        'b' | 'h' => short(name(&MONTHS, time.month0())).into(),
        'p' => if time.hour() < 12 { "AM" } else { "PM" }.into(),
        'P' => if time.hour() < 12 { "am" } else { "pm" }.into(),
        'f' => format!("{:06}", microsecond(time)).into(),
        'z' => {
            let zone = local.offset_seconds.map(|seconds| offset(seconds, if colon { ":" } else { "" }));
            zone.unwrap_or_default().into()
        }
        'Z' => local.abbreviation.into(),
        'n' => "\n".into(),
        't' => "\t".into(),
        '%' => "%".into(),
        _ => return None,
    })
}

/// Microseconds of the second, a leap second folded in.
pub(super) fn microsecond(time: NaiveDateTime) -> u32 {
    time.nanosecond() / 1000 % 1_000_000
}

/// A distance from UTC: `+0200`, `+02:00`, with seconds where a zone of long ago had them.
pub(super) fn offset(seconds: i32, between: &str) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let total = seconds.unsigned_abs();
    let (hours, minutes, rest) = (total / 3600, total / 60 % 60, total % 60);
    let mut text = format!("{sign}{hours:02}{between}{minutes:02}");
    if rest > 0 {
        text.push_str(&format!("{between}{rest:02}"));
    }
    text
}
