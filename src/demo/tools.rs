//! The tools as clients see them: names, descriptions, schemas, hints.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::arguments::MOST_PASSENGERS;

/// What a tool does to the bookings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Looks.
    Read,
    /// Adds to them: a second call adds once more.
    Add,
    /// Changes what is there; doing it twice is doing it once.
    Change,
}

/// All tools, always in this order.
pub(super) fn list() -> Vec<Tool> {
    vec![
        tool(
            "list_ports",
            "List ports",
            "Lists the ports of Northwater Ferries with their time zones and where boats go from each.",
            Does::Read,
            json!({}),
            &[],
        ),
        tool(
            "search_crossings",
            "Search crossings",
            "Finds the crossings of one day with local times, prices per passenger in euros and free seats. \
             Leave `from` or `to` out to see all boats of that day.",
            Does::Read,
            json!({
                "from": text("Port of departure, such as Arnvik."),
                "to": text("Port of arrival, such as Skelby."),
                "date": text("Day of departure as YYYY-MM-DD; today unless given."),
                "passengers": passengers("Show only crossings with seats for so many."),
            }),
            &[],
        ),
        tool(
            "get_crossing",
            "Look at a crossing",
            "Tells everything about one crossing and, with `passengers`, what it costs for them and whether there are seats.",
            Does::Read,
            json!({"crossing_id": crossing("The crossing."), "passengers": passengers("How many travel.")}),
            &["crossing_id"],
        ),
        tool(
            "book_crossing",
            "Book a crossing",
            "Books seats on a crossing and returns the reference. Every call makes a booking of its own.",
            Does::Add,
            json!({
                "crossing_id": crossing("The crossing."),
                "passengers": passengers("How many travel."),
                "name": text("Name for the ticket; may be left out."),
            }),
            &["crossing_id", "passengers"],
        ),
        tool(
            "get_booking",
            "Look at a booking",
            "Finds a booking by its reference. `found` is false when there is none.",
            Does::Read,
            json!({"reference": text("The reference, such as NW-7F3K2.")}),
            &["reference"],
        ),
        tool(
            "change_booking",
            "Change a booking",
            "Moves a booking to another crossing, or changes for how many it is, and returns the difference in price.",
            Does::Change,
            json!({
                "reference": text("The reference, such as NW-7F3K2."),
                "crossing_id": crossing("The new crossing; the old one stays if left out."),
                "passengers": passengers("The new number of passengers; the old one stays if left out."),
            }),
            &["reference"],
        ),
        tool(
            "refund_booking",
            "Refund a booking",
            "Cancels a booking for good and pays a part of its price back.",
            Does::Change,
            json!({
                "reference": text("The reference, such as NW-7F3K2."),
                "percent": {"type": "integer", "minimum": 0, "maximum": 100, "description": "How much of the price is paid back; 100 unless given."},
            }),
            &["reference"],
        ),
    ]
}

fn tool(
    name: &'static str,
    title: &str,
    about: &'static str,
    does: Does,
    properties: Value,
    required: &[&str],
) -> Tool {
    let schema =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    let reads = does == Does::Read;
    let hints = ToolAnnotations::from_raw(
        Some(title.to_owned()),
        Some(reads),
        Some(does == Does::Change),
        Some(does != Does::Add),
        Some(false),
    );
    Tool::new(name, about, schema).with_title(title).with_annotations(hints)
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn crossing(about: &str) -> Value {
    json!({"type": "string", "description": format!("{about} An id as search_crossings returns it.")})
}

fn passengers(about: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": MOST_PASSENGERS, "description": about})
}
