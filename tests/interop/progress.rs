//! Progress notifications of a long call of the reference MCP server: they extend the timeout of the call, reach the user as fillers, and
//! are in the trace.

use std::sync::Arc;

use segue::{
    AssistantBuilder, ChatResponse, DiscardReplies, IncomingMessage, TurnReport,
    llm::{FinishReason, ToolArguments, ToolCall},
    testing::{ScriptedCall, ScriptedLlm},
};
use serde_json::json;

use crate::processes::everything;

const CONFIG: &str = "
recipe: default.v1
pipeline: [{name: CompactLLMCommandGenerator}]
policies: [{name: FlowPolicy}]
";
const DOMAIN: &str = "
version: '3.1'
intents: [work, ask]
slots:
  duration: {type: float, initial_value: 8, mappings: [{type: controlled}]}
  steps: {type: float, initial_value: 8, mappings: [{type: controlled}]}
  said: {type: text, mappings: [{type: controlled}]}
responses:
  utter_said: [{text: '{said}'}]
";
const FLOWS: &str = "
flows:
  work:
    description: works
    nlu_trigger: [{intent: work}]
    steps:
      - call: trigger-long-running-operation
        mcp_server: everything
        mapping:
          input: [{param: duration, slot: duration}, {param: steps, slot: steps}]
          output: [{slot: said, value: result.text}]
      - action: utter_said
  ask: {description: asks the agent, nlu_trigger: [{intent: ask}], steps: [{call: clerk}]}
  pattern_completed: {name: done, description: nothing is said, steps: [{noop: true, next: END}]}
";
const CLERK: &str = "
agent: {name: clerk, protocol: RASA, description: looks things up}
connections: {mcp_servers: [{name: everything, include_tools: [trigger-long-running-operation]}]}
configuration: {filler_after: 1}
";

fn texts(report: &TurnReport) -> Vec<String> {
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn progress_extends_the_timeout_of_a_call_and_reaches_the_user() {
    let program = everything();
    let text = |argument: &std::ffi::OsStr| argument.to_str().unwrap().to_owned();
    let args: Vec<String> = program.get_args().map(text).collect();
    // The call takes eight seconds, with a progress notification each second. Without them it would exceed its timeout of 4 s.
    let entry = json!({
        "name": "everything", "type": "stdio", "command": text(program.get_program()), "args": args,
        "connect_timeout": 60, "tool_timeout": 4, "trust_annotations": true,
    });
    let endpoints = json!({"mcp_servers": [entry]}).to_string();
    let files = [
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("flows/flows.yml", FLOWS),
        ("endpoints.yml", &endpoints),
        ("sub_agents/clerk/config.yml", CLERK),
    ];
    let loaded = segue::project::from_texts(files);
    let project = loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    let call = ToolCall {
        id: "c0".into(),
        name: "trigger-long-running-operation".into(),
        arguments: ToolArguments::json(json!({"duration": 8, "steps": 8})),
    };
    let calls = ChatResponse { finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) };
    let model = ScriptedLlm::strict([ScriptedCall::from(calls), ScriptedCall::from(ChatResponse::text("Finished."))]);
    let builder = AssistantBuilder::new(Arc::new(project), ".".into()).model(Arc::new(model));
    let assistant = builder.build().unwrap();
    let say = async |text: &str| {
        texts(
            &assistant
                .receive(IncomingMessage::new("u", text).input_channel("test"), Box::new(DiscardReplies))
                .await
                .unwrap(),
        )
    };
    let replies = say("/work").await;
    assert!(replies[0].contains("Long running operation completed"), "{replies:?}");
    let replies = say("/ask").await;
    let (last, fillers) = replies.split_last().unwrap();
    assert!(last == "Finished." && !fillers.is_empty(), "{replies:?}");
    // The first filler may precede the first progress notification.
    assert!(fillers.iter().any(|filler| filler.contains(" percent")), "{replies:?}");
    for turn in assistant.trace(&"u".into(), None).await.unwrap() {
        let progress: Vec<_> = turn.steps.iter().flat_map(|step| &step.progress).collect();
        assert!(progress.len() >= 3 && progress.iter().all(|update| update.total == Some(8.0)), "{progress:?}");
    }
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
}
