//! Tests of reading projects from disk.

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
fn the_usual_places_are_read_and_others_are_not() {
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
        ("prompts/commands.j2", "own"),
    ]);
    let (sources, findings) = read(folder.path(), &Places::default()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(paths(&sources.domain), ["domain.yml", "domain/a/c.yaml", "domain/b.yml"]);
    assert_eq!(paths(&sources.data), ["data/x.yml", "flows/deep/er/w.yml"]);
    assert_eq!(paths(&sources.agents), ["sub_agents/one/config.yml"]);
    let texts: Vec<_> = sources.texts.keys().collect();
    assert_eq!(texts, ["prompts/commands.j2", "sub_agents/one/near.jinja2"]);
}

#[test]
fn the_configuration_and_the_operator_name_other_places() {
    let folder = project(&[
        ("config.yml", "data: [flows/ferries]\n"),
        ("flows/ferries/a.yml", ""),
        ("flows/patterns/b.yml", ""),
        ("elsewhere/domain.yml", ""),
    ]);
    let (sources, _) = read(folder.path(), &Places::default()).unwrap();
    assert_eq!(paths(&sources.data), ["flows/ferries/a.yml"]);
    let places = Places { domain: vec!["elsewhere".into()], endpoints: Some("none.yml".into()), ..Places::default() };
    let (sources, findings) = read(folder.path(), &places).unwrap();
    assert_eq!(paths(&sources.domain), ["elsewhere/domain.yml"]);
    assert_eq!((findings[0].code, &*findings[0].place.file), ("F0101", "none.yml"));
}

#[test]
fn no_link_leads_out_and_none_leads_in_circles() {
    let outside = project(&[("secret.yml", "flows: {}\n")]);
    let folder = project(&[("config.yml", ""), ("data/a.yml", "")]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(outside.path().join("secret.yml"), folder.path().join("data/out.yml")).unwrap();
        symlink(folder.path().join("data"), folder.path().join("data/circle")).unwrap();
        let (sources, findings) = read(folder.path(), &Places::default()).unwrap();
        assert_eq!(paths(&sources.data), ["data/a.yml"]);
        assert_eq!((findings.len(), findings[0].code), (1, "F0112"));
    }
    let places = Places { data: vec![outside.path().to_owned()], ..Places::default() };
    assert_eq!(read(folder.path(), &places).unwrap().0.data.len(), 1);
}

#[test]
fn what_cannot_be_read_is_a_finding() {
    let folder = project(&[("config.yml", "")]);
    fs::create_dir_all(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/bytes.yml"), [0xff, 0xfe]).unwrap();
    let opened = load(folder.path(), &Places::default()).unwrap();
    assert!(opened.findings.iter().any(|finding| finding.code == "F0101" && &*finding.place.file == "data/bytes.yml"));
    assert!(opened.project.is_none());
    assert!(load(&folder.path().join("none"), &Places::default()).is_err());
    assert!(
        load(project(&[]).path(), &Places::default()).unwrap().findings.iter().any(|finding| finding.code == "F0118")
    );
}

#[test]
fn files_beyond_their_size_are_not_read() {
    let folder = project(&[("config.yml", "")]);
    let large = |path: &str, size: usize| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b' '; size]).unwrap();
    };
    large("prompts/fits.j2", PROJECT_TEXT);
    large("prompts/long.j2", PROJECT_TEXT + 1);
    large("data/long.yml", YAML_FILE + 1);
    let (sources, findings) = read(folder.path(), &Places::default()).unwrap();
    assert_eq!(sources.texts.keys().collect::<Vec<_>>(), ["prompts/fits.j2"]);
    let told: Vec<_> = findings.iter().map(|finding| (finding.code, &*finding.place.file)).collect();
    assert_eq!(told, [("F0101", "data/long.yml"), ("F0101", "prompts/long.j2")]);
    assert!(findings[0].message.contains(&format!("more than {YAML_FILE} bytes")), "{}", findings[0].message);
    assert!(findings[1].message.contains(&format!("more than {PROJECT_TEXT} bytes")), "{}", findings[1].message);
}

#[test]
fn files_beyond_their_number_are_told_once() {
    let folder = project(&[("data/a.yml", ""), ("data/b.yml", ""), ("data/c.yml", ""), ("data/d.yml", "")]);
    let root = folder.path().canonicalize().unwrap();
    let mut disk = Disk { root, findings: Findings::default(), files: PROJECT_FILES - 2, seen: HashSet::new() };
    let found = disk.many(&["data".into()], (Vec::new(), true));
    assert_eq!(paths(&found), ["data/a.yml", "data/b.yml"]);
    let findings = disk.findings.sorted();
    assert_eq!((findings.len(), findings[0].code, &*findings[0].place.file), (1, "F0113", "data/c.yml"));
    assert!(findings[0].message.contains(&PROJECT_FILES.to_string()));
}
