//! Checks the examples on the error pages: the wrong lines report the code, at the line that the page shows.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::{fs, path::Path};

use segue_engine::project::{Project, SourceFile, Sources, findings_report};

/// The domain that all examples use.
const BASE: &str = "slots:
  amount: {type: float}
  name: {type: text}
responses:
  utter_ask_amount: [{text: How much?}]
  utter_ask_name: [{text: Who?}]
  utter_done: [{text: Done.}]
";

/// Codes about files on disk, which this package does not read.
const ON_DISK: [&str; 8] = ["F0101", "F0112", "F0113", "F0118", "F0119", "F0725", "F0857", "F0874"];

/// Codes whose examples would have thousands of items; their pages show the beginning.
const TOO_LONG: [&str; 2] = ["F0860", "F0861"];

/// The first block of a page: files, each after a line `# <path>`.
fn files(page: &str) -> Vec<(String, String)> {
    let block = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let mut files: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("# ").filter(|path| path.ends_with(".yml") || path.contains("skills/")) {
            // The first line of a skill is that of its front matter.
            Some(path) if !path.ends_with(".yml") => files.push((path.to_owned(), String::new())),
            Some(path) => files.push((path.to_owned(), format!("{line}\n"))),
            None => files.last_mut().expect("an example begins with `# <path>`").1 += &format!("{line}\n"),
        }
    }
    files
}

fn sources(files: &[(String, String)]) -> Sources {
    let mut sources = Sources::default();
    sources.domain.push(SourceFile { path: "domain/base.yml".into(), text: BASE.into() });
    for (path, text) in files {
        let file = SourceFile { path: path.as_str().into(), text: text.as_str().into() };
        match path.split('/').next().unwrap_or_default() {
            "config.yml" => sources.config = Some(file),
            "endpoints.yml" => sources.endpoints = Some(file),
            "credentials.yml" => sources.credentials = Some(file),
            "subagents.yml" => sources.subagents = Some(file),
            "missions" => sources.missions.push(file),
            "domain.yml" | "domain" => sources.domain.push(file),
            "sub_agents" => sources.agents.push(file),
            "data" => sources.data.push(file),
            ".agents" => _ = sources.texts.insert(path.clone(), file.text),
            _ => panic!("{path} is no file of a project"),
        }
    }
    sources.environment.insert("KEY".into(), "k".into());
    sources.read_skills_of_texts();
    sources
}

#[test]
fn error_page_examples_report_their_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let mut wrong = Vec::new();
    let mut pages = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let code = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !code.starts_with("F0") || ON_DISK.contains(&code.as_str()) || TOO_LONG.contains(&code.as_str()) {
            continue;
        }
        pages += 1;
        let page = fs::read_to_string(&path).unwrap();
        let sources = sources(&files(&page));
        let loaded = Project::load_and_analyse(&sources);
        match loaded.findings.iter().find(|finding| finding.code == code) {
            None => wrong.push(format!("{code}\tnot found, but {:?}", loaded.findings)),
            Some(finding) => {
                let said = findings_report::text(finding, &sources).lines().next().unwrap().to_owned();
                if !page.contains(&said) {
                    wrong.push(format!("{code}\t{said}"));
                }
            }
        }
    }
    assert!(pages > 80, "{pages}");
    assert!(wrong.is_empty(), "the page does not say:\n{}", wrong.join("\n"));
}
