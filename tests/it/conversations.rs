//! The cases of `tests/conversations/`, with the starter assistant at the root of the repository, its scripted model and its real MCP
//! server. Each conversation is replayed afterwards. The cases also run without shortcuts, with the model's deltas split at random places,
//! and with a model whose every third answer is invalid.

use std::{fs, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use regex::Regex;
use segue::{
    clock::{Clock, Deadline, SystemClock, Timestamp},
    conversation::{BotKind, TurnEvent},
    llm::scripted::ScriptedLlm,
    runtime::{Assistant, IncomingMessage},
    testing::CollectingSink,
};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::support::{
    is_full,
    json::json_equal,
    starter::{ROOT, starter, timestamp},
};

/// A file of `tests/conversations/`; the format is in its `README.md`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    now: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    begins_with: Vec<String>,
    steps: Vec<Step>,
    #[serde(default)]
    bookings: Option<Vec<Map<String, Json>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    user: String,
    #[serde(default)]
    filler: bool,
    #[serde(default)]
    bot: Vec<String>,
    #[serde(default)]
    not_bot: Vec<String>,
    #[serde(default)]
    slots: Map<String, Json>,
}

/// How the model behaves in a run of the cases.
#[derive(Clone, Copy, PartialEq)]
enum ModelBehaviour {
    AsScripted,
    /// Every message goes to the model, also answers that the engine would understand without it.
    NoShortcuts,
    SplitDeltas,
    InvalidEveryThird,
}

impl ModelBehaviour {
    /// Of how many cases one runs, unless all do. Every conversation is checked with the model as scripted.
    fn sample(self) -> usize {
        match self {
            Self::AsScripted => 1,
            Self::NoShortcuts | Self::InvalidEveryThird => 2,
            Self::SplitDeltas => 4,
        }
    }
}

/// A clock whose wall time starts at a given time. Waits of up to a second end at once, for example the pace of the scripted model;
/// longer waits are real timeouts.
struct ShiftedClock {
    start: Timestamp,
    /// The elapsed time of the system clock at the start.
    started: Duration,
}

#[async_trait]
impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        let passed = SystemClock.elapsed().saturating_sub(self.started);
        Timestamp::from_micros(self.start.as_micros() + passed.as_micros() as i64)
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        if until.0.saturating_sub(self.elapsed()) > Duration::from_secs(1) {
            SystemClock.sleep(until).await;
        }
    }
}

fn files() -> Vec<(String, File)> {
    let mut paths: Vec<_> = fs::read_dir(Path::new(ROOT).join("tests/conversations"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yml"))
        .collect();
    paths.sort();
    let read = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let file: File = serde_yaml::from_str_with_options(&text, serde_yaml::options! { strict_booleans: true })
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), file)
    };
    paths.iter().map(|path| read(path)).collect()
}

fn assistant(behaviour: ModelBehaviour, now: &str, bookings: &Path) -> Assistant {
    let clock = Arc::new(ShiftedClock { start: timestamp(now), started: SystemClock.elapsed() });
    let script = fs::read_to_string(Path::new(ROOT).join("flows/ferries/script.yml")).unwrap();
    let mischief = match behaviour {
        ModelBehaviour::SplitDeltas => "mischief: { split: true }\n",
        ModelBehaviour::InvalidEveryThird => "mischief: { garbage_every: 3 }\n",
        ModelBehaviour::AsScripted | ModelBehaviour::NoShortcuts => "",
    };
    let model = ScriptedLlm::from_text("flows/ferries/script.yml", &format!("{mischief}{script}"), 11).unwrap();
    starter(clock, Arc::new(model), (&now[..10], bookings), |project| {
        project.config.shortcuts = behaviour != ModelBehaviour::NoShortcuts;
    })
}

/// The output of one turn.
struct TurnOutput {
    events: Vec<TurnEvent>,
    /// The texts of the replies without fillers, one per line.
    text: String,
}

/// A conversation of a case, and the file in which the server keeps its bookings.
struct TestConversation<'a> {
    assistant: &'a Assistant,
    id: String,
    bookings: &'a Path,
}

async fn say(conversation: &TestConversation<'_>, text: &str) -> TurnOutput {
    let sink = CollectingSink::streaming();
    let collected = sink.collected();
    let incoming = IncomingMessage::new(conversation.id.as_str(), text).input_channel("test");
    let report = conversation.assistant.receive(incoming, Box::new(sink)).await.unwrap();
    let lines = report.replies.iter().filter(|reply| reply.kind != BotKind::Filler);
    let texts: Vec<&str> = lines.filter_map(|reply| reply.reply.text.as_deref()).collect();
    TurnOutput { text: texts.join("\n"), events: collected.events() }
}

