//! Hooks of agents in a whole assistant: hooks registered by name, and hook servers. Their results are recorded; a replay calls none.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Json as Body, Router, routing::post};
use segue::{
    Assistant, DiscardReplies, EffectClass, IncomingMessage, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    agents::hooks::{AgentHooks, AgentInput, HookContext, HookError, HookEvent, HookResult, ToolBatch},
    async_trait,
    llm::{self, ChatResponse},
    testing::{ScriptedLlm, StrictLlm, TestAssistant},
};
use serde_json::{Value as Json, json};

use super::tool_calls;
use crate::support::project_files::CONFIG;

const DOMAIN: &str = "slots: {found: {type: text}}\n";
const FLOWS: &str = "flows: {find: {description: find a boat, steps: [{call: finder}]}}\n";

fn builder(configuration: &str) -> Result<segue::AssistantBuilder, segue::LoadError> {
    let agent = format!("agent: {{name: finder, description: finds}}\nconfiguration: {configuration}\n");
    let files = [CONFIG, ("domain.yml", DOMAIN), ("data/flows.yml", FLOWS), ("sub_agents/finder/config.yml", &agent)];
    Assistant::builder_from_texts(files)
}

fn script() -> Arc<StrictLlm> {
    Arc::new(ScriptedLlm::strict([
        ChatResponse::text("start flow find"),
        tool_calls("", &[("score", json!({"boat": "NW-1"}))]),
        tool_calls("There you are.", &[("task_completed", json!({}))]),
    ]))
}

/// Hooks that count their calls.
#[derive(Default)]
struct CountingHooks(AtomicUsize);

#[async_trait]
impl AgentHooks for CountingHooks {
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
            assert_eq!(cx.metadata["tenant"], json!("north"), "tools get the metadata that a hook adds");
            std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({"score": "9"}))))
        };
        vec![Tool::from_fn(spec, run)]
    }
}

/// Asks for a boat. Returns the replies and the value of the slot `found`.
async fn find_boat(assistant: &Assistant) -> (Vec<String>, Json) {
    let mut incoming = IncomingMessage::new("u", "find a boat").input_channel("test");
    incoming.metadata.insert("secret".into(), json!("canary"));
    let report = assistant.receive(incoming, Box::new(DiscardReplies)).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let turns = assistant.store().turns(&"u".into()).await.unwrap();
    let events = turns.iter().flat_map(|turn| &turn.events).map(|event| serde_json::to_value(event).unwrap());
    let mut slot_events = events.filter(|event| event["event"] == "slot" && event["name"] == "found");
    let last = slot_events.next_back().unwrap_or_default();
    let texts = report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect();
    (texts, last["value"].clone())
}

#[tokio::test]
async fn registered_hooks_are_found_by_name_or_python_path_and_a_replay_calls_none() {
    for module in ["my_hooks", "agents.finder.Finder"] {
        let hooks = Arc::new(CountingHooks::default());
        let builder = builder(&format!("{{module: {module}}}")).unwrap().hooks(module, hooks.clone());
        let assistant = TestAssistant::build(builder.model(script())).unwrap().assistant;
        let (texts, value) = find_boat(&assistant).await;
        assert_eq!(texts[..2], ["Right away.".to_owned(), "There you are.".to_owned()]);
        assert_eq!(value, json!("9"));
        let calls = hooks.0.load(Ordering::SeqCst);
        assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
        assert_eq!((calls, hooks.0.load(Ordering::SeqCst)), (2, 2), "a replay calls no hook");
    }
}

#[tokio::test]
async fn hook_error_ends_the_run_and_is_not_shown_to_the_user() {
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
    assert_eq!(turn.texts().len(), 1, "the user gets an error response: {}", turn.text());
    assert!(!turn.text().contains("digit"), "{}", turn.text());
}

/// Hooks that say something in each call, also while the tools, the prompt and the messages of a request are built.
#[derive(Default)]
struct TalkingHooks {
    calls: AtomicUsize,
    inner: CountingHooks,
}

