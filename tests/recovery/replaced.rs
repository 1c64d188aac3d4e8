//! Runs that were to replace a turn and whose producer died, was late, or ended beyond a conversation that had gone on.

use lastword::{Event, NewSession, Outcome, Replaces, Run, Store, UserTurn};

use crate::scene::{Scene, contents, id, markers, run};

fn answered(store: &Store, name: &str, words: &str) {
    let begun = store.begin_run(&id(), UserTurn::text(words).with_run(run(name))).unwrap();
    begun.append(Event::token(&format!("answer of {name}"))).unwrap();
    begun.finish(Outcome::Completed).unwrap();
}

/// Two turns, the second of which is answered again by a producer that says a word and is silent. It was given up, and turns up
/// again.
fn given_up(scene: &Scene, replaces: Replaces, words: &str) -> (Store, Run) {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    answered(&store, "r1", "one");
    answered(&store, "r2", "two");
    let turn = UserTurn { replaces: Some(replaces), lease_seconds: Some(5.0), ..UserTurn::text(words) };
    let begun = store.begin_run(&id(), turn.with_run(run("r3"))).unwrap();
    begun.append(Event::token("half ")).unwrap();
    drop(begun);
    assert!(store.get_session(&id()).unwrap().pending_turn().is_some(), "its lease lives");
    scene.wait(60);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD, "the old answer stays");
    assert_eq!(branches(&store), [("r3".to_owned(), "failed", 3)]);
    let late = store.resume_run(&id(), &run("r3")).unwrap();
    (store, late)
}

const OLD: [&str; 4] = ["one", "answer of r1", "two", "answer of r2"];

fn branches(store: &Store) -> Vec<(String, &'static str, usize)> {
    let branches = store.branches(&id()).unwrap().into_iter();
    branches.map(|branch| (branch.run_id.unwrap(), branch.reason.as_str(), branch.rows)).collect()
}

fn again() -> Replaces {
    Replaces::Answer("r2".to_owned())
}

#[test]
fn a_late_end_takes_the_place_after_all() {
    for (replaces, words) in [(again(), "two"), (Replaces::Message("r2-user".to_owned()), "edited")] {
        let scene = Scene::new();
        let (store, late) = given_up(&scene, replaces, words);
        late.append(Event::token("and whole")).unwrap();
        assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD);
        late.finish(Outcome::Completed).unwrap();
        let session = store.get_session(&id()).unwrap();
        assert_eq!(contents(&session), ["one", "answer of r1", words, "half and whole"]);
        assert_eq!(markers(&session).len(), 0);
        let reason = if words == "edited" { "edit" } else { "regenerate" };
        assert_eq!(branches(&store), [("r2".to_owned(), reason, 2)]);
        // A repeat changes nothing.
        let stop = store.stop_run(&id(), &run("r3")).unwrap();
        assert!(!stop);
        assert_eq!(contents(&store.get_session(&id()).unwrap()).len(), 4);
        let kept = store.branches(&id()).unwrap()[0].branch_id.clone();
        store.restore_branch(&id(), &kept, |_| true).unwrap().unwrap();
        assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD);
        late.finish(Outcome::Completed).unwrap_err();
        assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD, "an end that was settled is not settled again");
    }
}

#[test]
fn a_late_failure_stays_a_branch_with_all_of_its_words() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene, again(), "");
    late.append(Event::token("and more")).unwrap();
    late.fail("x", "it broke").unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD);
    assert_eq!(branches(&store), [("r3".to_owned(), "failed", 3)]);
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["one", "answer of r1", "two", "half and more"]);
    assert_eq!(markers(&session).len(), 1);
}

#[test]
fn a_late_end_removes_nothing_that_was_said_meanwhile() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene, again(), "");
    answered(&store, "r4", "three");
    late.append(Event::token("and whole")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    let said = contents(&store.get_session(&id()).unwrap());
    assert_eq!(said, [&OLD[..], &["three", "answer of r4"]].concat());
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    let said = contents(&store.get_session(&id()).unwrap());
    assert_eq!(said, ["one", "answer of r1", "two", "half and whole"]);
    assert_eq!(branches(&store), [("r2".to_owned(), "regenerate", 4)]);
}

/// The answer that the next question was asked after stays in its place, while that question waits and when it is answered.
#[test]
fn a_late_end_while_the_next_turn_is_live_stays_a_branch() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene, again(), "");
    let next = store.begin_run(&id(), UserTurn::text("three").with_run(run("r4"))).unwrap();
    late.append(Event::token("and whole")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD);
    next.append(Event::token("answer of r4")).unwrap();
    next.finish(Outcome::Completed).unwrap();
    let said = contents(&store.get_session(&id()).unwrap());
    assert_eq!(said, [&OLD[..], &["three", "answer of r4"]].concat());
    assert_eq!(branches(&store), [("r3".to_owned(), "failed", 2)]);
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    let said = contents(&store.get_session(&id()).unwrap());
    assert_eq!(said, ["one", "answer of r1", "two", "half and whole"]);
}

