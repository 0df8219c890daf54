//! Random conversations: random projects, loaded by the real loader, with random users, checked for every invariant
//! after every turn.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `SEGUE_FULL=1` | the full counts: 100,000 turns of all kinds, 50,000 of agents |
//! | `SEGUE_SEED` | the seed; it is printed when something fails |
//! | `SEGUE_RANDOM_TURNS` | the number of turns |
//! | `SEGUE_RANDOM_SHRINK` | the number of attempts to shorten a failed conversation; 0 leaves it as it is |
//! | `SEGUE_RANDOM_OUT` | the folder for failed conversations, instead of `cases/` |
//!
//! A failed conversation is shortened and written as a case file under `cases/`, where it fails by itself until it is
//! fixed.

mod conversation;
mod outcomes;
mod plan;
mod project_files;
#[path = "../../support/rng.rs"]
pub(crate) mod rng;
mod shrink;
mod users;

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use self::{
    conversation::{Failure, RandomConversation, generate, project_of, to_case},
    plan::Scenario,
    rng::Rng,
};
use crate::driver::Driver;

/// The seed of the sampled run; fixed, so that CI results are reproducible.
const SEED: u64 = 20_261_107;
/// Turns of the sampled run and of the full run.
const WILD: (usize, usize) = (3_000, 100_000);
const AGENTS: (usize, usize) = (1_200, 50_000);
/// Attempts to shorten a failed conversation.
const TRIES: usize = 600;

#[test]
fn random_conversations_hold_the_invariants() {
    run_conversations("random", Scenario::Wild, WILD);
}

#[test]
fn random_agent_conversations_hold_the_invariants() {
    run_conversations("agents", Scenario::Agents, AGENTS);
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|text| text.parse().ok())
}

fn run_conversations(name: &str, scenario: Scenario, (sample, full): (usize, usize)) {
    let seed = number("SEGUE_SEED").unwrap_or(SEED);
    let counted = if env::var_os("SEGUE_FULL").is_some() { full } else { sample };
    let turns = number("SEGUE_RANDOM_TURNS").map_or(counted, |turns| turns as usize);
    let mut rng = Rng::new(seed);
    let (mut done, mut told, mut kinds) = (0, 0, BTreeMap::new());
    let mut broken = BTreeMap::new();
    while done < turns {
        let plan = plan::plan(&mut rng, scenario);
        let project = match project_of(&plan) {
            Ok(project) => project,
            Err(errors) => panic!("a generated project is none: {errors}\n{plan:#?}"),
        };
        for _ in 0..3 {
            let length = rng.between(8, 30);
            let (conversation, driver, outcome) = generate(&mut rng, scenario, &plan, &project, length);
            (done, told) = (done + conversation.turns.len(), told + 1);
            count(&driver, &mut kinds);
            if let Err(failure) = outcome {
                broken
                    .entry(failure.violation.rule)
                    .or_insert_with(|| write_case(name, seed, done, conversation, failure));
            }
        }
    }
    recorded(&format!("full: {name}: {done} turns in {told} conversations, seed {seed}"));
    assert!(broken.is_empty(), "{}", broken.into_values().collect::<Vec<_>>().join("\n"));
    let missed = missed(scenario, &kinds);
    // The sampled run is always the same, and a long run reaches everything; a short one with another seed may not.
    let must = turns >= full / 2 || (seed == SEED && turns >= sample);
    assert!(!must || missed.is_empty(), "no random conversation reaches {missed:?}: {kinds:#?}");
    if !missed.is_empty() {
        println!("{name}: too short to reach {missed:?}");
    }
}

/// Prints a result in full runs, bypassing the test runner, which captures the output of passing tests.
fn recorded(line: &str) {
    if env::var_os("SEGUE_FULL").is_some() {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Writes the shortest form of a failed conversation as a case.
fn write_case(name: &str, seed: u64, done: usize, conversation: RandomConversation, failure: Failure) -> String {
    let tries = number("SEGUE_RANDOM_SHRINK").map_or(TRIES, |tries| tries as usize);
    let (rule, says) = (failure.violation.rule, failure.violation.message.clone());
    assert!(tries > 0, "after {done} turns with seed {seed}: invariant `{rule}`: {says}");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (conversation, failure) = shrink::shrink(conversation, failure, tries);
    std::panic::set_hook(hook);
    let file = format!("{name}-{seed}-{rule}.yml");
    let cases = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogue/cases");
    let path = env::var_os("SEGUE_RANDOM_OUT").map_or_else(cases, PathBuf::from).join(&file);
    fs::write(&path, to_case(&format!("{name} {seed}"), &conversation, &failure)).unwrap();
    let (turns, shortest) = (conversation.turns.len(), &failure.violation.message);
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

/// The features that no random conversation reached: such a run proves nothing about them.
fn missed(scenario: Scenario, kinds: &BTreeMap<String, usize>) -> Vec<&'static str> {
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
    let more: &[&str] = if scenario == Scenario::Wild { &wild } else { &[] };
    agents.iter().chain(more).copied().filter(|wanted| !kinds.contains_key(*wanted)).collect()
}
