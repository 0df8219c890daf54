//! The tools of one agent run and their names.
//!
//! A tool has its own name; a tool of an MCP server gets the prefix `server__` only if its name conflicts with another
//! one, and a hash at its end only if its name would be too long or still is that of another tool. Names are matched exactly: a similar name is an unknown tool.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use segue_engine::{
    ids::ToolName,
    project::{offered_tool_name, tool_name_hash},
};

use super::{ArgumentCheck, EffectClass, ToolCatalog, ToolHandler, ToolInfo};
use segue_base::limits;

/// A tool in an agent run.
#[derive(Clone)]
pub struct ToolEntry {
    /// Its description, with its name and effect class in this run.
    pub info: ToolInfo,
    /// The tool of the source; [`ToolSet::tool`] returns it with the wrappers of the run.
    tool: Arc<dyn ToolHandler>,
    /// The check of its arguments.
    pub check: Arc<ArgumentCheck>,
}

/// The tools of one agent run, sorted by name: model providers cache prompts by prefix, so the order must be stable.
///
/// Cheap to clone: clones share the list until one of them is filtered.
#[derive(Clone, Default)]
pub struct ToolSet {
    tools: Arc<ToolIndex>,
    /// The wrapper of every tool.
    wrapper: Option<Arc<ToolWrapper>>,
}

/// Wraps the tool of an entry.
type ToolWrapper = dyn Fn(&ToolEntry) -> Arc<dyn ToolHandler> + Send + Sync;

/// The entries, and their positions by name.
#[derive(Clone, Default)]
struct ToolIndex {
    entries: Vec<ToolEntry>,
    index: HashMap<Arc<str>, usize>,
    excluded: Vec<(String, String)>,
}

impl ToolSet {
    /// Starts a set.
    pub fn builder() -> ToolSetBuilder {
        ToolSetBuilder::default()
    }
    /// The tools, sorted by name.
    pub fn entries(&self) -> &[ToolEntry] {
        &self.tools.entries
    }
    /// The tools as models see them, sorted by name.
    pub fn infos(&self) -> impl Iterator<Item = &ToolInfo> {
        self.tools.entries.iter().map(|entry| &entry.info)
    }
    /// The tool of exactly this name.
    pub fn get(&self, name: &str) -> Option<&ToolEntry> {
        self.tools.index.get(name).and_then(|at| self.tools.entries.get(*at))
    }
    /// The tool of an entry with all wrappers of this run.
    pub fn tool(&self, entry: &ToolEntry) -> Arc<dyn ToolHandler> {
        self.wrapper.as_ref().map_or_else(|| entry.tool.clone(), |wrap| wrap(entry))
    }
    /// Excluded tools, with the reason, for traces and `check --online`.
    pub fn excluded(&self) -> &[(String, String)] {
        &self.tools.excluded
    }
    /// The set with only those tools for whose names `keep` is true.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&str) -> bool) -> Self {
        let tools = Arc::make_mut(&mut self.tools);
        tools.entries.retain(|entry| keep(&entry.info.name));
        tools.update_index();
        self
    }
    /// The set with the effect classes that `effect_of` returns by name; they override those of the source.
    #[must_use]
    pub fn with_effects(mut self, effect_of: impl Fn(&str) -> Option<EffectClass>) -> Self {
        for entry in &mut Arc::make_mut(&mut self.tools).entries {
            if let Some(effect) = effect_of(&entry.info.name) {
                entry.info.effect = effect;
            }
        }
        self
    }
    /// The set with these tools, which get none of the wrappers of the others. One whose name is taken is left out.
    #[must_use]
    pub fn with(mut self, tools: impl IntoIterator<Item = Arc<dyn ToolHandler>>) -> Self {
        let mut added: HashSet<Arc<str>> = HashSet::new();
        let list = Arc::make_mut(&mut self.tools);
        for tool in tools {
            let name = tool.info().name.clone();
            if !list.index.contains_key(&name) {
                added.insert(name.clone());
            }
            list.add(name, tool);
        }
        list.entries.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        list.update_index();
        let wrapper = self.wrapper.take();
        self.wrapper = wrapper.map(|wrap| -> Arc<ToolWrapper> {
            Arc::new(move |entry| if added.contains(&entry.info.name) { entry.tool.clone() } else { wrap(entry) })
        });
        self
    }
    /// The set with every tool wrapped, for example to record its calls. Later wrappers enclose earlier ones. A tool is wrapped
    /// only when it is called, because most turns call few of many tools.
    #[must_use]
    pub fn with_wrapper(
        mut self,
        wrap: impl Fn(&ToolEntry, Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> + Send + Sync + 'static,
    ) -> Self {
        let inner = self.clone();
        self.wrapper = Some(Arc::new(move |entry| wrap(entry, inner.tool(entry))));
        self
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.infos().map(|info| &info.name)).finish()
    }
}

/// Collects the tools of one run.
#[derive(Default)]
pub struct ToolSetBuilder {
    /// Built-in and custom tools, whose names never change.
    local: Vec<Arc<dyn ToolHandler>>,
    /// Reserved names: a tool of a server never has one without its prefix.
    reserved: HashSet<Arc<str>>,
    /// Servers with their tools, in the order of the agent's file.
    from_servers: Vec<(Arc<str>, Arc<dyn ToolHandler>)>,
    excluded: Vec<(String, String)>,
}

