//! `a2a_server` of `endpoints.yml`: the assistant as an agent for others.

use super::super::{
    A2aServerDef,
    reader::Reader,
    schema::{A2A_AUTH, A2A_SERVER},
    yaml::Node,
};

/// Reads the section.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<A2aServerDef> {
    let fields = reader.fields(node, &A2A_SERVER)?;
    let card = fields.node("agent_card_path").and_then(|path| card(reader, path));
    let description = fields.text("description").unwrap_or_default().trim();
    if description.is_empty() && !fields.has("agent_card_path") {
        let help = "Say in one sentence what it does; other agents choose by it.";
        reader.error("F0640", node, "an assistant that is offered to other agents needs a `description`", help);
    }
    reader.address(fields.node("url"));
    let auth = fields.node("auth").and_then(|node| reader.fields(node, &A2A_AUTH));
    if let Some(auth) = auth.as_ref().filter(|auth| !auth.has("token") && !auth.has("jwt")) {
        let message = "the `auth` of `a2a_server` asks callers for nothing";
        reader.error("F0109", auth.node, message, "Add `token: ${…}`, or `jwt`; or leave `auth` away.");
    }
    let jwt = auth.as_ref().and_then(|auth| reader.jwt(auth.node("jwt")?));
    let timeout = fields.number("task_timeout_seconds").unwrap_or(600.0);
    let task_timeout = std::time::Duration::try_from_secs_f64(timeout).ok();
    if task_timeout.is_none() {
        let help = "Write a number of seconds, or 0 for no limit.";
        reader.error("F0641", fields.at("task_timeout_seconds"), "a time cannot be negative", help);
    }
    Some(A2aServerDef {
        description: description.into(),
        url: fields.text("url").map(|url| url.trim_end_matches('/').to_owned()),
        card,
        include_repair: fields.flag("include_conversation_repair"),
        task_timeout: task_timeout.filter(|timeout| !timeout.is_zero()),
        token: auth.and_then(|auth| auth.text("token").map(str::to_owned)),
        jwt,
        push: fields.flag("push_notifications"),
        payloads: fields.flag("payloads"),
        place: reader.place(node),
    })
}

fn card(reader: &mut Reader<'_>, path: &Node) -> Option<serde_json::Value> {
    let text = path.text().unwrap_or_default();
    let Some(content) = reader.sources.texts.get(text.trim_start_matches("./")) else {
        let help = "Create the file or correct the path; paths begin in the project's folder.";
        reader.error("F0642", path, format!("the card `{text}` is not there"), help);
        return None;
    };
    match serde_json::from_str::<serde_json::Value>(content) {
        Ok(card) if card.is_object() => Some(card),
        Ok(_) => {
            reader.error("F0642", path, format!("the card `{text}` is no JSON object"), "Write one object.");
            None
        }
        Err(error) => {
            reader.error("F0642", path, format!("the card `{text}` is no JSON: {error}"), "Mend the file.");
            None
        }
    }
}
