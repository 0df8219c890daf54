//! Requests of a server that its entry allows: elicitation (a form for the user) and sampling (a request to our model). Also resources and
//! prompts as tools, and the `_meta` of a call.

use serde_json::{Value as Json, json};

use super::{
    fake_server::{FakeMcpServer, Output},
    *,
};

const ELICITATION: &str = "elicitation: {mail: mail, count: seats}";

/// A server that asks for a mail address and a number in each call, and returns them. With a session it sends `elicitation/create`; without
/// one, it returns `input_required` (protocol version 2026-07-28).
fn form_server(has_session: bool) -> FakeMcpServer {
    let schema = json!({
        "type": "object", "required": ["mail", "count"],
        "properties": {
            "mail": {"type": "string", "format": "email", "minLength": 3},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "note": {"type": "string", "default": "none"}
        }
    });
    let params = json!({"message": "Who are you?", "requestedSchema": schema});
    if has_session {
        return FakeMcpServer::new(move |message, out, server| match message["method"].as_str() {
            Some("tools/call") => {
                let (server, out, message, earlier) =
                    (server.clone(), out.clone(), message.clone(), server.responses().len());
                out.send(
                    &json!({"jsonrpc": "2.0", "id": 500 + earlier, "method": "elicitation/create", "params": params}),
                );
                tokio::spawn(async move {
                    while server.responses().len() == earlier {
                        tokio::task::yield_now().await;
                    }
                    answer_with_form(&out, &message, &server.responses().last().unwrap()["result"]);
                });
            }
            _ => server.default_answer(message, out),
        });
    }
    FakeMcpServer::new(move |message, out, server| match message["method"].as_str() {
        Some("server/discover") => {
            let info = json!({"name": "remote", "version": "1"});
            let discovery = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": info, "ttlMs": 0, "cacheScope": "private"
            });
            out.result(message, discovery);
        }
        Some("tools/call") => match message["params"].get("inputResponses") {
            None => {
                let requests = json!({"who": {"method": "elicitation/create", "params": params}});
                out.result(
                    message,
                    json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s1"}),
                );
            }
            Some(responses) => {
                assert_eq!(message["params"]["requestState"], "s1");
                answer_with_form(out, message, &responses["who"]);
            }
        },
        _ => server.default_answer(message, out),
    })
}

/// Answers a tool call with the content of the form, or with an error if the user did not give it.
fn answer_with_form(out: &Output, message: &Json, response: &Json) {
    match response["action"].as_str() {
        Some("accept") => out.text(message, &response["content"].to_string()),
        other => {
            let text = format!("no form: {}", other.unwrap_or_default());
            let content = json!([{"type": "text", "text": text}]);
            out.result(message, json!({"isError": true, "content": content}));
        }
    }
}

/// The entry of a server with sessions or without.
fn entry(has_session: bool) -> String {
    if has_session { ELICITATION.to_owned() } else { format!("{ELICITATION}, protocol_version: '2026-07-28'") }
}

