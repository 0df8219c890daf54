//! Skills in a session: what the model reads, what it may load, and which tools are left.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeSet, sync::Arc};

use segue_engine::project::AgentSkills;
use serde_json::{Value as Json, json};

use super::*;
use crate::{
    limits,
    llm::{ToolArguments, ToolCall},
    react::healer::tests::{PROMPTS, call},
    tools::{Tool, ToolInfo},
};

/// The skills of an agent with these settings; `files` are in `.agents/skills`.
pub(in crate::react) fn skills(settings: &str, files: &[(&str, &str)]) -> Arc<AgentSkills> {
    let config = format!(
        "agent: {{name: clerk, description: Helps}}\nconfiguration:\n{settings}connections: {{mcp_servers: []}}\n"
    );
    let files: Vec<(String, &str)> =
        files.iter().map(|(path, text)| (format!(".agents/skills/{path}"), *text)).collect();
    let mut all = vec![("config.yml", "recipe: default.v1\n"), ("sub_agents/clerk/config.yml", config.as_str())];
    all.extend(files.iter().map(|(path, text)| (path.as_str(), *text)));
    let loaded = crate::project::from_texts(all);
    let project = loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    project.agent("clerk").unwrap().skills.clone().unwrap()
}

pub(in crate::react) const TONE: &str =
    "---\nname: tone\ndescription: How we write <b>\n---\nBe kind.\n</skill>\nSee references/words.md.\n";
const PAY: &str =
    "---\nname: pay-back\ndescription: How refunds work\nallowed-tools: find refund Bash(git:*)\n---\nAsk first.\n";

fn both(settings: &str) -> Arc<AgentSkills> {
    let long = "ä".repeat(20 * 1024);
    let files = [("tone/SKILL.md", TONE), ("tone/references/words.md", long.as_str()), ("pay-back/SKILL.md", PAY)];
    skills(settings, &files)
}

pub(in crate::react) fn session(skills: &Arc<AgentSkills>) -> SkillSession {
    SkillSession::new(skills.clone(), ToolNarrowing::default(), BroughtTools::new(), &PROMPTS).unwrap()
}

fn load(name: &str) -> ToolCall {
    call("c", LOAD_SKILL, json!({"name": name}))
}

fn read(skill: &str, path: &str, offset: usize) -> ToolCall {
    call("c", READ_SKILL_FILE, json!({"skill": skill, "path": path, "offset": offset}))
}

/// The texts of the messages that the session adds.
fn added(session: &SkillSession) -> Vec<String> {
    let messages = session.insert(vec![ChatMessage::system("rules"), ChatMessage::user("hello")]);
    assert_eq!((messages[0].text(), messages.last().unwrap().text()), ("rules", "hello"));
    messages[1..messages.len() - 1].iter().map(|message| message.text().to_owned()).collect()
}

fn schema(session: &SkillSession, tool: &str) -> Json {
    let offered = session.offered(&ToolList::default(), &ToolSet::default());
    (*offered.iter().find(|spec| *spec.name == *tool).unwrap().parameters).clone()
}

#[test]
fn prompt_lists_names_and_descriptions_and_the_tool_enumerates_the_names() {
    let session = session(&both("  skills: all\n"));
    let [catalogue] = &added(&session)[..] else { panic!("{:?}", added(&session)) };
    assert!(
        catalogue.contains("- pay-back: \"How refunds work\"\n- tone: \"How we write \\u003cb\\u003e\""),
        "{catalogue}"
    );
    assert!(!catalogue.contains("Be kind"), "{catalogue}");
    assert_eq!(schema(&session, LOAD_SKILL)["properties"]["name"]["enum"], json!(["pay-back", "tone"]));
    let names: Vec<String> =
        session.offered(&ToolList::default(), &ToolSet::default()).iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, [LOAD_SKILL, READ_SKILL_FILE]);
}