/// The conversation before the branch is another one now. What its run said comes into the branch all the same, and is there when
/// that conversation is back.
#[test]
fn a_late_end_after_the_conversation_before_it_was_edited_is_in_its_branch() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene, again(), "");
    let edit = UserTurn { replaces: Some(Replaces::Message("r1-user".to_owned())), ..UserTurn::text("edited") };
    let edited = store.begin_run(&id(), edit.with_run(run("r4"))).unwrap();
    edited.append(Event::token("answer of r4")).unwrap();
    edited.finish(Outcome::Completed).unwrap();
    late.append(Event::tool("t", "look", &serde_json::json!({"where": "up"}))).unwrap();
    late.append(Event::tool_complete("t", "look", &serde_json::json!("seen"), false)).unwrap();
    late.append(Event::token("and whole")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["edited", "answer of r4"]);
    store.restore_branch(&id(), "r4", |_| true).unwrap().unwrap();
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    let session = store.get_session(&id()).unwrap();
    let said = contents(&session);
    assert_eq!((said[2].as_str(), said.last().unwrap().as_str()), ("two", "and whole"), "{said:?}");
    assert_eq!(markers(&session).len(), 0);
    let rows: Vec<_> = session.tool_cards().map(|card| card.row_index()).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].is_some_and(|row| row >= 3 && row < said.len()), "{rows:?}");
}

/// A stop of a run that was given up for dead ends the run. It takes no answer out of the transcript.
#[test]
fn a_late_stop_leaves_the_old_answer_in_its_place() {
    for is_resumed in [true, false] {
        let scene = Scene::new();
        let (store, late) = given_up(&scene, again(), "");
        if is_resumed {
            late.append(Event::token("and more")).unwrap();
            late.finish(Outcome::InterruptedByUser).unwrap();
        } else {
            drop(late);
            store.stop_run(&id(), &run("r3")).unwrap();
        }
        assert_eq!(contents(&store.get_session(&id()).unwrap()), OLD);
        assert_eq!(branches(&store), [("r3".to_owned(), "failed", 3)]);
        store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
        let words = if is_resumed { "half and more" } else { "half" };
        assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one", "answer of r1", "two", words]);
    }
}

/// A branch whose run goes on after it was restored is a turn like any other.
#[test]
fn a_late_end_after_its_branch_was_restored_completes_the_turn() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene, again(), "");
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    assert_eq!(markers(&store.get_session(&id()).unwrap()).len(), 1);
    late.append(Event::token("and whole")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["one", "answer of r1", "two", "half and whole"]);
    assert_eq!(markers(&session).len(), 0);
    assert_eq!(branches(&store), [("r2".to_owned(), "regenerate", 2)]);
}

/// The words of a run that was given up and says more stand in its journal, and come with its branch.
#[test]
fn a_branch_whose_journal_grew_is_restored_with_all_of_it() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene, again(), "");
    late.append(Event::token("and more")).unwrap();
    drop(late);
    scene.wait(60);
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one", "answer of r1", "two", "half and more"]);
}

/// A run without a word has a marker that waits for it, also in a branch.
#[test]
fn a_silent_attempt_that_died_is_a_branch_whose_marker_waits() {
    let scene = Scene::new();
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    answered(&store, "r1", "one");
    let begun = store.begin_run(&id(), UserTurn::last_answer_again().with_run(run("r2"))).unwrap();
    drop(begun);
    scene.wait(60);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one", "answer of r1"]);
    assert_eq!(branches(&store), [("r2".to_owned(), "failed", 2)]);
    store.restore_branch(&id(), "r2", |_| true).unwrap().unwrap();
    let late = store.resume_run(&id(), &run("r2")).unwrap();
    late.append(Event::token("late")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!((contents(&session), markers(&session).len()), (vec!["one".to_owned(), "late".to_owned()], 0));
}

/// A marker before the replaced turn is resolved by the same read that decides the turn: its rows move the place.
#[test]
fn a_place_that_was_counted_moves_with_the_rows_before_it() {
    use crate::scene::{BEGAN, armed, assistant, user};
    let scene = Scene::new();
    scene.session(&[user("one", BEGAN), armed("gone", 0, BEGAN), user("two", BEGAN), assistant("old", BEGAN)]);
    let store = scene.open();
    let turn = UserTurn { replaces: Some(Replaces::Answer("row-2".to_owned())), ..UserTurn::default() };
    let begun = store.begin_run(&id(), turn.with_run(run("r3"))).unwrap();
    begun.append(Event::token("new")).unwrap();
    drop(begun);
    scene.journal("gone", 1, &[("token", serde_json::json!({"text": "found"}))]);
    scene.wait(60);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["one", "found", "two", "old"]);
    assert_eq!(branches(&store), [("r3".to_owned(), "failed", 3)]);
    let kept = store.branches(&id()).unwrap();
    assert_eq!(kept[0].at_row, 3);
    store.restore_branch(&id(), "r3", |_| true).unwrap().unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one", "found", "two", "new"]);
}
