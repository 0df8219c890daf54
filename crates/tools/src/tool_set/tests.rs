//! Tests of the tool set of a run: names, filters, wrappers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use segue_engine::project::{AgentRules, ToolRule};
use serde_json::json;

use super::*;
use crate::{EffectClass, Tool, ToolOutcome, ToolOutput};

fn tool_info(name: &str, source: &str) -> ToolInfo {
    ToolInfo::new(name, format!("{name} of {source}"))
        .parameters(json!({"type": "object", "properties": {}}))
        .effect(EffectClass::Read)
        .source(source)
}

fn tool(name: &str, source: &str) -> Arc<dyn ToolHandler> {
    let text = format!("{source}/{name}");
    let run = move |_, _| std::future::ready(ToolOutcome::Done(ToolOutput::text(text.clone())));
    Arc::new(Tool::from_fn(tool_info(name, source), run))
}

fn catalog(server: &str, names: &[&str]) -> ToolCatalog {
    ToolCatalog { version: 1, tools: names.iter().map(|name| tool(name, server)).collect(), excluded: Vec::new() }
}

fn names(set: &ToolSet) -> Vec<&str> {
    set.infos().map(|info| &*info.name).collect()
}

#[test]
fn names_have_no_prefix_and_are_sorted_independent_of_server_order() {
    let (a, b) = (catalog("a", &["zeta", "alpha"]), catalog("b", &["mid"]));
    let one = ToolSet::builder().server("a", &a, &[], &[]).server("b", &b, &[], &[]).build();
    let two = ToolSet::builder().server("b", &b, &[], &[]).server("a", &a, &[], &[]).build();
    assert_eq!(names(&one), ["alpha", "mid", "zeta"]);
    assert_eq!(one.infos().collect::<Vec<_>>(), two.infos().collect::<Vec<_>>());
}

#[test]
fn conflicting_names_get_the_prefix_of_their_server() {
    let (a, b) = (catalog("a", &["find", "Book"]), catalog("b", &["find", "book", "pay"]));
    let set = ToolSet::builder().server("a", &a, &[], &[]).server("b", &b, &[], &[]).build();
    assert_eq!(names(&set), ["a__Book", "a__find", "b__book", "b__find", "pay"]);
    assert_eq!(&*set.get("b__find").unwrap().tool.info().source, "b");
    assert_eq!(&*set.get("b__find").unwrap().tool.info().name, "find", "the server gets its own name");
    assert!(set.get("find").is_none());
}

#[test]
fn built_in_and_custom_tools_keep_their_names() {
    let a = catalog("a", &["task_completed", "quote", "other"]);
    let set = ToolSet::builder()
        .reserve("task_completed")
        .tool(tool("task_completed", "builtin"))
        .tool(tool("quote", "custom"))
        .tool(tool("quote", "custom"))
        .server("a", &a, &[], &[])
        .build();
    assert_eq!(names(&set), ["a__quote", "a__task_completed", "other", "quote", "task_completed"]);
    assert_eq!(set.excluded(), [("quote".to_owned(), "from `custom`: the name is taken".to_owned())]);
    let set = ToolSet::builder().reserve("task_completed").tool(tool("task_completed", "custom")).build();
    assert!(names(&set).is_empty());
}

#[test]
fn include_and_exclude_use_the_names_of_the_server() {
    let a = catalog("a", &["one", "two", "three"]);
    let list = |names: &[&str]| names.iter().map(|name| ToolName::from(*name)).collect::<Vec<_>>();
    let set = ToolSet::builder().server("a", &a, &list(&["one", "two", "four"]), &list(&["two"])).build();
    assert_eq!(names(&set), ["one"]);
    assert_eq!(set.excluded()[0].0, "a/four");
}

#[test]
fn a_similar_name_is_an_unknown_tool() {
    let set = ToolSet::builder().tool(tool("set_slot_city", "builtin")).build();
    for similar in ["set_slot_cit", "Set_slot_city", " set_slot_city", "set_slot_city ", "set-slot-city"] {
        assert!(set.get(similar).is_none(), "{similar}");
    }
}

