//! `builtin_tools` of an agent: the time, a wait, and HTTP requests to addresses that its file allows.

use std::{fmt, sync::Arc};

/// The tools for HTTP requests.
pub const HTTP_TOOLS: [&str; 5] = ["http_get", "http_post", "http_put", "http_patch", "http_delete"];

/// The tools for files and commands, which come with `workspace`.
const WORKSPACE_TOOLS: [&str; 9] =
    ["ls", "read_file", "write_file", "str_replace", "glob", "grep", "bash", "present_files", "ask_clarification"];

/// Tools that the runtime offers by itself where they have a meaning: for delegation, skills, long results, the files of missions, and the
/// end of the work.
const OWN_TOOLS: [&str; 22] = [
    "task",
    "task_status",
    "task_result",
    "task_cancel",
    "task_completed",
    "submit_result",
    "load_skill",
    "read_skill_file",
    "describe_skill",
    "run_script",
    "result_info",
    "result_items",
    "result_get",
    "result_keys",
    "result_chunk",
    "result_search",
    "file_list",
    "file_read",
    "file_create",
    "file_delete",
    "file_search",
    "file_grep",
];

/// The tools of commanders, and those that agents of missions have beside their own.
pub const MISSION_TOOLS: [&str; 17] = [
    "set_subtasks",
    "get_subtasks",
    "complete_subtask",
    "task_complete",
    "submit_output",
    "call_agent",
    "ask_agent",
    "query_task_output",
    "ask_commander",
    "list_commander_questions",
    "get_commander_answer",
    "dataset_next",
    "set_dataset",
    "dataset_sample",
    "dataset_count",
    "result_to_dataset",
    "ask",
];

/// What to do about a tool that is named where tools of servers are listed, if it comes from no server: a sentence.
pub(crate) fn supplied_by_the_runtime(name: &str) -> Option<String> {
    let remove = format!("The runtime supplies `{name}`: remove the entry");
    if WORKSPACE_TOOLS.contains(&name) {
        return Some(format!("{remove}. `workspace` of the agent decides whether it has the tool."));
    }
    if HTTP_TOOLS.contains(&name) || ["sleep", "current_time"].contains(&name) {
        return Some(format!("{remove}. `builtin_tools` of the agent decides whether it has the tool."));
    }
    (OWN_TOOLS.contains(&name) || MISSION_TOOLS.contains(&name)).then(|| format!("{remove}."))
}

/// Whether the runtime offers a tool of this name by itself to some agents.
pub fn is_supplied_by_the_runtime(name: &str) -> bool {
    supplied_by_the_runtime(name).is_some()
}

/// The built-in tools of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltinTools {
    /// Whether it has `sleep` and `current_time`.
    pub utils: bool,
    /// The addresses that its HTTP tools may call; it has none of these tools if there is no address.
    pub http: Arc<[HttpTarget]>,
}

impl BuiltinTools {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        !self.utils && self.http.is_empty()
    }
}

/// Addresses that may be called: those of a host, or those that begin with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    is_encrypted: bool,
    /// In lower case; without `*.`.
    host: Arc<str>,
    /// Whether only hosts below it are meant.
    is_wildcard: bool,
    port: u16,
    path: Arc<str>,
}

