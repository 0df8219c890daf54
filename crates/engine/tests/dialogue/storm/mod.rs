//! Storms: random projects, read by the real loader, and random people in them, held to every invariant of `sound` after
//! every turn.
//!
//! | variable | means |
//! | --- | --- |
//! | `SEGUE_FULL=1` | the full counts: 100,000 turns of everything, 50,000 of agents |
//! | `SEGUE_SEED` | the seed; it is printed when something fails |
//! | `SEGUE_STORM_TURNS` | how many turns |
//! | `SEGUE_STORM_SHRINK` | how many tries to find a shorter story; 0 leaves it as it is |
//! | `SEGUE_STORM_CASES` | the folder for what fails, instead of `cases/` |
//!
//! What fails is made shorter and written as a case file under `cases/`, where it fails by itself until it is mended.

pub(crate) mod chance;
mod people;
mod plan;
mod shrink;
mod story;
mod world;
mod write;

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use self::{
    chance::Chance,
    plan::Weather,
    story::{Story, Wrong, as_case, invent, project_of},
};
use crate::driver::Driver;

/// The seed of the sampled run; another one each time would make the gate a lottery.
const SEED: u64 = 20_261_107;
/// Turns of the sampled run, and of the full one.
const WILD: (usize, usize) = (3_000, 100_000);
const AGENTS: (usize, usize) = (1_200, 50_000);
/// Tries to find a shorter story.
const TRIES: usize = 600;

#[test]
fn a_wild_storm_breaks_nothing() {
    storm("storm", Weather::Wild, WILD);
}

#[test]
fn a_storm_of_agents_breaks_nothing() {
    storm("agents", Weather::Agents, AGENTS);
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

fn storm(name: &str, weather: Weather, (sample, full): (usize, usize)) {
    let seed = number("SEGUE_SEED").unwrap_or(SEED);
    let counted = if env::var_os("SEGUE_FULL").is_some() { full } else { sample };
    let turns = number("SEGUE_STORM_TURNS").map_or(counted, |turns| turns as usize);
    let mut chance = Chance::new(seed);
    let (mut done, mut told, mut kinds) = (0, 0, BTreeMap::new());
    let mut broken = BTreeMap::new();
    while done < turns {
        let plan = plan::plan(&mut chance, weather);
        let project = match project_of(&plan) {
            Ok(project) => project,
            Err(errors) => panic!("a generated project is none: {errors}\n{plan:#?}"),
        };
        for _ in 0..3 {
            let length = chance.between(8, 30);
            let (story, driver, outcome) = invent(&mut chance, weather, &plan, &project, length);
            (done, told) = (done + story.turns.len(), told + 1);
            count(&driver, &mut kinds);
            if let Err(wrong) = outcome {
                broken.entry(wrong.breach.rule).or_insert_with(|| written_down(name, seed, done, story, wrong));
            }
        }
    }
    recorded(&format!("full: {name}: {done} turns in {told} conversations, seed {seed}"));
    assert!(broken.is_empty(), "{}", broken.into_values().collect::<Vec<_>>().join("\n"));
    let missed = missed(weather, &kinds);
    // The sampled run is always the same one, and a long run meets everything; a short one with a seed of its own may not.
    let must = turns >= full / 2 || (seed == SEED && turns >= sample);
    assert!(!must || missed.is_empty(), "no random conversation reaches {missed:?}: {kinds:#?}");
    if !missed.is_empty() {
        println!("{name}: too short to reach {missed:?}");
    }
}

/// A figure for the record: past the test runner, which keeps to itself what passing tests print.
fn recorded(line: &str) {
    if env::var_os("SEGUE_FULL").is_some() {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Writes the shortest form of what went wrong down, as a case.
fn written_down(name: &str, seed: u64, done: usize, story: Story, wrong: Wrong) -> String {
    let tries = number("SEGUE_STORM_SHRINK").map_or(TRIES, |tries| tries as usize);
    let (rule, says) = (wrong.breach.rule, wrong.breach.says.clone());
    assert!(tries > 0, "after {done} turns with seed {seed}: invariant `{rule}`: {says}");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (story, wrong) = shrink::shrink(story, wrong, tries);
    std::panic::set_hook(hook);
    let file = format!("{name}-{seed}-{rule}.yml");
    let cases = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogue/cases");
    let path = env::var_os("SEGUE_STORM_CASES").map_or_else(cases, PathBuf::from).join(&file);
    fs::write(&path, as_case(&format!("{name} {seed}"), &story, &wrong)).unwrap();
    let (turns, shortest) = (story.turns.len(), &wrong.breach.says);
    format!(
        "after {done} turns with seed {seed}: invariant `{rule}`: {says}\n  in its shortest form ({turns} turns, {file}): {shortest}"
    )
}

fn count(driver: &Driver, kinds: &mut BTreeMap<String, usize>) {
    for event in &driver.all {
        let json = serde_json::to_value(event).unwrap();
        let pattern = json["flow_id"].as_str().filter(|flow| flow.starts_with("pattern_")).unwrap_or_default();
        *kinds.entry(format!("{} {pattern}", json["event"].as_str().unwrap())).or_default() += 1;
    }
}

/// What no conversation of a storm came to. A storm that never reaches what it is for proves nothing.
fn missed(weather: Weather, kinds: &BTreeMap<String, usize>) -> Vec<&'static str> {
    let agents = [
        "flow_interrupted ",
        "flow_resumed ",
        "flow_cancelled ",
        "agent_interrupted ",
        "agent_resumed ",
        "agent_cancelled ",
        "agent_completed ",
        "flow_completed pattern_continue_interrupted",
        "flow_completed pattern_cancel_flow",
        "flow_completed pattern_internal_error",
        "flow_completed pattern_code_change",
    ];
    let wild = [
        "tool_executed ",
        "restart ",
        "session_ended ",
        "reset_slots ",
        "pause ",
        "flow_completed pattern_correction",
        "flow_completed pattern_validate_slot",
        "flow_completed pattern_clarification",
        "flow_completed pattern_cannot_handle",
        "flow_completed pattern_chitchat",
        "flow_completed pattern_search",
        "flow_completed pattern_skip_question",
        "flow_completed pattern_repeat_bot_messages",
        "flow_completed pattern_human_handoff",
        "flow_completed pattern_user_silence",
        "flow_completed pattern_restart",
        "flow_completed pattern_session_start",
    ];
    let more: &[&str] = if weather == Weather::Wild { &wild } else { &[] };
    agents.iter().chain(more).copied().filter(|wanted| !kinds.contains_key(*wanted)).collect()
}
