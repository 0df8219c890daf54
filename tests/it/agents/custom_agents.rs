//! Agents and tools written in Rust, in a whole assistant: everything that they do is recorded, and a replay runs none of them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use segue::{
    Assistant, AssistantBuilder, ChatResponse, ToolOutcome,
    prelude::*,
    testing::{ScriptedLlm, TestAssistant},
};
use serde_json::Value as Json;

use super::tool_calls;
use crate::support::project_files::CONFIG;

const FILES: [(&str, &str); 4] = [
    CONFIG,
    ("domain.yml", "slots: {doubled: {type: text}}\nresponses: {utter_doubled: [{text: 'It is {doubled}.'}]}\n"),
    (
        "data/flows.yml",
        "flows: {count: {description: counts messages, steps: [{call: counter}, {action: utter_doubled}]}}\n",
    ),
    (
        "sub_agents/counter/config.yml",
        "agent: {name: counter, description: counts}\nconfiguration: {module: counter}\n",
    ),
];

/// Counts the messages of a task and completes it with the second. Counts its runs.
#[derive(Default)]
struct Counter(AtomicUsize);

#[async_trait]
impl Agent for Counter {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        self.0.fetch_add(1, Ordering::SeqCst);
        let number = run.memory().get("number").and_then(Json::as_u64).unwrap_or_default() + 1;
        run.memory().insert("number".into(), number.into());
        run.say(format!("Message {number}.")).await;
        if run.user_message().contains("fail") {
            "no number".parse::<u64>()?;
        }
        let ToolOutcome::Done(output) = run.call_tool("double", json!({ "number": number })).await else {
            return Err(AgentError::new("the tool failed").code("C1"));
        };
        run.set_slot("doubled", output.structured.unwrap_or_default()["doubled"].to_string())?;
        assert_eq!(run.slot("doubled"), Some(&json!((number * 2).to_string())));
        if number == 2 { run.finish("Enough.").await } else { run.ask("More?").await }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Double {
    /// The number to double
    number: u64,
}

struct NoHooks;

impl AgentHooks for NoHooks {}

fn builder(agent: &Arc<Counter>) -> AssistantBuilder {
    let double =
        Tool::new(
            "double",
            "Doubles a number",
            |args: Double, _| async move { Ok(json!({ "doubled": args.number * 2 })) },
        );
    let builder = Assistant::builder_from_texts(FILES).unwrap();
    builder.agent("counter", agent.clone()).tool("counter", double.effect(EffectClass::Read))
}

#[tokio::test]
async fn custom_agent_sends_messages_keeps_memory_sets_slots_and_calls_tools() {
    let agent = Arc::new(Counter::default());
    let model = Arc::new(ScriptedLlm::strict(["start flow count", "continue agent"]));
    let test = TestAssistant::build(builder(&agent).model(model)).unwrap();
    assert_eq!(test.say("count").await.unwrap(), ["Message 1.", "More?"]);
    assert_eq!(test.say("on").await.unwrap()[..3], ["Message 2.", "Enough.", "It is 4."]);
    let turns = test.assistant.store().turns(&"u".into()).await.unwrap();
    let events = turns.iter().flat_map(|turn| &turn.events).map(|event| serde_json::to_value(event).unwrap());
    let called = events.filter(|event| event["event"] == "tool_executed").count();
    assert_eq!(called, 2, "calls are events");
    assert!(test.assistant.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(agent.0.load(Ordering::SeqCst), 2, "a replay does not run the agent");
}

#[tokio::test]
async fn error_of_a_custom_agent_ends_its_task_and_keeps_its_messages() {
    let model = Arc::new(ScriptedLlm::strict(["start flow count"]));
    let test = TestAssistant::build(builder(&Arc::default()).model(model)).unwrap();
    let turn = test.assistant.say("u", "count and fail").await.unwrap();
    assert_eq!(turn.texts()[0], "Message 1.");
    assert_eq!(turn.texts().len(), 2, "the user gets an error response: {}", turn.text());
    assert!(!turn.text().contains("digit"), "{}", turn.text());
    let failures: Vec<_> = turn.failures.iter().map(|failure| (&*failure.code, &*failure.reason)).collect();
    assert_eq!(failures, [("A0523", "agent counter: invalid digit found in string")]);
}

#[tokio::test]
async fn model_sees_argument_errors_but_not_the_cause_of_a_tool_failure() {
    let call = |arguments: Json| tool_calls("", &[("read", arguments)]);
    let model = Arc::new(ScriptedLlm::strict([
        ChatResponse::text("start flow count"),
        call(json!({"number": "two"})),
        call(json!({"number": 2})),
        ChatResponse::text("I cannot read it."),
    ]));
    let read = Tool::new("read", "Reads a page", |args: Double, _| async move {
        Ok(std::fs::read_to_string(format!("no-such-folder/{}", args.number))?)
    });
    // No Rust agent is registered under this name: it is a ReAct agent with hooks.
    let builder = Assistant::builder_from_texts(FILES).unwrap().hooks("counter", Arc::new(NoHooks));
    let builder = builder.tool("counter", read.effect(EffectClass::Read));
    let test = TestAssistant::build(builder.model(model.clone())).unwrap();
    assert_eq!(test.say("read page two").await.unwrap(), ["I cannot read it."]);
    let last_message = |at: usize| format!("{:?}", model.requests()[at].messages.last().unwrap());
    assert!(
        last_message(2).contains("The arguments do not fit.") && last_message(2).contains("/number"),
        "{}",
        last_message(2)
    );
    assert!(last_message(3).contains("It failed, and the reason is for the operators."), "{}", last_message(3));
    assert!(!last_message(3).contains("os error"), "{}", last_message(3));
}

#[test]
fn tool_for_an_unknown_agent_is_refused() {
    let tool = Tool::new("look", "Looks", |_: NoArguments, _| async { Ok(()) });
    let error = Assistant::builder_from_texts(FILES).unwrap().tool("countr", tool).offline().build().unwrap_err();
    assert!(
        error.to_string().contains("no agent and no MCP server named `countr`; did you mean `counter`?"),
        "{error}"
    );
}

#[test]
fn a_registered_name_without_an_agent_is_refused_by_build() {
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(Arc::new(ScriptedLlm::strict([""; 0])));
    let error = builder.agent("countr", Arc::new(Counter::default())).build().err().unwrap().to_string();
    assert!(error.contains("registered as `countr`") && error.contains("did you mean `counter`?"), "{error}");
}
