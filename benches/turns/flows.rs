//! Loading and checking a generated project of a thousand flows.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    Bench,
    figures::{Figure, Goal, Table},
    machine,
};

const FLOWS: usize = 1_000;
/// Flows in one file.
const IN_FILE: usize = 25;

/// The generated project.
pub(crate) fn load(bench: &Bench) -> Table {
    let mut table = Table::new(format!("A generated project of {FLOWS} flows"));
    let root = generate(&bench.folder.path().join("thousand"));
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..bench.effort.repetitions {
        let began = Instant::now();
        let (loaded, spent) = machine::cpu(|| segue::project::load(&root, &segue::project::Places::default()).unwrap());
        wall.push(began.elapsed().as_secs_f64() * 1e3);
        cpu.push(spent.as_secs_f64() * 1e3);
        let project = loaded.project.unwrap_or_else(|| panic!("{:#?}", loaded.findings));
        assert!(project.flows.len() >= FLOWS, "{} flows", project.flows.len());
    }
    table.push(Figure::new("load", "ms", wall).goal(Goal::must(1000.0)));
    table.push(Figure::new("load", "CPU ms", cpu));
    check(bench, &root, &mut table);
    table
}

/// `segue check` as a process.
fn check(bench: &Bench, root: &Path, table: &mut Table) {
    let mut wall = Vec::new();
    for _ in 0..bench.effort.repetitions {
        let began = Instant::now();
        let said = Command::new(env!("CARGO_BIN_EXE_segue")).arg("check").arg(root).output().unwrap();
        wall.push(began.elapsed().as_secs_f64() * 1e3);
        if !said.status.success() || (said.stdout.is_empty() && said.stderr.is_empty()) {
            let words = String::from_utf8_lossy(&said.stderr);
            let words: String = words.chars().take(400).collect();
            return table.missing(format!("`segue check` ended with {} and said {words:?}", said.status));
        }
    }
    table.push(Figure::new("`segue check`, the whole process", "ms", wall).goal(Goal::must(1000.0)));
}

/// Writes the project: each flow asks two slots of its own, branches on them, and answers.
fn generate(root: &Path) -> PathBuf {
    let write = |name: String, text: String| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "config.yml".into(),
        "recipe: default.v1\nlanguage: en\npipeline: []\npolicies:\n  - name: FlowPolicy\n".into(),
    );
    for file in 0..FLOWS / IN_FILE {
        let (mut flows, mut slots, mut responses) = (String::from("flows:\n"), String::new(), String::new());
        for n in (file * IN_FILE..).take(IN_FILE) {
            let _ = write!(
                flows,
                "  errand_{n}:
    name: errand number {n}
    description: Settles errand {n}, which needs an amount and a day, and tells how it went.
    steps:
      - collect: amount_{n}
        description: how much errand {n} may cost
        rejections:
          - if: slots.amount_{n} < 1
            utter: utter_too_little_{n}
      - collect: day_{n}
        next:
          - if: slots.amount_{n} > 100 and slots.day_{n} = \"sunday\"
            then: refused
          - if: slots.day_{n} matches \"^(mon|tues|wednes|thurs|fri)day$\"
            then:
              - action: utter_done_{n}
                next: END
          - else: refused
      - id: refused
        action: utter_refused_{n}
"
            );
            let _ = write!(
                slots,
                "  amount_{n}:\n    type: float\n    mappings:\n      - type: from_llm\n  day_{n}:\n    type: text\n    mappings:\n      - type: from_llm\n"
            );
            for (name, text) in [
                ("ask_amount", "What may errand {n} cost at most?"),
                ("ask_day", "On which day should errand {n} be done?"),
                ("too_little", "For that little nobody does errand {n}."),
                ("done", "Errand {n} is done for {amount_{n}} on {day_{n}}."),
                ("refused", "Errand {n} cannot be done on {day_{n}}."),
            ] {
                let _ = write!(
                    responses,
                    "  utter_{name}_{n}:\n    - text: \"{}\"\n",
                    text.replace("_{n}", &format!("_{n}")).replace("{n}", &n.to_string())
                );
            }
        }
        write(format!("data/flows_{file}.yml"), flows);
        write(format!("domain/part_{file}.yml"), format!("version: \"3.1\"\nslots:\n{slots}responses:\n{responses}"));
    }
    root.to_path_buf()
}
