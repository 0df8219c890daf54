//! The timetable. It is computed for any date and always the same for the same date; nothing is stored.

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
    /// A short description for users.
    pub(super) about: &'static str,
}

/// All ports. The places are fictional, the time zones are real.
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

/// A route between two ports, in both directions.
struct Route {
    ports: [&'static str; 2],
    /// The departures in each direction, as hour and minute in the time zone of the port of departure.
    departures: [&'static [(u32, u32)]; 2],
    minutes: u32,
    /// The price per passenger in euros, from Monday to Thursday.
    price: u32,
    seats: u32,
    vessels: &'static [&'static str],
    /// Whether there are crossings on a day of the week.
    runs_on: fn(Weekday) -> bool,
}

static ROUTES: [Route; 4] = [
    Route {
        ports: ["ARN", "SKE"],
        departures: [&[(7, 40), (12, 15), (18, 30)], &[(8, 10), (13, 5), (19, 15)]],
        minutes: 165,
        price: 39,
        seats: 240,
        vessels: &["MS Eider", "MS Kittiwake"],
        runs_on: |_| true,
    },
    Route {
        ports: ["ARN", "NOR"],
        departures: [&[(19, 0)], &[(18, 30)]],
        minutes: 750,
        price: 94,
        seats: 310,
        vessels: &["MS Great Auk"],
        runs_on: |day| day != Weekday::Wed,
    },
    Route {
        ports: ["SKE", "GRE"],
        departures: [&[(9, 0), (21, 30)], &[(9, 30), (21, 0)]],
        minutes: 510,
        price: 72,
        seats: 280,
        vessels: &["MS Fulmar", "MS Razorbill"],
        runs_on: |day| day != Weekday::Tue,
    },
    Route {
        ports: ["NOR", "GRE"],
        departures: [&[(8, 5), (11, 40), (15, 20), (20, 5)], &[(7, 30), (11, 10), (14, 50), (19, 35)]],
        minutes: 110,
        price: 24,
        seats: 160,
        vessels: &["MS Puffin", "MS Tern"],
        runs_on: |_| true,
    },
];

/// The route to the island: small, without crossings on Mondays.
static ISLAND: Route = Route {
    ports: ["NOR", "TOR"],
    departures: [&[(9, 15), (14, 0)], &[(11, 30), (17, 10)]],
    minutes: 55,
    price: 12,
    seats: 12,
    vessels: &["MB Dotterel"],
    runs_on: |day| day != Weekday::Mon,
};

/// One departure on one day.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Crossing {
    /// The id, such as `ARN-SKE-20261122-0740`.
    pub(super) id: String,
    pub(super) from: &'static Port,
    pub(super) to: &'static Port,
    pub(super) departs: DateTime<Tz>,
    pub(super) arrives: DateTime<Tz>,
    /// The price per passenger, in euros.
    pub(super) price: u32,
    /// The number of free seats without bookings of this server; the others count as sold elsewhere.
    seats: u32,
    /// Whether bookings reduce the number of free seats. On large ships they do not, so that repeated test conversations always have
    /// the same result.
    small: bool,
    pub(super) vessel: &'static str,
}

impl Crossing {
    /// The number of free seats if this server has booked `taken` seats.
    pub(super) fn seats_left(&self, taken: u32) -> u32 {
        if self.small { self.seats.saturating_sub(taken) } else { self.seats }
    }

    /// The part of the day of the departure.
    pub(super) fn part_of_day(&self) -> &'static str {
        match self.departs.hour() {
            0..=11 => "morning",
            12..=16 => "afternoon",
            _ => "evening",
        }
    }

    /// Hours from `now` to the departure, with one decimal; negative after it.
    pub(super) fn hours_left(&self, now: DateTime<Utc>) -> f64 {
        let minutes = self.departs.with_timezone(&Utc).signed_duration_since(now).num_minutes();
        (minutes as f64 / 6.0).round() / 10.0
    }
}

/// The port with this name or code, ignoring case.
pub(super) fn port(text: &str) -> Option<&'static Port> {
    let text = text.trim();
    PORTS.iter().find(|port| port.name.eq_ignore_ascii_case(text) || port.code.eq_ignore_ascii_case(text))
}

/// The port with the most similar name, if the edit distance is at most 3.
pub(super) fn nearest_port(text: &str) -> Option<&'static Port> {
    let text = text.trim().to_lowercase();
    let distance = |port: &&'static Port| strsim::damerau_levenshtein(&port.name.to_lowercase(), &text);
    PORTS.iter().min_by_key(distance).filter(|port| distance(port) <= 3)
}

/// The crossings of one day, sorted by departure. Without `from` or `to`, those of all ports.
pub(super) fn crossings(from: Option<&Port>, to: Option<&Port>, date: NaiveDate) -> Vec<Crossing> {
    let mut crossings: Vec<Crossing> = directions()
        .filter(|(_, a, b, _)| from.is_none_or(|from| from == *a) && to.is_none_or(|to| to == *b))
        .filter(|(route, ..)| (route.runs_on)(date.weekday()))
        .flat_map(|(route, a, b, times)| times.iter().filter_map(move |time| crossing(route, a, b, date, *time)))
        .collect();
    crossings.sort_by_key(|crossing| crossing.departs);
    crossings
}

