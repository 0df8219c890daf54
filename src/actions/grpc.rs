//! Requests to an action server over gRPC: the service `action_server_webhook.ActionService` of `rasa-sdk`, without streaming.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message;
use reqwest::Url;
use segue_engine::conversation::StepError;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json, value::RawValue};

use super::{
    ActionRequest,
    http::ActionEndpoint,
    response::{self, ActionResponse},
    webhook_body::{VERSION, too_large},
};
use crate::{
    context::CallContext,
    failpoint,
    grpc::{Code, GrpcClient, GrpcError, parse_address, well_known::Struct},
    limits,
    secret::Secret,
};

/// Messages of `action_webhook.proto` of `rasa-sdk`.
mod messages {
    use std::collections::BTreeMap;

    use super::{Deserialize, Json, Message, Struct};

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct WebhookRequest {
        #[prost(string, tag = "1")]
        pub(super) next_action: String,
        #[prost(string, tag = "2")]
        pub(super) sender_id: String,
        #[prost(message, optional, tag = "3")]
        pub(super) tracker: Option<Tracker>,
        #[prost(message, optional, tag = "4")]
        pub(super) domain: Option<Domain>,
        #[prost(string, tag = "5")]
        pub(super) version: String,
        #[prost(string, optional, tag = "6")]
        pub(super) domain_digest: Option<String>,
    }

    #[derive(Clone, PartialEq, Message, Deserialize)]
    #[serde(default)]
    pub(super) struct Tracker {
        #[prost(string, tag = "1")]
        sender_id: String,
        #[prost(message, optional, tag = "2")]
        slots: Option<Struct>,
        #[prost(message, optional, tag = "3")]
        latest_message: Option<Struct>,
        #[prost(message, repeated, tag = "4")]
        events: Vec<Struct>,
        #[prost(bool, tag = "5")]
        paused: bool,
        #[prost(string, optional, tag = "6")]
        followup_action: Option<String>,
        #[prost(btree_map = "string, string", tag = "7")]
        #[serde(deserialize_with = "texts")]
        active_loop: BTreeMap<String, String>,
        #[prost(string, optional, tag = "8")]
        latest_action_name: Option<String>,
        #[prost(message, repeated, tag = "9")]
        stack: Vec<Struct>,
        #[prost(string, optional, tag = "10")]
        user_id: Option<String>,
    }

    #[derive(Clone, PartialEq, Message, Deserialize)]
    #[serde(default)]
    pub(super) struct Domain {
        #[prost(message, optional, tag = "1")]
        config: Option<Struct>,
        #[prost(message, optional, tag = "2")]
        session_config: Option<Struct>,
        #[prost(message, repeated, tag = "3")]
        intents: Vec<Named>,
        #[prost(message, repeated, tag = "4")]
        entities: Vec<Named>,
        #[prost(message, optional, tag = "5")]
        slots: Option<Struct>,
        #[prost(message, optional, tag = "6")]
        responses: Option<Struct>,
        #[prost(message, repeated, tag = "7")]
        actions: Vec<Named>,
        #[prost(message, optional, tag = "8")]
        forms: Option<Struct>,
        #[prost(message, repeated, tag = "9")]
        e2e_actions: Vec<Struct>,
    }

    /// `Intent`, `Entity` and `Action`: a name, optionally with properties.
    #[derive(Clone, PartialEq, Message, Deserialize)]
    #[serde(from = "Json")]
    pub(super) struct Named {
        #[prost(string, tag = "1")]
        string_value: String,
        #[prost(message, optional, tag = "2")]
        dict_value: Option<Struct>,
    }

    impl From<Json> for Named {
        fn from(json: Json) -> Self {
            match json {
                Json::Object(fields) => Self { string_value: String::new(), dict_value: Some((&fields).into()) },
                Json::String(text) => Self { string_value: text, dict_value: None },
                other => Self { string_value: other.to_string(), dict_value: None },
            }
        }
    }

