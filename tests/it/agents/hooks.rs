//! Hooks over a whole assistant: registered by name, recorded, and a server behind an address.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Json as Body, Router, routing::post};
use segue::{
    Assistant, DiscardReplies, EffectClass, IncomingMessage, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    agents::hooks::{AgentHooks, AgentInput, HookContext, HookError, HookEvent, HookResult, ToolBatch},
    async_trait,
    llm::{self, ChatResponse, FinishReason, ToolArguments, ToolCall},
    testing::{ScriptedLlm, StrictLlm, TestAssistant},
};
use serde_json::{Value as Json, json};

const CONFIG: &str =
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";
const DOMAIN: &str = "slots: {found: {type: text}}\n";
const FLOWS: &str = "flows: {find: {description: find a boat, steps: [{call: finder}]}}\n";

fn builder(configuration: &str) -> Result<segue::AssistantBuilder, segue::LoadError> {
    let agent = format!("agent: {{name: finder, description: finds}}\nconfiguration: {configuration}\n");
    let files = [
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("data/flows.yml", FLOWS),
        ("sub_agents/finder/config.yml", &agent),
    ];
    Assistant::builder_from_texts(files)
}

fn calls(text: &str, calls: &[(&str, Json)]) -> ChatResponse {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| ToolCall {
        id: format!("c{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    });
    ChatResponse {
        text: text.into(),
        tool_calls: calls.collect(),
        finish: FinishReason::ToolCalls,
        ..ChatResponse::default()
    }
}

fn script() -> Arc<StrictLlm> {
    Arc::new(ScriptedLlm::strict([
        ChatResponse::text("start flow find"),
        calls("", &[("score", json!({"boat": "NW-1"}))]),
        calls("There you are.", &[("task_completed", json!({}))]),
    ]))
}

/// Hooks that count how often they are asked.
#[derive(Default)]
struct Counting(AtomicUsize);

#[async_trait]
impl AgentHooks for Counting {
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> Result<(), HookError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        cx.say("Right away.");
        input.metadata.insert("tenant".into(), json!("north"));
        Ok(())
    }
    async fn process_tool_output(&self, batch: &ToolBatch, _: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let value = batch.current[0].result["score"].clone();
        Ok(vec![HookEvent::Slot { name: "found".into(), value }])
    }
    fn custom_tools(&self) -> Vec<Tool> {
        let spec = ToolInfo::new("score", "Scores a boat.")
            .parameters(json!({"type": "object", "properties": {"boat": {"type": "string"}}}))
            .effect(EffectClass::Read);
        let run = |_: Json, cx: ToolCallContext| {
            assert_eq!(cx.metadata["tenant"], json!("north"), "what the hook adds reaches its tools");
            std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({"score": "9"}))))
        };
        vec![Tool::from_fn(spec, run)]
    }
}

async fn found(assistant: &Assistant) -> (Vec<String>, Json) {
    let mut incoming = IncomingMessage::text("u", "find a boat", "test");
    incoming.message.metadata.insert("secret".into(), json!("canary"));
    let report = assistant.receive(incoming, Box::new(DiscardReplies)).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let turns = assistant.store().turns(&"u".into()).await.unwrap();
    let set = turns.iter().flat_map(|turn| &turn.events).map(|event| serde_json::to_value(event).unwrap());
    let mut set = set.filter(|event| event["event"] == "slot" && event["name"] == "found");
    let set = set.next_back().unwrap_or_default();
    let texts = report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect();
    (texts, set["value"].clone())
}

#[tokio::test]
async fn registered_hooks_are_found_by_name_also_by_the_path_of_a_python_class_and_a_replay_asks_none() {
    for module in ["my_hooks", "agents.finder.Finder"] {
        let hooks = Arc::new(Counting::default());
        let builder = builder(&format!("{{module: {module}}}")).unwrap().hooks(module, hooks.clone());
        let assistant = TestAssistant::build(builder.model(script())).unwrap().assistant;
        let (texts, value) = found(&assistant).await;
        assert_eq!(texts[..2], ["Right away.".to_owned(), "There you are.".to_owned()]);
        assert_eq!(value, json!("9"));
        let asked = hooks.0.load(Ordering::SeqCst);
        assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
        assert_eq!((asked, hooks.0.load(Ordering::SeqCst)), (2, 2), "a replay reads the record");
    }
}

