//! The timetable: which boat goes when, for any date. Nothing is stored; the same date gives the same boats.

use chrono::{DateTime, Datelike, Days, Duration, NaiveDate, NaiveTime, TimeZone, Timelike, Utc, Weekday};
use chrono_tz::Tz;
use sha2::{Digest, Sha256};

/// A port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Port {
    /// Three letters, as in the ids of crossings.
    pub(super) code: &'static str,
    pub(super) name: &'static str,
    pub(super) country: &'static str,
    pub(super) zone: Tz,
    /// One line for people.
    pub(super) about: &'static str,
}

/// All ports. The places are made up; the time zones are not.
pub(super) static PORTS: [Port; 5] = [
    Port {
        code: "ARN",
        name: "Arnvik",
        country: "Norway",
        zone: Tz::Europe__Oslo,
        about: "terminal at the fish market, tram 2",
    },
    Port {
        code: "SKE",
        name: "Skelby",
        country: "Denmark",
        zone: Tz::Europe__Copenhagen,
        about: "terminal beside the railway station",
    },
    Port {
        code: "NOR",
        name: "Northhaven",
        country: "Scotland",
        zone: Tz::Europe__London,
        about: "terminal at the old harbour, bus 7",
    },
    Port {
        code: "GRE",
        name: "Grenmouth",
        country: "England",
        zone: Tz::Europe__London,
        about: "terminal at the south quay, ten minutes on foot from the town",
    },
    Port {
        code: "TOR",
        name: "Torsay",
        country: "Scotland",
        zone: Tz::Europe__London,
        about: "a pier, a tea room and a great many puffins",
    },
];

/// A line between two ports, served in both directions.
struct Line {
    ports: [&'static str; 2],
    /// Departures by direction, local time of the port of departure.
    departures: [&'static [(u32, u32)]; 2],
    minutes: u32,
    /// Per passenger, in euros.
    price: u32,
    seats: u32,
    vessels: &'static [&'static str],
    days: fn(Weekday) -> bool,
}

static LINES: [Line; 4] = [
    Line {
        ports: ["ARN", "SKE"],
        departures: [&[(7, 40), (12, 15), (18, 30)], &[(8, 10), (13, 5), (19, 15)]],
        minutes: 165,
        price: 39,
        seats: 240,
        vessels: &["MS Eider", "MS Kittiwake"],
        days: |_| true,
    },
    Line {
        ports: ["ARN", "NOR"],
        departures: [&[(19, 0)], &[(18, 30)]],
        minutes: 750,
        price: 94,
        seats: 310,
        vessels: &["MS Great Auk"],
        days: |day| day != Weekday::Wed,
    },
    Line {
        ports: ["SKE", "GRE"],
        departures: [&[(9, 0), (21, 30)], &[(9, 30), (21, 0)]],
        minutes: 510,
        price: 72,
        seats: 280,
        vessels: &["MS Fulmar", "MS Razorbill"],
        days: |day| day != Weekday::Tue,
    },
    Line {
        ports: ["NOR", "GRE"],
        departures: [&[(8, 5), (11, 40), (15, 20), (20, 5)], &[(7, 30), (11, 10), (14, 50), (19, 35)]],
        minutes: 110,
        price: 24,
        seats: 160,
        vessels: &["MS Puffin", "MS Tern"],
        days: |_| true,
    },
];

/// The island line is small, and rests on Mondays.
static ISLAND: Line = Line {
    ports: ["NOR", "TOR"],
    departures: [&[(9, 15), (14, 0)], &[(11, 30), (17, 10)]],
    minutes: 55,
    price: 12,
    seats: 12,
    vessels: &["MB Dotterel"],
    days: |day| day != Weekday::Mon,
};

/// One boat on one day.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Crossing {
    /// Such as `ARN-SKE-20261122-0740`.
    pub(super) id: String,
    pub(super) from: &'static Port,
    pub(super) to: &'static Port,
    pub(super) departs: DateTime<Tz>,
    pub(super) arrives: DateTime<Tz>,
    /// Per passenger, in euros.
    pub(super) price: u32,
    /// Before any booking with us: the rest is sold elsewhere.
    seats: u32,
    /// Small boats fill up. On the ships a part of the seats is kept for us and never runs out, so that a thousand rehearsals
    /// of one conversation end like the first.
    small: bool,
    pub(super) vessel: &'static str,
}

