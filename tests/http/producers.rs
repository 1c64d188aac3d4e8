//! Producers outside: what they append is taken once, in order, or not at all, and whoever stops them is obeyed.

use std::time::Duration;

use serde_json::json;

use crate::house::{DONE, House, token};
use crate::wire::ask;

#[test]
fn a_turn_is_begun_appended_to_and_ended() {
    let house = House::new();
    house.session("a");
    let begun = house.post("/v1/sessions/a/runs", json!({ "message": "Where to?" })).expect(202);
    let run = begun.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(begun.header("location"), Some(format!("/v1/sessions/a/runs/{run}/events").as_str()));
    assert_eq!(house.tokens("a", &run, &["To the", " sea"]), 2);
    assert_eq!(
        house.append("a", &run, &format!("{}\n\n{DONE}\n", token("."))).expect(200).json(),
        json!({ "last_seq": 4 })
    );
    let read = house.get("/v1/sessions/a").json();
    assert_eq!(read["messages"][1]["content"], "To the sea.");
    assert_eq!(read["active_stream_id"], json!(null));
    assert_eq!(house.append("a", &run, &token("late")).expect(409).code(), "sealed");
    assert_eq!(house.append("a", &run, "").expect(409).code(), "sealed");
}

#[test]
fn a_turn_that_cannot_be_begun_is_refused_by_name() {
    let house = House::new();
    house.run("a", "r");
    let begin = |body: serde_json::Value| house.post("/v1/sessions/a/runs", body);
    assert_eq!(begin(json!({ "message": "x" })).expect(409).code(), "run_in_progress");
    house.append("a", "r", DONE).expect(200);
    assert_eq!(begin(json!({ "message": "x", "run_id": "r" })).expect(409).code(), "exists");
    assert_eq!(begin(json!({ "message": "x", "runner": "rm -rf /" })).expect(400).code(), "unknown_runner");
    for bad in [
        json!({}),
        json!({ "message": "" }),
        json!({ "message": " \n\u{a0}\u{200b}\u{feff}" }),
        json!({ "message": " ", "attachments": [] }),
        json!({ "message": "x", "run_id": "../r" }),
        json!({ "message": "x", "lease_seconds": 0 }),
        json!({ "message": "x", "lease_seconds": 86401 }),
        json!({ "message": "x", "lease_seconds": -1e308 }),
        json!({ "message": "x", "runner": "demo", "lease_seconds": 5 }),
        json!({ "message": "x", "attachments": {} }),
        json!({ "message": "x", "command": ["sh"] }),
    ] {
        assert_eq!(begin(bad).expect(400).code(), "invalid_argument");
    }
    house.post("/v1/sessions/none/runs", json!({ "message": "x" })).expect(404);
}

#[test]
fn a_message_without_words_is_taken_with_attachments_alone_and_its_repeat_is_the_same_turn() {
    let house = House::new();
    house.session("a");
    let file = json!([{ "type": "file", "mediaType": "text/plain", "url": "data:text/plain,hello" }]);
    let begin = || {
        let body = json!({ "message": " \u{200b}", "run_id": "r", "attachments": file });
        house.post("/v1/sessions/a/runs", body).expect(202).json()["run_id"].clone()
    };
    assert_eq!([begin(), begin()], [json!("r"), json!("r")]);
    house.append("a", "r", DONE).expect(200);
    let row = house.get("/v1/sessions/a").json()["messages"][0].clone();
    assert_eq!((row["content"].clone(), row["attachments"].as_array().unwrap().len()), (json!("(attachments)"), 1));
    let shown = house.get("/api/chat/a/messages").json()[0]["parts"].clone();
    assert_eq!((shown.as_array().unwrap().len(), shown[0]["type"].clone()), (1, json!("file")), "{shown}");
    let refused = house.post("/v1/sessions/a/runs", json!({ "message": "\u{2060}" })).expect(400);
    assert!(refused.text().contains("the message is blank: say something, or attach a file"), "{}", refused.text());
}

#[test]
fn whoever_did_not_hear_that_a_turn_began_may_begin_it_again() {
    let house = House::new();
    house.session("a");
    let begin = |message: &str, run: &str| {
        house.post("/v1/sessions/a/runs", json!({ "message": message, "run_id": run })).status
    };
    assert_eq!([begin("x", "r"), begin("x", "r"), begin("y", "r"), begin("x", "q")], [202, 202, 409, 409]);
    house.append("a", "r", DONE).expect(200);
    assert_eq!(begin("x", "r"), 409);
    assert_eq!(house.get("/v1/sessions/a").json()["message_count"], 1);
}

