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
    copy_folder(project("courier").as_ref(), &copy);
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
fn flows_are_drawn() {
    let map = run(&["graph", &project("courier")], "");
    assert_eq!(map.code, 0, "{}", map.err);
    assert!(map.out.starts_with("flowchart TD\n") && map.out.contains("agent clerk"), "{}", map.out);
    let steps = run(&["graph", "track_parcel", &project("courier"), "--format", "dot"], "");
    assert!(steps.out.contains("label=\"ask parcel\"") && steps.out.ends_with("}\n"), "{}", steps.out);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.svg");
    let ran = run(&["graph", &project("courier"), "--all", "--format", "svg", "-o", file.to_str().unwrap()], "");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert!(std::fs::read_to_string(file).unwrap().ends_with("</svg>\n"));
    let wrong = run(&["graph", "track_parcle", &project("courier")], "");
    assert!(wrong.code == 2 && wrong.err.contains("did you mean `track_parcel`?"), "{}", wrong.err);
}

#[test]
fn check_asks_the_tool_servers_when_told_to() {
    let up = run(&["check", &project("courier"), "--online"], "");
    assert_eq!(up.code, 0, "{}", up.out);
    let folder = tempfile::tempdir().unwrap();
    copy_folder(project("courier").as_ref(), folder.path());
    let endpoints = folder.path().join("endpoints.yml");
    let text = std::fs::read_to_string(&endpoints).unwrap();
    std::fs::write(&endpoints, text.replace("command: segue", "command: no-such-program")).unwrap();
    assert_eq!(run_in(folder.path(), &["check"], "").code, 0);
    let down = run_in(folder.path(), &["check", "--online"], "");
    assert_eq!(down.code, 1, "{}", down.out);
    assert!(down.out.contains("error[T0101]: the tool server `depot` does not answer"), "{}", down.out);
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
    assert!(page.out.starts_with("# R0201: ") && page.out.contains("## How to mend it"), "{}", page.out);
    let unknown = run(&["explain", "Z9999"], "");
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
}

#[test]
fn a_new_project_runs_at_once_and_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let made = run_in(folder.path(), &["init", "mine"], "");
    assert_eq!(made.code, 0, "{}", made.err);
    let checked = run_in(folder.path(), &["check", "mine"], "");
    assert_eq!(checked.code, 0, "{}", checked.out);
    let talked = run_in(folder.path(), &["chat", "mine"], "hello\n");
    assert_eq!(talked.code, 0, "{}", talked.err);
    assert!(talked.out.starts_with("bot: "), "{}", talked.out);

    let config = folder.path().join("mine/config.yml");
    std::fs::write(&config, "# mine").unwrap();
    std::fs::remove_file(folder.path().join("mine/domain.yml")).unwrap();
    let again = run_in(folder.path(), &["init", "mine"], "");
    assert_eq!(again.code, 3);
    assert!(again.err.contains("config.yml"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine");
    assert!(!folder.path().join("mine/domain.yml").exists(), "nothing is written before all was looked at");
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

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
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
