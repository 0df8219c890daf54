//! The commands of the program: what they print, and their exit codes.

use crate::{
    program::{ProgramOutput, run, run_in},
    project,
};

#[test]
fn chat_with_piped_input_prints_only_replies() {
    let output = run(&["chat", &project("courier")], "track something\nthe number X7\nsend one\n");
    assert_eq!(output.code, 0, "{}", output.err);
    let lines = output.lines();
    assert_eq!(
        &lines[..3],
        ["bot: Which parcel?", "bot: The number stands on your receipt.", "bot: Parcel X7 is under way."]
    );
    assert!(lines.contains(&"bot: How fast?"), "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("bot: ")), "buttons are only shown on a terminal: {lines:?}");
    assert!(output.err.contains("courier is scripted"), "{}", output.err);
}

#[test]
fn chat_marks_filler_messages() {
    let output = run(&["chat", &project("courier")], "what is in the depot?\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(
        output.lines(),
        ["filler: One moment, I look into the timetable.", "bot: The depot has ports."],
        "{}",
        output.err
    );
}

#[test]
fn chat_accepts_empty_lines_and_control_characters() {
    let output = run(&["chat", &project("courier")], "\n\u{0}\ntrack it\n");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("bot: Which parcel?"), "{}", output.out);
}

#[test]
fn chat_events_are_json_lines() {
    let output = run(&["chat", &project("courier"), "--events"], "track\n");
    let events: Vec<serde_json::Value> =
        output.out.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert!(names.contains(&"user") && names.contains(&"bot") && names.contains(&"flow_started"), "{names:?}");
}

#[test]
fn stored_conversation_continues_and_can_be_traced_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let chat = ["chat", &courier, "--store", "sqlite:talks.db", "--conversation", "c1"];
    assert_eq!(run_in(folder.path(), &chat, "track it\n").code, 0);
    let second = run_in(folder.path(), &chat, "number X7\n");
    assert_eq!(second.lines()[0], "bot: Parcel X7 is under way.");

    let replay = run_in(folder.path(), &["replay", "c1", &courier, "--store", "talks.db"], "");
    assert_eq!(replay.code, 0, "{}{}", replay.out, replay.err);
    let list = run_in(folder.path(), &["conversations", &courier, "--store", "talks.db"], "");
    assert_eq!(list.code, 0, "{}", list.err);
    let line = list.lines().get(1).copied().unwrap_or_default();
    assert!(line.starts_with("c1 ") && line.ends_with("  number X7"), "{}", list.out);
    let list = run_in(folder.path(), &["conversations", &courier, "--store", "talks.db", "--format", "json"], "");
    let list: serde_json::Value = serde_json::from_str(&list.out).unwrap();
    assert_eq!((&list["conversations"][0]["id"], &list["conversations"][0]["turns"]), (&"c1".into(), &2.into()));

    let trace = run_in(folder.path(), &["trace", "c1", &courier, "--store", "talks.db", "--turn", "2"], "");
    assert_eq!(trace.code, 0, "{}", trace.err);
    assert!(trace.out.starts_with("turn 2: number X7") && trace.out.contains("set slot parcel X7"), "{}", trace.out);
    assert!(trace.out.contains("`--full` shows them") && !trace.out.contains("\n           system: "), "{}", trace.out);
    let full = run_in(folder.path(), &["trace", "c1", &courier, "--store", "talks.db", "--turn", "2", "--full"], "");
    assert!(full.out.contains("\n           system: ") && full.out.len() > trace.out.len(), "{}", full.out);
    assert!(
        full.out.contains("at validate_parcel\n")
            && !full.out.contains("reason   pattern_collect_information: at validate_{{"),
        "{}",
        full.out
    );
    let json = run_in(folder.path(), &["trace", "c1", &courier, "--store", "talks.db", "--format", "json"], "");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2);

    let unknown = run_in(folder.path(), &["replay", "nobody", &courier, "--store", "talks.db"], "");
    assert_eq!(unknown.code, 3);
    assert!(unknown.err.contains("R0201"), "{}", unknown.err);
    let missing = run_in(folder.path(), &["replay", "c1", &courier, "--store", "other.db"], "");
    assert_eq!(missing.code, 3);
    assert!(missing.err.contains("--store") && !folder.path().join("other.db").exists(), "{}", missing.err);
}

