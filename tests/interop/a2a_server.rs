//! Segue as an A2A server: clients built with `a2a-sdk`, in both versions of the protocol, over JSON-RPC and HTTP+JSON.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value as Json, json};

use crate::{
    processes::{self, ChildProcess},
    program::{ProjectCopy, Server},
};

/// The clients under test: whether they speak A2A 1.0 (otherwise 0.3), and the flags of `a2a_client.py`.
pub(crate) const ALL_CLIENTS: [(bool, &[&str]); 4] = [(true, &[]), (false, &[]), (true, &["rest"]), (false, &["rest"])];

/// A running `a2a_client.py`.
pub(crate) struct A2aClient(ChildProcess);

impl A2aClient {
    pub(crate) fn connect(server: &Server, is_v1: bool, flags: &[&str], token: Option<&str>) -> Self {
        let mut process = ChildProcess::start(&mut processes::a2a_client(is_v1, &server.url(), flags, token));
        process.wait_for_line("ready");
        Self(process)
    }
    /// Runs a command of `a2a_client.py`. The error is the text of the SDK's exception.
    pub(crate) fn try_request(&mut self, command: &Json) -> Result<Json, String> {
        self.0.write_line(&command.to_string());
        let line = self.0.wait_for_line("answer ");
        let answer: Json = serde_json::from_str(line.strip_prefix("answer ").unwrap()).unwrap();
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(answer["ok"].clone()),
        }
    }
    /// Runs a command that must succeed.
    pub(crate) fn request(&mut self, command: Json) -> Json {
        self.try_request(&command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }
    /// Sends a text, to a task if one is given. Returns the task.
    pub(crate) fn send(&mut self, text: &str, task: Option<&Json>) -> Json {
        let mut command = json!({"do": "send", "text": text});
        if let Some(task) = task {
            command["task"] = task["id"].clone();
            command["context"] = task["contextId"].clone();
        }
        self.request(command)[0]["task"].clone()
    }
}

/// The state of a task in the spelling of A2A 0.3.
pub(crate) fn state(task: &Json) -> String {
    let state = task["status"]["state"].as_str().unwrap_or_default().to_lowercase().replace('_', "-");
    state.strip_prefix("task-state-").unwrap_or(&state).to_owned()
}

fn texts(message: &Json) -> Vec<String> {
    let parts = message["parts"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
}

/// The texts of the status message of a task.
fn status_texts(task: &Json) -> Vec<String> {
    texts(&task["status"]["message"])
}

#[test]
fn agent_card_lists_the_flows_as_skills() {
    let project = ProjectCopy::new("desk");
    let server = project.server(&[]).unwrap();
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let answer = processes::get(server.port(), path);
        assert!(answer.starts_with("HTTP/1") && answer.contains(" 200 "), "{answer}");
    }
    for is_v1 in [true, false] {
        let card = A2aClient::connect(&server, is_v1, &[], None).request(json!({"do": "card"}));
        let skills: Vec<&str> =
            card["skills"].as_array().unwrap().iter().filter_map(|skill| skill["id"].as_str()).collect();
        assert_eq!(skills, ["book_table", "greet", "trouble"], "flows that a user cannot start are no skills");
        assert_eq!(card["description"], "Books tables in a restaurant.");
        assert_eq!(card["name"], "desk");
    }
}

#[test]
fn task_asks_for_input_and_completes_with_all_clients() {
    let project = ProjectCopy::new("desk");
    let server = project.server(&[]).unwrap();
    for (is_v1, flags) in ALL_CLIENTS {
        let mut client = A2aClient::connect(&server, is_v1, flags, None);
        let first = client.send("a table please", None);
        assert_eq!(
            (state(&first), status_texts(&first)),
            ("input-required".into(), vec!["For how many people?".to_owned()])
        );
        let second = client.send("4 people", Some(&first));
        assert_eq!(second["id"], first["id"], "{is_v1} {flags:?}: the task continues");
        assert_eq!(status_texts(&second), ["At what time?"]);
        let last = client.send("o clock", Some(&first));
        assert_eq!(state(&last), "completed", "{is_v1} {flags:?}: {last}");
        assert!(status_texts(&last).iter().any(|text| text.contains("A table for 4")), "{last}");
        let artifact = last["artifacts"][0]["parts"][0].to_string();
        assert!(artifact.contains("\"people\"") && artifact.contains("book_table"), "{artifact}");
        // The task is stored.
        let stored = client.request(json!({"do": "get", "task": first["id"]}));
        assert_eq!((state(&stored), status_texts(&stored)), (state(&last), status_texts(&last)));
        let history: Vec<String> = stored["history"].as_array().unwrap().iter().flat_map(texts).collect();
        assert_eq!(history, ["a table please", "For how many people?", "4 people", "At what time?", "o clock"]);
        // A completed task accepts no message; a new task starts in the same context.
        let late = json!({"do": "send", "text": "a table", "task": first["id"], "context": first["contextId"]});
        assert!(client.try_request(&late).is_err(), "{is_v1} {flags:?}");
        let next =
            client.request(json!({"do": "send", "text": "welcome", "context": first["contextId"]}))[0]["task"].clone();
        assert_ne!(next["id"], first["id"]);
        assert_eq!((&next["contextId"], state(&next)), (&first["contextId"], "completed".to_owned()));
    }
}

