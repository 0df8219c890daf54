#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use regex::Regex;
use rmcp::{ServiceExt, model::CallToolRequestParams};

use super::*;
use crate::clock::SystemClock;

fn server(folder: &tempfile::TempDir) -> Ferries {
    let options = DemoOptions {
        data: Some(folder.path().join("ferries.json")),
        today: Some("2026-11-21".parse().unwrap()),
        ..DemoOptions::default()
    };
    Ferries::new(options, Arc::new(SystemClock))
}

async fn call(server: &Ferries, tool: &str, arguments: Value) -> ToolResult {
    server.call(tool, arguments.as_object().unwrap().clone()).await.unwrap()
}

#[tokio::test]
async fn search_returns_local_times() {
    let folder = tempfile::tempdir().unwrap();
    let found =
        call(&server(&folder), "search_crossings", json!({"from": "arnvik", "to": "Skelby", "date": "2026-11-22"}))
            .await
            .unwrap();
    let ids: Vec<&str> =
        found["crossings"].as_array().unwrap().iter().map(|c| c["crossing_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["ARN-SKE-20261122-0740", "ARN-SKE-20261122-1215", "ARN-SKE-20261122-1830"]);
    assert_eq!(found["crossings"][0]["departs"], "2026-11-22T07:40:00+01:00");
    assert_eq!(found["day"], "Sunday 22 November 2026");
}

#[tokio::test]
async fn a_search_without_results_suggests_another_day_or_port() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let monday = call(&server, "search_crossings", json!({"from": "Northhaven", "to": "Torsay", "date": "2026-11-23"}))
        .await
        .unwrap();
    assert_eq!((&monday["crossings"], &monday["next_date"]), (&json!([]), &json!("2026-11-24")));
    let nowhere = call(&server, "search_crossings", json!({"from": "Arnvik", "to": "Torsay"})).await.unwrap();
    assert!(nowhere["hint"].as_str().unwrap().contains("Direct boats from Arnvik: Skelby, Northhaven"));
    for (wrong, expected) in [
        (json!({"from": "Bergen"}), "The ports are"),
        (json!({"date": "2026-11-20"}), "is over; today is 2026-11-21"),
        (json!({"from": "Arnvik", "to": "ARN"}), "same port"),
    ] {
        let error = call(&server, "search_crossings", wrong).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn bookings_can_be_changed_and_refunded() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let wanted = json!({"crossing_id": "ARN-SKE-20261123-0740", "passengers": 2.0});
    let booked = call(&server, "book_crossing", wanted.clone()).await.unwrap();
    let reference = booked["reference"].as_str().unwrap().to_owned();
    assert!(Regex::new("^NW-[0-9A-Z]{5}$").unwrap().is_match(&reference));
    assert_eq!(
        (&booked["passengers"], &booked["total_eur"], &booked["status"]),
        (&json!(2), &json!(78), &json!("booked"))
    );
    let seen = call(&server, "get_booking", json!({"reference": reference.to_lowercase()})).await.unwrap();
    assert_eq!((&seen["found"], &seen["hours_to_departure"]), (&json!(true), &json!(54.7)));
    let changed = call(
        &server,
        "change_booking",
        json!({"reference": reference, "crossing_id": "ARN-SKE-20261124-1830", "passengers": 3}),
    )
    .await
    .unwrap();
    assert_eq!((&changed["difference_eur"], &changed["reference"]), (&json!(39), &json!(reference)));
    let refunded = call(&server, "refund_booking", json!({"reference": reference, "percent": 50})).await.unwrap();
    assert_eq!((&refunded["refunded_eur"], &refunded["status"]), (&json!(58), &json!("refunded")));
    assert!(call(&server, "refund_booking", json!({"reference": reference})).await.unwrap_err().contains("already"));
    assert_eq!(call(&server, "get_booking", json!({"reference": "NW-00000"})).await.unwrap()["found"], json!(false));
    let again = call(&server, "book_crossing", wanted).await.unwrap();
    assert_ne!(again["reference"], json!(reference), "the same call twice makes two bookings");
}

#[tokio::test]
async fn a_full_or_departed_crossing_cannot_be_booked() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let id = "NOR-TOR-20261124-0915";
    let free = call(&server, "get_crossing", json!({"crossing_id": id})).await.unwrap()["seats_left"].as_u64().unwrap();
    for _ in 0..free {
        call(&server, "book_crossing", json!({"crossing_id": id, "passengers": 1})).await.unwrap();
    }
    let full = call(&server, "book_crossing", json!({"crossing_id": id, "passengers": 1})).await.unwrap_err();
    assert!(full.contains("0 free seats"), "{full}");
    let seen = call(&server, "get_crossing", json!({"crossing_id": id, "passengers": 1})).await.unwrap();
    assert_eq!((&seen["seats_left"], &seen["enough_seats"]), (&json!(0), &json!(false)));
    let past = call(&server, "book_crossing", json!({"crossing_id": "ARN-SKE-20261120-0740", "passengers": 1}))
        .await
        .unwrap_err();
    assert!(past.contains("departed"), "{past}");
}

#[tokio::test]
async fn clients_get_annotations_and_structured_results() {
    let folder = tempfile::tempdir().unwrap();
    let (client_end, server_end) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(server(&folder).serve(server_end));
    let client = ().serve(client_end).await.unwrap();
    let tools = client.list_all_tools().await.unwrap();
    let hints = |name: &str| {
        let annotations = tools.iter().find(|tool| tool.name == name).unwrap().annotations.clone().unwrap();
        let (read_only, destructive) = (annotations.read_only_hint.unwrap(), annotations.destructive_hint.unwrap());
        (read_only, destructive, annotations.idempotent_hint.unwrap())
    };
    assert_eq!(tools.len(), 7);
    assert_eq!(hints("search_crossings"), (true, false, true));
    assert_eq!(hints("book_crossing"), (false, false, false));
    assert_eq!(hints("refund_booking"), (false, true, true));
    let answer = client.call_tool(CallToolRequestParams::new("list_ports")).await.unwrap();
    assert_eq!(answer.structured_content.unwrap()["ports"].as_array().unwrap().len(), 5);
    let arguments = json!({"crossing_id": "x"}).as_object().unwrap().clone();
    let wrong = client.call_tool(CallToolRequestParams::new("get_crossing").with_arguments(arguments)).await.unwrap();
    assert_eq!(wrong.is_error, Some(true));
    assert!(client.call_tool(CallToolRequestParams::new("sink_ship")).await.is_err());
    client.cancel().await.unwrap();
    serving.await.unwrap().unwrap().waiting().await.unwrap();
}
