//! For those who operate the server: health, numbers, the API's description, the end.

use std::time::Duration;

use lastword::run::{DemoRunner, Runners};
use serde_json::{Value, json};

use crate::house::{DONE, House};
use crate::wire::ask;

/// The value of a number.
#[track_caller]
fn number(house: &House, name: &str) -> f64 {
    let text = house.get("/metrics").expect(200).text().to_owned();
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn it_says_that_it_is_there_and_ready() {
    let house = House::new();
    assert_eq!(house.get("/healthz").expect(200).json(), json!({ "status": "ok" }));
    assert_eq!(house.get("/readyz").expect(200).json(), json!({ "status": "ready" }));
}

#[test]
fn numbers_move_with_what_happens() {
    let house = House::new();
    house.run("a", "r");
    let mut following = house.follow("a", "r", "");
    house.tokens("a", "r", &["one", "two"]);
    following.event().unwrap();
    assert_eq!(number(&house, "lastword_followers"), 1.0);
    assert_eq!(number(&house, "lastword_followed_runs"), 1.0);
    assert_eq!(number(&house, "lastword_producers_open"), 1.0);
    house.append("a", "r", DONE).expect(200);
    following.events();
    house.get("/v1/sessions/a").expect(200);
    house.get("/v1/sessions/none").expect(404);
    assert_eq!(number(&house, "lastword_appended_events_total"), 3.0);
    assert_eq!(number(&house, "lastword_appends_total"), 2.0);
    assert_eq!(number(&house, "lastword_http_append_seconds_count"), 2.0);
    assert_eq!(number(&house, "lastword_producers_open"), 0.0);
    assert!(number(&house, "lastword_syncs_total") >= 1.0);
    assert!(number(&house, "lastword_cache_hits_total") >= 1.0);
    assert!(number(&house, "lastword_follower_lag_bytes_count") >= 1.0);
    assert_eq!(number(&house, "lastword_http_requests_total{status=\"4xx\"}"), 1.0);
    assert!(number(&house, "lastword_http_requests_total{status=\"2xx\"}") >= 5.0);
    assert_eq!(number(&house, "lastword_store_writable"), 1.0);
    for name in [
        "lastword_recoveries_total{outcome=\"recovered\"}",
        "lastword_markers_armed_total",
        "lastword_damaged_lines_total",
        "lastword_follower_gaps_total",
        "lastword_cache_bytes",
        "lastword_sync_batch_appends_count",
        "lastword_sync_seconds_count",
    ] {
        number(&house, name);
    }
    let until_gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        number(&house, "lastword_followers") == 0.0
    });
    assert!(until_gone, "a follower that left is still counted");
}

#[test]
fn a_request_keeps_its_id_if_it_has_a_plain_one() {
    let house = House::new();
    let id_of = |given: &str| {
        house.send(&ask("GET", "/healthz").header("x-request-id", given)).header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_of("abc-1.2_3"), "abc-1.2_3");
    for odd in ["a b", "", &"x".repeat(65), "a\"b", "\u{e9}"] {
        assert_ne!(id_of(odd), odd);
    }
}

#[test]
fn the_description_names_every_path_and_every_answer_has_a_schema() {
    let house = House::new();
    let described = house.get("/openapi.json").expect(200).json();
    let paths: Vec<&String> = described["paths"].as_object().unwrap().keys().collect();
    for path in [
        "/v1/sessions",
        "/v1/sessions/{sid}",
        "/v1/sessions/{sid}/runs",
        "/v1/sessions/{sid}/runs/{rid}/events",
        "/v1/sessions/{sid}/runs/{rid}/stop",
        "/v1/sessions/{sid}/events",
        "/v1/events",
        "/api/chat",
        "/api/chat/{sid}/stream",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/check",
    ] {
        assert!(paths.iter().any(|known| *known == path), "{path} is not described");
    }
    assert_eq!(described["openapi"].as_str().unwrap().split('.').next(), Some("3"));
}

/// Every value that stands under a key, however deep.
fn all_under<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| match value.as_str() {
            Some(text) if name == key => found.push(text),
            _ => all_under(value, key, found),
        }),
        Value::Array(list) => list.iter().for_each(|value| all_under(value, key, found)),
        _ => {}
    }
}