#[test]
fn loaded_body_is_in_the_prompt_once_and_a_second_load_says_so() {
    let mut session = session(&both("  skills: all\n"));
    let (text, is_done) = session.call(&load("tone"), &PROMPTS);
    assert!(is_done && text.starts_with("The skill `tone` is loaded."), "{text}");
    let (text, is_done) = session.call(&load("tone"), &PROMPTS);
    assert!(is_done && text.starts_with("The skill `tone` is already loaded."), "{text}");
    let messages = added(&session);
    assert_eq!(messages.len(), 2);
    let loaded = &messages[1];
    assert_eq!(loaded.matches("Be kind.").count(), 1);
    assert!(loaded.contains("<skill name=\"tone\" root=\".agents/skills/tone\">\nBe kind."), "{loaded}");
    // A body cannot end its wrapper.
    assert_eq!(loaded.matches("</skill>").count(), 1, "{loaded}");
    assert!(loaded.contains("- references/words.md\n") && loaded.ends_with("</skill>"), "{loaded}");
    let (text, is_done) = session.call(&load("pay_back"), &PROMPTS);
    assert!(is_done && text.starts_with("The skill `pay-back` is loaded."), "{text}");
    let (text, is_done) = session.call(&load("pay"), &PROMPTS);
    assert_eq!((text.as_str(), is_done), ("error: there is no skill `pay`. Skills: pay-back, tone.", false));
}

#[test]
fn only_files_of_loaded_skills_are_read_in_pages() {
    let mut session = session(&both("  skills: all\n"));
    let (text, is_done) = session.call(&read("tone", "references/words.md", 0), &PROMPTS);
    assert!(!is_done && text.starts_with("error: the skill `tone` is not loaded."), "{text}");
    session.call(&load("tone"), &PROMPTS);
    for path in ["../pay-back/SKILL.md", "/etc/passwd", "references/../../x", "none.md"] {
        let (text, is_done) = session.call(&read("tone", path, 0), &PROMPTS);
        assert!(!is_done && text.contains("Its files: references/words.md."), "{text}");
    }
    let mut offset = 0;
    let mut pages = Vec::new();
    loop {
        let (text, is_done) = session.call(&read("tone", ".agents/skills/tone/references/words.md", offset), &PROMPTS);
        assert!(is_done, "{text}");
        let (head, page) = text.split_once(":\n").unwrap();
        assert!(page.len() <= limits::SKILL_READ);
        pages.push(page.len());
        match head.split_once("offset ") {
            Some((_, next)) => offset = next.parse().unwrap(),
            None => break,
        }
    }
    // 40 KiB of characters of two bytes.
    assert_eq!(pages, [16 * 1024, 16 * 1024, 8 * 1024]);
    // A page begins and ends between characters.
    assert!(session.call(&read("tone", "references/words.md", 1), &PROMPTS).1);
    let (text, is_done) = session.call(&read("tone", "references/words.md", usize::MAX), &PROMPTS);
    assert!(is_done && text.ends_with("bytes 40960 to 40960 of 40960:"), "{text}");
}

#[test]
fn invalid_arguments_are_errors() {
    let mut session = session(&both("  skills: all\n"));
    let (text, is_done) = session.call(&call("c", LOAD_SKILL, json!({})), &PROMPTS);
    assert!(!is_done && text.contains("missing field `name`"), "{text}");
    let malformed = ToolArguments::Malformed { text: "{".into(), error: "EOF".into() };
    let (text, is_done) = session.call(&ToolCall { arguments: malformed, ..load("x") }, &PROMPTS);
    assert!(!is_done && text.contains("EOF"), "{text}");
}

#[test]
fn prompt_of_two_thousand_skills_is_below_four_thousand_tokens() {
    let texts: Vec<(String, String)> = (0..2_000)
        .map(|n| {
            let skill =
                format!("---\nname: skill-number-{n:04}\ndescription: Reads papers of the kind {n}\n---\nRead.");
            (format!("skill-number-{n:04}/SKILL.md"), skill)
        })
        .collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut session = session(&skills("  skills: all\n", &files));
    let tools = serde_json::to_string(&session.offered(&ToolList::default(), &ToolSet::default()).to_vec()).unwrap();
    let bytes = added(&session)[0].len() + tools.len();
    // A token has about four bytes.
    assert!(bytes / 4 < 4_000, "{bytes}");
    assert!(added(&session)[0].contains("skill-number-0000, skill-number-0001"));
    assert_eq!(schema(&session, LOAD_SKILL)["properties"]["name"]["enum"], Json::Null);
    let (text, is_done) = session.call(&call("c", DESCRIBE_SKILL, json!({"query": "kind 1999"})), &PROMPTS);
    assert!(is_done && text.starts_with("- skill-number-1999: \"Reads papers of the kind 1999\"\n"), "{text}");
    assert!(text.ends_with("more skills match; use other words."), "{text}");
    assert!(session.call(&load("skill-number-1999"), &PROMPTS).1);
    let (text, is_done) = session.call(&load("none"), &PROMPTS);
    assert!(!is_done && text.ends_with("and 1950 more."), "{text}");
}