#[test]
fn replay_with_a_difference_fails() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("courier");
    crate::folder::copy_folder(project("courier").as_ref(), &copy);
    let chat = ["chat", "courier", "--store", "talks.db", "--conversation", "c1"];
    run_in(folder.path(), &chat, "track it\nnumber X7\n");
    let domain = copy.join("domain.yml");
    let text = std::fs::read_to_string(&domain).unwrap();
    std::fs::write(&domain, text.replace("is under way", "got lost")).unwrap();
    let replay = run_in(folder.path(), &["replay", "c1", "courier", "--store", "talks.db"], "");
    assert_eq!(replay.code, 1, "{}{}", replay.out, replay.err);
    assert!(replay.out.contains("turn 2") && replay.out.contains("got lost"), "{}", replay.out);
    // A trace has no reasons of a turn that the project would run in another way.
    let trace = run_in(folder.path(), &["trace", "c1", "courier", "--store", "talks.db"], "");
    assert_eq!(trace.code, 0, "{}", trace.err);
    let (first, second) = trace.out.split_once("turn 2").unwrap();
    assert!(!first.contains("the project differs") && first.contains("\n  reason "), "{first}");
    assert_eq!(second.matches("\n  reason ").count(), 1, "{second}");
    assert!(second.contains("the project differs from the recorded turn; reasons are left out"), "{second}");
}

#[test]
fn commands_that_only_read_the_store_ignore_unset_variables() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("courier");
    crate::folder::copy_folder(project("courier").as_ref(), &copy);
    run_in(folder.path(), &["chat", "courier", "--store", "talks.db", "--conversation", "c1"], "track it\n");
    let endpoints = copy.join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, format!("{text}\naction_endpoint: {{ url: '${{SEGUE_TEST_UNSET}}' }}\n")).unwrap();
    for arguments in [vec!["trace", "c1"], vec!["replay", "c1"], vec!["conversations"], vec!["doctor", "list"]] {
        let output = run_in(folder.path(), &[&arguments[..], &["courier", "--store", "talks.db"]].concat(), "");
        assert_eq!(output.code, 0, "{arguments:?}: {}{}", output.out, output.err);
    }
    assert_eq!(run_in(folder.path(), &["chat", "courier"], "track it\n").code, 1);
}

#[test]
fn check_reports_every_finding_with_its_line_and_fails() {
    let output = run(&["check", &project("broken")], "");
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.out.contains("flows/flows.yml:6:15: error["), "{}", output.out);
    assert!(
        output.out.contains("next: don") && output.out.contains("^^^") && output.out.contains("= help: "),
        "{}",
        output.out
    );
    assert!(output.out.contains("utter_missing"), "{}", output.out);

    let output = run(&["check", &project("broken"), "--format", "json"], "");
    assert_eq!(output.code, 1);
    let json: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    let errors = json["summary"]["errors"].as_u64().unwrap();
    let findings = json["findings"].as_array().unwrap();
    let listed = findings.iter().filter(|finding| finding["severity"] == "error").count() as u64;
    assert!(errors >= 2 && errors == listed, "{json}");
    let is_at_line_6 = |finding: &serde_json::Value| finding["file"] == "flows/flows.yml" && finding["line"] == 6;
    assert!(findings.iter().any(is_at_line_6), "{json}");
}

#[test]
fn valid_project_passes_check_and_invalid_project_refuses_to_chat() {
    let output = run(&["check", &project("courier"), "--strict"], "");
    assert_eq!((output.code, output.lines().last().copied()), (0, Some("0 errors, 0 warnings")), "{}", output.out);
    let output = run(&["chat", &project("broken")], "hi\n");
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    assert!(output.err.contains("flows/flows.yml:6:15: error["), "{}", output.err);
}

#[test]
fn check_warns_of_an_unused_prompt_template() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run_in(folder.path(), &["init", "mine"], "").code, 0);
    let prompts = folder.path().join("mine/prompts");
    std::fs::create_dir(&prompts).unwrap();
    std::fs::write(prompts.join("rephrase.j2"), "Say it in other words.").unwrap();
    std::fs::write(prompts.join("command.j2"), "Answer with commands.").unwrap();
    let ran = run_in(folder.path(), &["check", "mine"], "");
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.starts_with("prompts/command.j2: warning[F0119]: nothing uses this template"), "{}", ran.out);
    assert!(ran.out.contains("Did you mean `commands.j2`?") && ran.out.contains("0 errors, 1 warning"), "{}", ran.out);
}