#[tokio::test]
async fn an_error_of_a_hook_ends_the_run_and_its_reason_is_for_operators() {
    struct Accounts;

    #[async_trait]
    impl AgentHooks for Accounts {
        async fn process_input(&self, input: &mut AgentInput, _: &HookContext) -> HookResult {
            let account: u64 = "DE-17".parse()?;
            input.metadata.insert("account".into(), account.into());
            Ok(())
        }
    }

    let builder = builder("{module: accounts}").unwrap().hooks("accounts", Arc::new(Accounts));
    let test = TestAssistant::build(builder.model(script())).unwrap();
    let turn = test.assistant.say("u", "find a boat").await.unwrap();
    let failures: Vec<_> = turn.failures.iter().map(|failure| (&*failure.code, &*failure.reason)).collect();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].0 == "A0521" && failures[0].1.contains("invalid digit"), "{failures:?}");
    assert_eq!(turn.texts().len(), 1, "the user hears that it failed: {}", turn.text());
    assert!(!turn.text().contains("digit"), "{}", turn.text());
}

/// Hooks that have to be waited for, and say something before they give anything to wait for.
#[derive(Default)]
struct Thinking {
    asked: AtomicUsize,
    rest: Counting,
}

#[async_trait]
impl AgentHooks for Thinking {
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> Result<(), HookError> {
        self.rest.process_input(input, cx).await
    }
    async fn process_tool_output(&self, batch: &ToolBatch, cx: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.rest.process_tool_output(batch, cx).await
    }
    fn custom_tools(&self) -> Vec<Tool> {
        self.rest.custom_tools()
    }
    async fn tools(
        &self,
        usual: &[llm::ToolSpec],
        _: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<llm::ToolSpec>>, HookError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        cx.say("Looking for tools.");
        let own = usual.iter().map(|tool| llm::ToolSpec { description: "Does it.".into(), ..tool.clone() }).collect();
        Ok(Some(own))
    }
    async fn prompt(&self, usual: &str, _: &AgentInput, cx: &HookContext) -> Result<Option<String>, HookError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        cx.say("Thinking.");
        Ok(Some(format!("{usual}\nYou are polite.")))
    }
    async fn messages(
        &self,
        _: &[Arc<llm::ChatMessage>],
        _: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<Arc<llm::ChatMessage>>>, HookError> {
        // Not every time is there anything to wait for.
        if self.asked.fetch_add(1, Ordering::SeqCst) == 2 {
            return Ok(None);
        }
        cx.say("One moment.");
        Ok(None)
    }
}

#[tokio::test]
async fn a_replay_asks_no_hook_whether_it_has_to_be_waited_for_and_needs_none() {
    for module in ["my_hooks", "agents.finder.Finder"] {
        let store = Arc::new(segue::MemoryStore::default());
        let of = || builder(&format!("{{module: {module}}}")).unwrap().store(store.clone()).seeds(|| 7);
        let hooks = Arc::new(Thinking::default());
        let assistant = of().hooks(module, hooks.clone()).model(script()).build().unwrap();
        let (texts, _) = found(&assistant).await;
        let wanted = ["Right away.", "Looking for tools.", "Thinking.", "One moment.", "There you are."];
        assert_eq!(texts[..5], wanted.map(str::to_owned), "{texts:?}");
        let asked = hooks.asked.load(Ordering::SeqCst);
        let replayed = assistant.replay(&"u".into()).await.unwrap();
        assert!(replayed.is_none(), "{module}: {replayed:?}");
        assert_eq!(hooks.asked.load(Ordering::SeqCst), asked, "a replay asks nobody");
        // The program `segue` knows none of the hooks of another one.
        let other = of().model(Arc::new(ScriptedLlm::strict(["never"]))).build().unwrap();
        let replayed = other.replay(&"u".into()).await.unwrap();
        assert!(replayed.is_none(), "{module}, without hooks: {replayed:?}");
    }
}

