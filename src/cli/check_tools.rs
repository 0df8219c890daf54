//! Compares what a project says about the tools of MCP servers with what the servers list.

use std::{collections::BTreeMap, sync::Arc};

use segue::{
    project::{
        AgentDef, Call, Finding, Project, Severity, SourceLocation, Sources, Step, StepKind, did_you_mean,
        is_supplied_by_the_runtime, offered_tool_name,
    },
    tools::{SourceError, ToolCatalog, ToolHandler},
};
use serde_json::Value as Json;

/// The tools by server.
type Catalogs = BTreeMap<String, Result<ToolCatalog, SourceError>>;

/// One error for each tool that its server does not list, each parameter that a tool does not have, and each required parameter that a
/// call does not fill. Servers that do not answer are reported elsewhere.
pub(super) fn check_tools(project: &Project, sources: &Sources, catalogs: &Catalogs) -> Vec<Finding> {
    let mut check = ToolCheck { sources, catalogs, findings: Vec::new() };
    for flow in project.user_flows() {
        flow.steps.iter().for_each(|step| check.call_step(step));
    }
    for agent in project.agents.values() {
        check.connections(agent);
        check.rules(agent);
    }
    for (name, server) in &project.endpoints.mcp_servers {
        let used_by = format!("`effects` of the MCP server `{name}`");
        server.effects.keys().for_each(|tool| check.listed(name.as_str(), tool, &server.place, &used_by));
    }
    check.findings
}

struct ToolCheck<'a> {
    sources: &'a Sources,
    catalogs: &'a Catalogs,
    findings: Vec<Finding>,
}