#[test]
fn graph_draws_flows() {
    let graph = run(&["graph", &project("courier")], "");
    assert_eq!(graph.code, 0, "{}", graph.err);
    assert!(graph.out.starts_with("flowchart TD\n") && graph.out.contains("agent clerk"), "{}", graph.out);
    let steps = run(&["graph", "track_parcel", &project("courier"), "--format", "dot"], "");
    assert!(steps.out.contains("label=\"ask parcel\"") && steps.out.ends_with("}\n"), "{}", steps.out);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.mmd");
    let output = run(&["graph", &project("courier"), "--all", "-o", file.to_str().unwrap()], "");
    assert_eq!((output.code, output.out.as_str()), (0, ""));
    assert!(std::fs::read_to_string(file).unwrap().starts_with("flowchart TD\n"));
    let unknown = run(&["graph", "track_parcle", &project("courier")], "");
    assert!(unknown.code == 2 && unknown.err.contains("did you mean `track_parcel`?"), "{}", unknown.err);
}

#[test]
fn check_online_connects_to_tool_servers() {
    let up = run(&["check", &project("courier"), "--online"], "");
    assert_eq!(up.code, 0, "{}", up.out);
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    let endpoints = folder.path().join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, text.replace("command: segue", "command: no-such-program")).unwrap();
    assert_eq!(run_in(folder.path(), &["check"], "").code, 0);
    let down = run_in(folder.path(), &["check", "--online"], "");
    assert_eq!(down.code, 1, "{}", down.out);
    assert!(down.out.contains("error[T0101]: the MCP server `depot` does not answer"), "{}", down.out);
}