#[test]
fn stream_contains_the_task_its_states_and_the_artifact() {
    let project = ProjectCopy::new("desk");
    let server = project.server(&[]).unwrap();
    for (is_v1, flags) in ALL_CLIENTS {
        let mut client = A2aClient::connect(&server, is_v1, flags, None);
        let events = client.request(json!({"do": "stream", "text": "welcome"}));
        let events = events.as_array().unwrap();
        let task = &events[0]["task"];
        assert_eq!(state(task), "submitted", "{is_v1} {flags:?}: {events:?}");
        let states: Vec<String> = events
            .iter()
            .filter_map(|event| event.get("statusUpdate").or_else(|| event.get("update")))
            .filter(|update| update.get("status").is_some())
            .map(state)
            .collect();
        assert_eq!(states, ["working", "completed"], "{is_v1} {flags:?}: {events:?}");
        assert!(events.iter().any(|event| event.to_string().contains("\"artifact\"")), "{events:?}");
        // A late subscriber gets the final state, or an error that the task is over.
        let late = client.try_request(&json!({"do": "subscribe", "task": task["id"]}));
        match late {
            Ok(events) => assert_eq!(state(&events[0]["task"]), "completed"),
            Err(error) => assert!(is_v1 && error.contains("has ended"), "{error}"),
        }
        let waiting = client.request(json!({"do": "stream", "text": "a table"}));
        let id = &waiting[0]["task"]["id"];
        let joined = client.request(json!({"do": "subscribe", "task": id}));
        assert_eq!(state(&joined[0]["task"]), "input-required", "{joined}");
    }
}

