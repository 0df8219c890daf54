//! A story: a project, and what was said and done in it; enough to be told again, and to be told shorter.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use segue_engine::{dialogue::Next, project::Project};
use serde_json::{Map, Value as Json, json};

use super::{
    chance::Chance,
    people,
    plan::{Plan, Weather},
    world, write,
};
use crate::{
    cases,
    driver::Driver,
    project,
    sound::{self, Breach, Ledger},
};

/// What is said in one turn, and what the world does then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// What the model makes of it, where it is asked.
    pub(crate) commands: Vec<String>,
    /// Minutes before it.
    pub(crate) wait: f64,
    pub(crate) metadata: Map<String, Json>,
    /// The next message comes after so many answers.
    pub(crate) cut: Option<usize>,
    /// The project was changed before it.
    pub(crate) becomes: Option<Plan>,
    /// Answers of the world, in order.
    pub(crate) answers: Vec<Json>,
    /// All that was handed in after the message, as a case file says it.
    pub(crate) given: Vec<Json>,
}

impl Said {
    pub(crate) fn text(text: impl Into<String>, commands: Vec<String>) -> Self {
        let (wait, metadata, cut, becomes) = (0.0, Map::new(), None, None);
        let (answers, given) = (Vec::new(), Vec::new());
        Self { text: text.into(), commands, wait, metadata, cut, becomes, answers, given }
    }
}

/// A project and what happened in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Story {
    pub(crate) plan: Plan,
    pub(crate) turns: Vec<Said>,
}

/// Loads a plan; errors where it is no project, as happens while stories are made shorter.
pub(crate) fn project_of(plan: &Plan) -> Result<Arc<Project>, String> {
    let files = write::files(plan);
    project::try_files(files.iter().map(|(path, text)| (*path, text.as_str())))
}

/// Something is wrong, in that turn.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) breach: Breach,
    pub(crate) turn: usize,
}

/// Where answers of the world come from.
enum World<'a> {
    /// By lot; what is drawn is written down.
    Chance(&'a mut Chance, Weather),
    /// As written down.
    Written,
}

/// Plays one turn. The engine's panics are breaches as well.
fn turn(driver: &mut Driver, said: &mut Said, world: &mut World<'_>, budget: usize) -> Result<(), Breach> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        driver.wait(said.wait);
        driver.user_with(&said.text, "rest", said.metadata.clone());
        let mut left = std::mem::take(&mut said.answers);
        said.given.clear();
        for given in 0..budget {
            if matches!(driver.next, Next::Listen | Next::EndSession) || said.cut.is_some_and(|cut| given >= cut) {
                break;
            }
            if driver.next == Next::Understand {
                let lines: Vec<&str> = said.commands.iter().map(String::as_str).collect();
                driver.understood(&lines);
                said.given.push(json!({"commands": said.commands}));
                continue;
            }
            let answer = match world {
                World::Chance(chance, weather) => world::answers(chance, *weather, &driver.next),
                World::Written => taken(&mut left, &driver.next),
            };
            cases::give(driver, &answer);
            said.given.push(answer.clone());
            said.answers.push(answer);
        }
    }));
    played.map_err(|panic| Breach { rule: "nothing_panics", says: words(&*panic) })
}

/// The next written answer that fits, or the usual one.
fn taken(left: &mut Vec<Json>, next: &Next) -> Json {
    let usual = world::default(next);
    let fits = |answer: &Json| {
        let same = ["act", "tool", "agent"].iter().all(|key| answer[key] == usual[key]);
        same || !answer["exhausted"].is_null() || !answer["upgraded"].is_null()
    };
    match left.iter().position(fits) {
        Some(at) => left.drain(..=at).next_back().unwrap_or(usual),
        None => usual,
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Answers that a turn may take before it counts as endless; the invariant that says so allows fewer.
const BUDGET: usize = 300;

/// Tells a story as it is written, with all invariants; gives the driver at the end of it.
pub(crate) fn tell(story: &mut Story, ways_at: impl Fn(usize) -> bool) -> Result<Option<Driver>, Wrong> {
    let Ok(project) = project_of(&story.plan) else { return Ok(None) };
    let mut driver = Driver::new(project);
    let mut ledger = Ledger::new(&driver);
    for (at, said) in story.turns.iter_mut().enumerate() {
        let wrong = |breach| Wrong { breach, turn: at };
        if let Some(plan) = &said.becomes {
            let Ok(project) = project_of(plan) else { return Ok(None) };
            driver.project = project;
        }
        turn(&mut driver, said, &mut World::Written, BUDGET).map_err(wrong)?;
        check(&mut ledger, &driver, ways_at(at)).map_err(wrong)?;
    }
    let last = story.turns.len().saturating_sub(1);
    end(&driver, 0).map_err(|breach| Wrong { breach, turn: last })?;
    Ok(Some(driver))
}

fn check(ledger: &mut Ledger, driver: &Driver, ways: bool) -> Result<(), Breach> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        ledger.turn(driver)?;
        if ways { sound::way_out(driver).and_then(|()| sound::way_on(driver)) } else { Ok(()) }
    }));
    checked.unwrap_or_else(|panic| Err(Breach { rule: "nothing_panics", says: words(&*panic) }))
}

