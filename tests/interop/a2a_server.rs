//! The assistant as an agent for others, asked with the genuine library of both generations, over both bindings.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value as Json, json};

use crate::{
    parts::{self, Part},
    program::{Ground, Server},
};

/// The generation, and the flags of the one who asks.
pub(crate) const EVERY: [(bool, &[&str]); 4] = [(true, &[]), (false, &[]), (true, &["rest"]), (false, &["rest"])];

/// Somebody who asks.
pub(crate) struct Caller(Part);

impl Caller {
    pub(crate) fn of(server: &Server, new: bool, flags: &[&str], token: Option<&str>) -> Self {
        let mut part = Part::start(&mut parts::a2a_client(new, &server.url(), flags, token));
        part.line_with("ready");
        Self(part)
    }
    pub(crate) fn tries(&mut self, command: &Json) -> Result<Json, String> {
        self.0.say(&command.to_string());
        let line = self.0.line_with("answer ");
        let answer: Json = serde_json::from_str(line.strip_prefix("answer ").unwrap()).unwrap();
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(answer["ok"].clone()),
        }
    }
    pub(crate) fn asks(&mut self, command: Json) -> Json {
        self.tries(&command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }
    /// Sends a text and gives the task.
    pub(crate) fn sends(&mut self, text: &str, task: Option<&Json>) -> Json {
        let mut command = json!({"do": "send", "text": text});
        if let Some(task) = task {
            command["task"] = task["id"].clone();
            command["context"] = task["contextId"].clone();
        }
        self.asks(command)[0]["task"].clone()
    }
}

/// The state in the words of the older generation.
pub(crate) fn state(task: &Json) -> String {
    let state = task["status"]["state"].as_str().unwrap_or_default().to_lowercase().replace('_', "-");
    state.strip_prefix("task-state-").unwrap_or(&state).to_owned()
}

fn texts(message: &Json) -> Vec<String> {
    let parts = message["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
}

fn said(task: &Json) -> Vec<String> {
    texts(&task["status"]["message"])
}

#[test]
fn the_card_says_what_the_flows_can() {
    let ground = Ground::of("desk");
    let server = ground.server(&[]).unwrap();
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let answer = parts::get(server.port(), path);
        assert!(answer.starts_with("HTTP/1") && answer.contains(" 200 "), "{answer}");
    }
    for new in [true, false] {
        let card = Caller::of(&server, new, &[], None).asks(json!({"do": "card"}));
        let skills: Vec<&str> =
            card["skills"].as_array().unwrap().iter().filter_map(|one| one["id"].as_str()).collect();
        assert_eq!(skills, ["book_table", "greet", "trouble"], "flows that nobody asks for are no skills");
        assert_eq!(card["description"], "Books tables in a restaurant.");
        assert_eq!(card["name"], "desk");
    }
}

#[test]
fn a_task_is_asked_answered_and_done_for_every_kind_of_caller() {
    let ground = Ground::of("desk");
    let server = ground.server(&[]).unwrap();
    for (new, flags) in EVERY {
        let mut caller = Caller::of(&server, new, flags, None);
        let first = caller.sends("a table please", None);
        assert_eq!((state(&first), said(&first)), ("input-required".into(), vec!["For how many people?".to_owned()]));
        let second = caller.sends("4 people", Some(&first));
        assert_eq!(second["id"], first["id"], "{new} {flags:?}: the same task goes on");
        assert_eq!(said(&second), ["At what time?"]);
        let last = caller.sends("o clock", Some(&first));
        assert_eq!(state(&last), "completed", "{new} {flags:?}: {last}");
        assert!(said(&last).iter().any(|text| text.contains("A table for 4")), "{last}");
        let made = last["artifacts"][0]["parts"][0].to_string();
        assert!(made.contains("\"people\"") && made.contains("book_table"), "{made}");
        // The same is read from the store.
        let again = caller.asks(json!({"do": "get", "task": first["id"]}));
        assert_eq!((state(&again), said(&again)), (state(&last), said(&last)));
        let history: Vec<String> = again["history"].as_array().unwrap().iter().flat_map(texts).collect();
        assert_eq!(history, ["a table please", "For how many people?", "4 people", "At what time?", "o clock"]);
        // A task that is over takes no message; a new one begins in the same context.
        let over = json!({"do": "send", "text": "a table", "task": first["id"], "context": first["contextId"]});
        assert!(caller.tries(&over).is_err(), "{new} {flags:?}");
        let next =
            caller.asks(json!({"do": "send", "text": "welcome", "context": first["contextId"]}))[0]["task"].clone();
        assert_ne!(next["id"], first["id"]);
        assert_eq!((&next["contextId"], state(&next)), (&first["contextId"], "completed".to_owned()));
    }
}