#[test]
fn check_online_compares_tools_with_the_project() {
    let step = |text: &str| {
        let call = "      - call: get_crossing\n        mcp_server: depot\n        mapping:\n          input: [{ param: crossing_id, slot: parcel }]\n";
        format!(
            "\n  look:\n    description: Looks at a crossing.\n    steps:\n      - collect: parcel\n{}",
            text.replace("CALL", call)
        )
    };
    let call = step("CALL");
    let (flows, clerk, endpoints) = ("flows/flows.yml", "sub_agents/clerk/config.yml", "endpoints.yml");
    for (file, added, expected) in [
        (flows, call.clone(), &[][..]),
        (
            flows,
            call.replace("get_crossing", "get_crosing"),
            &["error[T0604]: the MCP server `depot` has no tool `get_crosing`", "Did you mean `get_crossing`?"],
        ),
        (
            flows,
            call.replace("param: crossing_id", "param: crosing_id"),
            &[
                "error[T0605]: the tool `get_crossing` of `depot` has no parameter `crosing_id`",
                "Did you mean `crossing_id`?",
                "error[T0606]: the call does not fill the parameter `crossing_id`",
            ],
        ),
        (clerk, "      include_tools: [get_bookin]\n".to_owned(), &["sub_agents/clerk/config.yml:10:23: error[T0604]"]),
        (
            clerk,
            "      exclude_tools: [get_bookin]\n".to_owned(),
            &["error[T0604]", "`exclude_tools` of the agent `clerk`"],
        ),
        (endpoints, "    effects: { list_port: read }\n".to_owned(), &["error[T0604]", "Did you mean `list_ports`?"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(project("courier").as_ref(), folder.path());
        let path = folder.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{}\n{added}", text.trim_end())).unwrap();
        assert_eq!(run_in(folder.path(), &["check"], "").code, 0, "{added}");
        let output = run_in(folder.path(), &["check", "--online"], "");
        assert_eq!(output.code, i32::from(!expected.is_empty()), "{added}{}", output.out);
        for part in expected {
            assert!(output.out.contains(part), "{part}\n{added}{}", output.out);
        }
    }
}

#[test]
fn check_online_warns_about_a_rule_for_a_tool_that_no_server_lists() {
    for (tool, warned) in [("get_bookin", true), ("get_booking", false), ("depot__get_booking", false)] {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(project("courier").as_ref(), folder.path());
        let path = folder.path().join("sub_agents/clerk/config.yml");
        let text = std::fs::read_to_string(&path).unwrap();
        let rule = format!("  tools: {{{tool}: {{confirm: true}}}}\nconnections:");
        std::fs::write(&path, text.replace("connections:", &rule)).unwrap();
        let output = run_in(folder.path(), &["check", "--online"], "");
        let text = "warning[T0604]: no MCP server of the agent `clerk` has the tool `get_bookin`";
        assert_eq!((output.code, output.out.contains(text)), (0, warned), "{tool}: {}", output.out);
    }
}

#[test]
fn unknown_key_of_a_script_is_an_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    std::fs::write(folder.path().join("script.yml"), "rules:\n  - when: { stat: x }\n    say: x\n").unwrap();
    let output = run_in(folder.path(), &["check"], "");
    assert_eq!(output.code, 1, "{}", output.out);
    assert!(
        output.out.contains("error[M0101]") && output.out.contains("script.yml:2:13: unknown field `stat`"),
        "{}",
        output.out
    );
    assert!(!output.out.contains("|  "), "{}", output.out);
}

#[test]
fn data_path_can_be_overridden() {
    let output = run(&["check", &project("courier"), "--data", &format!("{}/flows", project("broken"))], "");
    assert_eq!(output.code, 1, "{}", output.out);
}

#[test]
fn explain_prints_error_pages() {
    let list = run(&["explain"], "");
    assert_eq!(list.code, 0);
    assert!(list.lines().iter().any(|line| line.starts_with("R0201: ")), "{}", list.out);
    let page = run(&["explain", "r0201"], "");
    assert!(page.out.starts_with("# R0201: ") && page.out.contains("## How to fix it"), "{}", page.out);
    let unknown = run(&["explain", "Z9999"], "");
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
}

#[test]
fn init_templates_run_and_pass_their_tests() {
    for (template, first) in
        [("blank", "send money"), ("agents", "Which ports do you sail from?"), ("ferries", "hello")]
    {
        let folder = tempfile::tempdir().unwrap();
        let created = run_in(folder.path(), &["init", "mine", "--template", template, "--skill"], "");
        assert_eq!(created.code, 0, "{template}: {}", created.err);
        for file in ["README.md", "AGENTS.md", "skills/segue/SKILL.md"] {
            assert!(folder.path().join("mine").join(file).exists(), "{template}: {file}");
        }
        let checked = run_in(folder.path(), &["check", "mine"], "");
        assert_eq!(checked.code, 0, "{template}: {}", checked.out);
        let chat = run_in(folder.path(), &["chat", "mine"], &format!("{first}\n"));
        assert_eq!(chat.code, 0, "{template}: {}", chat.err);
        assert!(chat.out.contains("bot: ") && !chat.out.contains("no line for this"), "{template}: {}", chat.out);
        let tested = run_in(&folder.path().join("mine"), &["test"], "");
        assert!(tested.code == 0 && tested.out.contains(" passed, 0 failed"), "{}{}", tested.out, tested.err);
    }
}

#[test]
fn the_mission_of_a_new_project_runs_at_once_and_writes_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let created = run_in(folder.path(), &["init", "mine", "--template", "mission"], "");
    assert_eq!(created.code, 0, "{}", created.err);
    let checked = run_in(folder.path(), &["check", "mine", "--strict"], "");
    assert_eq!(checked.code, 0, "{}", checked.out);
    // The command that `init` prints.
    let next = created.lines().last().copied().unwrap_or_default();
    let next: Vec<&str> = next.strip_prefix("Next: segue ").unwrap_or_else(|| panic!("{next}")).split(' ').collect();
    let ran = run_in(folder.path(), &next, "");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let started: serde_json::Value = serde_json::from_str(ran.lines()[0]).unwrap();
    let run = started["run"].as_str().unwrap();
    let report = folder.path().join("mine/.segue/runs").join(run).join("outputs/report.md");
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.starts_with("# Report\n\n* What is tea?") && report.matches("\n* ").count() == 3, "{report}");
    // The end names it, for programs and for people.
    let end: serde_json::Value = serde_json::from_str(ran.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&end["event"], &end["run"], &end["files"][0]["path"]),
        (&"run_files".into(), &run.into(), &"outputs/report.md".into())
    );
    assert_eq!(end["files"][0]["bytes"], report.len());
    let path = std::path::Path::new(end["folder"].as_str().unwrap()).join("outputs/report.md");
    assert_eq!(std::fs::read_to_string(path).unwrap(), report);
    assert!(ran.err.contains("files in ") && ran.err.contains("  outputs/report.md ("), "{}", ran.err);
    let shown = run_in(folder.path(), &["mission", "show", run, "mine"], "");
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(shown["files"], serde_json::json!({"folder": end["folder"], "files": end["files"]}));
    // What the README tells to type next.
    let mine = folder.path().join("mine");
    let readme = std::fs::read_to_string(mine.join("README.md")).unwrap();
    let (_, commands) = readme.split_once("```sh\n").unwrap();
    let (commands, _) = commands.split_once("```").unwrap();
    for command in commands.lines() {
        let (command, _) = command.split_once('#').unwrap();
        let arguments: Vec<&str> =
            command.split_whitespace().skip(1).map(|word| if word == "RUN" { run } else { word }).collect();
        let output = run_in(&mine, &arguments, "");
        assert_eq!(output.code, 0, "{arguments:?}: {}{}", output.out, output.err);
    }
}

