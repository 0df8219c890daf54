//! Reads a `SKILL.md`: front matter in YAML, then instructions. It is read leniently, because skills come from many sources: what breaks
//! a rule is reported, and only a skill without a description or with unreadable front matter is left out.

use std::{borrow::Cow, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    super::{
        super::{
            SkillDef, SkillOrigin, SkillSource, SourceFile,
            skills::is_skill_name,
            yaml::{self, Node},
        },
        first_bytes,
    },
    start_of,
};
use crate::{
    finding::{Findings, SourceLocation},
    limits,
    text::{ELLIPSIS, TextLimit, truncate},
};

const HELP: &str = "See <https://agentskills.io/specification>.";

/// Reads a skill; `None` if it cannot be loaded.
pub(super) fn skill(source: &SkillSource, origin: SkillOrigin, findings: &mut Findings) -> Option<SkillDef> {
    let file = &source.file;
    let place = start_of(&file.path);
    let mut not_loaded = |place: &SourceLocation, reason: String, help: &str| {
        findings.warning("F0871", place, format!("this skill is not loaded: {reason}"), help);
    };
    if file.text.len() > limits::SKILL_BODY {
        let reason = format!("it has {} bytes; the limit is {}", file.text.len(), limits::SKILL_BODY);
        not_loaded(&place, reason, "Move details into other files of the skill.");
        return None;
    }
    let Some((front, body)) = split(&file.text) else {
        let reason = "it does not begin with front matter between two lines `---`".to_owned();
        not_loaded(&place, reason, "Write `---`, `name: …`, `description: …`, `---`, then the instructions.");
        return None;
    };
    let front = match front_matter(&file.path, front) {
        Ok(front) => front,
        Err((place, reason)) => {
            not_loaded(&place, reason, "Put the value in quotes.");
            return None;
        }
    };
    let description = front.get("description").and_then(Node::text).map(str::trim).unwrap_or_default();
    if description.is_empty() {
        let at = front.get("description").map_or(place, |node| node.place(&file.path));
        not_loaded(&at, "it has no `description`".to_owned(), "Say what the skill does and when to use it.");
        return None;
    }
    let root = file.path.rsplit_once('/').map_or("", |(root, _)| root);
    let mut rules = Rules { file: &file.path, findings };
    let name = rules.name(&front, root.rsplit('/').next().unwrap_or(root));
    rules.length(&front, "description", limits::SKILL_DESCRIPTION);
    rules.length(&front, "compatibility", 500);
    let allowed_tools = front.get("allowed-tools").map(|node| rules.tools(node));
    let description = truncate(description, TextLimit::Chars(limits::SKILL_DESCRIPTION), ELLIPSIS);
    Some(SkillDef {
        name,
        description: description.into(),
        body: body.trim().into(),
        root: root.into(),
        files: source.files.clone(),
        allowed_tools,
        user_only: front.get("disable-model-invocation").and_then(Node::bool) == Some(true),
        brings: Vec::new(),
        required_secrets: required_secrets(&front),
        origin,
        hash: hash(source),
        body_line: line_of(&file.text, body),
        place,
    })
}

/// The front matter, with an empty line in place of the first, and the text after it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches('\u{feff}');
    let rest = text.strip_prefix("---")?;
    let end_of_line = rest.find('\n')?;
    let (first, rest) = (rest.get(..end_of_line)?, rest.get(end_of_line..)?);
    if !first.trim().is_empty() {
        return None;
    }
    let (mut end, mut after) = (None, 0);
    for line in rest.split_inclusive('\n') {
        let begin = after;
        after += line.len();
        if begin > 0 && line.trim_end() == "---" {
            end = Some(begin);
            break;
        }
    }
    Some((rest.get(..end?)?, rest.get(after..)?))
}