impl Crossing {
    /// Seats that are free when so many were booked with us.
    pub(super) fn seats_left(&self, taken: u32) -> u32 {
        if self.small { self.seats.saturating_sub(taken) } else { self.seats }
    }

    /// The part of the day in which it leaves.
    pub(super) fn part_of_day(&self) -> &'static str {
        match self.departs.hour() {
            0..=11 => "morning",
            12..=16 => "afternoon",
            _ => "evening",
        }
    }

    /// Hours from `now` to its departure; negative when it has left.
    pub(super) fn hours_left(&self, now: DateTime<Utc>) -> f64 {
        let minutes = self.departs.with_timezone(&Utc).signed_duration_since(now).num_minutes();
        (minutes as f64 / 6.0).round() / 10.0
    }
}

/// A port by name or code, in any case.
pub(super) fn port(text: &str) -> Option<&'static Port> {
    let text = text.trim();
    PORTS.iter().find(|port| port.name.eq_ignore_ascii_case(text) || port.code.eq_ignore_ascii_case(text))
}

/// The port whose name is nearest to a misspelt one, if any is near.
pub(super) fn nearest_port(text: &str) -> Option<&'static Port> {
    let text = text.trim().to_lowercase();
    let near = |port: &&'static Port| strsim::damerau_levenshtein(&port.name.to_lowercase(), &text);
    PORTS.iter().min_by_key(near).filter(|port| near(port) <= 3)
}

/// The crossings of one day, by time of departure. Each end may be left open.
pub(super) fn crossings(from: Option<&Port>, to: Option<&Port>, date: NaiveDate) -> Vec<Crossing> {
    let mut found: Vec<Crossing> = directions()
        .filter(|(_, a, b, _)| from.is_none_or(|from| from == *a) && to.is_none_or(|to| to == *b))
        .filter(|(line, ..)| (line.days)(date.weekday()))
        .flat_map(|(line, a, b, times)| times.iter().filter_map(move |time| crossing(line, a, b, date, *time)))
        .collect();
    found.sort_by_key(|crossing| crossing.departs);
    found
}

/// The crossing of this id, if there is one.
pub(super) fn by_id(id: &str) -> Option<Crossing> {
    let id = id.trim().to_uppercase();
    let mut parts = id.split('-');
    let (from, to) = (port(parts.next()?)?, port(parts.next()?)?);
    let date = NaiveDate::parse_from_str(parts.next()?, "%Y%m%d").ok()?;
    crossings(Some(from), Some(to), date).into_iter().find(|crossing| crossing.id == id)
}

/// The first day from `date` on, within two weeks, on which boats go.
pub(super) fn next_day(from: &Port, to: &Port, date: NaiveDate) -> Option<NaiveDate> {
    date.iter_days().take(14).find(|day| !crossings(Some(from), Some(to), *day).is_empty())
}

/// Where boats go from a port.
pub(super) fn reachable(from: &Port) -> Vec<&'static Port> {
    directions().filter(|(_, a, ..)| *a == from).map(|(_, _, b, _)| b).collect()
}

type Direction = (&'static Line, &'static Port, &'static Port, &'static [(u32, u32)]);

fn directions() -> impl Iterator<Item = Direction> {
    LINES.iter().chain([&ISLAND]).flat_map(|line| {
        let [a, b] = line.ports;
        let [there, back] = line.departures;
        [(a, b, there), (b, a, back)]
            .into_iter()
            .filter_map(move |(a, b, times)| Some((line, port(a)?, port(b)?, times)))
    })
}

