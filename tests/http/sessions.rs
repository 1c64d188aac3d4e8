//! Sessions: created, read whole and in part, changed by those who know what they change, deleted.

use std::collections::BTreeSet;

use serde_json::json;

use crate::house::{DONE, House, token};
use crate::wire::ask;

#[test]
fn a_session_is_created_with_its_metadata_its_place_and_its_revision() {
    let house = House::new();
    let created = house.post("/v1/sessions", json!({ "title": "Plan a trip", "session_id": "trip" })).expect(201);
    assert_eq!(created.json()["session_id"], "trip");
    assert_eq!(created.json()["title"], "Plan a trip");
    assert_eq!(created.header("location"), Some("/v1/sessions/trip"));
    let read = house.get("/v1/sessions/trip").expect(200);
    assert_eq!(read.header("etag"), created.header("etag"));
    assert_eq!((read.json()["title"].clone(), read.json()["messages"].clone()), (json!("Plan a trip"), json!([])));
    let fresh = house.post("/v1/sessions", json!({})).expect(201).json();
    assert_eq!((fresh["session_id"].as_str().unwrap().len(), fresh["title"].clone()), (32, json!("Untitled")));
}

#[test]
fn what_cannot_be_created_is_refused_by_name() {
    let house = House::new();
    house.session("a");
    assert_eq!(house.post("/v1/sessions", json!({ "session_id": "a" })).expect(409).code(), "exists");
    for bad in ["", "%5Fa", "a/b", "..", "a b", "é"] {
        assert_eq!(house.post("/v1/sessions", json!({ "session_id": bad })).expect(400).code(), "invalid_argument");
    }
    for body in [json!([]), json!({ "titel": "x" }), json!({ "title": 7 }), json!("x"), json!(null)] {
        assert_eq!(house.post("/v1/sessions", body).expect(400).code(), "invalid_argument");
    }
    house.send(&ask("POST", "/v1/sessions").header("content-type", "application/json").bytes(b"{")).expect(400);
    house.send(&ask("POST", "/v1/sessions").header("content-type", "text/plain").bytes(b"{}")).expect(415);
}

#[test]
fn a_session_of_any_id_in_the_alphabet_of_nanoid_is_served() {
    let house = House::new();
    for id in ["_abc", "_", "__", "-x", "-", "_lastword", "%5Fpercent", &"_".repeat(128)] {
        let plain = id.replace("%5F", "_");
        house.post("/v1/sessions", json!({ "session_id": plain })).expect(201);
        let read = house.get(&format!("/v1/sessions/{id}")).expect(200).json();
        assert_eq!(read["session_id"], plain.as_str());
        let begun = house.post(&format!("/v1/sessions/{id}/runs"), json!({ "message": "x", "run_id": "r1" }));
        assert_eq!(begun.expect(202).json()["run_id"], "r1");
        let done = "{\"event\":\"done\"}\n";
        let events = format!("/v1/sessions/{id}/runs/r1/events");
        house
            .send(&ask("POST", &events).header("content-type", "application/x-ndjson").bytes(done.as_bytes()))
            .expect(200);
        assert!(house.get(&events).expect(200).text().contains("\"session_id\""));
    }
    let listed = house.get("/v1/sessions?limit=3").expect(200).json();
    let next =
        house.get(&format!("/v1/sessions?cursor={}", listed["next_cursor"].as_str().unwrap())).expect(200).json();
    let count = |page: &serde_json::Value| page["sessions"].as_array().unwrap().len();
    assert_eq!(count(&listed) + count(&next), 8);
}

#[test]
fn a_bad_id_is_not_found_and_touches_no_path() {
    let house = House::new();
    for id in ["%255Flastword", "..", "%2e%2e", "a%2Fb", "%00", "%ff", "x".repeat(129).as_str()] {
        let path = format!("/v1/sessions/{id}");
        for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/events"))] {
            assert_eq!(house.send(&ask(method, &path)).expect(404).code(), "not_found", "{method} {path}");
        }
        house.post(&format!("{path}/runs"), json!({ "message": "x" })).expect(404);
    }
}

#[test]
fn whoever_has_the_revision_is_told_so_and_sent_nothing() {
    let house = House::new();
    house.session("a");
    let read = house.get("/v1/sessions/a").expect(200);
    let tag = read.header("etag").unwrap();
    for (path, known) in
        [("", tag.to_owned()), ("?view=metadata", format!("\"x\", W/{tag}")), ("?limit=1", "*".to_owned())]
    {
        let again =
            house.send(&ask("GET", &format!("/v1/sessions/a{path}")).header("if-none-match", &known)).expect(304);
        assert_eq!((again.body.len(), again.header("etag")), (0, Some(tag)), "{path}");
    }
    house.send(&ask("GET", "/v1/sessions/a").header("if-none-match", "\"x\"")).expect(200);
}

