//! The definitions of the tools: names, descriptions, schemas and annotations.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::arguments::MAX_PASSENGERS;

/// What a tool does to the bookings; determines its MCP annotations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolEffect {
    /// Reads only.
    Read,
    /// Adds a booking. Not idempotent: a second call adds another one.
    Add,
    /// Changes a booking. Destructive and idempotent.
    Change,
}

/// All tools, in a fixed order.
pub(super) fn list() -> Vec<Tool> {
    vec![
        tool(
            "list_ports",
            "List ports",
            "Lists the ports of Northwater Ferries with their time zones and where boats go from each.",
            ToolEffect::Read,
            json!({}),
            &[],
        ),
        tool(
            "search_crossings",
            "Search crossings",
            "Finds the crossings of one day with local times, prices per passenger in euros and free seats. \
             Leave `from` or `to` out to see all boats of that day.",
            ToolEffect::Read,
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
            ToolEffect::Read,
            json!({"crossing_id": crossing("The crossing."), "passengers": passengers("How many travel.")}),
            &["crossing_id"],
        ),
        tool(
            "book_crossing",
            "Book a crossing",
            "Books seats on a crossing and returns the reference. Every call makes a booking of its own.",
            ToolEffect::Add,
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
            ToolEffect::Read,
            json!({"reference": text("The reference, such as NW-7F3K2.")}),
            &["reference"],
        ),
        tool(
            "change_booking",
            "Change a booking",
            "Moves a booking to another crossing, or changes for how many it is, and returns the difference in price.",
            ToolEffect::Change,
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
            ToolEffect::Change,
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
    description: &'static str,
    effect: ToolEffect,
    properties: Value,
    required: &[&str],
) -> Tool {
    let schema =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    let annotations = ToolAnnotations::from_raw(
        Some(title.to_owned()),
        Some(effect == ToolEffect::Read),
        Some(effect == ToolEffect::Change),
        Some(effect != ToolEffect::Add),
        Some(false),
    );
    Tool::new(name, description, schema).with_title(title).with_annotations(annotations)
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn crossing(description: &str) -> Value {
    json!({"type": "string", "description": format!("{description} An id as search_crossings returns it.")})
}

fn passengers(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": MAX_PASSENGERS, "description": description})
}
