//! Streams: replayed, then live, no gap, no duplicate, ended when the run has; and a cursor that means nothing is told so.

use std::time::Duration;

use serde_json::json;

use crate::house::{DONE, House, token};
use crate::wire::{Sse, ask};

#[track_caller]
fn seqs(events: &[Sse]) -> Vec<u64> {
    events.iter().filter_map(Sse::seq).collect()
}

#[test]
fn an_event_is_sent_with_its_id_its_name_and_its_journal_line() {
    let house = House::new();
    house.run("a", "r");
    house.append("a", "r", &format!("{}\n{DONE}", token("x"))).expect(200);
    let mut coming = house.follow("a", "r", "");
    let header = |name: &str| coming.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    assert_eq!(header("content-type").as_deref(), Some("text/event-stream"));
    assert_eq!(header("cache-control").as_deref(), Some("no-cache, no-transform"));
    assert_eq!(header("x-accel-buffering").as_deref(), Some("no"));
    assert!(coming.read_until("\n\n").starts_with("retry: 2000\n\n"));
    let events = coming.events();
    let line = house.get("/v1/sessions/a/runs/r/events");
    assert_eq!(line.header("content-type"), Some("application/x-ndjson"));
    let first = line.text().lines().next().unwrap();
    assert_eq!(events[0], Sse { id: Some("r:1".into()), name: "token".into(), data: first.into() });
    assert_eq!(events[1].name, "done");
    assert_eq!(events[2].id, None);
    assert_eq!(
        (events[2].name.as_str(), events[2].json()),
        ("end", json!({ "run_id": "r", "last_seq": 2, "state": "completed" }))
    );
    assert_eq!(events.len(), 3);
}

#[test]
fn a_follower_sees_what_was_then_what_comes_then_the_end() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["1", "2"]);
    let mut coming = house.follow("a", "r", "");
    assert_eq!((coming.event().unwrap().seq(), coming.event().unwrap().seq()), (Some(1), Some(2)));
    for seq in 3..=50 {
        house.tokens("a", "r", &["x"]);
        assert_eq!(coming.event().unwrap().seq(), Some(seq));
    }
    house.append("a", "r", DONE).expect(200);
    let rest = coming.events();
    assert_eq!((seqs(&rest), rest.last().unwrap().name.as_str()), (vec![51], "end"));
}

#[test]
fn whoever_comes_back_gets_the_rest() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["1", "2", "3"]);
    house.append("a", "r", DONE).expect(200);
    let resume = |query: &str, id: Option<&str>| {
        let path = format!("/v1/sessions/a/runs/r/events{query}");
        let stream = ask("GET", &path).header("accept", "text/event-stream");
        id.into_iter().fold(stream, |stream, id| stream.header("last-event-id", id)).open(house.address).events()
    };
    assert_eq!(seqs(&resume("?after=2", None)), [3, 4]);
    assert_eq!(seqs(&resume("?after=r:2", None)), [3, 4]);
    assert_eq!(seqs(&resume("", Some("r:3"))), [4]);
    // What the browser adds is newer than what the page had put into the address.
    assert_eq!(seqs(&resume("?after=1", Some("r:3"))), [4]);
    let at_the_end = resume("", Some("r:4"));
    assert_eq!((at_the_end.len(), at_the_end[0].name.as_str()), (1, "end"));
}

#[test]
fn a_cursor_that_means_nothing_is_told_so_and_everything_follows() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["1", "2"]);
    for is_over in [false, true] {
        if is_over {
            house.append("a", "r", DONE).expect(200);
        }
        for (cursor, reason) in [
            ("other:1", "foreign"),
            ("nonsense", "unknown"),
            ("r:x", "unknown"),
            ("r:9", "ahead"),
            ("r:99999999999999999999", "ahead"),
            ("\u{e9}", "unknown"),
        ] {
            let stream = ask("GET", "/v1/sessions/a/runs/r/events").header("accept", "text/event-stream");
            let mut coming = stream.header("last-event-id", cursor).open(house.address);
            let notice = coming.event().unwrap();
            assert_eq!((notice.name.as_str(), notice.id.clone()), ("snapshot", None), "{cursor}");
            assert_eq!((notice.json()["reason"].clone(), notice.json()["run_id"].clone()), (json!(reason), json!("r")));
            assert_eq!((coming.event().unwrap().seq(), coming.event().unwrap().seq()), (Some(1), Some(2)), "{cursor}");
        }
    }
}

