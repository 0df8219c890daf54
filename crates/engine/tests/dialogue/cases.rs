//! Conversations as data. A file names a project: a folder under `projects/`, or files by name; a case may override parts of
//! `config`, `domain` and `flows` (`with`). Every case is also checked for the invariants, so that the shortest form of a
//! failed random conversation is a case. `SEGUE_CASE=<part of a name>` runs single cases. A case is a list of turns:
//!
//! * `deploys`: such a map again, for a new version of the project that is deployed before the turn;
//! * `trigger` instead of `user`: `intent` or `flow`, `values`, `reminder`;
//! * `user`: the message; `channel`, `metadata`, `wait` (minutes before it), `before_question: true` if its sender had not got the open question;
//! * `do`: the outcome of each requested effect, in order: `commands: […]`, `act: name` with `slots`, `says`,
//!   `followup`, `events` as JSON, `fails` (and `code`, `in_doubt: true`), `rejects`, `answers` (as an action server does); `tool: name` with `result`, `fails`, `unknown`, and `arguments` to compare; `agent: name` with
//!   `status` (and `code`), `says`, `slots`, `in_doubt` (a tool) and `call` to compare; `search: answered` with `text`, `search: none`, `search: failed` with the partial answer
//!   (`said`); `exhausted: what`; `interrupted: true`; `upgraded: true` (and `in_doubt`);
//! * `cut: true` when the next message arrives before the turn is over; `becomes` (files by name) when the project changes first;
//! * then the expected result: `says` (response names, or texts), `texts`, `slots`, `stack`, `events` (in this order,
//!   others between them), `all_events` (these and no others), `no_events`, `why` (parts of its JSON), `reminders` (names of the pending ones), `ends` when the session is over.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use segue_engine::{
    conversation::{
        ActionOutcome, AgentOutcome, AgentStatus, BotKind, BotMessage, Event, EventKind, Reply, SearchOutcome,
        StepError, ToolResult,
    },
    dialogue::{InputKind, Next},
    ids::{ActionName, AgentName, SlotName},
    project::Project,
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use crate::{
    driver::{Driver, command},
    invariants::{self, InvariantChecker},
    project,
};

#[test]
fn dialogue_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogue/cases");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let only = std::env::var("SEGUE_CASE").ok();
    let (mut count, mut failures, mut reasons) = (0, Vec::new(), BTreeSet::new());
    for path in files {
        let file: Json = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let project = project_of(&file["project"]);
        for case in file["cases"].as_array().unwrap() {
            let name = format!("{}: {}", path.file_stem().unwrap().to_string_lossy(), case["case"].as_str().unwrap());
            if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
                continue;
            }
            count += 1;
            let own = |with: &Json| project::variant(file["project"].as_str().unwrap(), with);
            let project = if case["with"].is_null() { project.clone() } else { own(&case["with"]) };
            let mut driver = Driver::new(project);
            let mut checker = InvariantChecker::new(&driver);
            for (at, turn) in case["turns"].as_array().unwrap().iter().enumerate() {
                if !turn["deploys"].is_null() {
                    driver.project = own(&turn["deploys"]);
                }
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    play(&mut driver, turn);
                    let sound = checker.turn(&driver).and_then(|()| invariants::check_cancellable(&driver));
                    assert_eq!(sound, Ok(()));
                }));
                let kinds = driver.reasons.iter().map(|why| serde_json::to_value(why).unwrap()["reason"].to_string());
                reasons.extend(kinds);
                if outcome.is_err() {
                    failures.push(format!("{name}, turn {}", at + 1));
                    break;
                }
            }
            if let Err(violation) = invariants::check_conversation(&driver, count * 7) {
                failures.push(format!("{name}, at its end: {violation:?}"));
            }
        }
    }
    let all = ["branch", "condition", "dropped", "failed", "note", "rejected", "replaced", "shortcut", "step"];
    let seen: Vec<String> = all.iter().map(|kind| format!("\"{kind}\"")).collect();
    assert!(only.is_some() || reasons == seen.into_iter().collect(), "kinds of reasons in the cases: {reasons:?}");
    assert!(count > 0 && failures.is_empty(), "{} of {count} cases fail: {failures:#?}", failures.len());
}

