//! Places, texts and budgets of the YAML reader.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

fn tree(text: &str) -> (Option<Node>, Vec<crate::finding::Finding>) {
    let mut findings = Findings::default();
    let file = SourceFile { path: "a.yml".into(), text: text.into() };
    let node = read(&file, &mut findings);
    (node, findings.sorted())
}

fn good(text: &str) -> Node {
    let (node, findings) = tree(text);
    assert!(findings.is_empty(), "{findings:?}");
    node.unwrap()
}

#[test]
fn nested_values_know_their_places() {
    let root = good(
        "flows:\n  pay:\n    steps:\n      - collect: amount\n        next: \"END\"\n      - { action: utter_ok }\n",
    );
    let steps = root.get("flows").unwrap().get("pay").unwrap().get("steps").unwrap().list().unwrap().to_vec();
    assert_eq!((steps[0].line, steps[0].column, steps[0].width), (4, 9, 7));
    let slot = steps[0].get("collect").unwrap();
    assert_eq!((slot.line, slot.column, slot.width, slot.style), (4, 18, 6, Style::Plain));
    let next = steps[0].get("next").unwrap();
    assert_eq!((next.line, next.column, next.width, next.style), (5, 15, 5, Style::Quoted));
    let action = steps[1].get("action").unwrap();
    assert_eq!((action.line, action.column), (6, 19));
}

#[test]
fn columns_count_characters_and_a_byte_order_mark_is_ignored() {
    let root = good("\u{feff}größe: {ä: öl}\n");
    let oil = root.get("größe").unwrap().get("ä").unwrap();
    assert_eq!((oil.line, oil.column, oil.text()), (1, 12, Some("öl")));
}

#[test]
fn plain_scalars_keep_their_text() {
    let root = good(
        "a: 010\nb: yes\nc: True\nd: 1_000\ne: 50\nf: ~\ng:\nh: '7'\ni: 12345678901234567890123\nj: 2.50\nk: .inf\n",
    );
    let text = |key: &str| root.get(key).unwrap().text().map(str::to_owned);
    assert_eq!(text("a").as_deref(), Some("010"));
    assert_eq!(root.get("a").unwrap().json(), Json::from("010"));
    assert_eq!(root.get("b").unwrap().json(), Json::from("yes"));
    assert_eq!(root.get("c").unwrap().json(), Json::from(true));
    assert_eq!(text("c").as_deref(), Some("True"));
    assert_eq!(root.get("d").unwrap().json(), Json::from("1_000"));
    assert_eq!(root.get("e").unwrap().json(), Json::from(50));
    assert!(root.get("f").unwrap().is_null() && root.get("g").unwrap().is_null());
    assert_eq!(root.get("h").unwrap().json(), Json::from("7"));
    assert_eq!(text("i").as_deref(), Some("12345678901234567890123"));
    assert_eq!(text("j").as_deref(), Some("2.50"));
    assert_eq!(text("k").as_deref(), Some(".inf"));
}

#[test]
fn the_location_of_a_block_scalar_is_its_first_line() {
    let root = good("a: |\n  one\n  two\nb: >\n  folded\n  text\n");
    let a = root.get("a").unwrap();
    assert_eq!((a.text(), a.style, a.line, a.column), (Some("one\ntwo\n"), Style::Block, 2, 3));
    assert_eq!(root.get("b").unwrap().text(), Some("folded text\n"));
}

#[test]
fn duplicate_keys_are_findings_and_reading_continues() {
    let (node, findings) = tree("a: 1\nb: {c: 1, c: 2}\na: 3\n");
    let places: Vec<_> = findings.iter().map(|f| (f.code, f.place.line, f.place.column)).collect();
    assert_eq!(places, [("F0104", 2, 11), ("F0104", 3, 1)]);
    assert_eq!(node.unwrap().get("a").unwrap().json(), Json::from(1));
}

#[test]
fn merge_keys_add_missing_keys() {
    let root = good("base: &b {x: 1, y: 2}\nmore: &m {z: 9, x: 7}\nown: {<<: [*b, *m], y: 3}\n");
    assert_eq!(root.get("own").unwrap().json(), serde_json::json!({"y": 3, "x": 1, "z": 9}));
}

#[test]
fn a_syntax_error_has_its_line() {
    let (node, findings) = tree("a: 1\nb: [1, 2\nc: 3\n");
    assert!(node.is_none());
    assert_eq!(findings[0].code, "F0102");
    assert!(findings[0].place.line >= 2, "{findings:?}");
}

#[test]
fn tags_and_second_documents_are_refused() {
    assert_eq!(tree("a: !thing {b: 1}\n").1[0].code, "F0105");
    assert_eq!(tree("a: 1\n---\nb: 2\n").1[0].code, "F0102");
    assert_eq!(good("--- \na: 1\n").get("a").unwrap().json(), Json::from(1));
}

#[test]
fn alias_bombs_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    assert_eq!(tree(&bomb).1[0].code, "F0103");
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let (node, findings) = tree(&deep);
    assert!(node.is_none() && !findings.is_empty());
    let wide =
        "x: &x\n".to_owned() + &"  - 1\n".repeat(3_000) + &(0..900).map(|i| format!("k{i}: *x\n")).collect::<String>();
    assert_eq!(tree(&wide).1[0].code, "F0103");
}

#[test]
fn every_limit_of_a_file_has_a_finding() {
    use crate::limits::{YAML_ALIASES, YAML_DEPTH, YAML_NODES};
    let message = |text: &str| {
        let (node, findings) = tree(text);
        assert!(node.is_none());
        assert_eq!(findings[0].code, "F0103");
        findings[0].message.clone()
    };
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let aliases = |count: usize| format!("a: &a 1\nb: [{}]\n", vec!["*a"; count].join(", "));
    good(&nested(YAML_DEPTH));
    good(&aliases(YAML_ALIASES));
    assert!(message(&" ".repeat(YAML_FILE + 1)).contains(&format!("the limit is {YAML_FILE}")));
    assert!(message(&nested(YAML_DEPTH + 1)).contains(&format!("more than {YAML_DEPTH} levels of nesting")));
    assert!(message(&aliases(YAML_ALIASES + 1)).contains(&format!("more than {YAML_ALIASES} aliases")));

    let mut findings = Findings::default();
    let file = SourceFile { path: "a.yml".into(), text: "[1]".into() };
    assert!(Builder::new(&file, &mut findings).after(YAML_NODES - 2).read().is_some());
    assert!(Builder::new(&file, &mut findings).after(YAML_NODES - 1).read().is_none());
    let findings = findings.sorted();
    assert_eq!((findings.len(), findings[0].code), (1, "F0103"));
    assert!(findings[0].message.contains(&format!("more than {YAML_NODES} values")), "{findings:?}");
}

#[test]
fn a_location_inside_a_string_is_exact() {
    let root = good("if: slots.a < 1\nq: \"slots.a\"\n");
    let file: std::sync::Arc<str> = "a.yml".into();
    let plain = root.get("if").unwrap().place_at(&file, 8, 1);
    assert_eq!((plain.line, plain.column), (1, 13));
    assert_eq!(root.get("q").unwrap().place_at(&file, 6, 1).column, 11);
}