#[test]
fn a_stream_says_that_it_is_there_while_nothing_happens() {
    let house = House::with(|options| options.heartbeat = Duration::from_millis(60));
    house.run("a", "r");
    let mut coming = house.follow("a", "r", "");
    let so_far = coming.read_until(": \n\n: \n\n");
    assert!(so_far.starts_with("retry: 2000\n\n: \n\n"), "{so_far:?}");
    // A heartbeat in the middle of reading loses nothing.
    house.tokens("a", "r", &["1", "2"]);
    assert_eq!((coming.event().unwrap().seq(), coming.event().unwrap().seq()), (Some(1), Some(2)));
}

#[test]
fn nobody_who_leaves_stops_a_run() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["1"]);
    for _ in 0..20 {
        drop(house.follow("a", "r", "").event());
    }
    house.tokens("a", "r", &["2"]);
    assert_eq!(house.get("/v1/sessions/a").json()["active_stream_id"], "r");
}

#[test]
fn lines_are_what_is_there_now_unless_more_is_waited_for() {
    let house = House::with(|options| options.long_poll = Duration::from_millis(300));
    house.run("a", "r");
    house.tokens("a", "r", &["1", "2"]);
    let lines = |query: &str| house.get(&format!("/v1/sessions/a/runs/r/events{query}"));
    assert_eq!(lines("").expect(200).text().lines().count(), 2);
    assert_eq!(lines("?after=1").expect(200).text().lines().count(), 1);
    assert_eq!(lines("?after=2").expect(200).text(), "");
    for bad in ["?after=x", "?after=3", "?after=other:1", "?after=3&follow=true", "?after=3&wait=true"] {
        lines(bad).expect(400);
    }
    // Nothing comes: the answer is that nothing came.
    assert_eq!(lines("?after=2&wait=true").expect(204).text(), "");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lines("?after=2&wait=true").text().to_owned());
        let following = scope.spawn(|| lines("?after=1&follow=true").text().to_owned());
        std::thread::sleep(Duration::from_millis(100));
        house.tokens("a", "r", &["3"]);
        assert_eq!(waiting.join().unwrap().lines().count(), 1);
        house.append("a", "r", DONE).expect(200);
        assert_eq!(following.join().unwrap().lines().count(), 3);
    });
}

#[test]
fn what_is_not_there_is_not_found_before_anything_is_streamed() {
    let house = House::new();
    house.session("a");
    for path in ["/v1/sessions/a/runs/none/events", "/v1/sessions/none/runs/r/events", "/v1/sessions/none/events"] {
        for accept in ["text/event-stream", "*/*"] {
            house.send(&ask("GET", path).header("accept", accept)).expect(404);
        }
    }
}

