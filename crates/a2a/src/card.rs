//! The agent card: what the agent can do and where it is reached.

use serde_json::Value as Json;

use super::version::{A2aVersion, A2aWireFormat};

/// The well-known paths of the card on its host: since version 0.3, and before.
pub const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The contents of a card that are used.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentCard {
    /// Its name.
    pub name: String,
    /// Its interfaces, the preferred one first; unsupported ones are omitted.
    pub interfaces: Vec<AgentInterface>,
    /// Whether it supports streaming.
    pub streaming: bool,
    /// Whether it supports push notifications.
    pub push_notifications: bool,
    /// A note for operators: the preferred interface of the card is not used.
    pub note: Option<String>,
}

/// An interface of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInterface {
    /// Its URL.
    pub url: String,
    /// How requests travel.
    pub binding: ProtocolBinding,
    /// The protocol version.
    pub version: A2aVersion,
    /// The tenant that requests must name, if any.
    pub tenant: Option<String>,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolBinding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP+JSON: one path per operation.
    HttpJson,
    /// gRPC.
    #[cfg(feature = "grpc")]
    Grpc,
}

impl AgentInterface {
    /// The JSON form of its messages.
    pub fn wire_format(&self) -> A2aWireFormat {
        match (self.version, self.binding) {
            (A2aVersion::V1_0, _) => A2aWireFormat::ProtoJsonV1_0,
            (A2aVersion::V0_3, ProtocolBinding::JsonRpc) => A2aWireFormat::JsonRpcV0_3,
            // The JSON of HTTP+JSON is made from the protocol buffers of gRPC.
            (A2aVersion::V0_3, _) => A2aWireFormat::ProtoJsonV0_3,
        }
    }
}

impl AgentCard {
    /// Decodes a card of either version. A card with the fields of both is decoded as version 1.0. Missing fields have
    /// the default values of the protocol.
    ///
    /// # Errors
    /// A text that continues a sentence about the card: it cannot be used.
    pub fn from_json(json: &Json) -> Result<Self, String> {
        if !json.is_object() {
            return Err("is not a JSON object".to_owned());
        }
        let named = interfaces(json);
        if named.is_empty() {
            return Err("has no interface: it has neither `url` nor `supportedInterfaces`".to_owned());
        }
        let others: Vec<String> = named.iter().map(|(_, transport, ..)| transport.clone()).collect();
        let is_missed = |transport: &String| cfg!(not(feature = "grpc")) && transport.eq_ignore_ascii_case("GRPC");
        let interfaces: Vec<AgentInterface> = named.into_iter().filter_map(supported_interface).collect();
        if interfaces.is_empty() {
            let help = if others.iter().any(is_missed) {
                "this program was built without gRPC: build it with `--features grpc`, or configure the agent to offer one of these two"
            } else {
                "ask its provider for one of these"
            };
            let spoken = if cfg!(feature = "grpc") { "JSONRPC, HTTP+JSON and GRPC" } else { "JSONRPC and HTTP+JSON" };
            return Err(format!("offers only {}; supported are {spoken} ({help})", others.join(", ")));
        }
        let note = others.first().filter(|first| is_missed(first)).map(|_| {
            let taken = if matches!(interfaces.first(), Some(AgentInterface { binding: ProtocolBinding::HttpJson, .. })) {
                "HTTP+JSON"
            } else {
                "JSONRPC"
            };
            format!("the agent prefers gRPC, but this program was built without it: {taken} is used; build with `--features grpc` to change that")
        });
        let can = |key: &str| json.pointer(&format!("/capabilities/{key}")).and_then(Json::as_bool).unwrap_or_default();
        Ok(Self {
            name: json.get("name").and_then(Json::as_str).unwrap_or_default().to_owned(),
            interfaces,
            streaming: can("streaming"),
            push_notifications: can("pushNotifications"),
            note,
        })
    }
}

/// URL, transport, version and tenant of an interface in a card.
type NamedInterface = (String, String, String, Option<String>);

