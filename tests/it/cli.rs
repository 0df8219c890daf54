//! The program by hand: what people and scripts see of each command.

use crate::{
    program::{run, run_in},
    project,
};

#[test]
fn a_piped_talk_prints_replies_and_nothing_else() {
    let ran = run(&["chat", &project("courier")], "track something\nthe number X7\nsend one\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.lines();
    assert_eq!(
        &lines[..3],
        ["bot: Which parcel?", "bot: The number stands on your receipt.", "bot: Parcel X7 is under way."]
    );
    assert!(lines.contains(&"bot: How fast?"), "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("bot: ")), "buttons are for people: {lines:?}");
    assert!(ran.err.contains("courier is scripted"), "{}", ran.err);
}

#[test]
fn what_an_agent_says_meanwhile_is_marked_as_filler() {
    let ran = run(&["chat", &project("courier")], "what is in the depot?\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        ran.lines(),
        ["filler: One moment, I look into the timetable.", "bot: The depot has ports."],
        "{}",
        ran.err
    );
}

#[test]
fn an_empty_line_is_a_message_too_and_input_without_utf8_ends_nothing() {
    let ran = run(&["chat", &project("courier")], "\n\u{0}\ntrack it\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("bot: Which parcel?"), "{}", ran.out);
}

#[test]
fn events_are_json_lines() {
    let ran = run(&["chat", &project("courier"), "--events"], "track\n");
    let events: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"user") && kinds.contains(&"bot") && kinds.contains(&"flow_started"), "{kinds:?}");
}

#[test]
fn a_stored_talk_goes_on_is_traced_and_replays_equal() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let talk = ["chat", &courier, "--store", "sqlite:talks.db", "--conversation", "c1"];
    assert_eq!(run_in(folder.path(), &talk, "track it\n").code, 0);
    let second = run_in(folder.path(), &talk, "number X7\n");
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
fn a_replay_that_differs_fails() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("courier");
    crate::folder::copy_folder(project("courier").as_ref(), &copy);
    let talk = ["chat", "courier", "--store", "talks.db", "--conversation", "c1"];
    run_in(folder.path(), &talk, "track it\nnumber X7\n");
    let domain = copy.join("domain.yml");
    let text = std::fs::read_to_string(&domain).unwrap();
    std::fs::write(&domain, text.replace("is under way", "got lost")).unwrap();
    let replay = run_in(folder.path(), &["replay", "c1", "courier", "--store", "talks.db"], "");
    assert_eq!(replay.code, 1, "{}{}", replay.out, replay.err);
    assert!(replay.out.contains("turn 2") && replay.out.contains("got lost"), "{}", replay.out);
}

#[test]
fn check_shows_every_finding_with_its_line_and_fails() {
    let ran = run(&["check", &project("broken")], "");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("flows/flows.yml:6:15: error["), "{}", ran.out);
    assert!(ran.out.contains("next: don") && ran.out.contains("^^^") && ran.out.contains("= help: "), "{}", ran.out);
    assert!(ran.out.contains("utter_missing"), "{}", ran.out);

    let ran = run(&["check", &project("broken"), "--format", "json"], "");
    assert_eq!(ran.code, 1);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let errors = json["summary"]["errors"].as_u64().unwrap();
    let findings = json["findings"].as_array().unwrap();
    let counted = findings.iter().filter(|finding| finding["severity"] == "error").count() as u64;
    assert!(errors >= 2 && errors == counted, "{json}");
    let place = |finding: &serde_json::Value| finding["file"] == "flows/flows.yml" && finding["line"] == 6;
    assert!(findings.iter().any(place), "{json}");
}

#[test]
fn a_sound_project_passes_and_a_broken_one_does_not_chat() {
    let ran = run(&["check", &project("courier"), "--strict"], "");
    assert_eq!((ran.code, ran.lines().last().copied()), (0, Some("0 errors, 0 warnings")), "{}", ran.out);
    let ran = run(&["chat", &project("broken")], "hi\n");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("flows/flows.yml:6:15: error["), "{}", ran.err);
}