#[test]
fn a_thousand_events_at_once_reach_many_followers_each_once_and_in_order() {
    let house = House::new();
    house.run("a", "r");
    let words: Vec<String> = (0..100).map(|word| format!("w{word} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    std::thread::scope(|scope| {
        let following: Vec<_> = (0..12)
            .map(|nth| {
                let house = &house;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(nth * 10));
                    house.follow("a", "r", "").events()
                })
            })
            .collect();
        for _ in 0..20 {
            house.tokens("a", "r", &words);
        }
        house.append("a", "r", DONE).expect(200);
        for one in following {
            assert_eq!(seqs(&one.join().unwrap()), (1..=2001).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_session_is_followed_from_run_to_run() {
    let house = House::new();
    house.run("a", "r1");
    house.append("a", "r1", &format!("{}\n{DONE}", token("one"))).expect(200);
    let mut coming = ask("GET", "/v1/sessions/a/events").open(house.address);
    let ids = |count: usize, coming: &mut crate::wire::Coming| -> Vec<String> {
        (0..count).map(|_| coming.event().unwrap()).map(|event| event.id.unwrap_or(event.name)).collect()
    };
    assert_eq!(ids(3, &mut coming), ["r1:1", "r1:2", "end"]);
    for run in ["r2", "r3"] {
        house.post("/v1/sessions/a/runs", json!({ "message": "more", "run_id": run })).expect(202);
        house.tokens("a", run, &["x"]);
        assert_eq!(ids(1, &mut coming), [format!("{run}:1")]);
        house.append("a", run, DONE).expect(200);
        assert_eq!(ids(2, &mut coming), [format!("{run}:2"), "end".to_owned()]);
    }
    // From the middle of the first run on.
    let mut resumed = ask("GET", "/v1/sessions/a/events").header("last-event-id", "r1:1").open(house.address);
    assert_eq!(ids(8, &mut resumed), ["r1:2", "end", "r2:1", "r2:2", "end", "r3:1", "r3:2", "end"]);
    // From now on.
    let mut live = ask("GET", "/v1/sessions/a/events?after=now").open(house.address);
    house.post("/v1/sessions/a/runs", json!({ "message": "more", "run_id": "r4" })).expect(202);
    house.append("a", "r4", &format!("{}\n{DONE}", token("x"))).expect(200);
    assert_eq!(ids(3, &mut live), ["r4:1", "r4:2", "end"]);
    // A cursor that means nothing: the session is to be read again.
    for (cursor, reason) in [("other:1", "foreign"), ("x", "unknown"), ("7", "unknown"), ("r4:9", "ahead")] {
        let mut lost = ask("GET", "/v1/sessions/a/events").header("last-event-id", cursor).open(house.address);
        let notice = lost.event().unwrap();
        assert_eq!((notice.name.as_str(), notice.json()["reason"].clone()), ("snapshot", json!(reason)), "{cursor}");
    }
    house.send(&ask("DELETE", "/v1/sessions/a")).expect(204);
    for mut coming in [coming, resumed, live] {
        let mut last = None;
        while let Some(event) = coming.event() {
            last = Some(event);
        }
        let last = last.unwrap();
        assert_eq!((last.name.as_str(), last.json()["state"].clone()), ("end", json!("deleted")));
    }
}

#[test]
fn many_runs_in_a_row_are_all_seen_by_who_follows_the_session() {
    let house = House::new();
    house.session("a");
    let following = std::thread::scope(|scope| {
        let following = scope.spawn(|| {
            let mut coming = ask("GET", "/v1/sessions/a/events").open(house.address);
            let mut ids = Vec::new();
            while let Some(event) = coming.event() {
                if event.name == "end" && event.json()["run_id"].is_null() {
                    break;
                }
                ids.extend(event.id);
            }
            ids
        });
        std::thread::sleep(Duration::from_millis(50));
        for nth in 0..60 {
            let run = format!("r{nth}");
            house.post("/v1/sessions/a/runs", json!({ "message": "m", "run_id": run })).expect(202);
            house.append("a", &run, DONE).expect(200);
        }
        std::thread::sleep(Duration::from_millis(500));
        house.send(&ask("DELETE", "/v1/sessions/a")).expect(204);
        following.join().unwrap()
    });
    assert_eq!(following, (0..60).map(|nth| format!("r{nth}:1")).collect::<Vec<_>>());
}

/// The ids of all events of a session, and of the runs whose end is told, up to the end of the last run.
fn followed_to_the_last(house: &House) -> (Vec<String>, Vec<String>) {
    let mut coming = ask("GET", "/v1/sessions/a/events").open(house.address);
    let (mut ids, mut ends) = (Vec::new(), Vec::new());
    while ends.last().is_none_or(|run| run != "r999") {
        let event = coming.event().expect("the session goes on");
        ids.extend(event.id.clone());
        if event.name == "end" {
            ends.push(event.json()["run_id"].as_str().unwrap().to_owned());
        }
    }
    (ids, ends)
}

#[test]
fn whoever_comes_while_a_run_begins_misses_none_and_sees_none_twice() {
    let house = House::new();
    house.session("a");
    let runs: Vec<String> = (0..60).map(|nth| format!("r{nth:03}")).chain(["r999".to_owned()]).collect();
    let ids: Vec<String> = runs.iter().flat_map(|run| [format!("{run}:1"), format!("{run}:2")]).collect();
    std::thread::scope(|scope| {
        let mut following = Vec::new();
        for run in &runs {
            for _ in 0..3 {
                following.push(scope.spawn(|| followed_to_the_last(&house)));
            }
            house.post("/v1/sessions/a/runs", json!({ "message": "m", "run_id": run })).expect(202);
            house.tokens("a", run, &["x"]);
            house.append("a", run, DONE).expect(200);
        }
        for follower in following {
            assert_eq!(follower.join().unwrap(), (ids.clone(), runs.clone()));
        }
    });
}

#[test]
fn a_stream_end_that_comes_later_reaches_a_session_stream_and_ends_nothing_twice() {
    let house = House::new();
    house.session("a");
    let mut coming = ask("GET", "/v1/sessions/a/events?after=now").open(house.address);
    let begin = |run: &str| house.post("/v1/sessions/a/runs", json!({ "message": "m", "run_id": run })).expect(202);
    begin("r1");
    house.append("a", "r1", DONE).expect(200);
    let told = |event: Sse| match &event.id {
        Some(id) => id.clone(),
        None => format!("end {}", event.json()["run_id"].as_str().unwrap()),
    };
    let mut next = || told(coming.event().expect("the session goes on"));
    assert_eq!([next(), next()], ["r1:1", "end r1"]);
    house.append("a", "r1", "{\"event\":\"stream_end\"}").expect(200);
    assert_eq!(next(), "r1:2");
    begin("r2");
    house.tokens("a", "r2", &["x"]);
    assert_eq!(next(), "r2:1");
    house.append("a", "r2", DONE).expect(200);
    begin("r3");
    house.append("a", "r2", "{\"event\":\"stream_end\"}").expect(200);
    house.append("a", "r3", DONE).expect(200);
    let rest = [next(), next(), next(), next(), next()];
    assert_eq!(rest, ["r2:2", "end r2", "r3:1", "end r3", "r2:3"]);
    for (cursor, after) in [("r2:2", "r3:1"), ("r3:1", "r2:3")] {
        let mut again = ask("GET", "/v1/sessions/a/events").header("last-event-id", cursor).open(house.address);
        let ids = std::iter::from_fn(|| again.event()).filter_map(|event| event.id);
        assert_eq!(ids.take(1).collect::<Vec<_>>(), [after]);
    }
}

#[test]
fn a_deleted_session_ends_the_streams_of_its_runs() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["x"]);
    let mut coming = house.follow("a", "r", "");
    coming.event().unwrap();
    house.send(&ask("DELETE", "/v1/sessions/a")).expect(204);
    let rest = coming.events();
    assert_eq!((rest.len(), rest[0].name.as_str(), rest[0].json()["state"].clone()), (1, "end", json!("gone")));
}

