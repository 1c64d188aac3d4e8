//! A disk that has room for the journals and none for the commit log: what is durable is synced in the journals then.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use lastword::{Durability, Event, NewSession, Options, ReadOptions, RunId, SessionId, Store, UserTurn};

use crate::process::Process;
use crate::small_disk::{Filler, on_a_small_disk};

/// Less than one file of the log.
const ROOM_BYTES: usize = 800_000;
const DISK_BYTES: usize = 2 * 1024 * 1024;

fn leave_little_room(disk: &Path) -> Filler {
    Filler::of(disk, DISK_BYTES - ROOM_BYTES)
}

fn segments(root: &Path) -> usize {
    fs::read_dir(root.join("_commit_log")).map_or(0, Iterator::count)
}

#[test]
fn an_event_is_synced_in_its_journal_before_it_is_acknowledged_if_the_log_finds_no_room() {
    let name = "log_without_room::an_event_is_synced_in_its_journal_before_it_is_acknowledged_if_the_log_finds_no_room";
    on_a_small_disk(name, "2m", |disk| {
        let root = disk.join("data");
        let store = Store::open(&root, Options::default()).expect("there is room");
        store.create(NewSession::titled("").with_id(SessionId::parse("trip").expect("an id"))).expect("there is room");
        let turn = UserTurn::text("Wohin?").with_run(RunId::parse("r1").expect("an id"));
        store.begin_run(&SessionId::parse("trip").expect("an id"), turn).expect("there is room");
        drop(store);
        let _filler = leave_little_room(disk);
        let calls = disk.join("calls");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-e", "trace=write,pwrite64,fsync,fdatasync", "-o"]).arg(&calls);
        command.arg(env!("CARGO_BIN_EXE_lastword")).arg("--data").arg(&root);
        command.args(["append", "trip", "r1", "--durability", "durable"]);
        let mut process = Process::start(command);
        process.send(r#"{"event":"token","payload":{"text":"Ans Meer."}}"#);
        assert_eq!(process.end().lines, [r#"{"seq":1}"#], "strace is needed, and an event to be acknowledged");
        assert_eq!(segments(&root), 0, "there is no room for a log");
        let calls = fs::read_to_string(calls).expect("strace wrote its log");
        let place = |what: &dyn Fn(&str) -> bool| calls.lines().position(what).unwrap_or_else(|| panic!("{calls}"));
        let written = place(&|call| call.contains("pwrite64") && call.contains("r1.jsonl"));
        let synced = place(&|call| call.contains("sync(") && call.contains("r1.jsonl"));
        let said = place(&|call| call.contains("write(1<"));
        assert!(written < synced && synced < said, "written {written}, synced {synced}, said {said}: {calls}");
    });
}

/// Appends events, all of which there is room for.
fn write(store: &Store, session: &SessionId, durability: Durability) {
    store.create(NewSession::titled("").with_id(session.clone())).expect("there is room");
    let run = store.begin_run(session, UserTurn::text("Wohin?")).expect("there is room");
    for seq in 1..=100 {
        let appended = run.append_all(&[Event::token("Ans Meer. ")], durability).expect("there is room");
        assert_eq!(appended.last_seq, seq);
        appended.wait().expect("a journal can be synced without a log");
    }
}

#[test]
fn a_log_that_finds_no_room_takes_none_from_the_journals() {
    let name = "log_without_room::a_log_that_finds_no_room_takes_none_from_the_journals";
    on_a_small_disk(name, "2m", |disk| {
        let root = disk.join("data");
        let store = Store::open(&root, Options::default()).expect("there is room");
        let filler = leave_little_room(disk);
        let sessions: Vec<SessionId> = (0..4).map(|n| SessionId::parse(&format!("s{n}")).expect("an id")).collect();
        thread::scope(|scope| {
            for (session, durability) in sessions.iter().zip([Durability::Buffered, Durability::Durable].iter().cycle())
            {
                let store = &store;
                scope.spawn(move || write(store, session, *durability));
            }
        });
        assert_eq!(segments(&root), 0, "there is no room for a log");
        drop(store);
        drop(filler);
        let store = Store::open(&root, Options::default()).expect("the directory can be opened");
        for session in &sessions {
            let run = &store.runs(session).expect("the run is there")[0];
            let found = store.read_events(session, run, ReadOptions::default()).expect("it can be read");
            assert_eq!((found.events.len(), found.damage.len()), (100, 0));
        }
    });
}
