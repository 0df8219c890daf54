//! Tests of the limits, the isolation and the errors of templates.

use minijinja::context;
use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn values_are_never_templates() {
    let evil = "{{ 7 * 7 }}{% for x in range(9) %}{slots}{% endfor %}{city}";
    assert_eq!(render("<{{ v }}>", &json!({"v": evil})).unwrap(), format!("<{evil}>"));
}

#[test]
fn steps_output_and_nesting_are_limited() {
    let loops = "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}";
    let error = render(loops, &json!({})).unwrap_err();
    assert_eq!(error.kind, TemplateErrorKind::TooLarge);
    assert!(error.message.contains("100000 steps"), "{error}");
    let big = "{% for a in range(400) %}{{ x }}{% endfor %}";
    let error = render(big, &json!({"x": "y".repeat(1000)})).unwrap_err();
    assert!(error.message.contains("262144 bytes"), "{error}");
    assert!(render("{{ 'x' * 262144 }}", &json!({})).is_ok());
    assert!(render("{{ 'x' * 262145 }}", &json!({})).is_err());
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert_eq!(render(deep, &json!({})).unwrap_err().kind, TemplateErrorKind::TooLarge);
}

#[test]
fn filters_and_methods_enforce_their_limits() {
    use crate::limits::{TEMPLATE_JSON_BYTES, TEMPLATE_PAD_CHARS};
    let long = json!({"x": "1".repeat(TEMPLATE_JSON_BYTES + 1)});
    let error = render("{{ x | fromjson }}", &long).unwrap_err();
    assert!(error.message.contains(&format!("more than {TEMPLATE_JSON_BYTES} bytes is not read")), "{error}");
    for pad in ["'x'.ljust", "'x'.rjust", "'x'.center", "'x'.zfill", "'x' | center"] {
        let padded = |width: usize| render(&format!("{{{{ {pad}({width}) }}}}"), &json!({}));
        assert_eq!(padded(TEMPLATE_PAD_CHARS).unwrap().chars().count(), TEMPLATE_PAD_CHARS, "{pad}");
        let error = padded(TEMPLATE_PAD_CHARS + 1).unwrap_err();
        assert!(error.message.contains(&format!("a width of more than {TEMPLATE_PAD_CHARS} is refused")), "{error}");
    }
}

#[test]
fn a_template_cannot_load_templates_or_print_its_context() {
    for text in ["{% include 'prompts/other.jinja2' %}", "{% extends '/etc/passwd' %}", "{% from 'x' import y %}"] {
        let error = render(text, &json!({})).unwrap_err();
        assert_eq!(error.kind, TemplateErrorKind::Unknown, "{error}");
        assert!(error.help.contains("include"), "{error}");
    }
    assert!(render("{% include 'prompts/test.jinja2' %}", &json!({})).is_err());
    assert!(render("{{ debug() }}", &json!({})).is_err(), "the whole context must not be printable");
}

#[test]
fn errors_have_file_line_and_column() {
    let engine = TemplateEngine::new();
    let source = TemplateSource::from_project_file("domain.yml", "Hallo\n  {{ a b }}").starting_at_line(40);
    let error = engine.compile(&source, UndefinedMode::Lenient).unwrap_err();
    assert_eq!((error.kind, error.line, error.column), (TemplateErrorKind::Syntax, 41, Some(8)), "{error}");
    assert!(error.to_string().starts_with("domain.yml:41: "), "{error}");
    let source = TemplateSource::from_project_file("p.jinja2", "x\n\n{{ y | shout }}");
    let error = engine.render(&engine.compile(&source, UndefinedMode::Lenient).unwrap(), context!(y => 1)).unwrap_err();
    assert_eq!((error.kind, error.line), (TemplateErrorKind::Unknown, 3), "{error}");
    assert!(error.message.contains("shout"), "{error}");
}

#[test]
fn unknown_filters_are_found_at_load() {
    let engine = TemplateEngine::new();
    let text = "{{ a | upper | truncate(3) }}\n{% if false %}{{ b | shout }}{% endif %}";
    let template =
        engine.compile(&TemplateSource::from_project_file("p.jinja2", text), UndefinedMode::Lenient).unwrap();
    let found = engine.unknown_names(&template);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].line, found[0].column), (2, Some(22)));
    assert!(found[0].message.contains("shout"));
}

