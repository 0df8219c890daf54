//! A random conversation: a project with its turns and outcomes, so that it can be replayed and shortened.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use segue_engine::{dialogue::Next, project::Project};
use serde_json::{Map, Value as Json, json};

use super::{
    outcomes,
    plan::{Plan, Scenario},
    project_files,
    rng::Rng,
    users,
};
use crate::{
    cases,
    driver::Driver,
    invariants::{self, InvariantChecker, Violation},
    project,
};

/// One turn: the message and the outcomes of its effects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UserTurn {
    pub(crate) text: String,
    /// The commands, if the command generator is called.
    pub(crate) commands: Vec<String>,
    /// Minutes before the message.
    pub(crate) wait: f64,
    pub(crate) metadata: Map<String, Json>,
    /// The next message arrives after this number of outcomes.
    pub(crate) interrupt_after: Option<usize>,
    /// The new version of the project, deployed before the message.
    pub(crate) new_version: Option<Plan>,
    /// The outcomes to use, in order.
    pub(crate) outcomes: Vec<Json>,
    /// All inputs after the message, in the format of a case file.
    pub(crate) recorded: Vec<Json>,
}

impl UserTurn {
    pub(crate) fn text(text: impl Into<String>, commands: Vec<String>) -> Self {
        let (wait, metadata, interrupt_after, new_version) = (0.0, Map::new(), None, None);
        let (outcomes, recorded) = (Vec::new(), Vec::new());
        Self { text: text.into(), commands, wait, metadata, interrupt_after, new_version, outcomes, recorded }
    }
}

/// A project and its turns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RandomConversation {
    pub(crate) plan: Plan,
    pub(crate) turns: Vec<UserTurn>,
}

/// Loads a plan; returns errors if it is not a valid project, which can happen while it is shortened.
pub(crate) fn project_of(plan: &Plan) -> Result<Arc<Project>, String> {
    let files = project_files::files(plan);
    project::try_files(files.iter().map(|(path, text)| (*path, text.as_str())))
}

/// A violated invariant, and its turn.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) violation: Violation,
    pub(crate) turn: usize,
}

/// The source of outcomes.
enum OutcomeSource<'a> {
    /// Random; the outcomes are recorded.
    Random(&'a mut Rng, Scenario),
    /// The recorded ones.
    Recorded,
}

/// Runs one turn. Panics of the engine are violations too.
fn turn(
    driver: &mut Driver,
    said: &mut UserTurn,
    source: &mut OutcomeSource<'_>,
    budget: usize,
) -> Result<(), Violation> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        driver.wait(said.wait);
        driver.user_with(&said.text, "rest", said.metadata.clone());
        let mut left = std::mem::take(&mut said.outcomes);
        said.recorded.clear();
        for given in 0..budget {
            if matches!(driver.next, Next::Listen | Next::EndSession)
                || said.interrupt_after.is_some_and(|cut| given >= cut)
            {
                break;
            }
            if driver.next == Next::Understand {
                let lines: Vec<&str> = said.commands.iter().map(String::as_str).collect();
                driver.understood(&lines);
                said.recorded.push(json!({"commands": said.commands}));
                continue;
            }
            let answer = match source {
                OutcomeSource::Random(rng, scenario) => outcomes::random(rng, *scenario, &driver.next),
                OutcomeSource::Recorded => next_outcome(&mut left, &driver.next),
            };
            cases::give(driver, &answer);
            said.recorded.push(answer.clone());
            said.outcomes.push(answer);
        }
    }));
    played.map_err(|panic| Violation { rule: "nothing_panics", message: panic_message(&*panic) })
}

/// The next recorded outcome that fits, or the default one.
fn next_outcome(left: &mut Vec<Json>, next: &Next) -> Json {
    let usual = outcomes::default(next);
    let fits = |answer: &Json| {
        let same = ["act", "tool", "agent"].iter().all(|key| answer[key] == usual[key]);
        same || !answer["exhausted"].is_null() || !answer["upgraded"].is_null() || !answer["interrupted"].is_null()
    };
    match left.iter().position(fits) {
        Some(at) => left.drain(..=at).next_back().unwrap_or(usual),
        None => usual,
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The number of outcomes after which a turn counts as endless; the invariant allows fewer.
const BUDGET: usize = 300;

/// Replays a conversation and checks all invariants; returns the driver at its end.
pub(crate) fn replay(
    conversation: &mut RandomConversation,
    check_ends_at: impl Fn(usize) -> bool,
) -> Result<Option<Driver>, Failure> {
    let Ok(project) = project_of(&conversation.plan) else { return Ok(None) };
    let mut driver = Driver::new(project);
    let mut checker = InvariantChecker::new(&driver);
    for (at, said) in conversation.turns.iter_mut().enumerate() {
        let failure = |violation| Failure { violation, turn: at };
        if let Some(plan) = &said.new_version {
            let Ok(project) = project_of(plan) else { return Ok(None) };
            driver.project = project;
        }
        turn(&mut driver, said, &mut OutcomeSource::Recorded, BUDGET).map_err(failure)?;
        check(&mut checker, &driver, check_ends_at(at)).map_err(failure)?;
    }
    let last = conversation.turns.len().saturating_sub(1);
    end(&driver, 0).map_err(|violation| Failure { violation, turn: last })?;
    Ok(Some(driver))
}

fn check(checker: &mut InvariantChecker, driver: &Driver, check_ends: bool) -> Result<(), Violation> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        checker.turn(driver)?;
        if check_ends {
            invariants::check_cancellable(driver).and_then(|()| invariants::check_completable(driver))
        } else {
            Ok(())
        }
    }));
    checked.unwrap_or_else(|panic| Err(Violation { rule: "nothing_panics", message: panic_message(&*panic) }))
}

