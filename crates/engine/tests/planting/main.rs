//! Planted defects: clean projects by seed, one thing wrong in each, and a count of what the checker finds at the right place.
//! What plants shares no code with what checks; docs/checks.md has the figures.
//!
//! `SEGUE_SEED` sets the seed, `SEGUE_FULL=1` takes the whole counts, `SEGUE_PLANT=<part of a kind's name>` shows single kinds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unreachable_pub
)]

mod chance;
mod kinds;
mod stock;
mod world;
mod yaml;

use std::{collections::HashSet, io::Write as _};

use segue_engine::{
    finding::{Finding, Severity},
    project::{Project, Sources, findings_report},
};

use crate::kinds::Plant;

/// The seed of the sampled run; the closing run takes one that was never used before.
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

/// A figure for the record: past the test runner, which keeps to itself what passing tests print.
fn recorded(line: &str) {
    if is_full() {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

fn counts(finding: &Finding) -> bool {
    finding.severity != Severity::Note
}

/// What a planted project came to.
struct Outcome {
    found: bool,
    /// Everything there is to see about it.
    story: String,
}

fn plant(kind: &Plant, seed: u64) -> Outcome {
    let custom = kind.quiet.then_some(false);
    let before: HashSet<(&str, String)> = {
        let (sources, _) = stock::clean(seed, custom).sources();
        Project::load_and_analyse(&sources)
            .findings
            .into_iter()
            .map(|finding| (finding.code, finding.message))
            .collect()
    };
    let mut world = stock::clean(seed, custom);
    (kind.plant)(&mut world);
    let (sources, marks) = world.sources();
    assert!(!marks.is_empty(), "{} marks no place", kind.name);
    let findings = Project::load_and_analyse(&sources).findings;
    let here = |finding: &Finding| {
        let at = &finding.place;
        marks.iter().any(|(file, first, last)| **file == *at.file && (*first..=*last).contains(&at.line))
    };
    let is_new = |finding: &&Finding| !before.contains(&(finding.code, finding.message.clone()));
    let found = findings.iter().filter(is_new).any(here);
    let shown: Vec<Finding> = findings.iter().filter(is_new).cloned().collect();
    let story = format!(
        "{} (seed {seed}), marked {marks:?}\n{}{}",
        kind.name,
        lines(&sources, &marks),
        findings_report::all(&shown, &sources)
    );
    Outcome { found, story }
}

/// The marked lines with what stands around them.
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
fn planted_defects_are_found_where_they_are() {
    let kinds = kinds::all();
    assert!(kinds.len() >= 45, "{}", kinds.len());
    let names: HashSet<&str> = kinds.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), kinds.len());
    let only = variable("SEGUE_PLANT");
    let seed = seed();
    let many = if is_full() { 200 } else { 40 };
    // A walk over all kinds that begins where the seed says, so that samples of many seeds meet them all.
    let begin = if is_full() { 0 } else { usize::try_from(seed).unwrap() * many };
    let mut planted = 0;
    let mut missed = Vec::new();
    for at in begin..begin + many {
        let kind = &kinds[at % kinds.len()];
        if only.as_ref().is_some_and(|only| !kind.name.contains(only.as_str())) {
            continue;
        }
        let outcome = plant(kind, seed.wrapping_mul(10_007).wrapping_add(at as u64));
        planted += 1;
        if !outcome.found {
            missed.push(outcome.story);
        } else if only.is_some() {
            println!("{}", outcome.story);
        }
    }
    let kinds = kinds.len().min(many);
    let found = planted - missed.len();
    recorded(&format!("full: {found} of {planted} planted defects found, {kinds} kinds, seed {seed}"));
    let most = planted / 20;
    assert!(missed.len() <= most, "missed {} of {planted}:\n{}", missed.len(), missed.join("\n"));
    for missed in &missed {
        println!("missed: {missed}");
    }
}

#[test]
fn clean_projects_have_no_errors_and_no_warnings() {
    let (seed, many) = (seed(), if is_full() { 400 } else { 40 });
    for at in 0..many {
        let seed = seed.wrapping_mul(20_011).wrapping_add(at);
        let (sources, _) = stock::clean(seed, None).sources();
        let alarms: Vec<Finding> = Project::load_and_analyse(&sources).findings.into_iter().filter(counts).collect();
        assert!(alarms.is_empty(), "seed {seed}:\n{}", findings_report::all(&alarms, &sources));
    }
    recorded(&format!("full: no error and no warning on {many} clean projects, seed {seed}"));
}