#[test]
fn unknown_tests_methods_and_functions_are_found_at_load() {
    let engine = TemplateEngine::new();
    let unknown = |text: &str| -> Vec<(String, String)> {
        let source = TemplateSource::from_project_file("p.jinja2", text);
        let template = engine.compile(&source, UndefinedMode::Lenient).unwrap();
        engine.unknown_names(&template).into_iter().map(|error| (error.message, error.help)).collect()
    };
    let found = unknown("{{ slots.a.foo() }}{% if a is defind %}{{ money(a) }}{% endif %}{{ a | uper }}");
    let messages: Vec<&str> = found.iter().map(|(message, _)| message.as_str()).collect();
    let expected = ["method `foo`", "test `defind`", "function `money`", "filter `uper`"];
    assert_eq!(messages, expected.map(|what| format!("there is no {what}")));
    assert_eq!(found[1].1, "did you mean `defined`?");
    assert_eq!(found[3].1, "did you mean `upper`?");
    let right = "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1) }}{% for a in range(2) if (a) %}{{ loop.cycle(1, 2) }}{% endfor %}\
                 {{ now.strftime('%d') }}{{ now.date().isoformat() }}{{ d.get('a').strip().zfill(3) }}{{ d.items() | list }}\
                 {% if not (a) and a is not none and a is divisibleby(2) and a in (1, 2) %}{% endif %}{{ n.is_integer() }}\
                 {% set f = d.f %}{{ l.index(1) }}{{ now.utcoffset().total_seconds() }}";
    assert_eq!(unknown(right), []);
}

#[test]
fn strict_mode_refuses_undefined_names() {
    for text in ["{{ nope }}", "{{ a.nope.x }}", "{% if nope %}{% endif %}", "{{ nope | to_json_escaped_string }}"] {
        let error = render_in(UndefinedMode::Strict, text, context!(a => 1)).unwrap_err();
        assert_eq!(error.kind, TemplateErrorKind::Undefined, "{text}: {error}");
        assert!(render_in(UndefinedMode::Lenient, text, context!(a => 1)).is_ok(), "{text}");
    }
    assert_eq!(
        render_in(UndefinedMode::Strict, "{% if nope is defined %}a{% else %}b{% endif %}", context!()).unwrap(),
        "b"
    );
}

#[test]
fn variables_of_a_template_are_listed() {
    let engine = TemplateEngine::new();
    let text = "{{ slots.city }}{% for f in flows %}{{ f.name }}{% endfor %}{% set q = user %}{{ q }}{{ now.strftime('%d') }}\
                {{ d.items() }}{{ range(2) }}{{ s.upper() }}";
    let template = engine.compile(&TemplateSource::from_project_file("p", text), UndefinedMode::Lenient).unwrap();
    let names = engine.variables(&template);
    for name in ["slots.city", "flows", "user"] {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|n| n.starts_with("range") || n.starts_with("f.") || n == "q"), "{names:?}");
    let datetime = ZonedTime::new(crate::time::Timestamp::from_micros(0), "UTC").unwrap();
    let context = context!(slots => context!(a => 1), now => datetime.to_value(), d => context!(a => 1), s => "x");
    assert_eq!(engine.missing(&template, &context), ["flows", "slots.city", "user"]);
    assert!(template.may_read("slots") && template.may_read("user"), "variables that are read");
    assert!(!template.may_read("slot") && !template.may_read("use"), "only whole words count");
    let constant = engine.compile(&TemplateSource::from_project_file("p", "slots"), UndefinedMode::Lenient).unwrap();
    assert!(!constant.may_read("slots"), "a text without Jinja reads nothing");
}

