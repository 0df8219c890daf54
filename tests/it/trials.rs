//! The prompts on more than forty turns of the assistant at the root of the repository: answers that were written from the prompt alone,
//! replayed from cassettes through the real runtime and the real MCP server. What is right stands in
//! `tests/cassettes/starter/turns.yml`; `tests/cassettes/starter/README.md` holds the results and says how to record anew.

mod models;
mod score;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use segue::{
    clock::{Clock, Deadline, SystemClock, Timestamp},
    http::HttpClients,
    llm::Llm,
    project::{McpTransport, Places},
    runtime::{Assistant, AssistantBuilder, IncomingMessage},
    testing::CollectingSink,
    tools::mcp::{McpEnvironment, McpServer},
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use self::{
    models::{Mode, Tape},
    score::{Seen, Turn},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Right turns below which the prompts are not good enough.
const ENOUGH: usize = 38;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    now: String,
    bookings: Vec<Json>,
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    name: String,
    turns: Vec<Turn>,
}

/// Wall time that stands still, so that prompts are the same whenever this runs; waits are real.
struct Still(Timestamp);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        Box::pin(async move { SystemClock.sleep(until).await })
    }
}

fn cassette(name: &str) -> PathBuf {
    Path::new(ROOT).join(format!("tests/cassettes/starter/{name}.jsonl"))
}

fn assistant(file: &File, folder: &Path, model: Arc<dyn Llm>) -> Assistant {
    let mut loaded = segue::project::load(Path::new(ROOT), &Places::default()).unwrap();
    assert!(loaded.findings.is_empty(), "{:?}", loaded.findings);
    let project = loaded.project.as_mut().unwrap();
    let server = project.endpoints.mcp_servers.get_mut("ferries").unwrap();
    let data = folder.join("bookings.json");
    fs::write(&data, json!({"made": file.bookings.len(), "bookings": file.bookings}).to_string()).unwrap();
    let args =
        ["demo", "ferries", "--data", &data.display().to_string(), "--today", &file.now[..10]].map(str::to_owned);
    server.transport = McpTransport::Stdio { command: "segue".into(), args: args.to_vec(), env: Vec::new() };
    let now = chrono::DateTime::parse_from_rfc3339(&file.now).unwrap().timestamp_micros();
    let clock: Arc<dyn Clock> = Arc::new(Still(Timestamp::from_micros(now)));
    let around = McpEnvironment {
        clock: clock.clone(),
        http: HttpClients::new(),
        program: env!("CARGO_BIN_EXE_segue").into(),
        directory: None,
        variables: Arc::from([]),
        logins: None,
    };
    let ferries = Arc::new(McpServer::new(server, around));
    AssistantBuilder::new(Arc::new(loaded.project.unwrap()), ROOT.into())
        .clock(clock)
        .seeds(|| 7)
        .model(model)
        .source(ferries)
        .build()
        .unwrap()
}

/// What each turn of a conversation showed; fewer turns than there are when the model has no answer yet.
async fn run(file: &File, conversation: &Conversation, tape: &Tape) -> Vec<Seen> {
    let folder = tempfile::tempdir().unwrap();
    let assistant = assistant(file, folder.path(), tape.model());
    let id = conversation.name.as_str().into();
    let mut seen = Vec::new();
    for turn in &conversation.turns {
        let incoming = IncomingMessage::text(conversation.name.as_str(), turn.user.as_str(), "test");
        let asked = tape.asked();
        tokio::select! {
            report = assistant.receive(incoming, Box::new(CollectingSink::streaming())) => { report.unwrap(); }
            () = tape.halted() => return seen,
        }
        let turns = assistant.store().turns(&id).await.unwrap();
        let slots = assistant.conversation(&id).await.unwrap().slots;
        seen.push(Seen::of(&turns.last().unwrap().events, slots, tape.asked() - asked, tape.sizes(asked)));
    }
    assistant.close(Duration::from_secs(1)).await;
    seen
}

fn read() -> File {
    let text = fs::read_to_string(Path::new(ROOT).join("tests/cassettes/starter/turns.yml")).unwrap();
    serde_yaml::from_str_with_options(&text, serde_yaml::options! { strict_booleans: true }).unwrap()
}

/// The table of tests/cassettes/starter/README.md; and how many turns are right, and what is wrong with the others.
fn table(file: &File, shown: &[Vec<Seen>]) -> (String, usize, Vec<String>) {
    let (mut table, mut number, mut right, mut wrong) = (String::new(), 0, 0, Vec::new());
    table.push_str(
        "| | the person writes | right is | seen | | prompts, tokens |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for (conversation, shown) in file.conversations.iter().zip(shown) {
        let _ = writeln!(table, "| | *{}* | | | | |", conversation.name);
        for (turn, seen) in conversation.turns.iter().zip(shown) {
            number += 1;
            let problem = seen.problem(turn);
            right += usize::from(problem.is_none());
            let verdict = if problem.is_none() { "right" } else { "**wrong**" };
            let _ = writeln!(
                table,
                "| {number} | {} | {} | {} | {verdict} | {} |",
                turn.user.replace('|', "/"),
                turn.right.replace('|', "/"),
                seen.brief(),
                seen.sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + "),
            );
            wrong.extend(problem.map(|problem| format!("{number}. {:?}: {problem}", turn.user)));
        }
    }
    (table, right, wrong)
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_understood_as_the_prompts_alone_tell() {
    let file = read();
    let mode = Mode::of_environment();
    let tapes: Vec<Tape> = file.conversations.iter().map(|one| mode.tape(&cassette(&one.name))).collect();
    let runs = file.conversations.iter().zip(&tapes).map(|(conversation, tape)| run(&file, conversation, tape));
    let shown = futures::future::join_all(runs).await;
    let (table, right, wrong) = table(&file, &shown);
    let turns: usize = file.conversations.iter().map(|conversation| conversation.turns.len()).sum();
    let done: usize = shown.iter().map(Vec::len).sum();
    if mode != Mode::Replay {
        for (conversation, tape) in file.conversations.iter().zip(&tapes) {
            tape.keep(&cassette(&conversation.name));
        }
        println!("{table}\n{done} of {turns} turns done, {right} right\n{}", wrong.join("\n\n"));
    }
    assert_eq!(done, turns, "the model has no answer for the others yet");
    tapes.iter().for_each(Tape::verify);
    assert!(turns >= 40 && right + 40 >= turns + ENOUGH, "{right} of {turns} right\n{}", wrong.join("\n"));
    let page = Path::new(ROOT).join("tests/cassettes/starter/README.md");
    let text = fs::read_to_string(&page).unwrap_or_default();
    if mode != Mode::Replay {
        if let Some((head, rest)) = text.split_once("| | the person") {
            let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
            fs::write(&page, format!("{head}{table}\n{tail}")).unwrap();
        }
        return;
    }
    assert!(text.contains(&table), "tests/cassettes/starter/README.md is not what the cassettes show:\n{table}");
    assert!(
        text.contains(&format!("{right} of {turns}")),
        "tests/cassettes/starter/README.md tells another sum than {right} of {turns}"
    );
}
