//! Agents with files: their workspace, questions with options, files for the user, and what sub-agents get of all that.

use std::{path::Path, sync::Arc};

use segue::{
    Assistant, DiscardReplies, IncomingMessage, MemoryStore, Store, TurnReport,
    llm::ChatResponse,
    testing::{ScriptedLlm, StrictLlm},
    tools::workspace::{VirtualPath, Workspaces},
};
use serde_json::{Value as Json, json};

use super::tool_calls;
use crate::support::{program::run_in, project_copy::ProjectCopy, project_files::CONFIG};

/// The agent `writer` with these lines, and the flow that calls it.
fn files(agent: &str) -> Vec<(&str, String)> {
    vec![
        (CONFIG.0, CONFIG.1.to_owned()),
        ("endpoints.yml", "sandbox: {preset: bubblewrap}\n".to_owned()),
        ("data/flows.yml", "flows: {write: {description: write a text, steps: [{call: writer}]}}\n".to_owned()),
        ("sub_agents/writer/config.yml", format!("agent: {{name: writer, description: writes}}\n{agent}")),
    ]
}

fn assistant(agent: &str, store: Arc<dyn Store>, folder: &Path, model: Arc<StrictLlm>) -> Assistant {
    let files = files(agent);
    let builder = Assistant::builder_from_texts(files.iter().map(|(path, text)| (*path, text.as_str()))).unwrap();
    builder.store(store).workspace_folder(folder).model(model).seeds(|| 7).build().unwrap()
}

fn in_memory(agent: &str, folder: &Path, model: &Arc<StrictLlm>) -> Assistant {
    assistant(agent, Arc::new(MemoryStore::default()), folder, model.clone())
}

async fn say(assistant: &Assistant, user: &str, text: &str) -> TurnReport {
    let message = IncomingMessage::new(user.to_owned(), text).input_channel("test");
    let report = assistant.receive(message, Box::new(DiscardReplies)).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report
}

fn start() -> ChatResponse {
    ChatResponse::text("start flow write")
}

fn write(path: &str, content: &str) -> (&'static str, Json) {
    ("write_file", json!({"description": "write it", "path": path, "content": content}))
}

fn read(path: &str) -> (&'static str, Json) {
    ("read_file", json!({"description": "read it", "path": path}))
}

/// The tool results that the model got, in order.
fn results(model: &StrictLlm) -> Vec<String> {
    let last = model.requests().last().cloned().unwrap();
    let results = last.messages.iter().filter(|message| matches!(***message, segue::llm::ChatMessage::Tool { .. }));
    results.map(|message| message.text().to_owned()).collect()
}

/// The names of the tools that the model was offered in its last request.
fn offered(model: &StrictLlm, at: usize) -> Vec<String> {
    model.requests()[at].tools.iter().map(|tool| tool.name.to_string()).collect()
}

#[tokio::test]
async fn files_belong_to_the_conversation_and_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let model = ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[write("notes.txt", "of Ada")]),
        ChatResponse::text("Noted. What else?"),
        start(),
        tool_calls("", &[read("notes.txt")]),
        ChatResponse::text("You have no notes."),
    ]);
    let model = Arc::new(model);
    let first = in_memory("workspace: files\n", folder.path(), &model);
    assert_eq!(say(&first, "ada@example.com", "note this").await.texts(), ["Noted. What else?"]);
    let expected = [
        "ask_clarification",
        "glob",
        "grep",
        "ls",
        "present_files",
        "read_file",
        "str_replace",
        "task_completed",
        "write_file",
    ];
    let mut tools = offered(&model, 1);
    tools.sort();
    assert_eq!(tools, expected);
    say(&first, "bob", "what did I note?").await;
    let results = results(&model);
    assert!(results[0].contains("does not exist"), "another conversation sees none of it: {results:?}");

    let model = ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[read("notes.txt")]),
        ChatResponse::text("You noted: of Ada"),
    ]);
    let second = in_memory("workspace: read\n", folder.path(), &Arc::new(model));
    assert_eq!(say(&second, "ada@example.com", "what did I note?").await.texts(), ["You noted: of Ada"]);
    let name = Workspaces::conversation_folder("ada@example.com");
    assert_eq!(std::fs::read_to_string(folder.path().join(name).join("workspace/notes.txt")).unwrap(), "of Ada");
}

