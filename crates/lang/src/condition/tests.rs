#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::template::{TemplateEngine, TemplateSource, UndefinedMode};

fn eval(text: &str) -> Evaluation {
    let slots = json!({"n": 5, "t": "hello", "unset": null, "yes": true, "list": ["a", "b"], "map": {"in": {"x": 1}}});
    let context = json!({"collect": "n", "flow": "transfer"});
    let scope = Document { slots: slots.as_object().unwrap(), context: Some(&context) };
    Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).eval(&scope)
}

fn template(text: &str) -> Condition {
    let source = TemplateSource::from_project_file("flows.yml", text);
    Condition::from_template(TemplateEngine::new().compile(&source, UndefinedMode::Lenient).unwrap()).unwrap()
}

fn holds(text: &str) -> bool {
    let evaluation = eval(text);
    assert_eq!(evaluation.error, None, "{text}");
    evaluation.holds
}

fn error(text: &str) -> ConditionError {
    Condition::parse(text).expect_err(text)
}

#[test]
fn and_and_or_group_to_the_right() {
    // By the usual precedence this would be true.
    assert!(!holds("false and true or true"));
    assert!(holds("true or false and false"));
    let mixed = Condition::parse("slots.a and slots.b and slots.c or not slots.d").unwrap();
    assert!(mixed.mixes_and_or_without_parentheses());
    assert_eq!(mixed.normalized().unwrap(), "slots.a and slots.b and (slots.c or not slots.d)");
    assert!(!Condition::parse("slots.a and (slots.b or slots.c)").unwrap().mixes_and_or_without_parentheses());
    assert!(holds("not slots.n = 1 and slots.yes"));
}

#[test]
fn an_error_makes_the_whole_condition_false_and_is_reported() {
    let evaluation = eval("not (slots.unset < 5)");
    assert!(!evaluation.holds);
    assert_eq!(evaluation.error.unwrap(), "`slots.unset`: null cannot be ordered against a number with `<`");
    assert!(eval("slots.n.x = 1").error.unwrap().contains("looked up in a number"));
    // Operands that are not reached cannot fail.
    assert!(holds("true or slots.unset < 5"));
}

#[test]
fn templates_are_rendered_and_then_parsed() {
    let slots = json!({"n": 5}).as_object().unwrap().clone();
    let context = json!({"collect": "n"});
    let scope = Document { slots: &slots, context: Some(&context) };
    let condition = template("slots.{{context.collect}} = 5");
    assert!(condition.is_template() && condition.eval(&scope).holds);
    assert_eq!(condition.text(), "slots.{{context.collect}} = 5");
    let failure = |text: &str| template(text).eval(&scope).error.unwrap();
    assert!(failure("slots.{{context.collect}} =").starts_with("after rendering"));
    assert!(failure("slots.n = {{ context | nofilter }}").contains("nofilter"));
    let nothing = Document { slots: &slots, context: None };
    assert!(template("{{ context.collect is not defined }}").eval(&nothing).holds);
}

#[test]
fn a_regular_expression_in_slashes_has_flags() {
    assert!(holds("slots.t matches /^HEL/i") && holds(r"'a/b' matches /a\/b/"));
    assert!(!holds("slots.t matches /^HEL/") && holds("slots.t matches '(?i)^HEL'"));
    assert!(error("slots.t = /x/").help.contains("slashes"));
}

#[test]
fn the_backtracking_limit_is_an_error() {
    let text = format!(r#""{}!" matches "^(\w+\s?)*\1$""#, "ab ".repeat(40));
    assert!(eval(&text).error.unwrap().contains("given up"));
}

#[test]
fn syntax_errors_have_an_offset_and_a_fix() {
    let wrong = error("slots.ä && slots.b");
    assert_eq!((wrong.offset, wrong.help.as_str()), (8, "Write `and`."));
    assert_eq!(error("slots.a =").offset, 9);
    assert_eq!(error("slots.a = 2nd").offset, 11);
    assert!(error("{'a', 'b'} contains slots.a").help.contains("spaces between the items"));
    assert!(error("slots.a contains {'x'}").help.contains("left"));
    assert_eq!(error("slots.a matches \"a[\"").offset, 17 + 1);
    assert!(error("undefined").message.contains("alone"));
    assert!(error(&"(".repeat(CONDITION_DEPTH_PLUS)).message.contains("deep"));
    assert!(error(&" ".repeat(CONDITION_BYTES + 1)).message.contains("bytes"));
}

const CONDITION_DEPTH_PLUS: usize = crate::limits::CONDITION_DEPTH + 1;

#[test]
fn a_long_chain_does_not_count_as_nesting() {
    let text = vec!["slots.yes"; 500].join(" and ");
    assert!(holds(&text));
}

#[test]
fn names_and_comparisons_can_be_inspected() {
    let text = "slots.n > 3 and 'x' = slots.t or {1 'b'} contains slots.c and (not flag or context.flow matches 'q') and slots.map.in";
    let condition = Condition::parse(text).unwrap();
    assert_eq!(condition.slots().collect::<Vec<_>>(), ["n", "t", "c", "map"]);
    assert_eq!(condition.bare_names().collect::<Vec<_>>(), ["flag"]);
    assert_eq!(condition.context_properties().collect::<Vec<_>>(), ["flow"]);
    let found: Vec<_> = condition.comparisons().map(|c| (c.slot, c.operator, c.literal)).collect();
    assert_eq!(
        found,
        [
            ("n", Operator::Greater, Literal::Number(3.0)),
            ("t", Operator::Equal, Literal::Text("x")),
            ("c", Operator::OneOf, Literal::Number(1.0)),
            ("c", Operator::OneOf, Literal::Text("b")),
        ]
    );
    let mirrored = Condition::parse("3 < slots.n").unwrap();
    assert_eq!(mirrored.comparisons().next().unwrap().operator, Operator::Greater);
}

fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "slots.a",
        "slots.b.c",
        "context.x",
        "bare",
        "is",
        "is not",
        "not",
        "and",
        "or",
        "(",
        ")",
        "{",
        "}",
        "=",
        "!=",
        "<",
        ">=",
        "contains",
        "matches",
        "'x y'",
        "\"a'b\"",
        "/a+/i",
        "3",
        "-2.5",
        "true",
        "null",
        "undefined",
        "empty",
        "# c\n",
        "slots",
    ]);
    prop::collection::vec(word, 0..14).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = Condition::parse(&text);
        let _ = crate::regex_dialect::PythonRegex::new(&text, crate::regex_dialect::Flags::default());
    }

    #[test]
    fn arbitrary_punctuation_never_panics(text in r#"[a-c0-9(){}\[\]<>=!?*+.,|^$\\/"'#:; \n-]{0,40}"#) {
        let _ = Condition::parse(&text);
        let _ = crate::regex_dialect::PythonRegex::new(&text, crate::regex_dialect::Flags::default());
    }

    #[test]
    fn text_and_normal_form_parse_to_themselves(text in words()) {
        if let Ok(condition) = Condition::parse(&text) {
            prop_assert_eq!(&Condition::parse(&condition.to_string()).unwrap(), &condition);
            if let Some(normalized) = condition.normalized() {
                let again = Condition::parse(&normalized).unwrap();
                prop_assert_eq!(again.normalized().unwrap(), normalized);
            }
        }
    }
}
