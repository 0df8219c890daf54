//! Queries over outputs of iterations.

use serde_json::{Value as Json, json};

use crate::driver::Run;

/// A task whose six items have outputs; item 4 failed.
fn run() -> Run {
    let mut run = Run::of(
        "name: m
datasets: {cities: {items: [{id: bern}, {id: rome}, {id: oslo}, {id: kyiv}, {id: lima}, {id: bonn}]}}
tasks:
  read:
    iterator: {dataset: cities, parallel: true, limit: 9, on_error: continue}
    output: {temp: number, state: string, tags: list, place: object, note: string}
  plain: {output: {n: integer}}
  silent: {iterator: {dataset: cities, parallel: true, limit: 9}}
  use: {depends_on: [read, plain, silent]}
  later: {depends_on: [use]}",
    );
    let outputs = [
        json!({"temp": 12, "state": "north", "tags": ["a", "b"], "place": {"code": "N1"}, "note": null}),
        json!({"temp": 32, "state": "south", "tags": ["b"], "place": {"code": "S1"}}),
        json!({"temp": 9.5, "state": "north", "tags": ["a", "b"], "place": {"code": "N2"}}),
        json!({"temp": 12.0, "state": "South", "tags": []}),
        Json::Null,
        json!({"state": "north", "note": "no reading"}),
    ];
    for (index, output) in outputs.iter().enumerate() {
        let unit = format!("read[{index}]");
        match output {
            Json::Null => run.fail(&unit, "no such city"),
            output => {
                run.call(&unit, "submit_output", json!({"output": output}));
                run.complete(&unit);
            }
        }
        run.complete(&format!("silent[{index}]"));
    }
    run.call("plain", "submit_output", json!({"output": {"n": 7}}));
    run.complete("plain");
    run
}

fn query(run: &mut Run, mut arguments: Json) -> Json {
    if arguments.get("task").is_none() {
        arguments["task"] = json!("read");
    }
    run.call("use", "query_task_output", arguments).result
}

fn indices(result: &Json) -> Vec<u64> {
    result["items"].as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect()
}

#[test]
fn every_operator_compares_as_described() {
    let mut run = run();
    let cases = [
        (json!({"field": "temp", "op": "eq", "value": 12}), vec![0, 3]),
        (json!({"field": "temp", "op": "eq", "value": "12"}), vec![0, 3]),
        (json!({"field": "temp", "op": "ne", "value": 12}), vec![1, 2]),
        (json!({"field": "temp", "op": "gt", "value": "9.5"}), vec![0, 1, 3]),
        (json!({"field": "temp", "op": "gt", "value": "12"}), vec![1]),
        (json!({"field": "temp", "op": "lt", "value": 12}), vec![2]),
        (json!({"field": "temp", "op": "gte", "value": 12}), vec![0, 1, 3]),
        (json!({"field": "temp", "op": "lte", "value": 12}), vec![0, 2, 3]),
        (json!({"field": "state", "op": "contains", "value": "th"}), vec![0, 1, 2, 3, 5]),
        (json!({"field": "state", "op": "contains", "value": "south"}), vec![1]),
        (json!({"field": "state", "op": "icontains", "value": "SOUTH"}), vec![1, 3]),
        (json!({"field": "state", "op": "starts_with", "value": "S"}), vec![3]),
        (json!({"field": "tags", "op": "contains", "value": "a"}), vec![0, 2]),
        (json!({"field": "state", "op": "in", "value": ["north", "x"]}), vec![0, 2, 5]),
        (json!({"field": "temp", "op": "in", "value": ["32", 9.5]}), vec![1, 2]),
        (json!({"field": "state", "op": "nin", "value": ["north"]}), vec![1, 3]),
        (json!({"field": "temp", "op": "exists"}), vec![0, 1, 2, 3]),
        (json!({"field": "temp", "op": "exists", "value": false}), vec![4, 5]),
        (json!({"field": "note", "op": "exists"}), vec![5]),
        (json!({"field": "note", "op": "ne", "value": "x"}), vec![5]),
        (json!({"field": "place.code", "op": "eq", "value": "N2"}), vec![2]),
        (json!({"field": "tags.1", "op": "eq", "value": "b"}), vec![0, 2]),
        (json!({"field": "tags", "op": "eq", "value": ["b"]}), vec![1]),
        (json!({"field": "place", "op": "eq", "value": "{\"code\": \"S1\"}"}), vec![1]),
        (json!({"field": "index", "op": "gte", "value": 4}), vec![4, 5]),
        (json!({"field": "item_id", "op": "starts_with", "value": "b"}), vec![0, 5]),
        (json!({"field": "status", "op": "eq", "value": "failed"}), vec![4]),
        (json!({"field": "missing", "op": "ne", "value": 1}), vec![]),
    ];
    for (filter, expected) in cases {
        let result = query(&mut run, json!({"filters": [filter]}));
        assert_eq!(indices(&result), expected, "{filter}");
        assert_eq!(result["total"], json!(expected.len()));
    }
    let both = json!([{"field": "temp", "op": "eq", "value": 12}, {"field": "state", "op": "eq", "value": "north"}]);
    assert_eq!(indices(&query(&mut run, json!({"filters": both}))), [0]);
}

