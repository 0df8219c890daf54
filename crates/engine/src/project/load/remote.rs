//! Remote agents: the part of `sub_agents/*/config.yml` that says how one is reached and understood.

use super::super::{
    CardSource, HealthCheck, MessageReplyMeaning, RemoteDef,
    reader::{Fields, Reader, said},
    schema::REMOTE_OUTPUT,
    uses::Used,
    yaml::Node,
};
use crate::ids::SlotName;

/// Keys of `configuration` that only remote agents have.
pub(super) const KEYS: [&str; 11] = [
    "agent_card",
    "auth",
    "hook_auth",
    "max_polling_time",
    "polling_initial_delay",
    "push_notification_url",
    "use_streaming",
    "health_check",
    "message_means",
    "forward_slots",
    "output_mapping",
];

/// Keys that only agents of this project have.
const OWN: [&str; 14] = [
    "llm",
    "prompt_template",
    "include_date_time",
    "timezone",
    "enable_filler_messages",
    "tool_timeout",
    "on_tool_error",
    "max_iterations",
    "tools",
    "confirm",
    "taint",
    "grounded",
    "claims",
    "filler_after",
];

/// What must be there, and what has no meaning.
pub(super) fn check(reader: &mut Reader<'_>, file: &Fields<'_>, how: &Fields<'_>) {
    match how.node("agent_card") {
        None => {
            let at = if how.has("agent_card") { how.at("agent_card") } else { file.at("configuration") };
            let help = "Add `agent_card: <file or https address>` under `configuration`.";
            reader.error("F0508", at, "a remote agent needs `configuration.agent_card`", help);
        }
        Some(card) => check_card(reader, card),
    }
    for key in OWN {
        if how.has(key) {
            let message = format!("`{key}` has no meaning for a remote agent, which works elsewhere");
            reader.error("F0510", how.at(key), message, "Remove it, or set `protocol: RASA`.");
        }
    }
    if file.has("connections") {
        let message = "`connections` have no meaning for a remote agent, which has its own tools";
        reader.error("F0510", file.at("connections"), message, "Remove them, or set `protocol: RASA`.");
    }
    reader.address(how.node("push_notification_url"));
}

fn check_card(reader: &mut Reader<'_>, card: &Node) {
    let text = card.text().unwrap_or_default();
    if text.trim().is_empty() {
        return reader.error(
            "F0508",
            card,
            "`agent_card` must not be empty",
            "Write the card's file or https address.",
        );
    }
    if text.contains("://") {
        if !text.starts_with("http://") && !text.starts_with("https://") {
            let message = format!("a card is fetched over http or https, but this is {}", said(card));
            reader.error("F0509", card, message, "Write an address that begins with `https://`.");
        }
        return;
    }
    let Some(content) = reader.sources.texts.get(text.trim_start_matches("./")) else {
        let message = format!("the card `{text}` is not there");
        let help = "Create the file or correct the path; paths begin in the project's folder.";
        return reader.error("F0509", card, message, help);
    };
    let problem = match serde_json::from_str::<serde_json::Value>(content) {
        Err(error) => Some(format!("is no JSON: {error}")),
        Ok(json) => unusable(&json).map(str::to_owned),
    };
    if let Some(problem) = problem {
        let help = "A card names where the agent is asked: `url`, or `supportedInterfaces` with a `url` each.";
        reader.error("F0509", card, format!("the card `{text}` {problem}"), help);
    }
}

/// What a card lacks; the rest is looked at when the agent is reached.
fn unusable(json: &serde_json::Value) -> Option<&'static str> {
    if !json.is_object() {
        return Some("is no JSON object");
    }
    let named = json.get("url").is_some_and(|url| url.as_str().is_some_and(|url| !url.is_empty()));
    let listed = |key: &str| json.get(key).and_then(serde_json::Value::as_array).is_some_and(|list| !list.is_empty());
    (!named && !listed("supportedInterfaces") && !listed("additionalInterfaces")).then_some("names no address")
}

/// The definition; `None` without a card.
pub(super) fn read(reader: &mut Reader<'_>, how: &Fields<'_>) -> Option<RemoteDef> {
    let output = output(reader, how);
    let slots = how.has("forward_slots").then(|| how.texts("forward_slots"));
    for slot in slots.iter().flatten() {
        reader.uses(Used::Slot, slot);
    }
    let card = how.text("agent_card")?;
    let card = if card.contains("://") {
        CardSource::Address(card.trim().into())
    } else {
        let text = reader.sources.texts.get(card.trim_start_matches("./"))?;
        CardSource::File(serde_json::from_str(text).ok()?)
    };
    Some(RemoteDef {
        card,
        max_polling_time: how.seconds("max_polling_time"),
        polling_initial_delay: how.seconds("polling_initial_delay"),
        use_streaming: how.flag("use_streaming"),
        push_notification_url: how.text("push_notification_url").map(str::to_owned),
        health_check: match how.text("health_check") {
            Some("message") => HealthCheck::Message,
            Some("none") => HealthCheck::None,
            _ => HealthCheck::Card,
        },
        message_means: match how.text("message_means") {
            Some("completed") => MessageReplyMeaning::Completed,
            _ => MessageReplyMeaning::InputRequired,
        },
        forward_metadata: texts(how.texts("forward_metadata")).map(Into::into).collect(),
        forward_slots: slots.map(|slots| texts(slots).map(SlotName::from).collect()),
        output,
    })
}

fn texts(nodes: Vec<&Node>) -> impl Iterator<Item = &str> {
    nodes.into_iter().filter_map(Node::text)
}

fn output(reader: &mut Reader<'_>, how: &Fields<'_>) -> Vec<(SlotName, crate::template::Expression)> {
    let mut output = Vec::new();
    for node in how.list("output_mapping") {
        let Some(item) = reader.fields(node, &REMOTE_OUTPUT) else { continue };
        if let (Some(slot), Some(value)) = (item.node("slot"), item.node("value")) {
            reader.uses(Used::Slot, slot);
            let expression = reader.expression(value);
            output.extend(expression.map(|value| (SlotName::from(slot.text().unwrap_or_default()), value)));
        }
    }
    output
}
