//! Events without a usable time or number: the rows, cards and summaries that they make.

use std::fs;

use lastword::{Session, Store};
use serde_json::{Value, json};

use crate::scene::{BEGAN, OPENED, RUN, Scene, contents, id, rows, run};

/// Adds an event to the journal with these keys and no others.
fn add(scene: &Scene, keys: &Value) {
    add_line(scene, &keys.to_string());
}

fn add_line(scene: &Scene, line: &str) {
    let folder = scene.root.join("_run_journal/talk");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{RUN}.jsonl"));
    let text = fs::read_to_string(&path).unwrap_or_default();
    fs::write(path, format!("{text}{line}\n")).unwrap();
}

fn tool(name: &str) -> Value {
    json!({"event": "tool", "payload": {"name": name}, "created_at": BEGAN})
}

fn numbered(seq: Value, mut event: Value) -> Value {
    event["seq"] = seq;
    event
}

fn waiting() -> Scene {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene
}

fn cards(session: &Session) -> Vec<(String, String)> {
    session.tool_cards().map(|card| (card.tid().into_owned(), card.name().into_owned())).collect()
}

fn named(cards: &[(&str, &str)]) -> Vec<(String, String)> {
    cards.iter().map(|(tid, name)| (format!("journal-{tid}"), (*name).to_owned())).collect()
}

/// The stored bytes after a read by a store that knows nothing of earlier reads.
fn read_afresh(scene: &Scene) -> (Store, Vec<u8>) {
    let store = scene.open();
    store.get_session(&id()).unwrap();
    (store, fs::read(scene.root.join("talk.json")).unwrap())
}

const UNUSABLE: [&str; 9] = ["0", "-5", "-0.5", "true", "false", "null", "\"1800000000\"", "[1800000000]", "1e400"];

#[test]
fn a_row_whose_first_event_has_no_usable_time_has_the_time_of_the_read() {
    for time in UNUSABLE {
        for first in ["token", "reasoning"] {
            let scene = waiting();
            let line = r#"{"seq":1,"event":"EVENT","created_at":TIME,"payload":{"text":"To "}}"#;
            add_line(&scene, &line.replace("EVENT", first).replace("TIME", time));
            add(&scene, &json!({"seq": 2, "event": "token", "created_at": BEGAN, "payload": {"text": "sea"}}));
            let session = scene.open().get_session(&id()).unwrap();
            assert_eq!(rows(&session)[1]["timestamp"], OPENED, "{first} at {time}");
        }
    }
}

#[test]
fn times_that_are_not_usable_are_absent_from_a_summary() {
    for time in UNUSABLE {
        let scene = waiting();
        let line = r#"{"seq":1,"event":"token","created_at":TIME,"payload":{"text":"x"}}"#.replace("TIME", time);
        add_line(&scene, &line);
        let store = scene.open();
        let summary = || store.run_summary(&id(), &run(RUN)).unwrap().unwrap();
        assert_eq!((summary().first_event_at, summary().last_event_at), (None, None), "{time}");
        add(&scene, &json!({"seq": 2, "event": "token", "created_at": BEGAN, "payload": {"text": "y"}}));
        add_line(&scene, &line.replace("1,", "3,"));
        let at = Some(BEGAN as f64);
        assert_eq!((summary().first_event_at, summary().last_event_at, summary().events), (at, at, 3), "{time}");
    }
}

#[test]
fn cards_without_a_number_are_named_by_their_position_in_the_replay() {
    let scene = waiting();
    let events = [
        tool("a"),
        numbered(json!(0), tool("b")),
        numbered(json!(7), tool("c")),
        numbered(json!(null), tool("d")),
        json!({"event": "token", "payload": {"text": "x"}}),
        numbered(json!(-2), tool("e")),
    ];
    events.iter().for_each(|event| add(&scene, event));
    let (store, stored) = read_afresh(&scene);
    let expected = named(&[("1", "a"), ("2", "b"), ("7", "c"), ("4", "d"), ("5", "e")]);
    assert_eq!(cards(&store.get_session(&id()).unwrap()), expected);
    drop(store);
    assert_eq!(read_afresh(&scene).1, stored, "a second recovery changes nothing");
}

#[test]
fn a_journal_that_grows_gives_its_cards_the_same_ids_as_one_that_is_read_at_once() {
    let done = |name: &str| json!({"event": "tool_complete", "payload": {"name": name, "preview": "ready"}});
    let events = [tool("a"), tool("a"), done("a"), numbered(json!(2), tool("b")), tool("a"), done("a"), tool("c")];
    let at_once = waiting();
    events.iter().for_each(|event| add(&at_once, event));
    let expected = cards(&at_once.open().get_session(&id()).unwrap());
    assert_eq!(expected, named(&[("1", "a"), ("2", "a"), ("2", "b"), ("4", "a"), ("5", "c")]));
    let growing = waiting();
    let store = growing.open();
    for event in &events {
        add(&growing, event);
        store.get_session(&id()).unwrap();
    }
    let session = store.get_session(&id()).unwrap();
    assert_eq!(cards(&session), expected);
    let done: Vec<bool> = session.tool_cards().map(|card| card.is_done()).collect();
    assert_eq!(done, [false, true, false, true, false]);
}

/// The reference program counts from 1 in each replay; earlier versions of this one gave each such card the number 0.
#[test]
fn cards_that_were_recovered_under_other_ids_are_not_repeated() {
    for tids in [["0", "0", "0"], ["1", "1", "2"]] {
        let scene = waiting();
        let (store, _) = {
            ["a", "b", "c"].iter().for_each(|name| add(&scene, &tool(name)));
            read_afresh(&scene)
        };
        drop(store);
        scene.edit(|stored| {
            for (at, tid) in tids.iter().enumerate() {
                stored["tool_calls"][at]["tid"] = json!(format!("journal-{tid}"));
            }
        });
        add(&scene, &tool("d"));
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(contents(&session), ["Where to?", ""]);
        let names: Vec<String> = cards(&session).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["a", "b", "c", "d"], "{tids:?}");
    }
}

#[test]
fn a_summary_knows_the_state_of_a_run_and_its_last_event() {
    let scene = waiting();
    add_line(&scene, "");
    let store = scene.open();
    let known = || {
        let summary = store.run_summary(&id(), &run(RUN)).unwrap().unwrap();
        (summary.last_event_id(&run(RUN)), summary.state().to_owned())
    };
    assert_eq!(known(), (None, "unknown".to_owned()));
    add(&scene, &json!({"event": "token", "payload": {"text": "x"}}));
    assert_eq!(known(), (None, "running".to_owned()), "no event has a number");
    scene.journal(RUN, 1, &[("token", json!({"text": "x"}))]);
    assert_eq!(known(), (Some(format!("{RUN}:1")), "running".to_owned()));
    scene.journal(RUN, 2, &[("cancel", json!({})), ("stream_end", json!({}))]);
    assert_eq!(known(), (Some(format!("{RUN}:3")), "interrupted-by-user".to_owned()));
}
