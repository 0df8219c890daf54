//! Reads the keys of remote agents in `sub_agents/*/config.yml`.

use super::super::{
    CardSource, HealthCheck, MessageReplyMeaning, RemoteDef,
    load_context::{LoadContext, MapFields, describe},
    references::ReferenceKind,
    schema::REMOTE_OUTPUT,
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

/// Reports missing keys and keys without effect.
pub(super) fn check(context: &mut LoadContext<'_>, file: &MapFields<'_>, configuration: &MapFields<'_>) {
    match configuration.node("agent_card") {
        None => {
            let at =
                if configuration.has("agent_card") { configuration.at("agent_card") } else { file.at("configuration") };
            let help = "Add `agent_card: <file or URL>` under `configuration`.";
            context.error("F0508", at, "a remote agent needs `configuration.agent_card`", help);
        }
        Some(card) => check_card(context, card),
    }
    for key in OWN {
        if configuration.has(key) {
            let message = format!("`{key}` has no effect for a remote agent");
            context.error("F0510", configuration.at(key), message, "Remove it, or set `protocol: RASA`.");
        }
    }
    if file.has("connections") {
        let message = "`connections` have no effect for a remote agent, which has its own tools";
        context.error("F0510", file.at("connections"), message, "Remove them, or set `protocol: RASA`.");
    }
    context.address(configuration.node("push_notification_url"));
}

fn check_card(context: &mut LoadContext<'_>, card: &Node) {
    let text = card.text().unwrap_or_default();
    if text.trim().is_empty() {
        return context.error("F0508", card, "`agent_card` must not be empty", "Write the file or URL of the card.");
    }
    if text.contains("://") {
        if !text.starts_with("http://") && !text.starts_with("https://") {
            let message = format!(
                "the URL of an agent card must start with `http://` or `https://`, but this is {}",
                describe(card)
            );
            context.error("F0509", card, message, "Write a URL that starts with `https://`.");
        }
        return;
    }
    let Some(content) = context.sources.texts.get(text.trim_start_matches("./")) else {
        let message = format!("agent card not found: `{text}`");
        let help = "Create the file, or correct the path, which is relative to the project folder.";
        return context.error("F0509", card, message, help);
    };
    let problem = match serde_json::from_str::<serde_json::Value>(content) {
        Err(error) => Some(format!("is not valid JSON: {error}")),
        Ok(json) => card_problem(&json).map(str::to_owned),
    };
    if let Some(problem) = problem {
        let help = "An agent card needs the URL of the agent: `url`, or `supportedInterfaces` with a `url` each.";
        context.error("F0509", card, format!("the agent card `{text}` {problem}"), help);
    }
}

/// What an agent card lacks. The rest is checked when the agent is called.
fn card_problem(json: &serde_json::Value) -> Option<&'static str> {
    if !json.is_object() {
        return Some("is not a JSON object");
    }
    let named = json.get("url").is_some_and(|url| url.as_str().is_some_and(|url| !url.is_empty()));
    let listed = |key: &str| json.get(key).and_then(serde_json::Value::as_array).is_some_and(|list| !list.is_empty());
    (!named && !listed("supportedInterfaces") && !listed("additionalInterfaces")).then_some("has no URL of the agent")
}

/// Reads the settings; `None` without a valid agent card.
pub(super) fn read(context: &mut LoadContext<'_>, configuration: &MapFields<'_>) -> Option<RemoteDef> {
    let output = output(context, configuration);
    let slots = configuration.has("forward_slots").then(|| configuration.texts("forward_slots"));
    for slot in slots.iter().flatten() {
        context.reference(ReferenceKind::Slot, slot);
    }
    let card = configuration.text("agent_card")?;
    let card = if card.contains("://") {
        CardSource::Address(card.trim().into())
    } else {
        let text = context.sources.texts.get(card.trim_start_matches("./"))?;
        CardSource::File(serde_json::from_str(text).ok()?)
    };
    Some(RemoteDef {
        card,
        max_polling_time: configuration.seconds("max_polling_time"),
        polling_initial_delay: configuration.seconds("polling_initial_delay"),
        use_streaming: configuration.flag("use_streaming"),
        push_notification_url: configuration.text("push_notification_url").map(str::to_owned),
        health_check: match configuration.text("health_check") {
            Some("message") => HealthCheck::Message,
            Some("none") => HealthCheck::None,
            _ => HealthCheck::Card,
        },
        message_means: match configuration.text("message_means") {
            Some("completed") => MessageReplyMeaning::Completed,
            _ => MessageReplyMeaning::InputRequired,
        },
        forward_metadata: texts(configuration.texts("forward_metadata")).map(Into::into).collect(),
        forward_slots: slots.map(|slots| texts(slots).map(SlotName::from).collect()),
        output,
    })
}

fn texts(nodes: Vec<&Node>) -> impl Iterator<Item = &str> {
    nodes.into_iter().filter_map(Node::text)
}

fn output(
    context: &mut LoadContext<'_>,
    configuration: &MapFields<'_>,
) -> Vec<(SlotName, crate::template::Expression)> {
    let mut output = Vec::new();
    for node in configuration.list("output_mapping") {
        let Some(item) = context.fields(node, &REMOTE_OUTPUT) else { continue };
        if let (Some(slot), Some(value)) = (item.node("slot"), item.node("value")) {
            context.reference(ReferenceKind::Slot, slot);
            let expression = context.expression(value);
            output.extend(expression.map(|value| (SlotName::from(slot.text().unwrap_or_default()), value)));
        }
    }
    output
}
