//! Which tools one run of an agent has, and under which names.
//!
//! Names are plain; a tool of an MCP server gets the prefix `server__` only where its plain name clashes. Names are
//! matched exactly: a near miss is an unknown tool, never a guess.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use segue_engine::ids::ToolName;

use super::{ArgumentCheck, EffectClass, ToolCatalog, ToolHandler, ToolInfo};
use segue_base::limits;

/// A tool as one run has it.
#[derive(Clone)]
pub struct Entry {
    /// Its spec, under the name that it has in this run.
    pub spec: ToolInfo,
    /// The tool as its source has it; [`ToolSet::tool`] gives it as the run has it.
    tool: Arc<dyn ToolHandler>,
    /// The check of its arguments.
    pub check: Arc<ArgumentCheck>,
}

/// The tools of one run, sorted by name so that the same tools always read the same (provider caches need that).
///
/// Cheap to clone: copies share the list until one of them is narrowed.
#[derive(Clone, Default)]
pub struct ToolSet {
    list: Arc<List>,
    /// What stands around every tool.
    wrap: Option<Arc<Wrap>>,
}

/// Puts something around a tool.
type Wrap = dyn Fn(&Entry) -> Arc<dyn ToolHandler> + Send + Sync;

#[derive(Clone, Default)]
struct List {
    entries: Vec<Entry>,
    index: HashMap<Arc<str>, usize>,
    excluded: Vec<(String, String)>,
}

impl ToolSet {
    /// Begins a set.
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
    /// The tool of an entry, to be called: with all that this run has put around it.
    pub fn tool(&self, entry: &Entry) -> Arc<dyn ToolHandler> {
        self.wrap.as_ref().map_or_else(|| entry.tool.clone(), |wrap| wrap(entry))
    }
    /// Tools that were left out, with the reason, for traces and `check --online`.
    pub fn excluded(&self) -> &[(String, String)] {
        &self.list.excluded
    }
    /// The same set without the tools whose names do not fit.
    #[must_use]
    pub fn only(mut self, keeps: impl Fn(&str) -> bool) -> Self {
        let list = Arc::make_mut(&mut self.list);
        list.entries.retain(|entry| keeps(&entry.spec.name));
        list.index();
        self
    }
    /// The same set with other effect classes, where `class` knows one: the author's word over everybody else's.
    #[must_use]
    pub fn classed(mut self, class: impl Fn(&str) -> Option<EffectClass>) -> Self {
        for entry in &mut Arc::make_mut(&mut self.list).entries {
            if let Some(effect) = class(&entry.spec.name) {
                entry.spec.effect = effect;
            }
        }
        self
    }
    /// The same set with every tool wrapped, as recording does. A tool is wrapped when it is called: most turns call few of many,
    /// or none.
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
    /// Tools that keep their names: built-in ones, then custom ones.
    own: Vec<Arc<dyn ToolHandler>>,
    /// Names that no tool of a server may have plain.
    reserved: HashSet<Arc<str>>,
    /// Servers with their tools, in the order of the agent's file.
    served: Vec<(Arc<str>, Arc<dyn ToolHandler>)>,
    excluded: Vec<(String, String)>,
}

impl ToolSetBuilder {
    /// Keeps a name free: a server's tool of this name gets its prefix.
    #[must_use]
    pub fn reserve(mut self, name: impl Into<Arc<str>>) -> Self {
        self.reserved.insert(name.into());
        self
    }
    /// Adds a tool that keeps its name: a built-in or a custom one. Of two with one name the first stays.
    #[must_use]
    pub fn own(mut self, tool: Arc<dyn ToolHandler>) -> Self {
        self.own.push(tool);
        self
    }
    /// Adds the tools of a server: those of `include` (all, when it is empty) without those of `exclude`.
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

    /// The set. Clashes are resolved here, by name alone, so the order of servers does not matter.
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
        // Names that models may confuse count as the same: they differ by case alone.
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

/// A name in the letters that every model wire takes.
fn callable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn folded(name: &str) -> String {
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
