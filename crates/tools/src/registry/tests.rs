//! Names of tools in one run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use serde_json::json;

use super::*;
use crate::{EffectClass, Tool, ToolOutcome, ToolOutput};

fn spec(name: &str, source: &str) -> ToolInfo {
    ToolInfo::new(name, format!("{name} of {source}"))
        .parameters(json!({"type": "object", "properties": {}}))
        .effect(EffectClass::Read)
        .source(source)
}

fn tool(name: &str, source: &str) -> Arc<dyn ToolHandler> {
    let answer = format!("{source}/{name}");
    let run = move |_, _| std::future::ready(ToolOutcome::Done(ToolOutput::text(answer.clone())));
    Arc::new(Tool::from_fn(spec(name, source), run))
}

fn catalog(server: &str, names: &[&str]) -> ToolCatalog {
    ToolCatalog { version: 1, tools: names.iter().map(|name| tool(name, server)).collect(), excluded: Vec::new() }
}

fn names(set: &ToolSet) -> Vec<&str> {
    set.specs().map(|spec| &*spec.name).collect()
}

#[test]
fn names_are_plain_and_sorted_whatever_the_order_of_arrival() {
    let (a, b) = (catalog("a", &["zeta", "alpha"]), catalog("b", &["mid"]));
    let one = ToolSet::builder().server("a", &a, &[], &[]).server("b", &b, &[], &[]).build();
    let two = ToolSet::builder().server("b", &b, &[], &[]).server("a", &a, &[], &[]).build();
    assert_eq!(names(&one), ["alpha", "mid", "zeta"]);
    assert_eq!(one.specs().collect::<Vec<_>>(), two.specs().collect::<Vec<_>>());
}

#[test]
fn only_clashing_names_get_the_prefix_of_their_server() {
    let (a, b) = (catalog("a", &["find", "Book"]), catalog("b", &["find", "book", "pay"]));
    let set = ToolSet::builder().server("a", &a, &[], &[]).server("b", &b, &[], &[]).build();
    assert_eq!(names(&set), ["a__Book", "a__find", "b__book", "b__find", "pay"]);
    assert_eq!(&*set.get("b__find").unwrap().tool.info().source, "b");
    assert_eq!(&*set.get("b__find").unwrap().tool.info().name, "find", "the server hears its own name");
    assert!(set.get("find").is_none());
}

#[test]
fn built_in_and_custom_tools_keep_their_names() {
    let a = catalog("a", &["task_completed", "quote", "other"]);
    let set = ToolSet::builder()
        .reserve("task_completed")
        .own(tool("task_completed", "builtin"))
        .own(tool("quote", "custom"))
        .own(tool("quote", "custom"))
        .server("a", &a, &[], &[])
        .build();
    assert_eq!(names(&set), ["a__quote", "a__task_completed", "other", "quote", "task_completed"]);
    assert_eq!(set.excluded(), [("quote".to_owned(), "from `custom`: the name is taken".to_owned())]);
    let set = ToolSet::builder().reserve("task_completed").own(tool("task_completed", "custom")).build();
    assert!(names(&set).is_empty());
}

#[test]
fn include_and_exclude_choose_by_the_servers_names() {
    let a = catalog("a", &["one", "two", "three"]);
    let list = |names: &[&str]| names.iter().map(|name| ToolName::from(*name)).collect::<Vec<_>>();
    let set = ToolSet::builder().server("a", &a, &list(&["one", "two", "four"]), &list(&["two"])).build();
    assert_eq!(names(&set), ["one"]);
    assert_eq!(set.excluded()[0].0, "a/four");
}

#[test]
fn a_near_miss_is_an_unknown_tool() {
    let set = ToolSet::builder().own(tool("set_slot_city", "builtin")).build();
    for near in ["set_slot_cit", "Set_slot_city", " set_slot_city", "set_slot_city ", "set-slot-city"] {
        assert!(set.get(near).is_none(), "{near}");
    }
}

#[test]
fn names_that_no_model_takes_are_mended_or_left_out() {
    let a = catalog("a", &["files.read/all", &"x".repeat(65)]);
    let set = ToolSet::builder().server("a", &a, &[], &[]).build();
    assert_eq!(names(&set), ["files_read_all"]);
    assert!(set.excluded()[0].1.contains("longer than 64 bytes"));
}

#[test]
fn tools_are_wrapped_when_they_are_called_and_the_first_wrap_lies_inside() {
    let wrapped = Arc::new(std::sync::Mutex::new(Vec::new()));
    let wrap = |mark: &'static str| {
        let wrapped = wrapped.clone();
        move |entry: &Entry, inner: Arc<dyn ToolHandler>| {
            wrapped.lock().unwrap().push(format!("{mark} {} around {}", entry.spec.name, inner.info().source));
            tool(&entry.spec.name, mark)
        }
    };
    let list = catalog("a", &["find", "pay"]);
    let plain = ToolSet::builder().server("a", &list, &[], &[]).build();
    let set = plain.clone().wrapped(wrap("inner")).wrapped(wrap("outer")).only(|name| name == "find");
    assert_eq!((names(&set), names(&plain)), (vec!["find"], vec!["find", "pay"]), "the copy alone is narrowed");
    assert_eq!(*wrapped.lock().unwrap(), [""; 0], "nothing is called yet");
    assert_eq!(&*set.tool(set.get("find").unwrap()).info().source, "outer");
    assert_eq!(*wrapped.lock().unwrap(), ["inner find around a", "outer find around inner"]);
    assert!(Arc::ptr_eq(&plain.tool(plain.get("pay").unwrap()), &list.tools[1]));
}
