//! An assistant that answers from documents and chooses flows for its prompt, end to end: on the scripted model and scripted vectors,
//! replayed from its record, and by the program.

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

fn world(embedder: Option<Arc<dyn Embedder>>) -> TestAssistant {
    let builder = Assistant::builder(project("knowledge")).unwrap();
    TestAssistant::build(match embedder {
        Some(embedder) => builder.embedder(embedder),
        None => builder,
    })
    .unwrap()
}

const ANSWER: &str = "Yes, dogs travel free [1]. They stay on deck .\n\n[1] docs/pets.md, Pets";

#[tokio::test]
async fn questions_are_answered_in_the_middle_of_a_task_and_after_it() {
    let world = world(None);
    assert_eq!(world.say("lend me one").await.unwrap(), ["For how many days?"]);
    let said = world.say("may my puppy come too?").await.unwrap();
    assert_eq!(said, [ANSWER, "For how many days?"], "the open question comes again");
    assert_eq!(world.say("3").await.unwrap()[0], "Done.");
    let said = world.say("what is the price of a bicycle?").await.unwrap();
    let last = "Is there anything else I can help you with?";
    assert_eq!(said, ["A bicycle costs 5 crowns [1].\n\n[1] docs/bicycles.md, Bicycles", last]);

    let id = "u".into();
    assert!(world.assistant.replay(&id).await.unwrap().is_none(), "the record alone gives the same events");
    let turns = world.assistant.store().turns(&id).await.unwrap();
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
    let traces = world.assistant.trace(&id, Some(turns[1].turn.0)).await.unwrap();
    let looked = traces[0].entries.iter().find_map(|seen| match seen {
        TraceEntry::DocumentsSearched { query, used_embeddings, found, .. } => {
            Some((query.as_str(), *used_embeddings, found[0].0.as_str()))
        }
        _ => None,
    });
    assert_eq!(looked, Some(("For how many days?\nmay my puppy come too?", true, "docs/pets.md")));
}

#[tokio::test]
async fn the_flows_that_fit_stand_in_the_prompt_and_in_the_trace() {
    let world = world(None);
    let sorry = "I am sorry. Please go to the police first.";
    assert_eq!(
        world.say("my wallet was nicked").await.unwrap()[0],
        sorry,
        "the prompt shows the flow that fits by meaning"
    );
    let traces = world.assistant.trace(&"u".into(), None).await.unwrap();
    let Some(TraceEntry::FlowsChosen { flows_from_semantic_search, flows_in_prompt, used_embeddings, .. }) =
        traces[0].entries.first()
    else {
        panic!("{:?}", traces[0].entries);
    };
    assert_eq!((flows_from_semantic_search[0].0.as_str(), *used_embeddings), ("report_theft", true));
    assert_eq!((flows_from_semantic_search.len(), flows_in_prompt.len()), (3, 3));
    assert!(world.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_failing_embedding_service_costs_nothing_but_its_part() {
    let embedder = Arc::new(ScriptedEmbedder::failing(LlmErrorKind::Unreachable));
    let world = world(Some(embedder.clone()));
    assert_eq!(world.say("lend me one").await.unwrap(), ["For how many days?"]);
    let said = world.say("what is the price of a bicycle?").await.unwrap();
    assert!(said[0].starts_with("A bicycle costs 5 crowns [1]."), "{said:?}");
    assert!(embedder.calls() > 0);
    assert!(world.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_told_and_the_task_goes_on() {
    let world = world(None);
    world.say("lend me one").await.unwrap();
    let (report, collected) = world.send("u", "is dogs and cats cut?").await.unwrap();
    assert_eq!(report.failures[0].code, "U0503");
    let texts = collected.texts();
    assert!(texts[0].starts_with("This"), "{texts:?}");
    assert_eq!(texts.last().map(String::as_str), Some("For how many days?"));
    assert!(world.assistant.replay(&"u".into()).await.unwrap().is_none());
}

#[test]
fn the_program_checks_talks_and_traces() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = project("knowledge");
    let checked = run(&["check", &knowledge], "");
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    let talk = ["chat", &knowledge, "--store", "sqlite:talks.db", "--conversation", "c1"];
    let ran = run_in(folder.path(), &talk, "may my puppy come?\n");
    assert!(ran.out.contains("dogs travel free [1]") && ran.out.contains("docs/pets.md"), "{}{}", ran.out, ran.err);
    let replay = run_in(folder.path(), &["replay", "c1", &knowledge, "--store", "talks.db"], "");
    assert_eq!(replay.code, 0, "{}{}", replay.out, replay.err);
    let trace = run_in(folder.path(), &["trace", "c1", &knowledge, "--store", "talks.db"], "");
    assert!(trace.out.contains("  search   ") && trace.out.contains("docs/pets.md"), "{}", trace.out);
    assert!(trace.out.contains("  flows    ") && trace.out.contains("lend_bicycle"), "{}", trace.out);
}
