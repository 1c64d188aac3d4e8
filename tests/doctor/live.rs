//! Beside a writer at work: what it is doing is nobody's damage, what is damaged is told, and nothing is repaired.

use std::fs;
use std::io::Write;
use std::sync::Arc;

use lastword::doctor::{self, Code, DoctorError};
use lastword::storage::{FileStorage, FilesOptions, Mode, OsDisk, Storage};
use lastword::{Event, NewSession, Run, StorageError, Store, UserTurn};

use crate::data::{BEGAN, Data, JOURNAL, allow, rid, sid};

/// A store that is open, with a run under way.
fn at_work() -> (Data, Store, Run) {
    let data = Data::healthy();
    let store = data.store();
    store.create(NewSession::titled("live").with_id(sid("live"))).unwrap();
    let run = store.begin_run(&sid("live"), UserTurn::text("where to").with_run(rid("run-l"))).unwrap();
    for word in ["to ", "the "] {
        run.append_durable(Event::token(word)).unwrap().wait().unwrap();
    }
    (data, store, run)
}

const LIVE: &str = "_run_journal/live/run-l.jsonl";

fn add(data: &Data, name: &str, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(data.path(name)).unwrap().write_all(bytes).unwrap();
}

#[test]
fn what_a_writer_is_doing_is_no_finding() {
    let (data, _store, _run) = at_work();
    add(&data, LIVE, b"{\"version\":1,\"event_id\":\"run-l:3\",\"se");
    data.put("_tmp-0123456789abcdef0123456789abcdef", b"{\"session_id\":");
    data.put("_run_journal/live/_tmp-0123456789abcdef0123456789abcdef", b"{");
    let report = data.check();
    assert_eq!(report.findings, []);
    assert!(report.summary.is_live);
    assert_eq!((report.summary.sessions, report.summary.untold), (4, 0));
}

#[test]
fn the_same_is_told_once_the_writer_is_gone() {
    let (data, store, run) = at_work();
    drop((run, store));
    add(&data, LIVE, b"{\"version\":1,\"event_id\":\"run-l:3\",\"se");
    data.put("_tmp-0123456789abcdef0123456789abcdef", b"{\"session_id\":");
    let mut codes: Vec<Code> = data.findings().iter().map(|finding| finding.code).collect();
    codes.sort();
    assert_eq!(codes, [Code::TornTail, Code::UnsealedDeadRun, Code::PendingTurn, Code::StaleTemp]);
}

#[test]
fn damage_beside_a_writer_is_told() {
    let (data, _store, _run) = at_work();
    data.edit(JOURNAL, |lines| lines[1][0] = b'?');
    allow(&data.path("talk.json"), 0o666);
    add(&data, LIVE, b"garbage\n{\"version\":1,\"event_id\":\"run-l:3\",\"se");
    let told: Vec<(Code, String)> =
        data.findings().iter().map(|finding| (finding.code, finding.file.display().to_string())).collect();
    let expected = [(Code::BadJson, LIVE), (Code::BadJson, JOURNAL), (Code::OpenPermissions, "talk.json")];
    assert_eq!(told, expected.map(|(code, file)| (code, file.to_owned())));
}

#[test]
fn nothing_is_planned_and_nothing_repaired_beside_a_writer() {
    let (data, _store, _run) = at_work();
    data.edit(JOURNAL, |lines| lines[1][0] = b'?');
    let before = data.stamps();
    let plan = doctor::plan(&data.root, &data.doctor()).unwrap();
    assert!(plan.actions.is_empty() && plan.report.summary.is_live, "{:?}", plan.actions);
    let error = doctor::repair(&data.root, &data.doctor()).unwrap_err();
    assert!(matches!(error, DoctorError::Storage(StorageError::Busy { .. })), "{error:?}");
    assert!(before == data.stamps());
}

#[test]
fn a_healthy_directory_is_busy_too() {
    let (data, _store, _run) = at_work();
    let error = doctor::repair(&data.root, &data.doctor()).unwrap_err();
    assert!(matches!(error, DoctorError::Storage(StorageError::Busy { .. })), "{error:?}");
}

#[test]
fn a_writer_goes_on_while_somebody_checks() {
    let (data, store, run) = at_work();
    for _ in 0..20 {
        run.append(Event::token("sea ")).unwrap();
        assert_eq!(data.check().findings, []);
    }
    run.finish(lastword::Outcome::Completed).unwrap();
    drop((run, store));
    assert_eq!(data.findings(), []);
}

#[test]
fn a_turn_whose_producer_counts_as_alive_is_left_alone() {
    let data = Data::new();
    {
        let store = data.store();
        store.create(NewSession::titled("live").with_id(sid("live"))).unwrap();
        let turn = UserTurn { lease_seconds: Some(600.0), ..UserTurn::text("where to").with_run(rid("run-l")) };
        store.begin_run(&sid("live"), turn).unwrap().append(Event::token("to ")).unwrap();
    }
    data.set_clock(BEGAN + 599);
    assert_eq!(data.findings(), []);
    data.set_clock(BEGAN + 601);
    let codes: Vec<Code> = data.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::UnsealedDeadRun, Code::PendingTurn]);
}

#[test]
fn a_lease_that_was_renewed_without_an_event_counts_and_its_note_is_not_a_finding() {
    let data = Data::new();
    {
        let store = data.store();
        store.create(NewSession::titled("live").with_id(sid("live"))).unwrap();
        // The id makes the note's name look like that of a temp file.
        let turn = UserTurn { lease_seconds: Some(600.0), ..UserTurn::text("where to").with_run(rid("tmp-l.tmp.1")) };
        store.begin_run(&sid("live"), turn).unwrap().append(Event::token("to ")).unwrap();
    }
    let files = FilesOptions { allow_network_fs: true, ..FilesOptions::in_mode(Mode::Write) };
    let files = FileStorage::open(Arc::new(OsDisk), &data.root, files).unwrap();
    files.note_renewal(&sid("live"), &rid("tmp-l.tmp.1"), (BEGAN + 500) as f64).unwrap();
    files.next_order(0).unwrap();
    drop(files);
    data.set_clock(BEGAN + 1_099);
    assert_eq!(data.findings(), []);
    data.set_clock(BEGAN + 1_101);
    let codes: Vec<Code> = data.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::UnsealedDeadRun, Code::PendingTurn]);
    for garbled in ["_run_order", "_run_journal/live/_tmp-l.tmp.1.lease"] {
        data.put(garbled, b"garbage");
    }
    data.set_clock(BEGAN + 599);
    assert_eq!(data.findings(), [], "a garbled one counts as none and is not damage");
}
