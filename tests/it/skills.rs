//! Agent Skills in conversations and missions: with models of the test, and with the program and real crashes.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use segue::{
    Assistant, CallContext, ChatRequest, ChatResponse, ChatStream, DiscardReplies, IncomingMessage, Llm, LlmError,
    ModelProfile, Store, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    llm::{ToolArguments, ToolCall},
    missions::{RunEnd, StartRun},
    store::{SqliteStore, runs::MemoryRunStore},
    testing::ScriptedLlm,
};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    program::{command, run_in},
    project_files::CONFIG,
};

const TONE: &str =
    "---\nname: tone\ndescription: How we write to customers\n---\n\nBe kind.\nSee references/words.md.\n";

/// A model whose responses a function makes from the requests.
struct FunctionModel<F> {
    profile: ModelProfile,
    respond: F,
}

#[async_trait]
impl<F: Fn(&ChatRequest) -> ChatResponse + Send + Sync> Llm for FunctionModel<F> {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        Ok(ChatStream::from_response((self.respond)(&request)))
    }
}

fn calls(calls: &[(&str, Json)]) -> ChatResponse {
    let call = |(at, (name, arguments)): (usize, &(&str, Json))| ToolCall {
        id: format!("call-{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    };
    ChatResponse { tool_calls: calls.iter().enumerate().map(call).collect(), ..ChatResponse::default() }
}

/// A tool of the server `shop` that records its calls.
fn shop_tool(name: &'static str, called: &Arc<Mutex<Vec<String>>>) -> Tool {
    let called = called.clone();
    Tool::from_fn(ToolInfo::new(name, "does").source("shop"), move |_: Json, _: ToolCallContext| {
        called.lock().unwrap().push(name.to_owned());
        std::future::ready(ToolOutcome::Done(ToolOutput::text("done")))
    })
}

#[tokio::test]
async fn skill_that_is_written_in_a_mission_brings_its_tools_when_it_is_loaded() {
    let mission = "mission:
  name: m
  description: x
  agents: [helper]
  commander: {plan: optional}
  local_agents:
    helper:
      description: helps
      tools: [shop.find]
      skills:
        - {name: refunds, description: Pays back, instructions: Ask for the order first., tools: [shop.refund]}
  tasks: {pay: {objective: Pay.}}
";
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("endpoints.yml", "mcp_servers: [{name: shop, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n"),
        ("missions/m.yml", mission),
    ];
    let offered: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let seen = offered.clone();
    let respond = move |request: &ChatRequest| {
        let last = request.messages.last().unwrap().text().to_owned();
        if request.purpose.as_str() != "agent" {
            return match last.as_str() {
                "Pay." => calls(&[("call_agent", json!({"name": "helper", "task": "pay"}))]),
                answer => calls(&[("task_complete", json!({ "summary": answer }))]),
            };
        }
        let mut names: Vec<String> = request.tools.iter().map(|tool| tool.name.to_string()).collect();
        names.retain(|name| ["find", "refund", "load_skill"].contains(&name.as_str()));
        seen.lock().unwrap().push(names);
        let has_text = request.messages.iter().any(|message| message.text().contains("Ask for the order first."));
        match last.as_str() {
            // Before it is loaded, the tool cannot be called.
            text if text.contains("pay") && !text.contains("skill") => calls(&[("refund", json!({}))]),
            text if text.contains("Load it first: refunds") => calls(&[("load_skill", json!({"name": "refunds"}))]),
            text if text.contains("is loaded") && has_text => calls(&[("refund", json!({}))]),
            text => ChatResponse { text: format!("<ANSWER>{text}</ANSWER>").into(), ..ChatResponse::default() },
        }
    };
    let model = FunctionModel { profile: ModelProfile::for_model("test", ""), respond };
    let called: Arc<Mutex<Vec<String>>> = Arc::default();
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let builder = builder.tool("shop", shop_tool("find", &called)).tool("shop", shop_tool("refund", &called));
    let engine = builder.model(Arc::new(model)).build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    let end = engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap();
    assert_eq!(end, RunEnd::Completed);
    assert_eq!(*called.lock().unwrap(), ["refund"]);
    let offered = offered.lock().unwrap();
    assert_eq!(offered[0], ["find", "load_skill"]);
    assert_eq!(offered.last().unwrap(), &["find", "refund", "load_skill"]);
}

const FLOW: &str = "flows: {talk: {description: talk with the clerk, steps: [{call: clerk}]}}\n";
const CLERK: &str = "agent: {name: clerk, description: helps}\nconfiguration: {skills: [tone], skills_by_user: true}\nconnections: {mcp_servers: []}\n";

fn assistant(store: Arc<dyn Store>, model: &Arc<segue::testing::StrictLlm>) -> Assistant {
    let files = [
        CONFIG,
        ("data/flows.yml", FLOW),
        ("sub_agents/clerk/config.yml", CLERK),
        (".agents/skills/tone/SKILL.md", TONE),
    ];
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    builder.store(store).model(model.clone()).seeds(|| 7).build().unwrap()
}

async fn say(assistant: &Assistant, text: &str) -> Vec<String> {
    let report = assistant
        .receive(IncomingMessage::new("u", text).input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn user_loads_a_skill_without_the_command_generator_and_it_stays_loaded_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap()) };
    let texts = |model: &segue::testing::StrictLlm, at: usize| -> String {
        model.requests()[at].messages.iter().map(|message| message.text().to_owned()).collect()
    };
    let model = Arc::new(ScriptedLlm::strict(vec![
        ChatResponse::text("start flow talk"),
        ChatResponse::text("How can I help?"),
        ChatResponse::text("I will be kind."),
    ]));
    let first = assistant(open(), &model);
    assert_eq!(say(&first, "hello").await, ["How can I help?"]);
    // The message is the agent's: no model translates it into commands.
    assert_eq!(say(&first, "/tone").await, ["I will be kind."]);
    assert!(!texts(&model, 1).contains("Be kind."));
    assert_eq!(texts(&model, 2).matches("Be kind.").count(), 1);
    drop(first);
    let model =
        Arc::new(ScriptedLlm::strict(vec![ChatResponse::text("continue agent"), ChatResponse::text("Still kind.")]));
    let second = assistant(open(), &model);
    assert_eq!(say(&second, "and now?").await, ["Still kind."]);
    assert_eq!(texts(&model, 1).matches("Be kind.").count(), 1);
    assert!(second.replay(&"u".into()).await.unwrap().is_none(), "a replay gives the same events");
}

