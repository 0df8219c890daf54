//! Agents and tools written in Rust, over a whole assistant: what they say and do is recorded, and a replay asks none.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use segue::{
    Assistant, AssistantBuilder, ChatResponse, ToolOutcome,
    llm::{FinishReason, ToolArguments, ToolCall},
    prelude::*,
    testing::{ScriptedLlm, TestAssistant},
};
use serde_json::Value as Json;

const FILES: [(&str, &str); 4] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
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

/// Counts the messages of a task, and is done with the second.
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
        run.set_slot("doubled", output.structured.unwrap_or_default()["doubled"].to_string());
        assert_eq!(run.slot("doubled"), Some(&json!((number * 2).to_string())));
        if number == 2 { run.finish("Enough.").await } else { run.ask("More?").await }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Double {
    /// What is doubled
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
async fn an_agent_says_remembers_sets_slots_and_calls_tools() {
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
    assert_eq!(agent.0.load(Ordering::SeqCst), 2, "a replay reads the record");
}

#[tokio::test]
async fn an_error_of_an_agent_ends_its_task_and_what_it_had_said_stays() {
    let model = Arc::new(ScriptedLlm::strict(["start flow count"]));
    let test = TestAssistant::build(builder(&Arc::default()).model(model)).unwrap();
    let turn = test.assistant.say("u", "count and fail").await.unwrap();
    assert_eq!(turn.texts()[0], "Message 1.");
    assert_eq!(turn.texts().len(), 2, "the user hears that it failed: {}", turn.text());
    assert!(!turn.text().contains("digit"), "{}", turn.text());
    let failures: Vec<_> = turn.failures.iter().map(|failure| (&*failure.code, &*failure.reason)).collect();
    assert_eq!(failures, [("A0523", "agent counter: invalid digit found in string")]);
}

#[tokio::test]
async fn a_model_reads_which_argument_does_not_fit_but_not_why_a_tool_broke() {
    let call = |arguments: Json| {
        let call = ToolCall { id: "c0".into(), name: "read".into(), arguments: ToolArguments::json(arguments) };
        ChatResponse { finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) }
    };
    let model = Arc::new(ScriptedLlm::strict([
        ChatResponse::text("start flow count"),
        call(json!({"number": "two"})),
        call(json!({"number": 2})),
        ChatResponse::text("I cannot read it."),
    ]));
    let read = Tool::new("read", "Reads a page", |args: Double, _| async move {
        Ok(std::fs::read_to_string(format!("no-such-folder/{}", args.number))?)
    });
    // Without an agent of this name in Rust it is one of ours, with its hooks.
    let builder = Assistant::builder_from_texts(FILES).unwrap().hooks("counter", Arc::new(NoHooks));
    let builder = builder.tool("counter", read.effect(EffectClass::Read));
    let test = TestAssistant::build(builder.model(model.clone())).unwrap();
    assert_eq!(test.say("read page two").await.unwrap(), ["I cannot read it."]);
    let asked = |at: usize| format!("{:?}", model.requests()[at].messages.last().unwrap());
    assert!(asked(2).contains("The arguments do not fit.") && asked(2).contains("/number"), "{}", asked(2));
    assert!(asked(3).contains("It failed, and the reason is for the operators."), "{}", asked(3));
    assert!(!asked(3).contains("os error"), "{}", asked(3));
}

#[test]
fn a_tool_without_a_place_is_refused() {
    let tool = Tool::new("look", "Looks", |_: NoArguments, _| async { Ok(()) });
    let error = Assistant::builder_from_texts(FILES).unwrap().tool("countr", tool).offline().build().unwrap_err();
    assert!(
        error.to_string().contains("no agent and no MCP server named `countr`; did you mean `counter`?"),
        "{error}"
    );
}
