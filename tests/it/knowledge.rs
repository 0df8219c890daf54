//! Answers from documents, and the selection of flows for the prompt: on a scripted model and scripted embeddings, in the assistant and
//! through the program. Each conversation is replayed.

use std::sync::Arc;

use segue::{
    llm::{Embedder, LlmErrorKind, embeddings::ScriptedEmbedder},
    runtime::{Assistant, TraceEntry},
    testing::TestAssistant,
};
use serde_json::Value as Json;

use crate::{
    program::{run, run_in},
    project,
};

/// The project `knowledge`, with its scripted embeddings unless an embedder is given.
fn assistant(embedder: Option<Arc<dyn Embedder>>) -> TestAssistant {
    let builder = Assistant::builder(project("knowledge")).unwrap();
    TestAssistant::build(match embedder {
        Some(embedder) => builder.embedder(embedder),
        None => builder,
    })
    .unwrap()
}

const ANSWER: &str = "Yes, dogs travel free [1]. They stay on deck .\n\n[1] docs/pets.md, Pets";

#[tokio::test]
async fn questions_are_answered_during_a_flow_and_after_it() {
    let test = assistant(None);
    assert_eq!(test.say("lend me one").await.unwrap(), ["For how many days?"]);
    let replies = test.say("may my puppy come too?").await.unwrap();
    assert_eq!(replies, [ANSWER, "For how many days?"], "the open question is asked again");
    assert_eq!(test.say("3").await.unwrap()[0], "Done.");
    let replies = test.say("what is the price of a bicycle?").await.unwrap();
    let last = "Is there anything else I can help you with?";
    assert_eq!(replies, ["A bicycle costs 5 crowns [1].\n\n[1] docs/bicycles.md, Bicycles", last]);

    let id = "u".into();
    assert!(test.assistant.replay(&id).await.unwrap().is_none(), "a replay gives the same events");
    let turns = test.assistant.store().turns(&id).await.unwrap();
    let events: Vec<Json> = turns[1]
        .events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .filter(|e| e["event"] == "bot")
        .collect();
    assert_eq!(events[0]["utter_source"], "EnterpriseSearchPolicy");
    assert_eq!(
        (&events[0]["search_results"][0]["source"], &events[0]["search_results"][0]["cited"]),
        (&"docs/pets.md".into(), &true.into())
    );
    let traces = test.assistant.trace(&id, Some(turns[1].turn.0)).await.unwrap();
    let search = traces[0].entries.iter().find_map(|entry| match entry {
        TraceEntry::DocumentsSearched { query, used_embeddings, found, .. } => {
            Some((query.as_str(), *used_embeddings, found[0].0.as_str()))
        }
        _ => None,
    });
    assert_eq!(search, Some(("For how many days?\nmay my puppy come too?", true, "docs/pets.md")));
}

#[tokio::test]
async fn similar_flows_are_in_the_prompt_and_in_the_trace() {
    let test = assistant(None);
    let reply = "I am sorry. Please go to the police first.";
    assert_eq!(
        test.say("my wallet was nicked").await.unwrap()[0],
        reply,
        "the prompt contains the flow that is similar in meaning"
    );
    let traces = test.assistant.trace(&"u".into(), None).await.unwrap();
    let Some(TraceEntry::FlowsChosen { flows_from_semantic_search, flows_in_prompt, used_embeddings, .. }) =
        traces[0].entries.first()
    else {
        panic!("{:?}", traces[0].entries);
    };
    assert_eq!((flows_from_semantic_search[0].0.as_str(), *used_embeddings), ("report_theft", true));
    assert_eq!((flows_from_semantic_search.len(), flows_in_prompt.len()), (3, 3));
    assert!(test.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn embedding_failure_falls_back_to_keyword_search() {
    let embedder = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Unreachable));
    let test = assistant(Some(embedder.clone()));
    assert_eq!(test.say("lend me one").await.unwrap(), ["For how many days?"]);
    let replies = test.say("what is the price of a bicycle?").await.unwrap();
    assert!(replies[0].starts_with("A bicycle costs 5 crowns [1]."), "{replies:?}");
    assert!(embedder.calls() > 0);
    assert!(test.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn truncated_answer_is_reported_and_the_flow_continues() {
    let test = assistant(None);
    test.say("lend me one").await.unwrap();
    let (report, collected) = test.send("u", "is dogs and cats cut?").await.unwrap();
    assert_eq!(report.failures[0].code, "U0503");
    let texts = collected.texts();
    assert!(texts[0].starts_with("This"), "{texts:?}");
    assert_eq!(texts.last().map(String::as_str), Some("For how many days?"));
    assert!(test.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[test]
fn program_checks_chats_replays_and_traces_with_documents() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = project("knowledge");
    let checked = run(&["check", &knowledge], "");
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    let talk = ["chat", &knowledge, "--store", "sqlite:talks.db", "--conversation", "c1"];
    let output = run_in(folder.path(), &talk, "may my puppy come?\n");
    assert!(
        output.out.contains("dogs travel free [1]") && output.out.contains("docs/pets.md"),
        "{}{}",
        output.out,
        output.err
    );
    let replay = run_in(folder.path(), &["replay", "c1", &knowledge, "--store", "talks.db"], "");
    assert_eq!(replay.code, 0, "{}{}", replay.out, replay.err);
    let trace = run_in(folder.path(), &["trace", "c1", &knowledge, "--store", "talks.db"], "");
    assert!(trace.out.contains("  search   ") && trace.out.contains("docs/pets.md"), "{}", trace.out);
    assert!(trace.out.contains("  flows    ") && trace.out.contains("lend_bicycle"), "{}", trace.out);
}