#[test]
fn task_can_be_cancelled_fail_or_ask_for_clarification() {
    let project = ProjectCopy::new("desk");
    let server = project.server(&[]).unwrap();
    for (is_v1, flags) in ALL_CLIENTS {
        let mut client = A2aClient::connect(&server, is_v1, flags, None);
        let task = client.send("a table", None);
        let cancelled = client.request(json!({"do": "cancel", "task": task["id"]}));
        assert_eq!(state(&cancelled), "canceled", "{is_v1} {flags:?}: {cancelled}");
        assert!(client.try_request(&json!({"do": "cancel", "task": task["id"]})).is_err());
        let task = client.send("a table", None);
        let cancelled = client.send("stop", Some(&task));
        assert_eq!(state(&cancelled), "canceled", "a message of the user cancels it too: {cancelled}");
        assert_eq!(state(&client.send("trouble", None)), "failed");
        assert_eq!(state(&client.send("xyzzy", None)), "input-required", "the assistant asks for clarification");
        let unknown = client.try_request(&json!({"do": "get", "task": "0123456789abcdef0123456789abcdef.nobody"}));
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
fn duplicate_message_gets_the_stored_answer() {
    let project = ProjectCopy::new("desk");
    let server = project.server(&[]).unwrap();
    for is_v1 in [true, false] {
        let mut client = A2aClient::connect(&server, is_v1, &[], None);
        let context = format!("c-{is_v1}");
        let command = json!({"do": "send", "text": "a table", "id": "m1", "context": context});
        let first = client.request(command.clone())[0]["task"].clone();
        let second = client.request(command)[0]["task"].clone();
        assert_eq!((&second["id"], status_texts(&second)), (&first["id"], status_texts(&first)));
        let task = client.request(json!({"do": "get", "task": first["id"]}));
        assert_eq!(task["history"].as_array().unwrap().len(), 1, "{task}");
    }
}

#[test]
fn tasks_survive_a_crash_of_the_server() {
    let project = ProjectCopy::new("desk");
    let mut open = Vec::new();
    {
        let server = project.server(&[]).unwrap();
        for is_v1 in [true, false] {
            open.push((is_v1, A2aClient::connect(&server, is_v1, &[], None).send("a table", None)));
        }
        // Dropping the server kills it.
    }
    let server = project.server(&[]).unwrap();
    for (is_v1, task) in open {
        let mut client = A2aClient::connect(&server, is_v1, &[], None);
        let found = client.request(json!({"do": "get", "task": task["id"]}));
        assert_eq!((state(&found), status_texts(&found)), ("input-required".to_owned(), status_texts(&task)));
        let next = client.send("2 people", Some(&task));
        assert_eq!((&next["id"], status_texts(&next)), (&task["id"], vec!["At what time?".to_owned()]));
        if is_v1 {
            let all = client.request(json!({"do": "list", "context": task["contextId"]}));
            assert_eq!(all["tasks"].as_array().unwrap().len(), 1, "{all}");
        }
    }
}

#[test]
fn client_without_the_token_gets_only_the_agent_card() {
    let project = ProjectCopy::new("desk");
    let endpoints = std::fs::read_to_string(project.path("endpoints.yml")).unwrap();
    let guarded = endpoints + "  auth: { token: \"${DESK_TOKEN}\" }\n";
    std::fs::write(project.path("endpoints.yml"), guarded).unwrap();
    let server = project.server(&[("DESK_TOKEN", "s3cret")]).unwrap();
    for (is_v1, flags) in ALL_CLIENTS {
        let mut client = A2aClient::connect(&server, is_v1, flags, Some("s3cret"));
        assert_eq!(state(&client.send("welcome", None)), "completed");
        let mut anonymous = A2aClient::connect(&server, is_v1, flags, None);
        let refused = anonymous.try_request(&json!({"do": "send", "text": "welcome"})).unwrap_err();
        assert!(refused.contains("401"), "{refused}");
        assert_eq!(anonymous.request(json!({"do": "card"}))["name"], "desk");
    }
}

/// Starts a server for push notifications. Returns its URL, and the headers and body of each notification.
fn notification_receiver() -> (String, mpsc::Receiver<(String, Json)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/notification", listener.local_addr().unwrap());
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            let mut bytes = [0; 8192];
            let notification = loop {
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
            if send.send(notification).is_err() {
                break;
            }
        }
    });
    (url, receive)
}

#[test]
fn push_notifications_are_sent_to_allowed_addresses_and_after_a_restart() {
    let project = ProjectCopy::new("desk");
    let (url, notifications) = notification_receiver();
    let next = || notifications.recv_timeout(Duration::from_secs(20)).expect("a push notification arrives");
    for (is_v1, flags) in ALL_CLIENTS {
        let task = {
            let server = project.server(&[]).unwrap();
            let mut client = A2aClient::connect(&server, is_v1, flags, None);
            let sent = client.request(json!({"do": "send", "text": "a table", "url": url}))[0]["task"].clone();
            let (head, body) = next();
            assert!(head.to_lowercase().contains("x-a2a-notification-token: word"), "{head}");
            let reported = if is_v1 { body["task"].clone() } else { body };
            assert_eq!(
                (state(&reported), &reported["id"]),
                ("input-required".to_owned(), &sent["id"]),
                "{is_v1} {flags:?}"
            );
            // A private address is not allowed.
            let private = json!({"do": "push", "task": sent["id"], "url": "https://10.0.0.1/x"});
            assert!(client.try_request(&private).is_err(), "{is_v1} {flags:?}");
            let config = client.request(json!({"do": "push", "task": sent["id"], "url": url}));
            assert!(config.to_string().contains(&url), "{config}");
            sent
        };
        let server = project.server(&[]).unwrap();
        let mut client = A2aClient::connect(&server, is_v1, flags, None);
        client.send("3 people", Some(&task));
        let (_, body) = next();
        let reported = if is_v1 { body["task"].clone() } else { body };
        assert_eq!(status_texts(&reported), ["At what time?"], "{is_v1} {flags:?}");
        // The client configured the same address twice, so there is a second notification.
        next();
    }
}
