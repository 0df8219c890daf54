//! The client against answers in the form of the published API description.

use crate::test_server::{ReceivedRequest, serve_responses};
use serde_json::{Value as Json, json};

use super::*;
use crate::testing::ManualClock;

fn def(url: &str) -> QdrantDef {
    QdrantDef {
        url: url.into(),
        collection: "travel faq".into(),
        api_key: Some("hunter2-long".into()),
        vector_name: None,
        content_key: None,
        metadata_key: "metadata".into(),
        timeout: None,
    }
}

async fn search(
    change: impl Fn(&mut QdrantDef),
    answers: Vec<(u16, Json)>,
) -> (Result<Vec<ScoredPassage>, QdrantError>, Vec<ReceivedRequest>) {
    let (base, requests) =
        serve_responses(answers.into_iter().map(|(status, body)| (status, body.to_string())).collect()).await;
    let mut def = def(&base);
    change(&mut def);
    let qdrant = Qdrant::new(&def, HttpClients::new()).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let found = qdrant.nearest(&[0.6, 0.8], 3, 0.25, &cx).await;
    (found, requests.take())
}

fn query_answer(points: Json) -> (u16, Json) {
    (200, json!({"usage": null, "time": 0.0007, "status": "ok", "result": {"points": points}}))
}

#[tokio::test]
async fn query_request_and_answer_have_the_published_form() {
    let points = json!([
        {"id": 7, "version": 3, "score": 0.91, "payload": {"page_content": "Dogs travel free.", "metadata": {"source": "pets.md"}}},
        {"id": "5c56c793-69f3-4fbf-87e6-c4bf54c28c26", "version": 3, "score": 0.5,
         "payload": {"text": "Bikes cost 5.", "title": "Bikes", "answer": "5"}},
        {"id": 9, "version": 3, "score": 0.4, "payload": {"image": "x.png"}},
    ]);
    let (found, requests) = search(|_| {}, vec![query_answer(points)]).await;
    let found = found.unwrap();
    let texts: Vec<_> = found.iter().map(|one| (&*one.passage.text, one.passage.source(), one.score)).collect();
    assert_eq!(texts, [("Dogs travel free.", "pets.md", 0.91), ("Bikes cost 5.", "Bikes", 0.5)]);
    assert_eq!(found[1].passage.answer(), Some("5"));
    let head = requests[0].head.to_lowercase();
    assert!(head.starts_with("post /collections/travel%20faq/points/query http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\napi-key: hunter2-long\r\n"), "{head}");
    let sent: Json = serde_json::from_str(&requests[0].body).unwrap();
    assert_eq!(sent["limit"], 3);
    assert_eq!((&sent["with_payload"], &sent["score_threshold"]), (&json!(true), &json!(0.25)));
    assert_eq!(sent["query"].as_array().unwrap().len(), 2);
    assert!(sent.get("using").is_none());
}

#[tokio::test]
async fn payload_keys_and_vector_name_of_the_configuration_are_used() {
    let change = |def: &mut QdrantDef| {
        def.vector_name = Some("dense".into());
        def.content_key = Some("body".into());
        def.metadata_key = "about".into();
        def.url += "/behind/a/proxy/";
    };
    let points = json!([{"id": 1, "score": 0.9, "payload": {"body": "b", "text": "t", "about": {"source": "s"}}}]);
    let (found, requests) = search(change, vec![query_answer(points)]).await;
    let found = found.unwrap();
    assert_eq!((&*found[0].passage.text, found[0].passage.source()), ("b", "s"));
    assert!(requests[0].head.starts_with("POST /behind/a/proxy/collections/"), "{}", requests[0].head);
    assert_eq!(serde_json::from_str::<Json>(&requests[0].body).unwrap()["using"], "dense");
}

#[tokio::test]
async fn servers_before_1_10_are_called_at_points_search() {
    let points = json!([{"id": 1, "version": 0, "score": 0.9, "payload": {"text": "t"}}]);
    let answers = vec![(404, json!({})), (200, json!({"result": points, "status": "ok", "time": 0.1}))];
    let (found, requests) = search(|def| def.vector_name = Some("dense".into()), answers).await;
    assert_eq!(found.unwrap().len(), 1);
    assert!(requests[1].head.starts_with("POST /collections/travel%20faq/points/search "), "{}", requests[1].head);
    let sent: Json = serde_json::from_str(&requests[1].body).unwrap();
    assert_eq!(sent["vector"]["name"], "dense");
}

#[tokio::test]
async fn errors_name_the_setting_to_check() {
    let missing = json!({"status": {"error": "Not found: Collection `travel faq` doesn't exist!"}, "time": 0.1});
    for (answers, part) in [
        (vec![(404, missing.clone()), (404, missing)], "check `collection`"),
        (vec![(401, json!("Must provide an API key"))], "check `api_key`"),
        (vec![(400, json!({"status": {"error": "Wrong input: Vector dimension error"}}))], "Vector dimension error"),
        (vec![(200, json!({"result": {"groups": []}}))], "`result` contains no points"),
    ] {
        let (found, _) = search(|_| {}, answers).await;
        let error = found.unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
    }
    let (base, _) = serve_responses(vec![(200, " ".repeat(limits::KNOWLEDGE_ANSWER + 1))]).await;
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let error = Qdrant::new(&def(&base), HttpClients::new()).unwrap().nearest(&[1.0], 1, 0.0, &cx).await.unwrap_err();
    assert_eq!(error, QdrantError::BadAnswer("it is too long".into()));
    assert!(Qdrant::new(&def("not an address"), HttpClients::new()).is_err());
}

#[tokio::test]
async fn a_server_that_does_not_answer_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(600));
    let call = tokio::spawn(async move {
        Qdrant::new(&def(&base), HttpClients::new()).unwrap().nearest(&[1.0], 1, 0.0, &cx).await
    });
    while clock.slept().is_empty() {
        tokio::task::yield_now().await;
    }
    clock.advance(limits::KNOWLEDGE_WAIT);
    assert_eq!(call.await.unwrap().unwrap_err(), QdrantError::NoResponse(WaitError::DeadlinePassed));
}