const SCRIPT: &str = r#"
rules:
  - when: {purpose: agent, last_tool: {name: load_skill}}
    calls: [{name: read_skill_file, arguments: {skill: tone, path: references/words.md}}]
  - when: {purpose: agent, last_tool: {name: read_skill_file}, system: 'Be kind'}
    calls: [{name: tone_count, arguments: {n: 2}}]
  - when: {purpose: agent, last_tool: {name: tone_count}}
    say: '<ANSWER>first: {{ tool_text }}</ANSWER>'
  - when: {purpose: agent, user: 'Second', system: 'Be kind'}
    say: '<ANSWER>still kind</ANSWER>'
  - when: {purpose: agent, user: 'First'}
    calls: [{name: load_skill, arguments: {name: tone}}]
  - when: {purpose: commander, last_tool: {matches: 'first'}}
    calls: [{name: call_agent, arguments: {name: helper, task: 'Second'}}]
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: 'result: {{ tool_text }}'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: helper, task: 'First'}}]
"#;

const MISSION: &str = "mission:
  name: m
  description: x
  agents: [helper]
  commander: {plan: optional}
  local_agents:
    helper:
      description: helps
      skills: all
      skill_scripts: {tone: [scripts/count.sh]}
  tasks: {write: {objective: Write.}}
";

fn write_project(folder: &Path) {
    for (name, text) in [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", "version: '3.1'\n"),
        ("endpoints.yml", "model_groups: [{id: main, models: [{provider: scripted, script: script.yml}]}]\n"),
        ("script.yml", SCRIPT),
        ("missions/m.yml", MISSION),
        (".agents/skills/tone/SKILL.md", TONE),
        (".agents/skills/tone/references/words.md", "Words to avoid: never."),
        // It counts its calls outside the folder of the skill, in which it runs.
        (
            ".agents/skills/tone/scripts/count.sh",
            "cat >> ../../../calls.txt; echo >> ../../../calls.txt; echo counted\n",
        ),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn skill_is_still_loaded_after_a_crash_and_its_script_ran_once() {
    for failpoint in [None, Some("run_append_done@2"), Some("run_append_done@4"), Some("run_append_done@6")] {
        let folder = tempfile::tempdir().unwrap();
        write_project(folder.path());
        let run = |environment: &[(&str, &str)]| -> crate::support::program::ProgramOutput {
            let mut command = command();
            command.current_dir(folder.path()).envs(environment.iter().copied());
            command.args(["mission", "run", "m", "--store", "sqlite:runs.db", "--idempotency-key", "one"]);
            command.output().unwrap().into()
        };
        if let Some(failpoint) = failpoint {
            let crashed = run(&[("SEGUE_FAILPOINT", failpoint)]);
            assert_eq!(crashed.code, -1, "{failpoint} was not hit: {}\n{}", crashed.out, crashed.err);
        }
        // The lease of the process that crashed is over.
        let ended = run(&[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(ended.code, 0, "{failpoint:?}: {}\n{}", ended.out, ended.err);
        assert!(ended.out.contains("result: still kind"), "{failpoint:?}: {}", ended.out);
        let counted = std::fs::read_to_string(folder.path().join("calls.txt")).unwrap();
        assert_eq!(counted, "{\"n\":2}\n", "{failpoint:?}");
    }
}

#[test]
fn check_reports_skills_that_are_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path());
    let checked = run_in(folder.path(), &["check"], "");
    assert!(!checked.out.contains("F087"), "{}", checked.out);
    let broken = folder.path().join(".agents/skills/broken");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("SKILL.md"), "no front matter").unwrap();
    let checked = run_in(folder.path(), &["check"], "");
    assert_eq!(checked.code, 0, "{}\n{}", checked.out, checked.err);
    let shown = format!("{}{}", checked.out, checked.err);
    assert!(shown.contains(".agents/skills/broken/SKILL.md:1:1: warning[F0871]"), "{shown}");
}
