//! `action_endpoint` of `endpoints.yml`.

use super::{
    super::{
        ActionEndpointDef, TrackerEvents,
        reader::{Fields, Reader, said},
        schema::ACTION_ENDPOINT,
        uses::Used,
        yaml::Node,
    },
    endpoints::{basic_auth, effects, pairs},
};

/// Reads the section; `None` where it stands empty.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<ActionEndpointDef> {
    if node.is_null() {
        return None;
    }
    let fields = reader.fields(node, &ACTION_ENDPOINT)?;
    for entry in fields.map("effects") {
        reader.uses_name(Used::CustomAction, &entry.key, reader.place(&entry.at));
    }
    if !fields.has("url") && !fields.has("actions_module") {
        let help = "Add `url: http://localhost:5055/webhook`, or `actions_module: actions`.";
        reader.error(
            "F0109",
            node,
            "`action_endpoint` says neither where actions run nor which module holds them",
            help,
        );
        return None;
    }
    let module = module(reader, &fields);
    let url = fields.node("url").filter(|node| node.text().is_some());
    if let Some(node) = url {
        address(reader, node);
    }
    reader.secret_warned(fields.node("token"), "token", "ACTION_SERVER_TOKEN");
    let mut params = pairs(reader, &fields, "params");
    if let Some(token) = fields.text("token").filter(|token| !token.is_empty()) {
        params.push((fields.text("token_name").unwrap_or("token").to_owned(), token.to_owned()));
    }
    Some(ActionEndpointDef {
        url: url.and_then(Node::text).map(str::to_owned),
        module,
        headers: pairs(reader, &fields, "headers"),
        params,
        basic_auth: basic_auth(reader, &fields, "ACTION_SERVER_PASSWORD"),
        cafile: fields.text("cafile").map(str::to_owned),
        selective_domain: fields.flag("enable_selective_domain"),
        tracker_events: tracker_events(reader, &fields),
        timeout: fields.seconds("timeout"),
        compress: fields.bool("compress"),
        effects: effects(reader, &fields, "an action"),
        place: Some(reader.place(node)),
    })
}

fn module(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<String> {
    let node = fields.node("actions_module")?;
    let module = node.text()?;
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if !module.split('.').all(is_part) {
        let help = "Write it as Python imports it, such as `actions` or `package.actions`; it is looked for in the project's folder.";
        reader.error("F0621", node, format!("`{module}` is not the name of a Python module"), help);
        return None;
    }
    if !fields.has("url") {
        let message = "`actions_module` runs Python code beside this program";
        let help = "It needs `python3` with `rasa-sdk`; give the `url` of a running action server to do without.";
        reader.findings.note("F0609", &reader.place(node), message, help);
    }
    Some(module.to_owned())
}

fn address(reader: &mut Reader<'_>, node: &Node) {
    let is_grpc = |url: &str| url.starts_with("grpc://") || url.starts_with("grpcs://");
    if node.text().is_some_and(is_grpc) {
        // Whoever was built with gRPC leaves it out.
        let message = "this program was built without gRPC; actions of this project will fail";
        let help = "Build it with `--features grpc`, or start the action server without `--grpc` and write \
                    `url: http://localhost:5055/webhook`.";
        reader.warning("F0622", node, message, help);
    } else {
        reader.address(Some(node));
    }
}

fn tracker_events(reader: &mut Reader<'_>, fields: &Fields<'_>) -> TrackerEvents {
    let Some(node) = fields.node("tracker_events").filter(|node| !node.is_null()) else { return TrackerEvents::All };
    let number = node.number().and_then(|number| usize::try_from(number.as_u64()?).ok());
    match (node.text(), number) {
        (_, Some(most @ 1..)) => TrackerEvents::Latest(most),
        (Some("all"), _) => TrackerEvents::All,
        (Some("session"), _) => TrackerEvents::Session,
        _ => {
            let message =
                format!("`tracker_events` is `all`, `session` or a number of events, but this is {}", said(node));
            reader.error("F0623", node, message, "Write `session` to send the events of the present session.");
            TrackerEvents::All
        }
    }
}