fn interfaces(json: &Json) -> Vec<NamedInterface> {
    let text = |json: &Json, key: &str| {
        json.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let list = |key: &str| json.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let newer: Vec<NamedInterface> = list("supportedInterfaces")
        .iter()
        .filter_map(|one| {
            let transport = text(one, "protocolBinding").unwrap_or_else(|| "JSONRPC".to_owned());
            let version = text(one, "protocolVersion").unwrap_or_else(|| "1.0".to_owned());
            Some((text(one, "url")?, transport, version, text(one, "tenant")))
        })
        .collect();
    if !newer.is_empty() {
        return newer;
    }
    let version = text(json, "protocolVersion").unwrap_or_else(|| "0.3.0".to_owned());
    let preferred = text(json, "url").map(|url| {
        (url, text(json, "preferredTransport").unwrap_or_else(|| "JSONRPC".to_owned()), version.clone(), None)
    });
    let mut all: Vec<NamedInterface> = preferred.into_iter().collect();
    for one in list("additionalInterfaces") {
        if let (Some(url), Some(transport)) = (text(one, "url"), text(one, "transport"))
            && !all.iter().any(|known| known.0 == url && known.1 == transport)
        {
            all.push((url, transport, version.clone(), None));
        }
    }
    all
}

fn supported_interface((url, transport, version, tenant): NamedInterface) -> Option<AgentInterface> {
    let binding = match transport.to_ascii_uppercase().as_str() {
        "JSONRPC" => ProtocolBinding::JsonRpc,
        "HTTP+JSON" => ProtocolBinding::HttpJson,
        #[cfg(feature = "grpc")]
        "GRPC" => ProtocolBinding::Grpc,
        _ => return None,
    };
    let major: u32 = version.trim_start_matches('v').split('.').next()?.parse().ok()?;
    let version = if major == 0 { A2aVersion::V0_3 } else { A2aVersion::V1_0 };
    let url = url.trim_end_matches('/').to_owned();
    #[cfg(feature = "grpc")]
    let url = if binding == ProtocolBinding::Grpc { segue_base::grpc::parse_address(&url) } else { url };
    Some(AgentInterface { url, binding, version, tenant })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn first(json: Json) -> (String, ProtocolBinding, A2aVersion) {
        let card = AgentCard::from_json(&json).unwrap();
        let one = card.interfaces[0].clone();
        (one.url, one.binding, one.version)
    }

    #[test]
    fn cards_of_both_versions_list_interfaces() {
        // Like cards of public samples: no version, no transport, a trailing slash.
        assert_eq!(
            first(json!({"name": "x", "url": "http://h:1/"})),
            ("http://h:1".into(), ProtocolBinding::JsonRpc, A2aVersion::V0_3)
        );
        let old = json!({"name": "x", "url": "http://h/rest", "preferredTransport": "HTTP+JSON", "protocolVersion": "0.3.0",
            "additionalInterfaces": [{"url": "http://h/rpc", "transport": "JSONRPC"}], "capabilities": {"streaming": true}});
        assert_eq!(first(old.clone()), ("http://h/rest".into(), ProtocolBinding::HttpJson, A2aVersion::V0_3));
        let card = AgentCard::from_json(&old).unwrap();
        assert!(card.streaming && !card.push_notifications && card.interfaces.len() == 2);
        // With both versions, 1.0 is used.
        let both = json!({"name": "x", "url": "http://h/old", "supportedInterfaces": [
            {"url": "http://h:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://h/new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "http://h/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ]});
        let card = AgentCard::from_json(&both).unwrap();
        #[cfg(not(feature = "grpc"))]
        {
            assert_eq!(first(both), ("http://h/new".into(), ProtocolBinding::JsonRpc, A2aVersion::V1_0));
            let note = card.note.unwrap();
            assert!(note.contains("JSONRPC is used") && note.contains("--features grpc"), "{note}");
        }
        #[cfg(feature = "grpc")]
        {
            assert_eq!(first(both), ("http://h:50051".into(), ProtocolBinding::Grpc, A2aVersion::V1_0));
            assert_eq!((card.note, card.interfaces.len()), (None, 3));
        }
    }

    #[test]
    fn an_unusable_card_says_why() {
        for (card, says) in [
            (json!([]), "not a JSON object"),
            (json!({"name": "x"}), "`url`"),
            (json!({"url": "h:1", "preferredTransport": "SOAP"}), "only SOAP"),
            #[cfg(not(feature = "grpc"))]
            (json!({"url": "h:1", "preferredTransport": "GRPC"}), "--features grpc"),
        ] {
            let error = AgentCard::from_json(&card).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