#[test]
fn a_change_needs_the_revision_that_it_changes() {
    let house = House::new();
    house.session("a");
    let change = |tag: Option<&str>, body: serde_json::Value| {
        let change = ask("PATCH", "/v1/sessions/a").json(body);
        house.send(&tag.into_iter().fold(change, |change, tag| change.header("if-match", tag)))
    };
    assert_eq!(change(None, json!({ "title": "b" })).expect(428).code(), "precondition_required");
    let first = house.get("/v1/sessions/a").header("etag").unwrap().to_owned();
    let changed = change(Some(&first), json!({ "title": "b", "pinned": true, "archived": true })).expect(200);
    assert_eq!((changed.json()["title"].clone(), changed.json()["pinned"].clone()), (json!("b"), json!(true)));
    assert_ne!(changed.header("etag"), Some(first.as_str()));
    assert_eq!(change(Some(&first), json!({ "title": "lost" })).expect(412).code(), "precondition_failed");
    assert_eq!(house.get("/v1/sessions/a").json()["title"], "b");
    change(Some("*"), json!({ "pinned": false })).expect(200);
    for bad in [json!({ "title": null, "x": 1 }), json!({ "pinned": "yes" }), json!([])] {
        change(Some("*"), bad).expect(400);
    }
    house.send(&ask("PATCH", "/v1/sessions/none").header("if-match", "*").json(json!({}))).expect(404);
}

#[test]
fn of_many_changes_of_one_revision_exactly_one_is_taken() {
    let house = House::new();
    house.session("a");
    for round in 0..5 {
        let tag = house.get("/v1/sessions/a").header("etag").unwrap().to_owned();
        let change = |nth: usize| {
            ask("PATCH", "/v1/sessions/a").header("if-match", &tag).json(json!({ "title": format!("{round} {nth}") }))
        };
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let house = &house;
            let sent: Vec<_> = (0..8).map(change).map(|ask| scope.spawn(move || house.send(&ask).status)).collect();
            sent.into_iter().map(|sent| sent.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 412)), "{statuses:?}");
    }
}

#[test]
fn whoever_changes_any_revision_is_never_refused_for_somebody_elses_change() {
    let house = House::new();
    house.session("a");
    std::thread::scope(|scope| {
        for name in ["x", "y", "z"] {
            let house = &house;
            scope.spawn(move || {
                for nth in 0..15 {
                    let change = ask("PATCH", "/v1/sessions/a").header("if-match", "*");
                    house.send(&change.json(json!({ "title": format!("{name}{nth}") }))).expect(200);
                }
            });
        }
    });
}

#[test]
fn rows_are_paged_from_the_end_with_the_cards_of_their_rows() {
    let house = House::new();
    house.session("a");
    for turn in 0..4 {
        let run = format!("r{turn}");
        house.post("/v1/sessions/a/runs", json!({ "message": format!("q{turn}"), "run_id": run })).expect(202);
        let tool = json!({ "event": "tool", "payload": { "name": format!("t{turn}"), "tool_call_id": "c" } });
        house.append("a", &run, &format!("{}\n{tool}\n{DONE}", token(&format!("a{turn}")))).expect(200);
    }
    let page = |query: &str| house.get(&format!("/v1/sessions/a?{query}")).expect(200).json();
    let contents = |page: &serde_json::Value| -> Vec<String> {
        let rows = page["messages"].as_array().unwrap();
        rows.iter().map(|row| row["content"].as_str().unwrap().to_owned()).collect()
    };
    let last = page("limit=3");
    assert_eq!(contents(&last), ["a2", "q3", "a3"]);
    assert_eq!(last["page"], json!({ "rows_from": 5, "rows_before": 8, "rows_total": 8 }));
    let cards: Vec<_> = last["tool_calls"].as_array().unwrap().iter().map(|card| card["name"].clone()).collect();
    assert_eq!(cards, ["t2", "t3"]);
    assert_eq!(contents(&page("rows_before=5&limit=3")), ["q1", "a1", "q2"]);
    assert_eq!(contents(&page("rows_before=2&limit=3")), ["q0", "a0"]);
    assert_eq!(contents(&page("rows_before=0")), [""; 0]);
    assert_eq!(contents(&page("rows_before=99&limit=1")), ["a3"]);
    for bad in ["limit=0", "limit=x", "limit=10001", "rows_before=-1", "view=x"] {
        house.get(&format!("/v1/sessions/a?{bad}")).expect(400);
    }
}

