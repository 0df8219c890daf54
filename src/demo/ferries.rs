//! The MCP server of Northwater Ferries and its tools.

use std::{path::PathBuf, sync::Arc};

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::{Map, Value, json};

use super::{
    DEFAULT_DATA_FILE, DemoOptions,
    arguments::Arguments,
    bookings::{Booking, Ledger, Status},
    timetable::{self, Crossing, PORTS},
    tools,
};
use crate::clock::Clock;

/// The MCP server.
pub(super) struct Ferries {
    options: DemoOptions,
    clock: Arc<dyn Clock>,
    ledger: Ledger,
}

/// The structured content of a result, or an error message for the model.
type ToolResult = Result<Value, String>;

impl Ferries {
    pub(super) fn new(options: DemoOptions, clock: Arc<dyn Clock>) -> Self {
        let path = options.data.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_FILE));
        let ledger =
            if options.in_memory { Ledger::in_memory(clock.clone()) } else { Ledger::new(path, clock.clone()) };
        Self { options, ledger, clock }
    }

    fn now(&self) -> DateTime<Utc> {
        match self.options.today {
            Some(day) => day.and_time(NaiveTime::MIN).and_utc(),
            None => self.clock.now().to_utc(),
        }
    }

    /// Calls a tool. `None`: there is no such tool.
    pub(super) async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Option<ToolResult> {
        let arguments = Arguments(arguments);
        Some(match tool {
            "list_ports" => Ok(list_ports()),
            "search_crossings" => self.search(&arguments),
            "get_crossing" => self.get_crossing(&arguments),
            "book_crossing" => self.book(&arguments).await,
            "get_booking" => self.get_booking(&arguments),
            "change_booking" => self.change(&arguments).await,
            "refund_booking" => self.refund(&arguments).await,
            _ => return None,
        })
    }

    fn search(&self, arguments: &Arguments) -> ToolResult {
        let (from, to, passengers) =
            (arguments.port("from")?, arguments.port("to")?, arguments.passengers("passengers")?);
        if from.is_some() && from == to {
            return Err("`from` and `to` are the same port. Ask where the journey goes.".into());
        }
        let today = self.now().date_naive();
        let date = arguments.date("date")?.unwrap_or(today);
        if date < today {
            return Err(format!("`date`: {date} is over; today is {today}."));
        }
        let bookings = self.ledger.read()?;
        let crossings: Vec<Value> = timetable::crossings(from, to, date)
            .into_iter()
            .filter(|crossing| crossing.departs > self.now())
            .map(|crossing| (crossing.seats_left(bookings.taken(&crossing.id, None)), crossing))
            .filter(|(seats, _)| passengers.is_none_or(|wanted| wanted <= *seats))
            .map(|(seats, crossing)| crossing_json(&crossing, seats))
            .collect();
        let mut result = json!({"date": date, "day": day(date), "crossings": crossings});
        let mut insert =
            |key: &str, value: Value| _ = result.as_object_mut().map(|result| result.insert(key.into(), value));
        if let Some(from) = from {
            insert("from", from.name.into());
        }
        if let Some(to) = to {
            insert("to", to.name.into());
        }
        if let (true, Some(from), Some(to)) = (crossings.is_empty(), from, to) {
            match timetable::next_day(from, to, timetable::days_after(date, 1)) {
                Some(next) => {
                    insert("next_date", json!(next));
                    insert(
                        "hint",
                        format!(
                            "No boat with free seats goes from {} to {} on {}. The next day with boats is {}.",
                            from.name,
                            to.name,
                            day(date),
                            day(next)
                        )
                        .into(),
                    );
                }
                None => {
                    let names: Vec<&str> = timetable::reachable(from).iter().map(|port| port.name).collect();
                    insert(
                        "hint",
                        format!(
                            "No boat goes from {} to {}. Direct boats from {}: {}.",
                            from.name,
                            to.name,
                            from.name,
                            names.join(", ")
                        )
                        .into(),
                    );
                }
            }
        }
        Ok(result)
    }

    fn get_crossing(&self, arguments: &Arguments) -> ToolResult {
        let crossing = arguments.required("crossing_id", arguments.crossing("crossing_id")?)?;
        let seats = crossing.seats_left(self.ledger.read()?.taken(&crossing.id, None));
        let mut result = crossing_json(&crossing, seats);
        if let Some(result) = result.as_object_mut() {
            result.insert("departed".into(), (crossing.departs <= self.now()).into());
            if let Some(passengers) = arguments.passengers("passengers")? {
                result.insert("passengers".into(), passengers.into());
                result.insert("total_eur".into(), (crossing.price * passengers).into());
                result.insert("enough_seats".into(), (passengers <= seats).into());
            }
        }
        Ok(result)
    }

    async fn book(&self, arguments: &Arguments) -> ToolResult {
        let crossing = arguments.required("crossing_id", arguments.crossing("crossing_id")?)?;
        let passengers = arguments.required("passengers", arguments.passengers("passengers")?)?;
        self.check_not_departed(&crossing)?;
        let booking = Booking {
            reference: String::new(),
            crossing_id: crossing.id.clone(),
            passengers,
            name: arguments.text("name").map(str::to_owned),
            status: Status::Booked,
            total_eur: crossing.price * passengers,
            refunded_eur: 0,
            changes: 0,
        };
        let booking = self
            .ledger
            .change(|bookings| {
                let seats = crossing.seats_left(bookings.taken(&crossing.id, None));
                check_seats(seats, passengers, &crossing)?;
                Ok(bookings.add(booking))
            })
            .await?;
        Ok(self.booking_json(&booking))
    }

    fn get_booking(&self, arguments: &Arguments) -> ToolResult {
        let reference = arguments.required("reference", arguments.text("reference"))?;
        let bookings = self.ledger.read()?;
        Ok(match bookings.find(reference) {
            Some(booking) => self.booking_json(booking),
            None => json!({"found": false, "reference": reference}),
        })
    }

    async fn change(&self, arguments: &Arguments) -> ToolResult {
        let reference = arguments.required("reference", arguments.text("reference"))?;
        let (crossing, passengers) = (arguments.crossing("crossing_id")?, arguments.passengers("passengers")?);
        if crossing.is_none() && passengers.is_none() {
            return Err("Nothing to change: give `crossing_id`, `passengers` or both.".into());
        }
        let (booking, before) = self
            .ledger
            .change(|bookings| {
                let old = bookings.find(reference).cloned().ok_or_else(|| unknown_reference(reference))?;
                check_not_refunded(&old)?;
                let passengers = passengers.unwrap_or(old.passengers);
                let crossing = match crossing {
                    Some(crossing) => crossing,
                    None => timetable::by_id(&old.crossing_id)
                        .ok_or("The crossing of this booking is not in the timetable any more.")?,
                };
                self.check_not_departed(&crossing)?;
                let taken = bookings.taken(&crossing.id, Some(&old.reference));
                check_seats(crossing.seats_left(taken), passengers, &crossing)?;
                let booking = bookings.find_mut(reference).ok_or_else(|| unknown_reference(reference))?;
                booking.total_eur = crossing.price * passengers;
                booking.crossing_id = crossing.id;
                booking.passengers = passengers;
                booking.changes += 1;
                Ok((booking.clone(), old.total_eur))
            })
            .await?;
        let mut result = self.booking_json(&booking);
        if let Some(result) = result.as_object_mut() {
            result.insert("difference_eur".into(), (i64::from(booking.total_eur) - i64::from(before)).into());
        }
        Ok(result)
    }

    async fn refund(&self, arguments: &Arguments) -> ToolResult {
        let reference = arguments.required("reference", arguments.text("reference"))?;
        let percent = match arguments.0.get("percent").filter(|value| !value.is_null()) {
            None => 100,
            Some(value) => value
                .as_f64()
                .filter(|percent| percent.fract() == 0.0 && (0.0..=100.0).contains(percent))
                .map(|percent| percent as u32)
                .ok_or("`percent`: expected a whole number from 0 to 100.")?,
        };
        let booking = self
            .ledger
            .change(|bookings| {
                let booking = bookings.find_mut(reference).ok_or_else(|| unknown_reference(reference))?;
                check_not_refunded(booking)?;
                booking.status = Status::Refunded;
                booking.refunded_eur = booking.total_eur * percent / 100;
                Ok(booking.clone())
            })
            .await?;
        Ok(self.booking_json(&booking))
    }

    fn check_not_departed(&self, crossing: &Crossing) -> Result<(), String> {
        if crossing.departs > self.now() {
            return Ok(());
        }
        Err(format!("{} has departed already: {}.", crossing.id, summary(crossing)))
    }

    fn booking_json(&self, booking: &Booking) -> Value {
        let mut result = json!({
            "found": true,
            "reference": booking.reference,
            "status": booking.status,
            "crossing_id": booking.crossing_id,
            "passengers": booking.passengers,
            "total_eur": booking.total_eur,
            "refunded_eur": booking.refunded_eur,
            "name": booking.name,
        });
        if let (Some(result), Some(crossing)) = (result.as_object_mut(), timetable::by_id(&booking.crossing_id)) {
            result.insert("from".into(), crossing.from.name.into());
            result.insert("to".into(), crossing.to.name.into());
            result.insert("departs".into(), crossing.departs.to_rfc3339().into());
            result.insert("summary".into(), summary(&crossing).into());
            result.insert("hours_to_departure".into(), crossing.hours_left(self.now()).into());
        }
        result
    }
}