#[tokio::test]
async fn an_erased_conversation_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        vec![start(), tool_calls("", &[write("notes.txt", "of Ada")]), ChatResponse::text("Noted. What else?")];
    let assistant = in_memory("workspace: files\n", folder.path(), &Arc::new(ScriptedLlm::strict(script)));
    say(&assistant, "ada", "note this").await;
    let files = folder.path().join(Workspaces::conversation_folder("ada"));
    assert!(files.is_dir());
    assistant.erase(&"ada".into()).await.unwrap();
    assert!(!files.exists());
}

#[tokio::test]
async fn a_question_ends_the_turn_with_buttons_and_the_answer_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let question = json!({
        "description": "ask the format", "question": "Which format?", "clarification_type": "approach_choice",
        "options": ["PDF", "HTML"],
    });
    let second = json!({"description": "ask more", "question": "And how long?", "clarification_type": "missing_info"});
    let model = Arc::new(ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[("ask_clarification", question), ("ask_clarification", second)]),
        ChatResponse::text("continue agent"),
        tool_calls("", &[write("../outputs/a.html", "<p>")]),
        ChatResponse::text("Done as HTML. Anything else?"),
    ]));
    let assistant = in_memory("workspace: files\n", folder.path(), &model);
    let asked = say(&assistant, "u", "write it").await;
    assert_eq!(asked.texts(), ["Which format?"]);
    let buttons: Vec<&str> = asked.replies[0].reply.buttons.iter().map(|button| &*button.payload).collect();
    assert_eq!(buttons, ["PDF", "HTML"]);
    assert_eq!(say(&assistant, "u", "HTML").await.texts(), ["Done as HTML. Anything else?"]);
    let results = results(&model);
    assert_eq!(results[0], "The user has been asked. The answer is the next message.");
    assert!(results[1].starts_with("error: refused: the user is being asked something else"), "{results:?}");
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none(), "a replay gives the same events");
}

#[tokio::test]
async fn only_outputs_are_presented_and_the_channel_learns_about_them() {
    let folder = tempfile::tempdir().unwrap();
    let present = |path: &str| ("present_files", json!({"description": "show it", "filepaths": [path]}));
    let model = Arc::new(ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[write("../outputs/report.md", "# Report")]),
        tool_calls("", &[present("notes.md")]),
        tool_calls("", &[present("/mnt/user-data/outputs/report.md")]),
        ChatResponse::text("Here is the report. Anything else?"),
    ]));
    let assistant = in_memory("workspace: files\n", folder.path(), &model);
    let report = say(&assistant, "u", "write a report").await;
    let attachments: Vec<&Json> = report.replies.iter().filter_map(|reply| reply.reply.attachment.as_ref()).collect();
    let path = "/mnt/user-data/outputs/report.md";
    assert_eq!(attachments, [&json!({"type": "files", "files": [{"path": path, "bytes": 8}]})]);
    assert!(results(&model)[1].contains("outputs"), "a file elsewhere is refused: {:?}", results(&model));
    let workspace = assistant.workspaces().of_conversation("u");
    assert_eq!(workspace.read(&VirtualPath::parse(path).unwrap()).await.unwrap(), b"# Report");
}

