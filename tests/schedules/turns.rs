//! Turns that begin, end and are recovered beside readers and each other.

use lastword::storage::sim::schedule::spawn;
use lastword::{ReadOptions, RunId, SaveOptions, Store, StoreError, UserTurn};

use crate::world::{Trial, session_id};

fn answers(store: &Store, session: &str) -> Vec<String> {
    let session = store.get_session(&session_id(session)).unwrap();
    session.messages().map(|row| row.content().into_owned()).collect()
}

#[test]
fn a_turn_that_ends_beside_readers_is_answered_once() {
    Trial::default().run(|world| {
        let store = world.open();
        let run = world.begin(&store, "a", "r");
        let readers = [store.clone(), store.clone()].map(|store| {
            spawn("reader", move || {
                let rows = answers(&store, "a");
                assert!(rows.is_empty() || rows == ["x", "said."], "{rows:?}");
            })
        });
        assert!(world.append(&run, "said."));
        world.finish(&run);
        assert_eq!(answers(&store, "a"), ["x", "said."]);
        readers.into_iter().for_each(|reader| reader.join());
    });
}

#[test]
fn of_two_turns_that_begin_at_once_one_waits_for_the_other() {
    Trial::default().run(|world| {
        let store = world.open();
        let begin = |name: &'static str| {
            let store = store.clone();
            spawn(name, move || match store.begin_run(&session_id("a"), UserTurn::text(name)) {
                Ok(run) => {
                    run.append(lastword::Event::token(&format!("to {name}"))).unwrap();
                    run.finish(lastword::Outcome::Completed).unwrap();
                    true
                }
                Err(StoreError::RunInProgress { .. }) => false,
                Err(error) => panic!("{error:?}"),
            })
        };
        let begun = [("one", begin("one")), ("two", begin("two"))].map(|(name, thread)| (name, thread.join()));
        let rows = answers(&store, "a");
        let is_answered = |name: &str| rows.windows(2).any(|pair| pair[0] == name && pair[1] == format!("to {name}"));
        assert!(begun.iter().all(|(name, is_begun)| *is_begun == is_answered(name)), "{begun:?}: {rows:?}");
        assert!(begun.iter().any(|(_, is_begun)| *is_begun));
    });
}

#[test]
fn of_two_saves_of_one_revision_one_is_a_conflict() {
    Trial::default().run(|world| {
        let store = world.open();
        let known = store.get_session(&session_id("a")).unwrap();
        let savers = ["one", "two"].map(|title| {
            let (store, mut session) = (store.clone(), (*known).clone());
            spawn(title, move || {
                session.set_text("title", title);
                (title, store.save(&session, SaveOptions::default()).is_ok())
            })
        });
        let saved = savers.map(|saver| saver.join());
        let title = store.get_session(&session_id("a")).unwrap().title().to_string();
        let winners: Vec<_> = saved.iter().filter(|(_, is_saved)| *is_saved).map(|(title, _)| *title).collect();
        assert_eq!(winners, [title], "{saved:?}");
    });
}

/// A dead turn is recovered once, by one of the readers, and a late append is folded above the same marker.
#[test]
fn readers_of_a_dead_turn_make_one_splice_beside_a_late_append() {
    Trial::default().run(|world| {
        let run = {
            let store = world.open();
            let run = world.begin(&store, "a", "r");
            assert!(world.append_durable(&run, "said."));
            run.id().clone()
        };
        let store = world.open_later();
        let readers = [store.clone(), store.clone()].map(|store| {
            spawn("reader", move || {
                let said = answers(&store, "a").iter().filter(|row| row.contains("said.")).count();
                assert!(said <= 1, "{:?}", answers(&store, "a"));
            })
        });
        let late = store.resume_run(&session_id("a"), &run);
        if let Ok(late) = &late {
            world.append(late, "late.");
        }
        drop(late);
        readers.into_iter().for_each(|reader| reader.join());
        let rows = answers(&store, "a");
        assert_eq!(rows.iter().filter(|row| row.contains("said.")).count(), 1, "{rows:?}");
    });
}

#[test]
fn a_reader_that_sees_the_end_finds_the_answer_saved() {
    Trial::default().run(|world| {
        let store = world.open();
        let run = world.begin(&store, "a", "r");
        let reading = store.clone();
        let reader = spawn("reader", move || {
            for _ in 0..3 {
                let found = reading.read_events(&session_id("a"), &RunId::parse("r").unwrap(), ReadOptions::default());
                if found.unwrap().events.iter().any(|event| event.name == "done") {
                    assert_eq!(answers(&reading, "a"), ["x", "said."]);
                }
            }
        });
        assert!(world.append(&run, "said."));
        world.finish(&run);
        reader.join();
    });
}
