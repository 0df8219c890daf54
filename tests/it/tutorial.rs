//! The tutorial, done as its pages say: every file that they show is written into one folder, and what they show of the program is what
//! it prints.

use std::{fs, path::Path, process::Command};

use crate::{
    pages::{Block, blocks},
    program::{ProgramOutput, run_in},
};

/// What the block shows of this command.
fn shown<'a>(block: &'a Block, command: &str) -> Option<&'a str> {
    (block.language == "text").then(|| block.text.strip_prefix(&format!("$ {command}\n"))).flatten()
}

/// What the assistant said, in the lines of a terminal and of a pipe.
fn said<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let text = |line: &'a str| ["bot> ", "bot: ", "filler: "].iter().find_map(|mark| line.strip_prefix(mark));
    lines.filter_map(text).map(|line| line.trim_end_matches("  [working on it]")).collect()
}

fn in_order(ran: &ProgramOutput) -> String {
    format!("{}{}", ran.err, ran.out).trim().to_owned()
}

#[test]
fn every_step_of_the_tutorial_works_as_shown() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorial");
    let mut steps = vec!["1-first-flow.md", "2-slots-and-repair.md"];
    // The tool server of the later steps is a Python program.
    let has_python = Command::new("python3").arg("--version").output().is_ok_and(|ran| ran.status.success());
    if has_python {
        steps.extend(["3-tools-and-agents.md", "4-tests.md"]);
    }
    let (mut files, mut chats, mut tests) = (0, 0, 0);
    for name in steps {
        let page = fs::read_to_string(pages.join(name)).unwrap();
        for block in &blocks(name, &page) {
            if let Some(file) = block.file() {
                let file = folder.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, &block.text).unwrap();
                files += 1;
            } else if let Some(shown) = shown(block, "segue chat") {
                let typed: String = shown
                    .lines()
                    .filter_map(|line| line.strip_prefix("you> "))
                    .map(|line| format!("{line}\n"))
                    .collect();
                let ran = run_in(folder.path(), &["chat"], &typed);
                assert_eq!(said(ran.out.lines()), said(shown.lines()), "{name}: {}", ran.err);
                chats += 1;
            } else if let Some(shown) = shown(block, "segue test").filter(|shown| !shown.starts_with('…')) {
                let ran = run_in(folder.path(), &["test"], "");
                let printed: Vec<_> = shown.lines().filter(|line| !line.starts_with("segue: ")).collect();
                assert_eq!(ran.lines(), printed, "{name}: {}", ran.err);
                tests += 1;
            }
        }
        let ran = run_in(folder.path(), &["check", "--strict"], "");
        assert_eq!(in_order(&ran), "0 errors, 0 warnings", "{name}");
    }
    assert_eq!((files, chats, tests), if has_python { (16, 4, 1) } else { (8, 3, 0) });
}