#[test]
fn order_is_stable_and_items_without_the_field_are_last_in_both_directions() {
    let mut run = run();
    assert_eq!(indices(&query(&mut run, json!({"order_by": "temp"}))), [2, 0, 3, 1, 4, 5]);
    assert_eq!(indices(&query(&mut run, json!({"order_by": "temp", "desc": true}))), [1, 0, 3, 2, 4, 5]);
    assert_eq!(indices(&query(&mut run, json!({"order_by": "state"}))), [3, 0, 2, 5, 1, 4]);
    assert_eq!(indices(&query(&mut run, json!({"order_by": "note"}))), [5, 0, 1, 2, 3, 4]);
}

#[test]
fn pages_report_the_total_before_them() {
    let mut run = run();
    let page = query(&mut run, json!({"limit": 2, "offset": 1}));
    assert_eq!(indices(&page), [1, 2]);
    assert_eq!((&page["total"], &page["returned"], &page["offset"]), (&json!(6), &json!(2), &json!(1)));
    let beyond = query(&mut run, json!({"offset": 99}));
    assert_eq!((indices(&beyond), &beyond["total"]), (vec![], &json!(6)));
    for bad in [json!({"limit": 0}), json!({"limit": 201}), json!({"offset": -1})] {
        let mut arguments = bad.clone();
        arguments["task"] = json!("read");
        assert_eq!(run.refused("use", "query_task_output", arguments), "args.invalid", "{bad}");
    }
    let ids = query(
        &mut run,
        json!({"item_ids": ["oslo", "paris"], "limit": 1, "filters": [{"field": "index", "op": "eq", "value": 0}]}),
    );
    assert_eq!((indices(&ids), &ids["missing"]), (vec![2], &json!(["paris"])));
}

#[test]
fn a_query_that_needs_too_many_comparisons_is_rejected() {
    let mut run = run();
    let many: Vec<u32> = (0..400_000).collect();
    let long = "x".repeat(30_000_000);
    for value in [json!(many), json!(long)] {
        let arguments = json!({"task": "read", "filters": [{"field": "temp", "op": "in", "value": value}]});
        assert_eq!(run.refused("use", "query_task_output", arguments), "query.too_large");
    }
}

#[test]
fn every_aggregate_skips_what_has_no_number() {
    let mut run = run();
    let cases = [
        (json!({"op": "count"}), json!({"value": 6, "op": "count"})),
        (json!({"op": "sum", "field": "temp"}), json!({"value": 65.5, "n": 4, "op": "sum"})),
        (json!({"op": "avg", "field": "temp"}), json!({"value": 16.375, "n": 4, "op": "avg"})),
        (json!({"op": "sum", "field": "index"}), json!({"value": 15, "n": 6, "op": "sum"})),
        (json!({"op": "distinct", "field": "temp"}), json!({"values": [12, 32, 9.5], "op": "distinct"})),
        (json!({"op": "distinct", "field": "tags"}), json!({"values": [["a", "b"], ["b"], []], "op": "distinct"})),
        (
            json!({"op": "distinct", "field": "place"}),
            json!({"values": [{"code": "N1"}, {"code": "S1"}, {"code": "N2"}], "op": "distinct"}),
        ),
        (json!({"op": "sum", "field": "state"}), json!({"value": 0, "n": 0, "op": "sum"})),
        (json!({"op": "avg", "field": "state"}), json!({"value": null, "n": 0, "op": "avg"})),
        (json!({"op": "max", "field": "state"}), json!({"value": null, "item": null, "n": 0, "op": "max"})),
        (
            json!({"op": "group_by", "group_by": "state", "group_op": "avg", "field": "temp"}),
            json!({"group_op": "avg", "groups": [
                {"group": "north", "value": 10.75, "count": 3}, {"group": "south", "value": 32.0, "count": 1},
                {"group": "South", "value": 12.0, "count": 1}, {"group": null, "value": null, "count": 1},
            ], "op": "group_by"}),
        ),
        (
            json!({"op": "group_by", "group_by": "status"}),
            json!({"group_op": "count", "groups": [
                {"group": "completed", "value": 5, "count": 5}, {"group": "failed", "value": 1, "count": 1},
            ], "op": "group_by"}),
        ),
        (
            json!({"op": "group_by", "group_by": "state", "group_op": "max", "field": "temp"}),
            json!({"group_op": "max", "groups": [
                {"group": "north", "value": 12, "count": 3}, {"group": "south", "value": 32, "count": 1},
                {"group": "South", "value": 12.0, "count": 1}, {"group": null, "value": null, "count": 1},
            ], "op": "group_by"}),
        ),
    ];
    for (aggregate, expected) in cases {
        let result = query(&mut run, json!({"aggregate": aggregate}));
        assert_eq!(result["aggregate"], expected, "{aggregate}");
    }
    let least = query(&mut run, json!({"aggregate": {"op": "min", "field": "temp"}}));
    let listed = query(&mut run, json!({"item_ids": ["oslo"]}));
    assert_eq!(least["aggregate"]["item"], listed["items"][0], "items have one shape everywhere");
    let some = json!({"aggregate": {"op": "max", "field": "temp"}, "filters": [{"field": "state", "op": "eq", "value": "north"}]});
    assert_eq!(query(&mut run, some)["aggregate"]["item"]["item_id"], "bern");
    let none = json!({"aggregate": {"op": "count"}, "filters": [{"field": "temp", "op": "gt", "value": 99}]});
    assert_eq!(query(&mut run, none)["aggregate"]["value"], 0);
    for bad in [json!({"op": "sum"}), json!({"op": "group_by"}), json!({"op": "median", "field": "temp"})] {
        let arguments = json!({"task": "read", "aggregate": bad});
        assert_eq!(run.refused("use", "query_task_output", arguments), "args.invalid", "{bad}");
    }
}