#[test]
fn the_metadata_view_has_no_rows_and_resolves_nothing() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["x"]);
    let view = house.get("/v1/sessions/a?view=metadata").expect(200).json();
    assert_eq!((view["active_stream_id"].clone(), view["message_count"].clone()), (json!("r"), json!(0)));
    assert!(view.get("messages").is_none());
}

#[test]
fn a_deleted_session_is_gone_and_its_id_is_not_taken_again() {
    let house = House::new();
    house.run("a", "r");
    house.send(&ask("DELETE", "/v1/sessions/a").header("if-match", "\"x\"")).expect(412);
    assert_eq!(house.send(&ask("DELETE", "/v1/sessions/a")).expect(204).body.len(), 0);
    house.send(&ask("DELETE", "/v1/sessions/a")).expect(404);
    house.get("/v1/sessions/a").expect(404);
    house.get("/v1/sessions/a/runs/r/events").expect(404);
    house.append("a", "r", &token("late")).expect(404);
    house.send(&ask("POST", "/v1/sessions/a/runs/r/stop")).expect(404);
    assert_eq!(house.post("/v1/sessions", json!({ "session_id": "a" })).expect(409).code(), "deleted");
}

#[test]
fn a_full_read_resolves_an_interrupted_answer() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = lastword::Store::open(folder.path().join("data"), lastword::Options::default()).unwrap();
        let id =
            store.create(lastword::NewSession::titled("t").with_id(lastword::SessionId::parse("a").unwrap())).unwrap();
        let run = store.begin_run(&id, lastword::UserTurn::text("hello")).unwrap();
        run.append(lastword::Event::token("half an ans")).unwrap();
    }
    let house = House::new();
    let (from, to) = (folder.path().join("data"), house.data());
    copy(&from, &to);
    let read = house.get("/v1/sessions/a").expect(200).json();
    let rows = read["messages"].as_array().unwrap();
    assert_eq!((rows[0]["content"].clone(), rows[1]["content"].clone()), (json!("hello"), json!("half an ans")));
    assert_eq!(rows[2]["type"], "interrupted");
}

/// Puts the sessions and journals of one directory into another.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        let name = name.to_string_lossy();
        if entry.file_type().unwrap().is_dir() {
            if name == "_run_journal" || !name.starts_with('_') {
                std::fs::create_dir_all(&target).unwrap();
                copy(&entry.path(), &target);
            }
        } else if !name.starts_with("_lastword") && !name.starts_with("_sessions") && !name.starts_with("_lock") {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_list_is_paged_and_filtered() {
    let house = House::new();
    for nth in 0..7 {
        let title = if nth % 2 == 0 { format!("Über {nth}") } else { format!("other {nth}") };
        house.post("/v1/sessions", json!({ "session_id": format!("s{nth}"), "title": title })).expect(201);
    }
    house.send(&ask("PATCH", "/v1/sessions/s0").header("if-match", "*").json(json!({ "archived": true }))).expect(200);
    let all = |query: &str| {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = house.get(&format!("/v1/sessions?limit=2{query}{cursor}")).expect(200).json();
            let sessions = page["sessions"].as_array().unwrap();
            assert!(sessions.len() <= 2);
            ids.extend(sessions.iter().map(|session| session["session_id"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return ids,
            }
        }
    };
    assert_eq!(all(""), ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]);
    assert_eq!(all("&q=%C3%BCBER"), ["s6", "s4", "s2", "s0"]);
    assert_eq!(all("&q=%C3%BCber&archived=false"), ["s6", "s4", "s2"]);
    assert_eq!(all("&archived=true"), ["s0"]);
    assert_eq!(all("&q=nothing"), [""; 0]);
    for bad in ["limit=0", "limit=1001", "cursor=x", "archived=maybe", "limit=1&limit=2"] {
        assert_eq!(house.get(&format!("/v1/sessions?{bad}")).expect(400).code(), "invalid_argument");
    }
}

#[test]
fn a_session_that_cannot_be_read_is_listed_with_its_error() {
    let house = House::new();
    house.session("good");
    std::fs::write(house.data().join("bad.json"), b"{").unwrap();
    let page = house.get("/v1/sessions").expect(200).json();
    let ids: BTreeSet<_> =
        page["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].as_str().unwrap()).collect();
    assert_eq!(ids, BTreeSet::from(["bad", "good"]));
    assert_eq!(page["sessions"][1]["error"]["code"], "corrupt_json");
    let read = house.get("/v1/sessions/bad").expect(500);
    assert_eq!(read.code(), "corrupt_json");
    assert!(!read.text().contains(house.folder.path().to_str().unwrap()), "{}", read.text());
}
