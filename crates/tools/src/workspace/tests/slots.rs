//! Tests: the tools for the folders of missions. Their results are compared with recorded ones (`slots.json`); `SEGUE_RECORD=1` writes them,
//! read the difference before you commit it.

use std::fs;

use super::*;

/// A project with a packet, and the folders of a mission in it.
struct Project {
    folder: TempDir,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("handbook/rules")).unwrap();
        fs::write(folder.path().join("handbook/rules/style.md"), "# Style\nWrite short sentences.\nkey s3cr3t-token\n")
            .unwrap();
        fs::write(folder.path().join("handbook/rules/logo.png"), b"\x89PNG\0").unwrap();
        fs::write(folder.path().join("config.yml"), "secret: 1\n").unwrap();
        Self { folder }
    }
    fn slots(&self, mission: &str) -> Slots {
        let project = self.folder.path();
        let settings = SlotSettings {
            project: project.into(),
            runs: project.join(".segue/runs"),
            max_bytes: 1_000,
            secrets: vec![Secret::new("s3cr3t-token")],
        };
        let slots = vec![
            Slot::memory(mission, "Finished reports"),
            Slot::scratchpad(),
            Slot::shared("facts", "What is known"),
            Slot::packet("rules", "handbook/rules", "How to write"),
            Slot::packet("none", "handbook/none", ""),
        ];
        Slots::new(slots, settings)
    }
    fn set(&self, mission: &str) -> ToolSet {
        let tools = self.slots(mission).tools().into_iter();
        tools.fold(ToolSet::builder(), |set, tool| set.tool(Arc::new(tool))).build()
    }
}

async fn call(set: &ToolSet, run: &str, tool: &str, arguments: Json) -> ToolOutcome {
    let mut context = context();
    context.caller.conversation = run.into();
    invoke(set, tool, arguments, &context, None).await
}

