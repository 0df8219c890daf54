//! Loads the projects under `projects/`, with the built-in patterns.

use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
};

use segue_engine::{
    finding::Severity,
    project::{Project, SourceFile, Sources},
};
use serde_json::{Value as Json, json};

fn files(folder: &Path) -> Vec<SourceFile> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let yaml = paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yml"));
    yaml.map(|path| SourceFile {
        path: path.file_name().unwrap().to_string_lossy().into_owned().into(),
        text: fs::read_to_string(&path).unwrap().into(),
    })
    .collect()
}

/// The built-in patterns and their responses.
pub(crate) fn patterns() -> Vec<SourceFile> {
    static PATTERNS: OnceLock<Vec<SourceFile>> = OnceLock::new();
    PATTERNS.get_or_init(|| files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/patterns"))).clone()
}

/// Loads a test project by its folder; it must have no errors.
pub(crate) fn load(name: &str) -> Arc<Project> {
    from(sources(name))
}

/// Loads a test project with overrides: `config`, `domain` and `flows` are merged into those of the folder; a flow,
/// slot or response that is null is removed.
pub(crate) fn variant(name: &str, with: &Json) -> Arc<Project> {
    let mut sources = sources(name);
    let text = |json: &Json| serde_json::to_string_pretty(json).unwrap().into();
    let of = |file: &SourceFile| serde_yaml::from_str::<Json>(&file.text).unwrap();
    if !with["config"].is_null() {
        let mut config = sources.config.as_ref().map_or_else(|| json!({"recipe": "default.v1"}), of);
        put_over(&mut config, &with["config"]);
        sources.config = Some(SourceFile { path: "config.yml".into(), text: text(&config) });
    }
    if let Some(domain) = sources.domain.first_mut().filter(|_| !with["domain"].is_null()) {
        let mut json = of(domain);
        put_over(&mut json, &with["domain"]);
        domain.text = text(&json);
    }
    if let Some(flows) = sources.data.first_mut().filter(|_| !with["flows"].is_null()) {
        let mut json = of(flows);
        put_over(&mut json, &json!({"flows": with["flows"]}));
        flows.text = text(&json);
    }
    from(sources)
}

/// Merges two levels of maps; extends lists; null removes an entry.
fn put_over(base: &mut Json, over: &Json) {
    for (key, value) in over.as_object().unwrap() {
        match (&mut base[key], value) {
            (Json::Object(old), Json::Object(new)) => {
                for (name, value) in new {
                    if value.is_null() {
                        old.shift_remove(name);
                    } else {
                        old.insert(name.clone(), value.clone());
                    }
                }
            }
            (Json::Array(old), Json::Array(new)) => old.extend(new.iter().cloned()),
            (old, new) => *old = new.clone(),
        }
    }
}

fn sources(name: &str) -> Sources {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogue/projects").join(name);
    sources_of(files(&folder))
}

/// Loads a project from texts by file name; returns the errors if there are any.
pub(crate) fn try_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Arc<Project>, String> {
    let files = files.into_iter().map(|(path, text)| SourceFile { path: path.into(), text: text.into() });
    let loaded = Project::load(&sources_of(files));
    let errors: Vec<_> = loaded.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    match loaded.project {
        Some(project) if errors.is_empty() => Ok(Arc::new(project)),
        _ => Err(format!("{errors:#?}")),
    }
}

fn sources_of(files: impl IntoIterator<Item = SourceFile>) -> Sources {
    let mut sources = Sources { patterns: patterns(), ..Sources::default() };
    for file in files {
        match &*file.path {
            "config.yml" => sources.config = Some(file),
            "endpoints.yml" => sources.endpoints = Some(file),
            path if path.starts_with("domain") => sources.domain.push(file),
            path if path.starts_with("agent") => sources.agents.push(file),
            _ => sources.data.push(file),
        }
    }
    sources
}

/// Loads a project from the texts of its files.
pub(crate) fn of_parts(domain: &str, flows: &str, endpoints: &str, agent: &str) -> Arc<Project> {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    from(Sources {
        domain: vec![file("domain.yml", domain)],
        data: vec![file("data/flows.yml", flows)],
        endpoints: Some(file("endpoints.yml", endpoints)),
        agents: vec![file("sub_agents/helper/config.yml", agent)],
        patterns: patterns(),
        ..Sources::default()
    })
}

/// Loads a project from texts by file name; it must have no errors.
pub(crate) fn of_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Arc<Project> {
    from(sources_of(files.into_iter().map(|(path, text)| SourceFile { path: path.into(), text: text.into() })))
}

/// Loads a project from a configuration and flows.
pub(crate) fn with_config(config: &str, flows: &str) -> Arc<Project> {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    from(Sources {
        config: Some(file("config.yml", config)),
        data: vec![file("data/flows.yml", flows)],
        patterns: patterns(),
        ..Sources::default()
    })
}

fn from(sources: Sources) -> Arc<Project> {
    let loaded = Project::load(&sources);
    let errors: Vec<_> = loaded.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    Arc::new(loaded.project.unwrap())
}