fn check_not_refunded(booking: &Booking) -> Result<(), String> {
    match booking.status {
        Status::Booked => Ok(()),
        Status::Refunded => Err(format!("{} was refunded already and is over.", booking.reference)),
    }
}

fn unknown_reference(reference: &str) -> String {
    format!("There is no booking {reference:?}. A reference looks like NW-7F3K2.")
}

fn check_seats(seats: u32, passengers: u32, crossing: &Crossing) -> Result<(), String> {
    if passengers <= seats {
        return Ok(());
    }
    Err(format!("{} has {seats} free seats left, {passengers} are wanted. Offer another crossing.", crossing.id))
}

fn list_ports() -> Value {
    let ports: Vec<Value> = PORTS
        .iter()
        .map(|port| {
            let reachable: Vec<&str> = timetable::reachable(port).iter().map(|port| port.name).collect();
            json!({
                "code": port.code, "name": port.name, "country": port.country, "time_zone": port.zone.name(),
                "about": port.about, "boats_to": reachable,
            })
        })
        .collect();
    json!({"ports": ports})
}

fn crossing_json(crossing: &Crossing, seats: u32) -> Value {
    let minutes = (crossing.arrives.with_timezone(&Utc) - crossing.departs.with_timezone(&Utc)).num_minutes();
    let days_later = (crossing.arrives.date_naive() - crossing.departs.date_naive()).num_days();
    json!({
        "crossing_id": crossing.id,
        "from": crossing.from.name,
        "to": crossing.to.name,
        "departs": crossing.departs.to_rfc3339(),
        "arrives": crossing.arrives.to_rfc3339(),
        "departs_local": clock_time(&crossing.departs),
        "arrives_local": clock_time(&crossing.arrives),
        "arrives_days_later": days_later,
        "departure_time_zone": crossing.from.zone.name(),
        "arrival_time_zone": crossing.to.zone.name(),
        "part_of_day": crossing.part_of_day(),
        "duration": duration(minutes),
        "price_eur": crossing.price,
        "seats_left": seats,
        "vessel": crossing.vessel,
        "summary": summary(crossing),
    })
}

