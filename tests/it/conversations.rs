//! Every case of `tests/conversations/` against the assistant at the root of the repository: its scripted model, its real MCP
//! server, and each conversation replayed byte for byte afterwards. The same cases again without shortcuts, with the model's
//! deltas cut at random places, and with a model that answers garbage every third time.

use std::{fs, path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use regex::Regex;
use segue::{
    clock::{Clock, Deadline, SystemClock, Timestamp},
    conversation::{BotKind, ReplyEvent},
    http::HttpClients,
    llm::scripted::ScriptedLlm,
    project::{McpTransport, Places},
    runtime::{Assistant, AssistantBuilder, IncomingMessage},
    testing::CollectingSink,
    tools::mcp::{McpEnvironment, McpServer},
};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

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

/// How the world differs from the plain one.
#[derive(Clone, Copy, PartialEq)]
enum Weather {
    Plain,
    NoShortcuts,
    SplitDeltas,
    GarbageEveryThird,
}

/// Wall time that begins where a file says. Short waits, such as the pace of the scripted model, end at once; long ones are
/// deadlines and real.
struct Wall {
    begins: Timestamp,
    at: Duration,
}

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let passed = SystemClock.elapsed().saturating_sub(self.at);
        Timestamp::from_micros(self.begins.as_micros() + passed.as_micros() as i64)
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if until.0.saturating_sub(self.elapsed()) > Duration::from_secs(1) {
                SystemClock.sleep(until).await;
            }
        })
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

fn assistant(weather: Weather, now: &str, bookings: &Path) -> Assistant {
    let mut loaded = segue::project::check(Path::new(ROOT), &Places::default()).unwrap();
    assert!(loaded.findings.is_empty(), "{:?}", loaded.findings);
    let project = loaded.project.as_mut().unwrap();
    project.config.shortcuts = weather != Weather::NoShortcuts;
    let server = project.endpoints.mcp_servers.get_mut("ferries").unwrap();
    let (today, data) = (now[..10].to_owned(), bookings.display().to_string());
    let args = ["demo", "ferries", "--data", &data, "--today", &today].map(str::to_owned).to_vec();
    server.transport = McpTransport::Stdio { command: "segue".into(), args, env: Vec::new() };
    let begins = Timestamp::from_micros(chrono::DateTime::parse_from_rfc3339(now).unwrap().timestamp_micros());
    let clock: Arc<dyn Clock> = Arc::new(Wall { begins, at: SystemClock.elapsed() });
    let around = McpEnvironment {
        clock: clock.clone(),
        http: HttpClients::new(),
        program: env!("CARGO_BIN_EXE_segue").into(),
        directory: None,
        variables: Arc::from([]),
        logins: None,
    };
    let ferries = Arc::new(McpServer::new(server, around));
    let script = fs::read_to_string(Path::new(ROOT).join("flows/ferries/script.yml")).unwrap();
    let mischief = match weather {
        Weather::SplitDeltas => "mischief: { split: true }\n",
        Weather::GarbageEveryThird => "mischief: { garbage_every: 3 }\n",
        Weather::Plain | Weather::NoShortcuts => "",
    };
    let model = ScriptedLlm::from_text("flows/ferries/script.yml", &format!("{mischief}{script}"), 11).unwrap();
    AssistantBuilder::new(Arc::new(loaded.project.unwrap()), ROOT.into())
        .clock(clock)
        .seeds(|| 7)
        .model(Arc::new(model))
        .source(ferries)
        .build()
        .unwrap()
}

/// What one turn showed.
struct Shown {
    pieces: Vec<ReplyEvent>,
    said: String,
}

/// Which conversation, and what is in the server's file before it.
struct Place<'a> {
    assistant: &'a Assistant,
    id: String,
    bookings: &'a Path,
}

async fn say(place: &Place<'_>, text: &str) -> Shown {
    let sink = CollectingSink::streaming();
    let collected = sink.collected();
    let incoming = IncomingMessage::text(place.id.as_str(), text, "test");
    let report = place.assistant.receive(incoming, Box::new(sink)).await.unwrap();
    let lines = report.replies.iter().filter(|reply| reply.kind != BotKind::Filler);
    let said: Vec<&str> = lines.filter_map(|reply| reply.reply.text.as_deref()).collect();
    Shown { said: said.join("\n"), pieces: collected.pieces() }
}

