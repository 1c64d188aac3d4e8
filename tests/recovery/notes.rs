//! What markers note for the next read, in shapes that nobody would expect.

use serde_json::{Value, json};

use crate::scene::{OPENED, RUN, Scene, armed, id, markers, user};

const DAY: i64 = 24 * 60 * 60;

/// A marker with such notes behind a journal that holds nothing to show.
fn scene_with(attempts: &Value, first_seen: &Value) -> Scene {
    let scene = Scene::new();
    let mut marker = armed(RUN, 0, OPENED);
    marker["_journal_retry_attempts"] = attempts.clone();
    marker["_journal_retry_first_seen_ts"] = first_seen.clone();
    scene.session(&[user("Where to?", 1), marker]);
    scene.journal(RUN, 1, &[("metering", json!({}))]);
    scene
}

/// The marker after one read.
fn after_a_look(scene: &Scene) -> Value {
    markers(&scene.open().get_session(&id()).unwrap()).remove(0)
}

fn is_given_up(marker: &Value) -> bool {
    marker.get("_pending_journal_recovery").is_none()
}

#[test]
fn attempts_of_any_shape_count_on_and_end() {
    for (noted, next) in [
        (json!(3), 4),
        (json!("3"), 4),
        (json!(" 3 "), 4),
        (json!(3.0), 4),
        (json!(true), 2),
        (json!(null), 1),
        (json!(false), 1),
        (json!([]), 1),
        (json!("many"), 1),
        (json!(2.5), 1),
        (json!({"a": 1}), 1),
        (json!(-5), 1),
        (json!(-1e300), 1),
        (json!(i64::MIN), 1),
    ] {
        let scene = scene_with(&noted, &json!(OPENED));
        let store = scene.open();
        let marker = &markers(&store.get_session(&id()).unwrap())[0];
        assert_eq!(marker["_journal_retry_attempts"], next, "{noted}");
        (next..12).for_each(|_| drop(store.get_session(&id()).unwrap()));
        assert!(is_given_up(&markers(&store.get_session(&id()).unwrap())[0]), "{noted}");
    }
}

#[test]
fn so_many_attempts_that_they_cannot_be_counted_are_enough() {
    for noted in ["99999999999999999999", "1e300", "9223372036854775807", "\"12\"", "12.0"] {
        let scene = scene_with(&serde_json::from_str(noted).unwrap(), &json!(OPENED));
        assert!(is_given_up(&after_a_look(&scene)), "{noted}");
    }
}

#[test]
fn only_notes_that_are_no_numbers_are_put_right_while_the_journal_is_missing() {
    for (noted, left) in [(json!(null), json!(null)), (json!(false), json!(false)), (json!("many"), json!(0))] {
        let scene = scene_with(&noted, &json!(OPENED));
        std::fs::remove_dir_all(scene.root.join("_run_journal")).unwrap();
        let store = scene.open();
        let written = scene.disk.sidecars_written();
        (0..20).for_each(|_| drop(store.get_session(&id()).unwrap()));
        let marker = &markers(&store.get_session(&id()).unwrap())[0];
        assert_eq!(marker["_journal_retry_attempts"], left);
        assert_eq!(scene.disk.sidecars_written() - written, usize::from(left != noted), "{noted}");
    }
}

#[test]
fn a_first_look_that_is_noted_as_text_has_an_age() {
    for first_seen in [json!(OPENED.to_string()), json!(OPENED as f64), json!(format!(" {OPENED}.5 "))] {
        let scene = scene_with(&json!(0), &first_seen);
        let marker = after_a_look(&scene);
        assert_eq!(marker["_journal_retry_first_seen_ts"], first_seen, "a usable note stays as it is");
        scene.wait(DAY + 1);
        assert!(is_given_up(&after_a_look(&scene)), "{first_seen}");
    }
}

#[test]
fn a_first_look_that_nobody_noted_has_no_age_and_the_looks_are_counted_all_the_same() {
    for first_seen in [json!(null), json!(0), json!(0.0), json!(false), json!(""), json!([])] {
        let scene = scene_with(&json!(10), &first_seen);
        scene.wait(2 * DAY);
        let marker = after_a_look(&scene);
        assert_eq!(marker["_journal_retry_attempts"], 11, "{first_seen}");
        assert_eq!(marker["_journal_retry_first_seen_ts"], first_seen);
        assert!(is_given_up(&after_a_look(&scene)), "{first_seen}");
    }
}

#[test]
fn a_first_look_that_is_no_time_is_put_right_and_then_has_an_age() {
    for first_seen in [json!("yesterday"), json!({"at": 1}), json!([1]), json!("NaN"), json!("inf")] {
        let scene = scene_with(&json!(0), &first_seen);
        assert_eq!(after_a_look(&scene)["_journal_retry_first_seen_ts"], OPENED, "{first_seen}");
        scene.wait(DAY + 1);
        assert!(is_given_up(&after_a_look(&scene)), "{first_seen}");
    }
}
