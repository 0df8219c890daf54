//! An action server of a few lines, that outlives the process under test: it remembers what it was asked.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::{Value as Json, json};

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) body: Json,
    /// The header `Idempotency-Key`.
    pub(crate) key: String,
}

/// What is answered to a call: a status and a body; `None` keeps the caller waiting.
type Answers = dyn Fn(&Call, usize) -> Option<(u16, Json)> + Send + Sync;

pub(crate) struct ActionServer {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ActionServer {
    /// `answers` gets each call with its number, from 1. It runs until the test process ends.
    pub(crate) fn start(answers: impl Fn(&Call, usize) -> Option<(u16, Json)> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let (list, answers): (_, Arc<Answers>) = (calls.clone(), Arc::new(answers));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (list, answers) = (list.clone(), answers.clone());
                std::thread::spawn(move || converse(stream, &list, &*answers));
            }
        });
        Self { address, calls }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The calls of one action.
    pub(crate) fn calls_of(&self, action: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.body["next_action"] == action).collect()
    }
}

/// An answer that sets one slot.
pub(crate) fn sets(slot: &str, value: &str) -> Option<(u16, Json)> {
    let event = json!({"event": "slot", "timestamp": null, "name": slot, "value": value});
    Some((200, json!({"events": [event], "responses": []})))
}

fn converse(mut stream: TcpStream, list: &Mutex<Vec<Call>>, answers: &Answers) {
    while let Some((line, call)) = call(&mut stream) {
        // A start asks how the server is and what it has.
        let asked = match line.split(' ').nth(1) {
            Some("/health") => Some(json!({"status": "ok"})),
            Some("/actions") => Some(json!([{"name": "action_book"}])),
            _ => None,
        };
        if let Some(body) = asked {
            answer(&mut stream, 200, &body);
            continue;
        }
        let number = {
            let mut list = list.lock().unwrap();
            list.push(call.clone());
            list.len()
        };
        let Some((status, body)) = answers(&call, number) else {
            // The caller hangs up, or dies.
            let _ = stream.read(&mut [0]);
            return;
        };
        answer(&mut stream, status, &body);
    }
}

/// Whether anybody hears it, the next read tells.
fn answer(stream: &mut TcpStream, status: u16, body: &Json) {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    let _ = write!(stream, "{head}\r\n\r\n{body}");
}

/// The next request: its first line, and what a call holds.
fn call(stream: &mut TcpStream) -> Option<(String, Call)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let named = |wanted: &str| {
                head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case(wanted).then(|| value.to_owned())
                })
            };
            // A body in pieces is one that is never finished: its sender dies.
            let length = named("content-length").map_or(0, |length| length.parse().unwrap());
            let body = &bytes[at + 4..];
            if body.len() >= length && named("transfer-encoding").is_none() {
                let body = serde_json::from_slice(body).unwrap_or_default();
                let line = head.lines().next()?.to_owned();
                return Some((line, Call { body, key: named("idempotency-key").unwrap_or_default() }));
            }
        }
        let mut some = [0; 4096];
        match stream.read(&mut some) {
            Ok(read @ 1..) => bytes.extend_from_slice(&some[..read]),
            _ => return None,
        }
    }
}
