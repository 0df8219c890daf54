//! What a server may ask and offer where its entry allows it: forms, our model, resources, prompts; and what it is told.

use serde_json::{Value as Json, json};

use super::{
    far::{Far, Out},
    *,
};

const ELICITATION: &str = "elicitation: {mail: mail, count: seats}";

/// Asks for a mail address and a number with each call, and answers with what it was given.
fn form(session: bool) -> Far {
    let schema = json!({
        "type": "object", "required": ["mail", "count"],
        "properties": {
            "mail": {"type": "string", "format": "email", "minLength": 3},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "note": {"type": "string", "default": "none"}
        }
    });
    let params = json!({"message": "Who are you?", "requestedSchema": schema});
    if session {
        return Far::new(move |message, out, far| match message["method"].as_str() {
            Some("tools/call") => {
                let (far, out, message, before) = (far.clone(), out.clone(), message.clone(), far.answers().len());
                out.send(
                    &json!({"jsonrpc": "2.0", "id": 500 + before, "method": "elicitation/create", "params": params}),
                );
                tokio::spawn(async move {
                    while far.answers().len() == before {
                        tokio::task::yield_now().await;
                    }
                    answered(&out, &message, &far.answers().last().unwrap()["result"]);
                });
            }
            _ => far.usual(message, out),
        });
    }
    Far::new(move |message, out, far| match message["method"].as_str() {
        Some("server/discover") => {
            let info = json!({"name": "far", "version": "1"});
            let found = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": info, "ttlMs": 0, "cacheScope": "private"
            });
            out.answer(message, found);
        }
        Some("tools/call") => match message["params"].get("inputResponses") {
            None => {
                let asks = json!({"who": {"method": "elicitation/create", "params": params}});
                out.answer(
                    message,
                    json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s1"}),
                );
            }
            Some(responses) => {
                assert_eq!(message["params"]["requestState"], "s1");
                answered(out, message, &responses["who"]);
            }
        },
        _ => far.usual(message, out),
    })
}

fn answered(out: &Out, message: &Json, given: &Json) {
    match given["action"].as_str() {
        Some("accept") => out.text(message, &given["content"].to_string()),
        other => {
            let text = format!("nobody said who: {}", other.unwrap_or_default());
            let content = json!([{"type": "text", "text": text}]);
            out.answer(message, json!({"isError": true, "content": content}));
        }
    }
}

/// The entry for a server with sessions, or without.
fn entry(session: bool) -> String {
    if session { ELICITATION.to_owned() } else { format!("{ELICITATION}, protocol_version: '2026-07-28'") }
}

