//! Checks that the folder of documents to search exists and is in the project. The documents themselves are read when they are
//! searched.

use std::path::Path;

use segue_engine::{
    finding::{Finding, Findings},
    project::{DocumentStore, Project},
};

/// The findings about the folder: it does not exist, or is outside the project.
pub(super) fn check(root: &Path, project: &Project) -> Vec<Finding> {
    let mut findings = Findings::default();
    if let Some(search) = &project.config.search
        && let DocumentStore::Folder { path, named } = &search.store
    {
        let folder = root.join(&**path).canonicalize().ok().filter(|folder| folder.is_dir());
        let is_inside = folder.as_ref().zip(root.canonicalize().ok()).map(|(folder, root)| folder.starts_with(root));
        match is_inside {
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
    findings.sorted()
}
