//! JSON Schemas of the project files: a file without findings of the loader is valid, and `segue schema` prints the schemas.

use std::{
    fs,
    path::{Path, PathBuf},
};

use segue::project::{
    Finding, LoadOptions, MapSchema, ProjectFile, SourceFile, UnknownKeys, ValueType, json_schema, key,
    test_cases::TestFile,
};
use serde_json::Value as Json;

use crate::program::{run, run_in};

/// All project folders of the repository.
fn projects() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut projects = vec![root.to_owned(), root.join("benches/project"), root.join("tests/outside/project")];
    for folder in
        ["examples/projects", "tests/projects", "tests/projects/generations", "crates/engine/tests/dialogue/projects"]
    {
        let folders = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        projects.extend(folders.filter(|path| path.is_dir()));
    }
    projects
}

fn schema(file: ProjectFile) -> jsonschema::Validator {
    jsonschema::draft202012::new(&json_schema(file)).unwrap()
}

/// The schema errors of a file.
fn problems(schema: &jsonschema::Validator, file: &SourceFile) -> Vec<String> {
    let json: Json = serde_yaml::from_str(&file.text).unwrap();
    schema.iter_errors(&json).map(|error| format!("{}: {}: {error}", file.path, error.instance_path())).collect()
}

/// Whether a finding is about this file.
fn has_finding(findings: &[Finding], file: &SourceFile) -> bool {
    findings.iter().any(|finding| finding.place.file == file.path)
}

#[test]
fn project_file_without_findings_is_valid() {
    let (mut checked, mut errors) = (0, Vec::new());
    for folder in projects() {
        let loaded = segue::project::load(&folder, &LoadOptions::default()).unwrap();
        let texts = &loaded.sources;
        let single = |file: &Option<SourceFile>, kind| file.clone().map(|file| (kind, file));
        let mut files: Vec<(ProjectFile, SourceFile)> = [
            single(&texts.config, ProjectFile::Config),
            single(&texts.endpoints, ProjectFile::Endpoints),
            single(&texts.credentials, ProjectFile::Credentials),
            single(&texts.subagents, ProjectFile::Subagents),
        ]
        .into_iter()
        .flatten()
        .collect();
        files.extend(texts.domain.iter().map(|file| (ProjectFile::Domain, file.clone())));
        files.extend(texts.agents.iter().map(|file| (ProjectFile::Agent, file.clone())));
        files.extend(texts.missions.iter().map(|file| (ProjectFile::Mission, file.clone())));
        for file in texts.data.iter().filter(|file| !has_finding(&loaded.findings, file)) {
            let json: Json = serde_yaml::from_str(&file.text).unwrap();
            let kind = if json.get("flows").is_some() { ProjectFile::Flows } else { ProjectFile::Domain };
            files.push((kind, file.clone()));
        }
        for (kind, file) in files.into_iter().filter(|(_, file)| !has_finding(&loaded.findings, file)) {
            checked += 1;
            errors.extend(problems(&schema(kind), &file).into_iter().map(|one| format!("{}/{one}", folder.display())));
        }
    }
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(checked > 60, "{checked}");
}

#[test]
fn test_file_without_findings_is_valid() {
    let (cases, conftest) = (schema(ProjectFile::TestCases), schema(ProjectFile::Conftest));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut checked, mut errors) = (0, Vec::new());
    for folder in ["flows/ferries/tests", "examples/projects", "tests/projects/e2e", "tests/projects/generations"] {
        for path in yaml_files(&root.join(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            let file = SourceFile { path: path.display().to_string().into(), text: text.as_str().into() };
            let is_conftest = path.ends_with("conftest.yml");
            if !is_conftest && !text.contains("test_cases:") {
                continue;
            }
            let (_, findings) = if is_conftest { TestFile::read_conftest(&file) } else { TestFile::read(&file) };
            if findings.is_empty() {
                checked += 1;
                errors.extend(problems(if is_conftest { &conftest } else { &cases }, &file));
            }
        }
    }
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(checked > 10, "{checked}");
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yml") {
            files.push(path);
        }
    }
    files
}

#[test]
fn schema_command_prints_one_schema_and_writes_all() {
    let output = run(&["schema", "flows"], "");
    assert_eq!(output.code, 0, "{}", output.err);
    let schema: Json = serde_json::from_str(&output.out).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(run(&["schema", "flow"], "").code, 2);
    assert_eq!(run(&["schema"], "").code, 2);

    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["schema", "--out", "schemas"], "");
    assert_eq!(output.code, 0, "{}", output.err);
    for file in ProjectFile::ALL {
        let path = folder.path().join(format!("schemas/{}.schema.json", file.name()));
        let written: Json = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(written, json_schema(file));
    }
}

/// The settings of a custom channel, declared in the same way as those of built-in channels.
static PIGEON: MapSchema = MapSchema::new("pigeon", "credentials.yml", UnknownKeys::Refused).keys(&[
    key("loft", ValueType::Text, "Where the pigeon starts.").required(),
    key("speed", ValueType::Integer, "Kilometres per hour.").default("60"),
    key("token", ValueType::Secret, "The token of the pigeon."),
]);

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Pigeon {
    loft: String,
    speed: Option<u64>,
}

#[test]
fn loader_checks_settings_against_the_schema_of_a_custom_channel() {
    let load = |settings: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.yml"), "").unwrap();
        fs::write(folder.path().join("credentials.yml"), format!("pigeon: {settings}\n")).unwrap();
        segue::project::load(folder.path(), &LoadOptions { channels: vec![&PIGEON], ..LoadOptions::default() }).unwrap()
    };
    let loaded = load("{loft: 7, speed: 80, allowed_hosts: [loft.example]}");
    assert!(loaded.findings.is_empty(), "{:?}", loaded.findings);
    let channel = &loaded.project.unwrap().credentials["pigeon"];
    assert_eq!(channel.parse(), Ok(Pigeon { loft: "7".to_owned(), speed: Some(80) }));
    assert_eq!(channel.hosts, ["loft.example"]);
    for (settings, code, key) in [
        ("{loft: a, sped: 80}", "F0107", "`speed`"),
        ("{loft: a, speed: fast}", "F0108", "`speed`"),
        ("{speed: 80}", "F0109", "`loft`"),
        ("{loft: a, token: written}", "F0601", "`token`"),
    ] {
        let findings = load(settings).findings;
        assert!(findings.len() == 1 && findings[0].code == code, "{settings}: {findings:?}");
        assert!(format!("{} {}", findings[0].message, findings[0].help).contains(key), "{findings:?}");
    }
}

#[test]
fn the_help_of_schema_names_every_kind_of_file() {
    let help = run(&["schema", "--help"], "").out;
    for file in ProjectFile::ALL {
        assert!(help.contains(file.name()), "{}: {help}", file.name());
    }
}
