//! Prompts, resources of the project, completion, subscriptions and log messages.

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

fn parse_settings(settings: &Json, project: &Project) -> Result<McpServerSettings, String> {
    McpServerSettings::new(&channel_with_domain(DOMAIN, "mcp", settings)?, project)
}

/// A server with these prompts and resources.
fn server_with_custom_content(assistant: &Assistant) -> Arc<McpServerState> {
    mcp_server(assistant, parse_settings(&settings(), &assistant.project()).unwrap())
}

async fn prompt(client: &Client, name: &str, arguments: Json) -> Result<String, rmcp::ServiceError> {
    let params = GetPromptRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone());
    let prompt = client.get_prompt(params).await?;
    Ok(prompt.messages[0].content.as_text().unwrap().text.clone())
}

#[tokio::test]
async fn prompts_are_those_of_the_project_and_one_for_each_flow() {
    let client = connect(&server_with_custom_content(&assistant(&[])), Host::default()).await;
    let all = client.list_all_prompts().await.unwrap();
    let names: Vec<&str> = all.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["hail", "greet", "order", "notes", "club", "broken"]);
    let arguments: Vec<&str> = all[2].arguments.iter().flatten().map(|one| &*one.name).collect();
    assert_eq!(arguments, ["size", "count"], "neither the confirmation nor the conversation id");
    let flow_prompt = prompt(&client, "order", json!({"size": "small"})).await.unwrap();
    assert!(flow_prompt.contains("`order`") && flow_prompt.contains("size = \"small\""), "{flow_prompt}");
    assert_eq!(prompt(&client, "hail", json!({"name": "{Ada}"})).await.unwrap(), "Hello {Ada}!");
    assert!(prompt(&client, "hail", json!({})).await.is_err(), "an argument is missing");
    assert!(prompt(&client, "inner", json!({})).await.is_err(), "a flow that no user may start is no prompt");
}

#[tokio::test]
async fn every_session_reads_the_resources_of_the_project() {
    let client = connect(&server_with_custom_content(&assistant(&[])), Host::default()).await;
    assert_eq!(client.list_all_resources().await.unwrap()[0].uri, "club://welcome");
    assert_eq!(client.list_all_resource_templates().await.unwrap().len(), 2);
    assert_eq!(read(&client, "club://welcome").await.as_deref(), Some("Welcome to the club."));
    assert_eq!(read(&client, "club://member/Ada").await.as_deref(), Some("Hello Ada!"));
    assert_eq!(read(&client, "club://member/Ada/x").await, None);
}

#[test]
fn wrong_prompt_or_resource_entry_is_reported() {
    let assistant = assistant(&[]);
    let problem = |settings: Json| parse_settings(&settings, &assistant.project()).unwrap_err();
    let unknown = problem(json!({"prompts": [{"name": "a", "response": "utter_nothing"}]}));
    assert!(unknown.contains("utter_nothing"), "{unknown}");
    let key = problem(json!({"resources": [{"uri": "a://b", "answer": "utter_club"}]}));
    assert!(key.contains("`answer` is not a key of an MCP resource"), "{key}");
}

#[tokio::test]
async fn completion_suggests_slot_values_and_conversation_ids() {
    let client = connect(&mcp_server(&assistant(&[]), McpServerSettings::default()), Host::default()).await;
    let id = conversation_id(&call(&client, "order", json!({})).await).to_owned();
    let completions = async |of: Reference, name: &str, value: &str| {
        let params = CompleteRequestParams::new(of, ArgumentInfo::new(name, value));
        client.complete(params).await.unwrap().completion.values
    };
    assert_eq!(completions(Reference::for_prompt("order"), "size", "L").await, ["large"]);
    assert!(completions(Reference::for_prompt("order"), "count", "").await.is_empty());
    let transcripts = Reference::for_resource("segue://conversation/{conversation_id}");
    assert_eq!(completions(transcripts, "conversation_id", "mcp-").await, [id]);
}

#[tokio::test]
async fn subscriber_is_notified_when_a_transcript_changes() {
    let server = mcp_server(&assistant(&[]), McpServerSettings::default());
    let host = Host::default();
    let (owner, other) = (connect(&server, host.clone()).await, connect(&server, Host::default()).await);
    let id = conversation_id(&call(&owner, "order", json!({})).await).to_owned();
    let uri = owner.list_all_resources().await.unwrap()[0].uri.clone();
    assert!(other.subscribe(SubscribeRequestParams::new(&uri)).await.is_err(), "another session cannot read it");
    owner.subscribe(SubscribeRequestParams::new(&uri)).await.unwrap();
    call(&other, "converse", json!({"message": "/SetSlots(size=small)", "conversation_id": &id})).await;
    // The notification was sent before that call ended; one more request makes sure that it has arrived.
    owner.list_all_tools().await.unwrap();
    assert_eq!(*host.updated.lock().unwrap(), [&*uri]);
    owner.unsubscribe(UnsubscribeRequestParams::new(&uri)).await.unwrap();
    call(&owner, "converse", json!({"message": "/SetSlots(count=2)", "conversation_id": &id})).await;
    assert_eq!(host.updated.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn log_messages_follow_the_log_level_and_contain_no_values() {
    let host = Host::default();
    let client = connect(&mcp_server(&assistant(&[]), McpServerSettings::default()), host.clone()).await;
    call(&client, "order", json!({"size": "small"})).await;
    assert!(host.logged.lock().unwrap().is_empty(), "no log level is set");
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await.unwrap();
    call(&client, "order", json!({"size": "small"})).await;
    let messages = std::mem::take(&mut *host.logged.lock().unwrap());
    assert!(messages.iter().any(|one| one["event"] == "flow started" && one["name"] == "order"), "{messages:?}");
    assert!(!messages.iter().any(|one| one["event"] == "slot set"), "slots are logged at level debug: {messages:?}");
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Debug)).await.unwrap();
    call(&client, "order", json!({"size": "small"})).await;
    let messages = host.logged.lock().unwrap().clone();
    assert!(messages.iter().any(|one| one["event"] == "slot set" && one["name"] == "size"), "{messages:?}");
    assert!(!format!("{messages:?}").contains("small"), "{messages:?}");
}