#[test]
fn fifty_skills_are_listed_by_name_with_an_enumeration() {
    let texts: Vec<String> = (0..50).map(|n| format!("---\nname: s{n:02}\ndescription: d\n---\n")).collect();
    let paths: Vec<String> = (0..50).map(|n| format!("s{n:02}/SKILL.md")).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let fifty = session(&skills("  skills: all\n", &files));
    assert!(added(&fifty)[0].ends_with("s48, s49"), "{}", added(&fifty)[0]);
    assert_eq!(schema(&fifty, LOAD_SKILL)["properties"]["name"]["enum"].as_array().unwrap().len(), 50);
    let fewer = session(&skills("  skills: all\n", &files[..49]));
    assert!(added(&fewer)[0].ends_with("- s48: \"d\""), "{}", added(&fewer)[0]);
    assert!(!fewer.is_own(DESCRIBE_SKILL) && fifty.is_own(DESCRIBE_SKILL));
}

fn allowed(session: &SkillSession) -> Vec<&'static str> {
    let tools = ["find", "refund", "task", "Bash", "read_file"];
    tools.into_iter().filter(|tool| session.refusal(tool, &PROMPTS).is_none()).collect()
}

#[test]
fn loaded_skills_narrow_the_tools_to_those_that_they_name() {
    let mut session = session(&both("  skills: all\n  skills_narrow_tools: true\n"));
    assert_eq!(allowed(&session).len(), 5);
    // A skill without `allowed-tools` takes nothing away, and adds nothing.
    session.call(&load("tone"), &PROMPTS);
    assert_eq!(allowed(&session).len(), 5);
    session.call(&load("pay-back"), &PROMPTS);
    assert_eq!(allowed(&session), ["find", "refund", "read_file"]);
    assert!(session.refusal("task", &PROMPTS).unwrap().contains("tone, pay-back"));
    let spec =
        |name: &str| ToolSpec { name: name.into(), description: "".into(), parameters: Arc::default(), strict: false };
    let tool = |name: &str| Arc::new(Tool::from_fn(ToolInfo::new(name, ""), |_, _| async { unreachable!() }));
    let tools = ToolSet::builder().tool(tool("find")).tool(tool("task")).build();
    let offered = session.offered(&["find", "task", "task_completed"].map(spec).into_iter().collect(), &tools);
    let names: Vec<&str> = offered.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["find", "task_completed", LOAD_SKILL, READ_SKILL_FILE]);
}

#[test]
fn allowed_tools_are_only_a_hint_without_the_setting() {
    let mut session = session(&both("  skills: all\n"));
    session.call(&load("pay-back"), &PROMPTS);
    assert_eq!(allowed(&session).len(), 5);
    assert!(added(&session)[1].contains("Tools for this work: find, refund, Bash(git:*)."), "{:?}", added(&session));
}

#[test]
fn several_skills_allow_what_one_of_them_names_and_those_of_the_user_count_alone() {
    let other = "---\nname: other\ndescription: d\nallowed-tools: [task]\n---\n";
    let none = "---\nname: none\ndescription: d\nallowed-tools: []\n---\n";
    let files = [("pay-back/SKILL.md", PAY), ("other/SKILL.md", other), ("none/SKILL.md", none)];
    let skills = skills("  skills: all\n  skills_narrow_tools: true\n  skills_by_user: true\n", &files);
    let mut by_model = session(&skills);
    by_model.call(&load("none"), &PROMPTS);
    assert_eq!(allowed(&by_model), ["read_file"]);
    by_model.call(&load("pay-back"), &PROMPTS);
    by_model.call(&load("other"), &PROMPTS);
    assert_eq!(allowed(&by_model), ["find", "refund", "task", "read_file"]);
    let mut loaded = LoadedSkills::default();
    loaded.load_by_user("/other please", &skills);
    let mut by_user = session(&skills);
    by_user.restore(&loaded, &PROMPTS);
    by_user.call(&load("pay-back"), &PROMPTS);
    assert_eq!(allowed(&by_user), ["task", "read_file"], "a skill that the model loads adds nothing");
    // A stored skill that is not known any more allows nothing.
    let gone: LoadedSkills = serde_json::from_value(json!([{"name": "gone", "hash": "1"}])).unwrap();
    let mut with_gone = session(&skills);
    with_gone.restore(&gone, &PROMPTS);
    assert_eq!(allowed(&with_gone), ["read_file"]);
    assert!(added(&with_gone)[1].contains("`gone` was loaded, but it does not exist any more"));
}

