//! Tests of the template objects `slots` and `current_datetime`.

use std::{borrow::Cow, sync::Arc};

use minijinja::context;
use serde_json::json;

use super::*;
use crate::time::Timestamp;

#[derive(Debug)]
struct Ferry;

impl ValueLookup for Ferry {
    fn value(&self, name: &str) -> Option<Cow<'_, Json>> {
        match name {
            "city" => Some(Cow::Owned(json!("Bergen"))),
            "cabin" => Some(Cow::Owned(json!(true))),
            "price" => Some(Cow::Owned(json!(50.0))),
            _ => None,
        }
    }
}

impl SlotsLookup for Ferry {
    fn names(&self) -> Vec<Arc<str>> {
        ["price", "city", "cabin"].map(Arc::from).to_vec()
    }
    fn info(&self, name: &str) -> Option<SlotInfo> {
        let info = |name: &str, allowed_values| SlotInfo { type_name: name.into(), allowed_values };
        match name {
            "cabin" => Some(info("bool", Some(vec![json!(true), json!(false)]))),
            "price" => Some(info("float", None)),
            _ => Some(info("text", None)),
        }
    }
}

fn with_slots(text: &str) -> String {
    render_in(UndefinedMode::Lenient, text, context!(slots => SlotsView::new(Arc::new(Ferry)).into_value())).unwrap()
}

#[test]
fn slots_are_a_mapping() {
    assert_eq!(with_slots("{{ slots.city }} {{ slots['price'] }} {{ slots.get('cabin') }}"), "Bergen 50.0 True");
    assert_eq!(with_slots("[{{ slots.nope }}] {{ slots.get('nope') }} {{ slots.get('nope', 1) }}"), "[] None 1");
    assert_eq!(with_slots("{{ 'city' in slots }} {{ 'nope' in slots }} {{ slots | length }}"), "True False 3");
    assert_eq!(
        with_slots("{% for k, v in slots.items() %}{{ k }}={{ v }};{% endfor %}"),
        "price=50.0;city=Bergen;cabin=True;"
    );
    assert_eq!(
        with_slots("{{ slots.keys() | list }} {{ slots.values() | list }}"),
        "['price', 'city', 'cabin'] [50.0, 'Bergen', True]"
    );
    assert_eq!(
        with_slots("{{ slots | to_json_escaped_string }}"),
        r#"{"price": 50.0, "city": "Bergen", "cabin": true}"#
    );
    assert_eq!(with_slots("{{ slots }}"), "{'price': 50.0, 'city': 'Bergen', 'cabin': True}");
    assert_eq!(with_slots("{% if slots %}some{% endif %}"), "some");
}

#[test]
fn a_loop_over_slots_yields_names_that_are_objects() {
    assert_eq!(
        with_slots(
            "{% for s in slots %}{{ s.name }}: {{ s.value }} ({{ s.type }}, {{ s.allowed_values }})\n{% endfor %}"
        ),
        "price: 50.0 (float, None)\ncity: Bergen (text, None)\ncabin: True (bool, [True, False])\n"
    );
    assert_eq!(
        with_slots("{% for n in slots %}{{ n }}={{ slots[n] }} {% endfor %}"),
        "price=50.0 city=Bergen cabin=True "
    );
    assert_eq!(with_slots("{{ slots | join(', ') }}"), "price, city, cabin");
    assert_eq!(
        with_slots("{% for s in slots %}{{ s.upper() }}{{ s | upper }} {% endfor %}"),
        "PRICEPRICE CITYCITY CABINCABIN "
    );
}

#[test]
fn an_unknown_time_zone_suggests_a_similar_one() {
    let error = ZonedTime::new(Timestamp::from_micros(0), "Europe/Olso").unwrap_err();
    assert_eq!(error.suggestion, Some("Europe/Oslo"));
    assert!(error.to_string().contains("did you mean"), "{error}");
    assert!(ZonedTime::new(Timestamp::from_micros(0), "").is_err());
}

#[test]
fn an_unknown_format_code_is_an_error_that_names_it() {
    let datetime = ZonedTime::new(Timestamp::from_micros(0), "UTC").unwrap();
    for (format, code) in [("%Q", "%Q"), ("%", "ends inside"), ("a%-", "ends inside"), ("%-Q", "%-Q"), ("%--d", "%--")]
    {
        assert!(datetime.strftime(format).unwrap_err().contains(code), "{format}");
    }
    let error =
        render_in(UndefinedMode::Lenient, "\n{{ d.strftime('%Q') }}", context!(d => datetime.to_value())).unwrap_err();
    assert_eq!(error.line, 2);
    let error = render_in(UndefinedMode::Lenient, "{{ d.nope() }}", context!(d => datetime.to_value())).unwrap_err();
    assert_eq!(error.kind, TemplateErrorKind::Unknown, "{error}");
}

#[test]
fn datetimes_compare() {
    let at = |micros, zone| ZonedTime::new(Timestamp::from_micros(micros), zone).unwrap().to_value();
    let context = context!(a => at(0, "UTC"), b => at(0, "Asia/Tokyo"), c => at(1, "UTC"));
    assert_eq!(
        render_in(UndefinedMode::Strict, "{{ a == b }} {{ a < c }} {{ a.date() == c.date() }} {{ a.tzinfo }}", context)
            .unwrap(),
        "True True True UTC"
    );
}