#[test]
fn a_durable_server_shows_nothing_that_is_not() {
    let options = lastword::Options { durability: lastword::Durability::Durable, ..lastword::Options::default() };
    let house = House::of(options, lastword::run::Runners::default(), |_| {});
    house.run("a", "r");
    let mut coming = house.follow("a", "r", "");
    for seq in 1..=10 {
        house.tokens("a", "r", &["x"]);
        assert_eq!(coming.event().unwrap().seq(), Some(seq));
    }
    let counted = house.store.meter().snapshot();
    assert!(counted.syncs >= 10, "{}", counted.syncs);
}

#[test]
fn names_and_lines_of_other_programs_break_no_frame() {
    let house = House::new();
    house.session("a");
    let folder = house.data().join("_run_journal/a");
    std::fs::create_dir_all(&folder).unwrap();
    let line = "{\"seq\":1,\"event\":\"to\\nken\",\r\"payload\":{\"text\":\"x\"}}\n{\"seq\":2,\"event\":\"done\",\"terminal\":true,\"payload\":{}}\n";
    std::fs::write(folder.join("theirs.jsonl"), line).unwrap();
    let events = house.follow("a", "theirs", "").events();
    assert_eq!(events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["to ken", "done", "end"]);
    assert_eq!(events[0].json()["payload"]["text"], "x");
}