fn end(driver: &Driver, cut: usize) -> Result<(), Violation> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        invariants::check_conversation(driver, cut)?;
        invariants::check_cancellable(driver)?;
        invariants::check_completable(driver)
    }));
    checked.unwrap_or_else(|panic| Err(Violation { rule: "nothing_panics", message: panic_message(&*panic) }))
}

/// Generates a conversation and checks all invariants. The conversation is returned in any case.
pub(crate) fn generate(
    rng: &mut Rng,
    scenario: Scenario,
    plan: &Plan,
    project: &Arc<Project>,
    length: usize,
) -> (RandomConversation, Driver, Result<(), Failure>) {
    let mut driver = Driver::new(project.clone());
    driver.seed = rng.next();
    let mut checker = InvariantChecker::new(&driver);
    let mut conversation = RandomConversation { plan: plan.clone(), turns: Vec::new() };
    let mut now = plan.clone();
    for at in 0..length {
        if driver.next == Next::EndSession && rng.percent(50) {
            break;
        }
        let mut said = users::next_turn(rng, scenario, &driver, &now);
        if let Some(plan) = said.new_version.clone() {
            match project_of(&plan) {
                Ok(project) => (driver.project, now) = (project, plan),
                Err(_) => said.new_version = None,
            }
        }
        let ways = rng.percent(12);
        let done = turn(&mut driver, &mut said, &mut OutcomeSource::Random(rng, scenario), BUDGET)
            .and_then(|()| check(&mut checker, &driver, ways));
        conversation.turns.push(said);
        if let Err(violation) = done {
            return (conversation, driver, Err(Failure { violation, turn: at }));
        }
    }
    let ended =
        end(&driver, rng.below(10_000)).map_err(|violation| Failure { violation, turn: conversation.turns.len() - 1 });
    (conversation, driver, ended)
}

/// The conversation as a case file: it fails by itself, because the invariants are checked for cases too.
pub(crate) fn to_case(name: &str, conversation: &RandomConversation, failure: &Failure) -> String {
    let mut text = format!("# {}: {}\n", failure.violation.rule, one_line(&failure.violation.message));
    text.push_str("project:\n");
    let turns = format!("{:?}", conversation.turns);
    files(&conversation.plan, &turns, 1, &mut text);
    text.push_str(&format!("cases:\n  - case: {name}\n    turns:\n"));
    for said in &conversation.turns {
        text.push_str(&format!("      - user: {}\n", json!(said.text)));
        if said.wait > 0.0 {
            text.push_str(&format!("        wait: {}\n", said.wait));
        }
        if !said.metadata.is_empty() {
            text.push_str(&format!("        metadata: {}\n", json!(said.metadata)));
        }
        if let Some(plan) = &said.new_version {
            text.push_str("        becomes:\n");
            files(plan, &turns, 5, &mut text);
        }
        if said.interrupt_after.is_some() {
            text.push_str("        cut: true\n");
        }
        if !said.recorded.is_empty() {
            text.push_str("        do:\n");
            said.recorded.iter().for_each(|one| text.push_str(&format!("          - {one}\n")));
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

/// The files of a plan, without parts that neither its flows nor the turns use.
fn files(plan: &Plan, turns: &str, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let files = project_files::files(plan);
    let flows = files.iter().find(|(path, _)| *path == "flows.yml").map_or("", |(_, text)| text.as_str());
    let named = |name: &str| {
        let is_in = |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
        // Responses of the domain use these.
        ["b0", "n0", "t0"].contains(&name) || is_in(flows) || is_in(turns)
    };
    for (path, content) in &files {
        let agent = path.strip_prefix("agent_").and_then(|path| path.strip_suffix(".yml"));
        if agent.is_some_and(|agent| !named(agent)) {
            continue;
        }
        text.push_str(&format!("{indent}{path}: |\n"));
        for line in content.lines() {
            let key = line.split_once(": {").or_else(|| line.split_once(": [{")).map_or("", |(key, _)| key.trim());
            let key = key.strip_prefix("utter_ask_").unwrap_or(key);
            let is_domain = *path == "domain.yml" && !line.contains("run_action_every_turn");
            let goes = is_domain && super::plan::SLOTS.iter().any(|(slot, ..)| *slot == key) && !named(key);
            if !goes {
                text.push_str(&format!("{indent}  {line}\n"));
            }
        }
    }
}