#[test]
fn of_a_batch_with_a_bad_line_nothing_is_appended_and_the_line_is_named() {
    let house = House::new();
    house.run("a", "r");
    for bad in ["nonsense", "{}", r#"{"event":"","payload":{}}"#, r#"{"event":"x","data":1}"#, "\u{0}"] {
        let refusal = house.append("a", "r", &format!("{}\n{bad}\n{DONE}", token("x"))).expect(400);
        assert!(refusal.text().contains("line 2"), "{}", refusal.text());
    }
    let not_text = ask("POST", "/v1/sessions/a/runs/r/events").header("content-type", "application/x-ndjson");
    house.send(&not_text.bytes(b"{\"event\":\"x\xff\"}")).expect(400);
    // Only the last event may end a run, or a done with its stream_end.
    for bad in [
        format!("{DONE}\n{}", token("x")),
        format!("{DONE}\n{DONE}"),
        format!("{DONE}\n{{\"event\":\"stream_end\"}}\n{DONE}"),
    ] {
        assert_eq!(house.append("a", "r", &bad).expect(400).code(), "invalid_argument");
    }
    assert_eq!(house.get("/v1/sessions/a/runs/r/events").expect(200).text(), "");
    assert_eq!(house.tokens("a", "r", &["x"]), 1);
}

#[test]
fn the_same_lines_with_the_same_number_are_taken_once() {
    let house = House::new();
    house.run("a", "r");
    let append = |expect: u64, lines: &str| {
        house.send(&ask("POST", &format!("/v1/sessions/a/runs/r/events?expect_seq={expect}")).lines(lines))
    };
    let two = format!("{}\n{}", token("a"), token("b"));
    for _ in 0..3 {
        assert_eq!(append(1, &two).expect(200).json()["last_seq"], 2);
    }
    // Nothing was there before.
    assert_eq!(append(0, &two).expect(200).json()["last_seq"], 2);
    // The same words again are no repeat.
    assert_eq!(append(3, &two).expect(200).json()["last_seq"], 4);
    assert_eq!(append(1, &two).expect(200).json()["last_seq"], 2);
    for (expect, lines) in [(1, token("z")), (2, two.clone()), (6, token("z")), (4, token("a")), (u64::MAX, token("z"))]
    {
        let refusal = append(expect, &lines).expect(409);
        assert_eq!(
            (refusal.code(), refusal.json()["error"]["last_seq"].clone()),
            ("seq_conflict".to_owned(), json!(4))
        );
    }
    // Only the beginning of these had arrived.
    let longer = format!("{two}\n{}\n{}\n{}", token("a"), token("b"), token("c"));
    assert_eq!(append(1, &longer).expect(200).json()["last_seq"], 5);
    let end = format!("{}\n{DONE}", token("d"));
    for _ in 0..2 {
        assert_eq!(append(6, &end).expect(200).json()["last_seq"], 7);
    }
    // Nothing goes on behind the end, whatever number it is expected to get.
    for (expect, lines) in [(8, token("late")), (7, token("late")), (5, token("d")), (20, token("late"))] {
        let refusal = append(expect, &lines).expect(409);
        assert_eq!((refusal.code().as_str(), &refusal.json()["error"]["last_seq"]), ("sealed", &json!(7)), "{expect}");
    }
    let lines = house.get("/v1/sessions/a/runs/r/events");
    assert_eq!(lines.text().lines().count(), 7);
    assert_eq!(house.get("/v1/sessions/a").json()["messages"][1]["content"], "ababcd");
}

#[test]
fn appends_at_the_same_time_get_each_number_once() {
    let house = House::new();
    house.run("a", "r");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| assert!(house.tokens("a", "r", &["x", "y", "z"]) >= 3)));
        }
    });
    let lines = house.get("/v1/sessions/a/runs/r/events");
    let seqs: Vec<u64> = lines
        .text()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=480).collect::<Vec<_>>());
}

#[test]
fn of_two_producers_who_expect_the_same_number_one_is_refused() {
    let house = House::new();
    house.run("a", "r");
    for seq in 1..=20 {
        let path = format!("/v1/sessions/a/runs/r/events?expect_seq={seq}");
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let house = &house;
            let both = ["x", "y"].map(|word| ask("POST", &path).lines(&token(word)));
            both.map(|ask| scope.spawn(move || house.send(&ask).status))
                .into_iter()
                .map(|sent| sent.join().unwrap())
                .collect()
        });
        assert!(matches!(statuses[..], [200, 409] | [409, 200]), "{statuses:?}");
    }
}

#[test]
fn durable_appends_are_acknowledged_when_they_are() {
    let house = House::new();
    house.run("a", "r");
    for durability in ["durable", "buffered"] {
        let path = format!("/v1/sessions/a/runs/r/events?durability={durability}");
        house.send(&ask("POST", &path).lines(&token("x"))).expect(200);
    }
    house.send(&ask("POST", "/v1/sessions/a/runs/r/events?durability=maybe").lines(&token("x"))).expect(400);
    let counted = house.store.meter().snapshot();
    assert!(counted.syncs >= 1 && counted.appends.events == 2, "{counted:?}");
}

/// Found by tests/schema: the first of these answered 500.
#[test]
fn an_empty_append_says_where_the_run_is_whatever_was_expected_behind_it() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["1", "2", "3"]);
    let renew =
        |expect: u64| house.send(&ask("POST", &format!("/v1/sessions/a/runs/r/events?expect_seq={expect}")).lines(""));
    for expect in 0..=4 {
        assert_eq!(renew(expect).expect(200).json()["last_seq"], 3, "{expect}");
    }
    for expect in [5, u64::MAX] {
        assert_eq!(renew(expect).expect(409).json()["error"]["last_seq"], 3, "{expect}");
    }
}

