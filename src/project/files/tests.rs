//! Tests of reading projects from reader.

use std::fs;

use super::*;
use crate::project::load;

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn paths(files: &[SourceFile]) -> Vec<&str> {
    files.iter().map(|file| &*file.path).collect()
}

#[test]
fn default_paths_are_read_and_hidden_or_tool_folders_are_not() {
    let folder = project(&[
        ("config.yml", "recipe: default.v1\n"),
        ("domain/b.yml", ""),
        ("domain/a/c.yaml", ""),
        ("domain.yml", ""),
        ("data/x.yml", ""),
        ("data/.hidden/y.yml", ""),
        ("data/node_modules/z.yml", ""),
        ("flows/deep/er/w.yml", ""),
        ("sub_agents/one/config.yml", "configuration: {prompt_template: ./near.jinja2}\n"),
        ("sub_agents/one/near.jinja2", "near"),
        ("sub_agents/two/readme.md", ""),
        ("missions/report.yml", "mission: {inputs: {key: {value: '${PATH}'}}}\n"),
        ("missions/more/other.yaml", ""),
        ("subagents.yml", ""),
        ("prompts/commands.j2", "own"),
    ]);
    let (sources, findings) = read(folder.path(), &LoadOptions::default()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(paths(&sources.domain), ["domain.yml", "domain/a/c.yaml", "domain/b.yml"]);
    assert_eq!(paths(&sources.data), ["data/x.yml", "flows/deep/er/w.yml"]);
    assert_eq!(paths(&sources.agents), ["sub_agents/one/config.yml"]);
    assert_eq!(paths(&sources.missions), ["missions/more/other.yaml", "missions/report.yml"]);
    assert_eq!(sources.subagents.as_ref().map(|file| &*file.path), Some("subagents.yml"));
    assert!(sources.environment.contains_key("PATH"), "a variable that a mission names");
    let texts: Vec<_> = sources.texts.keys().collect();
    assert_eq!(texts, ["prompts/commands.j2", "sub_agents/one/near.jinja2"]);
}

#[test]
fn config_and_load_options_replace_default_paths() {
    let folder = project(&[
        ("config.yml", "data: [flows/ferries]\n"),
        ("flows/ferries/a.yml", ""),
        ("flows/patterns/b.yml", ""),
        ("elsewhere/domain.yml", ""),
    ]);
    let (sources, _) = read(folder.path(), &LoadOptions::default()).unwrap();
    assert_eq!(paths(&sources.data), ["flows/ferries/a.yml"]);
    let options =
        LoadOptions { domain: vec!["elsewhere".into()], endpoints: Some("none.yml".into()), ..LoadOptions::default() };
    let (sources, findings) = read(folder.path(), &options).unwrap();
    assert_eq!(paths(&sources.domain), ["elsewhere/domain.yml"]);
    assert_eq!((findings[0].code, &*findings[0].place.file), ("F0101", "none.yml"));
}

#[test]
fn symlink_out_of_the_project_is_refused_and_a_symlink_cycle_ends() {
    let outside = project(&[("secret.yml", "flows: {}\n")]);
    let folder = project(&[("config.yml", ""), ("data/a.yml", "")]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(outside.path().join("secret.yml"), folder.path().join("data/out.yml")).unwrap();
        symlink(folder.path().join("data"), folder.path().join("data/circle")).unwrap();
        let (sources, findings) = read(folder.path(), &LoadOptions::default()).unwrap();
        assert_eq!(paths(&sources.data), ["data/a.yml"]);
        assert_eq!((findings.len(), findings[0].code), (1, "F0112"));
    }
    let options = LoadOptions { data: vec![outside.path().to_owned()], ..LoadOptions::default() };
    assert_eq!(read(folder.path(), &options).unwrap().0.data.len(), 1);
}

#[test]
fn unreadable_file_and_empty_folder_are_findings() {
    let folder = project(&[("config.yml", "")]);
    fs::create_dir_all(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/bytes.yml"), [0xff, 0xfe]).unwrap();
    let loaded = load(folder.path(), &LoadOptions::default()).unwrap();
    assert!(loaded.findings.iter().any(|finding| finding.code == "F0101" && &*finding.place.file == "data/bytes.yml"));
    assert!(loaded.project.is_none());
    assert!(load(&folder.path().join("none"), &LoadOptions::default()).is_err());
    assert!(
        load(project(&[]).path(), &LoadOptions::default())
            .unwrap()
            .findings
            .iter()
            .any(|finding| finding.code == "F0118")
    );
}

#[test]
fn file_larger_than_its_limit_is_not_read() {
    let folder = project(&[("config.yml", "")]);
    let large = |path: &str, size: usize| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b' '; size]).unwrap();
    };
    large("prompts/fits.j2", PROJECT_TEXT);
    large("prompts/long.j2", PROJECT_TEXT + 1);
    large("data/long.yml", YAML_FILE + 1);
    let (sources, findings) = read(folder.path(), &LoadOptions::default()).unwrap();
    assert_eq!(sources.texts.keys().collect::<Vec<_>>(), ["prompts/fits.j2"]);
    let locations: Vec<_> = findings.iter().map(|finding| (finding.code, &*finding.place.file)).collect();
    assert_eq!(locations, [("F0101", "data/long.yml"), ("F0101", "prompts/long.j2")]);
    assert!(findings[0].message.contains(&format!("more than {YAML_FILE} bytes")), "{}", findings[0].message);
    assert!(findings[1].message.contains(&format!("more than {PROJECT_TEXT} bytes")), "{}", findings[1].message);
}

