//! The folder of documents that a project searches: whether it is there. What stands in it is read when it is searched.

use std::path::Path;

use segue_engine::{
    finding::{Finding, Findings},
    project::{DocumentStore, Project},
};

/// A folder that is not there, or that lies outside of the project.
pub(super) fn check(root: &Path, project: &Project) -> Vec<Finding> {
    let mut findings = Findings::default();
    if let Some(search) = &project.config.search
        && let DocumentStore::Folder { path, named } = &search.store
    {
        let folder = root.join(&**path).canonicalize().ok().filter(|folder| folder.is_dir());
        let inside = folder.as_ref().zip(root.canonicalize().ok()).map(|(folder, root)| folder.starts_with(root));
        match inside {
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
                let message = format!("the folder `{path}` lies outside of the project, so nothing of it is read");
                findings.error("F0725", &search.place, message, "Put the documents into a folder of the project.");
            }
            Some(true) => {}
        }
    }
    findings.sorted()
}
