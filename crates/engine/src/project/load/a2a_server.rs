//! `a2a_server` of `endpoints.yml`: the assistant as an A2A agent.

use super::super::{
    A2aServerDef,
    load_context::LoadContext,
    schema::{A2A_AUTH, A2A_SERVER},
    yaml::Node,
};

/// Reads the section.
pub(super) fn read(context: &mut LoadContext<'_>, node: &Node) -> Option<A2aServerDef> {
    let fields = context.fields(node, &A2A_SERVER)?;
    let card = fields.node("agent_card_path").and_then(|path| card(context, path));
    let description = fields.text("description").unwrap_or_default().trim();
    if description.is_empty() && !fields.has("agent_card_path") {
        let help = "Write in one sentence what the assistant does; other agents choose it by this text.";
        context.error("F0640", node, "`a2a_server` needs a `description`", help);
    }
    context.address(fields.node("url"));
    let auth = fields.node("auth").and_then(|node| context.fields(node, &A2A_AUTH));
    if let Some(auth) = auth.as_ref().filter(|auth| !auth.has("token") && !auth.has("jwt")) {
        let message = "the `auth` section of `a2a_server` has no credentials";
        context.error("F0109", auth.node, message, "Add `token: ${…}` or `jwt`, or remove `auth`.");
    }
    let jwt = auth.as_ref().and_then(|auth| context.jwt(auth.node("jwt")?));
    let timeout = fields.number("task_timeout_seconds").unwrap_or(600.0);
    let task_timeout = std::time::Duration::try_from_secs_f64(timeout).ok();
    if task_timeout.is_none() {
        let help = "Write a number of seconds, or 0 for no limit.";
        context.error("F0641", fields.at("task_timeout_seconds"), "`task_timeout_seconds` must not be negative", help);
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
        place: context.place(node),
    })
}

fn card(context: &mut LoadContext<'_>, path: &Node) -> Option<serde_json::Value> {
    let text = path.text().unwrap_or_default();
    let Some(content) = context.sources.texts.get(text.trim_start_matches("./")) else {
        let help = "Create the file, or correct the path, which is relative to the project folder.";
        context.error("F0642", path, format!("agent card not found: `{text}`"), help);
        return None;
    };
    match serde_json::from_str::<serde_json::Value>(content) {
        Ok(card) if card.is_object() => Some(card),
        Ok(_) => {
            context.error("F0642", path, format!("the agent card `{text}` is not a JSON object"), "Write an object.");
            None
        }
        Err(error) => {
            context.error(
                "F0642",
                path,
                format!("the agent card `{text}` is not valid JSON: {error}"),
                "Correct the file.",
            );
            None
        }
    }
}
