//! Loads a project from the texts of its files. The order matters: endpoints and agents first, because `call` steps refer to
//! them; flows of the project before built-in ones, which they replace; the checks across files last, when all names are known.

mod a2a_server;
mod action_endpoint;
mod agent_rules;
mod agents;
mod assertions;
mod builtin_tools;
mod buttons;
mod config;
mod confirmations;
mod continuation_hash;
mod credentials;
mod delegation;
mod domain;
mod endpoints;
mod environment;
mod fallbacks;
mod fields;
mod flows;
mod jwt;
mod mission_tasks;
mod missions;
mod next;
mod nlg;
mod remote;
mod responses;
mod search;
mod secrets;
mod shorthand;
mod skills;
mod slots;
mod steps;
mod storage;
mod test_cases;

use std::collections::HashSet;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::{
    CalmVersion, Domain, LoadResult, Project, SourceFile, Sources,
    analysis::{self, ProjectReferences},
    check,
    load_context::LoadContext,
    yaml,
};
use crate::finding::SourceLocation;

pub use self::environment::variables;

impl Project {
    /// Loads a project from its texts and checks syntax, keys, types and names.
    ///
    /// All files are read and checked even after an error. The project is `None` if a finding is an error.
    pub fn load(sources: &Sources) -> LoadResult {
        load(sources, false)
    }

    /// Like [`load`](Self::load), and also analyses how flows run and which values conditions can have. The additional findings
    /// are never errors, so a server can start without them.
    pub fn load_and_analyse(sources: &Sources) -> LoadResult {
        load(sources, true)
    }
}

fn load(sources: &Sources, analyses: bool) -> LoadResult {
    let mut context = LoadContext::new(sources);
    let endpoints = endpoints::load(&mut context);
    let subagents = delegation::load(&mut context, &endpoints);
    let mut library = skills::load(&mut context);
    let agents = agents::load(&mut context, &endpoints, &subagents, &mut library);
    let missions = missions::load(&mut context, &agents, &endpoints, &mut library);
    if analyses {
        library.analyse(&mut context);
    }
    let (config, command_prompt) = config::load(&mut context);
    let credentials = credentials::load(&mut context);
    let mut domain = domain::DomainBuilder::default();
    let mut flows = flows::FlowCollector::new(agents.keys().map(|name| name.as_str().into()).collect());
    for file in &sources.domain {
        domain.file(&mut context, file);
    }
    let mut domain_files: HashSet<&str> = sources.domain.iter().map(|file| &*file.path).collect();
    for file in &sources.data {
        let Some(root) = context.open(file) else { continue };
        // A data folder may contain files of the domain. A file that is in both folders is read once.
        if flows::is_flow_file(&root) {
            flows.file(&mut context, &root);
        } else if domain::is_domain_file(&root) {
            if domain_files.insert(&file.path) {
                domain.root(&mut context, &root);
            }
        } else {
            context.report_unknown_file(&root);
        }
    }
    context.builtin = true;
    for file in patterns(sources, config.compat.patterns) {
        let Some(root) = context.open(file) else { continue };
        if root.get("flows").is_some() {
            flows.file(&mut context, &root);
        } else {
            domain.root(&mut context, &root);
        }
    }
    context.builtin = false;
    let domain: Domain = domain.finish(&mut context, &config);
    let mut flows = flows.finish();
    confirmations::mark(&mut flows, &endpoints);
    let hash = hash(sources);
    let engine = std::mem::take(&mut context.engine);
    let LoadContext { mut findings, references, conditions, assignments, listed_actions, unparsed, .. } = context;
    let own = |path: &str| path.starts_with("prompts/");
    let prompts =
        sources.texts.iter().filter(|(path, _)| own(path)).map(|(p, text)| (p.clone(), text.clone())).collect();
    let project = Project {
        config,
        domain,
        flows,
        agents,
        missions,
        subagents,
        endpoints,
        credentials,
        templates: engine,
        command_prompt,
        prompts,
        hash,
    };
    let before = findings.len();
    check::run(&project, sources, &references, &conditions, &mut findings);
    if analyses {
        let recorded = ProjectReferences {
            references: &references,
            conditions: &conditions,
            assignments: &assignments,
            listed_actions: &listed_actions,
        };
        analysis::run(&project, sources, &recorded, &mut findings);
    }
    // A file with a syntax error may define the name that another file refers to.
    findings.retain_after(before, |finding| !unparsed.iter().any(|text| names_a_word_of(finding, text)));
    let has_errors = findings.has_errors();
    LoadResult { project: Some(project).filter(|_| !has_errors), findings: findings.sorted() }
}