#[test]
fn init_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run_in(folder.path(), &["init", "mine"], "").code, 0);
    let config = folder.path().join("mine/config.yml");
    std::fs::write(&config, "# mine").unwrap();
    std::fs::remove_file(folder.path().join("mine/domain.yml")).unwrap();
    let again = run_in(folder.path(), &["init", "mine"], "");
    assert_eq!(again.code, 3);
    assert!(again.err.contains("exists already"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine");
    assert!(!folder.path().join("mine/domain.yml").exists(), "no file is written if one of them exists");
}

#[test]
fn exit_codes_distinguish_usage_errors_from_missing_files() {
    assert_eq!(run(&["chat", "--nonsense"], "").code, 2);
    assert_eq!(run(&[], "").code, 2);
    assert_eq!(run(&["--version"], "").code, 0);
    let missing = run(&["chat", "no/such/folder"], "");
    assert_eq!(missing.code, 3);
    assert!(missing.err.contains("no/such/folder") && missing.err.contains("segue init"), "{}", missing.err);
}

#[test]
fn project_argument_after_a_multi_value_option_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), &folder.path().join("mine"));
    for arguments in [&["check", "--data", "flows", "mine"] as &[&str], &["check", "-d", "domain.yml", "mine"]] {
        let output = run_in(folder.path(), arguments, "");
        assert_eq!(
            output.lines().last().copied(),
            Some("0 errors, 0 warnings"),
            "{arguments:?}: {}{}",
            output.out,
            output.err
        );
    }
}

#[test]
fn log_level_accepts_python_names_and_refuses_unknown_ones() {
    let log_of = |level: &str, arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = crate::program::command();
        let command = command.env("LOG_LEVEL", level).current_dir(folder.path()).args(arguments);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let project_copy = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), project_copy.path());
    std::fs::write(project_copy.path().join("credentials.yml"), "rest:\nslack:\n").unwrap();
    let endpoints = project_copy.path().join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, text.replace("command: segue", "command: no-such-program")).unwrap();
    let run = ["run", project_copy.path().to_str().unwrap(), "--port", "0", "--strict", "--store", "memory"];
    for (level, is_logged) in [("WARNING", true), ("warn", true), ("INFO", true), ("CRITICAL", false)] {
        let (code, log) = log_of(level, &run);
        assert_eq!((code, log.contains("WARN")), (3, is_logged), "{level}: {log}");
        // The reason for the exit is a sentence, not a debug value.
        assert!(log.contains("the MCP server depot does not answer") && !log.contains("Down {"), "{log}");
    }
    let (code, log) = log_of("verbose", &["chat", &project("courier")]);
    assert!(code == 3 && log.contains("`verbose` is not a level") && log.contains("warning"), "{log}");
}