fn project_of(json: &Json) -> Arc<Project> {
    match json {
        Json::String(folder) => project::load(folder),
        files => project::of_files(
            files.as_object().unwrap().iter().map(|(path, text)| (path.as_str(), text.as_str().unwrap())),
        ),
    }
}

fn play(driver: &mut Driver, turn: &Json) {
    const KEYS: &[&str] = &[
        "becomes",
        "cut",
        "user",
        "deploys",
        "trigger",
        "reminders",
        "channel",
        "metadata",
        "before_question",
        "wait",
        "do",
        "says",
        "texts",
        "slots",
        "stack",
        "agents",
        "events",
        "all_events",
        "no_events",
        "why",
        "ends",
        "buttons",
    ];
    for key in turn.as_object().unwrap().keys() {
        assert!(KEYS.contains(&key.as_str()), "no such key: {key}");
    }
    if !turn["becomes"].is_null() {
        driver.project = project_of(&turn["becomes"]);
    }
    driver.wait(turn["wait"].as_f64().unwrap_or(0.0));
    let metadata = turn["metadata"].as_object().cloned().unwrap_or_default();
    if turn["trigger"].is_null() {
        driver.before_question = turn["before_question"] == true;
        driver.user_with(turn["user"].as_str().unwrap(), turn["channel"].as_str().unwrap_or("rest"), metadata);
    } else {
        driver.trigger(serde_json::from_value(turn["trigger"].clone()).unwrap());
    }
    for answer in turn["do"].as_array().unwrap_or(&Vec::new()) {
        give(driver, answer);
    }
    let end = if turn["ends"] == true { Next::EndSession } else { Next::Listen };
    assert!(
        driver.next == end || turn["cut"] == true,
        "the turn must be over, but the engine requests {:?}",
        driver.next
    );
    expect(driver, turn);
}

/// The event of a tool call with an unknown outcome.
fn unknown(tool: &str, agent: Option<&str>) -> EventKind {
    EventKind::ToolExecuted {
        server: None,
        tool_name: tool.into(),
        agent_id: agent.map(Into::into),
        arguments: Json::Null,
        status: "unknown".to_owned(),
        summary: None,
        origins: Default::default(),
        effect: None,
        writes: Default::default(),
    }
}

