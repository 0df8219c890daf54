//! Recall of the analysis: generates valid projects by seed, puts one mistake into each, and counts the mistakes that
//! are reported at the right place. The generator shares no code with the checks.
//!
//! `SEGUE_SEED` sets the seed, `SEGUE_FULL=1` runs the full counts, `SEGUE_MISTAKE=<part of a kind's name>` shows
//! single kinds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unreachable_pub
)]

mod kinds;
mod project_builder;
#[path = "../support/rng.rs"]
mod rng;
mod valid_projects;
mod yaml;

use std::{collections::HashSet, io::Write as _};

use segue_engine::{
    finding::{Finding, Severity},
    project::{Project, Sources, findings_report},
};

use crate::kinds::Mistake;

/// The seed of the sampled run.
const SEED: u64 = 7;

fn seed() -> u64 {
    variable("SEGUE_SEED").map_or(SEED, |seed| seed.parse().expect("SEGUE_SEED is a number"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok()
}

fn is_full() -> bool {
    variable("SEGUE_FULL").is_some_and(|full| full == "1")
}

/// Prints a result in full runs, bypassing the test runner, which captures the output of passing tests.
fn recorded(line: &str) {
    if is_full() {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

fn counts(finding: &Finding) -> bool {
    finding.severity != Severity::Note
}

/// The result for one project with a mistake.
struct Outcome {
    found: bool,
    /// A description for the output.
    description: String,
}

fn seed_mistake(kind: &Mistake, seed: u64) -> Outcome {
    let custom = kind.without_custom_actions.then_some(false);
    let before: HashSet<(&str, String)> = {
        let (sources, _) = valid_projects::valid_project(seed, custom).sources();
        Project::load_and_analyse(&sources)
            .findings
            .into_iter()
            .map(|finding| (finding.code, finding.message))
            .collect()
    };
    let mut project = valid_projects::valid_project(seed, custom);
    (kind.apply)(&mut project);
    let (sources, marks) = project.sources();
    assert!(!marks.is_empty(), "{} marks no place", kind.name);
    let findings = Project::load_and_analyse(&sources).findings;
    let here = |finding: &Finding| {
        let at = &finding.place;
        marks.iter().any(|(file, first, last)| **file == *at.file && (*first..=*last).contains(&at.line))
    };
    let is_new = |finding: &&Finding| !before.contains(&(finding.code, finding.message.clone()));
    let found = findings.iter().filter(is_new).any(here);
    let shown: Vec<Finding> = findings.iter().filter(is_new).cloned().collect();
    let description = format!(
        "{} (seed {seed}), marked {marks:?}\n{}{}",
        kind.name,
        lines(&sources, &marks),
        findings_report::all(&shown, &sources)
    );
    Outcome { found, description }
}

/// The marked lines with their context.
fn lines(sources: &Sources, marks: &[(String, u32, u32)]) -> String {
    let mut out = String::new();
    for (file, first, last) in marks {
        let text = sources.file(file).unwrap_or_default();
        for (at, line) in text.lines().enumerate().skip(first.saturating_sub(8) as usize).take(16) {
            let is_marked = (*first..=*last).contains(&u32::try_from(at + 1).unwrap());
            out.push_str(&format!("{} {line}\n", if is_marked { '>' } else { ' ' }));
        }
    }
    out
}

#[test]
fn seeded_mistakes_are_reported_at_their_line() {
    let kinds = kinds::all();
    assert!(kinds.len() >= 45, "{}", kinds.len());
    let names: HashSet<&str> = kinds.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), kinds.len());
    let only = variable("SEGUE_MISTAKE");
    let seed = seed();
    let many = if is_full() { 200 } else { 40 };
    // Visits the kinds from an offset that depends on the seed, so that samples of many seeds cover all of them.
    let begin = if is_full() { 0 } else { usize::try_from(seed).unwrap() * many };
    let mut seeded = 0;
    let mut missed = Vec::new();
    for at in begin..begin + many {
        let kind = &kinds[at % kinds.len()];
        if only.as_ref().is_some_and(|only| !kind.name.contains(only.as_str())) {
            continue;
        }
        let outcome = seed_mistake(kind, seed.wrapping_mul(10_007).wrapping_add(at as u64));
        seeded += 1;
        if !outcome.found {
            missed.push(outcome.description);
        } else if only.is_some() {
            println!("{}", outcome.description);
        }
    }
    let kinds = kinds.len().min(many);
    let found = seeded - missed.len();
    recorded(&format!("full: {found} of {seeded} seeded mistakes found, {kinds} kinds, seed {seed}"));
    let most = seeded / 20;
    assert!(missed.len() <= most, "missed {} of {seeded}:\n{}", missed.len(), missed.join("\n"));
    for missed in &missed {
        println!("missed: {missed}");
    }
}

#[test]
fn valid_projects_have_no_findings() {
    let (seed, many) = (seed(), if is_full() { 400 } else { 40 });
    for at in 0..many {
        let seed = seed.wrapping_mul(20_011).wrapping_add(at);
        let (sources, _) = valid_projects::valid_project(seed, None).sources();
        let alarms: Vec<Finding> = Project::load_and_analyse(&sources).findings.into_iter().filter(counts).collect();
        assert!(alarms.is_empty(), "seed {seed}:\n{}", findings_report::all(&alarms, &sources));
    }
    recorded(&format!("full: no error and no warning in {many} valid projects, seed {seed}"));
}
