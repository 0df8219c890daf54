//! The scripted model server: chat completions over HTTP/1.1 with streamed answers, in a process of its own so that its
//! CPU time is not counted. It reads no more of a request than it must and answers with bytes that are ready.
//!
//! What it answers follows from the last message: a tool's result gets the closing text, and a user's text that contains
//! `departures` gets a call of the tool; `burst:N` an answer in N deltas in one write; `clock` an answer whose first delta is the
//! time at which it was written, on its own. Anything else gets the text.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The argument that makes this program the server.
pub(crate) const ARGUMENT: &str = "--serve-model";
/// The pieces of the text answer.
const PIECES: [&str; 10] =
    ["The ", "Kestrel ", "leaves ", "from ", "pier ", "three ", "at ", "quarter ", "past ", "nine."];
/// The arguments of the tool call, in the pieces in which they come.
const ARGUMENTS: [&str; 3] = ["{\\\"island\\\":", "\\\"Torsay\\\",", "\\\"day\\\":\\\"today\\\"}"];

/// The text answer as a whole.
pub(crate) fn answer() -> String {
    PIECES.concat()
}

/// The server as its parent holds it; it ends with its standard input.
pub(crate) struct ModelServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ModelServer {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the model server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("the model server says where it listens");
        Self { child, address }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends.
pub(crate) fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let answers: &'static Answers = Box::leak(Box::new(Answers::new()));
        for stream in listener.incoming().flatten() {
            // A thread for each connection: there are few, and they live long.
            std::thread::spawn(move || answers.converse(stream));
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Answers, ready to be written.
struct Answers {
    text: Vec<u8>,
    call: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        let mut text = Reply::begin();
        PIECES.iter().for_each(|piece| text.delta(&content(piece)));
        let mut call = Reply::begin();
        call.delta(r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"departures","arguments":""}}]}"#);
        for piece in ARGUMENTS {
            call.delta(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}"#));
        }
        Self { text: text.end("stop"), call: call.end("tool_calls") }
    }

    fn converse(&self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut buffer = Vec::with_capacity(64 * 1024);
        while let Some(length) = read_request(&mut stream, &mut buffer) {
            let written = match wanted(&buffer[..length]) {
                Wanted::Text => stream.write_all(&self.text),
                Wanted::Call => stream.write_all(&self.call),
                Wanted::Burst(deltas) => {
                    let mut reply = Reply::begin();
                    (0..deltas).for_each(|_| reply.delta(&content("drop ")));
                    stream.write_all(&reply.end("stop"))
                }
                Wanted::Clock => clock(&mut stream),
            };
            if written.is_err() {
                return;
            }
            buffer.drain(..length);
        }
    }
}

/// Sends the time, waits, and sends the rest.
fn clock(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&Reply::begin().0)?;
    // The head is read and done with before the first delta comes.
    std::thread::sleep(Duration::from_millis(2));
    let mut first = Reply(Vec::new());
    first.delta(&content(&format!("{} ", now_ns())));
    stream.write_all(&first.0)?;
    std::thread::sleep(Duration::from_millis(2));
    let mut rest = Reply(Vec::new());
    rest.delta(&content("is the time."));
    stream.write_all(&rest.end("stop"))
}

/// Nanoseconds of the wall clock, which processes of one machine share.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn content(text: &str) -> String {
    format!(r#"{{"content":"{text}"}}"#)
}

/// An answer under construction: each event is a chunk of the transfer, as servers send them.
struct Reply(Vec<u8>);

impl Reply {
    fn begin() -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut reply = Self(head.as_bytes().to_vec());
        reply.delta(r#"{"role":"assistant","content":""}"#);
        reply
    }
    fn delta(&mut self, delta: &str) {
        self.event(&chunk(&format!(r#"[{{"index":0,"delta":{delta},"finish_reason":null}}]"#), "null"));
    }
    fn end(mut self, reason: &str) -> Vec<u8> {
        self.event(&chunk(&format!(r#"[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]"#), "null"));
        self.event(&chunk("[]", r#"{"prompt_tokens":900,"completion_tokens":12,"total_tokens":912}"#));
        self.event("[DONE]");
        self.0.extend_from_slice(b"0\r\n\r\n");
        self.0
    }
    fn event(&mut self, data: &str) {
        let event = format!("data: {data}\n\n");
        self.0.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
    }
}

fn chunk(choices: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-7Qy2","object":"chat.completion.chunk","created":1763000000,"model":"bench-model","choices":{choices},"usage":{usage}}}"#
    )
}

/// Reads until a whole request is in the buffer; its length.
fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some(head) = find(buffer, b"\r\n\r\n") {
            let name = b"content-length:";
            let at = buffer[..head].windows(name.len()).position(|window| window.eq_ignore_ascii_case(name))?;
            let rest = std::str::from_utf8(&buffer[at + name.len()..head]).ok()?;
            let length: usize = rest.lines().next()?.trim().parse().ok()?;
            if buffer.len() >= head + 4 + length {
                return Some(head + 4 + length);
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(read) => buffer.extend_from_slice(&chunk[..read]),
        }
    }
}

enum Wanted {
    Text,
    Call,
    Burst(usize),
    Clock,
}

/// What the last message asks for.
fn wanted(request: &[u8]) -> Wanted {
    let role = b"\"role\":\"";
    let Some(at) = request.windows(role.len()).rposition(|window| window == role) else { return Wanted::Text };
    let last = &request[at + role.len()..];
    if !last.starts_with(b"user") {
        return Wanted::Text;
    }
    // Tools may follow the messages; their descriptions do not count.
    let last = &last[..find(last, b"}").unwrap_or(last.len())];
    if let Some(at) = find(last, b"burst:") {
        let digits: Vec<u8> = last[at + 6..].iter().copied().take_while(u8::is_ascii_digit).collect();
        return Wanted::Burst(String::from_utf8_lossy(&digits).parse().unwrap_or(1));
    }
    match () {
        () if find(last, b"departures").is_some() => Wanted::Call,
        () if find(last, b"clock").is_some() => Wanted::Clock,
        () => Wanted::Text,
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