#[test]
fn a_stream_tells_the_task_its_states_and_what_was_made() {
    let ground = Ground::of("desk");
    let server = ground.server(&[]).unwrap();
    for (new, flags) in EVERY {
        let mut caller = Caller::of(&server, new, flags, None);
        let events = caller.asks(json!({"do": "stream", "text": "welcome"}));
        let events = events.as_array().unwrap();
        let task = &events[0]["task"];
        assert_eq!(state(task), "submitted", "{new} {flags:?}: {events:?}");
        let states: Vec<String> = events
            .iter()
            .filter_map(|event| event.get("statusUpdate").or_else(|| event.get("update")))
            .filter(|update| update.get("status").is_some())
            .map(state)
            .collect();
        assert_eq!(states, ["working", "completed"], "{new} {flags:?}: {events:?}");
        assert!(events.iter().any(|event| event.to_string().contains("\"artifact\"")), "{events:?}");
        // Nothing more comes of it, and whoever joins late is told how it stands, or that it is over.
        let late = caller.tries(&json!({"do": "subscribe", "task": task["id"]}));
        match late {
            Ok(events) => assert_eq!(state(&events[0]["task"]), "completed"),
            Err(error) => assert!(new && (error.contains("over") || error.contains("nothing more")), "{error}"),
        }
        let waiting = caller.asks(json!({"do": "stream", "text": "a table"}));
        let id = &waiting[0]["task"]["id"];
        let joined = caller.asks(json!({"do": "subscribe", "task": id}));
        assert_eq!(state(&joined[0]["task"]), "input-required", "{joined}");
    }
}

#[test]
fn a_task_is_stopped_fails_or_is_asked_about() {
    let ground = Ground::of("desk");
    let server = ground.server(&[]).unwrap();
    for (new, flags) in EVERY {
        let mut caller = Caller::of(&server, new, flags, None);
        let task = caller.sends("a table", None);
        let stopped = caller.asks(json!({"do": "cancel", "task": task["id"]}));
        assert_eq!(state(&stopped), "canceled", "{new} {flags:?}: {stopped}");
        assert!(caller.tries(&json!({"do": "cancel", "task": task["id"]})).is_err());
        let task = caller.sends("a table", None);
        let stopped = caller.sends("stop", Some(&task));
        assert_eq!(state(&stopped), "canceled", "the words of a user stop it too: {stopped}");
        assert_eq!(state(&caller.sends("trouble", None)), "failed");
        assert_eq!(state(&caller.sends("xyzzy", None)), "input-required", "it is asked about");
        let unknown = caller.tries(&json!({"do": "get", "task": "0123456789abcdef0123456789abcdef.nobody"}));
        let error = unknown.unwrap_err();
        assert!(
            error.to_lowercase().contains("not found")
                || error.contains("NotFound")
                || error.contains("there is no task")
                || error.contains("404"),
            "{error}"
        );
    }
}

#[test]
fn a_message_that_comes_twice_is_answered_once() {
    let ground = Ground::of("desk");
    let server = ground.server(&[]).unwrap();
    for new in [true, false] {
        let mut caller = Caller::of(&server, new, &[], None);
        let context = format!("c-{new}");
        let command = json!({"do": "send", "text": "a table", "id": "m1", "context": context});
        let first = caller.asks(command.clone())[0]["task"].clone();
        let again = caller.asks(command)[0]["task"].clone();
        assert_eq!((&again["id"], said(&again)), (&first["id"], said(&first)));
        let task = caller.asks(json!({"do": "get", "task": first["id"]}));
        assert_eq!(task["history"].as_array().unwrap().len(), 1, "{task}");
    }
}

