//! The tools of one agent run and their names.
//!
//! Names are plain; a tool of an MCP server has the prefix `server__` only if its plain name conflicts with another
//! one. Names are matched exactly: a similar name is an unknown tool.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use segue_engine::ids::ToolName;

use super::{ArgumentCheck, EffectClass, ToolCatalog, ToolHandler, ToolInfo};
use segue_base::limits;

/// A tool in an agent run.
#[derive(Clone)]
pub struct Entry {
    /// Its description, under its name in this run.
    pub spec: ToolInfo,
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
    list: Arc<List>,
    /// The wrapper of every tool.
    wrap: Option<Arc<Wrap>>,
}

/// Wraps a tool.
type Wrap = dyn Fn(&Entry) -> Arc<dyn ToolHandler> + Send + Sync;

#[derive(Clone, Default)]
struct List {
    entries: Vec<Entry>,
    index: HashMap<Arc<str>, usize>,
    excluded: Vec<(String, String)>,
}

impl ToolSet {
    /// Starts a set.
    pub fn builder() -> ToolSetBuilder {
        ToolSetBuilder::default()
    }
    /// The tools, sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.list.entries
    }
    /// The tools as models see them, sorted by name.
    pub fn specs(&self) -> impl Iterator<Item = &ToolInfo> {
        self.list.entries.iter().map(|entry| &entry.spec)
    }
    /// The tool of exactly this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.list.index.get(name).and_then(|at| self.list.entries.get(*at))
    }
    /// The tool of an entry with all wrappers of this run.
    pub fn tool(&self, entry: &Entry) -> Arc<dyn ToolHandler> {
        self.wrap.as_ref().map_or_else(|| entry.tool.clone(), |wrap| wrap(entry))
    }
    /// Excluded tools, with the reason, for traces and `check --online`.
    pub fn excluded(&self) -> &[(String, String)] {
        &self.list.excluded
    }
    /// The set without the tools whose names do not match.
    #[must_use]
    pub fn only(mut self, keeps: impl Fn(&str) -> bool) -> Self {
        let list = Arc::make_mut(&mut self.list);
        list.entries.retain(|entry| keeps(&entry.spec.name));
        list.index();
        self
    }
    /// The set with the effect classes that `class` returns, which override those of the source.
    #[must_use]
    pub fn classed(mut self, class: impl Fn(&str) -> Option<EffectClass>) -> Self {
        for entry in &mut Arc::make_mut(&mut self.list).entries {
            if let Some(effect) = class(&entry.spec.name) {
                entry.spec.effect = effect;
            }
        }
        self
    }
    /// The set with every tool wrapped, for recording. A tool is wrapped only when it is called, because most turns
    /// call few of many tools.
    #[must_use]
    pub fn wrapped(
        mut self,
        wrap: impl Fn(&Entry, Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> + Send + Sync + 'static,
    ) -> Self {
        let inner = self.clone();
        self.wrap = Some(Arc::new(move |entry| wrap(entry, inner.tool(entry))));
        self
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.specs().map(|spec| &spec.name)).finish()
    }
}

/// Collects the tools of one run.
#[derive(Default)]
pub struct ToolSetBuilder {
    /// Tools whose names never change: built-in tools, then custom ones.
    own: Vec<Arc<dyn ToolHandler>>,
    /// Reserved names: a tool of a server never has one without its prefix.
    reserved: HashSet<Arc<str>>,
    /// Servers with their tools, in the order of the agent's file.
    served: Vec<(Arc<str>, Arc<dyn ToolHandler>)>,
    excluded: Vec<(String, String)>,
}

impl ToolSetBuilder {
    /// Reserves a name: a tool of a server with this name gets its prefix.
    #[must_use]
    pub fn reserve(mut self, name: impl Into<Arc<str>>) -> Self {
        self.reserved.insert(name.into());
        self
    }
    /// Adds a built-in or custom tool, whose name never changes. Of two with one name the first remains.
    #[must_use]
    pub fn own(mut self, tool: Arc<dyn ToolHandler>) -> Self {
        self.own.push(tool);
        self
    }
    /// Adds the tools of a server: those in `include` (all if it is empty) except those in `exclude`.
    #[must_use]
    pub fn server(mut self, server: &str, catalog: &ToolCatalog, include: &[ToolName], exclude: &[ToolName]) -> Self {
        let server: Arc<str> = server.into();
        self.excluded.extend(catalog.excluded.iter().map(|(name, why)| (format!("{server}/{name}"), why.clone())));
        for wanted in include {
            if !catalog.tools.iter().any(|tool| *wanted == *tool.info().name) {
                let why = "is included, but the server lists no such tool".to_owned();
                self.excluded.push((format!("{server}/{wanted}"), why));
            }
        }
        for tool in &catalog.tools {
            let named = |list: &[ToolName]| list.iter().any(|name| *name == *tool.info().name);
            if (include.is_empty() || named(include)) && !named(exclude) {
                self.served.push((server.clone(), tool.clone()));
            }
        }
        self
    }

    /// Builds the set. Name conflicts are resolved here, independent of the order of servers.
    pub fn build(mut self) -> ToolSet {
        let mut set = List::default();
        let own = std::mem::take(&mut self.own);
        for tool in own {
            let name = tool.info().name.clone();
            if self.reserved.contains(&name) && tool.info().source.as_ref() != "builtin" {
                set.excluded.push((name.to_string(), "has the name of a built-in tool".to_owned()));
                continue;
            }
            set.add(name, tool);
        }
        let mut wanted: HashMap<String, usize> = HashMap::new();
        for (_, tool) in &self.served {
            *wanted.entry(folded(&callable(&tool.info().name))).or_default() += 1;
        }
        // Names that differ only in case count as equal, because models may confuse them.
        let taken: HashSet<String> = set.index.keys().chain(self.reserved.iter()).map(|name| folded(name)).collect();
        for (server, tool) in self.served {
            let plain = callable(&tool.info().name);
            let key = folded(&plain);
            let clash = taken.contains(&key) || wanted.get(&key).is_some_and(|count| *count > 1);
            let name = if clash { format!("{}__{plain}", callable(&server)) } else { plain };
            if name.len() > limits::TOOL_NAME {
                let why = format!("its name `{name}` is longer than {} bytes", limits::TOOL_NAME);
                set.excluded.push((format!("{server}/{}", tool.info().name), why));
                continue;
            }
            set.add(name.into(), tool);
        }
        set.excluded.append(&mut self.excluded);
        set.entries.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        set.index();
        ToolSet { list: Arc::new(set), wrap: None }
    }
}

impl List {
    fn index(&mut self) {
        self.index = self.entries.iter().enumerate().map(|(at, entry)| (entry.spec.name.clone(), at)).collect();
    }

    fn add(&mut self, name: Arc<str>, tool: Arc<dyn ToolHandler>) {
        let spec = ToolInfo { name: name.clone(), ..tool.info().clone() };
        if self.index.contains_key(&name) {
            self.excluded.push((name.to_string(), format!("from `{}`: the name is taken", spec.source)));
            return;
        }
        let check = match tool.arguments() {
            Some(check) => check,
            None => match ArgumentCheck::compile(&spec.parameters) {
                Ok(check) => Arc::new(check),
                Err(refused) => {
                    self.excluded.push((name.to_string(), refused.to_string()));
                    return;
                }
            },
        };
        self.index.insert(name, self.entries.len());
        self.entries.push(Entry { spec, tool, check });
    }
}

/// A name reduced to the characters that every model API accepts.
fn callable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn folded(name: &str) -> String {
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
