//! The end of an answer is shown when it is durable and saved, and not before.

use std::sync::Arc;

use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::{After, Durability, Event, List, NewSession, Options, Outcome, ReadOptions, Run, Store, UserTurn};

use crate::ledger::run_id;
use crate::logged::{layout, options_of};
use crate::machine::{DATA, NOW, created, id, open, open_at, prepared};

/// How many operations the end of the run takes up to the first of those that save its answer.
fn operations_until_saved(disk: &SimDisk) -> u64 {
    let probe = disk.copy();
    let store = open(&probe).unwrap();
    let run = store.resume_run(&id(), &run_id("r")).unwrap();
    let before = probe.operations();
    run.finish(Outcome::Completed).unwrap();
    let log = probe.log();
    let line = log.iter().rfind(|line| line.contains("create /data/_tmp")).unwrap();
    line.split(' ').next().unwrap().parse::<u64>().unwrap() - before
}

/// An end whose fsync failed is shown to no follower, whatever the store was told.
#[test]
fn an_end_whose_sync_failed_is_never_shown() {
    for durability in [Durability::Buffered, Durability::Durable] {
        let (disk, _) = prepared(created);
        let options = Options { durability, ..options_of(&disk) };
        let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
        run.append(Event::token("word")).unwrap();
        store.commit().unwrap();
        let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
        assert_eq!(follow.poll().unwrap().unwrap().name, "token");
        disk.break_syncs(disk.operations() + 1);
        run.finish(Outcome::Completed).unwrap_err();
        assert!(follow.poll().unwrap().is_none(), "{durability:?}: shown while the run is held");
        drop(run);
        assert!(follow.poll().unwrap().is_none(), "{durability:?}: shown when the run was let go");
        assert!(!follow.is_over().unwrap());
        let events = store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events;
        assert_eq!(events.len(), 1, "{durability:?}");
        let mut late = store.follow(&id(), &run_id("r"), After::Start).unwrap();
        assert_eq!(late.poll().unwrap().unwrap().name, "token");
        assert!(late.poll().unwrap().is_none(), "{durability:?}: shown to a follower that came later");
    }
}

/// An end for whose answer there is no room is shown when it is saved: by the next read, by a repeat, or for those who wait.
#[test]
fn an_end_is_shown_when_its_answer_is_saved() {
    type Way = fn(&Store);
    let ways: [(&str, Way); 3] = [
        ("a read", |store| drop(store.get_session(&id()).unwrap())),
        ("a repeat", |store| {
            let run = store.resume_run(&id(), &run_id("r")).unwrap();
            run.finish(Outcome::Completed).unwrap();
        }),
        ("a follower that asks", |store| {
            let mut asking = store.follow(&id(), &run_id("r"), After::Start).unwrap();
            while asking.poll().unwrap().is_some() {}
            asking.is_over().unwrap();
        }),
    ];
    for (name, save) in ways {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
        run.append_durable(Event::token("word")).unwrap().wait().unwrap();
        let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
        follow.poll().unwrap().unwrap();
        // The last line finds room, the answer does not.
        disk.fail(disk.operations() + operations_until_saved(&disk), Fault::Enospc);
        let refused = run.finish(Outcome::Completed).unwrap_err();
        assert_eq!(refused.code(), "no_space", "{name}: {refused:?}\n{}", disk.log().join("\n"));
        drop(run);
        assert!(follow.poll().unwrap().is_none(), "{name}: shown before it is saved");
        // A read while the disk is full shows what there is.
        disk.fill(disk.operations() + 1);
        let session = store.get_session(&id()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(session.pending_turn().is_some(), "{name}");
        assert!(follow.poll().unwrap().is_none(), "{name}: shown by a read that could not save it");
        disk.make_room();
        save(&store);
        assert_eq!(follow.poll().unwrap().unwrap().name, "done", "{name}");
        let session = store.get_session(&id()).unwrap();
        assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None), "{name}");
    }
}

/// The end was written but for its line feed, and could not be cut off again: the journal failed. What opens it again hides
/// the end as well, until the answer is saved.
#[test]
fn an_end_in_a_journal_that_failed_is_hidden_until_it_is_saved() {
    let end_bytes = {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
        run.append(Event::token("word")).unwrap();
        let before = disk.files()[&layout().journal(&id(), &run_id("r"))].len();
        run.finish(Outcome::Completed).unwrap();
        disk.files()[&layout().journal(&id(), &run_id("r"))].len() - before
    };
    enum Way {
        Repeat,
        Read,
        /// By a read that opens the journal itself.
        ReadAtOnce,
    }
    for way in [Way::Repeat, Way::Read, Way::ReadAtOnce] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
        run.append(Event::token("word")).unwrap();
        store.commit().unwrap();
        let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
        follow.poll().unwrap().unwrap();
        // The rest of the line, and cutting off what was written.
        disk.fail(disk.operations() + 1, Fault::ShortWrite(end_bytes - 1));
        disk.fail(disk.operations() + 2, Fault::Eio);
        disk.fail(disk.operations() + 3, Fault::Eio);
        run.finish(Outcome::Completed).unwrap_err();
        drop(run);
        let journal = disk.files()[&layout().journal(&id(), &run_id("r"))].clone();
        assert!(journal.ends_with(b"}"), "{}\n{}", String::from_utf8_lossy(&journal), disk.log().join("\n"));
        assert!(follow.poll().unwrap().is_none(), "shown by the journal that failed");
        let opened = (!matches!(way, Way::ReadAtOnce)).then(|| store.resume_run(&id(), &run_id("r")).unwrap());
        assert!(opened.as_ref().is_none_or(|again| again.is_sealed()));
        assert!(follow.poll().unwrap().is_none(), "shown by the journal that was opened again");
        assert_eq!(store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events.len(), 1);
        assert!(!store.run_summary(&id(), &run_id("r")).unwrap().unwrap().seal.is_sealed(), "told by a summary");
        assert!(store.replay(&id(), None).unwrap().events.len() == 1, "shown by a replay");
        match way {
            Way::Repeat => drop(opened.unwrap().finish(Outcome::Completed).unwrap()),
            Way::Read | Way::ReadAtOnce => drop(store.get_session(&id()).unwrap()),
        }
        assert_eq!(follow.poll().unwrap().unwrap().name, "done");
        assert!(store.run_summary(&id(), &run_id("r")).unwrap().unwrap().seal.is_sealed());
        let session = store.get_session(&id()).unwrap();
        assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None));
        disk.power_cut(Crash::LoseAll);
        let events = open(&disk).unwrap().read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events;
        assert_eq!(events.len(), 2, "what was shown is durable");
    }
}