#[test]
fn url_queries_and_passwords_are_not_printed() {
    let secret = "sk-live-1";
    let address = format!("postgresql://ada:{secret}@db.test/talks?password={secret}");
    let store = run(&["chat", &project("courier"), "--store", &address], "");
    assert!(store.code == 3 && store.err.contains("postgresql://db.test/talks"), "{}", store.err);
    let import = run(&["import", &project("courier"), "--from", &address, "--store", "a.db"], "");
    assert!(import.code == 3 && import.err.contains("postgresql://db.test/talks"), "{}", import.err);

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n");
    write(
        "endpoints.yml",
        "action_endpoint: {url: 'http://127.0.0.1:1/webhook?token=${KEY}'}\nnlg: {url: 'http://127.0.0.1:1/nlg?token=${KEY}'}\n",
    );
    write("domain.yml", "actions: [action_x]\nslots: {x: {type: text, mappings: [{type: controlled}]}}\n");
    write("data/flows.yml", "flows: {ask: {description: asks, steps: [{call: other}, {action: action_x}]}}\n");
    write(
        "sub_agents/other/config.yml",
        "agent: {name: other, description: helps, protocol: A2A}\nconfiguration: {agent_card: 'http://127.0.0.1:1/card?key=${KEY}', max_retries: 1}\n",
    );
    let outputs =
        [["check", "--online"].as_slice(), &["run", "--port", "0", "--strict", "--store", "memory"]].map(|line| {
            let mut command = crate::program::command();
            let command = command.env("KEY", secret).env("LOG_LEVEL", "debug").current_dir(folder.path()).args(line);
            let output = ProgramOutput::from(command.output().unwrap());
            format!("{}{}", output.out, output.err)
        });
    assert!(outputs[0].contains("the card at http://127.0.0.1:1/card?…"), "{}", outputs[0]);
    assert!(outputs[1].contains("does not answer"), "{}", outputs[1]);
    for text in outputs.iter().chain([&store.err, &import.err]) {
        assert!(!text.contains(secret), "{text}");
    }
}

/// Whether a process exists and has not exited.
#[cfg(target_os = "linux")]
fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[cfg(target_os = "linux")]
#[test]
fn interrupted_chat_stops_its_mcp_servers() {
    use std::io::{BufRead as _, Write as _};
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    let endpoints = folder.path().join("endpoints.yml");
    // The MCP server exits when its input ends; the shell around it does not.
    let shell = format!("echo $$ > pid; {} demo ferries; exec sleep 600", env!("CARGO_BIN_EXE_segue"));
    let text = std::fs::read_to_string(&endpoints).unwrap().replace("command: segue", "command: sh");
    std::fs::write(&endpoints, text.replace("[demo, ferries]", &format!("[\"-c\", \"{shell}\"]"))).unwrap();
    let mut command = crate::program::command();
    let (stdin, stdout) = (std::process::Stdio::piped(), std::process::Stdio::piped());
    let command = command.current_dir(folder.path()).arg("chat").stdin(stdin).stdout(stdout);
    let mut chat = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    chat.stdin.as_mut().unwrap().write_all(b"what is in the depot?\n").unwrap();
    let lines = std::io::BufReader::new(chat.stdout.as_mut().unwrap()).lines();
    let answer = lines.map(Result::unwrap).find(|line| line.starts_with("bot: "));
    let server = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    assert!(answer.is_some() && is_alive(server.trim()), "{answer:?}");
    let send_signal =
        |signal: &str, process: &str| std::process::Command::new("kill").args([signal, process]).output().unwrap();
    assert!(send_signal("-INT", &chat.id().to_string()).status.success());
    let code = chat.wait().unwrap().code();
    let is_server_alive = is_alive(server.trim());
    if is_server_alive {
        send_signal("-KILL", server.trim());
    }
    assert_eq!((code, is_server_alive), (Some(0), false));
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_check_stops_the_mcp_servers_that_it_started() {
    use std::io::{BufRead as _, Read as _};
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let endpoints = folder.path().join("endpoints.yml");
    // A server that never answers. The pipe ends when it does; if nobody ends it, it writes a second line.
    let shell = "exec 3>pipe; echo started >&3; sleep 60; echo survived >&3";
    let text = std::fs::read_to_string(&endpoints).unwrap().replace("command: segue", "command: sh");
    std::fs::write(&endpoints, text.replace("[demo, ferries]", &format!("[\"-c\", \"{shell}\"]"))).unwrap();
    let mut command = crate::program::command();
    let command = command.current_dir(folder.path()).args(["check", "--online"]).stdout(std::process::Stdio::null());
    let mut check = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut pipe = std::io::BufReader::new(std::fs::File::open(&pipe).unwrap());
    let mut line = String::new();
    pipe.read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    let id = check.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(check.wait().unwrap().code(), Some(3));
    let mut rest = String::new();
    pipe.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn chat_events_on_a_terminal_are_json_lines() {
    // `script` gives the program a terminal. Without `script` the test checks nothing.
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{} chat {} --events", env!("CARGO_BIN_EXE_segue"), project("courier"));
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(folder.path());
    let (stdin, stdout) = (std::process::Stdio::piped(), std::process::Stdio::piped());
    let Ok(mut child) = command.stdin(stdin).stdout(stdout).spawn() else { return };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"track it\n\x04").unwrap();
    let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(out.contains("{\"timestamp\"") && !out.contains("you> "), "{out}");
}

/// A project whose MCP server (`segue demo ferries`) is pinned, and whose agent has hooks that are not registered.
fn project_with_pins() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n");
    write(
        "endpoints.yml",
        "mcp_servers: [{name: ferries, type: stdio, command: segue, args: [demo, ferries, --data, boats.json], pin: true}]\n",
    );
    write("domain.yml", "slots: {x: {type: text, mappings: [{type: controlled}]}}\n");
    write("data/flows.yml", "flows: {ask: {description: asks, steps: [{call: clerk}]}}\n");
    write(
        "sub_agents/clerk/config.yml",
        "agent: {name: clerk, description: helps}\nconfiguration: {module: payments}\nconnections: {mcp_servers: [{name: ferries}]}\n",
    );
    folder
}

