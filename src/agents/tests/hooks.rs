//! Hooks: each method takes effect, messages of hooks are sent and recorded, and a failing hook ends the run.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use segue_engine::{
    conversation::{AgentStatus, BotKind, EventKind},
    project::SlotDef,
};
use serde_json::{Value as Json, json};

use super::harness::{Harness, calls, code, said, slots, text};
use crate::{
    agents::{
        hook_run::CODE_HOOK_FAILED,
        hooks::{AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, OutputChange, ToolBatch},
    },
    conversation::TurnEvent,
    llm::{ChatMessage, ToolSpec},
};

/// Implements every hook, and records their input.
#[derive(Default)]
struct AllHooks {
    batches: Mutex<Vec<ToolBatch>>,
    outputs: Mutex<Vec<AgentOutput>>,
}

#[async_trait]
impl AgentHooks for AllHooks {
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> Result<(), HookError> {
        cx.say("Starting on it.");
        input.slots.shift_remove("vehicle");
        input.slots.insert("class".into(), json!("Cabin"));
        input.metadata.insert("tenant".into(), json!("north"));
        input.user_message = "from Arnvik, please".into();
        Ok(())
    }
    async fn process_tool_output(&self, batch: &ToolBatch, _: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        self.batches.lock().unwrap().push(batch.clone());
        let events = vec![
            HookEvent::Slot { name: "crossing".into(), value: json!("NW-1") },
            HookEvent::Slot { name: "nowhere".into(), value: json!(1) },
            HookEvent::Bot { text: "I have it.".into() },
        ];
        Ok(events)
    }
    async fn process_output(&self, output: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        self.outputs.lock().unwrap().push(output.clone());
        let mut change = OutputChange {
            events: vec![HookEvent::Slot { name: "vehicle".into(), value: json!(true) }],
            ..OutputChange::default()
        };
        change.metadata.insert("left".into(), json!(1));
        change.metadata.insert("held_calls".into(), json!([{"tool": "pay", "arguments": {}}]));
        Ok(change)
    }
    fn task_completed_tool(&self, usual: ToolSpec) -> ToolSpec {
        ToolSpec { name: "renamed".into(), description: "Call this at the very end.".into(), ..usual }
    }
    fn empty_closing_message(&self, _: String) -> String {
        "One formal sentence.".into()
    }
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        usual: &ToolSpec,
        _: &HookContext,
    ) -> Result<Option<ToolSpec>, HookError> {
        Ok(Some(ToolSpec { description: format!("Sets {}.", slot.name).into(), ..usual.clone() }))
    }
    async fn tools(
        &self,
        usual: &[ToolSpec],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<ToolSpec>>, HookError> {
        let mut tools: Vec<ToolSpec> = usual.iter().filter(|tool| &*tool.name != "other").cloned().collect();
        tools.push(ToolSpec {
            name: "made_up".into(),
            description: "".into(),
            parameters: Arc::default(),
            strict: false,
        });
        Ok(Some(tools))
    }
    async fn messages(
        &self,
        usual: &[Arc<ChatMessage>],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<Arc<ChatMessage>>>, HookError> {
        let mut messages = usual.to_vec();
        messages.push(ChatMessage::system("Be brief."));
        Ok(Some(messages))
    }
    async fn prompt(&self, usual: &str, input: &AgentInput, _: &HookContext) -> Result<Option<String>, HookError> {
        Ok(Some(format!("{usual}\nYou work for {}.", input.metadata["tenant"])))
    }
}

struct FailingHooks(&'static str);

#[async_trait]
impl AgentHooks for FailingHooks {
    async fn process_input(&self, _: &mut AgentInput, _: &HookContext) -> Result<(), HookError> {
        if self.0 == "input" { Err(HookError::new("no backend")) } else { Ok(()) }
    }
    async fn process_tool_output(&self, _: &ToolBatch, _: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        if self.0 == "tools" { Err(HookError::new("no backend")) } else { Ok(Vec::new()) }
    }
    async fn process_output(&self, _: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        if self.0 == "output" { Err(HookError::new("no backend")) } else { Ok(OutputChange::default()) }
    }
}

#[tokio::test]
async fn every_hook_of_an_open_agent_takes_effect() {
    let steps = vec![
        calls("", &[("find", json!({"port": "Arnvik"})), ("other", json!({}))]),
        calls("", &[("task_completed", json!({}))]),
        text("Goodbye."),
    ];
    let mut harness = Harness::new("search", "", "hi", steps);
    let hooks = Arc::new(AllHooks::default());
    harness.hooks = Some(hooks.clone());
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    let request = harness.request(0);
    assert!(request[0].1.ends_with("You work for \"north\"."), "{}", request[0].1);
    assert!(request.iter().any(|(_, text)| text.contains("Cabin")), "the changed slot is in the prompt: {request:?}");
    assert_eq!(request.last().unwrap().1, "Be brief.");
    let user: Vec<_> = request.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
    assert_eq!(user, ["from Arnvik, please"]);
    let requests = harness.model.requests();
    let tools: Vec<(&str, &str)> = requests[0].tools.iter().map(|t| (&*t.name, &*t.description)).collect();
    assert_eq!(tools, [("fail", "does"), ("find", "does"), ("task_completed", "Call this at the very end.")]);
    assert_eq!(harness.tool_calls.lock().unwrap().len(), 1, "a tool that was not offered cannot be called");
    let closing = harness.request(2);
    assert!(closing.iter().any(|(_, text)| text == "One formal sentence."), "{closing:?}");
    assert_eq!(
        said(&outcome),
        [
            (BotKind::Filler, "Starting on it.".into()),
            (BotKind::Intermediate, "I have it.".into()),
            (BotKind::FinalResponse, "Goodbye.".into())
        ]
    );
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1")), ("vehicle".into(), json!(true))]);
    assert_eq!((outcome.metadata.get("left"), outcome.metadata.get("held_calls")), (Some(&json!(1)), None));
    let batches = hooks.batches.lock().unwrap();
    assert_eq!(batches.len(), 1, "control tools are not passed to the hook");
    let current: Vec<(&str, &str)> = batches[0].current.iter().map(|r| (&*r.tool, &*r.status)).collect();
    assert_eq!(current, [("find", "done"), ("other", "failed")]);
    assert_eq!(batches[0].current[0].result, json!({"crossings": ["NW-1"]}));
    let outputs = hooks.outputs.lock().unwrap();
    assert_eq!((&*outputs[0].status, outputs[0].message.as_deref()), ("completed", Some("Goodbye.")));
    assert!(
        harness.host.warnings.lock().unwrap().iter().any(|(code, text)| *code == "A0521" && text.contains("nowhere"))
    );
}

#[tokio::test]
async fn slot_set_by_a_hook_can_complete_a_task_and_a_removed_slot_has_no_tool() {
    struct RemovesSlot;
    #[async_trait]
    impl AgentHooks for RemovesSlot {
        async fn process_input(&self, input: &mut AgentInput, _: &HookContext) -> Result<(), HookError> {
            assert!(input.slots.contains_key("crossing"), "the input contains the slots to fill: {:?}", input.slots);
            input.slots.shift_remove("passengers");
            Ok(())
        }
        async fn process_tool_output(&self, _: &ToolBatch, _: &HookContext) -> Result<Vec<HookEvent>, HookError> {
            let set = |name: &str, value: Json| HookEvent::Slot { name: name.into(), value };
            Ok(vec![set("crossing", json!("NW-1")), set("passengers", json!("2"))])
        }
    }
    let mut harness = Harness::new("book", "", "NW-1 for two", vec![calls("", &[("find", json!({}))])]);
    harness.hooks = Some(Arc::new(RemovesSlot));
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    let tools: Vec<String> = harness.model.requests()[0].tools.iter().map(|tool| tool.name.to_string()).collect();
    assert!(tools.contains(&"set_slot_crossing".into()) && !tools.contains(&"set_slot_passengers".into()), "{tools:?}");
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1")), ("passengers".into(), json!(2.0))]);
}

#[tokio::test]
async fn failed_hook_ends_the_run_and_keeps_its_events() {
    for (at, said_before) in [("input", 0), ("tools", 0), ("output", 1)] {
        let steps = match at {
            "input" => vec![],
            "tools" => vec![calls("", &[("find", json!({}))])],
            _ => vec![text("Where from?")],
        };
        let mut harness = Harness::new("search", "", "hi", steps);
        harness.hooks = Some(Arc::new(FailingHooks(at)));
        let outcome = harness.run().await;
        assert_eq!(code(&outcome), CODE_HOOK_FAILED, "{at}");
        assert_eq!(said(&outcome).len(), said_before, "{at}");
    }
}

#[tokio::test]
async fn message_of_a_hook_is_sent_at_once_and_recorded() {
    struct SendsMessages;
    #[async_trait]
    impl AgentHooks for SendsMessages {
        async fn process_input(&self, _: &mut AgentInput, cx: &HookContext) -> Result<(), HookError> {
            (0..20).for_each(|n| cx.say(format!("word {n}")));
            cx.say("  ");
            Ok(())
        }
    }
    let mut harness = Harness::new("search", "", "hi", vec![text("Where from?")]);
    harness.hooks = Some(Arc::new(SendsMessages));
    let outcome = harness.run().await;
    let fillers = said(&outcome).iter().filter(|(kind, _)| *kind == BotKind::Filler).count();
    assert_eq!(fillers, crate::limits::HOOK_MESSAGES, "the number of messages of a hook is limited");
    let first = harness.sink.events.first().unwrap();
    assert!(
        matches!(first, TurnEvent::Message { message, .. } if message.text.as_deref() == Some("word 0")),
        "{first:?}"
    );
    assert!(matches!(&outcome.events[0].kind, EventKind::Bot(_)));
}

/// Changes the prompt, the messages and the tools.
struct ChangesRequest;

#[async_trait]
impl AgentHooks for ChangesRequest {
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        usual: &ToolSpec,
        _: &HookContext,
    ) -> Result<Option<ToolSpec>, HookError> {
        let changed = ToolSpec { name: "other".into(), description: "Sets it.".into(), ..usual.clone() };
        Ok((slot.name.as_str() == "crossing").then_some(changed))
    }
    async fn tools(
        &self,
        usual: &[ToolSpec],
        input: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<ToolSpec>>, HookError> {
        assert_eq!(&*input.agent, "finder");
        let mut tools: Vec<ToolSpec> = usual.iter().filter(|tool| &*tool.name != "fail").cloned().collect();
        tools.push(ToolSpec { name: "made_up".into(), ..tools[0].clone() });
        Ok(Some(tools))
    }
    async fn messages(
        &self,
        usual: &[Arc<ChatMessage>],
        _: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<Arc<ChatMessage>>>, HookError> {
        cx.say("Thinking.");
        let mut messages = usual.to_vec();
        messages.push(ChatMessage::system("Be brief."));
        Ok(Some(messages))
    }
    async fn prompt(&self, usual: &str, _: &AgentInput, _: &HookContext) -> Result<Option<String>, HookError> {
        let prompt = format!("{usual} You are polite.");
        Ok(Some(prompt))
    }
}

#[tokio::test]
async fn asynchronous_hooks_change_prompt_messages_and_tools() {
    let steps = vec![calls("", &[("set_slot_crossing", json!({"slot_value": "NW-1"}))]), text("For how many?")];
    let mut harness = Harness::new("book", "", "NW-1", steps);
    harness.hooks = Some(Arc::new(ChangesRequest));
    let outcome = harness.run().await;
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1"))]);
    for n in 0..2 {
        let request = harness.request(n);
        assert!(request[0].1.ends_with("You are polite."), "{}", request[0].1);
        assert_eq!(request.last().unwrap().1, "Be brief.");
    }
    let tools: Vec<(String, String)> = harness.model.requests()[0]
        .tools
        .iter()
        .map(|tool| (tool.name.to_string(), tool.description.to_string()))
        .collect();
    let names: Vec<&str> = tools.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["find", "other", "set_slot_crossing", "set_slot_passengers"]);
    assert_eq!(tools[2].1, "Sets it.");
    let fillers = said(&outcome).iter().filter(|(kind, _)| *kind == BotKind::Filler).count();
    assert_eq!(fillers, 2, "messages of hooks are sent while they run: {:?}", said(&outcome));
}

/// Optionally keeps a finished run open and excludes `task_completed`.
struct KeepsRunOpen {
    open: bool,
    excluded_tool: &'static str,
}

#[async_trait]
impl AgentHooks for KeepsRunOpen {
    async fn process_output(&self, output: &AgentOutput, _: &HookContext) -> Result<OutputChange, HookError> {
        let has_exchanges = output.events.iter().any(|event| event["event"] == "agent_exchanges");
        assert!(&*output.status != "completed" || !has_exchanges, "a hook does not get exchanges");
        let status = (self.open && &*output.status == "completed").then(|| "input_required".to_owned());
        Ok(OutputChange { status: status.map(Into::into), ..OutputChange::default() })
    }
    async fn tools(
        &self,
        usual: &[ToolSpec],
        _: &AgentInput,
        _: &HookContext,
    ) -> Result<Option<Vec<ToolSpec>>, HookError> {
        Ok(Some(usual.iter().filter(|tool| &*tool.name != self.excluded_tool).cloned().collect()))
    }
}

#[tokio::test]
async fn finished_run_that_a_hook_keeps_open_keeps_its_exchanges() {
    for open in [true, false] {
        let steps = vec![calls("", &[("find", json!({}))]), calls("Here.", &[("task_completed", json!({}))])];
        let mut harness = Harness::new("search", "", "hi", steps);
        harness.hooks = Some(Arc::new(KeepsRunOpen { open, excluded_tool: "" }));
        let outcome = harness.run().await;
        let exchanges =
            outcome.events.iter().filter(|event| matches!(event.kind, EventKind::AgentExchanges { .. })).count();
        let expected = if open { (AgentStatus::AwaitingUser, 1) } else { (AgentStatus::Finished, 0) };
        assert_eq!((outcome.status, exchanges), expected);
    }
}

#[tokio::test]
async fn built_in_tool_that_is_not_offered_cannot_be_called() {
    let steps = vec![calls("Done.", &[("task_completed", json!({}))]), text("What else?")];
    let mut harness = Harness::new("search", "", "hi", steps);
    harness.hooks = Some(Arc::new(KeepsRunOpen { open: false, excluded_tool: "task_completed" }));
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    let result = harness.request(1).last().unwrap().1.clone();
    assert!(result.starts_with("error: unknown_tool") && !result.contains("task_completed"), "{result}");

    let steps = vec![calls("", &[("set_slot_passengers", json!({"slot_value": 2}))]), text("For how many?")];
    let mut harness = Harness::new("book", "", "hi", steps);
    harness.hooks = Some(Arc::new(KeepsRunOpen { open: false, excluded_tool: "set_slot_passengers" }));
    let outcome = harness.run().await;
    assert!(slots(&outcome).is_empty(), "{:?}", slots(&outcome));
    assert!(harness.request(1).last().unwrap().1.starts_with("error: unknown_tool"));
}
