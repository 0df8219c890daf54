//! The agent card: one document that clients of A2A 1.0 and of 0.3 understand.

use segue_engine::project::{A2aServerDef, Flow, Project};
use serde_json::{Map, Value as Json, json};

/// The agent card without URLs: the card in the project if there is one, otherwise one generated from the flows. `has_push`: whether the
/// server sends push notifications.
pub(super) fn agent_card(project: &Project, def: &A2aServerDef, has_push: bool) -> Json {
    let mut card = def.card.clone().unwrap_or_else(|| generate_card(project, def, has_push));
    let requires_authentication = def.token.is_some() || def.jwt.is_some();
    if let Some(fields) = card.as_object_mut().filter(|_| requires_authentication) {
        // The fields of both versions in one object: each ignores those of the other.
        let scheme = if def.jwt.is_some() {
            json!({"scheme": "bearer", "bearerFormat": "JWT"})
        } else {
            json!({"scheme": "bearer"})
        };
        let mut bearer = Map::from_iter([("type".to_owned(), json!("http"))]);
        bearer.extend(scheme.as_object().cloned().unwrap_or_default());
        bearer.insert("httpAuthSecurityScheme".to_owned(), scheme);
        fields.entry("securitySchemes").or_insert(json!({"bearer": bearer}));
        fields.entry("security").or_insert(json!([{"bearer": []}]));
        fields.entry("securityRequirements").or_insert(json!([{"schemes": {"bearer": {"list": []}}}]));
    }
    card
}

/// The card with the interfaces of a server with this public URL.
pub(super) fn with_urls(card: &Json, url: &str) -> Json {
    let url = format!("{url}/a2a");
    let interfaces = json!([
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": format!("{url}/rest"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
    ]);
    let mut card = card.clone();
    if let Some(fields) = card.as_object_mut() {
        let additional = json!([{"url": url, "transport": "JSONRPC"}, {"url": url, "transport": "HTTP+JSON"}]);
        fields.insert("supportedInterfaces".into(), interfaces);
        fields.insert("url".into(), json!(url));
        fields.insert("preferredTransport".into(), json!("JSONRPC"));
        fields.insert("additionalInterfaces".into(), additional);
        fields.insert("protocolVersion".into(), json!("0.3.0"));
    }
    card
}

/// A card with one skill per flow.
fn generate_card(project: &Project, def: &A2aServerDef, has_push: bool) -> Json {
    let skills: Vec<Json> = project.flows.values().filter(|flow| is_skill(flow)).map(|flow| skill(flow)).collect();
    json!({
        "name": &*project.config.assistant_id,
        "description": &*def.description,
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": {"streaming": true, "pushNotifications": has_push, "stateTransitionHistory": false},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": skills,
    })
}

/// Whether a user can start a flow: it is neither a pattern nor only reachable from other flows.
fn is_skill(flow: &Flow) -> bool {
    !flow.is_pattern() && !flow.is_link_only()
}

fn skill(flow: &Flow) -> Json {
    json!({
        "id": flow.id.as_str(),
        "name": &*flow.name,
        "description": &*flow.description,
        "tags": ["flow"],
    })
}