#[test]
fn who_comes_back_behind_the_last_event_is_told_how_the_run_ended() {
    let house = House::new();
    house.run("a", "r");
    house.append("a", "r", &format!("{}\n{DONE}", token("x"))).expect(200);
    for query in ["?after=1", "?after=2"] {
        let last = house.follow("a", "r", query).events().pop().unwrap();
        assert_eq!((last.name.as_str(), last.json()["state"].clone()), ("end", json!("completed")), "{query}");
    }
    let mut session = ask("GET", "/v1/sessions/a/events").header("last-event-id", "r:2").open(house.address);
    assert_eq!(session.event().unwrap().json()["state"], "completed");
}

#[test]
fn a_run_of_another_program_that_nobody_goes_on_with_ends_for_who_waits_and_is_left_as_it_is() {
    let house = House::new();
    house.session("a");
    let folder = house.data().join("_run_journal/a");
    std::fs::create_dir_all(&folder).unwrap();
    let line = "{\"seq\":1,\"event\":\"token\",\"payload\":{\"text\":\"x\"}}\n";
    std::fs::write(folder.join("theirs.jsonl"), line).unwrap();
    let events = house.follow("a", "theirs", "").events();
    assert_eq!(events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["token", "end"]);
    assert_eq!(events[1].json()["state"], "foreign");
    assert_eq!(std::fs::read_to_string(folder.join("theirs.jsonl")).unwrap(), line);
}

#[test]
fn a_journal_that_cannot_be_read_is_no_end() {
    let house = House::new();
    house.session("a");
    for run in ["r1", "r2", "r3"] {
        house.post("/v1/sessions/a/runs", json!({ "message": "m", "run_id": run })).expect(202);
        house.append("a", run, &format!("{}\n{DONE}", token("x"))).expect(200);
    }
    let journal = house.data().join("_run_journal/a/r2.jsonl");
    std::fs::remove_file(&journal).unwrap();
    // It can be opened, and not be read.
    std::os::unix::fs::symlink("/", &journal).unwrap();
    house.get("/v1/sessions/a/runs/r2/events").expect(500);
    let mut coming = ask("GET", "/v1/sessions/a/events").open(house.address);
    let mut ids = Vec::new();
    while let Some(event) = coming.event() {
        ids.push(event.id.unwrap_or(event.name));
    }
    assert_eq!(ids, ["r1:1", "r1:2", "end"], "the stream goes on behind what it could not read");
}

#[test]
fn many_runs_behind_a_reader_who_does_not_listen_are_each_shown_once() {
    let house = House::new();
    house.session("a");
    let mut coming = ask("GET", "/v1/sessions/a/events").open(house.address);
    coming.read_until("retry");
    let large = "x".repeat(200_000);
    for nth in 0..40 {
        let run = format!("r{nth}");
        house.post("/v1/sessions/a/runs", json!({ "message": "m", "run_id": run })).expect(202);
        house.append("a", &run, &format!("{}\n{DONE}", token(&large))).expect(200);
    }
    let mut ids = Vec::new();
    while ids.last().is_none_or(|last| last != "r39:2") {
        ids.extend(coming.event().expect("it goes on").id);
    }
    let wanted: Vec<String> = (0..40).flat_map(|nth| [format!("r{nth}:1"), format!("r{nth}:2")]).collect();
    assert_eq!(ids, wanted);
}

#[test]
fn a_plain_read_of_a_dead_run_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (session, run) = (lastword::SessionId::parse("a").unwrap(), lastword::RunId::parse("r").unwrap());
    {
        let store = lastword::Store::open(&data, lastword::Options::default()).unwrap();
        store.create(lastword::NewSession::titled("t").with_id(session.clone())).unwrap();
        let run = store.begin_run(&session, lastword::UserTurn::text("m").with_run(run.clone())).unwrap();
        run.append(lastword::Event::token("half")).unwrap();
    }
    let house = House::at(folder);
    let before = std::fs::read(data.join("_run_journal/a/r.jsonl")).unwrap();
    for query in ["", "?after=1"] {
        house.get(&format!("/v1/sessions/a/runs/r/events{query}")).expect(200);
    }
    assert_eq!(std::fs::read(data.join("_run_journal/a/r.jsonl")).unwrap(), before);
    let events = house.follow("a", "r", "").events();
    assert_eq!(events.last().unwrap().json()["state"], "interrupted-by-crash");
}