/// The crossing with this id.
pub(super) fn by_id(id: &str) -> Option<Crossing> {
    let id = id.trim().to_uppercase();
    let mut parts = id.split('-');
    let (from, to) = (port(parts.next()?)?, port(parts.next()?)?);
    let date = NaiveDate::parse_from_str(parts.next()?, "%Y%m%d").ok()?;
    crossings(Some(from), Some(to), date).into_iter().find(|crossing| crossing.id == id)
}

/// The first day with a crossing, from `date` on and within two weeks.
pub(super) fn next_day(from: &Port, to: &Port, date: NaiveDate) -> Option<NaiveDate> {
    date.iter_days().take(14).find(|day| !crossings(Some(from), Some(to), *day).is_empty())
}

/// The ports with a direct route from this port.
pub(super) fn reachable(from: &Port) -> Vec<&'static Port> {
    directions().filter(|(_, a, ..)| *a == from).map(|(_, _, b, _)| b).collect()
}

/// One direction of a route: the route, the two ports, and the departures.
type Direction = (&'static Route, &'static Port, &'static Port, &'static [(u32, u32)]);

fn directions() -> impl Iterator<Item = Direction> {
    ROUTES.iter().chain([&ISLAND]).flat_map(|route| {
        let [a, b] = route.ports;
        let [outbound, inbound] = route.departures;
        [(a, b, outbound), (b, a, inbound)]
            .into_iter()
            .filter_map(move |(a, b, times)| Some((route, port(a)?, port(b)?, times)))
    })
}

fn crossing(
    route: &Route,
    from: &'static Port,
    to: &'static Port,
    date: NaiveDate,
    (hour, minute): (u32, u32),
) -> Option<Crossing> {
    let local = date.and_time(NaiveTime::from_hms_opt(hour, minute, 0)?);
    // A local time that daylight saving time skips: the departure is one hour later.
    let departs = match from.zone.from_local_datetime(&local).earliest() {
        Some(departs) => departs,
        None => from.zone.from_local_datetime(&(local + Duration::hours(1))).earliest()?,
    };
    let arrives = (departs + Duration::minutes(i64::from(route.minutes))).with_timezone(&to.zone);
    let id = format!("{}-{}-{}-{hour:02}{minute:02}", from.code, to.code, date.format("%Y%m%d"));
    let is_weekend = matches!(date.weekday(), Weekday::Fri | Weekday::Sat | Weekday::Sun);
    let price = if is_weekend { route.price + route.price / 5 } else { route.price };
    // Between 1/12 and 5/6 of the seats are sold elsewhere.
    let sold = route.seats / 12 + u32::try_from(hash(&id) % u64::from(route.seats * 3 / 4)).unwrap_or(0);
    let vessel = route.vessels.get((date.num_days_from_ce() as usize + hour as usize) % route.vessels.len())?;
    Some(Crossing { id, from, to, departs, arrives, price, seats: route.seats - sold, small: route.seats < 50, vessel })
}

/// The first 64 bits of the SHA-256 hash of a text: a pseudo-random number that is always the same.
pub(super) fn hash(text: &str) -> u64 {
    Sha256::digest(text.as_bytes()).iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// The date a number of days later, at most [`NaiveDate::MAX`].
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
        assert_eq!(by_id("not an id"), None);
    }

    #[test]
    fn times_are_local_to_each_port() {
        let found = crossings(port("arnvik"), port("NOR"), day("2026-11-22"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].departs.to_rfc3339(), "2026-11-22T19:00:00+01:00");
        assert_eq!(found[0].arrives.to_rfc3339(), "2026-11-23T06:30:00+00:00", "12:30 h later, an hour back");
    }

    #[test]
    fn routes_do_not_run_every_day() {
        let monday = day("2026-11-23");
        let (nor, tor) = (port("NOR").unwrap(), port("TOR").unwrap());
        assert!(crossings(Some(nor), Some(tor), monday).is_empty());
        assert_eq!(next_day(nor, tor, monday), Some(day("2026-11-24")));
        assert_eq!(next_day(port("ARN").unwrap(), tor, monday), None);
        assert_eq!(reachable(tor), [nor]);
    }

    #[test]
    fn a_departure_in_the_skipped_hour_of_daylight_saving_time_is_one_hour_later() {
        // No route departs at that time.
        let route = &ROUTES[0];
        let found = crossing(route, port("ARN").unwrap(), port("SKE").unwrap(), day("2027-03-28"), (2, 30)).unwrap();
        assert_eq!(found.departs.to_rfc3339(), "2027-03-28T03:30:00+02:00");
    }

    #[test]
    fn misspelt_ports_are_suggested() {
        assert_eq!(nearest_port("Arnvick").unwrap().name, "Arnvik");
        assert_eq!(nearest_port("north haven").unwrap().name, "Northhaven");
        assert!(nearest_port("Hamburg").is_none());
    }
}
