//! The folders of a project's parts and the files that its configuration refers to. Both are needed before the project is
//! loaded, because the runtime reads the files.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    SourceFile,
    yaml::{self, Node},
};
use crate::finding::Findings;

/// The folders that `config.yml` sets. `None`: the default ones; an empty list: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// `data`: flows.
    pub data: Option<Vec<Arc<str>>>,
    /// `domain`: slots, responses, actions.
    pub domain: Option<Vec<Arc<str>>>,
    /// `docs`: documents to search.
    pub docs: Option<Vec<Arc<str>>>,
    /// `tests`: end-to-end test cases.
    pub tests: Option<Vec<Arc<str>>>,
    /// `sub_agents`: agents.
    pub sub_agents: Option<Arc<str>>,
}

impl Folders {
    /// Reads the folders from `config.yml`. Errors in the file are reported by [`Project::load`](super::Project::load), not here.
    pub fn read(config: &SourceFile) -> Self {
        let Some(root) = yaml::read(config, &mut Findings::default()) else { return Self::default() };
        Self::of(&root)
    }

    pub(super) fn of(root: &Node) -> Self {
        let texts = |key: &str| -> Option<Vec<Arc<str>>> {
            let node = root.get(key).filter(|node| !node.is_null())?;
            let single = std::slice::from_ref(node);
            Some(node.list().unwrap_or(single).iter().filter_map(|item| item.text().map(Into::into)).collect())
        };
        Self {
            data: texts("data"),
            domain: texts("domain"),
            docs: texts("docs"),
            tests: texts("tests"),
            sub_agents: texts("sub_agents").and_then(|names| names.into_iter().next()),
        }
    }
}

/// Keys whose value is the path of a file.
const PATHS: [&str; 7] =
    ["prompt_template", "prompt", "agent_card", "agent_card_path", "script", "prompt_file", "jwks"];

/// The paths of the files that a configuration file refers to, without a leading `./`.
pub fn named_files(file: &SourceFile) -> Vec<String> {
    let mut found = BTreeSet::new();
    if let Some(root) = yaml::read(file, &mut Findings::default()) {
        collect(&root, &mut found);
    }
    found.into_iter().collect()
}

fn collect(node: &Node, found: &mut BTreeSet<String>) {
    for entry in node.map().unwrap_or_default() {
        if let Some(path) = entry.node.text().filter(|_| PATHS.contains(&entry.key.as_str()))
            && !path.contains("://")
            && !path.contains('\n')
        {
            found.insert(path.trim_start_matches("./").to_owned());
        }
        collect(&entry.node, found);
    }
    for item in node.list().unwrap_or_default() {
        collect(item, found);
    }
}