impl ToolCheck<'_> {
    fn catalog(&self, server: &str) -> Option<&ToolCatalog> {
        self.catalogs.get(server)?.as_ref().ok()
    }

    fn call_step(&mut self, step: &Step) {
        let StepKind::Call(Call::Tool { server, tool, input, .. }) = &step.kind else { return };
        self.listed(server.as_str(), tool.as_str(), &step.place, "a flow");
        let Some(catalog) = self.catalog(server.as_str()) else { return };
        let Some(handler) = catalog.tools.iter().find(|handler| *handler.info().name == *tool.as_str()) else { return };
        let schema = handler.info().parameters.clone();
        let properties = schema.get("properties").and_then(Json::as_object);
        let names: Vec<&str> = properties.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect();
        let takes_others = schema.get("additionalProperties").is_some_and(|rest| *rest != Json::Bool(false))
            || schema.get("patternProperties").is_some();
        for (parameter, _) in
            input.iter().filter(|(parameter, _)| !takes_others && !names.contains(&parameter.as_str()))
        {
            let help = suggestion(parameter, &names, "parameters");
            let message = format!("the tool `{tool}` of `{server}` has no parameter `{parameter}`");
            self.error("T0605", &step.place, parameter, message, help);
        }
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        for parameter in required.filter(|name| !input.iter().any(|(filled, _)| filled == name)) {
            let message =
                format!("the call does not fill the parameter `{parameter}`, which `{tool}` of `{server}` requires");
            let help = format!("Add `{{ param: {parameter}, slot: … }}` to `mapping.input`.");
            self.error("T0606", &step.place, tool.as_str(), message, help);
        }
    }

    fn connections(&mut self, agent: &AgentDef) {
        for connection in &agent.connections {
            for (key, tools) in [("include_tools", &connection.include), ("exclude_tools", &connection.exclude)] {
                let used_by = format!("`{key}` of the agent `{}`", agent.name);
                tools.iter().for_each(|tool| {
                    self.listed(connection.server.as_str(), tool.as_str(), &agent.place, &used_by);
                });
            }
        }
    }

    /// Warns about rules for tools that no server of the agent lists. Rust code may register a tool of that name.
    fn rules(&mut self, agent: &AgentDef) {
        let servers = agent.connections.iter().map(|connection| connection.server.as_str());
        let catalogs = servers.map(|server| Some((server, self.catalog(server)?))).collect::<Option<Vec<_>>>();
        let Some(catalogs) = catalogs.filter(|catalogs| !catalogs.is_empty() && agent.module.is_none()) else { return };
        let listed =
            catalogs.iter().flat_map(|(server, catalog)| catalog.tools.iter().map(move |tool| (*server, tool)));
        let offered = |(server, tool): (&str, &Arc<dyn ToolHandler>)| {
            let name = &*tool.info().name;
            [name.to_owned(), offered_tool_name(None, name), offered_tool_name(Some(server), name)]
        };
        let names: Vec<String> = listed.flat_map(offered).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let unknown = |key: &&Arc<str>| !names.contains(&&***key) && !is_supplied_by_the_runtime(key);
        for key in agent.rules.tools.keys().filter(unknown) {
            let message = format!(
                "no MCP server of the agent `{}` has the tool `{key}`, for which `tools` has a rule: the rule has no effect",
                agent.name
            );
            let help = match did_you_mean(key, names.iter().copied()) {
                Some(meant) => format!("Did you mean `{meant}`?"),
                None => "Correct the name, or remove the rule.".to_owned(),
            };
            let place = place_of_word(self.sources, &agent.place, key);
            self.findings.push(Finding { code: "T0604", severity: Severity::Warning, place, message, help });
        }
    }

    /// Reports a tool that the server does not list.
    fn listed(&mut self, server: &str, tool: &str, place: &SourceLocation, used_by: &str) {
        let Some(catalog) = self.catalog(server) else { return };
        let names: Vec<&str> = catalog.tools.iter().map(|handler| &*handler.info().name).collect();
        if names.contains(&tool) {
            return;
        }
        let excluded = catalog.excluded.iter().find(|(name, _)| name == tool);
        let (message, help) = match excluded {
            Some((_, reason)) => (
                format!("the tool `{tool}` of `{server}`, named by {used_by}, cannot be used: {reason}"),
                "Correct the tool on the server.".to_owned(),
            ),
            None => (
                format!("the MCP server `{server}` has no tool `{tool}`, named by {used_by}"),
                suggestion(tool, &names, "tools"),
            ),
        };
        self.error("T0604", place, tool, message, help);
    }

    fn error(&mut self, code: &'static str, place: &SourceLocation, word: &str, message: String, help: String) {
        let place = place_of_word(self.sources, place, word);
        self.findings.push(Finding { code, severity: Severity::Error, place, message, help });
    }
}

/// The similar name, or all names.
fn suggestion(written: &str, names: &[&str], kind: &str) -> String {
    match did_you_mean(written, names.iter().copied()) {
        Some(meant) => format!("Did you mean `{meant}`?"),
        None if names.is_empty() => format!("It has no {kind}."),
        None => format!("Its {kind} are: {}.", names.join(", ")),
    }
}

/// The first place of the word at or after `place` in the same file; `place` if the word is not there.
fn place_of_word(sources: &Sources, place: &SourceLocation, word: &str) -> SourceLocation {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let start_of = |line: &str| {
        line.match_indices(word).find_map(|(at, _)| {
            let (before, after) = (line.get(..at)?, line.get(at + word.len()..)?);
            let alone = !before.ends_with(is_part) && !after.starts_with(is_part);
            alone.then(|| before.chars().count())
        })
    };
    let files = sources.data.iter().chain(&sources.agents).chain(&sources.endpoints);
    let text = files.filter(|file| file.path == place.file).map(|file| &*file.text).next().unwrap_or_default();
    let skipped = place.line.saturating_sub(1);
    let found = text.lines().zip(1_u32..).skip(skipped as usize).find_map(|(line, number)| {
        let column = u32::try_from(start_of(line)?).ok()?;
        Some((number, column + 1))
    });
    let Some((line, column)) = found else { return place.clone() };
    SourceLocation { line, column, width: u32::try_from(word.chars().count()).unwrap_or(1), ..place.clone() }
}
