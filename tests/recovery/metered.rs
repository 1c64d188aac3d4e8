//! Each decision about an interrupted answer is counted when it is saved, once, under its own name.

use lastword::meter::{Recoveries, Snapshot};
use lastword::{After, Event, NewSession, Outcome, Store, UserTurn};
use serde_json::json;

use crate::scene::{OPENED, RUN, Scene, armed, contents, id, run, user};

const DAY: i64 = 24 * 60 * 60;
const NONE: Recoveries = Recoveries {
    folded: 0,
    recovered: 0,
    armed: 0,
    resolved: 0,
    grown: 0,
    ended_late: 0,
    looked_in_vain: 0,
    given_up: 0,
    mended: 0,
};

fn measured(store: &Store) -> Snapshot {
    store.meter().snapshot()
}

/// What was counted so far, after one more read.
fn read(store: &Store) -> Recoveries {
    store.get_session(&id()).unwrap();
    measured(store).recoveries
}

fn begun(store: &Store) -> lastword::Run {
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let begun = store.begin_run(&id(), UserTurn::text("Where to?").with_run(run(RUN))).unwrap();
    begun.append(Event::token("To the ")).unwrap();
    begun
}

#[test]
fn a_dead_turn_counts_as_recovered_and_later_growth_as_grown() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the "}))]);
    let store = scene.open();
    for _ in 0..2 {
        assert_eq!(read(&store), Recoveries { recovered: 1, ..NONE });
    }
    scene.journal(RUN, 2, &[("token", json!({"text": "sea."}))]);
    for _ in 0..2 {
        assert_eq!(read(&store), Recoveries { recovered: 1, grown: 1, ..NONE });
    }
}

#[test]
fn a_turn_without_a_trace_counts_as_armed_and_its_answer_as_resolved() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    let store = scene.open();
    for _ in 0..2 {
        assert_eq!(read(&store), Recoveries { armed: 1, ..NONE });
    }
    scene.journal(RUN, 1, &[("metering", json!({}))]);
    assert_eq!(read(&store), Recoveries { armed: 1, looked_in_vain: 1, ..NONE });
    assert_eq!(read(&store), Recoveries { armed: 1, looked_in_vain: 2, ..NONE });
    scene.journal(RUN, 2, &[("token", json!({"text": "To the sea."}))]);
    for _ in 0..2 {
        assert_eq!(read(&store), Recoveries { armed: 1, looked_in_vain: 2, resolved: 1, ..NONE });
    }
}

#[test]
fn a_marker_whose_time_is_over_counts_as_given_up() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 0, OPENED)]);
    let store = scene.open();
    assert_eq!(read(&store), NONE, "a journal that may still appear costs no look");
    scene.wait(DAY + 1);
    for _ in 0..2 {
        assert_eq!(read(&store), Recoveries { given_up: 1, ..NONE });
    }
}

#[test]
fn a_second_marker_of_a_run_counts_as_mended() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 0, OPENED), armed(RUN, 3, OPENED)]);
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    assert_eq!(read(&scene.open()), Recoveries { resolved: 1, mended: 1, ..NONE });
}

#[test]
fn an_end_that_could_not_be_saved_counts_as_folded_when_it_is_and_as_a_failure_before() {
    let scene = Scene::new();
    let store = scene.open();
    let run = begun(&store);
    scene.disk.refuse_sidecars(true);
    run.finish(Outcome::Completed).unwrap_err();
    scene.disk.refuse_sidecars(false);
    assert_eq!((measured(&store).recoveries, measured(&store).save_failures), (NONE, 1));
    for _ in 0..2 {
        assert_eq!(read(&store), Recoveries { folded: 1, ..NONE });
    }
}

#[test]
fn an_end_that_the_next_turn_folds_counts_as_folded() {
    let scene = Scene::new();
    let store = scene.open();
    let run = begun(&store);
    scene.disk.refuse_sidecars(true);
    run.finish(Outcome::Completed).unwrap_err();
    drop(run);
    scene.disk.refuse_sidecars(false);
    store.begin_run(&id(), UserTurn::text("And then?")).unwrap().finish(Outcome::Completed).unwrap();
    assert_eq!(measured(&store).recoveries, Recoveries { folded: 1, ..NONE });
}

#[test]
fn a_run_that_ends_after_it_was_given_up_counts_as_late() {
    let scene = Scene::new();
    let store = scene.open();
    drop(begun(&store));
    scene.wait(30);
    assert_eq!(read(&store), Recoveries { recovered: 1, ..NONE });
    store.resume_run(&id(), &run(RUN)).unwrap().finish(Outcome::Completed).unwrap();
    assert_eq!(measured(&store).recoveries, Recoveries { recovered: 1, ended_late: 1, ..NONE });
}

#[test]
fn a_recovery_that_cannot_be_saved_counts_when_it_is() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the "}))]);
    let store = scene.open();
    scene.disk.refuse_sidecars(true);
    store.get_session(&id()).unwrap_err();
    assert_eq!((measured(&store).recoveries, measured(&store).save_failures), (NONE, 1));
    scene.disk.refuse_sidecars(false);
    assert_eq!(read(&store), Recoveries { recovered: 1, ..NONE });
}

#[test]
fn a_dead_run_that_is_closed_for_a_follower_is_counted_once() {
    let scene = Scene::new();
    let store = scene.open();
    drop(begun(&store));
    scene.wait(30);
    assert_eq!(measured(&store).dead_runs_closed, 0);
    for _ in 0..2 {
        let follow = store.follow(&id(), &run(RUN), After::Start).unwrap();
        assert_eq!(follow.map(|event| event.unwrap().name).last().as_deref(), Some("apperror"));
        assert_eq!(measured(&store).dead_runs_closed, 1);
    }
    assert_eq!(measured(&store).recoveries, Recoveries { folded: 1, ..NONE });
}

#[test]
fn damage_that_a_look_meets_is_counted_and_a_torn_end_is_none() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the "})), ("token", json!({"text": "sea"}))]);
    let path = scene.root.join(format!("_run_journal/talk/{RUN}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (first, second) = text.trim_end().split_once('\n').unwrap();
    let torn = &first[..30];
    std::fs::write(&path, format!("{first}\nrubbish\n{second}\n{{more rubbish\n{torn}")).unwrap();
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"]);
    assert_eq!(measured(&store).damaged_lines, 2);
    store.get_session(&id()).unwrap();
    assert_eq!(measured(&store).damaged_lines, 2, "nobody looked again");
}