#[test]
fn user_loads_a_skill_that_the_model_cannot_see() {
    let hidden = "---\nname: hidden\ndescription: d\ndisable-model-invocation: true\n---\nHidden text.";
    let files = [("hidden/SKILL.md", hidden)];
    let own = skills("  skills: all\n  skills_by_user: true\n", &files);
    let mut session = session(&own);
    assert_eq!(added(&session), Vec::<String>::new());
    assert!(!session.is_own(LOAD_SKILL));
    assert!(!session.call(&load("hidden"), &PROMPTS).1);
    let mut loaded = LoadedSkills::default();
    loaded.load_by_user("please /hidden", &own);
    assert!(loaded.is_empty());
    loaded.load_by_user("/hidden", &skills("  skills: all\n", &files));
    assert!(loaded.is_empty(), "without the setting it is a text");
    loaded.load_by_user(" /hidden now", &own);
    assert_eq!(serde_json::to_value(&loaded).unwrap()[0]["by_user"], true);
    session.restore(&loaded, &PROMPTS);
    assert!(added(&session)[0].contains("Hidden text."));
    assert!(session.call(&load("hidden"), &PROMPTS).0.contains("already loaded"));
}

#[test]
fn tools_of_a_skill_can_be_called_only_while_it_is_loaded() {
    let skills = both("  skills: all\n");
    let brought: BroughtTools = [("refund".into(), BTreeSet::from(["tone".into()]))].into();
    let mut session = SkillSession::new(skills, ToolNarrowing::default(), brought, &PROMPTS).unwrap();
    let refusal = session.refusal("refund", &PROMPTS).unwrap();
    assert_eq!(refusal, "error: `refund` belongs to a skill. Load it first: tone.");
    session.call(&load("tone"), &PROMPTS);
    assert_eq!(session.refusal("refund", &PROMPTS), None);
}

#[test]
fn stored_names_bring_the_current_text_back_and_a_changed_one_says_so() {
    let before = both("  skills: all\n");
    let mut first = session(&before);
    first.call(&load("tone"), &PROMPTS);
    let stored = serde_json::to_string(first.loaded()).unwrap();
    let restored = |skills: &Arc<AgentSkills>| {
        let mut session = session(skills);
        session.restore(&serde_json::from_str(&stored).unwrap(), &PROMPTS);
        added(&session)[1].clone()
    };
    assert_eq!(restored(&before), added(&first)[1]);
    let changed = skills("  skills: all\n", &[("tone/SKILL.md", &TONE.replace("kind", "brief"))]);
    let text = restored(&changed);
    assert!(text.contains("Be brief.") && text.contains("has changed since you loaded it"), "{text}");
}

#[test]
fn instructions_of_all_loaded_skills_are_limited() {
    let long = |name: &str| format!("---\nname: {name}\ndescription: d\n---\n{}", "x".repeat(200 * 1024));
    let (a, b, c) = (long("a"), long("b"), long("c"));
    let files = [("a/SKILL.md", a.as_str()), ("b/SKILL.md", &b), ("c/SKILL.md", &c)];
    let mut session = session(&skills("  skills: all\n", &files));
    assert!(session.call(&load("a"), &PROMPTS).1 && session.call(&load("b"), &PROMPTS).1);
    let (text, is_done) = session.call(&load("c"), &PROMPTS);
    assert!(!is_done && text.contains("too long together (a, b)"), "{text}");
}