async fn run(weather: Weather, place: &Place<'_>, case: &Case) -> Result<(), String> {
    let before = stored(place.bookings).len();
    let reference = Regex::new(r"NW-[2-9A-Z]{5}").unwrap();
    let mut told = String::new();
    for line in &case.begins_with {
        let shown = say(place, &line.replace("{reference}", &told)).await;
        told = reference.find_iter(&shown.said).last().map_or(told, |found| found.as_str().to_owned());
    }
    for step in &case.steps {
        let shown = say(place, &step.user.replace("{reference}", &told)).await;
        told = reference.find_iter(&shown.said).last().map_or(told, |found| found.as_str().to_owned());
        if shown.said.trim().is_empty() {
            return Err(format!("after {:?} the assistant said nothing", step.user));
        }
        if weather != Weather::GarbageEveryThird {
            look(place, step, &shown).await?;
        }
    }
    let stored = stored(place.bookings).split_off(before);
    if let Some(expected) = &case.bookings {
        match weather {
            // It recovers or says so: a booking that was asked for may be missing, one too many must not be there.
            Weather::GarbageEveryThird if stored.len() > expected.len() => {
                return Err(format!("too many bookings: {stored:?}"));
            }
            Weather::GarbageEveryThird => {}
            _ => same_bookings(expected, &stored)?,
        }
    }
    let id = place.id.as_str().into();
    let difference = place.assistant.replay(&id).await.map_err(|error| error.to_string())?;
    difference.map_or(Ok(()), |difference| Err(format!("the replay differs: {difference:#?}")))
}

async fn look(place: &Place<'_>, step: &Step, shown: &Shown) -> Result<(), String> {
    let problem = |what: String| Err(format!("after {:?}: {what}\nit said: {}", step.user, shown.said));
    let fits = |wanted: &str| match wanted.strip_prefix('~') {
        Some(pattern) => Regex::new(pattern).unwrap().is_match(&shown.said),
        None => shown.said.contains(wanted),
    };
    if let Some(missing) = step.bot.iter().find(|wanted| !fits(wanted)) {
        return problem(format!("{missing:?} is missing"));
    }
    if let Some(unwanted) = step.not_bot.iter().find(|unwanted| fits(unwanted)) {
        return problem(format!("{unwanted:?} should not be there"));
    }
    if step.filler && !filler_first(&shown.pieces) {
        return problem(format!("no filler came first: {:?}", shown.pieces));
    }
    let conversation = place.assistant.conversation(&place.id.as_str().into()).await.unwrap();
    for (name, wanted) in &step.slots {
        let found = conversation.slots.get(name).cloned().unwrap_or(Json::Null);
        if !same(wanted, &found) {
            return problem(format!("slot {name} is {found}, not {wanted}"));
        }
    }
    Ok(())
}

/// Whether the first complete message of the turn was a filler.
fn filler_first(pieces: &[ReplyEvent]) -> bool {
    let first = pieces.iter().find_map(|piece| match piece {
        ReplyEvent::End { kind, .. } | ReplyEvent::Message { kind, .. } => Some(*kind),
        _ => None,
    });
    first == Some(BotKind::Filler)
}

fn same(wanted: &Json, found: &Json) -> bool {
    match (wanted.as_f64(), found.as_f64()) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => wanted == found,
    }
}

fn stored(path: &Path) -> Vec<Json> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let json: Json = serde_json::from_str(&text).unwrap();
    let list = json.get("bookings").cloned().unwrap_or(json);
    match list {
        Json::Array(list) => list,
        Json::Object(map) => map.into_iter().map(|(_, booking)| booking).collect(),
        other => panic!("{other}"),
    }
}

fn same_bookings(expected: &[Map<String, Json>], stored: &[Json]) -> Result<(), String> {
    let fits = expected.len() == stored.len()
        && expected.iter().zip(stored).all(|(expected, stored)| {
            expected.iter().all(|(key, wanted)| same(wanted, stored.get(key).unwrap_or(&Json::Null)))
        });
    if fits { Ok(()) } else { Err(format!("bookings are {stored:#?}, not {expected:#?}")) }
}

async fn run_all(weather: Weather) {
    let folder = tempfile::tempdir().unwrap();
    let (mut failures, mut cases) = (Vec::new(), 0);
    for (file, content) in files() {
        let bookings = folder.path().join(format!("{file}.json"));
        let assistant = assistant(weather, &content.now, &bookings);
        for case in &content.cases {
            cases += 1;
            let place = Place { assistant: &assistant, id: format!("{file}/{}", case.name), bookings: &bookings };
            if let Err(problem) = run(weather, &place, case).await {
                failures.push(format!("{file}: {}: {problem}", case.name));
            }
        }
        assistant.close(Duration::from_secs(1)).await;
    }
    assert!(cases >= 20, "only {cases} cases");
    assert!(failures.is_empty(), "{} of {cases} cases:\n{}", failures.len(), failures.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_ends_in_the_right_slots_and_the_right_booking() {
    run_all(Weather::Plain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_passes_without_shortcuts() {
    run_all(Weather::NoShortcuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_passes_with_deltas_cut_at_random_places() {
    run_all(Weather::SplitDeltas).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_answers_garbage_every_third_time_never_silences_the_assistant() {
    run_all(Weather::GarbageEveryThird).await;
}