#[test]
fn what_the_description_refers_to_is_there_and_each_operation_has_a_name_of_its_own() {
    let described = House::new().get("/openapi.json").expect(200).json();
    let mut references = Vec::new();
    all_under(&described, "$ref", &mut references);
    assert!(references.len() > 20, "{references:?}");
    for reference in references {
        assert!(described.pointer(reference.trim_start_matches('#')).is_some(), "{reference} is nowhere");
    }
    let operations =
        described["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let mut names: Vec<&str> = operations.clone().map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let mut links = Vec::new();
    let answers = operations.flat_map(|operation| operation["responses"].as_object().unwrap().values());
    answers.for_each(|answer| all_under(&answer["links"], "operationId", &mut links));
    assert!(links.len() > 10 && links.iter().all(|link| names.contains(link)), "{links:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

#[test]
fn the_doctor_looks_beside_the_server() {
    let house = House::new();
    house.session("a");
    let report = house.get("/v1/check").expect(200).json();
    assert_eq!((report["findings"].clone(), report["summary"]["sessions"].clone()), (json!([]), json!(1)));
    std::fs::write(house.data().join("bad.json"), b"{").unwrap();
    let report = house.get("/v1/check?session=bad").expect(200).json();
    assert_eq!(report["findings"][0]["code"], "sidecar_unreadable");
    house.get("/v1/check?session=none").expect(404);
    house.get("/v1/check?session=../x").expect(404);
    house.get("/v1/check?session=%61&session=bad").expect(200);
}

#[test]
fn a_drain_begins_nothing_new_and_lets_runs_end_for_their_readers() {
    let runners = Runners::default().with_demo(DemoRunner { pace: Duration::from_millis(20) });
    let mut house = House::of(lastword::Options::default(), runners, |_| {});
    house.session("a");
    house.session("b");
    let begun = house.post("/v1/sessions/a/runs", json!({ "message": "hi", "runner": "demo" })).expect(202);
    let run = begun.json()["run_id"].as_str().unwrap().to_owned();
    let mut following = house.follow("a", &run, "");
    following.event().unwrap();
    let ending = house.ask_to_end();
    let refused = (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Some(house.get("/readyz")).filter(|answer| answer.status == 503)
    });
    assert_eq!(refused.expect("it still says that it is ready").code(), "draining");
    assert_eq!(house.post("/v1/sessions/b/runs", json!({ "message": "x" })).expect(503).code(), "draining");
    assert_eq!(
        house.post("/v1/sessions/b/runs", json!({ "message": "x", "runner": "demo" })).expect(503).code(),
        "draining"
    );
    let events = following.events();
    assert_eq!(events.last().unwrap().json()["state"], "completed");
    let drained = house.block_on(ending).unwrap();
    assert_eq!((drained.running, drained.cut), (1, 0));
}

#[test]
fn an_end_waits_for_no_follower_and_cuts_what_takes_too_long() {
    let runners = Runners::default().with_demo(DemoRunner { pace: Duration::from_secs(30) });
    let mut house =
        House::of(lastword::Options::default(), runners, |options| options.drain = Duration::from_millis(100));
    house.run("a", "outside");
    house.tokens("a", "outside", &["x"]);
    house.session("b");
    house.post("/v1/sessions/b/runs", json!({ "message": "hi", "runner": "demo", "run_id": "inside" })).expect(202);
    let mut outside = house.follow("a", "outside", "");
    outside.event().unwrap();
    let mut list = ask("GET", "/v1/events").open(house.address);
    list.event().unwrap();
    let inside = house.follow("b", "inside", "");
    let drained = house.end().unwrap();
    assert_eq!((drained.running, drained.cut), (1, 1));
    // A run whose producer is outside goes on when the server is back: nobody is told that it has ended.
    assert!(outside.events().iter().all(|event| event.name != "end"));
    assert_eq!(inside.events().last().map(|event| event.name.clone()).as_deref(), Some("end"));
    list.events();
}