#[tokio::test]
async fn a_name_that_nobody_registered_stops_its_agent_and_lists_those_who_are() {
    let builder = builder("{module: my_hoks}").unwrap().hooks("my_hooks", Arc::new(Counting::default()));
    let findings = builder.unregistered_hooks();
    assert_eq!((findings.len(), findings[0].code), (1, "A0521"), "{findings:?}");
    assert!(findings[0].help.contains("did you mean `my_hooks`"), "{findings:?}");
    let script = Arc::new(ScriptedLlm::strict(["start flow find"]));
    let assistant = TestAssistant::build(builder.model(script)).unwrap().assistant;
    let report = assistant.receive(IncomingMessage::text("u", "find", "test"), Box::new(DiscardReplies)).await.unwrap();
    let reason = &report.failures[0].reason;
    assert!(reason.contains("my_hoks") && reason.contains("registered: my_hooks"), "{reason}");
}

/// What a hook server was sent.
type Heard = Arc<std::sync::Mutex<Vec<Json>>>;

/// A hook server that answers so.
async fn answering(answer: impl Fn(&str, &Json) -> Json + Clone + Send + Sync + 'static) -> (String, Heard) {
    let heard = Heard::default();
    let kept = heard.clone();
    let answer = move |Body(asked): Body<Json>| {
        let answer = answer(asked["hook"].as_str().unwrap(), &asked);
        kept.lock().unwrap().push(asked);
        std::future::ready(Body(answer))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hooks", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hooks", post(answer))).await.unwrap() });
    (address, heard)
}

/// A hook server of the contract, and what it was sent.
async fn server() -> (String, Heard) {
    answering(|hook, _| match hook {
        "describe" => json!({
            "hooks": ["process_input", "process_tool_output", "process_output"],
            "tools": [{"name": "score", "description": "Scores a boat.", "effect": "read",
                       "parameters": {"type": "object", "properties": {"boat": {"type": "string"}}}}],
            "task_completed": "Call it last.",
        }),
        "process_input" => json!({"metadata": {"tenant": "north", "inner": 1}, "say": ["Right away."]}),
        "process_tool_output" => json!({"events": [{"event": "slot", "name": "found", "value": "9"}]}),
        "tool" => json!({"result": {"score": "9"}}),
        _ => json!({}),
    })
    .await
}

