//! The folders of a project's parts and the files that its configuration refers to. Both are needed before the project is
//! loaded, because the runtime reads the files.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    SKILL_FOLDER, SourceFile,
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

/// The folders of skills that the configurations of agents and missions use, each with whether one of them trusts texts from outside
/// the project.
pub fn named_skill_folders<'a>(files: impl IntoIterator<Item = &'a SourceFile>) -> BTreeMap<Arc<str>, bool> {
    let mut found = BTreeMap::new();
    for file in files {
        if let Some(root) = yaml::read(file, &mut Findings::default()) {
            collect_skill_folders(&root, &mut found);
        }
    }
    found
}

fn collect_skill_folders(node: &Node, found: &mut BTreeMap<Arc<str>, bool>) {
    if node.get("skills").or_else(|| node.get("skill_folders")).is_some() {
        let trusts = node.get("trust").and_then(Node::bool) == Some(true);
        for folder in skill_folders(node) {
            *found.entry(folder).or_default() |= trusts;
        }
    }
    let values = node.map().unwrap_or_default().iter().map(|entry| &entry.node);
    for inner in values.chain(node.list().unwrap_or_default()) {
        collect_skill_folders(inner, found);
    }
}

/// The folders that a map with the keys of skills names, or the default one.
pub(super) fn skill_folders(node: &Node) -> Vec<Arc<str>> {
    match node.get("skill_folders").and_then(Node::list) {
        None => vec![SKILL_FOLDER.into()],
        Some(folders) => folders.iter().filter_map(Node::text).map(|path| plain_folder(path).into()).collect(),
    }
}

/// A path of a folder without `./` and a slash at the end.
pub(super) fn plain_folder(path: &str) -> &str {
    let path = path.trim_start_matches("./");
    path.strip_suffix('/').filter(|shorter| !shorter.is_empty()).unwrap_or(path)
}
