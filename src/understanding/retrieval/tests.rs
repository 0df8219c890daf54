//! Which flows are selected by the lexical score and by embeddings, and what happens when the embedding service fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use segue_engine::{condition::Condition, project::RetrievalConfig};

use super::*;
use crate::{
    llm::{ChatRequest, Llm, LlmErrorKind, embeddings::ScriptedEmbedder, scripted::ScriptedLlm},
    prompts::PromptSet,
    testing::ManualClock,
    understanding::{
        CommandGenerator,
        fixture::{TURN_TIME, TestConversation, asks, flow, project_of},
    },
};

const SUBJECTS: [(&str, &str); 8] = [
    ("send_money", "transfers an amount to a person"),
    ("show_balance", "tells how much is on the account"),
    ("block_card", "blocks a card that was lost or stolen"),
    ("order_card", "orders a new card"),
    ("change_address", "changes where letters are sent"),
    ("find_branch", "finds the nearest branch"),
    ("exchange_rate", "tells the rate between two currencies"),
    ("close_account", "ends the contract of an account"),
];

/// A bank with eight flows, of which the prompt may show `most`.
fn bank(most: usize, change: impl Fn(&mut RetrievalConfig)) -> Project {
    let flows = SUBJECTS.map(|(id, description)| {
        let mut flow = flow(
            id,
            description,
            if id == "send_money" { vec![asks("iban", "the number of the account")] } else { vec![] },
        );
        flow.always_include_in_prompt = id == "find_branch";
        flow.guard = (id == "close_account").then(|| Condition::constant(false));
        flow
    });
    let mut project = project_of(flows.into(), vec![], vec![]);
    let generator = project.config.generator.as_mut().unwrap();
    generator.retrieval.flows = most;
    change(&mut generator.retrieval);
    project
}

async fn chosen(
    project: &Project,
    conversation: &TestConversation,
    embedder: Option<Arc<ScriptedEmbedder>>,
) -> FlowSelection {
    let retrieval = Retrieval::new(embedder.map(|embedder| embedder as Arc<dyn Embedder>));
    assert!(Retrieval::is_needed(project, &conversation.0));
    retrieval.select_flows(project, &conversation.0, &ManualClock::new().context(Duration::from_secs(60))).await
}

fn ids(selection: &FlowSelection) -> Vec<&str> {
    selection.flows.iter().map(|(flow, _)| flow.as_str()).collect()
}

#[tokio::test]
async fn the_lexical_score_selects_flows_besides_those_always_included() {
    let project = Arc::new(bank(2, |_| {}));
    let conversation = TestConversation::new().user("Hi, my cards were stolen!");
    let selection = chosen(&project, &conversation, None).await;
    assert_eq!(ids(&selection), ["block_card", "order_card"]);
    assert!(selection.flows[0].1 > selection.flows[1].1 && !selection.used_embeddings);

    let generator = CommandGenerator::new(Arc::new(PromptSet::new(|_| None).unwrap()));
    let model = Arc::new(ScriptedLlm::strict(["start flow send_money"]));
    let llm: Arc<dyn Llm> = model.clone();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let mut conversation = conversation;
    conversation.0.started_flows.insert("exchange_rate".into());
    let found = generator.generate_with_flows(Some(&selection), &project, &conversation.0, TURN_TIME, &llm, &cx).await;
    let shown = generator.flows_in_prompt(&selection, &project, &conversation.0);
    let shown: Vec<&str> = shown.iter().map(|flow| flow.as_str()).collect();
    assert_eq!(shown, ["block_card", "order_card", "find_branch", "exchange_rate"], "in the order of the project");
    let requests: Vec<ChatRequest> = model.requests();
    let system = requests[0].messages[0].text();
    assert!(shown.iter().all(|flow| system.contains(flow)) && !system.contains("show_balance"), "{system}");
    assert_eq!(found.commands.len(), 1, "a flow that is not shown can be started too");
}

#[tokio::test]
async fn retrieval_is_not_needed_while_all_flows_fit() {
    for (most, active, needed) in
        [(2, true, true), (6, true, true), (7, true, false), (20, true, false), (2, false, false)]
    {
        let project = bank(most, |retrieval| retrieval.active = active);
        assert_eq!(Retrieval::is_needed(&project, &TestConversation::new().user("hi").0), needed, "{most} {active}");
    }
}