#[test]
fn tasks_survive_the_process() {
    let ground = Ground::of("desk");
    let mut open = Vec::new();
    {
        let server = ground.server(&[]).unwrap();
        for new in [true, false] {
            open.push((new, Caller::of(&server, new, &[], None).sends("a table", None)));
        }
        // Dropped without a word, as in a crash.
    }
    let server = ground.server(&[]).unwrap();
    for (new, task) in open {
        let mut caller = Caller::of(&server, new, &[], None);
        let found = caller.asks(json!({"do": "get", "task": task["id"]}));
        assert_eq!((state(&found), said(&found)), ("input-required".to_owned(), said(&task)));
        let next = caller.sends("2 people", Some(&task));
        assert_eq!((&next["id"], said(&next)), (&task["id"], vec!["At what time?".to_owned()]));
        if new {
            let all = caller.asks(json!({"do": "list", "context": task["contextId"]}));
            assert_eq!(all["tasks"].as_array().unwrap().len(), 1, "{all}");
        }
    }
}

#[test]
fn callers_without_the_token_get_nothing_but_the_card() {
    let ground = Ground::of("desk");
    let endpoints = std::fs::read_to_string(ground.path("endpoints.yml")).unwrap();
    let guarded = endpoints + "  auth: { token: \"${DESK_TOKEN}\" }\n";
    std::fs::write(ground.path("endpoints.yml"), guarded).unwrap();
    let server = ground.server(&[("DESK_TOKEN", "s3cret")]).unwrap();
    for (new, flags) in EVERY {
        let mut caller = Caller::of(&server, new, flags, Some("s3cret"));
        assert_eq!(state(&caller.sends("welcome", None)), "completed");
        let mut stranger = Caller::of(&server, new, flags, None);
        let refused = stranger.tries(&json!({"do": "send", "text": "welcome"})).unwrap_err();
        assert!(refused.contains("401"), "{refused}");
        assert_eq!(stranger.asks(json!({"do": "card"}))["name"], "desk");
    }
}

/// Takes one report and answers it; gives its head and body.
fn receiver() -> (String, mpsc::Receiver<(String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/report", listener.local_addr().unwrap());
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            let mut bytes = [0; 8192];
            let body = loop {
                let read = stream.read(&mut bytes).unwrap_or(0);
                text += &String::from_utf8_lossy(&bytes[..read]);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
                if read == 0 || body.len() >= length.unwrap_or(0) {
                    break (head.to_owned(), serde_json::from_str(body).unwrap_or_default());
                }
            };
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            if send.send(body).is_err() {
                break;
            }
        }
    });
    (url, receive)
}

#[test]
fn changes_are_reported_where_that_is_allowed_and_after_a_restart_too() {
    let ground = Ground::of("desk");
    let (url, reports) = receiver();
    let next = || reports.recv_timeout(Duration::from_secs(20)).expect("a report comes");
    for (new, flags) in EVERY {
        let task = {
            let server = ground.server(&[]).unwrap();
            let mut caller = Caller::of(&server, new, flags, None);
            let sent = caller.asks(json!({"do": "send", "text": "a table", "url": url}))[0]["task"].clone();
            let (head, body) = next();
            assert!(head.to_lowercase().contains("x-a2a-notification-token: word"), "{head}");
            let reported = if new { body["task"].clone() } else { body };
            assert_eq!(
                (state(&reported), &reported["id"]),
                ("input-required".to_owned(), &sent["id"]),
                "{new} {flags:?}"
            );
            // An address next to us is no address to report to.
            let inside = json!({"do": "push", "task": sent["id"], "url": "https://10.0.0.1/x"});
            assert!(caller.tries(&inside).is_err(), "{new} {flags:?}");
            let known = caller.asks(json!({"do": "push", "task": sent["id"], "url": url}));
            assert!(known.to_string().contains(&url), "{known}");
            sent
        };
        let server = ground.server(&[]).unwrap();
        let mut caller = Caller::of(&server, new, flags, None);
        caller.sends("3 people", Some(&task));
        let (_, body) = next();
        let reported = if new { body["task"].clone() } else { body };
        assert_eq!(said(&reported), ["At what time?"], "{new} {flags:?}");
        // Both addresses that were named are told.
        next();
    }
}
