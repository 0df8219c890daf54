//! What a call of a tool carries beside its arguments.

use std::sync::{Arc, Mutex};

use segue::{
    Assistant, DiscardReplies, EffectClass, IncomingMessage, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    Toolbox,
    llm::{ChatResponse, FinishReason, ToolArguments, ToolCall},
    testing::{ScriptedLlm, TestAssistant},
};
use serde_json::{Value as Json, json};

#[tokio::test]
async fn v23_what_every_call_carries_is_exact_and_an_empty_slot_is_left_out() {
    let seen: Arc<Mutex<Vec<Json>>> = Arc::default();
    let kept = seen.clone();
    let spec =
        ToolInfo::new("look", "looks").parameters(json!({"type": "object"})).effect(EffectClass::Read).source("bank");
    let run = move |_: Json, cx: ToolCallContext| {
        kept.lock().unwrap().push(Json::Object((*cx.meta).clone()));
        std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({}))))
    };
    let tool = Tool::from_fn(spec, run);
    let endpoints = r#"
mcp_servers:
  - name: bank
    url: http://127.0.0.1:9/mcp
    meta_map:
      static: { plan: gold }
      from_slots: [{ slot: customer, param: customer_id }, { slot: nobody, param: nobody }]
"#;
    let files = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", "slots: {customer: {type: text, initial_value: c-7}, nobody: {type: text}}\n"),
        ("endpoints.yml", endpoints),
        ("data/flows.yml", "flows: {look: {description: look, steps: [{call: looker}]}}\n"),
        (
            "sub_agents/looker/config.yml",
            "agent: {name: looker, description: d}\nconnections: {mcp_servers: [{name: bank}]}\n",
        ),
    ];
    let call = ToolCall { id: "c".into(), name: "look".into(), arguments: ToolArguments::json(json!({})) };
    let model = ScriptedLlm::strict([
        ChatResponse::text("start flow look"),
        ChatResponse { tool_calls: vec![call], finish: FinishReason::ToolCalls, ..ChatResponse::default() },
        ChatResponse::text("Well?"),
    ]);
    let builder = Assistant::builder_from_texts(files).unwrap().source(Arc::new(Toolbox::new("bank", [tool])));
    let assistant = TestAssistant::build(builder.model(Arc::new(model))).unwrap().assistant;
    assistant.receive(IncomingMessage::new("u", "look").input_channel("test"), Box::new(DiscardReplies)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [json!({"plan": "gold", "customer_id": "c-7"})]);
}
