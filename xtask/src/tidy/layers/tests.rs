//! Tests of the rule `layers`.

use super::*;

const LAYERS: &str = "\
| layer of the engine | modules | may also import |
| --- | --- | --- |
| 2 dialogue engine | `dialogue` | |
| 1 domain model | `project`, `conversation` | `conversation` → `project` |
| 0 foundation | `ids`, `text`, `limits` | one another |

| layer of the root package | modules | may also import |
| --- | --- | --- |
| 4 runtime | `runtime` | |
| 3 agents and generation | `agents`, `missions` | `missions` → `agents` |
| 2 adapters | `llm`, `tools`, `store` | `tools` → `store` |
| 1 domain model | `conversation`, `project` | `project` → `project`; `conversation` → `project` |
| 0 foundation | `clock`, `limits` | one another |
| outside | `testing` | |
";

const NONE: [usize; 0] = [];

fn lines(path: &str, text: &str) -> Vec<usize> {
    check(&Tree::of(&[(ARCHITECTURE, LAYERS), (path, text)])).into_iter().map(|violation| violation.line).collect()
}

#[test]
fn import_from_a_higher_layer_is_reported() {
    assert_eq!(lines("src/agents/react.rs", "use crate::llm::Llm;\nuse crate::runtime::Assistant;"), [2]);
    assert_eq!(lines("crates/engine/src/project/mod.rs", "use crate::ids::FlowId;\nuse crate::dialogue::Next;"), [2]);
}

#[test]
fn import_from_the_same_layer_needs_an_entry() {
    assert_eq!(lines("src/tools/mod.rs", "use crate::store::Journal;"), NONE);
    assert_eq!(lines("src/store/mod.rs", "use crate::tools::Tool;"), [1]);
    assert_eq!(lines("crates/engine/src/conversation/slots.rs", "use crate::project::SlotType;"), NONE);
    assert_eq!(lines("crates/engine/src/project/flows.rs", "use crate::conversation::Event;"), [1]);
    assert_eq!(lines("src/clock.rs", "use crate::limits::X;\nuse segue_engine::text::Y;"), NONE);
}

#[test]
fn layers_apply_across_both_packages() {
    assert_eq!(lines("src/llm/mod.rs", "use segue_engine::project::Project;"), NONE);
    assert_eq!(lines("src/llm/mod.rs", "use segue_engine::{ids::X,\n dialogue::{advance, Next}};"), [2, 2]);
    assert_eq!(lines("src/runtime/turn.rs", "use segue_engine::dialogue::advance;"), NONE);
    assert_eq!(lines("src/clock.rs", "use segue_engine::project::Project;"), [1]);
}

#[test]
fn listed_module_may_import_the_module_of_the_same_name_in_the_engine() {
    assert_eq!(lines("src/project/mod.rs", "use segue_engine::project::Project;"), NONE);
    // Not listed, or listed with another name: an entry allows the engine's module of the same name only.
    assert_eq!(lines("src/conversation/mod.rs", "use segue_engine::conversation::Event;"), [1]);
    assert_eq!(lines("src/conversation/mod.rs", "use segue_engine::project::SlotType;"), [1]);
    assert_eq!(lines("src/project/mod.rs", "use segue_engine::conversation::Event;"), [1]);
    assert_eq!(lines("src/conversation/mod.rs", "use crate::project::Files;"), NONE);
}

#[test]
fn paths_in_expressions_and_nested_use_trees_are_checked() {
    assert_eq!(lines("src/llm/mod.rs", "fn a() {\n    let x = crate::agents::run();\n}"), [2]);
    assert_eq!(lines("src/llm/mod.rs", "use crate::{\n    clock::{Clock, System},\n    tools::Tool,\n};"), [3]);
    assert_eq!(lines("src/llm/mod.rs", "pub(crate) use crate::runtime::X as Y;\nuse crate::clock::Z;"), [1]);
}

#[test]
fn paths_with_super_are_checked() {
    let text = "use super::super::retry::X;\nuse super::super::super::tools::Y;";
    assert_eq!(lines("src/llm/openai/stream.rs", text), [2]);
    assert_eq!(lines("src/clock.rs", "mod inner {\n    use super::Clock;\n}\nuse super::llm::Llm;"), [4]);
    assert_eq!(lines("src/llm/mod.rs", "use self::retry::X;"), NONE);
}

#[test]
fn tests_comments_and_strings_are_exempt() {
    assert_eq!(lines("src/llm/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::runtime::X;\n}"), NONE);
    assert_eq!(lines("src/llm/tests.rs", "use crate::runtime::X;"), NONE);
    assert_eq!(lines("src/llm/mod.rs", "// use crate::runtime::X;\nlet a = \"crate::runtime::X\";"), NONE);
}

#[test]
fn root_glob_and_renamed_imports_are_reported() {
    assert_eq!(lines("src/llm/mod.rs", "use crate::Assistant;"), [1]);
    assert_eq!(lines("src/llm/mod.rs", "use crate::*;"), [1]);
    assert_eq!(lines("src/llm/mod.rs", "use segue_engine as engine;"), [1]);
    assert_eq!(lines("src/runtime/mod.rs", "use crate::testing::Harness;"), [1]);
    assert_eq!(lines("src/testing/mod.rs", "use crate::runtime::Assistant;"), NONE);
    assert_eq!(lines("src/llm/mod.rs", "crate::ensure!(true);\nuse crate::clock::x;"), NONE);
}

#[test]
fn module_without_a_layer_is_reported_once() {
    assert_eq!(lines("src/utilities/mod.rs", "use crate::runtime::X;\nuse crate::llm::Y;"), [1]);
    assert_eq!(lines("src/lib.rs", "pub use crate::runtime::X;"), NONE);
}

#[test]
fn missing_layer_table_is_reported() {
    let found = check(&Tree::of(&[(ARCHITECTURE, "# Architecture\n"), ("src/llm/mod.rs", "")]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, ARCHITECTURE);
}

#[test]
fn name_reexported_from_a_lower_package_needs_no_row() {
    let lib = "pub use segue_base::{context, http};\npub use {segue_a2a as a2a, segue_rest as rest};\npub use segue_engine::dialogue;\n";
    let code = "use crate::{context::CallContext, http::HttpClients};\nuse crate::rest::X;\nuse crate::dialogue::Next;";
    let tree = Tree::of(&[(ARCHITECTURE, LAYERS), ("src/lib.rs", lib), ("src/llm/mod.rs", code)]);
    assert_eq!(check(&tree).into_iter().map(|violation| violation.line).collect::<Vec<_>>(), [3]);
}