    /// A map of strings: other values are written as JSON.
    fn texts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
        let fields = Option::<serde_json::Map<String, Json>>::deserialize(deserializer)?.unwrap_or_default();
        let text = |value: Json| match value {
            Json::Null => None,
            Json::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        Ok(fields.into_iter().filter_map(|(key, value)| Some((key, text(value)?))).collect())
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct WebhookResponse {
        #[prost(message, repeated, tag = "1")]
        pub(super) events: Vec<Struct>,
        #[prost(message, repeated, tag = "2")]
        pub(super) responses: Vec<Struct>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ActionsRequest {}

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ActionsResponse {
        #[prost(message, repeated, tag = "1")]
        pub(super) actions: Vec<Struct>,
    }

    /// `grpc.health.v1.HealthCheckRequest`.
    #[derive(Clone, PartialEq, Message)]
    pub(super) struct HealthCheckRequest {
        #[prost(string, tag = "1")]
        pub(super) service: String,
    }

    /// `grpc.health.v1.HealthCheckResponse`; 1 is `SERVING`.
    #[derive(Clone, PartialEq, Message)]
    pub(super) struct HealthCheckResponse {
        #[prost(int32, tag = "1")]
        pub(super) status: i32,
    }
}

use messages::{
    ActionsRequest, ActionsResponse, HealthCheckRequest, HealthCheckResponse, WebhookRequest, WebhookResponse,
};

/// Whether a URL is one of gRPC.
pub(super) fn is_grpc(url: &str) -> bool {
    url.starts_with("grpc://") || url.starts_with("grpcs://")
}

impl ActionEndpoint {
    /// Runs one action.
    pub(super) async fn call_by_grpc(
        &self,
        url: &str,
        request: ActionRequest<'_>,
        domain: Option<&RawValue>,
        cx: &CallContext,
    ) -> Result<ActionResponse, StepError> {
        let unsupported = |reason: String| StepError::new("unsupported", reason);
        let mut caller = self.caller(url).map_err(unsupported)?;
        caller = caller.with_header("idempotency-key", &Secret::new(request.idempotency_key)).map_err(unsupported)?;
        let conversion_error = |error| unsupported(format!("gRPC cannot carry the conversation: {error}"));
        let message = WebhookRequest {
            next_action: request.action.to_string(),
            sender_id: request.conversation.to_string(),
            tracker: Some(Deserialize::deserialize(request.tracker).map_err(conversion_error)?),
            domain: domain.map(|domain| serde_json::from_str(domain.get())).transpose().map_err(conversion_error)?,
            version: VERSION.to_owned(),
            domain_digest: Some(self.digest.clone()),
        };
        if message.encoded_len() > limits::ACTION_REQUEST {
            return Err(StepError::new("too_large", too_large()));
        }
        let asking = async {
            tokio::select! {
                biased;
                answered = caller.unary("/action_server_webhook.ActionService/Webhook", message, limits::ACTION_ANSWER, cx) => answered,
                // Reached only in tests that kill the process.
                () = failpoint::while_waiting("C13", limits::TOOL_GRACE) => Err(GrpcError::Broken(String::new())),
            }
        };
        let answered: Result<WebhookResponse, GrpcError> = asking.await;
        let name = request.action.as_str();
        match answered {
            Ok(WebhookResponse { events, responses }) => {
                self.record_status(Ok(()));
                let maps = |all: Vec<Struct>| all.into_iter().map(|one| Json::Object(one.into())).collect::<Vec<_>>();
                Ok(response::from_grpc(Map::from_iter([
                    ("events".to_owned(), json!(maps(events))),
                    ("responses".to_owned(), json!(maps(responses))),
                ])))
            }
            Err(GrpcError::Refused { code, message, .. }) => {
                self.record_status(Ok(()));
                let (status, body) = http_equivalent(code, &message);
                Ok(response::read(name, status, body.to_string().as_bytes(), false))
            }
            Err(trouble) => Err(self.failed(trouble)).inspect_err(|error| self.record_status(Err(error))),
        }
    }

    fn failed(&self, trouble: GrpcError) -> StepError {
        match trouble {
            GrpcError::Unreachable(why) => {
                StepError::new("unreachable", format!("the action server cannot be reached: {why}"))
            }
            GrpcError::TooLarge => StepError::in_doubt(
                "bad_answer",
                format!("its response is larger than {} bytes", limits::ACTION_ANSWER),
            ),
            GrpcError::DeadlineExceeded => {
                StepError::in_doubt("timeout", format!("no answer within {} s", self.timeout.as_secs_f64()))
            }
            GrpcError::Cancelled => StepError::in_doubt("cancelled", "the call was cancelled"),
            GrpcError::Broken(why) => {
                StepError::in_doubt("lost", format!("the connection was lost before the response: {why}"))
            }
            GrpcError::Refused { code, message, .. } => {
                StepError::reported("server_error", format!("it failed ({code:?}): {message}"))
            }
        }
    }

    /// Checks the health of the server, then requests its actions.
    pub(super) async fn list_actions_by_grpc(&self, url: &str, cx: &CallContext) -> Result<Vec<String>, String> {
        let cx = cx.with_timeout(limits::ACTION_HEALTH);
        if !self.serves_by_grpc(url, &cx).await? {
            return Err("its health service does not return `SERVING`".to_owned());
        }
        let path = "/action_server_webhook.ActionService/Actions";
        let listed = self.caller(url)?.unary(path, ActionsRequest {}, limits::ACTION_ANSWER, &cx).await;
        let listed: ActionsResponse = listed.map_err(|trouble| self.list_error("its actions are", trouble))?;
        let maps = listed.actions.into_iter().map(Map::<String, Json>::from);
        Ok(maps.filter_map(|action| Some(action.get("name")?.as_str()?.to_owned())).collect())
    }

    /// Whether the health service returns `SERVING`; a server without a health service counts as serving.
    async fn serves_by_grpc(&self, url: &str, cx: &CallContext) -> Result<bool, String> {
        let question = HealthCheckRequest { service: "ActionServer".to_owned() };
        let asked = self.caller(url)?.unary("/grpc.health.v1.Health/Check", question, limits::ACTION_ANSWER, cx).await;
        match asked {
            Ok(HealthCheckResponse { status }) => {
                self.record_status(Ok(()));
                Ok(status == 1)
            }
            Err(GrpcError::Refused { code: Code::Unimplemented | Code::NotFound, .. }) => Ok(true),
            Err(trouble) => Err(self.list_error("its health is", trouble)),
        }
    }

    fn list_error(&self, what: &str, trouble: GrpcError) -> String {
        if trouble == GrpcError::DeadlineExceeded {
            return format!("{what} not told within {} s", limits::ACTION_HEALTH.as_secs());
        }
        let error = self.failed(trouble);
        self.record_status(Err(&error));
        error.message
    }

    /// A client with headers and credentials. gRPC has no query, so that parameters, including those of the URL, are sent as metadata.
    /// The text of an error never contains the URL, because it may contain a token.
    fn caller(&self, url: &str) -> Result<GrpcClient, String> {
        let unsupported = "the `url` of `action_endpoint` is invalid or not allowed".to_owned();
        let (url, own) = server_and_parameters(url).ok_or_else(|| unsupported.clone())?;
        let client = self.http.as_ref().map_err(Clone::clone)?.http2().map_err(|error| error.to_string())?;
        let mut caller = GrpcClient::new(client.clone(), url.as_str()).map_err(|_| unsupported)?;
        for (name, value) in own.iter().chain(&self.params).chain(&self.headers) {
            caller = caller.with_header(name, value)?;
        }
        if let Some((user, password)) = &self.basic {
            let both = STANDARD.encode(format!("{user}:{}", password.expose()));
            caller = caller.with_header("authorization", &Secret::new(format!("Basic {both}")))?;
        }
        Ok(caller)
    }
}

/// Host and port of a URL, and its parameters. The path is ignored, as in Rasa's own client: often it is that of the HTTP webhook.
fn server_and_parameters(url: &str) -> Option<(Url, Vec<(String, Secret)>)> {
    let mut url = crate::http::parse_endpoint_url(&parse_address(url)).ok()?;
    let own = url.query_pairs().map(|(name, value)| (name.into_owned(), Secret::new(value.into_owned()))).collect();
    url.set_query(None);
    url.set_fragment(None);
    url.set_path("");
    Some((url, own))
}

/// The HTTP status and body that correspond to a gRPC error: `rasa-sdk` writes the same JSON into the message of the gRPC status.
fn http_equivalent(code: Code, message: &str) -> (u16, Json) {
    let said: Json = serde_json::from_str(message).unwrap_or_default();
    let words = said.get("message").and_then(Json::as_str).unwrap_or(message);
    let named = said.get("action_name").is_some();
    let body = |named: bool| if named { json!({"error": words, "action_name": ""}) } else { json!({"error": words}) };
    match code {
        Code::NotFound if said.get("resource_type").and_then(Json::as_str) == Some("DOMAIN") => (449, body(true)),
        Code::NotFound => (404, body(named)),
        // An action that rejects its execution looks like a failure that names the action.
        Code::Internal if named => (400, body(true)),
        Code::InvalidArgument | Code::ResourceExhausted => (422, body(false)),
        Code::Unauthenticated | Code::PermissionDenied => (401, body(false)),
        Code::Unimplemented => (404, body(false)),
        _ => (500, body(false)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use segue_engine::conversation::ActionOutcome;

    use super::{messages::*, *};

    #[test]
    fn grpc_errors_have_the_outcomes_of_their_http_equivalents() {
        let read = |code, message: &str| {
            let (status, body) = http_equivalent(code, message);
            response::read("a", status, body.to_string().as_bytes(), false)
        };
        let rejected = read(Code::Internal, r#"{"action_name": "a", "message": "not now"}"#);
        assert_eq!(rejected, ActionResponse::Outcome(ActionOutcome::Rejected { reason: "not now".into() }));
        let domain = r#"{"action_name": "a", "message": "no domain", "resource_type": "DOMAIN"}"#;
        assert_eq!(read(Code::NotFound, domain), ActionResponse::DomainRequired);
        for (code, message, wanted) in [
            (Code::NotFound, r#"{"action_name": "a", "message": "", "resource_type": "ACTION"}"#, ("not_found", false)),
            (Code::Unimplemented, "no such method", ("not_found", false)),
            (Code::ResourceExhausted, "too large", ("bad_request", false)),
            (Code::Unauthenticated, "", ("refused", false)),
            (Code::Unknown, "Unexpected ValueError", ("server_error", true)),
            (Code::Internal, "proxy", ("server_error", true)),
            (Code::Unavailable, "", ("server_error", true)),
        ] {
            let ActionResponse::Outcome(ActionOutcome::Failed(error)) = read(code, message) else {
                unreachable!("{code:?}")
            };
            assert_eq!((error.code.as_str(), error.may_have_run), wanted, "{code:?} {message}");
        }
    }

    #[test]
    fn address_is_split_into_host_port_and_parameters() {
        for (written, asked, conversion_error) in [
            ("grpc://host:5055", "http://host:5055/", vec![]),
            ("grpc://host:5055?token=x", "http://host:5055/", vec![("token", "x")]),
            ("grpcs://host:5055/webhook?token=a%20b&k=1", "https://host:5055/", vec![("token", "a b"), ("k", "1")]),
        ] {
            let (url, own) = server_and_parameters(written).unwrap();
            let own: Vec<_> = own.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
            assert_eq!((url.as_str(), own), (asked, conversion_error));
        }
    }

    #[test]
    fn conversation_and_domain_become_messages() {
        let tracker = json!({"sender_id": "u", "slots": {"n": 3}, "latest_message": {}, "events": [{"event": "x"}],
            "paused": false, "followup_action": null, "active_loop": {"name": "f", "odd": 1}, "stack": [], "user_id": null});
        let read: Tracker = Deserialize::deserialize(&tracker).unwrap();
        assert!(read.encoded_len() > 20);
        let domain = json!({"intents": ["a", {"b": {"use_entities": true}}], "actions": ["x"], "slots": {}});
        let read: Domain = serde_json::from_value(domain).unwrap();
        assert!(read.encoded_len() > 20);
    }
}
