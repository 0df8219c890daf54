//! Checks that the folders that a project names exist and are in the project: the one of documents to search, and packets of missions. The
//! files in them are read when they are used.

use std::path::Path;

use segue_engine::{
    finding::{Finding, Findings},
    project::{DocumentStore, Project},
};

/// The findings about folders that do not exist, or are outside the project.
pub(super) fn check(root: &Path, project: &Project) -> Vec<Finding> {
    let mut findings = Findings::default();
    documents(root, project, &mut findings);
    packets(root, project, &mut findings);
    findings.sorted()
}

/// Whether a folder is in the project, links followed; `None` if there is none.
fn is_inside(root: &Path, path: &str) -> Option<bool> {
    let folder = root.join(path).canonicalize().ok().filter(|folder| folder.is_dir())?;
    Some(folder.starts_with(root.canonicalize().ok()?))
}

fn packets(root: &Path, project: &Project, findings: &mut Findings) {
    for (name, packet) in project.missions.values().flat_map(|mission| &mission.storage.packets) {
        if is_inside(root, &packet.path) != Some(true) {
            let message = format!("there is no folder `{}` in the project for the packet `{name}`", packet.path);
            let help = "Create it, or correct its path in `storage.packets`; paths begin in the project's folder.";
            findings.warning("F0857", &packet.place, message, help);
        }
    }
}

fn documents(root: &Path, project: &Project, findings: &mut Findings) {
    let Some(search) = &project.config.search else { return };
    let DocumentStore::Folder { path, named } = &search.store else { return };
    match is_inside(root, path) {
        None => {
            let message = format!("there is no folder `{path}` with documents to search");
            let help = if *named {
                "Create it, or correct `vector_store.source`; paths begin in the project's folder."
            } else {
                "Put documents that end with .txt or .md there, or name another folder in `vector_store.source`."
            };
            findings.warning("F0725", &search.place, message, help);
        }
        Some(false) => {
            let message = format!("the folder `{path}` is outside the project, so it is not read");
            findings.error("F0725", &search.place, message, "Move the documents into a folder of the project.");
        }
        Some(true) => {}
    }
}
