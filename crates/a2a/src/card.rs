//! An agent's card: who it is, what it can, and where it is asked.

use serde_json::Value as Json;

use super::dialect::{A2aVersion, A2aWireFormat};

/// Where a card stands on its host: since 0.3, and before.
pub const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// What a card says, as far as we act on it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentCard {
    /// Its name.
    pub name: String,
    /// Where it is asked, the preferred way first; only ways that we know.
    pub interfaces: Vec<AgentInterface>,
    /// Whether it answers in pieces.
    pub streams: bool,
    /// Whether it reports changes by itself.
    pub pushes: bool,
    /// What operators should know: the way that the card prefers is not gone.
    pub note: Option<String>,
}

/// One way to ask an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInterface {
    /// Its address.
    pub url: String,
    /// How requests travel.
    pub binding: ProtocolBinding,
    /// How they are written.
    pub generation: A2aVersion,
    /// The tenant that requests must name, where there is one.
    pub tenant: Option<String>,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolBinding {
    /// JSON-RPC.
    Rpc,
    /// Plain HTTP: a path for each operation.
    Rest,
    /// gRPC.
    #[cfg(feature = "grpc")]
    Grpc,
}

impl AgentInterface {
    /// The way of writing.
    pub fn dialect(&self) -> A2aWireFormat {
        match (self.generation, self.binding) {
            (A2aVersion::New, _) => A2aWireFormat::New,
            (A2aVersion::Old, ProtocolBinding::Rpc) => A2aWireFormat::Old,
            // What is written for plain HTTP is made from the messages of gRPC.
            (A2aVersion::Old, _) => A2aWireFormat::OldRest,
        }
    }
}

impl AgentCard {
    /// Reads a card of either generation; one that says both is read as the newer. What is missing has the value that the
    /// protocol gives it.
    ///
    /// # Errors
    /// In words that end a sentence about the card: it cannot be used.
    pub fn read(json: &Json) -> Result<Self, String> {
        if !json.is_object() {
            return Err("is no JSON object".to_owned());
        }
        let named = interfaces(json);
        if named.is_empty() {
            return Err("names no address: it has neither `url` nor `supportedInterfaces`".to_owned());
        }
        let others: Vec<String> = named.iter().map(|(_, transport, ..)| transport.clone()).collect();
        let is_missed = |transport: &String| cfg!(not(feature = "grpc")) && transport.eq_ignore_ascii_case("GRPC");
        let interfaces: Vec<AgentInterface> = named.into_iter().filter_map(known).collect();
        if interfaces.is_empty() {
            let cure = if others.iter().any(is_missed) {
                "this program was built without gRPC: build it with `--features grpc`, or let the agent offer one of these two"
            } else {
                "ask its makers for one of these"
            };
            let spoken = if cfg!(feature = "grpc") { "JSONRPC, HTTP+JSON and GRPC" } else { "JSONRPC and HTTP+JSON" };
            return Err(format!("offers {} alone; {spoken} are spoken here ({cure})", others.join(", ")));
        }
        let note = others.first().filter(|first| is_missed(first)).map(|_| {
            let taken = if matches!(interfaces.first(), Some(AgentInterface { binding: ProtocolBinding::Rest, .. })) {
                "HTTP+JSON"
            } else {
                "JSONRPC"
            };
            format!("the agent prefers gRPC, without which this program was built: {taken} is used; `--features grpc` changes that")
        });
        let can = |key: &str| json.pointer(&format!("/capabilities/{key}")).and_then(Json::as_bool).unwrap_or_default();
        Ok(Self {
            name: json.get("name").and_then(Json::as_str).unwrap_or_default().to_owned(),
            interfaces,
            streams: can("streaming"),
            pushes: can("pushNotifications"),
            note,
        })
    }
}

/// Address, transport, version and tenant of every way that a card names.
type Named = (String, String, String, Option<String>);

fn interfaces(json: &Json) -> Vec<Named> {
    let text = |json: &Json, key: &str| {
        json.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let list = |key: &str| json.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let newer: Vec<Named> = list("supportedInterfaces")
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
    let mut all: Vec<Named> = preferred.into_iter().collect();
    for one in list("additionalInterfaces") {
        if let (Some(url), Some(transport)) = (text(one, "url"), text(one, "transport"))
            && !all.iter().any(|known| known.0 == url && known.1 == transport)
        {
            all.push((url, transport, version.clone(), None));
        }
    }
    all
}

fn known((url, transport, version, tenant): Named) -> Option<AgentInterface> {
    let binding = match transport.to_ascii_uppercase().as_str() {
        "JSONRPC" => ProtocolBinding::Rpc,
        "HTTP+JSON" => ProtocolBinding::Rest,
        #[cfg(feature = "grpc")]
        "GRPC" => ProtocolBinding::Grpc,
        _ => return None,
    };
    let major: u32 = version.trim_start_matches('v').split('.').next()?.parse().ok()?;
    let generation = if major == 0 { A2aVersion::Old } else { A2aVersion::New };
    let url = url.trim_end_matches('/').to_owned();
    #[cfg(feature = "grpc")]
    let url = if binding == ProtocolBinding::Grpc { segue_base::grpc::parse_address(&url) } else { url };
    Some(AgentInterface { url, binding, generation, tenant })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn first(json: Json) -> (String, ProtocolBinding, A2aVersion) {
        let card = AgentCard::read(&json).unwrap();
        let one = card.interfaces[0].clone();
        (one.url, one.binding, one.generation)
    }

    #[test]
    fn a_card_of_either_generation_says_where_to_ask() {
        // As cards of public samples are: no version, no transport, a slash at the end.
        assert_eq!(
            first(json!({"name": "x", "url": "http://h:1/"})),
            ("http://h:1".into(), ProtocolBinding::Rpc, A2aVersion::Old)
        );
        let old = json!({"name": "x", "url": "http://h/rest", "preferredTransport": "HTTP+JSON", "protocolVersion": "0.3.0",
            "additionalInterfaces": [{"url": "http://h/rpc", "transport": "JSONRPC"}], "capabilities": {"streaming": true}});
        assert_eq!(first(old.clone()), ("http://h/rest".into(), ProtocolBinding::Rest, A2aVersion::Old));
        let card = AgentCard::read(&old).unwrap();
        assert!(card.streams && !card.pushes && card.interfaces.len() == 2);
        // Both at once: the newer counts.
        let both = json!({"name": "x", "url": "http://h/old", "supportedInterfaces": [
            {"url": "http://h:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://h/new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "http://h/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ]});
        let card = AgentCard::read(&both).unwrap();
        #[cfg(not(feature = "grpc"))]
        {
            assert_eq!(first(both), ("http://h/new".into(), ProtocolBinding::Rpc, A2aVersion::New));
            let note = card.note.unwrap();
            assert!(note.contains("JSONRPC is used") && note.contains("--features grpc"), "{note}");
        }
        #[cfg(feature = "grpc")]
        {
            assert_eq!(first(both), ("http://h:50051".into(), ProtocolBinding::Grpc, A2aVersion::New));
            assert_eq!((card.note, card.interfaces.len()), (None, 3));
        }
    }

    #[test]
    fn a_card_that_cannot_be_used_says_why() {
        for (card, says) in [
            (json!([]), "no JSON object"),
            (json!({"name": "x"}), "`url`"),
            (json!({"url": "h:1", "preferredTransport": "SOAP"}), "SOAP alone"),
            #[cfg(not(feature = "grpc"))]
            (json!({"url": "h:1", "preferredTransport": "GRPC"}), "--features grpc"),
        ] {
            let error = AgentCard::read(&card).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
