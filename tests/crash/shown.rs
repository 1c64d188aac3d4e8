//! What a durable store does not show: whatever a power cut could take back, whoever appended it and whoever has left.

use std::path::Path;
use std::sync::Arc;

use lastword::storage::sim::SimDisk;
use lastword::{After, CommitOptions, Durability, Event, NewSession, Options, SessionId, Store, UserTurn};

fn open(disk: &SimDisk) -> Store {
    let commit = CommitOptions { background: None, ..CommitOptions::default() };
    let options = Options { commit, durability: Durability::Durable, ..Options::default() };
    Store::open_on(Arc::new(disk.clone()), Path::new("/data"), options).unwrap()
}

fn begin(store: &Store) -> (SessionId, lastword::Run) {
    let id = SessionId::parse("s").unwrap();
    store.create(NewSession { id: Some(id.clone()), ..NewSession::titled("t") }).unwrap();
    let run = store.begin_run(&id, UserTurn::text("hi")).unwrap();
    (id, run)
}

#[test]
fn a_durable_store_does_not_show_a_buffered_append_before_it_is_durable() {
    let disk = SimDisk::new();
    let store = open(&disk);
    let (id, run) = begin(&store);
    let mut follow = store.follow(&id, run.id(), After::Start).unwrap();
    run.append_all(&[Event::token("x")], Durability::Buffered).unwrap();
    assert!(follow.poll().unwrap().is_none(), "shown, and no sync has been made");
}

#[test]
fn an_event_whose_sync_failed_is_not_shown_when_its_run_is_let_go() {
    let disk = SimDisk::new();
    let store = open(&disk);
    let (id, run) = begin(&store);
    let run_id = run.id().clone();
    let mut follow = store.follow(&id, &run_id, After::Start).unwrap();
    assert!(follow.poll().unwrap().is_none());
    disk.break_syncs(disk.operations() + 1);
    assert!(run.append(Event::token("x")).is_err());
    assert!(follow.poll().unwrap().is_none(), "held back while the run is held");
    drop(run);
    let seen = follow.poll().unwrap();
    assert!(seen.is_none(), "shown once the run was let go: {seen:?}; stopped: {:?}", store.stopped_reason());
}