fn end(driver: &Driver, cut: usize) -> Result<(), Breach> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        sound::at_the_end(driver, cut)?;
        sound::way_out(driver)?;
        sound::way_on(driver)
    }));
    checked.unwrap_or_else(|panic| Err(Breach { rule: "nothing_panics", says: words(&*panic) }))
}

/// Makes a story up as it goes, with all invariants. The story comes back in any case.
pub(crate) fn invent(
    chance: &mut Chance,
    weather: Weather,
    plan: &Plan,
    project: &Arc<Project>,
    length: usize,
) -> (Story, Driver, Result<(), Wrong>) {
    let mut driver = Driver::new(project.clone());
    driver.seed = chance.next();
    let mut ledger = Ledger::new(&driver);
    let mut story = Story { plan: plan.clone(), turns: Vec::new() };
    let mut now = plan.clone();
    for at in 0..length {
        if driver.next == Next::EndSession && chance.percent(50) {
            break;
        }
        let mut said = people::says(chance, weather, &driver, &now);
        if let Some(plan) = said.becomes.clone() {
            match project_of(&plan) {
                Ok(project) => (driver.project, now) = (project, plan),
                Err(_) => said.becomes = None,
            }
        }
        let ways = chance.percent(12);
        let done = turn(&mut driver, &mut said, &mut World::Chance(chance, weather), BUDGET)
            .and_then(|()| check(&mut ledger, &driver, ways));
        story.turns.push(said);
        if let Err(breach) = done {
            return (story, driver, Err(Wrong { breach, turn: at }));
        }
    }
    let ended = end(&driver, chance.below(10_000)).map_err(|breach| Wrong { breach, turn: story.turns.len() - 1 });
    (story, driver, ended)
}

/// The story as a case file: it fails by itself, since the case is held to the invariants.
pub(crate) fn as_case(name: &str, story: &Story, wrong: &Wrong) -> String {
    let mut text = format!("# {}: {}\n", wrong.breach.rule, one_line(&wrong.breach.says));
    text.push_str("project:\n");
    let turns = format!("{:?}", story.turns);
    files(&story.plan, &turns, 1, &mut text);
    text.push_str(&format!("cases:\n  - case: {name}\n    turns:\n"));
    for said in &story.turns {
        text.push_str(&format!("      - user: {}\n", json!(said.text)));
        if said.wait > 0.0 {
            text.push_str(&format!("        wait: {}\n", said.wait));
        }
        if !said.metadata.is_empty() {
            text.push_str(&format!("        metadata: {}\n", json!(said.metadata)));
        }
        if let Some(plan) = &said.becomes {
            text.push_str("        becomes:\n");
            files(plan, &turns, 5, &mut text);
        }
        if said.cut.is_some() {
            text.push_str("        cut: true\n");
        }
        if !said.given.is_empty() {
            text.push_str("        do:\n");
            said.given.iter().for_each(|one| text.push_str(&format!("          - {one}\n")));
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

/// The files of a plan, without what neither its flows nor the turns name.
fn files(plan: &Plan, turns: &str, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let files = write::files(plan);
    let flows = files.iter().find(|(path, _)| *path == "flows.yml").map_or("", |(_, text)| text.as_str());
    let named = |name: &str| {
        let is_in = |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
        // Texts of the domain name these.
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