/// The process dies on the full disk after its answer found no room. The next one serves what there is, hides the end, and
/// saves and shows both when there is room.
#[test]
fn an_end_that_is_not_saved_is_hidden_after_a_restart_too() {
    let disk = with_an_unsaved_end();
    let store = open(&disk).unwrap();
    disk.fill(disk.operations() + 1);
    let session = store.get_session(&id()).unwrap();
    assert!(session.pending_turn().is_some(), "served as it is");
    let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().name, "token");
    assert!(follow.poll().unwrap().is_none(), "the end of an answer that is not saved");
    assert!(!follow.is_over().unwrap_or(false));
    disk.make_room();
    let session = store.get_session(&id()).unwrap();
    assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None));
    assert_eq!(follow.poll().unwrap().unwrap().name, "done");
}

/// Whatever keeps the answer from being saved, its end is hidden.
#[test]
fn an_end_is_hidden_after_a_restart_while_the_directory_cannot_be_written() {
    let disk = with_an_unsaved_end();
    let store = open(&disk).unwrap();
    disk.set_mode(DATA, 0o500).unwrap();
    let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().name, "token");
    assert!(follow.poll().unwrap().is_none(), "the end of an answer that is not saved");
    disk.set_mode(DATA, 0o700).unwrap();
    store.get_session(&id()).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().name, "done");
}

/// A session whose run has ended, in its journal alone: the process died before the answer was saved.
fn with_an_unsaved_end() -> SimDisk {
    let (disk, run, store) = with_a_word();
    disk.stop_before(disk.operations() + operations_until_saved(&disk));
    run.finish(Outcome::Completed).unwrap_err();
    drop((run, store));
    disk.kill();
    disk
}

fn with_a_word() -> (SimDisk, Run, Store) {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    run.append_durable(Event::token("word")).unwrap().wait().unwrap();
    (disk, run, store)
}

/// A dead run is ended for those who follow it. On a full disk its session cannot be saved, and they wait.
#[test]
fn the_end_of_a_dead_run_is_hidden_while_it_cannot_be_saved() {
    let (disk, run, store) = with_a_word();
    drop((run, store));
    disk.kill();
    let store = open_at(&disk, NOW + 1_000).unwrap();
    let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
    follow.poll().unwrap().unwrap();
    // The line that ends it finds room in its page, the document does not.
    disk.fail(disk.operations() + operations_until_closed(&disk), Fault::Enospc);
    let _ = follow.is_over();
    assert!(follow.poll().unwrap().is_none(), "{}", disk.log().join("\n"));
    let is_pending = |store: &Store| store.metadata(&id()).unwrap().active_run().is_some();
    assert!(is_pending(&store));
    drop(store.get_session(&id()).unwrap());
    assert!(!is_pending(&store));
    assert_eq!(follow.poll().unwrap().unwrap().name, "apperror");
}

/// How many operations closing a dead run takes up to the first of those that save its session.
fn operations_until_closed(disk: &SimDisk) -> u64 {
    let probe = disk.copy();
    let store = open_at(&probe, NOW + 1_000).unwrap();
    let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
    while follow.poll().unwrap().is_some() {}
    let before = probe.operations();
    follow.is_over().unwrap();
    let log = probe.log();
    let line = log.iter().rfind(|line| line.contains("create /data/_tmp")).unwrap();
    line.split(' ').next().unwrap().parse::<u64>().unwrap() - before
}

/// After a restart, a run under a lease whose journal holds its end is folded by the next read, not when the lease lapses.
#[test]
fn a_journal_that_holds_its_end_is_folded_by_the_next_read() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let turn = UserTurn { lease_seconds: Some(3_600.0), ..UserTurn::text("x").with_run(run_id("r")) };
    let run = store.begin_run(&id(), turn).unwrap();
    run.append(Event::token("word")).unwrap();
    disk.stop_before(disk.operations() + operations_until_saved(&disk));
    run.finish(Outcome::Completed).unwrap_err();
    drop((run, store));
    disk.kill();
    let session = open(&disk).unwrap().get_session(&id()).unwrap();
    assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None));
}
