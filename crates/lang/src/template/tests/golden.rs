//! Comparisons with output of Jinja2 and CPython, recorded by the scripts in `tests/reference_data`.

use std::collections::BTreeSet;

use minijinja::context;

use super::*;
use crate::time::Timestamp;

#[test]
fn templates_print_what_jinja2_prints() {
    let table = include_str!("../../../tests/data/jinja.jsonl");
    let differences = include_str!("../../../tests/data/jinja-differences.md");
    let listed: BTreeSet<String> = differences
        .lines()
        .filter_map(|line| line.strip_prefix("* `` ")?.split(" `` ").next().map(str::to_owned))
        .collect();
    let mut differing = BTreeSet::<String>::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let template = case["template"].as_str().unwrap();
        let ours = render(template, &case["context"]);
        let same = match (&ours, case["text"].as_str()) {
            (Ok(ours), Some(expected)) => ours == expected,
            (Err(_), None) => true,
            _ => false,
        };
        count += 1;
        let key = template.lines().next().unwrap_or_default();
        if same {
            continue;
        }
        if listed.contains(key) {
            differing.insert(key.to_owned());
        } else {
            wrong.push(format!("{line}\n   ours: {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 150);
    assert_eq!(differing, listed, "a listed difference no longer differs: remove it from jinja-differences.md");
}

#[test]
fn dates_print_what_cpython_prints() {
    let table = include_str!("../../../tests/data/strftime.jsonl");
    let mut wrong = Vec::new();
    for line in table.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let at = Timestamp::from_micros(case["micros"].as_i64().unwrap());
        let datetime = ZonedTime::new(at, case["zone"].as_str().unwrap()).unwrap();
        let expected = case["text"].as_str().unwrap();
        let ours = match (case["format"].as_str(), case["method"].as_str()) {
            (Some(format), _) => datetime.strftime(format),
            (_, Some(method)) => {
                render_in(UndefinedMode::Strict, template_for(method), context!(d => datetime.to_value()))
                    .map_err(|e| e.to_string())
            }
            _ => panic!("{line}"),
        };
        if ours.as_deref() != Ok(expected) {
            wrong.push(format!("{line}\n   ours: {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(table.lines().count() > 500);
}

fn template_for(method: &str) -> &'static str {
    match method {
        "str" => "{{ d }}",
        "isoformat" => "{{ d.isoformat() }}",
        "isoformat_minutes" => "{{ d.isoformat(' ', 'minutes') }}",
        "isoformat_millis" => "{{ d.isoformat(timespec='milliseconds') }}",
        "tzname" => "{{ d.tzname() }}",
        "date" => "{{ d.date() }}",
        "date_iso" => "{{ d.date().isoformat() }}",
        "date_strftime" => "{{ d.date().strftime('%d/%m/%Y %H:%M %Z') }}",
        "time" => "{{ d.time() }}",
        "time_strftime" => "{{ d.time().strftime('%H:%M:%S.%f %Y') }}",
        "weekday" => "{{ d.weekday() }}",
        "isoweekday" => "{{ d.isoweekday() }}",
        "timestamp" => "{{ d.timestamp() }}",
        "utcoffset" => "{{ d.utcoffset() }}",
        "utcoffset_seconds" => "{{ d.utcoffset().total_seconds() }}",
        "attributes" => {
            "{{ d.year }} {{ d.month }} {{ d.day }} {{ d.hour }} {{ d.minute }} {{ d.second }} {{ d.microsecond }}"
        }
        other => panic!("{other}"),
    }
}