/// Passes one outcome to the engine.
pub(crate) fn give(driver: &mut Driver, answer: &Json) {
    if answer["upgraded"] == true {
        let outcomes = answer["in_doubt"].as_str().map(|tool| unknown(tool, None)).into_iter().collect();
        driver.input(InputKind::VersionChanged { outcomes });
    } else if answer["interrupted"] == true {
        driver.input(InputKind::Interrupted);
    } else if let Some(budget) = answer["exhausted"].as_str() {
        driver.input(InputKind::BudgetExhausted { budget: budget.to_owned() });
    } else if let Some(commands) = answer["commands"].as_array() {
        assert_eq!(driver.next, Next::Understand, "the command generator is called");
        let commands = commands.iter().map(|line| command(line.as_str().unwrap())).collect();
        driver.input(InputKind::Commands(commands));
    } else if let Some(name) = answer["act"].as_str() {
        let Next::Act(call) = &driver.next else {
            panic!("expected a request for action {name}, got {:?}", driver.next)
        };
        assert_eq!(call.name, *name);
        driver.input(InputKind::ActionOutcome(match answer["fails"].as_str() {
            Some(reason) => ActionOutcome::Failed(match answer["code"].as_str() {
                Some(code) if answer["in_doubt"] == true => StepError::in_doubt(code, reason),
                Some(code) => StepError::new(code, reason),
                None => StepError::new("failed", reason),
            }),
            None if answer["rejects"].is_string() => {
                ActionOutcome::Rejected { reason: answer["rejects"].as_str().unwrap().to_owned() }
            }
            None if answer["answers"].is_object() => {
                ActionOutcome::ServerResponse(serde_json::from_value(answer["answers"].clone()).unwrap())
            }
            None => ActionOutcome::Done { events: events_of(answer, None) },
        }));
    } else if let Some(name) = answer["tool"].as_str() {
        let Next::Tool(call) = &driver.next else {
            panic!("expected a request for tool {name}, got {:?}", driver.next)
        };
        assert_eq!(call.tool, *name);
        if !answer["arguments"].is_null() {
            assert_eq!(Json::Object(call.arguments.clone()), answer["arguments"]);
        }
        driver.input(InputKind::ToolResult(if let Some(reason) = answer["fails"].as_str() {
            ToolResult::Failed { reason: reason.to_owned() }
        } else if let Some(slots) = answer["wants"].as_array() {
            let slots = slots.iter().map(|slot| slot.as_str().unwrap().into()).collect();
            ToolResult::NeedsInput { reason: "it asks back".to_owned(), slots }
        } else if let Some(reason) = answer["unknown"].as_str() {
            ToolResult::Unknown { reason: reason.to_owned() }
        } else {
            ToolResult::Done { result: answer["result"].clone(), effect: answer["effect"].as_str().map(Into::into) }
        }));
    } else if let Some(name) = answer["agent"].as_str() {
        let Next::Agent(call) = &driver.next else {
            panic!("expected a request for agent {name}, got {:?}", driver.next)
        };
        assert_eq!(call.agent, *name);
        let called = serde_json::to_value(call).unwrap();
        for (key, value) in answer["call"].as_object().unwrap_or(&Map::new()) {
            assert_eq!(called[key], *value, "`{key}` of the call");
        }
        let reason = || answer["reason"].as_str().unwrap_or("broken").to_owned();
        let status = match answer["status"].as_str().unwrap() {
            "awaiting_user" => AgentStatus::AwaitingUser,
            "finished" => AgentStatus::Finished,
            "yielded" => AgentStatus::Yielded,
            "failed" => {
                AgentStatus::Failed { code: answer["code"].as_str().unwrap_or("A0001").to_owned(), reason: reason() }
            }
            "cancelled" => AgentStatus::Cancelled { reason: reason() },
            other => panic!("no status: {other}"),
        };
        let metadata = answer["metadata"].as_object().cloned().unwrap_or_default();
        let events = events_of(answer, Some(AgentName::from(name)));
        driver.input(InputKind::Agent(AgentOutcome { status, events, data: Json::Null, metadata }));
    } else if let Some(how) = answer["search"].as_str() {
        assert!(matches!(driver.next, Next::Search(_)), "expected a request for a search, got {:?}", driver.next);
        let message = |key: &str| {
            answer[key].as_str().map(|text| {
                let utter_source = Some("EnterpriseSearchPolicy".into());
                Box::new(BotMessage { reply: Reply::text(text), utter_source, ..BotMessage::default() })
            })
        };
        let reason = "because".to_owned();
        driver.input(InputKind::SearchOutcome(match how {
            "answered" => SearchOutcome::Answered { message: message("text").unwrap_or_default() },
            "none" => SearchOutcome::NoAnswer { reason },
            "failed" => SearchOutcome::Failed { reason, partial: message("said") },
            other => panic!("no outcome: {other}"),
        }));
    } else {
        panic!("no answer: {answer}");
    }
}

