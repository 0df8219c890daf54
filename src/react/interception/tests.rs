//! Which results become previews, and what the previews show.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value as Json, json};

use super::{Blobs, MemoryBlobs, ResultIndex, ResultStore, Threshold};
use crate::{
    limits,
    prompts::PromptSet,
    tools::{Tool, ToolInfo},
};

pub(in crate::react) fn store(tokens: u32) -> Arc<ResultStore> {
    let prompts = Arc::new(PromptSet::new(|_| None).unwrap());
    ResultStore::new(ResultIndex::default(), Arc::new(MemoryBlobs::default()), Threshold::of_tokens(tokens), prompts)
}

fn array(items: usize, item_bytes: usize) -> String {
    let items: Vec<Json> = (0..items).map(|at| json!({"id": at, "note": "x".repeat(item_bytes)})).collect();
    json!(items).to_string()
}

#[tokio::test]
async fn results_below_the_limits_are_shown_whole() {
    let store = store(limits::RESULT_TOKENS);
    let threshold = Threshold::default().bytes();
    assert_eq!(threshold, 64_000);
    for (name, text) in [
        ("19 items", array(19, 200)),
        ("20 short items", array(20, 60)),
        ("a text one byte below the threshold", "x".repeat(threshold - 1)),
        ("an object below the threshold", json!({"a": "x".repeat(threshold - 10)}).to_string()),
        ("an empty text", String::new()),
    ] {
        assert_eq!(store.intercept("find", text.clone()).await, text, "{name}");
    }
    assert!(store.index().is_empty());
}

#[tokio::test]
async fn results_at_the_limits_become_previews() {
    let store = store(limits::RESULT_TOKENS);
    let threshold = Threshold::default().bytes();
    let object = |length: usize| json!({"a": "x".repeat(length - 8)}).to_string();
    assert_eq!(object(threshold).len(), threshold);
    let of_bytes = |bytes: usize| {
        let text = array(20, 80);
        let filler = " ".repeat(bytes - text.len());
        text.replacen('[', &format!("[{filler}"), 1)
    };
    assert_eq!(store.intercept("find", of_bytes(2_047)).await.len(), 2_047, "20 items, one byte too few");
    for (name, text, kind) in [
        ("20 items of 2 KB", of_bytes(2_048), "array"),
        ("a text at the threshold", "x".repeat(threshold), "text"),
        ("an object at the threshold", object(threshold), "object"),
        ("few long items", array(19, 4_000), "array"),
        ("broken JSON", format!("[{}", "1,".repeat(threshold)), "text"),
    ] {
        let shown = store.intercept("find", text.clone()).await;
        assert!(shown.contains(&format!("\n---\ntype: {kind}\nid: _result_find_")), "{name}: {shown}");
        assert!(shown.len() < text.len(), "{name}");
    }
}

#[tokio::test]
async fn an_array_shows_its_first_items_and_fields() {
    let items: Vec<Json> =
        (0..25).map(|at| json!({"id": at, "name": if at == 1 { Json::Null } else { json!("x".repeat(90)) }})).collect();
    let shown = store(limits::RESULT_TOKENS).intercept("ferries.find-all", json!(items).to_string()).await;
    let (preview, lines) = shown.split_once("\n---\n").unwrap();
    assert_eq!(serde_json::from_str::<Json>(preview).unwrap(), json!(items[..5]));
    assert_eq!(
        lines,
        "type: array\nid: _result_ferries_find_all_1\npartial: true\ntotal_items: 25\nshown_items: 5\n\
         fields: id (number), name (text|null)"
    );
}

#[tokio::test]
async fn an_object_shows_its_keys_with_sizes() {
    let object = json!({"total": 3, "rows": ["x".repeat(1_000)], "more": null});
    let shown = store(limits::RESULT_TOKENS_MIN).intercept("find", object.to_string()).await;
    assert_eq!(
        shown,
        "total: number, 1 bytes\nrows: array, 1004 bytes\nmore: null, 4 bytes\n---\n\
         type: object\nid: _result_find_1\npartial: true\ntotal_bytes: 1035\ntotal_keys: 3"
    );
}