/// Runs a case.
///
/// # Errors
/// The first expectation that does not hold.
async fn run(behaviour: ModelBehaviour, conversation: &TestConversation<'_>, case: &Case) -> Result<(), String> {
    let earlier_bookings = read_bookings(conversation.bookings).len();
    let reference = Regex::new(r"NW-[2-9A-Z]{5}").unwrap();
    let mut last_reference = String::new();
    for line in &case.begins_with {
        let output = say(conversation, &line.replace("{reference}", &last_reference)).await;
        last_reference =
            reference.find_iter(&output.text).last().map_or(last_reference, |found| found.as_str().to_owned());
    }
    for step in &case.steps {
        let output = say(conversation, &step.user.replace("{reference}", &last_reference)).await;
        last_reference =
            reference.find_iter(&output.text).last().map_or(last_reference, |found| found.as_str().to_owned());
        if output.text.trim().is_empty() {
            return Err(format!("after {:?} there is no reply", step.user));
        }
        if behaviour != ModelBehaviour::InvalidEveryThird {
            check_step(conversation, step, &output).await?;
        }
    }
    let bookings = read_bookings(conversation.bookings).split_off(earlier_bookings);
    if let Some(expected) = &case.bookings {
        match behaviour {
            // The assistant recovers or reports an error: a booking may be missing, but none may be made twice.
            ModelBehaviour::InvalidEveryThird if bookings.len() > expected.len() => {
                return Err(format!("too many bookings: {bookings:?}"));
            }
            ModelBehaviour::InvalidEveryThird => {}
            _ => check_bookings(expected, &bookings)?,
        }
    }
    let id = conversation.id.as_str().into();
    let difference = conversation.assistant.replay(&id).await.map_err(|error| error.to_string())?;
    difference.map_or(Ok(()), |difference| Err(format!("the replay differs: {difference:#?}")))
}

/// Checks the expectations of a step.
async fn check_step(conversation: &TestConversation<'_>, step: &Step, output: &TurnOutput) -> Result<(), String> {
    let problem = |what: String| Err(format!("after {:?}: {what}\nthe replies: {}", step.user, output.text));
    let matches = |expected: &str| match expected.strip_prefix('~') {
        Some(pattern) => Regex::new(pattern).unwrap().is_match(&output.text),
        None => output.text.contains(expected),
    };
    if let Some(missing) = step.bot.iter().find(|expected| !matches(expected)) {
        return problem(format!("{missing:?} is missing"));
    }
    if let Some(unwanted) = step.not_bot.iter().find(|unwanted| matches(unwanted)) {
        return problem(format!("{unwanted:?} should not be there"));
    }
    if step.filler && !filler_is_first(&output.events) {
        return problem(format!("the first message is not a filler: {:?}", output.events));
    }
    let conversation = conversation.assistant.conversation(&conversation.id.as_str().into()).await.unwrap();
    for (name, expected) in &step.slots {
        let found = conversation.slots.get(name).cloned().unwrap_or(Json::Null);
        if !json_equal(expected, &found) {
            return problem(format!("slot {name} is {found}, not {expected}"));
        }
    }
    Ok(())
}

/// Whether the first complete message of the turn was a filler.
fn filler_is_first(events: &[TurnEvent]) -> bool {
    let first = events.iter().find_map(|event| match event {
        TurnEvent::MessageEnd { kind, .. } | TurnEvent::Message { kind, .. } => Some(*kind),
        _ => None,
    });
    first == Some(BotKind::Filler)
}

/// The bookings in the file of the server, oldest first.
fn read_bookings(path: &Path) -> Vec<Json> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let json: Json = serde_json::from_str(&text).unwrap();
    let list = json.get("bookings").cloned().unwrap_or(json);
    match list {
        Json::Array(list) => list,
        Json::Object(map) => map.into_iter().map(|(_, booking)| booking).collect(),
        other => panic!("{other}"),
    }
}

/// Checks the bookings that a case made. Only the given keys are compared.
fn check_bookings(expected: &[Map<String, Json>], bookings: &[Json]) -> Result<(), String> {
    let matches = expected.len() == bookings.len()
        && expected.iter().zip(bookings).all(|(expected, booking)| {
            expected.iter().all(|(key, value)| json_equal(value, booking.get(key).unwrap_or(&Json::Null)))
        });
    if matches { Ok(()) } else { Err(format!("bookings are {bookings:#?}, not {expected:#?}")) }
}

async fn run_all(behaviour: ModelBehaviour) {
    let folder = tempfile::tempdir().unwrap();
    let (mut failures, mut cases) = (Vec::new(), 0_usize);
    for (file, content) in files() {
        let bookings = folder.path().join(format!("{file}.json"));
        let assistant = assistant(behaviour, &content.now, &bookings);
        for case in &content.cases {
            cases += 1;
            if !is_full() && !cases.is_multiple_of(behaviour.sample()) {
                continue;
            }
            let conversation =
                TestConversation { assistant: &assistant, id: format!("{file}/{}", case.name), bookings: &bookings };
            if let Err(problem) = run(behaviour, &conversation, case).await {
                failures.push(format!("{file}: {}: {problem}", case.name));
            }
        }
        assistant.close(Duration::from_secs(1)).await;
    }
    assert!(cases >= 20, "only {cases} cases");
    assert!(failures.is_empty(), "{} of {cases} cases:\n{}", failures.len(), failures.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_end_with_the_expected_slots_and_bookings() {
    run_all(ModelBehaviour::AsScripted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_pass_without_shortcuts() {
    run_all(ModelBehaviour::NoShortcuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_pass_with_split_deltas() {
    run_all(ModelBehaviour::SplitDeltas).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn assistant_always_replies_with_invalid_model_answers() {
    run_all(ModelBehaviour::InvalidEveryThird).await;
}