#[tokio::test]
async fn the_tools_of_folders_answer_as_recorded() {
    let project = Project::new();
    let set = project.set("reports");
    let long = "x".repeat(990);
    let steps = [
        (FILE_LIST, json!({"slot": "memory"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "2026/may.md", "content": "# May\nGood.\n"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "2026/may.md", "content": "again"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "2026/may.md", "content": "Better.\n", "append": true})),
        (FILE_CREATE, json!({"slot": "memory", "path": "june.md", "content": "x", "append": true})),
        (FILE_CREATE, json!({"slot": "memory", "path": "june.md", "content": "June\n"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "june.md", "content": "June!\n", "overwrite": true})),
        (FILE_CREATE, json!({"slot": "memory", "path": "2026", "content": "x"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "june.md/x", "content": "x"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "big.md", "content": long})),
        (FILE_LIST, json!({"slot": "memory"})),
        (FILE_LIST, json!({"slot": "memory", "recursive": true, "limit": 2, "offset": 1})),
        (FILE_LIST, json!({"slot": "memory", "path": "2026"})),
        (FILE_LIST, json!({"slot": "memory", "path": "june.md"})),
        (FILE_READ, json!({"slot": "memory", "path": "2026/may.md"})),
        (FILE_READ, json!({"slot": "memory", "path": "2026/may.md", "start_line": 2, "max_lines": 1})),
        (FILE_READ, json!({"slot": "memory", "path": "2026/may.md", "max_bytes": 8})),
        (FILE_READ, json!({"slot": "memory", "path": "2027.md"})),
        (FILE_READ, json!({"slot": "memory", "path": "/etc/passwd"})),
        (FILE_READ, json!({"slot": "memory", "path": "../../../config.yml"})),
        (FILE_READ, json!({"slot": "packet.rules", "path": "style.md"})),
        (FILE_READ, json!({"slot": "packet.rules", "path": "logo.png"})),
        (FILE_READ, json!({"slot": "packet.none", "path": "style.md"})),
        (FILE_CREATE, json!({"slot": "packet.rules", "path": "style.md", "content": "x", "overwrite": true})),
        (FILE_DELETE, json!({"slot": "packet.rules", "path": "style.md"})),
        (FILE_LIST, json!({"slot": "other"})),
        (FILE_SEARCH, json!({"slot": "memory", "pattern": "\\.md$"})),
        (FILE_SEARCH, json!({"slot": "memory", "pattern": "\\.md$", "limit": 1, "offset": 1})),
        (FILE_SEARCH, json!({"slot": "memory", "pattern": "("})),
        (FILE_GREP, json!({"slot": "memory", "pattern": "e"})),
        (FILE_GREP, json!({"slot": "memory", "pattern": "e", "limit": 1})),
        (FILE_GREP, json!({"slot": "memory", "pattern": "e", "recursive": false})),
        (FILE_GREP, json!({"slot": "packet.rules", "pattern": "key"})),
        (FILE_GREP, json!({"slot": "packet.rules", "pattern": "short", "path": "style.md"})),
        (FILE_DELETE, json!({"slot": "memory", "path": "2026"})),
        (FILE_DELETE, json!({"slot": "memory", "path": "june.md"})),
        (FILE_DELETE, json!({"slot": "memory", "path": "june.md"})),
    ];
    let mut recorded = Vec::new();
    for (tool, arguments) in steps {
        let outcome = call(&set, "r1", tool, arguments.clone()).await;
        let mut shown = arguments;
        if shown["content"] == long {
            shown["content"] = json!("x, 990 times");
        }
        let result = match &outcome {
            ToolOutcome::Done(output) => output.structured.clone().unwrap(),
            other => json!({"code": code(other), "text": other.for_model()}),
        };
        recorded.push(json!({"tool": tool, "arguments": shown, "result": result}));
    }
    let text = format!("{}\n", serde_json::to_string_pretty(&recorded).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/workspace/tests/slots.json");
    if segue_base::environment::variable("SEGUE_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "SEGUE_RECORD=1 writes the results");
}

#[test]
fn tools_name_the_folders_and_those_that_write_only_the_writable_ones() {
    let project = Project::new();
    let set = project.set("reports");
    let choices = |tool: &str| set.get(tool).unwrap().info.parameters["properties"]["slot"]["enum"].clone();
    assert_eq!(choices(FILE_READ), json!(["memory", "scratchpad", "facts", "packet.rules", "packet.none"]));
    assert_eq!(choices(FILE_CREATE), json!(["memory", "scratchpad", "facts"]));
    let described = set.get(FILE_READ).unwrap().info.parameters["properties"]["slot"]["description"].clone();
    let expected = "The folder: memory (Finished reports; lasts from run to run), scratchpad (only of this run), facts (What is known; lasts, and other missions use it too), packet.rules (How to write; files of the project; read-only), packet.none (files of the project; read-only).";
    assert_eq!(described, expected);
    for entry in set.entries() {
        assert!(!entry.info.description.is_empty(), "{}", entry.info.name);
        let writes = [FILE_CREATE, FILE_DELETE].contains(&&*entry.info.name);
        assert_eq!(entry.info.effect == crate::EffectClass::Write, writes, "{}", entry.info.name);
    }
    let settings = SlotSettings {
        project: project.folder.path().into(),
        runs: project.folder.path().into(),
        max_bytes: 1,
        secrets: Vec::new(),
    };
    assert!(Slots::new(Vec::new(), settings.clone()).tools().is_empty());
    let packets = Slots::new(vec![Slot::packet("rules", "handbook/rules", "")], settings);
    assert_eq!(packets.tools().len(), 4, "nothing can be written");
}

#[tokio::test]
async fn memory_is_of_the_mission_a_scratchpad_of_the_run_and_a_shared_folder_of_all() {
    let project = Project::new();
    let (one, two) = (project.set("one"), project.set("two"));
    for slot in ["memory", "scratchpad", "facts"] {
        done(call(&one, "r1", FILE_CREATE, json!({"slot": slot, "path": "a", "content": slot})).await);
    }
    let sees = async |set: &ToolSet, run: &str, slot: &str| {
        matches!(call(set, run, FILE_READ, json!({"slot": slot, "path": "a"})).await, ToolOutcome::Done(_))
    };
    assert!(sees(&one, "r2", "memory").await && !sees(&two, "r1", "memory").await);
    assert!(sees(&one, "r1", "scratchpad").await && !sees(&one, "r2", "scratchpad").await);
    assert!(sees(&two, "r2", "facts").await);
    let on_disk = project.folder.path().join(".segue");
    assert!(on_disk.join("missions/one/memory/a").is_file() && on_disk.join("runs/r1/scratchpad/a").is_file());
    assert_eq!(code(&call(&one, "../r1", FILE_LIST, json!({"slot": "scratchpad"})).await), "file.path");
}

#[tokio::test]
async fn a_call_past_its_schema_is_refused_too() {
    let project = Project::new();
    let tools = project.slots("one").tools();
    let direct = async |name: &str, arguments: Json| {
        let tool = tools.iter().find(|tool| &*tool.info().name == name).unwrap();
        tool.call(arguments, &context()).await
    };
    let unknown = direct(FILE_LIST, json!({"slot": "other"})).await;
    assert_eq!(code(&unknown), "slot.unknown");
    assert!(unknown.for_model().contains("memory, scratchpad, facts, packet.rules"), "{unknown:?}");
    let read_only = direct(FILE_CREATE, json!({"slot": "packet.rules", "path": "a", "content": "a"})).await;
    assert_eq!(code(&read_only), "slot.read_only");
    assert_eq!(code(&direct(FILE_DELETE, json!({"slot": "packet.rules", "path": "style.md"})).await), "slot.read_only");
}

#[tokio::test]
async fn no_part_of_a_secret_remains_where_a_reading_is_cut() {
    let project = Project::new();
    let set = project.set("one");
    for limit in 40..60 {
        let arguments = json!({"slot": "packet.rules", "path": "style.md", "max_bytes": limit});
        let text = call(&set, "r1", FILE_READ, arguments).await.for_model();
        assert!(!text.contains("s3c"), "{limit}: {text}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_in_folders_are_not_followed() {
    let project = Project::new();
    let set = project.set("one");
    done(call(&set, "r1", FILE_CREATE, json!({"slot": "memory", "path": "a", "content": "a"})).await);
    let memory = project.folder.path().join(".segue/missions/one/memory");
    std::os::unix::fs::symlink(project.folder.path().join("config.yml"), memory.join("link")).unwrap();
    std::os::unix::fs::symlink(project.folder.path(), memory.join("up")).unwrap();
    for (tool, arguments) in [
        (FILE_READ, json!({"slot": "memory", "path": "link"})),
        (FILE_READ, json!({"slot": "memory", "path": "up/config.yml"})),
        (FILE_CREATE, json!({"slot": "memory", "path": "up/b", "content": "b"})),
        (FILE_DELETE, json!({"slot": "memory", "path": "link"})),
    ] {
        assert_eq!(code(&call(&set, "r1", tool, arguments.clone()).await), "file.link", "{tool} {arguments}");
    }
    let found = call(&set, "r1", FILE_GREP, json!({"slot": "memory", "pattern": "secret"})).await;
    assert!(!found.for_model().contains("config"), "{found:?}");
    std::os::unix::fs::symlink("handbook", project.folder.path().join("linked")).unwrap();
    let settings = SlotSettings {
        project: project.folder.path().into(),
        runs: project.folder.path().into(),
        max_bytes: 1,
        secrets: Vec::new(),
    };
    let linked = Slots::new(vec![Slot::packet("rules", "linked/rules", "")], settings).tools();
    let set = linked.into_iter().fold(ToolSet::builder(), |set, tool| set.tool(Arc::new(tool))).build();
    let outcome = call(&set, "r1", FILE_LIST, json!({"slot": "packet.rules"})).await;
    assert_eq!(code(&outcome), "slot.missing");
}
