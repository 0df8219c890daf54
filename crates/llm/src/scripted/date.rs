//! Dates in English text: `tomorrow`, `next friday`, `the 3rd of May`.

use std::sync::LazyLock;

use chrono::{Datelike, Days, Months, NaiveDate, Weekday};
use minijinja::Value;
use regex::Regex;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Filter `date`: the first date in `text` as `YYYY-MM-DD`, relative to the date in `now`; none when there is no date.
pub(super) fn date(text: Option<String>, now: Option<String>) -> Value {
    let Some(today) = now.as_deref().and_then(|now| absolute_date(&now.to_lowercase(), None)) else {
        return Value::from(());
    };
    let found = text.and_then(|text| relative_date(&text.to_lowercase(), today));
    found.map_or_else(|| Value::from(()), |day| day.to_string().into())
}

fn compiled(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// A date with day and month. Without a year it is the next one from `today` on.
fn absolute_date(text: &str, today: Option<NaiveDate>) -> Option<NaiveDate> {
    static ISO: LazyLock<Option<Regex>> = LazyLock::new(|| compiled(r"\b(\d{4})-(\d{2})-(\d{2})\b"));
    static DAY_FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        compiled(
            r"\b(\d{1,2})(?:st|nd|rd|th|\.)?(?: of)? (jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b\.?,?(?: (\d{4})\b)?",
        )
    });
    static MONTH_FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
        compiled(
            r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? (?:the )?(\d{1,2})(?:st|nd|rd|th)?\b(?:,? (\d{4})\b)?",
        )
    });
    if let Some(found) = ISO.as_ref()?.captures(text) {
        return NaiveDate::from_ymd_opt(found[1].parse().ok()?, found[2].parse().ok()?, found[3].parse().ok()?);
    }
    let (found, day, month) = match (DAY_FIRST.as_ref()?.captures(text), MONTH_FIRST.as_ref()?.captures(text)) {
        (Some(found), _) => (found, 1, 2),
        (None, Some(found)) => (found, 2, 1),
        (None, None) => return None,
    };
    let day: u32 = found.get(day)?.as_str().parse().ok()?;
    let name = found.get(month)?.as_str();
    let month = u32::try_from(MONTHS.iter().position(|known| *known == name)?).ok()? + 1;
    match found.get(3) {
        Some(year) => NaiveDate::from_ymd_opt(year.as_str().parse().ok()?, month, day),
        None => {
            let today = today?;
            // The next 29 February may be eight years away.
            (0..=8).find_map(|years| {
                NaiveDate::from_ymd_opt(today.year() + years, month, day).filter(|date| *date >= today)
            })
        }
    }
}

/// A date of any form, seen from `today`.
fn relative_date(text: &str, today: NaiveDate) -> Option<NaiveDate> {
    static AHEAD: LazyLock<Option<Regex>> = LazyLock::new(|| {
        compiled(r"\bin (a|an|one|two|three|four|five|six|seven|eight|nine|ten|\d{1,3}) (day|week)s?\b")
    });
    static WEEKDAY: LazyLock<Option<Regex>> = LazyLock::new(|| {
        compiled(
            r"\b(next )?(?:(mon)|(tue)s?|(wed)(?:nes)?|(thu)(?:rs?)?|(fri)|(sat)(?:ur)?|(sun))(?:day)?s?\b( (?:week|after next))?",
        )
    });
    static OF_MONTH: LazyLock<Option<Regex>> = LazyLock::new(|| compiled(r"\bthe (\d{1,2})(?:st|nd|rd|th)\b"));
    if let Some(day) = absolute_date(text, Some(today)) {
        return Some(day);
    }
    let after = |days: u64| today.checked_add_days(Days::new(days));
    if text.contains("day after tomorrow") {
        return after(2);
    }
    if text.contains("tomorrow") {
        return after(1);
    }
    if let Some(found) = AHEAD.as_ref()?.captures(text) {
        let many = match &found[1] {
            "a" | "an" => 1,
            many => u64::try_from(super::pattern::number(many.to_owned()).as_i64()?).ok()?,
        };
        return after(if &found[2] == "week" { many * 7 } else { many });
    }
    if let Some(found) = WEEKDAY.as_ref()?.captures(text) {
        const DAYS: [Weekday; 7] =
            [Weekday::Mon, Weekday::Tue, Weekday::Wed, Weekday::Thu, Weekday::Fri, Weekday::Sat, Weekday::Sun];
        let wanted = (2..9).find(|group| found.get(*group).is_some()).and_then(|group| DAYS.get(group - 2))?;
        let ahead = u64::from((wanted.num_days_from_monday() + 7 - today.weekday().num_days_from_monday()) % 7);
        // On a Friday, `next friday` is a week ahead and `friday` is today; `friday week` is one week later.
        let ahead = if ahead == 0 && found.get(1).is_some() { 7 } else { ahead };
        return after(ahead + if found.get(9).is_some() { 7 } else { 0 });
    }
    if text.contains("weekend") {
        return after(u64::from(
            (Weekday::Sat.num_days_from_monday() + 7 - today.weekday().num_days_from_monday()) % 7,
        ));
    }
    if text.contains("next week") {
        return after(7);
    }
    if ["today", "tonight", "this morning", "this afternoon", "this evening"].iter().any(|word| text.contains(word)) {
        return Some(today);
    }
    let day: u32 = OF_MONTH.as_ref()?.captures(text)?.get(1)?.as_str().parse().ok()?;
    let first = today.with_day(1)?;
    (0..3).find_map(|months| first.checked_add_months(Months::new(months))?.with_day(day).filter(|date| *date >= today))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn dates_are_relative_to_today() {
        let now = "Saturday, 21 November 2026, 09:30 (CET)";
        for (text, date_of_text) in [
            ("Tomorrow, please", "2026-11-22"),
            ("the day after tomorrow", "2026-11-23"),
            ("tonight", "2026-11-21"),
            ("on friday", "2026-11-27"),
            ("next saturday", "2026-11-28"),
            ("saturday", "2026-11-21"),
            ("tues", "2026-11-24"),
            ("monday week", "2026-11-30"),
            ("in three days", "2026-11-24"),
            ("in a week", "2026-11-28"),
            ("at the weekend", "2026-11-21"),
            ("3 December", "2026-12-03"),
            ("the 3rd of Dec.", "2026-12-03"),
            ("May 5th", "2027-05-05"),
            ("1 May 2028", "2028-05-01"),
            ("2026-12-24 or so", "2026-12-24"),
            ("the 25th", "2026-11-25"),
            ("the 3rd", "2026-12-03"),
            ("feb 29", "2028-02-29"),
        ] {
            assert_eq!(date(Some(text.into()), Some(now.into())).to_string(), date_of_text, "{text}");
        }
        for text in ["the early boat", "at 12:15", "monastery", "the 41st", "31 february"] {
            assert!(date(Some(text.into()), Some(now.into())).is_none(), "{text}");
        }
        assert!(date(Some("tomorrow".into()), None).is_none(), "without today there is no tomorrow");
        assert_eq!(date(Some("tomorrow".into()), Some("Saturday, 2026-11-21, 09:30".into())).to_string(), "2026-11-22");
    }
}
