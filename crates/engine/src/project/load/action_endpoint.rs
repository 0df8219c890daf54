//! `action_endpoint` of `endpoints.yml`.

use super::{
    super::{
        ActionEndpointDef, TrackerEvents,
        load_context::{LoadContext, MapFields, describe},
        references::ReferenceKind,
        schema::ACTION_ENDPOINT,
        yaml::Node,
    },
    endpoints::{basic_auth, effects, pairs},
};

/// Reads the section; `None` if it is empty or invalid.
pub(super) fn read(context: &mut LoadContext<'_>, node: &Node) -> Option<ActionEndpointDef> {
    if node.is_null() {
        return None;
    }
    let fields = context.fields(node, &ACTION_ENDPOINT)?;
    for entry in fields.map("effects") {
        context.reference_name(ReferenceKind::CustomAction, &entry.key, context.place(&entry.at));
    }
    if !fields.has("url") && !fields.has("actions_module") {
        let help = "Add `url: http://localhost:5055/webhook`, or `actions_module: actions`.";
        context.error("F0109", node, "`action_endpoint` has neither `url` nor `actions_module`", help);
        return None;
    }
    let module = module(context, &fields);
    let url = fields.node("url").filter(|node| node.text().is_some());
    if let Some(node) = url {
        address(context, node);
    }
    context.secret_warned(fields.node("token"), "token", "ACTION_SERVER_TOKEN");
    let mut params = pairs(context, &fields, "params");
    if let Some(token) = fields.text("token").filter(|token| !token.is_empty()) {
        params.push((fields.text("token_name").unwrap_or("token").to_owned(), token.to_owned()));
    }
    Some(ActionEndpointDef {
        url: url.and_then(Node::text).map(str::to_owned),
        module,
        headers: pairs(context, &fields, "headers"),
        params,
        basic_auth: basic_auth(context, &fields, "ACTION_SERVER_PASSWORD"),
        cafile: fields.text("cafile").map(str::to_owned),
        selective_domain: fields.flag("enable_selective_domain"),
        tracker_events: tracker_events(context, &fields),
        timeout: fields.seconds("timeout"),
        compress: fields.bool("compress"),
        effects: effects(context, &fields, "an action"),
        place: Some(context.place(node)),
    })
}

fn module(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<String> {
    let node = fields.node("actions_module")?;
    let module = node.text()?;
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if !module.split('.').all(is_part) {
        let help = "Write it as in a Python import, such as `actions` or `package.actions`; it is searched in the project folder.";
        context.error("F0621", node, format!("`{module}` is not a valid name of a Python module"), help);
        return None;
    }
    if !fields.has("url") {
        let message = "`actions_module` starts a Python action server";
        let help = "It needs `python3` with `rasa-sdk`; to avoid this, write the `url` of a running action server.";
        context.findings.note("F0609", &context.place(node), message, help);
    }
    Some(module.to_owned())
}

fn address(context: &mut LoadContext<'_>, node: &Node) {
    let is_grpc = |url: &str| url.starts_with("grpc://") || url.starts_with("grpcs://");
    if node.text().is_some_and(is_grpc) {
        // The runtime removes this finding if it is built with gRPC.
        let message = "this program was built without gRPC, so the actions of this project will fail";
        let help = "Build it with `--features grpc`, or start the action server without `--grpc` and write \
                    `url: http://localhost:5055/webhook`.";
        context.warning("F0622", node, message, help);
    } else {
        context.address(Some(node));
    }
}

fn tracker_events(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> TrackerEvents {
    let Some(node) = fields.node("tracker_events").filter(|node| !node.is_null()) else { return TrackerEvents::All };
    let number = node.number().and_then(|number| usize::try_from(number.as_u64()?).ok());
    match (node.text(), number) {
        (_, Some(most @ 1..)) => TrackerEvents::Latest(most),
        (Some("all"), _) => TrackerEvents::All,
        (Some("session"), _) => TrackerEvents::Session,
        _ => {
            let message = format!(
                "`tracker_events` must be `all`, `session` or a number of events, but this is {}",
                describe(node)
            );
            context.error("F0623", node, message, "Write `session` to send the events of the current session.");
            TrackerEvents::All
        }
    }
}
