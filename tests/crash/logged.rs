//! A directory whose commit log holds what its journals lack.

use std::path::Path;
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::SimDisk;
use lastword::storage::{Access, Disk, Layout};
use lastword::{Event, NewSession, Options, ReadOptions, Store, UserTurn};

use crate::ledger::{run_id, session_id};
use crate::machine::{DATA, open};

pub(crate) fn layout() -> Layout {
    Layout::new(Path::new(DATA))
}

/// Sessions `a` and `b` with a run each, whose durable events the log holds, after the death of the process. The journal
/// of `a` has lost its events, as a power cut may leave it.
pub(crate) fn logged() -> SimDisk {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    for name in ["a", "b"] {
        store.create(NewSession::titled(name).with_id(session_id(name))).unwrap();
        let run = store.begin_run(&session_id(name), UserTurn::text("hi").with_run(run_id("r"))).unwrap();
        for word in ["one ", "two ", "three"] {
            run.append_durable(Event::token(word)).unwrap().wait().unwrap();
        }
    }
    disk.kill();
    let journal = disk.open(&layout().journal(&session_id("a"), &run_id("r")), Access::Write).unwrap();
    journal.set_len(0).unwrap();
    journal.sync().unwrap();
    drop(journal);
    disk.kill();
    disk
}

pub(crate) fn texts(store: &Store, session: &str) -> Vec<String> {
    let found = store.read_events(&session_id(session), &run_id("r"), ReadOptions::default()).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    let text = |payload: &str| serde_json::from_str::<serde_json::Value>(payload).unwrap()["text"].to_string();
    found.events.iter().map(|event| text(event.payload())).collect()
}

pub(crate) const ALL: [&str; 3] = ["\"one \"", "\"two \"", "\"three\""];

pub(crate) fn options_of(disk: &SimDisk) -> Options {
    let clock = ManualClock::at(Timestamp::from_seconds(1_800_000_000.0));
    let entropy = SeededEntropy::new(disk.operations());
    Options { clock: Arc::new(clock), entropy: Arc::new(entropy), ..Options::default() }
}