#[tokio::test]
async fn a_text_shows_its_beginning_up_to_a_character_boundary() {
    let text = "é".repeat(600);
    let shown = store(limits::RESULT_TOKENS_MIN).intercept("read", format!("x{text}")).await;
    let (preview, lines) = shown.split_once("\n---\n").unwrap();
    assert_eq!(preview, format!("x{}", "é".repeat(249)));
    assert_eq!(lines, "type: text\nid: _result_read_1\npartial: true\ntotal_bytes: 1201\nshown_bytes: 499");
}

#[tokio::test]
async fn previews_of_long_items_are_limited() {
    let store = store(limits::RESULT_TOKENS);
    for (item, shown_items) in [(3_000, 2), (20_000, 0)] {
        let shown = store.intercept("find", array(20, item)).await;
        assert!(shown.len() < 8_300 && shown.contains(&format!("shown_items: {shown_items}")), "{}", shown.len());
    }
    let many: serde_json::Map<String, Json> = (0..5_000).map(|at| (format!("key{at}"), json!("x".repeat(9)))).collect();
    let shown = store.intercept("find", json!(many).to_string()).await;
    assert!(shown.len() < 2_300 && shown.contains("total_keys: 5000\nshown_keys: "), "{}", shown.len());
}

#[test]
fn thresholds_are_four_bytes_a_token_within_limits() {
    for (tokens, bytes) in [(0, 1_000), (250, 1_000), (16_000, 64_000), (64_000, 256_000), (1_000_000, 256_000)] {
        assert_eq!(Threshold::of_tokens(tokens).bytes(), bytes);
    }
    assert_eq!([0, 16_000, 64_000].map(|tokens| Threshold::of_tokens(tokens).preview_bytes()), [500, 2_000, 8_000]);
}

#[tokio::test]
async fn ids_continue_after_a_restart_and_name_the_same_content() {
    let blobs = Arc::new(MemoryBlobs::default());
    let prompts = Arc::new(PromptSet::new(|_| None).unwrap());
    let open = |index| ResultStore::new(index, blobs.clone(), Threshold::default(), prompts.clone());
    let first = open(ResultIndex::default());
    first.intercept("find", array(30, 100)).await;
    let stored = serde_json::to_string(&first.index()).unwrap();
    let second = open(serde_json::from_str(&stored).unwrap());
    second.intercept("find", array(40, 100)).await;
    assert_eq!(second.items("_result_find_1").await.unwrap().len(), 30);
    assert_eq!(second.items("_result_find_2").await.unwrap().len(), 40);
    assert_eq!(first.items("_result_find_2").await.unwrap_err().code(), "result.unknown");
}

#[tokio::test]
async fn the_oldest_ids_are_forgotten() {
    let store = store(limits::RESULT_TOKENS_MIN);
    let text = "x".repeat(1_000);
    for _ in 0..=limits::RESULT_IDS {
        store.intercept("read", text.clone()).await;
    }
    let index = store.index();
    assert_eq!((index.results.len(), index.count), (limits::RESULT_IDS, 1_001));
    assert_eq!(&*index.results[0].id, "_result_read_2");
}

#[test]
fn only_the_tools_of_the_store_are_exempt_whatever_their_names() {
    let store = store(limits::RESULT_TOKENS);
    let own: Vec<Tool> = store.tools();
    assert_eq!(own.len(), 6);
    assert!(own.iter().all(|tool| store.is_own(tool.info())));
    let mut renamed = own[0].info().clone();
    renamed.name = "other".into();
    assert!(store.is_own(&renamed));
    let foreign = ToolInfo::new("result_info", "A tool of a server").parameters((*own[0].info().parameters).clone());
    assert!(!store.is_own(&foreign));
}

struct BrokenBlobs;

#[async_trait]
impl Blobs for BrokenBlobs {
    async fn put(&self, _: &str, _: Arc<str>) -> Result<(), String> {
        Err("the disk is full".into())
    }
    async fn get(&self, _: &str) -> Result<Option<Arc<str>>, String> {
        Err("the disk is full".into())
    }
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_shown_without_an_id() {
    let prompts = Arc::new(PromptSet::new(|_| None).unwrap());
    let store = ResultStore::new(ResultIndex::default(), Arc::new(BrokenBlobs), Threshold::default(), prompts);
    let shown = store.intercept("find", array(30, 100)).await;
    assert!(shown.contains("partial: true\ntotal_items: 30") && !shown.contains("id: _"), "{shown}");
    assert!(store.index().is_empty());
}
