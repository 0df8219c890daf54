//! What the result tools answer: `cases.json` has the arguments and the whole answer of each case.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{answer, infos};
use crate::{
    limits,
    prompts::PromptSet,
    react::{ResultStore, interception::tests::store},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    tool: String,
    arguments: Json,
    answer: Json,
}

/// Three results: an array, an object and a text. A page has 1,000 bytes.
async fn stored() -> Arc<ResultStore> {
    let store = store(limits::RESULT_TOKENS_MIN);
    let item =
        |at: usize| json!({"id": at, "port": format!("Port {at}"), "note": "n".repeat(60), "stops": [at, at + 1]});
    let items: Vec<Json> = (0..40).map(item).collect();
    store.intercept("find", json!(items).to_string()).await;
    let object = json!({"total": 40, "items": items, "long": "l".repeat(900), "a b": {"c": null}});
    store.intercept("read", object.to_string()).await;
    store.intercept("log", format!("{}needle \"one\"\nNEEDLE two", "é".repeat(600))).await;
    store
}

#[tokio::test]
async fn each_case_has_its_answer() {
    let store = stored().await;
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let answer = answer(&store, &case.tool, &case.arguments).await;
        if answer != case.answer {
            wrong.push(json!({"name": case.name, "answer": answer}).to_string());
        }
        assert!(answer.to_string().len() <= 1_000, "{}", case.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let codes = ["result.unknown", "result.type", "result.path", "result.range", "args.invalid"];
    for code in codes {
        assert!(cases.iter().any(|case| case.answer["code"] == code), "no case for {code}");
    }
    let prompts = PromptSet::new(|_| None).unwrap();
    for info in infos(&prompts) {
        assert!(cases.iter().any(|case| case.tool == *info.name), "no case for {}", info.name);
        assert!(!info.description.is_empty() && info.parameters["additionalProperties"] == json!(false));
    }
}

#[tokio::test]
async fn pages_of_items_give_the_whole_array() {
    let store = stored().await;
    let (mut offset, mut all) = (json!(0), Vec::new());
    while !offset.is_null() {
        let arguments = json!({"id": "_result_find_1", "offset": offset, "count": 500});
        let page = answer(&store, "result_items", &arguments).await;
        all.extend(page["items"].as_array().unwrap().clone());
        offset = page["next_offset"].clone();
    }
    assert_eq!(all, store.items("_result_find_1").await.unwrap());
}

#[tokio::test]
async fn chunks_give_the_whole_text() {
    let store = stored().await;
    let whole = store.load("_result_log_3").await.unwrap().text;
    for length in [1, 7, 65_536] {
        let (mut offset, mut text) = (json!(0), String::new());
        while !offset.is_null() {
            let arguments = json!({"id": "_result_log_3", "offset": offset, "length": length});
            let page = answer(&store, "result_chunk", &arguments).await;
            text.push_str(page["text"].as_str().unwrap());
            offset = page["next_offset"].clone();
        }
        assert!(*text == *whole, "length {length}");
    }
}

#[tokio::test]
async fn a_search_with_very_many_matches_counts_to_a_limit_and_builds_few() {
    let store = store(limits::RESULT_TOKENS);
    store.intercept("log", format!("{}\n", "needle in hay ".repeat(20)).repeat(14_000)).await;
    store.intercept("list", json!(vec!["x".repeat(100); 40_000]).to_string()).await;
    for (id, pattern, complete) in [
        ("_result_log_1", ".", false),
        ("_result_log_1", "z*", false),
        ("_result_log_1", "[a-z ]*Z|n", false),
        ("_result_log_1", "haystack", true),
        ("_result_list_2", "x", false),
        ("_result_list_2", "(?:.*Z)?", false),
    ] {
        let answer = answer(&store, "result_search", &json!({"id": id, "pattern": pattern, "limit": 7})).await;
        assert_eq!(answer.get("searched_all").is_none(), complete, "{pattern}: {answer}");
        let total = answer["total_matches"].as_u64().unwrap();
        assert!(total < 5_000 && answer["matches"].as_array().unwrap().len() as u64 == total.min(7), "{pattern}");
    }
}

#[tokio::test]
async fn content_that_is_not_stored_any_more_is_unknown() {
    let first = stored().await;
    let prompts = Arc::new(PromptSet::new(|_| None).unwrap());
    let blobs = Arc::new(crate::react::interception::MemoryBlobs::default());
    let store = ResultStore::new(first.index(), blobs, crate::react::Threshold::default(), prompts);
    let answer = answer(&store, "result_info", &json!({"id": "_result_log_3"})).await;
    assert_eq!(answer["code"], "result.unknown");
    assert_eq!(answer["message"], "The content of `_result_log_3` is not stored any more.");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_arguments_exceed_a_page(
        tool in 0_usize..6, id in 0_usize..4, offset in -5_i64..5_000, count in -5_i64..1_000, path in "[a-z0-9.]{0,12}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(async {
            let store = stored().await;
            let tool = infos(&store.prompts)[tool].name.clone();
            let id = ["_result_find_1", "_result_read_2", "_result_log_3", "none"][id];
            let arguments = json!({
                "id": id, "offset": offset, "count": count, "length": count, "limit": count, "path": path, "pattern": path,
            });
            answer(&store, &tool, &arguments).await
        });
        prop_assert!(answer.to_string().len() <= 1_000 && answer["status"].is_string(), "{}", answer);
    }
}