#[async_trait]
impl AgentHooks for TalkingHooks {
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> Result<(), HookError> {
        self.inner.process_input(input, cx).await
    }
    async fn process_tool_output(&self, batch: &ToolBatch, cx: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.inner.process_tool_output(batch, cx).await
    }
    fn custom_tools(&self) -> Vec<Tool> {
        self.inner.custom_tools()
    }
    async fn tools(
        &self,
        usual: &[llm::ToolSpec],
        _: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<llm::ToolSpec>>, HookError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        cx.say("Looking for tools.");
        let own = usual.iter().map(|tool| llm::ToolSpec { description: "Does it.".into(), ..tool.clone() }).collect();
        Ok(Some(own))
    }
    async fn prompt(&self, usual: &str, _: &AgentInput, cx: &HookContext) -> Result<Option<String>, HookError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        cx.say("Thinking.");
        Ok(Some(format!("{usual}\nYou are polite.")))
    }
    async fn messages(
        &self,
        _: &[Arc<llm::ChatMessage>],
        _: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<Arc<llm::ChatMessage>>>, HookError> {
        // One call says nothing.
        if self.calls.fetch_add(1, Ordering::SeqCst) == 2 {
            return Ok(None);
        }
        cx.say("One moment.");
        Ok(None)
    }
}

#[tokio::test]
async fn replay_calls_no_hook_and_needs_none_registered() {
    for module in ["my_hooks", "agents.finder.Finder"] {
        let store = Arc::new(segue::MemoryStore::default());
        let builder = || self::builder(&format!("{{module: {module}}}")).unwrap().store(store.clone()).seeds(|| 7);
        let hooks = Arc::new(TalkingHooks::default());
        let assistant = builder().hooks(module, hooks.clone()).model(script()).build().unwrap();
        let (texts, _) = find_boat(&assistant).await;
        let expected = ["Right away.", "Looking for tools.", "Thinking.", "One moment.", "There you are."];
        assert_eq!(texts[..5], expected.map(str::to_owned), "{texts:?}");
        let calls = hooks.calls.load(Ordering::SeqCst);
        let replayed = assistant.replay(&"u".into()).await.unwrap();
        assert!(replayed.is_none(), "{module}: {replayed:?}");
        assert_eq!(hooks.calls.load(Ordering::SeqCst), calls, "a replay calls no hook");
        // In another program, for example `segue replay`, the hooks are not registered.
        let other_program = builder().model(Arc::new(ScriptedLlm::strict(["never"]))).build().unwrap();
        let replayed = other_program.replay(&"u".into()).await.unwrap();
        assert!(replayed.is_none(), "{module}, without hooks: {replayed:?}");
    }
}

#[tokio::test]
async fn unregistered_hook_name_fails_the_agent() {
    let builder = builder("{module: my_hooks}").unwrap();
    let findings = builder.unregistered_hooks();
    assert_eq!((findings.len(), findings[0].code), (1, "A0521"), "{findings:?}");
    let script = Arc::new(ScriptedLlm::strict(["start flow find"]));
    let assistant = TestAssistant::build(builder.model(script)).unwrap().assistant;
    let report = assistant
        .receive(IncomingMessage::new("u", "find").input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap();
    let reason = &report.failures[0].reason;
    assert!(reason.contains("my_hooks") && reason.contains("registered: nothing"), "{reason}");
}

#[test]
fn misspelt_hook_name_is_refused_by_build() {
    let builder = builder("{module: my_hoks}").unwrap().hooks("my_hooks", Arc::new(CountingHooks::default()));
    let findings = builder.unregistered_hooks();
    assert!(findings[0].help.contains("did you mean `my_hooks`"), "{findings:?}");
    let error = builder.model(Arc::new(ScriptedLlm::strict([""; 0]))).build().err().unwrap().to_string();
    assert!(error.contains("registered as `my_hooks`") && error.contains("did you mean `my_hoks`?"), "{error}");
}

/// The bodies of the requests that a hook server received.
type Requests = Arc<std::sync::Mutex<Vec<Json>>>;

/// Starts a hook server. `respond` gets the name of the hook and the request. Returns the address.
async fn start_hook_server(
    respond: impl Fn(&str, &Json) -> Json + Clone + Send + Sync + 'static,
) -> (String, Requests) {
    let requests = Requests::default();
    let received = requests.clone();
    let handler = move |Body(request): Body<Json>| {
        let response = respond(request["hook"].as_str().unwrap(), &request);
        received.lock().unwrap().push(request);
        std::future::ready(Body(response))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hooks", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hooks", post(handler))).await.unwrap() });
    (address, requests)
}

