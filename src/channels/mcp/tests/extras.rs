//! What hosts find besides tools: prompts, resources of the author, suggestions, and news of what happens.

use rmcp::model::{
    ArgumentInfo, CompleteRequestParams, GetPromptRequestParams, LoggingLevel, Reference, SetLevelRequestParams,
    SubscribeRequestParams, UnsubscribeRequestParams,
};

use segue_engine::project::Project;

use super::*;
use crate::channels::tests::channel_with_domain;

fn settings() -> Json {
    json!({
        "prompts": [{
            "name": "hail", "response": "utter_hello", "arguments": [{"name": "name", "required": true}],
        }],
        "resources": [
            {"uri": "club://welcome", "mime_type": "text/markdown", "response": "utter_club"},
            {"uri": "club://member/{name}", "response": "utter_hello"},
        ],
    })
}

fn offer(settings: &Json, project: &Project) -> Result<McpServerSettings, String> {
    McpServerSettings::new(&channel_with_domain(DOMAIN, "mcp", settings)?, project)
}

fn offered(assistant: &Assistant) -> Arc<McpServerState> {
    serving(assistant, offer(&settings(), assistant.project()).unwrap())
}

async fn prompt(client: &Client, name: &str, arguments: Json) -> Result<String, rmcp::ServiceError> {
    let params = GetPromptRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone());
    let got = client.get_prompt(params).await?;
    Ok(got.messages[0].content.as_text().unwrap().text.clone())
}

#[tokio::test]
async fn each_flow_is_a_prompt_and_the_author_adds_more() {
    let client = at(&offered(&assistant(&[])), Host::default()).await;
    let all = client.list_all_prompts().await.unwrap();
    let names: Vec<&str> = all.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["hail", "greet", "order", "notes", "club", "broken"]);
    let arguments: Vec<&str> = all[2].arguments.iter().flatten().map(|one| &*one.name).collect();
    assert_eq!(arguments, ["size", "count"], "not the confirmation, nor the id of the talk");
    let errand = prompt(&client, "order", json!({"size": "small"})).await.unwrap();
    assert!(errand.contains("`order`") && errand.contains("size = \"small\""), "{errand}");
    assert_eq!(prompt(&client, "hail", json!({"name": "{Ada}"})).await.unwrap(), "Hello {Ada}!");
    assert!(prompt(&client, "hail", json!({})).await.is_err(), "an argument is missing");
    assert!(prompt(&client, "inner", json!({})).await.is_err(), "a flow for others is no prompt");
}

#[tokio::test]
async fn resources_of_the_author_are_read_by_everybody() {
    let client = at(&offered(&assistant(&[])), Host::default()).await;
    assert_eq!(client.list_all_resources().await.unwrap()[0].uri, "club://welcome");
    assert_eq!(client.list_all_resource_templates().await.unwrap().len(), 2);
    assert_eq!(read(&client, "club://welcome").await.as_deref(), Some("Welcome to the club."));
    assert_eq!(read(&client, "club://member/Ada").await.as_deref(), Some("Hello Ada!"));
    assert_eq!(read(&client, "club://member/Ada/x").await, None);
}

#[test]
fn what_is_wrong_with_an_entry_is_said() {
    let assistant = assistant(&[]);
    let problem = |settings: Json| offer(&settings, assistant.project()).unwrap_err();
    let unknown = problem(json!({"prompts": [{"name": "a", "response": "utter_nothing"}]}));
    assert!(unknown.contains("utter_nothing"), "{unknown}");
    let key = problem(json!({"resources": [{"uri": "a://b", "answer": "utter_club"}]}));
    assert!(key.contains("`answer` is not a key of an MCP resource"), "{key}");
}

#[tokio::test]
async fn values_are_suggested_as_they_are_written() {
    let client = at(&serving(&assistant(&[]), McpServerSettings::default()), Host::default()).await;
    let id = talk(&call(&client, "order", json!({})).await).to_owned();
    let suggested = async |of: Reference, name: &str, value: &str| {
        let params = CompleteRequestParams::new(of, ArgumentInfo::new(name, value));
        client.complete(params).await.unwrap().completion.values
    };
    assert_eq!(suggested(Reference::for_prompt("order"), "size", "L").await, ["large"]);
    assert!(suggested(Reference::for_prompt("order"), "count", "").await.is_empty());
    let transcripts = Reference::for_resource("segue://conversation/{conversation_id}");
    assert_eq!(suggested(transcripts, "conversation_id", "mcp-").await, [id]);
}

#[tokio::test]
async fn who_watches_a_transcript_is_told_when_it_grows() {
    let server = serving(&assistant(&[]), McpServerSettings::default());
    let host = Host::default();
    let (mine, other) = (at(&server, host.clone()).await, at(&server, Host::default()).await);
    let id = talk(&call(&mine, "order", json!({})).await).to_owned();
    let address = mine.list_all_resources().await.unwrap()[0].uri.clone();
    assert!(other.subscribe(SubscribeRequestParams::new(&address)).await.is_err(), "it is not theirs");
    mine.subscribe(SubscribeRequestParams::new(&address)).await.unwrap();
    call(&other, "converse", json!({"message": "/SetSlots(size=small)", "conversation_id": &id})).await;
    // The news left before the answer to the other; a question and its answer bring it here.
    mine.list_all_tools().await.unwrap();
    assert_eq!(*host.updated.lock().unwrap(), [&*address]);
    mine.unsubscribe(UnsubscribeRequestParams::new(&address)).await.unwrap();
    call(&mine, "converse", json!({"message": "/SetSlots(count=2)", "conversation_id": &id})).await;
    assert_eq!(host.updated.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_host_that_asks_is_told_what_happens_without_values() {
    let host = Host::default();
    let client = at(&serving(&assistant(&[]), McpServerSettings::default()), host.clone()).await;
    call(&client, "order", json!({"size": "small"})).await;
    assert!(host.logged.lock().unwrap().is_empty(), "nobody asked");
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await.unwrap();
    call(&client, "order", json!({"size": "small"})).await;
    let told = std::mem::take(&mut *host.logged.lock().unwrap());
    assert!(told.iter().any(|one| one["event"] == "flow started" && one["name"] == "order"), "{told:?}");
    assert!(!told.iter().any(|one| one["event"] == "slot set"), "that is for debugging: {told:?}");
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Debug)).await.unwrap();
    call(&client, "order", json!({"size": "small"})).await;
    let told = host.logged.lock().unwrap().clone();
    assert!(told.iter().any(|one| one["event"] == "slot set" && one["name"] == "size"), "{told:?}");
    assert!(!format!("{told:?}").contains("small"), "{told:?}");
}
