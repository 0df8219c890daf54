//! Evaluation of the prompts on more than forty turns of the starter assistant at the root of the repository. The answers were written
//! from the prompts alone; they are replayed from cassettes through the real runtime and the real MCP server. The expectations are in
//! `tests/cassettes/starter/turns.yml`; the results, and how to record again, are in `tests/cassettes/starter/README.md`.

mod recorded_models;
mod scoring;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use segue::{
    clock::{Clock, Deadline, SystemClock, Timestamp},
    llm::Llm,
    runtime::{Assistant, IncomingMessage},
    testing::CollectingSink,
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use self::{
    recorded_models::{Mode, RecordedModel},
    scoring::{ExpectedTurn, TurnResult},
};
use crate::support::starter::{ROOT, starter, timestamp};

/// The number of turns out of forty that must be right.
const REQUIRED: usize = 38;

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
    turns: Vec<ExpectedTurn>,
}

/// A clock with a fixed wall time, so that the prompts are always the same. Waits are real.
struct FixedClock(Timestamp);

#[async_trait]
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        SystemClock.sleep(until).await
    }
}

fn cassette(name: &str) -> PathBuf {
    Path::new(ROOT).join(format!("tests/cassettes/starter/{name}.jsonl"))
}

fn assistant(file: &File, folder: &Path, model: Arc<dyn Llm>) -> Assistant {
    let bookings = folder.join("bookings.json");
    fs::write(&bookings, json!({"made": file.bookings.len(), "bookings": file.bookings}).to_string()).unwrap();
    starter(Arc::new(FixedClock(timestamp(&file.now))), model, (&file.now[..10], &bookings), |_| {})
}

/// The results of the turns of a conversation. They end early if the model has no answer.
async fn run(file: &File, conversation: &Conversation, model: &RecordedModel) -> Vec<TurnResult> {
    let folder = tempfile::tempdir().unwrap();
    let assistant = assistant(file, folder.path(), model.model());
    let id = conversation.name.as_str().into();
    let mut results = Vec::new();
    for turn in &conversation.turns {
        let incoming = IncomingMessage::new(conversation.name.as_str(), turn.user.as_str()).input_channel("test");
        let requests = model.requests();
        tokio::select! {
            report = assistant.receive(incoming, Box::new(CollectingSink::streaming())) => { report.unwrap(); }
            () = model.failed() => return results,
        }
        let turns = assistant.store().turns(&id).await.unwrap();
        let slots = assistant.conversation(&id).await.unwrap().slots;
        results.push(TurnResult::of(&turns.last().unwrap().events, slots, model.sizes(requests)));
    }
    assistant.close(Duration::from_secs(1)).await;
    results
}

fn read() -> File {
    let text = fs::read_to_string(Path::new(ROOT).join("tests/cassettes/starter/turns.yml")).unwrap();
    serde_yaml::from_str_with_options(&text, serde_yaml::options! { strict_booleans: true }).unwrap()
}

/// The table of `tests/cassettes/starter/README.md`, the number of right turns, and the problems of the others.
fn table(file: &File, results: &[Vec<TurnResult>]) -> (String, usize, Vec<String>) {
    let (mut table, mut number, mut right, mut problems) = (String::new(), 0, 0, Vec::new());
    table.push_str(
        "| | the person writes | right is | seen | | prompts, tokens |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for (conversation, results) in file.conversations.iter().zip(results) {
        let _ = writeln!(table, "| | *{}* | | | | |", conversation.name);
        for (turn, result) in conversation.turns.iter().zip(results) {
            number += 1;
            let problem = result.problem(turn);
            right += usize::from(problem.is_none());
            let verdict = if problem.is_none() { "right" } else { "**wrong**" };
            let _ = writeln!(
                table,
                "| {number} | {} | {} | {} | {verdict} | {} |",
                turn.user.replace('|', "/"),
                turn.right.replace('|', "/"),
                result.summary(),
                result.sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + "),
            );
            problems.extend(problem.map(|problem| format!("{number}. {:?}: {problem}", turn.user)));
        }
    }
    (table, right, problems)
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_prompt_evaluation_is_reproduced() {
    let file = read();
    let mode = Mode::of_environment();
    let models: Vec<RecordedModel> = file.conversations.iter().map(|one| mode.model(&cassette(&one.name))).collect();
    let runs = file.conversations.iter().zip(&models).map(|(conversation, model)| run(&file, conversation, model));
    let results = futures::future::join_all(runs).await;
    let (table, right, problems) = table(&file, &results);
    let turns: usize = file.conversations.iter().map(|conversation| conversation.turns.len()).sum();
    let done: usize = results.iter().map(Vec::len).sum();
    if mode != Mode::Replay {
        for (conversation, model) in file.conversations.iter().zip(&models) {
            model.write_recording(&cassette(&conversation.name));
        }
        println!("{table}\n{done} of {turns} turns done, {right} right\n{}", problems.join("\n\n"));
    }
    assert_eq!(done, turns, "the model has no answer for the other turns");
    models.iter().for_each(RecordedModel::verify);
    assert!(turns >= 40 && right + 40 >= turns + REQUIRED, "{right} of {turns} right\n{}", problems.join("\n"));
    let page = Path::new(ROOT).join("tests/cassettes/starter/README.md");
    let text = fs::read_to_string(&page).unwrap_or_default();
    if mode != Mode::Replay {
        if let Some((head, rest)) = text.split_once("| | the person") {
            let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
            fs::write(&page, format!("{head}{table}\n{tail}")).unwrap();
        }
        return;
    }
    assert!(
        text.contains(&table),
        "tests/cassettes/starter/README.md does not have the table of the cassettes:\n{table}"
    );
    assert!(
        text.contains(&format!("{right} of {turns}")),
        "tests/cassettes/starter/README.md does not say {right} of {turns}"
    );
}
