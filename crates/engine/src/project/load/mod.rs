//! From texts to a project. Order matters: endpoints and agents first, since a `call` step is understood by their names; the
//! author's flows before the built-in ones, which only fill gaps; the checks across files last, when every name is known.

mod a2a_server;
mod action_endpoint;
mod agent_rules;
mod agents;
mod assertions;
mod buttons;
mod cases;
mod config;
mod credentials;
mod domain;
mod endpoints;
mod environment;
mod fallbacks;
mod flows;
mod jwt;
mod next;
mod nlg;
mod reach;
mod remote;
mod responses;
mod search;
mod secrets;
mod slots;
mod steps;

use std::collections::HashSet;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::{
    CalmVersion, Domain, Loaded, Project, SourceFile, Sources,
    analysis::{self, Noted},
    check,
    reader::Reader,
    yaml,
};
use crate::finding::SourceLocation;

pub use self::environment::variables;

impl Project {
    /// Loads a project from its texts, with everything that single lines and names show to be wrong.
    ///
    /// The project is absent when a finding is an error; all files are read and checked nevertheless.
    pub fn load(sources: &Sources) -> Loaded {
        load(sources, false)
    }

    /// The same, and looks at how flows run and what their conditions can come to: findings that a start need not wait for.
    pub fn load_and_analyse(sources: &Sources) -> Loaded {
        load(sources, true)
    }
}

fn load(sources: &Sources, analyses: bool) -> Loaded {
    let mut reader = Reader::new(sources);
    let endpoints = endpoints::load(&mut reader);
    let agents = agents::load(&mut reader, &endpoints);
    let (config, command_prompt) = config::load(&mut reader);
    let credentials = credentials::load(&mut reader);
    let mut domain = domain::Merge::default();
    let mut flows = flows::Found::new(agents.keys().map(|name| name.as_str().into()).collect());
    for file in &sources.domain {
        domain.file(&mut reader, file);
    }
    let mut domain_files: HashSet<&str> = sources.domain.iter().map(|file| &*file.path).collect();
    for file in &sources.data {
        let Some(root) = reader.open(file) else { continue };
        // A data folder may hold parts of the domain; a folder that is both is read once.
        if flows::is_flow_file(&root) {
            flows.file(&mut reader, &root);
        } else if domain::is_domain_file(&root) {
            if domain_files.insert(&file.path) {
                domain.root(&mut reader, &root);
            }
        } else {
            reader.strange_file(&root);
        }
    }
    reader.builtin = true;
    for file in patterns(sources, config.compat.patterns) {
        let Some(root) = reader.open(file) else { continue };
        if root.get("flows").is_some() {
            flows.file(&mut reader, &root);
        } else {
            domain.root(&mut reader, &root);
        }
    }
    reader.builtin = false;
    let domain: Domain = domain.finish(&mut reader, &config);
    let flows = flows.finish();
    let hash = hash(sources);
    let engine = std::mem::take(&mut reader.engine);
    let Reader { mut findings, uses, conditions, fills, listed, .. } = reader;
    let own = |path: &str| path.starts_with("prompts/");
    let prompts =
        sources.texts.iter().filter(|(path, _)| own(path)).map(|(p, text)| (p.clone(), text.clone())).collect();
    let project = Project {
        config,
        domain,
        flows,
        agents,
        endpoints,
        credentials,
        templates: engine,
        command_prompt,
        prompts,
        hash,
    };
    check::run(&project, sources, &uses, &conditions, &mut findings);
    if analyses {
        let noted = Noted { uses: &uses, conditions: &conditions, fills: &fills, listed: &listed };
        analysis::run(&project, sources, &noted, &mut findings);
    }
    let broken = findings.has_errors();
    Loaded { project: Some(project).filter(|_| !broken), findings: findings.sorted() }
}

/// The files of the built-in patterns in the order in which they fill gaps. A file that is called `before-<version>` or
/// `since-<version>` holds what is different in those generations: it goes first where it applies and is left out elsewhere.
fn patterns(sources: &Sources, generation: CalmVersion) -> Vec<&SourceFile> {
    let applies = |file: &SourceFile| {
        let name = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".yml");
        match name.split_once('-') {
            Some(("before", version)) => CalmVersion::of(version).map(|limit| generation < limit),
            Some(("since", version)) => CalmVersion::of(version).map(|least| generation >= least),
            _ => None,
        }
    };
    let (always, some): (Vec<_>, Vec<_>) = sources.patterns.iter().partition(|file| applies(file).is_none());
    some.into_iter().filter(|file| applies(file) == Some(true)).chain(always).collect()
}

impl Reader<'_> {
    /// Reads the syntax of one file and makes it the current one.
    pub(super) fn open(&mut self, file: &SourceFile) -> Option<yaml::Node> {
        self.file = file.path.clone();
        yaml::read(file, &mut self.findings)
    }

    fn strange_file(&mut self, root: &yaml::Node) {
        if root.is_null() {
            return;
        }
        let message = "this file is neither a flow file nor a part of the domain";
        let help = "A flow file begins with `flows:`, a domain file with keys such as `slots:` or `responses:`; \
                    move other files out of the data folder.";
        self.warning("F0106", root, message, help);
    }
}

/// A hash over all texts; the environment is left out, since it may hold secrets.
fn hash(sources: &Sources) -> u64 {
    let single = [&sources.config, &sources.endpoints, &sources.credentials];
    let many = [&sources.domain, &sources.data, &sources.agents, &sources.patterns];
    let files = single.into_iter().flatten().chain(many.into_iter().flatten());
    let texts = sources.texts.iter().map(|(path, text)| (path.as_str(), &**text));
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

/// Keeps the first of two things of one name; tells where the first stands.
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