/// Whether the first name in the message of a finding is a word of the text.
fn names_a_word_of(finding: &crate::finding::Finding, text: &str) -> bool {
    let Some(name) = finding.message.split('`').nth(1).filter(|name| !name.is_empty()) else { return false };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(start, _)| {
        let before = text.get(..start).unwrap_or_default();
        let after = text.get(start + name.len()..).unwrap_or_default();
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

/// The files of the built-in patterns in order of precedence. A file named `before-<version>` or `since-<version>` contains the
/// differences of those versions: it takes precedence if it applies, and is excluded otherwise.
fn patterns(sources: &Sources, version: CalmVersion) -> Vec<&SourceFile> {
    let applies = |file: &SourceFile| {
        let name = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".yml");
        match name.split_once('-') {
            Some(("before", limit)) => CalmVersion::of(limit).map(|limit| version < limit),
            Some(("since", least)) => CalmVersion::of(least).map(|least| version >= least),
            _ => None,
        }
    };
    let (always, some): (Vec<_>, Vec<_>) = sources.patterns.iter().partition(|file| applies(file).is_none());
    some.into_iter().filter(|file| applies(file) == Some(true)).chain(always).collect()
}

impl LoadContext<'_> {
    /// Parses a file and makes it the current one.
    pub(super) fn open(&mut self, file: &SourceFile) -> Option<yaml::Node> {
        self.file = file.path.clone();
        let root = yaml::read(file, &mut self.findings);
        if root.is_none() {
            self.unparsed.push(file.text.clone());
        }
        root
    }

    fn report_unknown_file(&mut self, root: &yaml::Node) {
        if root.is_null() {
            return;
        }
        let message = "this file contains neither flows nor a part of the domain";
        let help = "A flow file has the key `flows`, a domain file keys such as `slots` or `responses`; \
                    move other files out of the data folder.";
        self.warning("F0106", root, message, help);
    }
}

/// A hash of all texts, without the environment, which may contain secrets.
fn hash(sources: &Sources) -> u64 {
    let single = [&sources.config, &sources.endpoints, &sources.credentials, &sources.subagents];
    let many = [&sources.domain, &sources.data, &sources.agents, &sources.missions, &sources.patterns];
    let files = single.into_iter().flatten().chain(many.into_iter().flatten());
    let skills = || sources.skills.iter().flat_map(|folder| &folder.skills);
    let files = files.chain(skills().map(|skill| &skill.file));
    let of_skills =
        skills().flat_map(|skill| &skill.files).map(|file| (&*file.path, file.text.as_deref().unwrap_or_default()));
    let texts = sources.texts.iter().map(|(path, text)| (path.as_str(), &**text)).chain(of_skills);
    let mut hasher = Sha256::new();
    for (path, text) in files.map(|file| (&*file.path, &*file.text)).chain(texts) {
        for part in [path, text] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    first_bytes(hasher)
}

/// The first eight bytes of a digest as a number.
pub(super) fn first_bytes(hasher: Sha256) -> u64 {
    hasher.finalize().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Records the location of a name. Returns the location of the first definition if the name is a duplicate.
pub(super) fn first_place<'m>(
    places: &'m mut IndexMap<String, SourceLocation>,
    name: &str,
    place: SourceLocation,
) -> Option<&'m SourceLocation> {
    if places.contains_key(name) {
        return places.get(name);
    }
    places.insert(name.to_owned(), place);
    None
}

#[cfg(test)]
pub(crate) mod tests;