#[tokio::test]
async fn a_conversation_whose_files_cannot_be_removed_is_still_there_and_can_be_erased_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = Arc::new(ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[write("notes.md", "private")]),
        ChatResponse::text("Noted. Anything else?"),
    ]));
    let files = folder.path().join("files");
    let assistant = in_memory("workspace: files\n", &files, &model);
    say(&assistant, "u", "note it").await;
    let written = assistant.workspaces().of_conversation("u").folder().to_path_buf();
    assert!(written.join("workspace/notes.md").is_file());
    // The folder of all files is exchanged for a file meanwhile, so the system cannot remove anything in it.
    let kept = folder.path().join("kept");
    std::fs::rename(&files, &kept).unwrap();
    std::fs::write(&files, "").unwrap();
    let error = assistant.erase(&"u".into()).await.unwrap_err();
    assert!(error.code() == "S0109" && error.to_string().contains(&*written.to_string_lossy()), "{error}");
    assert!(assistant.store().load(&"u".into()).await.unwrap().version.0 > 0);
    std::fs::remove_file(&files).unwrap();
    std::fs::rename(&kept, &files).unwrap();
    assistant.erase(&"u".into()).await.unwrap();
    assert_eq!(assistant.store().load(&"u".into()).await.unwrap().version.0, 0);
    assert!(!written.exists());
}

#[tokio::test]
async fn a_sub_agent_reads_for_itself_before_it_writes_and_does_not_talk_with_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let task = json!({"description": "edit", "prompt": "Change a.txt", "subagent_type": "general-purpose"});
    let model = Arc::new(ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[write("a.txt", "first")]),
        tool_calls("", &[read("a.txt")]),
        tool_calls("", &[("task", task)]),
        // The sub-agent.
        tool_calls("", &[write("a.txt", "second")]),
        tool_calls("", &[read("a.txt")]),
        tool_calls("", &[write("a.txt", "second")]),
        ChatResponse::text("Changed."),
        // The agent, which has read the first content.
        tool_calls("", &[write("a.txt", "third")]),
        ChatResponse::text("The sub-agent changed it. What else?"),
    ]));
    let assistant = in_memory("workspace: files\ndelegation: {types: [general-purpose]}\n", folder.path(), &model);
    say(&assistant, "u", "change it").await;
    let of_child = offered(&model, 4);
    for tool in ["task", "ask_clarification", "present_files", "bash"] {
        assert!(!of_child.iter().any(|name| name == tool), "{tool}: {of_child:?}");
    }
    assert!(of_child.iter().any(|name| name == "write_file"));
    let child: Vec<String> = model.requests()[7].messages.iter().map(|message| message.text().to_owned()).collect();
    assert!(child.iter().any(|text| text.contains("you have not read it")), "{child:?}");
    let results = results(&model);
    assert!(results.last().unwrap().contains("was written by somebody else since"), "{results:?}");
    let path = VirtualPath::parse("a.txt").unwrap();
    assert_eq!(assistant.workspaces().of_conversation("u").read(&path).await.unwrap(), b"second");
}

#[tokio::test]
async fn a_type_that_runs_commands_has_them_although_its_parent_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let task = json!({"description": "build", "prompt": "Build it", "subagent_type": "bash"});
    let other = json!({"description": "look", "prompt": "Look", "subagent_type": "general-purpose"});
    let model = Arc::new(ScriptedLlm::strict(vec![
        start(),
        tool_calls("", &[("task", task)]),
        ChatResponse::text("Built."),
        tool_calls("", &[("task", other)]),
        ChatResponse::text("Looked."),
        ChatResponse::text("Both done. What else?"),
    ]));
    let assistant = in_memory("workspace: read\ndelegation: {}\n", folder.path(), &model);
    say(&assistant, "u", "build it").await;
    let mut tools = offered(&model, 2);
    tools.sort();
    assert_eq!(tools, ["bash", "ls", "read_file", "str_replace", "write_file"]);
    let (lead, general) = (offered(&model, 1), offered(&model, 4));
    assert!(!lead.iter().any(|name| name == "bash" || name == "write_file"), "{lead:?}");
    assert!(!general.iter().any(|name| name == "bash"), "{general:?}");
    assert!(general.iter().any(|name| name == "grep"), "{general:?}");
}