#[tokio::test]
async fn a_hook_server_may_change_prompt_messages_and_tools_and_a_replay_asks_it_nothing() {
    let (address, heard) = answering(|hook, asked| match hook {
        "describe" => json!({
            "hooks": ["prompt", "messages", "tools", "slot_tool"],
            "tools": [{"name": "score", "description": "Scores a boat.", "effect": "read"},
                      {"name": "sink", "description": "Sinks a boat."}],
        }),
        "prompt" => json!({"prompt": format!("{}\nYou are polite.", asked["prompt"].as_str().unwrap())}),
        "tools" => {
            let keep = |tool: &&Json| tool["name"] != "sink";
            let mut tools: Vec<Json> = asked["tools"].as_array().unwrap().iter().filter(keep).cloned().collect();
            tools[0] = json!({"name": "score", "description": "Scores one boat."});
            json!({ "tools": tools })
        }
        "messages" => {
            let mut messages = asked["messages"].as_array().unwrap().clone();
            messages.push(json!({"role": "system", "text": "Be brief."}));
            json!({ "messages": messages, "say": ["Thinking."] })
        }
        "tool" => json!({"result": {"score": "9"}}),
        _ => json!({}),
    })
    .await;
    let model = script();
    let builder = builder(&format!("{{module: \"{address}\"}}")).unwrap();
    let assistant = builder.model(model.clone()).build().unwrap();
    let (texts, _) = found(&assistant).await;
    assert_eq!(texts[..3], ["Thinking.".to_owned(), "Thinking.".to_owned(), "There you are.".to_owned()]);
    let requests = model.requests();
    for request in &requests[1..] {
        assert!(request.messages[0].text().ends_with("You are polite."));
        assert_eq!(request.messages.last().unwrap().text(), "Be brief.");
        let tools: Vec<(&str, &str)> = request.tools.iter().map(|tool| (&*tool.name, &*tool.description)).collect();
        assert_eq!(tools[0], ("score", "Scores one boat."));
        assert!(tools.iter().all(|(name, _)| *name != "sink"), "{tools:?}");
    }
    let asked = heard.lock().unwrap().clone();
    let hooks: Vec<&str> = asked.iter().map(|body| body["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, ["describe", "tools", "prompt", "messages", "tool", "messages"]);
    let results: Vec<&Json> = asked[5]["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!((results.len(), &results[0]["call_id"]), (1, &json!("c0")));
    assert!(!json!(asked).to_string().contains("canary"), "metadata that is not on the list never leaves");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(heard.lock().unwrap().len(), asked.len(), "a replay asks nobody");
}

#[tokio::test]
async fn messages_that_no_model_takes_end_the_run_with_the_reason() {
    let (address, _) = answering(|hook, _| match hook {
        "describe" => json!({"hooks": ["messages"]}),
        _ => json!({"messages": [{"role": "tool", "call_id": "x", "name": "y", "text": "z"}]}),
    })
    .await;
    let builder = builder(&format!("{{module: \"{address}\"}}")).unwrap();
    let script = Arc::new(ScriptedLlm::strict(["start flow find"]));
    let assistant = builder.model(script).build().unwrap();
    let report = assistant.receive(IncomingMessage::text("u", "find", "test"), Box::new(DiscardReplies)).await.unwrap();
    assert_eq!(report.failures[0].code, "A0521", "{:?}", report.failures);
    assert!(report.failures[0].reason.contains("no call `x`"), "{:?}", report.failures);
}

#[tokio::test]
async fn a_hook_server_is_asked_for_what_it_lists_and_sees_only_the_metadata_it_may() {
    let (address, heard) = server().await;
    let builder = builder(&format!("{{module: \"{address}\", forward_metadata: [tenant, sender_id]}}")).unwrap();
    let assistant = builder.model(script()).build().unwrap();
    let (texts, value) = found(&assistant).await;
    assert_eq!(texts[..2], ["Right away.".to_owned(), "There you are.".to_owned()]);
    assert_eq!(value, json!("9"));
    let asked = heard.lock().unwrap().clone();
    let hooks: Vec<&str> = asked.iter().map(|body| body["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, ["describe", "process_input", "tool", "process_tool_output", "process_output"]);
    assert_eq!(asked[1]["input"]["metadata"], json!({"sender_id": "u"}));
    assert_eq!(asked[2]["metadata"], json!({"tenant": "north", "sender_id": "u"}));
    assert_eq!(asked[2]["arguments"], json!({"boat": "NW-1"}));
    assert!(!json!(asked).to_string().contains("canary"), "what is not on the list never leaves");
    let ids: std::collections::BTreeSet<&str> = asked.iter().map(|body| body["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), asked.len(), "each call has a name of its own");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(heard.lock().unwrap().len(), asked.len(), "a replay asks nobody");
}

#[tokio::test]
async fn a_hook_server_that_is_not_there_is_one_honest_message() {
    let builder = builder("{module: \"http://127.0.0.1:9/hooks\"}").unwrap();
    let script = Arc::new(ScriptedLlm::strict(["start flow find"]));
    let assistant = TestAssistant::build(builder.model(script)).unwrap().assistant;
    let report = assistant.receive(IncomingMessage::text("u", "find", "test"), Box::new(DiscardReplies)).await.unwrap();
    assert_eq!(report.failures[0].code, "A0521", "{:?}", report.failures);
    assert!(!report.failures[0].reason.contains("127.0.0.1"), "{:?}", report.failures);
    assert_eq!(report.replies.len(), 1, "{:?}", report.replies);
}