#[test]
fn check_warns_of_a_template_that_nothing_uses() {
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
fn flows_are_drawn() {
    let map = run(&["graph", &project("courier")], "");
    assert_eq!(map.code, 0, "{}", map.err);
    assert!(map.out.starts_with("flowchart TD\n") && map.out.contains("agent clerk"), "{}", map.out);
    let steps = run(&["graph", "track_parcel", &project("courier"), "--format", "dot"], "");
    assert!(steps.out.contains("label=\"ask parcel\"") && steps.out.ends_with("}\n"), "{}", steps.out);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.mmd");
    let ran = run(&["graph", &project("courier"), "--all", "-o", file.to_str().unwrap()], "");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert!(std::fs::read_to_string(file).unwrap().starts_with("flowchart TD\n"));
    let wrong = run(&["graph", "track_parcle", &project("courier")], "");
    assert!(wrong.code == 2 && wrong.err.contains("did you mean `track_parcel`?"), "{}", wrong.err);
}

#[test]
fn check_asks_the_tool_servers_when_told_to() {
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
fn parts_may_stand_elsewhere() {
    let ran = run(&["check", &project("courier"), "--data", &format!("{}/flows", project("broken"))], "");
    assert_eq!(ran.code, 1, "{}", ran.out);
}

#[test]
fn codes_are_explained() {
    let list = run(&["explain"], "");
    assert_eq!(list.code, 0);
    assert!(list.lines().iter().any(|line| line.starts_with("R0201: ")), "{}", list.out);
    let page = run(&["explain", "r0201"], "");
    assert!(page.out.starts_with("# R0201: ") && page.out.contains("## How to fix it"), "{}", page.out);
    let unknown = run(&["explain", "Z9999"], "");
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
}

#[test]
fn a_new_project_of_every_template_runs_and_passes_its_tests() {
    for (template, first) in
        [("blank", "send money"), ("agents", "Which ports do you sail from?"), ("ferries", "hello")]
    {
        let folder = tempfile::tempdir().unwrap();
        let made = run_in(folder.path(), &["init", "mine", "--template", template, "--skill"], "");
        assert_eq!(made.code, 0, "{template}: {}", made.err);
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
fn a_new_project_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run_in(folder.path(), &["init", "mine"], "").code, 0);
    let config = folder.path().join("mine/config.yml");
    std::fs::write(&config, "# mine").unwrap();
    std::fs::remove_file(folder.path().join("mine/domain.yml")).unwrap();
    let again = run_in(folder.path(), &["init", "mine"], "");
    assert_eq!(again.code, 3);
    assert!(again.err.contains("exists already"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine");
    assert!(!folder.path().join("mine/domain.yml").exists(), "all files are looked at before the first is written");
}

#[test]
fn exit_codes_tell_usage_from_missing_things() {
    assert_eq!(run(&["chat", "--nonsense"], "").code, 2);
    assert_eq!(run(&[], "").code, 2);
    assert_eq!(run(&["--version"], "").code, 0);
    let missing = run(&["chat", "no/such/folder"], "");
    assert_eq!(missing.code, 3);
    assert!(missing.err.contains("no/such/folder") && missing.err.contains("segue init"), "{}", missing.err);
}

#[test]
fn a_project_behind_an_option_of_several_values_is_the_project() {
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), &folder.path().join("mine"));
    for arguments in [&["check", "--data", "flows", "mine"] as &[&str], &["check", "-d", "domain.yml", "mine"]] {
        let ran = run_in(folder.path(), arguments, "");
        assert_eq!(ran.lines().last().copied(), Some("0 errors, 0 warnings"), "{arguments:?}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn levels_of_the_log_have_the_names_of_python_too_and_others_are_refused() {
    let log = |level: &str, arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = crate::program::command();
        let command = command.env("LOG_LEVEL", level).current_dir(folder.path()).args(arguments);
        let done = command.stdin(std::process::Stdio::null()).output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let broken_channel = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), broken_channel.path());
    std::fs::write(broken_channel.path().join("credentials.yml"), "rest:\nslack:\n").unwrap();
    let endpoints = broken_channel.path().join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, text.replace("command: segue", "command: no-such-program")).unwrap();
    let run = ["run", broken_channel.path().to_str().unwrap(), "--port", "0", "--strict", "--store", "memory"];
    for (level, is_logged) in [("WARNING", true), ("warn", true), ("INFO", true), ("CRITICAL", false)] {
        let (code, said) = log(level, &run);
        assert_eq!((code, said.contains("WARN")), (3, is_logged), "{level}: {said}");
        // What ends the program is told in words.
        assert!(said.contains("the MCP server depot does not answer") && !said.contains("Down {"), "{said}");
    }
    let (code, said) = log("verbose", &["chat", &project("courier")]);
    assert!(code == 3 && said.contains("`verbose` is not a level") && said.contains("warning"), "{said}");
}

#[test]
fn what_stands_in_the_query_of_an_address_is_not_printed() {
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
            let done =
                command.env("KEY", secret).env("LOG_LEVEL", "debug").current_dir(folder.path()).args(line).output();
            let done = done.unwrap();
            format!("{}{}", String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
        });
    assert!(outputs[0].contains("the card at http://127.0.0.1:1/card?…"), "{}", outputs[0]);
    assert!(outputs[1].contains("does not answer"), "{}", outputs[1]);
    for text in outputs.iter().chain([&store.err, &import.err]) {
        assert!(!text.contains(secret), "{text}");
    }
}