#[test]
fn an_empty_append_renews_the_lease_and_without_one_the_run_is_closed_for_who_waits() {
    let house = House::new();
    house.session("a");
    let begin = json!({ "message": "x", "run_id": "r", "lease_seconds": 1 });
    house.post("/v1/sessions/a/runs", begin).expect(202);
    house.tokens("a", "r", &["half"]);
    // The store's grace for what began in this process is thirty seconds: the lease alone does not end it here.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(house.append("a", "r", "").expect(200).json(), json!({ "last_seq": 1 }));
        assert_eq!(house.append("a", "r", "\n \n").expect(200).json(), json!({ "last_seq": 1 }));
    }
    assert_eq!(house.get("/v1/sessions/a").json()["active_stream_id"], "r");
}

#[test]
fn whoever_stops_a_run_ends_it_and_its_producer_is_told() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["half an "]);
    let stop = ask("POST", "/v1/sessions/a/runs/r/stop");
    assert_eq!(house.send(&stop).expect(200).json(), json!({ "run_id": "r", "stopped": true }));
    assert_eq!(house.send(&stop).expect(200).json(), json!({ "run_id": "r", "stopped": false }));
    assert_eq!(house.append("a", "r", &token("more")).expect(409).code(), "sealed");
    assert_eq!(house.get("/v1/sessions/a").json()["messages"][1]["content"], "half an");
    house.send(&ask("POST", "/v1/sessions/a/runs/none/stop")).expect(404);
    house.send(&ask("POST", "/v1/sessions/none/runs/r/stop")).expect(404);
    // Before the first event, too.
    house.post("/v1/sessions/a/runs", json!({ "message": "again", "run_id": "r2" })).expect(202);
    house.send(&ask("POST", "/v1/sessions/a/runs/r2/stop")).expect(200);
    house.post("/v1/sessions/a/runs", json!({ "message": "and again" })).expect(202);
}

#[test]
fn a_runner_of_the_server_answers_and_nobody_else_appends_to_its_run() {
    let house = House::new();
    house.session("a");
    let begun = house.post("/v1/sessions/a/runs", json!({ "message": "hi", "runner": "demo" })).expect(202);
    let run = begun.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(house.append("a", &run, &token("mine")).expect(409).code(), "not_yours");
    let events = house.follow("a", &run, "").events();
    let end = events.last().unwrap();
    assert_eq!((end.name.as_str(), end.json()["state"].clone()), ("end", json!("completed")));
    assert!(events.iter().any(|event| event.name == "token"));
    let answer = house.get("/v1/sessions/a").json();
    assert!(answer["messages"].as_array().unwrap().iter().any(|row| row["role"] == "assistant"));
}

#[test]
fn a_stop_reaches_a_runner_in_the_middle_of_its_answer() {
    let house = House::new();
    house.session("a");
    let begun = house.post("/v1/sessions/a/runs", json!({ "message": "hi", "runner": "demo" })).expect(202);
    let run = begun.json()["run_id"].as_str().unwrap().to_owned();
    let mut following = house.follow("a", &run, "");
    following.event().unwrap();
    assert_eq!(
        house.send(&ask("POST", &format!("/v1/sessions/a/runs/{run}/stop"))).expect(200).json()["stopped"],
        true
    );
    let rest = following.events();
    assert_eq!(rest.last().unwrap().json()["state"], "interrupted-by-user");
    assert_eq!(house.supervisor.running().len(), 0);
}

#[test]
fn whoever_leaves_before_the_answer_and_repeats_is_taken_once() {
    let house = House::new();
    house.run("a", "r");
    let mut seq = 1;
    for round in 0..40 {
        let words = format!("{}\n{}", token(&format!("{round} ")), token("x "));
        let append = ask("POST", &format!("/v1/sessions/a/runs/r/events?expect_seq={seq}")).lines(&words);
        for _ in 0..3 {
            append.leave(house.address);
        }
        assert_eq!(house.send(&append).expect(200).json()["last_seq"], seq + 1);
        seq += 2;
    }
    let lines = house.get("/v1/sessions/a/runs/r/events");
    assert_eq!(lines.text().lines().count(), 80);
}

#[test]
fn a_run_without_a_lease_is_appended_to_once_as_well() {
    let house = House::new();
    house.session("a");
    let (session, run) = (lastword::SessionId::parse("a").unwrap(), lastword::RunId::parse("r").unwrap());
    let turn = lastword::UserTurn::text("m").with_run(run);
    drop(house.store.begin_run(&session, turn).unwrap());
    for seq in 1..=20 {
        let path = format!("/v1/sessions/a/runs/r/events?expect_seq={seq}");
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let house = &house;
            let both = ["x", "y"].map(|word| ask("POST", &path).lines(&token(word)));
            let sent = both.map(|ask| scope.spawn(move || house.send(&ask).status));
            sent.into_iter().map(|sent| sent.join().unwrap()).collect()
        });
        assert!(matches!(statuses[..], [200, 409] | [409, 200]), "{statuses:?}");
    }
}