/// A hook server with `process_input`, `process_tool_output`, `process_output` and the tool `score`.
async fn score_server() -> (String, Requests) {
    start_hook_server(|hook, _| match hook {
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
async fn hook_server_changes_prompt_messages_and_tools_and_a_replay_does_not_call_it() {
    let (address, received) = start_hook_server(|hook, request| match hook {
        "describe" => json!({
            "hooks": ["prompt", "messages", "tools", "slot_tool"],
            "tools": [{"name": "score", "description": "Scores a boat.", "effect": "read"},
                      {"name": "sink", "description": "Sinks a boat."}],
        }),
        "prompt" => json!({"prompt": format!("{}\nYou are polite.", request["prompt"].as_str().unwrap())}),
        "tools" => {
            let keep = |tool: &&Json| tool["name"] != "sink";
            let mut tools: Vec<Json> = request["tools"].as_array().unwrap().iter().filter(keep).cloned().collect();
            tools[0] = json!({"name": "score", "description": "Scores one boat."});
            json!({ "tools": tools })
        }
        "messages" => {
            let mut messages = request["messages"].as_array().unwrap().clone();
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
    let (texts, _) = find_boat(&assistant).await;
    assert_eq!(texts[..3], ["Thinking.".to_owned(), "Thinking.".to_owned(), "There you are.".to_owned()]);
    let model_requests = model.requests();
    for request in &model_requests[1..] {
        assert!(request.messages[0].text().ends_with("You are polite."));
        assert_eq!(request.messages.last().unwrap().text(), "Be brief.");
        let tools: Vec<(&str, &str)> = request.tools.iter().map(|tool| (&*tool.name, &*tool.description)).collect();
        assert_eq!(tools[0], ("score", "Scores one boat."));
        assert!(tools.iter().all(|(name, _)| *name != "sink"), "{tools:?}");
    }
    let requests = received.lock().unwrap().clone();
    let hooks: Vec<&str> = requests.iter().map(|body| body["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, ["describe", "tools", "prompt", "messages", "tool", "messages"]);
    let results: Vec<&Json> =
        requests[5]["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!((results.len(), &results[0]["call_id"]), (1, &json!("c0")));
    assert!(!json!(requests).to_string().contains("canary"), "other metadata is not sent");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(received.lock().unwrap().len(), requests.len(), "a replay sends no request");
}

#[tokio::test]
async fn invalid_messages_of_a_hook_end_the_run_with_the_reason() {
    let (address, _) = start_hook_server(|hook, _| match hook {
        "describe" => json!({"hooks": ["messages"]}),
        _ => json!({"messages": [{"role": "tool", "call_id": "x", "name": "y", "text": "z"}]}),
    })
    .await;
    let builder = builder(&format!("{{module: \"{address}\"}}")).unwrap();
    let script = Arc::new(ScriptedLlm::strict(["start flow find"]));
    let assistant = builder.model(script).build().unwrap();
    let report = assistant
        .receive(IncomingMessage::new("u", "find").input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap();
    assert_eq!(report.failures[0].code, "A0521", "{:?}", report.failures);
    assert!(report.failures[0].reason.contains("no call `x`"), "{:?}", report.failures);
}

#[tokio::test]
async fn hook_server_gets_only_the_listed_hooks_and_the_forwarded_metadata() {
    let (address, received) = score_server().await;
    let builder = builder(&format!("{{module: \"{address}\", forward_metadata: [tenant, sender_id]}}")).unwrap();
    let assistant = builder.model(script()).build().unwrap();
    let (texts, value) = find_boat(&assistant).await;
    assert_eq!(texts[..2], ["Right away.".to_owned(), "There you are.".to_owned()]);
    assert_eq!(value, json!("9"));
    let requests = received.lock().unwrap().clone();
    let hooks: Vec<&str> = requests.iter().map(|body| body["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, ["describe", "process_input", "tool", "process_tool_output", "process_output"]);
    assert_eq!(requests[1]["input"]["metadata"], json!({"sender_id": "u"}));
    assert_eq!(requests[2]["metadata"], json!({"tenant": "north", "sender_id": "u"}));
    assert_eq!(requests[2]["arguments"], json!({"boat": "NW-1"}));
    assert!(!json!(requests).to_string().contains("canary"), "other metadata is not sent");
    let ids: std::collections::BTreeSet<&str> = requests.iter().map(|body| body["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), requests.len(), "each request has its own id");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(received.lock().unwrap().len(), requests.len(), "a replay sends no request");
}

#[tokio::test]
async fn unreachable_hook_server_gives_one_error_response() {
    let builder = builder("{module: \"http://127.0.0.1:9/hooks\"}").unwrap();
    let script = Arc::new(ScriptedLlm::strict(["start flow find"]));
    let assistant = TestAssistant::build(builder.model(script)).unwrap().assistant;
    let report = assistant
        .receive(IncomingMessage::new("u", "find").input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap();
    assert_eq!(report.failures[0].code, "A0521", "{:?}", report.failures);
    assert!(!report.failures[0].reason.contains("127.0.0.1"), "{:?}", report.failures);
    assert_eq!(report.replies.len(), 1, "{:?}", report.replies);
}
