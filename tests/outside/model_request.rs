//! A request to the model server: who asks, for which reference, and what its last tool calls returned.

use serde_json::Value as Json;

/// Who makes a request, according to its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The understanding of a message of a conversation.
    Commands,
    /// An agent in a conversation.
    Agent,
    /// A sub-agent of an agent.
    SubAgent,
    /// A commander of a mission.
    Commander,
    /// An agent of a mission.
    MissionAgent,
}

/// A request in the parts that the rules of the model read.
pub(crate) struct ModelRequest {
    pub(crate) role: Role,
    /// The newest reference that the request is about.
    pub(crate) reference: String,
    /// The word at the beginning of the objective, for commanders.
    pub(crate) objective: String,
    /// The names and results of the tool calls since the newest assignment, in order.
    pub(crate) results: Vec<(String, String)>,
    /// The whole request as text.
    pub(crate) text: String,
}

/// What comes before the reference in a message of a user and in an assignment.
const PLEASE: &str = "please do ";
/// The words at the beginning of objectives.
const OBJECTIVES: [&str; 5] = ["COLLECT ", "PAY ", "CONFIRM ", "HAND_ON ", "REPORT "];

impl ModelRequest {
    pub(crate) fn read(request: &Json) -> Self {
        let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<String> = messages.iter().map(text_of).collect();
        let of_role = |role: &'static str| (0..messages.len()).filter(move |at| messages[*at]["role"] == role);
        let instructions = of_role("system").map(|at| texts[at].as_str()).collect::<Vec<_>>().join("\n");
        let has_tools = request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let role = if instructions.contains("You lead one task of the mission") {
            Role::Commander
        } else if instructions.contains("You are the agent `") {
            Role::MissionAgent
        } else if instructions.contains("You are a sub-agent.") {
            Role::SubAgent
        } else if has_tools {
            Role::Agent
        } else {
            Role::Commands
        };
        let text = texts.join("\n");
        let objective = of_role("user").find_map(|at| {
            let words = OBJECTIVES.into_iter();
            words.filter_map(|word| Some((at, word, texts[at].split_once(word)?.1))).next()
        });
        let assignment = match role {
            Role::MissionAgent => of_role("user").filter(|at| texts[*at].contains("<NEW_TASK>")).next_back(),
            Role::SubAgent => of_role("user").find(|at| texts[*at].contains(PLEASE)),
            Role::Commander => objective.map(|(at, ..)| at),
            Role::Agent | Role::Commands => of_role("user").filter(|at| texts[*at].contains(PLEASE)).next_back(),
        };
        let about = match (role, objective, assignment) {
            (Role::Commander, Some((_, _, rest)), _) => rest,
            (_, _, Some(at)) => texts[at].rsplit(PLEASE).next().unwrap_or_default(),
            _ => text.rsplit(PLEASE).next().unwrap_or_default(),
        };
        let reference = first_reference(about).unwrap_or("ref-t-none").to_owned();
        let mut results = Vec::new();
        for at in of_role("tool").filter(|at| assignment.is_none_or(|assignment| *at > assignment)) {
            let id = &messages[at]["tool_call_id"];
            let calls = messages[..at].iter().rev().filter_map(|message| message["tool_calls"].as_array()).flatten();
            let name = calls.into_iter().find(|call| call["id"] == *id).map(|call| &call["function"]["name"]);
            let name = name.and_then(Json::as_str).unwrap_or_default().to_owned();
            results.push((name, texts[at].clone()));
        }
        let objective = objective.map(|(_, word, _)| word.trim().to_owned()).unwrap_or_default();
        Self { role, reference, objective, results, text }
    }

    /// The result of the newest call of a tool since the newest assignment.
    pub(crate) fn result_of(&self, tool: &str) -> Option<&str> {
        self.results.iter().rev().find(|(name, _)| name == tool).map(|(_, result)| &**result)
    }
}

/// The text of a message.
fn text_of(message: &Json) -> String {
    match &message["content"] {
        Json::String(text) => text.clone(),
        Json::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The first reference in a text: `ref-<kind>-<client>-<number>`.
fn first_reference(text: &str) -> Option<&str> {
    let rest = &text[text.find("ref-")?..];
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
    Some(&rest[..end])
}
