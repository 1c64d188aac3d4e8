//! Sessions and runs that are removed while others append to them.

use lastword::storage::sim::schedule::spawn;
use lastword::{SaveOptions, Session, Store};

use crate::world::{SMALL_LOG, Trial, World, key_of, session_id};

/// Appends until it is refused, or has said enough, durably every other time.
fn append_until_refused(world: &World, run: &lastword::Run) {
    for number in 0..8 {
        let is_taken = match number % 2 {
            0 => world.append_durable(run, &format!("word {number}.")),
            _ => world.append(run, &format!("word {number}.")),
        };
        if !is_taken {
            break;
        }
    }
}

#[test]
fn what_is_acknowledged_while_a_session_is_deleted_is_in_the_trash() {
    Trial { log: SMALL_LOG, ..Trial::default() }.run(|world| {
        let store = world.open();
        let run = world.begin(&store, "a", "r");
        assert!(world.append(&run, "first."));
        let (appending, key) = (world.clone(), key_of(&run));
        let appender = spawn("appender", move || append_until_refused(&appending, &run));
        world.with_acks(|acks| acks.deleted.insert(key.0.clone(), false));
        store.delete(&session_id("a")).unwrap();
        world.with_acks(|acks| acks.deleted.insert(key.0, true));
        appender.join();
    });
}

/// Of two deletions one succeeds, and a session that is deleted while it is created again, saved or begun stays deleted.
#[test]
fn a_session_that_is_deleted_stays_deleted_whatever_comes_meanwhile() {
    Trial::default().run(|world| {
        let store = world.open();
        let others = [store.clone(), store.clone(), store.clone()];
        let [saver, beginner, deleter] = others;
        let saves = spawn("saver", move || {
            let _ = saver.update(&session_id("a"), SaveOptions::default(), |session| session.set_text("title", "late"));
        });
        let begins = spawn("beginner", move || {
            let _ = beginner.begin_run(&session_id("a"), lastword::UserTurn::text("late"));
        });
        let deletes = spawn("deleter", move || deleter.delete(&session_id("a")).is_ok());
        world.with_acks(|acks| acks.deleted.insert("a".to_owned(), false));
        let is_first = store.delete(&session_id("a")).is_ok();
        world.with_acks(|acks| acks.deleted.insert("a".to_owned(), true));
        saves.join();
        begins.join();
        assert!(is_first != deletes.join(), "one of them deletes it");
        assert!(store.create(lastword::NewSession::titled("again").with_id(session_id("a"))).is_err());
        assert!(store.get_session(&session_id("a")).is_err() && store.metadata(&session_id("a")).is_err());
        assert_eq!(store.list().unwrap().len(), 1);
    });
}

/// A caller that names a revision deletes that one, and never what another thread made of it.
#[test]
fn of_a_deletion_and_a_change_of_one_revision_one_is_refused() {
    type Change = fn(&Store) -> bool;
    let changes: [Change; 2] = [
        |store| {
            let title = |session: &mut Session| session.set_text("title", "changed");
            store.update(&session_id("a"), SaveOptions::default(), title).is_ok()
        },
        |store| store.begin_run(&session_id("a"), lastword::UserTurn::text("begun")).is_ok(),
    ];
    for change in changes {
        Trial::default().run(move |world| {
            let store = world.open();
            let known = store.get_session(&session_id("a")).unwrap().revision().cloned();
            let changing = store.clone();
            let changer = spawn("changer", move || change(&changing));
            let is_deleted = store.delete_if(&session_id("a"), |found| found == known.as_ref()).unwrap();
            assert!(is_deleted != changer.join(), "deleted: {is_deleted}");
            assert_eq!(store.metadata(&session_id("a")).is_err(), is_deleted);
        });
    }
}