#[tokio::test]
async fn a_form_becomes_questions_of_the_dialogue() {
    for session in [true, false] {
        let far = form(session);
        let talk = Talk::with(&far, &entry(session));
        let (replies, told) = talk.say("/work").await;
        assert_eq!(replies, ["Which address?"], "{session}: {told}");
        assert_eq!(talk.say("ada@example.org").await.0, ["How many seats?"]);
        let (replies, _) = talk.say("3").await;
        assert!(
            replies[0].contains(r#""mail":"ada@example.org""#) && replies[0].contains(r#""note":"none""#),
            "{replies:?}"
        );
        assert!(replies[0].contains(r#""count":3,"#), "a form wants whole numbers: {replies:?}");
        assert!(talk.assistant.replay(&"u".into()).await.unwrap().is_none(), "a replay needs no server");
    }
}

#[tokio::test]
async fn an_answer_that_the_form_does_not_take_is_asked_for_again() {
    let talk = Talk::with(&form(true), &entry(true));
    talk.say("/work").await;
    assert_eq!(talk.say("ada@example.org").await.0, ["How many seats?"]);
    assert_eq!(talk.say("12").await.0, ["How many seats?"], "nine at most");
    let (replies, _) = talk.say("2").await;
    assert!(replies[0].contains(r#""count":2,"#), "{replies:?}");
}

#[tokio::test]
async fn what_is_known_is_not_asked_and_can_be_corrected() {
    let talk = Talk::with(&form(true), "elicitation: {mail: home, count: seats}");
    assert_eq!(talk.say("/work").await.0, ["How many seats?"], "the address is known");
    let (replies, _) = talk.say("2").await;
    assert!(replies[0].contains("ada@example.org"), "{replies:?}");

    let talk = Talk::with(&form(true), &entry(true));
    talk.say("/work").await;
    assert_eq!(talk.say("old@example.org").await.0, ["How many seats?"]);
    let (replies, _) = talk.say("/SetSlots(mail=new@example.org)").await;
    assert_eq!(replies.last().map(String::as_str), Some("How many seats?"), "{replies:?}");
    let (replies, _) = talk.say("2").await;
    assert!(replies[0].contains("new@example.org"), "{replies:?}");
}

#[tokio::test]
async fn whoever_does_not_want_to_answer_may_stop() {
    let far = form(true);
    let talk = Talk::with(&far, "elicitation: {mail: home, count: seats}");
    assert_eq!(talk.say("/work").await.0, ["How many seats?"]);
    let (replies, told) = talk.say("never mind").await;
    assert!(replies.len() == 1 && told.is_empty() && !replies[0].contains("seats"), "{replies:?} {told}");
    assert_eq!(far.of("tools/call").len(), 1, "the tool is not called again");
    assert_eq!(far.answers()[0]["result"]["action"], "cancel");
}

#[tokio::test]
async fn a_field_that_the_entry_does_not_name_is_never_asked() {
    let far = form(true);
    let talk = Talk::with(&far, "elicitation: {mail: home}");
    talk.breaks("/work", "nobody said who: decline").await;
}

#[tokio::test]
async fn an_agent_is_told_what_its_tool_needs_to_know() {
    let talk = Talk::with(&form(true), &entry(true));
    talk.say("/ask").await;
    let told = talk.clerk.told();
    assert!(told[0].starts_with("error[refused]: It needs to know from the user first: mail, count."), "{told:?}");
}

#[tokio::test]
async fn a_server_may_let_our_model_answer_within_its_budget() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") => {
            let messages = json!([{"role": "user", "content": {"type": "text", "text": "how are you"}}]);
            let params = json!({"messages": messages, "maxTokens": 1_000_000, "systemPrompt": "be brief"});
            out.send(&json!({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": params}));
            let (far, out, message) = (far.clone(), out.clone(), message.clone());
            tokio::spawn(async move {
                while far.answers().is_empty() {
                    tokio::task::yield_now().await;
                }
                let answer = far.answers()[0]["result"].clone();
                out.text(&message, answer["content"]["text"].as_str().unwrap_or("nothing"));
            });
        }
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "sampling: true");
    talk.works("/work", "sampled how are you").await;
    let requests = talk.clerk.0.lock().unwrap().clone();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].max_tokens, requests[0].tools.len()), (Some(segue::limits::MCP_SAMPLE_TOKENS), 0));
    assert_eq!(far.of("initialize")[0]["capabilities"], json!({"sampling": {}}));
    assert!(talk.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn resources_and_prompts_are_offered_as_tools_where_the_entry_says_so() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("resources/read") => {
            assert_eq!(message["params"]["uri"], "notes://1");
            out.answer(message, json!({"contents": [{"uri": "notes://1", "text": "the tide is at six"}]}));
        }
        _ => far.usual(message, out),
    });
    *far.tools.lock().unwrap() = json!([]);
    let talk = Talk::with(&far, "offers: [resources, prompts]");
    let (replies, told) = talk.say("/ask").await;
    assert_eq!(replies, ["I was told: the tide is at six"], "{told}");
    let names: Vec<_> = talk.clerk.offered().into_iter().map(|(name, _)| name).collect();
    for name in ["list_resources", "read_resource", "list_prompts", "get_prompt"] {
        assert!(names.iter().any(|offered| offered == name), "{name} is missing in {names:?}");
    }
}

#[tokio::test]
async fn meta_carries_what_the_entry_names_and_nothing_else() {
    let far = Far::calls(|message, out, _| out.text(message, "yes"));
    let map = "meta_map: {static: {tenant: north}, from_slots: [{slot: home, param: who}, {slot: seats, param: seats}], \
               from_metadata: [{key: input_channel, param: by}, {key: tier, param: tier}]}";
    let talk = Talk::with(&far, map);
    talk.works("/work", "yes").await;
    let mut meta = far.of("tools/call")[0]["_meta"].as_object().unwrap().clone();
    meta.retain(|key, _| key != "progressToken");
    // It changes something, so it has a key, which tells nothing.
    let key = meta.shift_remove("segue/idempotencyKey").unwrap();
    assert!(key.as_str().is_some_and(|key| key.len() == 32), "{key}");
    assert_eq!(Json::Object(meta), json!({"tenant": "north", "who": "ada@example.org", "by": "world"}));
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_declined() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") => {
            let schema = json!({"type": "object", "properties": {"mail": {"type": "string"}}});
            let params = json!({"message": "Again?", "requestedSchema": schema});
            let asks = json!({"again": {"method": "elicitation/create", "params": params}});
            out.answer(message, json!({"resultType": "input_required", "inputRequests": asks}));
        }
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "elicitation: {mail: home}");
    talk.breaks("/work", "refused: It wants to ask something, which is not allowed here").await;
    assert_eq!(far.of("tools/call").len(), 1 + segue::limits::MCP_QUESTIONS);
}

#[tokio::test]
async fn what_a_server_has_our_model_read_is_bounded() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") => {
            let text = "x".repeat(segue::limits::MCP_SAMPLE + 1);
            let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
            let params = json!({"messages": messages, "maxTokens": 10});
            out.send(&json!({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": params}));
            let (far, out, message) = (far.clone(), out.clone(), message.clone());
            tokio::spawn(async move {
                while far.answers().is_empty() {
                    tokio::task::yield_now().await;
                }
                out.text(&message, far.answers()[0]["error"]["message"].as_str().unwrap_or("an answer"));
            });
        }
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "sampling: true");
    talk.works("/work", "a request holds 1 to 32768 bytes of text").await;
    assert!(talk.clerk.0.lock().unwrap().is_empty());
}

/// A server that is never done and asks nothing is not called as fast as it answers until the deadline.
#[tokio::test]
async fn a_server_that_is_never_done_and_asks_nothing_is_called_only_so_often() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") => out.answer(message, json!({"resultType": "input_required", "requestState": "s"})),
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "elicitation: {mail: home}");
    talk.breaks("/work", "refused: It wants to ask something, which is not allowed here").await;
    assert_eq!(far.of("tools/call").len(), 1 + segue::limits::MCP_QUESTIONS);
}
