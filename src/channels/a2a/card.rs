//! The card that others read: one document that both generations understand.

use segue_engine::project::{A2aServerDef, Flow, Project};
use serde_json::{Map, Value as Json, json};

/// The card without addresses: the author's own, where there is one, else one made from the flows.
pub(super) fn card(project: &Project, def: &A2aServerDef, pushes: bool) -> Json {
    let mut card = def.card.clone().unwrap_or_else(|| own(project, def, pushes));
    let is_guarded = def.token.is_some() || def.jwt.is_some();
    if let Some(fields) = card.as_object_mut().filter(|_| is_guarded) {
        // Both spellings in one: what the other generation does not know it leaves out.
        let own = if def.jwt.is_some() {
            json!({"scheme": "bearer", "bearerFormat": "JWT"})
        } else {
            json!({"scheme": "bearer"})
        };
        let mut bearer = Map::from_iter([("type".to_owned(), json!("http"))]);
        bearer.extend(own.as_object().cloned().unwrap_or_default());
        bearer.insert("httpAuthSecurityScheme".to_owned(), own);
        let scheme = json!({"bearer": bearer});
        fields.entry("securitySchemes").or_insert(scheme);
        fields.entry("security").or_insert(json!([{"bearer": []}]));
        fields.entry("securityRequirements").or_insert(json!([{"schemes": {"bearer": {"list": []}}}]));
    }
    card
}

/// The card of a server at this address.
pub(super) fn with_addresses(card: &Json, url: &str) -> Json {
    let url = format!("{url}/a2a");
    let interfaces = json!([
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": format!("{url}/rest"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
    ]);
    let mut card = card.clone();
    if let Some(fields) = card.as_object_mut() {
        let rest = json!([{"url": url, "transport": "JSONRPC"}, {"url": url, "transport": "HTTP+JSON"}]);
        fields.insert("supportedInterfaces".into(), interfaces);
        fields.insert("url".into(), json!(url));
        fields.insert("preferredTransport".into(), json!("JSONRPC"));
        fields.insert("additionalInterfaces".into(), rest);
        fields.insert("protocolVersion".into(), json!("0.3.0"));
    }
    card
}

fn own(project: &Project, def: &A2aServerDef, pushes: bool) -> Json {
    let skills: Vec<Json> = project.flows.values().filter(|flow| is_skill(flow)).map(|flow| skill(flow)).collect();
    json!({
        "name": &*project.config.assistant_id,
        "description": &*def.description,
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": {"streaming": true, "pushNotifications": pushes, "stateTransitionHistory": false},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": skills,
    })
}

/// Flows that somebody can ask for: not patterns, and not those that only other flows reach.
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