#[tokio::test]
async fn elicitation_asks_the_user_for_each_field() {
    for has_session in [true, false] {
        let server = form_server(has_session);
        let conversation = TestConversation::with(&server, &entry(has_session));
        let (replies, failures) = conversation.say("/work").await;
        assert_eq!(replies, ["Which address?"], "{has_session}: {failures}");
        assert_eq!(conversation.say("ada@example.org").await.0, ["How many seats?"]);
        let (replies, _) = conversation.say("3").await;
        assert!(
            replies[0].contains(r#""mail":"ada@example.org""#) && replies[0].contains(r#""note":"none""#),
            "{replies:?}"
        );
        assert!(replies[0].contains(r#""count":3,"#), "the form gets an integer: {replies:?}");
        assert!(conversation.assistant.replay(&"u".into()).await.unwrap().is_none(), "a replay needs no server");
    }
}

#[tokio::test]
async fn elicitation_asks_again_for_an_invalid_value() {
    let conversation = TestConversation::with(&form_server(true), &entry(true));
    conversation.say("/work").await;
    assert_eq!(conversation.say("ada@example.org").await.0, ["How many seats?"]);
    assert_eq!(conversation.say("12").await.0, ["How many seats?"], "the maximum is 9");
    let (replies, _) = conversation.say("2").await;
    assert!(replies[0].contains(r#""count":2,"#), "{replies:?}");
}

#[tokio::test]
async fn elicitation_stops_asking_when_no_answer_fits() {
    let server = form_server(true);
    let conversation = TestConversation::with(&server, &entry(true));
    conversation.say("/work").await;
    assert_eq!(conversation.say("ada@example.org").await.0, ["How many seats?"]);
    assert_eq!(conversation.say("12").await.0, ["How many seats?"]);
    assert_eq!(conversation.say("13").await.0, ["How many seats?"]);
    let (replies, _) = conversation.say("14").await;
    assert!(!replies.contains(&"How many seats?".to_owned()), "{replies:?}");
}

#[tokio::test]
async fn elicitation_does_not_ask_for_known_slots_and_accepts_corrections() {
    let conversation = TestConversation::with(&form_server(true), "elicitation: {mail: home, count: seats}");
    assert_eq!(conversation.say("/work").await.0, ["How many seats?"], "the address is not asked");
    let (replies, _) = conversation.say("2").await;
    assert!(replies[0].contains("ada@example.org"), "{replies:?}");

    let conversation = TestConversation::with(&form_server(true), &entry(true));
    conversation.say("/work").await;
    assert_eq!(conversation.say("old@example.org").await.0, ["How many seats?"]);
    let (replies, _) = conversation.say("/SetSlots(mail=new@example.org)").await;
    assert_eq!(replies.last().map(String::as_str), Some("How many seats?"), "{replies:?}");
    let (replies, _) = conversation.say("2").await;
    assert!(replies[0].contains("new@example.org"), "{replies:?}");
}

#[tokio::test]
async fn user_can_cancel_an_elicitation() {
    let server = form_server(true);
    let conversation = TestConversation::with(&server, "elicitation: {mail: home, count: seats}");
    assert_eq!(conversation.say("/work").await.0, ["How many seats?"]);
    let (replies, failures) = conversation.say("never mind").await;
    assert!(replies.len() == 1 && failures.is_empty() && !replies[0].contains("seats"), "{replies:?} {failures}");
    assert_eq!(server.params_of("tools/call").len(), 1, "the tool is not called again");
    assert_eq!(server.responses()[0]["result"]["action"], "cancel");
}

#[tokio::test]
async fn elicitation_of_an_unmapped_field_is_declined() {
    let server = form_server(true);
    let conversation = TestConversation::with(&server, "elicitation: {mail: home}");
    conversation.assert_fails("/work", "no form: decline").await;
}

#[tokio::test]
async fn elicitation_in_an_agent_lists_the_missing_fields_to_the_model() {
    let conversation = TestConversation::with(&form_server(true), &entry(true));
    conversation.say("/ask").await;
    let results = conversation.model.tool_results();
    assert!(
        results[0].starts_with("error[refused]: It needs to know from the user first: mail, count."),
        "{results:?}"
    );
}

#[tokio::test]
async fn sampling_uses_our_model_within_its_token_limit() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") => {
            let messages = json!([{"role": "user", "content": {"type": "text", "text": "how are you"}}]);
            let params = json!({"messages": messages, "maxTokens": 1_000_000, "systemPrompt": "be brief"});
            out.send(&json!({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": params}));
            let (server, out, message) = (server.clone(), out.clone(), message.clone());
            tokio::spawn(async move {
                while server.responses().is_empty() {
                    tokio::task::yield_now().await;
                }
                let answer = server.responses()[0]["result"].clone();
                out.text(&message, answer["content"]["text"].as_str().unwrap_or("nothing"));
            });
        }
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "sampling: true");
    conversation.assert_succeeds("/work", "sampled how are you").await;
    let requests = conversation.model.0.lock().unwrap().clone();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].max_tokens, requests[0].tools.len()), (Some(segue::limits::MCP_SAMPLE_TOKENS), 0));
    assert_eq!(server.params_of("initialize")[0]["capabilities"], json!({"sampling": {}}));
    assert!(conversation.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn resources_and_prompts_are_offered_as_tools_if_enabled() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("resources/read") => {
            assert_eq!(message["params"]["uri"], "notes://1");
            out.result(message, json!({"contents": [{"uri": "notes://1", "text": "the tide is at six"}]}));
        }
        _ => server.default_answer(message, out),
    });
    *server.tools.lock().unwrap() = json!([]);
    let conversation = TestConversation::with(&server, "offers: [resources, prompts]");
    let (replies, failures) = conversation.say("/ask").await;
    assert_eq!(replies, ["The result: the tide is at six"], "{failures}");
    let names: Vec<_> = conversation.model.offered_tools().into_iter().map(|(name, _)| name).collect();
    for name in ["list_resources", "read_resource", "list_prompts", "get_prompt"] {
        assert!(names.iter().any(|offered| offered == name), "{name} is missing in {names:?}");
    }
}

#[tokio::test]
async fn meta_contains_only_the_mapped_values() {
    let server = FakeMcpServer::answering_calls(|message, out, _| out.text(message, "yes"));
    let map = "meta_map: {static: {tenant: north}, from_slots: [{slot: home, param: who}, {slot: seats, param: seats}], \
               from_metadata: [{key: input_channel, param: by}, {key: tier, param: tier}]}";
    let conversation = TestConversation::with(&server, map);
    conversation.assert_succeeds("/work", "yes").await;
    let mut meta = server.params_of("tools/call")[0]["_meta"].as_object().unwrap().clone();
    meta.retain(|key, _| key != "progressToken");
    // A write has an idempotency key, which reveals nothing.
    let key = meta.shift_remove("segue/idempotencyKey").unwrap();
    assert!(key.as_str().is_some_and(|key| key.len() == 32), "{key}");
    assert_eq!(Json::Object(meta), json!({"tenant": "north", "who": "ada@example.org", "by": "test"}));
}

#[tokio::test]
async fn endless_elicitation_is_declined() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") => {
            let schema = json!({"type": "object", "properties": {"mail": {"type": "string"}}});
            let params = json!({"message": "Again?", "requestedSchema": schema});
            let requests = json!({"again": {"method": "elicitation/create", "params": params}});
            out.result(message, json!({"resultType": "input_required", "inputRequests": requests}));
        }
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "elicitation: {mail: home}");
    conversation.assert_fails("/work", "refused: It wants to ask something, which is not allowed here").await;
    assert_eq!(server.params_of("tools/call").len(), 1 + segue::limits::MCP_QUESTIONS);
}

#[tokio::test]
async fn sampling_request_size_is_limited() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") => {
            let text = "x".repeat(segue::limits::MCP_SAMPLE + 1);
            let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
            let params = json!({"messages": messages, "maxTokens": 10});
            out.send(&json!({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": params}));
            let (server, out, message) = (server.clone(), out.clone(), message.clone());
            tokio::spawn(async move {
                while server.responses().is_empty() {
                    tokio::task::yield_now().await;
                }
                out.text(&message, server.responses()[0]["error"]["message"].as_str().unwrap_or("an answer"));
            });
        }
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "sampling: true");
    conversation.assert_succeeds("/work", "a request holds 1 to 32768 bytes of text").await;
    assert!(conversation.model.0.lock().unwrap().is_empty());
}

/// The limit also holds for answers without questions: otherwise the server would be called in a loop until the deadline.
#[tokio::test]
async fn endless_input_required_without_questions_is_limited() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") => out.result(message, json!({"resultType": "input_required", "requestState": "s"})),
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "elicitation: {mail: home}");
    conversation.assert_fails("/work", "refused: It wants to ask something, which is not allowed here").await;
    assert_eq!(server.params_of("tools/call").len(), 1 + segue::limits::MCP_QUESTIONS);
}
