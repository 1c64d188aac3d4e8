//! A lost answer, from the first read that cannot find it to the last one that still looks: it is found late, it costs
//! nothing while it may still arrive, and it is given up only when there is nothing left to hope for.

#[path = "recovery/scene.rs"]
#[allow(dead_code, reason = "the recovery suite uses all of it")]
mod scene;
#[path = "recovery/slow_disk.rs"]
#[allow(dead_code, reason = "the recovery suite uses all of it")]
mod slow_disk;

use scene::{OPENED, RUN, Scene, armed, assistant, id, markers, rows, user};
use serde_json::{Value, json};

const DAY: i64 = 24 * 60 * 60;
const ATTEMPTS_MAX: u32 = 12;

fn has_retry_notes(marker: &Value) -> bool {
    let notes = ["_pending_journal_recovery", "_journal_retry_stream_id", "_journal_retry_attempts"];
    notes.iter().chain(&["_journal_retry_first_seen_ts"]).any(|key| marker.get(key).is_some())
}

fn words(marker: &Value) -> &str {
    marker["content"].as_str().unwrap()
}

fn armed_scene(attempts: u32, first_seen: i64) -> Scene {
    let scene = Scene::new();
    scene.session(&[user("a question", 1), armed(RUN, attempts, first_seen)]);
    scene
}

/// What a marker looks like once nothing is left to hope for.
fn assert_lost(marker: &Value) {
    assert!(words(marker).contains("no agent output was recovered"), "{marker}");
    assert!(!has_retry_notes(marker), "{marker}");
}

#[test]
fn an_answer_whose_journal_appears_late_is_recovered_by_the_next_read() {
    let scene = Scene::new();
    let history = (0..48).flat_map(|turn| [user(&format!("q{turn}"), turn), assistant(&format!("a{turn}"), turn)]);
    scene.pending(&history.collect::<Vec<_>>(), "Go on with what I asked before.");
    let store = scene.open();

    let first = store.get_session(&id()).unwrap();
    let marker = rows(&first).pop().unwrap();
    assert_eq!((&marker["_error"], &marker["type"]), (&json!(true), &json!("interrupted")));
    assert_eq!(marker["_pending_journal_recovery"], true);
    assert_eq!((&marker["_journal_retry_stream_id"], &marker["_journal_retry_attempts"]), (&json!(RUN), &json!(0)));
    assert!(marker["_journal_retry_first_seen_ts"].is_i64());
    assert!(!words(&marker).contains("no agent output was recovered"));
    assert!(first.pending_turn().is_none() && first.active_run().is_none());
    assert_eq!(first.get("pending_started_at"), Some("null"));

    scene.journal(
        RUN,
        1,
        &[
            ("token", json!({"text": "Looking at the list."})),
            ("tool", json!({"name": "terminal", "preview": "list", "args": {"command": "list"}})),
            ("tool_complete", json!({"name": "terminal", "duration": 1.2, "is_error": false})),
            ("token", json!({"text": " The first look is done."})),
        ],
    );
    let second = store.get_session(&id()).unwrap();
    let all = rows(&second);
    let at = all.iter().position(|row| row["type"] == "interrupted").unwrap();
    assert!(words(&all[at]).contains("recovered from the run journal") && !has_retry_notes(&all[at]));
    let recovered: Vec<&Value> = all[..at].iter().filter(|row| row["_recovered_from_run_journal"] == true).collect();
    let texts: Vec<&str> = recovered.iter().map(|row| row["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["Looking at the list.", "The first look is done."]);
    let card = second.tool_cards().last().unwrap();
    assert_eq!((&*card.name(), card.is_done(), card.row_index()), ("terminal", true, Some(97)));
    assert_eq!(all.iter().filter(|row| row["type"] == "interrupted").count(), 1);
}

#[test]
fn a_second_reader_during_a_retry_gets_the_session_as_it_is_at_once() {
    let scene = armed_scene(0, OPENED);
    scene.journal(RUN, 1, &[("token", json!({"text": "late"}))]);
    let store = scene.open();
    let before = store.get_session_for_scan(&id()).unwrap();
    let held = scene.disk.hold_next_journal_read();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.get_session(&id()).unwrap());
        held.until_entered();
        let second = store.get_session(&id()).unwrap();
        assert_eq!(rows(&second), rows(&before), "the second one neither waits nor retries");
        held.release();
        assert_eq!(rows(&first.join().unwrap())[1]["content"], "late");
    });
    assert_eq!(scene.disk.journal_reads(), 1);
}

#[test]
fn a_journal_that_may_still_arrive_costs_no_attempt() {
    for is_empty in [false, true] {
        let scene = armed_scene(0, OPENED);
        if is_empty {
            scene.journal(RUN, 1, &[]);
        }
        let store = scene.open();
        for _ in 0..20 {
            let marker = markers(&store.get_session(&id()).unwrap()).remove(0);
            assert_eq!(
                (&marker["_journal_retry_attempts"], &marker["_pending_journal_recovery"]),
                (&json!(0), &json!(true))
            );
            assert_eq!(words(&marker), "interrupted", "the words stay");
        }
        assert_eq!(scene.disk.sidecars_written(), 1, "nothing but the store's own identity was written");
    }
}

#[test]
fn a_sealed_journal_without_output_costs_an_attempt_each_time() {
    let scene = armed_scene(0, OPENED);
    scene.journal(RUN, 1, &[("stream_end", json!({}))]);
    let store = scene.open();
    for attempt in 1..ATTEMPTS_MAX {
        let marker = markers(&store.get_session(&id()).unwrap()).remove(0);
        assert_eq!(marker["_journal_retry_attempts"], json!(attempt));
        assert_eq!(marker["_pending_journal_recovery"], true);
    }
    let session = store.get_session(&id()).unwrap();
    assert_lost(&markers(&session)[0]);
    assert!(rows(&session).iter().all(|row| row.get("_recovered_from_run_journal").is_none()));
}

#[test]
fn the_last_attempt_in_vain_gives_up() {
    let scene = armed_scene(ATTEMPTS_MAX - 1, OPENED);
    scene.journal(RUN, 1, &[("stream_end", json!({}))]);
    let store = scene.open();
    let session = store.get_session(&id()).unwrap();
    assert_lost(&markers(&session)[0]);
    let again = store.get_session(&id()).unwrap();
    assert_eq!(rows(&again), rows(&session), "given up is given up");
}

#[test]
fn after_a_day_with_nothing_readable_it_gives_up() {
    let too_old = OPENED - DAY - 1;
    for events in [None, Some(vec![]), Some(vec![("stream_end", json!({}))])] {
        let scene = armed_scene(0, too_old);
        if let Some(events) = &events {
            scene.journal(RUN, 1, events);
        }
        assert_lost(&markers(&scene.open().get_session(&id()).unwrap())[0]);
    }
    let scene = armed_scene(0, too_old);
    scene.journal(RUN, 1, &[("token", json!({"text": "still here"}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(rows(&session)[1]["content"], "still here", "it looks before it gives up");
}