fn crossing(
    line: &Line,
    from: &'static Port,
    to: &'static Port,
    date: NaiveDate,
    (hour, minute): (u32, u32),
) -> Option<Crossing> {
    let local = date.and_time(NaiveTime::from_hms_opt(hour, minute, 0)?);
    // In the hour that a change of clocks leaves out, boats go an hour later.
    let departs = match from.zone.from_local_datetime(&local).earliest() {
        Some(departs) => departs,
        None => from.zone.from_local_datetime(&(local + Duration::hours(1))).earliest()?,
    };
    let arrives = (departs + Duration::minutes(i64::from(line.minutes))).with_timezone(&to.zone);
    let id = format!("{}-{}-{}-{hour:02}{minute:02}", from.code, to.code, date.format("%Y%m%d"));
    let chance = draw(&id);
    let weekend = matches!(date.weekday(), Weekday::Fri | Weekday::Sat | Weekday::Sun);
    let price = if weekend { line.price + line.price / 5 } else { line.price };
    // Between a twelfth and five sixths is sold elsewhere.
    let sold = line.seats / 12 + u32::try_from(chance % u64::from(line.seats * 3 / 4)).unwrap_or(0);
    let vessel = line.vessels.get((date.num_days_from_ce() as usize + hour as usize) % line.vessels.len())?;
    Some(Crossing { id, from, to, departs, arrives, price, seats: line.seats - sold, small: line.seats < 50, vessel })
}

/// A number that depends on `text` alone.
pub(super) fn draw(text: &str) -> u64 {
    Sha256::digest(text.as_bytes()).iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// A day a few days after another; the last day there is when the calendar ends.
pub(super) fn days_after(date: NaiveDate, days: u64) -> NaiveDate {
    date.checked_add_days(Days::new(days)).unwrap_or(NaiveDate::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn every_crossing_is_found_by_its_id() {
        for days in 0..14 {
            for crossing in crossings(None, None, days_after(day("2026-11-21"), days)) {
                assert_eq!(by_id(&crossing.id).as_ref(), Some(&crossing));
                assert_eq!(by_id(&crossing.id.to_lowercase()).as_ref(), Some(&crossing));
                assert!((1..=crossing.seats).contains(&2), "{} has no seat for two", crossing.id);
            }
        }
        assert_eq!(by_id("ARN-SKE-20261122-0741"), None);
        assert_eq!(by_id("ARN-SKE-20261332-0740"), None);
        assert_eq!(by_id("nonsense"), None);
    }

    #[test]
    fn times_are_local_to_each_port() {
        let found = crossings(port("arnvik"), port("NOR"), day("2026-11-22"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].departs.to_rfc3339(), "2026-11-22T19:00:00+01:00");
        assert_eq!(found[0].arrives.to_rfc3339(), "2026-11-23T06:30:00+00:00", "12:30 h later, an hour back");
    }

    #[test]
    fn lines_rest() {
        let monday = day("2026-11-23");
        let (nor, tor) = (port("NOR").unwrap(), port("TOR").unwrap());
        assert!(crossings(Some(nor), Some(tor), monday).is_empty());
        assert_eq!(next_day(nor, tor, monday), Some(day("2026-11-24")));
        assert_eq!(next_day(port("ARN").unwrap(), tor, monday), None);
        assert_eq!(reachable(tor), [nor]);
    }

    #[test]
    fn the_hour_that_is_left_out_is_no_trap() {
        // No boat of ours leaves at two in the morning; the rule is for those who add one.
        let line = &LINES[0];
        let found = crossing(line, port("ARN").unwrap(), port("SKE").unwrap(), day("2027-03-28"), (2, 30)).unwrap();
        assert_eq!(found.departs.to_rfc3339(), "2027-03-28T03:30:00+02:00");
    }

    #[test]
    fn misspelt_ports_are_guessed() {
        assert_eq!(nearest_port("Arnvick").unwrap().name, "Arnvik");
        assert_eq!(nearest_port("north haven").unwrap().name, "Northhaven");
        assert!(nearest_port("Hamburg").is_none());
    }
}