fn duration(minutes: i64) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// A summary on one line: `Arnvik 07:40 to Skelby 10:25, Sunday 22 November 2026, MS Eider`.
fn summary(crossing: &Crossing) -> String {
    let days_later = (crossing.arrives.date_naive() - crossing.departs.date_naive()).num_days();
    let later = if days_later > 0 { " the next day" } else { "" };
    format!(
        "{} {} to {} {}{later}, {}, {}",
        crossing.from.name,
        clock_time(&crossing.departs),
        crossing.to.name,
        clock_time(&crossing.arrives),
        day(crossing.departs.date_naive()),
        crossing.vessel,
    )
}

fn clock_time(at: &DateTime<chrono_tz::Tz>) -> String {
    at.format("%H:%M").to_string()
}

fn day(date: NaiveDate) -> String {
    date.format("%A %-d %B %Y").to_string()
}

impl ServerHandler for Ferries {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("northwater-ferries", env!("CARGO_PKG_VERSION")).with_title("Northwater Ferries"))
            .with_instructions(
                "Timetable and bookings of Northwater Ferries. Times are local to each port; prices are in euros per passenger. \
                 Work out dates such as \"tomorrow\" before you call, and write them as YYYY-MM-DD.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::list().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.options.delay.is_zero() {
            let until = self.clock.deadline(self.options.delay);
            tokio::select! {
                () = self.clock.sleep(until) => {}
                () = context.ct.cancelled() => {
                    return Ok(CallToolResult::error(vec![ContentBlock::text("cancelled before the call started")]).into());
                }
            }
        }
        let result = self.call(&request.name, request.arguments.unwrap_or_default()).await;
        match result {
            Some(Ok(value)) => Ok(CallToolResult::structured(value).into()),
            Some(Err(message)) => Ok(CallToolResult::error(vec![ContentBlock::text(message)]).into()),
            None => Err(ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None)),
        }
    }
}

#[cfg(test)]
mod tests;