fn events_of(answer: &Json, agent: Option<AgentName>) -> Vec<Event> {
    let mut kinds = Vec::new();
    for text in answer["says"].as_array().unwrap_or(&Vec::new()) {
        let kind = if agent.is_some() { BotKind::InputRequired } else { BotKind::Response };
        let reply = Reply::text(text.as_str().unwrap());
        kinds.push(EventKind::bot(BotMessage { reply, kind, agent: agent.clone(), ..BotMessage::default() }));
    }
    for (name, value) in answer["slots"].as_object().unwrap_or(&Map::new()) {
        let (name, value) = (SlotName::from(name.as_str()), value.clone());
        kinds.push(EventKind::Slot { name, value, filled_by: None, reset: false });
    }
    if let (Some(tool), Some(agent)) = (answer["in_doubt"].as_str(), &agent) {
        kinds.push(unknown(tool, Some(agent.as_str())));
    }
    if let Some(name) = answer["followup"].as_str() {
        kinds.push(EventKind::Followup { name: Some(ActionName::from(name)) });
    }
    if answer["pauses"] == true {
        kinds.push(EventKind::Pause);
    }
    for (key, kind) in [
        ("ends_session", EventKind::SessionEnded { reason: None }),
        ("restarts", EventKind::Restart),
        ("starts_session", EventKind::SessionStarted),
        ("resets_slots", EventKind::ResetSlots),
        // Only the engine may write this event.
        ("moves_stack", EventKind::Stack { frames: Vec::new().into(), next_frame: 0, pending: None }),
    ] {
        if answer[key] == true {
            kinds.push(kind);
        }
    }
    for json in answer["events"].as_array().unwrap_or(&Vec::new()) {
        kinds.push(serde_json::from_value(json.clone()).unwrap());
    }
    let at = Timestamp::from_micros(1);
    kinds.into_iter().map(|kind| Event { at, kind, location: Default::default() }).collect()
}

fn texts(list: &Json) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn expect(driver: &Driver, turn: &Json) {
    if !turn["says"].is_null() {
        assert_eq!(driver.said(), texts(&turn["says"]), "says; happened: {:#?}", driver.happened());
    }
    if !turn["texts"].is_null() {
        assert_eq!(driver.texts(), texts(&turn["texts"]));
    }
    for (name, value) in turn["slots"].as_object().unwrap_or(&Map::new()) {
        let is = driver.conversation.set_value(name).cloned();
        let is = is.or_else(|| driver.project.slot(name).map(|slot| slot.initial.clone())).unwrap();
        assert_eq!(is, *value, "slot {name}");
    }
    for (agent, expected) in turn["agents"].as_object().unwrap_or(&Map::new()) {
        let record = serde_json::to_value(&driver.conversation.agents[&AgentName::from(agent.as_str())]).unwrap();
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(record[key], *value, "`{key}` of the record of {agent}");
        }
    }
    if !turn["stack"].is_null() {
        assert_eq!(driver.stack(), texts(&turn["stack"]), "stack; happened: {:#?}", driver.happened());
    }
    let happened = driver.happened();
    if !turn["events"].is_null() {
        let mut rest = happened.iter();
        for wanted in texts(&turn["events"]) {
            assert!(rest.any(|event| *event == wanted), "`{wanted}` is missing or out of order in {happened:#?}");
        }
    }
    if !turn["all_events"].is_null() {
        assert_eq!(happened, texts(&turn["all_events"]), "all events");
    }
    if !turn["no_events"].is_null() {
        for unwanted in texts(&turn["no_events"]) {
            assert!(!happened.iter().any(|event| event.starts_with(&unwanted)), "`{unwanted}` in {happened:#?}");
        }
    }
    if !turn["why"].is_null() {
        let why = serde_json::to_string_pretty(&driver.reasons).unwrap();
        for part in texts(&turn["why"]) {
            assert!(why.contains(&part), "`{part}` is not in {why}");
        }
    }
    if !turn["reminders"].is_null() {
        let waiting: Vec<String> = driver.conversation.reminders.iter().map(|one| one.name.to_string()).collect();
        assert_eq!(waiting, texts(&turn["reminders"]));
    }
    if !turn["buttons"].is_null() {
        let titles = driver.events.iter().filter_map(|event| match &event.kind {
            EventKind::Bot(bot) => Some(bot.reply.buttons.iter().map(|button| button.title.to_string())),
            _ => None,
        });
        assert_eq!(titles.flatten().collect::<Vec<_>>(), texts(&turn["buttons"]));
    }
}