/// Why commands cannot run here, if they cannot.
#[cfg(unix)]
fn no_sandbox() -> Option<String> {
    for (program, arguments) in [
        ("bwrap", ["--unshare-all", "--ro-bind", "/", "/", "true"].as_slice()),
        ("make", &["--version"]),
        ("python3", &["--version"]),
    ] {
        match std::process::Command::new(program).args(arguments).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Some(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => return Some(format!("{program}: {error}")),
        }
    }
    None
}

#[cfg(unix)]
#[test]
fn a_sub_agent_builds_and_tests_a_program_in_the_sandbox() {
    if let Some(reason) = no_sandbox() {
        eprintln!("NOT TESTED: commands cannot run on this machine ({reason})");
        return;
    }
    let copy = ProjectCopy::new("builds");
    let output = run_in(&copy.path(""), &["chat", "."], "build it\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("Built and tested."), "{}\n{}", output.out, output.err);
    assert!(output.out.contains("Ran 2 tests") && output.out.contains("OK"), "{}", output.out);
    let runs = copy.path(".segue/runs");
    let names: Vec<_> = std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(runs.join(&names[0]).join("workspace/__pycache__").is_dir(), "it was built in the workspace");
    assert!(!output.out.contains("root\n") && !output.out.contains("home\n"), "it sees no home folder: {}", output.out);
}

#[cfg(unix)]
#[test]
fn twelve_sub_agents_run_commands_in_one_workspace() {
    if let Some(reason) = no_sandbox() {
        eprintln!("NOT TESTED: commands cannot run on this machine ({reason})");
        return;
    }
    let copy = ProjectCopy::new("many_builds");
    let output = run_in(&copy.path(""), &["chat", "."], "build it\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("All parts have ended."), "{}\n{}", output.out, output.err);
    let run = std::fs::read_dir(copy.path(".segue/runs")).unwrap().next().unwrap().unwrap().path();
    let all = std::fs::read_to_string(run.join("workspace/all")).unwrap();
    let mut parts: Vec<u32> = all.lines().map(|line| line.parse().unwrap()).collect();
    parts.sort_unstable();
    assert_eq!(parts, (1..=12).collect::<Vec<_>>(), "each command ran once");
    for part in parts {
        let text = std::fs::read_to_string(run.join(format!("workspace/parts/{part}"))).unwrap();
        assert_eq!(text.trim(), part.to_string());
    }
}

#[tokio::test]
async fn built_in_tools_are_those_that_the_file_of_the_agent_names() {
    let folder = tempfile::tempdir().unwrap();
    let script = || {
        let call = ("current_time", json!({"timezone": "Asia/Tokyo", "format": "%z"}));
        let model = [start(), tool_calls("", &[call]), ChatResponse::text("It is late in Tokyo.")];
        Arc::new(ScriptedLlm::strict(model.to_vec()))
    };
    let model = script();
    let assistant = in_memory("builtin_tools: {utils: true}\n", folder.path(), &model);
    assert_eq!(say(&assistant, "ada", "what time is it?").await.texts(), ["It is late in Tokyo."]);
    assert_eq!(results(&model), ["+0900"]);
    let names = offered(&model, 1);
    assert!(names.contains(&"sleep".to_owned()) && !names.iter().any(|name| name.starts_with("http_")), "{names:?}");
    let model = script();
    let assistant = in_memory("builtin_tools: {http: {allow: [api.example.com]}}\n", folder.path(), &model);
    assert_eq!(say(&assistant, "ada", "what time is it?").await.texts(), ["It is late in Tokyo."]);
    assert!(
        results(&model)[0].contains("http_get"),
        "an unknown tool is answered with those that exist: {:?}",
        results(&model)
    );
    let names = offered(&model, 1);
    for name in ["http_get", "http_post", "http_put", "http_patch", "http_delete"] {
        assert!(names.iter().any(|offered| offered == name), "{name}: {names:?}");
    }
    assert!(!names.contains(&"sleep".to_owned()), "{names:?}");
}