#[test]
fn too_many_files_are_reported_once() {
    let folder = project(&[("data/a.yml", ""), ("data/b.yml", ""), ("data/c.yml", ""), ("data/d.yml", "")]);
    let root = folder.path().canonicalize().unwrap();
    let mut reader =
        ProjectReader { root, findings: Findings::default(), file_count: PROJECT_FILES - 2, visited: HashSet::new() };
    let found = reader.many(&["data".into()], (Vec::new(), true));
    assert_eq!(paths(&found), ["data/a.yml", "data/b.yml"]);
    let findings = reader.findings.sorted();
    assert_eq!((findings.len(), findings[0].code, &*findings[0].place.file), (1, "F0113", "data/c.yml"));
    assert!(findings[0].message.contains(&PROJECT_FILES.to_string()));
}

#[test]
fn skills_are_read_with_their_files_and_links_out_of_a_skill_are_refused() {
    let outside = project(&[("secret.txt", "secret"), ("tone/SKILL.md", "---\nname: tone\ndescription: d\n---\n")]);
    let named = |folder: &str, trust: &str| {
        format!("configuration: {{skills: all, skill_folders: [.agents/skills, '{folder}'], trust: {trust}}}\n")
    };
    let outside_path = outside.path().display().to_string();
    let folder = project(&[
        ("config.yml", ""),
        ("sub_agents/one/config.yml", &named(&outside_path, "false")),
        (".agents/skills/tone/SKILL.md", "---\nname: tone\ndescription: d\n---\n"),
        (".agents/skills/tone/references/a.md", "A"),
        (".agents/skills/tone/.hidden", "x"),
        (".agents/skills/tone/more/SKILL.md", "a file of the skill"),
        (".agents/skills/a/b/c/deep/SKILL.md", "---\n---\n"),
        (".agents/skills/a/b/c/d/deeper/SKILL.md", "---\n---\n"),
        (".agents/skills/other/skill.md", "x"),
        (".claude/skills/mine/SKILL.md", "---\n---\n"),
    ]);
    fs::write(folder.path().join(".agents/skills/tone/picture.png"), [0xff, 0xfe]).unwrap();
    let large = folder.path().join(".agents/skills/long");
    fs::create_dir_all(&large).unwrap();
    fs::write(large.join("SKILL.md"), "x".repeat(segue_engine::limits::SKILL_BODY + 1)).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(outside.path().join("secret.txt"), folder.path().join(".agents/skills/tone/link.txt")).unwrap();
        symlink(outside.path().join("tone"), folder.path().join(".agents/skills/linked")).unwrap();
        symlink(folder.path().join(".agents/skills"), folder.path().join(".agents/skills/circle")).unwrap();
    }
    let (sources, findings) = read(folder.path(), &LoadOptions::default()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let [own, foreign] = &sources.skills[..] else { panic!("{:?}", sources.skills) };
    let own_files: Vec<_> = own.skills.iter().map(|skill| &*skill.file.path).collect();
    assert_eq!(own_files, [".agents/skills/tone/SKILL.md", ".agents/skills/a/b/c/deep/SKILL.md"]);
    let files: Vec<_> =
        own.skills[0].files.iter().map(|file| (&*file.path, file.bytes, file.text.as_deref())).collect();
    let expected = [
        ("picture.png", 2, None),
        ("more/SKILL.md", 19, Some("a file of the skill")),
        ("references/a.md", 1, Some("A")),
    ];
    assert_eq!(files, expected);
    let left_out: Vec<_> = own.left_out.iter().map(|(path, _)| &**path).collect();
    #[cfg(unix)]
    assert_eq!(
        left_out,
        [
            ".agents/skills/linked",
            ".agents/skills/long/SKILL.md",
            ".agents/skills/other/skill.md",
            ".agents/skills/tone/link.txt"
        ]
    );
    assert!((foreign.exists, foreign.is_outside, foreign.skills.len()) == (true, true, 0), "nobody trusts it");
    let trusting = named(&outside_path, "true");
    fs::write(folder.path().join("sub_agents/one/config.yml"), trusting).unwrap();
    let (sources, _) = read(folder.path(), &LoadOptions::default()).unwrap();
    assert_eq!(sources.skills[1].skills.len(), 1);
}