impl ToolSetBuilder {
    /// Reserves a name: a tool of a server with this name gets its prefix.
    #[must_use]
    pub fn reserve(mut self, name: impl Into<Arc<str>>) -> Self {
        self.reserved.insert(name.into());
        self
    }
    /// Adds a built-in or custom tool, whose name never changes. If two have the same name, the second is excluded.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn ToolHandler>) -> Self {
        self.local.push(tool);
        self
    }
    /// Adds the tools of a server: those in `include` (all if it is empty) except those in `exclude`.
    #[must_use]
    pub fn server(mut self, server: &str, catalog: &ToolCatalog, include: &[ToolName], exclude: &[ToolName]) -> Self {
        let server: Arc<str> = server.into();
        self.excluded
            .extend(catalog.excluded.iter().map(|(name, reason)| (format!("{server}/{name}"), reason.clone())));
        for included in include {
            if !catalog.tools.iter().any(|tool| *included == *tool.info().name) {
                let reason = "`include` names it, but the server lists no such tool".to_owned();
                self.excluded.push((format!("{server}/{included}"), reason));
            }
        }
        for tool in &catalog.tools {
            let is_in = |list: &[ToolName]| list.iter().any(|name| *name == *tool.info().name);
            if (include.is_empty() || is_in(include)) && !is_in(exclude) {
                self.from_servers.push((server.clone(), tool.clone()));
            }
        }
        self
    }

    /// Builds the set. Name conflicts are resolved here, independent of the order of servers.
    pub fn build(mut self) -> ToolSet {
        let mut set = ToolIndex::default();
        for tool in std::mem::take(&mut self.local) {
            let name = tool.info().name.clone();
            if self.reserved.contains(&name) && tool.info().source.as_ref() != "builtin" {
                set.excluded.push((name.to_string(), "has the name of a built-in tool".to_owned()));
                continue;
            }
            set.add(name, tool);
        }
        let name_counts = counts(self.from_servers.iter().map(|(_, tool)| offered_tool_name(None, &tool.info().name)));
        // Names that differ only in case count as equal, because models may confuse them.
        let local_names: HashSet<String> =
            set.index.keys().chain(self.reserved.iter()).map(|name| lower_case(name)).collect();
        let name_of = |server: &str, tool: &str| {
            let plain = offered_tool_name(None, tool);
            let key = lower_case(&plain);
            let is_ambiguous = local_names.contains(&key) || name_counts.get(&key).is_some_and(|count| *count > 1);
            if is_ambiguous { offered_tool_name(Some(server), tool) } else { plain }
        };
        // Several names of one server can become one, and names of servers may be longer than models accept.
        let counts = counts(self.from_servers.iter().map(|(server, tool)| name_of(server, &tool.info().name)));
        for (server, tool) in self.from_servers {
            let own = &*tool.info().name;
            let name = name_of(&server, own);
            let is_unique = counts.get(&lower_case(&name)) == Some(&1) || name.ends_with(own);
            let name = if is_unique && name.len() <= limits::TOOL_NAME { name } else { hashed_name(&name, own) };
            set.add(name.into(), tool);
        }
        set.excluded.append(&mut self.excluded);
        set.entries.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        set.update_index();
        ToolSet { tools: Arc::new(set), wrapper: None }
    }
}

impl ToolIndex {
    fn update_index(&mut self) {
        self.index = self.entries.iter().enumerate().map(|(at, entry)| (entry.info.name.clone(), at)).collect();
    }

    fn add(&mut self, name: Arc<str>, tool: Arc<dyn ToolHandler>) {
        let info = ToolInfo { name: name.clone(), ..tool.info().clone() };
        if self.index.contains_key(&name) {
            self.excluded.push((name.to_string(), format!("from `{}`: the name is taken", info.source)));
            return;
        }
        let check = match tool.argument_check() {
            Some(check) => check,
            None => match ArgumentCheck::compile(&info.parameters) {
                Ok(check) => Arc::new(check),
                Err(error) => {
                    self.excluded.push((name.to_string(), error.to_string()));
                    return;
                }
            },
        };
        self.index.insert(name, self.entries.len());
        self.entries.push(ToolEntry { info, tool, check });
    }
}

/// How often each of these names occurs. Names that differ only in case count as equal.
fn counts(names: impl Iterator<Item = String>) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    names.for_each(|name| *counts.entry(lower_case(&name)).or_default() += 1);
    counts
}

/// A name that is too long, or also that of another tool, as one that is neither: its beginning, and a hash of the tool's own name.
fn hashed_name(name: &str, own: &str) -> String {
    let hash = tool_name_hash(own);
    // The names of tools have no other characters here.
    let most = limits::TOOL_NAME.saturating_sub(hash.len() + 1).min(name.len());
    format!("{}_{hash}", name.get(..most).unwrap_or_default())
}

fn lower_case(name: &str) -> String {
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
