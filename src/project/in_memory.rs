//! Projects whose files are given as texts.

use segue_engine::project::{SourceFile, Sources};

use super::builtin;

/// Assigns each file its role by its path, as on disk. No environment variable is read.
pub(super) fn sources<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Sources {
    let mut sources = Sources { patterns: builtin::patterns(), ..Sources::default() };
    for (path, text) in files {
        let file = SourceFile { path: path.into(), text: text.into() };
        let is_yaml = path.ends_with(".yml") || path.ends_with(".yaml");
        match path.split('/').next().unwrap_or_default() {
            "config.yml" | "config.yaml" => sources.config = Some(file),
            "endpoints.yml" | "endpoints.yaml" => sources.endpoints = Some(file),
            "credentials.yml" | "credentials.yaml" => sources.credentials = Some(file),
            "domain.yml" | "domain.yaml" => sources.domain.push(file),
            "domain" if is_yaml => sources.domain.push(file),
            "data" | "flows" if is_yaml => sources.data.push(file),
            "sub_agents" if path.ends_with("/config.yml") => sources.agents.push(file),
            "missions" if is_yaml => sources.missions.push(file),
            "subagents.yml" | "subagents.yaml" => sources.subagents = Some(file),
            _ => {
                sources.texts.insert(path.to_owned(), file.text);
            }
        }
    }
    sources.read_skills_of_texts();
    sources
}