#[test]
fn items_without_output_have_rows_too() {
    let mut run = run();
    let result = query(&mut run, json!({"task": "silent", "limit": 1}));
    assert_eq!(result["items"][0], json!({"index": 0, "item_id": "bern", "status": "completed", "output": null}));
    assert_eq!(result["total"], 6);
}

#[test]
fn only_completed_tasks_before_the_asking_one_can_be_queried() {
    let mut run = run();
    for task in ["later", "use", "nothing"] {
        assert_eq!(run.refused("use", "query_task_output", json!({"task": task})), "query.task_unknown", "{task}");
    }
    let aggregate = json!({"task": "plain", "aggregate": {"op": "count"}});
    assert_eq!(run.refused("use", "query_task_output", aggregate), "query.not_iterated");
}

#[test]
fn an_undeclared_field_gives_a_warning_inside_the_result() {
    let mut run = run();
    let result = query(&mut run, json!({"filters": [{"field": "heat", "op": "gt", "value": 1}], "order_by": "heat"}));
    assert_eq!(result["warnings"][0]["code"], "query.field_unknown");
    assert_eq!(result["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(result["total"], 0);
}

#[test]
fn items_with_the_same_id_are_all_found_by_it() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{id: x}, {id: x, name: z}, {n: 1}]}}, tasks: {
            read: {iterator: {dataset: d, parallel: true}, output: {n: integer}}, use: {depends_on: [read]}}}",
    );
    for index in 0..3 {
        run.call(&format!("read[{index}]"), "submit_output", json!({"output": {"n": index}}));
        run.complete(&format!("read[{index}]"));
    }
    assert_eq!(indices(&query(&mut run, json!({"item_ids": ["x"]}))), [0, 1]);
    assert_eq!(indices(&query(&mut run, json!({"item_ids": ["item_2"]}))), [2]);
}

#[test]
fn options_without_a_meaning_and_fields_without_numbers_give_a_warning() {
    let mut run = run();
    let plain = query(&mut run, json!({"task": "plain", "filters": [{"field": "n", "op": "gt", "value": 9}]}));
    assert_eq!((&plain["output"], plain["warnings"].as_array().map(Vec::len)), (&json!({"n": 7}), Some(1)), "{plain}");
    let text = query(&mut run, json!({"aggregate": {"op": "max", "field": "state"}}));
    assert_eq!(
        (&text["aggregate"]["value"], text["warnings"].as_array().map(Vec::len)),
        (&Json::Null, Some(1)),
        "{text}"
    );
    let number = query(&mut run, json!({"aggregate": {"op": "max", "field": "temp"}}));
    assert_eq!(number["warnings"], Json::Null, "{number}");
}

#[test]
fn a_status_has_the_words_that_models_use_for_it() {
    let mut run = run();
    for (word, found) in [("success", 5), ("succeeded", 5), ("completed", 5), ("failure", 1), ("failed", 1)] {
        let filter = json!({"filters": [{"field": "status", "op": "eq", "value": word}]});
        assert_eq!(query(&mut run, filter)["total"], found, "{word}");
    }
}