impl HttpTarget {
    /// Reads a host such as `api.example.com`, all hosts below one such as `*.example.com`, or the beginning of an address such as
    /// `https://api.example.com/v1/`. Without a scheme, `https` is meant.
    ///
    /// # Errors
    /// What is wrong, to complete a sentence about the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (is_encrypted, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err("it is neither `http` nor `https`"),
        };
        if rest.contains(['?', '#', '@', '\\']) || rest.contains(char::is_whitespace) {
            return Err("it has a query, a fragment, a user or white space");
        }
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        if path.split('/').any(|part| part == "." || part == "..") {
            return Err("its path has `.` or `..`");
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
            None => authority.split_once(':').map_or((authority, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some("") => {
                if is_encrypted {
                    443
                } else {
                    80
                }
            }
            Some(port) => port.parse().map_err(|_| "its port is no number up to 65535")?,
            None => return Err("its host is not valid"),
        };
        let (host, is_wildcard) = host.strip_prefix("*.").map_or((host, false), |host| (host, true));
        let is_valid = !host.is_empty()
            && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':'))
            && (!host.contains(':') || authority.starts_with('['));
        if !is_valid {
            return Err("its host is not valid");
        }
        if is_wildcard && !(is_encrypted && host.contains('.')) {
            return Err("`*.` needs `https` and a host with a dot");
        }
        Ok(Self { is_encrypted, host: host.to_ascii_lowercase().into(), is_wildcard, port, path: path.into() })
    }

    /// The host that it names, unless it means all hosts below one.
    pub fn named_host(&self) -> Option<&str> {
        (!self.is_wildcard).then_some(&*self.host)
    }

    /// Whether it allows an address, whose parts are normalised: the host in lower case, the path without `..`.
    pub fn allows(&self, scheme: &str, host: &str, port: u16, path: &str) -> bool {
        let is_host = match self.is_wildcard {
            true => host.strip_suffix(&*self.host).is_some_and(|sub| sub.len() > 1 && sub.ends_with('.')),
            false => host == &*self.host,
        };
        let is_below = match path.strip_prefix(&*self.path) {
            Some(rest) => self.path.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        // Servers that decode these before they look for `..` would leave the path that is allowed.
        let hides_a_slash = || {
            let path = path.to_ascii_lowercase();
            ["%2f", "%5c", "..;"].iter().any(|part| path.contains(part))
        };
        let is_below = is_below && (*self.path == *"/" || !hides_a_slash());
        let own = if self.is_encrypted { "https" } else { "http" };
        scheme == own && is_host && port == self.port && is_below
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = if self.is_encrypted { ("https", 443) } else { ("http", 80) };
        let (wildcard, host) = (if self.is_wildcard { "*." } else { "" }, &self.host);
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]")?,
            false => write!(f, "{scheme}://{wildcard}{host}")?,
        }
        if self.port != usual {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_is_allowed_if_scheme_host_port_and_the_beginning_of_its_path_are() {
        for (target, address, is_allowed) in [
            ("api.example.com", ("https", "api.example.com", 443, "/v1"), true),
            ("API.example.com", ("https", "api.example.com", 443, "/"), true),
            ("api.example.com", ("http", "api.example.com", 80, "/"), false),
            ("api.example.com", ("https", "api.example.com", 8443, "/"), false),
            ("api.example.com:8443", ("https", "api.example.com", 8443, "/"), true),
            ("api.example.com", ("https", "evil-api.example.com", 443, "/"), false),
            ("https://api.example.com/v1", ("https", "api.example.com", 443, "/v1/items"), true),
            ("https://api.example.com/v1", ("https", "api.example.com", 443, "/v1"), true),
            ("https://api.example.com/v1", ("https", "api.example.com", 443, "/v10"), false),
            ("https://api.example.com/v1/", ("https", "api.example.com", 443, "/v1"), false),
            ("*.example.com", ("https", "a.b.example.com", 443, "/"), true),
            ("*.example.com", ("https", "example.com", 443, "/"), false),
            ("*.example.com", ("https", "evilexample.com", 443, "/"), false),
            ("http://127.0.0.1:8000/items/", ("http", "127.0.0.1", 8000, "/items/1"), true),
            ("http://[::1]:8000", ("http", "::1", 8000, "/"), true),
        ] {
            let (scheme, host, port, path) = address;
            let parsed = HttpTarget::parse(target).unwrap();
            assert_eq!(parsed.allows(scheme, host, port, path), is_allowed, "{target} {address:?}");
            assert_eq!(HttpTarget::parse(&parsed.to_string()).unwrap(), parsed);
        }
    }

    #[test]
    fn each_tool_of_the_runtime_is_known_as_one() {
        let named = WORKSPACE_TOOLS.into_iter().chain(OWN_TOOLS).chain(HTTP_TOOLS).chain(["sleep", "current_time"]);
        for name in named.chain(MISSION_TOOLS) {
            assert!(supplied_by_the_runtime(name).unwrap().contains("remove the entry"), "{name}");
        }
        assert_eq!(supplied_by_the_runtime("shop"), None);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "https://",
            "ftp://a.b",
            "a b",
            "a.b?x",
            "a.b/../c",
            "user@a.b",
            "*",
            "*.com",
            "http://*.a.b",
            "a.b:x",
            "a.b:99999",
            "[::1",
            "::1",
            "a/b\\c",
        ] {
            assert!(HttpTarget::parse(text).is_err(), "{text}");
        }
    }
}
