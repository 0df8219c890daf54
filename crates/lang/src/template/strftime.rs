//! Formats dates with the codes of Python's `strftime` (those of C), in English.
//!
//! chrono implements most codes. The differences are implemented here: `%f` has six digits, `%Y` and `%G` are not padded with zeros, `%z`
//! and `%Z` use the zone, and the flags `^` and `#` change the case. `tests/data/strftime.jsonl` was recorded from CPython on Linux.

use std::fmt::Write as _;

use chrono::{Datelike, NaiveDateTime, Timelike, format::StrftimeItems};

/// The local time to format, with its zone if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTime<'a> {
    pub(super) time: NaiveDateTime,
    pub(super) offset_seconds: Option<i32>,
    pub(super) abbreviation: &'a str,
}

/// Formats `local` with `format`.
///
/// # Errors
/// The format has an unknown code or ends inside one. The message names it.
pub(super) fn strftime(local: LocalTime<'_>, format: &str) -> Result<String, String> {
    let mut out = String::with_capacity(format.len() * 3);
    let mut rest = format;
    while let Some((plain, after)) = rest.split_once('%') {
        out.push_str(plain);
        let mut chars = after.chars();
        let ends_inside = || format!("the date format {format:?} ends inside a code");
        let first = chars.next().ok_or_else(ends_inside)?;
        let is_flag = "-_0^#:".contains(first);
        let code = if is_flag { chars.next().ok_or_else(ends_inside)? } else { first };
        let flag = is_flag.then_some(first);
        let text = format_code(local, flag, code).ok_or_else(|| {
            let flag = flag.map(String::from).unwrap_or_default();
            format!("the date format {format:?} has the unknown code `%{flag}{code}`")
        })?;
        out.push_str(&text);
        rest = chars.as_str();
    }
    out.push_str(rest);
    Ok(out)
}

/// The text of one code; `None` if there is no such code.
fn format_code(local: LocalTime<'_>, flag: Option<char>, code: char) -> Option<String> {
    match (flag, code) {
        (Some('#'), 'p') => return Some(format_code(local, None, code)?.to_lowercase()),
        (Some('^' | '#'), _) => return Some(format_code(local, None, code)?.to_uppercase()),
        (None, 'f') => return Some(format!("{:06}", microsecond(local.time))),
        (None, 'Y') => return Some(local.time.year().to_string()),
        (None, 'G') => return Some(local.time.iso_week().year().to_string()),
        (None, 'Z') => return Some(local.abbreviation.to_owned()),
        (None | Some(':'), 'z') => {
            let separator = if flag.is_some() { ":" } else { "" };
            return Some(local.offset_seconds.map(|seconds| offset(seconds, separator)).unwrap_or_default());
        }
        // Seconds since the Unix epoch cannot be computed from the local time alone.
        (_, 's') => return None,
        _ => {}
    }
    let written = format!("%{}{code}", flag.map(String::from).unwrap_or_default());
    let items = StrftimeItems::new(&written).parse().ok()?;
    let mut out = String::new();
    write!(out, "{}", local.time.format_with_items(items.iter())).ok()?;
    Some(out)
}

/// Microseconds of the second; a leap second is folded into the second before it.
pub(super) fn microsecond(time: NaiveDateTime) -> u32 {
    time.nanosecond() / 1000 % 1_000_000
}

/// A UTC offset as `+0200` or `+02:00`, with seconds if it has any (historical zones).
pub(super) fn offset(seconds: i32, separator: &str) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let total = seconds.unsigned_abs();
    let (hours, minutes, rest) = (total / 3600, total / 60 % 60, total % 60);
    let mut text = format!("{sign}{hours:02}{separator}{minutes:02}");
    if rest > 0 {
        text.push_str(&format!("{separator}{rest:02}"));
    }
    text
}
