//! Replaces `${NAME}` by environment variables in configuration, endpoints, credentials and agents. Never in flows and
//! responses, where `${price}` is a dollar sign and a slot.

use super::super::{
    UnsetVariables,
    load_context::LoadContext,
    yaml::{Node, Value},
};

/// The value of a text whose variable is unset and ignored: valid as a text and as a URL.
const UNSET: &str = "http://unset.invalid";

/// Keys whose maps have names that the author of the file chooses: an input may be named like a key whose text is literal.
const NAMED: [&str; 8] = ["inputs", "datasets", "local_agents", "tasks", "output", "schema", "fields", "properties"];

impl LoadContext<'_> {
    /// Replaces every `${NAME}` below `node`. A failed replacement is an error; the value is then not checked further, so that
    /// one cause has one finding.
    pub(super) fn expand(&mut self, node: &mut Node, key: &str) {
        self.expand_except(node, key, &[]);
    }

    /// The same, but the values of the keys in `literal` stay as they are.
    pub(super) fn expand_except(&mut self, node: &mut Node, key: &str, literal: &[&str]) {
        self.expand_below(node, key, literal, self.sources.unset_variables != UnsetVariables::Reported);
    }

    /// `ignores`: unset variables get a placeholder and are not reported.
    fn expand_below(&mut self, node: &mut Node, key: &str, literal: &[&str], ignores: bool) {
        let place = self.place(node);
        match &mut node.value {
            Value::Text(text) if text.contains("${") => {
                let (mut filled, mut problems) = self.fill(text);
                node.unset = !problems.is_empty();
                if ignores && problems.iter().any(|(code, ..)| *code == "F0110") {
                    problems.retain(|(code, ..)| *code != "F0110");
                    UNSET.clone_into(&mut filled);
                }
                for (code, message, help) in problems {
                    self.findings.error(code, &place, format!("{message}, used in `{key}`"), help);
                }
                *text = filled;
                node.expanded = true;
            }
            Value::List(items) => {
                for item in items {
                    self.expand_below(item, key, literal, ignores);
                }
            }
            Value::Map(entries) => {
                let has_own_names = NAMED.contains(&key);
                let is_literal = |key: &str| !has_own_names && literal.contains(&key);
                for entry in entries.iter_mut().filter(|entry| !is_literal(&entry.key)) {
                    let is_store = entry.key == "tracker_store";
                    let ignores =
                        ignores && !(is_store && self.sources.unset_variables == UnsetVariables::IgnoredExceptStore);
                    self.expand_below(&mut entry.node, &entry.key, literal, ignores);
                }
            }
            _ => {}
        }
    }

    fn fill(&self, text: &str) -> (String, Vec<(&'static str, String, String)>) {
        let mut out = String::with_capacity(text.len());
        let mut problems = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((name, tail)) = after.split_once('}') else {
                let help = "Write `${NAME}`, with the closing brace.";
                problems.push(("F0117", "`${` has no closing brace".to_owned(), help.to_owned()));
                out.push_str("${");
                rest = after;
                continue;
            };
            rest = tail;
            if !is_variable(name) {
                let message = format!("`${{{name}}}` is not a valid variable name");
                problems.push((
                    "F0117",
                    message,
                    "Write `${NAME}` with letters, digits and `_` only; defaults are not supported.".into(),
                ));
            } else if let Some(value) = self.sources.environment.get(name) {
                out.push_str(value);
            } else {
                let message = format!("the environment variable `{name}` is not set");
                problems.push(("F0110", message, format!("Set it before the program starts: `export {name}=…`.")));
            }
        }
        out.push_str(rest);
        (out, problems)
    }
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The names of all environment variables in `text`.
pub fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split("${")
        .skip(1)
        .filter_map(|after| after.split_once('}'))
        .map(|(name, _)| name)
        .filter(|name| is_variable(name))
}