/// Whether a process is there and has not ended.
#[cfg(target_os = "linux")]
fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[cfg(target_os = "linux")]
#[test]
fn a_talk_that_is_interrupted_leaves_no_server_behind() {
    use std::io::{BufRead as _, Write as _};
    let folder = tempfile::tempdir().unwrap();
    crate::folder::copy_folder(project("courier").as_ref(), folder.path());
    let endpoints = folder.path().join("endpoints.yml");
    // The server ends with its input, the shell around it does not.
    let shell = format!("echo $$ > pid; {} demo ferries; exec sleep 600", env!("CARGO_BIN_EXE_segue"));
    let text = std::fs::read_to_string(&endpoints).unwrap().replace("command: segue", "command: sh");
    std::fs::write(&endpoints, text.replace("[demo, ferries]", &format!("[\"-c\", \"{shell}\"]"))).unwrap();
    let mut command = crate::program::command();
    let (stdin, stdout) = (std::process::Stdio::piped(), std::process::Stdio::piped());
    let command = command.current_dir(folder.path()).arg("chat").stdin(stdin).stdout(stdout);
    let mut talk = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    talk.stdin.as_mut().unwrap().write_all(b"what is in the depot?\n").unwrap();
    let lines = std::io::BufReader::new(talk.stdout.as_mut().unwrap()).lines();
    let answer = lines.map(Result::unwrap).find(|line| line.starts_with("bot: "));
    let server = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    assert!(answer.is_some() && is_alive(server.trim()), "{answer:?}");
    let signal = |what: &str, process: &str| std::process::Command::new("kill").args([what, process]).output().unwrap();
    assert!(signal("-INT", &talk.id().to_string()).status.success());
    let code = talk.wait().unwrap().code();
    let is_left = is_alive(server.trim());
    if is_left {
        signal("-KILL", server.trim());
    }
    assert_eq!((code, is_left), (Some(0), false));
}

#[test]
fn events_on_a_terminal_are_json_lines_too() {
    // `script` gives the program a terminal; where it is missing there is nothing to see.
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

/// A project with the demonstration's server, pinned, and an agent whose hooks nobody registered.
fn pinned() -> tempfile::TempDir {
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
fn pins_are_shown_written_and_held_against_what_a_server_lists() {
    let folder = pinned();
    let pins = |more: &[&str]| run_in(folder.path(), &[&["mcp", "pins"], more].concat(), "");
    let first = pins(&[]);
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(first.out.contains("new     ferries.book_crossing\n") && first.err.contains("--write"), "{}", first.out);
    assert!(!folder.path().join("pins.json").exists());
    assert_eq!(pins(&["--write"]).code, 0);
    let same = pins(&[]);
    assert_eq!(
        (same.code, same.out.contains("same    ferries.book_crossing\n")),
        (0, true),
        "{}{}",
        same.out,
        same.err
    );

    let file = folder.path().join("pins.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["ferries"]["book_crossing"] = "0".into();
    json["ferries"]["sink_ferry"] = "0".into();
    std::fs::write(&file, json.to_string()).unwrap();
    let other = pins(&["--server", "ferries"]);
    assert_eq!(other.code, 1, "{}", other.err);
    assert!(
        other.out.contains("changed ferries.book_crossing\n") && other.out.contains("gone    ferries.sink_ferry\n")
    );
    assert_eq!(pins(&["--server", "nobody"]).code, 2);
    assert_eq!(pins(&["--write"]).code, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "as it was");

    let endpoints = std::fs::read_to_string(folder.path().join("endpoints.yml")).unwrap();
    let nowhere = endpoints.replace("command: segue", "command: segue-that-is-not-there");
    std::fs::write(folder.path().join("endpoints.yml"), nowhere).unwrap();
    let lost = pins(&[]);
    assert_eq!((lost.code, lost.err.contains("T0101")), (3, true), "{}", lost.err);
}

#[test]
fn hooks_that_nobody_registered_are_found_with_the_cure() {
    let folder = pinned();
    let checked = run_in(folder.path(), &["check"], "");
    let words = format!("{}{}", checked.out, checked.err);
    assert_eq!(checked.code, 0, "{words}");
    assert!(words.contains("warning[A0521]") && words.contains("`module: payments` is not registered"), "{words}");
    assert!(words.contains("AssistantBuilder::hooks") && words.contains("hook server"), "{words}");
    assert_eq!(run_in(folder.path(), &["check", "--strict"], "").code, 1);
}