#[test]
fn mcp_pins_lists_writes_and_compares_pins() {
    let folder = project_with_pins();
    let pins = |more: &[&str]| run_in(folder.path(), &[&["mcp", "pins"], more].concat(), "");
    let first = pins(&[]);
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(first.out.contains("new     ferries.book_crossing\n") && first.err.contains("--write"), "{}", first.out);
    assert!(!folder.path().join("pins.json").exists());
    assert_eq!(pins(&["--write"]).code, 0);
    let unchanged = pins(&[]);
    assert_eq!(
        (unchanged.code, unchanged.out.contains("same    ferries.book_crossing\n")),
        (0, true),
        "{}{}",
        unchanged.out,
        unchanged.err
    );

    let file = folder.path().join("pins.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["ferries"]["book_crossing"] = "0".into();
    json["ferries"]["sink_ferry"] = "0".into();
    std::fs::write(&file, json.to_string()).unwrap();
    let changed = pins(&["--server", "ferries"]);
    assert_eq!(changed.code, 1, "{}", changed.err);
    assert!(
        changed.out.contains("changed ferries.book_crossing\n") && changed.out.contains("gone    ferries.sink_ferry\n")
    );
    assert_eq!(pins(&["--server", "nobody"]).code, 2);
    assert_eq!(pins(&["--write"]).code, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "the file has its first content again");

    let endpoints = std::fs::read_to_string(folder.path().join("endpoints.yml")).unwrap();
    let missing_command = endpoints.replace("command: segue", "command: segue-that-is-not-there");
    std::fs::write(folder.path().join("endpoints.yml"), missing_command).unwrap();
    let unreachable = pins(&[]);
    assert_eq!((unreachable.code, unreachable.err.contains("T0101")), (3, true), "{}", unreachable.err);
}

#[test]
fn check_reports_unregistered_hooks_and_the_fix() {
    let folder = project_with_pins();
    let checked = run_in(folder.path(), &["check"], "");
    let printed = format!("{}{}", checked.out, checked.err);
    assert_eq!(checked.code, 0, "{printed}");
    assert!(
        printed.contains("warning[A0521]") && printed.contains("`module: payments` is not registered"),
        "{printed}"
    );
    assert!(printed.contains("AssistantBuilder::hooks") && printed.contains("hook server"), "{printed}");
    assert_eq!(run_in(folder.path(), &["check", "--strict"], "").code, 1);
}