#[test]
fn expressions_keep_types() {
    let engine = TemplateEngine::new();
    let result = json!({"structuredContent": {"id": 7, "ok": true, "price": 5.0, "tags": ["b", "a"], "none": null},
        "text": "{\"z\": [1, {\"y\": \"x\"}], \"a\": 2}"});
    let eval = |text: &str| {
        let expression = engine.compile_expression(&TemplateSource::from_project_file("flows.yml", text)).unwrap();
        engine.eval_expression(&expression, context!(result => from_json(&result)))
    };
    for (text, value) in [
        ("result.structuredContent.id", json!(7)),
        ("result.structuredContent.ok", json!(true)),
        ("result.structuredContent.price", json!(5.0)),
        ("result.structuredContent.tags", json!(["b", "a"])),
        ("result.structuredContent['tags'][0] | upper", json!("B")),
        ("result.structuredContent.nope.deeper", json!(null)),
        ("(result.text | fromjson).z[1]", json!({"y": "x"})),
        ("result.text | fromjson", json!({"z": [1, {"y": "x"}], "a": 2})),
        ("'big' if result.structuredContent.id > 5 else 'small'", json!("big")),
    ] {
        assert_eq!(eval(text).unwrap(), value, "{text}");
    }
    assert_eq!(
        serde_json::to_string(&eval("result.text | fromjson").unwrap()).unwrap(),
        r#"{"z":[1,{"y":"x"}],"a":2}"#
    );
    assert!(eval("'{broken' | fromjson").unwrap_err().message.contains("not a JSON text"));
    assert!(eval("result | nofilter").is_err());
    for text in ["{{ result.x }}", "result.", "", "a b"] {
        assert!(engine.compile_expression(&TemplateSource::from_project_file("flows.yml", text)).is_err(), "{text}");
    }
}

#[test]
fn a_text_without_jinja_is_constant() {
    let engine = TemplateEngine::new();
    let source = TemplateSource::from_project_file("domain.yml", "slots.city is \"Oslo\"\n");
    let template = engine.compile(&source, UndefinedMode::Strict).unwrap();
    assert!(template.is_constant());
    assert_eq!(engine.render(&template, Value::UNDEFINED).unwrap(), "slots.city is \"Oslo\"");
}

#[test]
fn the_engine_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<TemplateEngine>();
    shared::<Template>();
    shared::<Expression>();
}

proptest! {
    #[test]
    fn arbitrary_templates_never_panic(text in "(\\{\\{|\\}\\}|\\{%|%\\}|\\{#|#\\}|[a-c .|'\"()\\[\\]~+*/0-9=<>-]|if |for |in |endif|endfor|set |é){0,24}") {
        let engine = TemplateEngine::new();
        let source = TemplateSource::from_project_file("p", &text);
        if let Ok(template) = engine.compile(&source, UndefinedMode::Lenient) {
            let _ = engine.render(&template, context!(a => 1, b => "x", c => vec![1, 2]));
            let _ = engine.unknown_names(&template);
            for name in engine.variables(&template) {
                let first = name.split('.').next().unwrap_or_default();
                prop_assert!(template.may_read(first), "{first} is read, but may_read denies it");
            }
        }
        if let Ok(expression) = engine.compile_expression(&source) {
            let _ = engine.eval_expression(&expression, context!(a => 1, b => "x", c => vec![1, 2]));
        }
    }

    #[test]
    fn arbitrary_date_formats_never_panic(format in "[%a-zA-Z0-9:#^_ -]{0,12}", micros in any::<i64>()) {
        let datetime = ZonedTime::new(crate::time::Timestamp::from_micros(micros), "Asia/Tokyo").unwrap();
        let _ = datetime.strftime(&format);
        let _ = datetime.to_string();
    }

    #[test]
    fn values_render_unchanged_and_as_valid_json(value in any::<String>()) {
        prop_assert_eq!(render("{{ v }}", &json!({"v": value})).unwrap(), value.as_str());
        let escaped = render("{{ v | to_json_escaped_string }}", &json!({"v": value})).unwrap();
        prop_assert_eq!(serde_json::from_str::<Json>(&escaped).unwrap(), Json::String(value.clone()));
        let safe = render("{{ v | tojson }}", &json!({"v": value})).unwrap();
        prop_assert_eq!(serde_json::from_str::<Json>(&safe).unwrap(), Json::String(value));
    }
}
