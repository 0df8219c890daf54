//! Dates as text, by the codes of C that Python's `strftime` takes, in English.
//!
//! The calendar library knows most of them. Written here are those where it differs: `%f` has six digits, `%Y` and `%G` are
//! not filled with zeros, `%z` and `%Z` come from the zone, and the flags `^` and `#` change the case. The table in
//! `tests/data/strftime.jsonl` comes from CPython on Linux.

use std::fmt::Write as _;

use chrono::{Datelike, NaiveDateTime, Timelike, format::StrftimeItems};

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
    let mut rest = format;
    while let Some((plain, after)) = rest.split_once('%') {
        out.push_str(plain);
        let mut chars = after.chars();
        let ends_inside = || format!("the date format {format:?} ends inside a code");
        let first = chars.next().ok_or_else(ends_inside)?;
        let is_flag = "-_0^#:".contains(first);
        let code = if is_flag { chars.next().ok_or_else(ends_inside)? } else { first };
        let flag = is_flag.then_some(first);
        let text = print_code(local, flag, code).ok_or_else(|| {
            let flag = flag.map(String::from).unwrap_or_default();
            format!("the date format {format:?} has the unknown code `%{flag}{code}`")
        })?;
        out.push_str(&text);
        rest = chars.as_str();
    }
    out.push_str(rest);
    Ok(out)
}

/// What one code prints; `None` where there is no such code.
fn print_code(local: Local<'_>, flag: Option<char>, code: char) -> Option<String> {
    match (flag, code) {
        (Some('#'), 'p') => return Some(print_code(local, None, code)?.to_lowercase()),
        (Some('^' | '#'), _) => return Some(print_code(local, None, code)?.to_uppercase()),
        (None, 'f') => return Some(format!("{:06}", microsecond(local.time))),
        (None, 'Y') => return Some(local.time.year().to_string()),
        (None, 'G') => return Some(local.time.iso_week().year().to_string()),
        (None, 'Z') => return Some(local.abbreviation.to_owned()),
        (None | Some(':'), 'z') => {
            let between = if flag.is_some() { ":" } else { "" };
            return Some(local.offset_seconds.map(|seconds| offset(seconds, between)).unwrap_or_default());
        }
        // It counts from the Unix epoch, which the local time alone does not tell.
        (_, 's') => return None,
        _ => {}
    }
    let written = format!("%{}{code}", flag.map(String::from).unwrap_or_default());
    let items = StrftimeItems::new(&written).parse().ok()?;
    let mut out = String::new();
    write!(out, "{}", local.time.format_with_items(items.iter())).ok()?;
    Some(out)
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