/// The line in which the instructions begin, after empty lines. They are the end of the text.
fn line_of(text: &str, body: &str) -> u32 {
    let start = text.len().saturating_sub(body.trim_start().len());
    let before = text.get(..start).unwrap_or_default();
    u32::try_from(before.matches('\n').count()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Reads front matter, and once more with values in quotes that contain a colon. `Err`: where and why not.
fn front_matter(path: &Arc<str>, text: &str) -> Result<Node, (SourceLocation, String)> {
    let read = |text: Cow<'_, str>| {
        let mut findings = Findings::default();
        let node = yaml::read(&SourceFile { path: path.clone(), text: text.as_ref().into() }, &mut findings);
        let problem = findings.as_slice().iter().find(|finding| finding.code != "F0105").cloned();
        match (node, problem) {
            (Some(node), None) if node.map().is_some() => Ok(node),
            (_, Some(problem)) => Err((problem.place, problem.message)),
            _ => Err((start_of(path), "its front matter is not a map".to_owned())),
        }
    };
    read(text.into()).or_else(|problem| {
        let quoted: Vec<String> = text.lines().map(quoted).collect();
        read(quoted.join("\n").into()).map_err(|_| problem)
    })
}

/// A line `key: value` with the value in quotes, if it is plain text with a colon.
fn quoted(line: &str) -> String {
    let is_key = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    match line.split_once(": ").filter(|(key, _)| is_key(key)) {
        Some((key, value))
            if value.contains(':') && !value.trim_start().starts_with(['"', '\'', '|', '>', '{', '[']) =>
        {
            format!("{key}: {}", serde_json::Value::from(value.trim()))
        }
        _ => line.to_owned(),
    }
}

/// Reports what breaks a rule of the format.
struct Rules<'a> {
    file: &'a Arc<str>,
    findings: &'a mut Findings,
}

impl Rules<'_> {
    fn warning(&mut self, node: Option<&Node>, message: String, help: &str) {
        let place = node.map_or_else(|| start_of(self.file), |node| node.place(self.file));
        self.findings.warning("F0870", &place, message, help);
    }

    /// The name of a skill: the written one, or that of its folder if it cannot be used.
    fn name(&mut self, front: &Node, folder: &str) -> Arc<str> {
        let node = front.get("name");
        let written = node.and_then(Node::text).map(str::trim).unwrap_or_default();
        if written.is_empty() {
            self.warning(node, format!("the skill has no `name`; `{folder}` is used"), HELP);
            return folder.into();
        }
        if !is_skill_name(written) {
            let message = format!("`{written}` is not a name of a skill; `{folder}` is used");
            self.warning(node, message, "Use `a-z`, `0-9` and single hyphens inside, at most 64 characters.");
            return folder.into();
        }
        if written != folder {
            let message = format!("the skill is named `{written}`, but its folder `{folder}`");
            self.warning(node, message, "Give both the same name.");
        }
        written.into()
    }

    fn length(&mut self, front: &Node, key: &str, limit: usize) {
        let Some(node) = front.get(key) else { return };
        let length = node.text().map_or(0, |text| text.chars().count());
        if length > limit {
            let message = format!("`{key}` has {length} characters; the limit of the format is {limit}");
            self.warning(Some(node), message, "Shorten it.");
        }
    }

    /// The tools of `allowed-tools`. A value that cannot be read allows none.
    fn tools(&mut self, node: &Node) -> Vec<Arc<str>> {
        if let Some(items) = node.list().filter(|items| items.iter().all(|item| item.text().is_some())) {
            return items.iter().filter_map(Node::text).map(|tool| tool.trim().into()).collect();
        }
        if node.is_null() {
            return Vec::new();
        }
        let Some(text) = node.text() else {
            let message = format!("`allowed-tools` must be names of tools, but this is {}", node.kind());
            self.warning(Some(node), message, "Write names with blanks between them, or a list.");
            return Vec::new();
        };
        let mut depth = 0_i32;
        let tools = text.split(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth <= 0 && (c.is_whitespace() || c == ',')
        });
        tools.filter(|tool| !tool.is_empty()).map(Into::into).collect()
    }
}

/// The names in `required-secrets`: texts, or maps with `name` and `optional`.
fn required_secrets(front: &Node) -> Vec<Arc<str>> {
    let items = front.get("required-secrets").and_then(Node::list).unwrap_or_default();
    let required = items.iter().filter(|item| item.get("optional").and_then(Node::bool) != Some(true));
    required.filter_map(|item| item.text().or_else(|| item.get("name")?.text())).map(Into::into).collect()
}

fn hash(source: &SkillSource) -> Arc<str> {
    let mut hasher = Sha256::new();
    let mut add = |part: &[u8]| {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    };
    add(source.file.text.as_bytes());
    for file in &source.files {
        add(file.path.as_bytes());
        add(&file.bytes.to_le_bytes());
        add(file.text.as_deref().unwrap_or_default().as_bytes());
    }
    format!("{:016x}", first_bytes(hasher)).into()
}