#[tokio::test]
async fn embeddings_find_flows_that_share_no_word_with_the_message() {
    let same = "same: [[stolen, nicked], [account, funds], [balance, cash]]";
    let embedder = Arc::new(ScriptedEmbedder::from_text("s.yml", same).unwrap());
    let project = bank(1, |_| {});
    let conversation = TestConversation::new().user("someone nicked it");
    assert_eq!(
        ids(&chosen(&project, &conversation, None).await),
        ["send_money"],
        "no word is shared: the first flow is selected"
    );
    let selection = chosen(&project, &conversation, Some(embedder.clone())).await;
    assert_eq!((ids(&selection), selection.used_embeddings), (vec!["block_card"], true));
    let before = embedder.texts();
    assert_eq!(before, 7 + 1, "seven flows and one query");
}

#[tokio::test]
async fn flows_are_embedded_once() {
    let embedder = Arc::new(ScriptedEmbedder::default());
    let project = bank(2, |_| {});
    let retrieval = Retrieval::new(Some(embedder.clone()));
    let cx = ManualClock::new().context(Duration::from_secs(60));
    for _ in 0..3 {
        retrieval.select_flows(&project, &TestConversation::new().user("my card").0, &cx).await;
    }
    assert_eq!(embedder.texts(), 7 + 3);
    let other = Project { hash: project.hash + 1, ..bank(2, |_| {}) };
    retrieval.select_flows(&other, &TestConversation::new().user("my card").0, &cx).await;
    assert_eq!(embedder.texts(), 2 * 7 + 4, "another project is embedded again");
}

#[tokio::test]
async fn a_failed_embedding_service_is_paused() {
    let embedder = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Unreachable));
    let project = bank(2, |_| {});
    let retrieval = Retrieval::new(Some(embedder.clone()));
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(600));
    let conversation = TestConversation::new().user("my card was stolen");
    let first = retrieval.select_flows(&project, &conversation.0, &cx).await;
    assert_eq!(ids(&first), ["block_card", "order_card"]);
    assert!(first.embedding_error.unwrap().contains("unreachable"));
    clock.advance(limits::EMBED_PAUSE - Duration::from_millis(1));
    assert_eq!(retrieval.select_flows(&project, &conversation.0, &cx).await.embedding_error, None);
    assert_eq!(embedder.calls(), 1);
    clock.advance(Duration::from_millis(1));
    retrieval.select_flows(&project, &conversation.0, &cx).await;
    assert_eq!(embedder.calls(), 2);
}

#[tokio::test]
async fn earlier_turns_and_slots_are_used_as_configured() {
    let conversation =
        TestConversation::new().user("which currencies do you have?").bot("Several.").user("and the last one?");
    assert_ne!(
        ids(&chosen(&bank(1, |_| {}), &conversation, None).await),
        ["exchange_rate"],
        "the newest message fits no flow"
    );
    let two = bank(1, |retrieval| retrieval.turns = 2);
    assert_eq!(ids(&chosen(&two, &conversation, None).await), ["exchange_rate"]);

    let conversation = TestConversation::new().user("iban");
    assert_eq!(chosen(&bank(1, |_| {}), &conversation, None).await.flows[0].1, 1.0);
    let without = bank(1, |retrieval| retrieval.slots = false);
    assert_eq!(chosen(&without, &conversation, None).await.flows[0].1, 0.0);
}

#[tokio::test]
async fn long_descriptions_and_long_messages_are_truncated() {
    let end = "needle";
    let mut project = bank(2, |retrieval| retrieval.turns = 3);
    let long = flow("long", &format!("{} {end}", "hay ".repeat(limits::RETRIEVAL_FLOW)), vec![]);
    project.flows.insert(long.id.clone(), Arc::new(long));
    let text = document(&project, project.flow("long").unwrap(), true);
    assert_eq!(text.chars().count(), limits::RETRIEVAL_FLOW);
    let conversation = TestConversation::new().user("old").bot("x").user(&"hay ".repeat(limits::RETRIEVAL_QUERY));
    let query = query(&conversation.0, 3);
    assert_eq!(query.len(), 1, "no characters remain for earlier turns");
    assert!(query[0].1.chars().count() <= limits::RETRIEVAL_QUERY);
}
