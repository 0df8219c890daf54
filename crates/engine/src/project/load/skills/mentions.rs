//! The files that the instructions of a skill mention.

use std::collections::BTreeSet;

use super::super::super::SkillDef;

/// Folders that skills have by convention. A path that begins with one is a mention of a file.
const FOLDERS: [&str; 4] = ["scripts/", "references/", "reference/", "assets/"];

/// Files that the instructions mention and the skill does not have, each with its line in `SKILL.md`.
pub(super) fn missing_files(skill: &SkillDef) -> Vec<(String, u32)> {
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    for (at, line) in skill.body.lines().enumerate() {
        for path in mentioned(line) {
            if skill.file(path).is_none() && seen.insert(path) {
                missing.push((path.to_owned(), skill.body_line.saturating_add(u32::try_from(at).unwrap_or(u32::MAX))));
            }
        }
    }
    missing
}

/// The paths of files in a line: targets of links, and words that begin with a folder of the convention.
fn mentioned(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.map(|target| target.split(['#', ' ']).next().unwrap_or(target));
    let links = links
        .filter(|target| !target.contains("://") && !target.starts_with(['/', '#']) && !target.starts_with("mailto:"));
    let is_part = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let words = line.split(move |c: char| !is_part(c)).map(|word| word.trim_end_matches(['.', '/']));
    let words = words.filter(|word| FOLDERS.iter().any(|folder| word.trim_start_matches("./").starts_with(folder)));
    links.chain(words).map(|path| path.trim_start_matches("./")).filter(|path| {
        let file = path.rsplit('/').next().unwrap_or_default();
        file.contains('.') && !file.starts_with('.') && !path.contains('*')
    })
}