#[test]
fn names_that_model_apis_reject_are_replaced_and_all_tools_are_offered() {
    let long = |end: &str| format!("{}{end}", "x".repeat(70));
    let own =
        ["files.read/all", &long("1"), &long("2"), "notes.create", "notes_create", "notes/create", &"y".repeat(64)];
    let set = ToolSet::builder().server("a", &catalog("a", &own), &[], &[]).build();
    assert_eq!((set.entries().len(), set.excluded().len()), (own.len(), 0), "{:?}", names(&set));
    assert!(names(&set).iter().all(|name| name.len() <= limits::TOOL_NAME));
    for (own, offered) in own.iter().zip([
        "files_read_all",
        &format!("{}_{}", "x".repeat(55), tool_name_hash(own[1])),
        &format!("{}_{}", "x".repeat(55), tool_name_hash(own[2])),
        &format!("a__notes_create_{}", tool_name_hash(own[3])),
        "a__notes_create",
        &format!("a__notes_create_{}", tool_name_hash(own[5])),
        &"y".repeat(64),
    ]) {
        let found = set.get(offered).unwrap_or_else(|| panic!("{offered}: {:?}", names(&set)));
        assert_eq!(&*found.tool.info().name, *own, "the server gets its own name");
        // The rules of an agent hold by the name of the server.
        let mut rules = AgentRules::default();
        rules.tools.insert((*own).into(), ToolRule { confirm: Some(true), ..ToolRule::default() });
        assert!(rules.tool(offered).is_some(), "{own}: {offered}");
    }
    // A long name that two servers have, and one that is too long only with its server.
    let (one, two) = (catalog("one", &[&long("1"), &"z".repeat(63)]), catalog("two", &[&long("1"), &"z".repeat(63)]));
    let set = ToolSet::builder().server("one", &one, &[], &[]).server("two", &two, &[], &[]).build();
    assert_eq!((set.entries().len(), set.excluded().len()), (4, 0), "{:?}", names(&set));
}

#[test]
fn tools_are_wrapped_on_demand_and_later_wrappers_enclose_earlier_ones() {
    let wrapped = Arc::new(std::sync::Mutex::new(Vec::new()));
    let wrap = |mark: &'static str| {
        let wrapped = wrapped.clone();
        move |entry: &ToolEntry, inner: Arc<dyn ToolHandler>| {
            wrapped.lock().unwrap().push(format!("{mark} {} around {}", entry.info.name, inner.info().source));
            tool(&entry.info.name, mark)
        }
    };
    let list = catalog("a", &["find", "pay"]);
    let plain = ToolSet::builder().server("a", &list, &[], &[]).build();
    let set = plain.clone().with_wrapper(wrap("inner")).with_wrapper(wrap("outer")).only(|name| name == "find");
    assert_eq!((names(&set), names(&plain)), (vec!["find"], vec!["find", "pay"]), "the original set is not filtered");
    assert_eq!(*wrapped.lock().unwrap(), [""; 0], "nothing is called yet");
    assert_eq!(&*set.tool(set.get("find").unwrap()).info().source, "outer");
    assert_eq!(*wrapped.lock().unwrap(), ["inner find around a", "outer find around inner"]);
    assert!(Arc::ptr_eq(&plain.tool(plain.get("pay").unwrap()), &list.tools[1]));
}

#[test]
fn added_tools_get_no_wrapper_and_never_replace_others() {
    let set = ToolSet::builder().server("a", &catalog("a", &["find", "pay"]), &[], &[]).build();
    let set =
        set.with_wrapper(|entry, _| tool(&entry.info.name, "wrapped")).with([tool("pay", "new"), tool("ask", "new")]);
    assert_eq!(names(&set), ["ask", "find", "pay"]);
    let source = |name: &str| set.tool(set.get(name).unwrap()).info().source.to_string();
    assert_eq!([source("ask"), source("find"), source("pay")], ["new", "wrapped", "wrapped"]);
    assert_eq!(set.excluded(), [("pay".to_owned(), "from `new`: the name is taken".to_owned())]);
}
