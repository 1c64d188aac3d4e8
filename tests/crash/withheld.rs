//! Withheld lines: acknowledged events of a journal that cannot be written, and what becomes of them when their records, the
//! list of these, or `_kept` itself cannot be used. None is lost, and none costs more than its own session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::doctor::{self, DoctorOptions};
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{After, Event, NewSession, Options, ReadOptions, SaveOptions, Store};

use crate::ledger::{run_id, session_id};
use crate::logged::{ALL, layout, logged, options_of, texts};
use crate::machine::{DATA, USUAL, open};
use crate::objects::codes;

const OTHER_USER: u32 = 2000;

fn journal() -> PathBuf {
    layout().journal(&session_id("a"), &run_id("r"))
}

fn records() -> PathBuf {
    layout().kept_records(&session_id("a"), &run_id("r"))
}

/// The events of `a` are in its records alone: the log was retired. Its journal can be written again.
fn withheld() -> SimDisk {
    let disk = logged();
    disk.set_mode(journal(), 0o400).unwrap();
    drop(open(&disk).unwrap());
    disk.set_mode(journal(), 0o600).unwrap();
    disk.power_cut(Crash::LoseAll);
    disk
}

/// A reason why a file cannot be read, and how to make up for it.
struct Trouble {
    name: &'static str,
    make: fn(&SimDisk),
    mend: fn(&SimDisk),
}

/// The store is whole but for the run of `a`, which says what it lacks, and takes no events.
fn check_that_a_alone_is_refused(store: &Store, what: &str) {
    assert_eq!(codes(store), [("log_not_replayed", layout().relative(&journal()))], "{what}");
    assert_eq!(texts(store, "b"), ALL, "{what}");
    let save = store.update(&session_id("b"), SaveOptions::default(), |session| session.set_text("title", "y"));
    save.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    check_that_a_is_refused(store);
}

/// The records are the only copy of their lines. While they cannot be read, what there is stays as it is, and no later event
/// takes the place of one that they hold.
#[test]
fn records_that_cannot_be_read_are_missed_and_refuse_their_run_alone() {
    let troubles = [
        Trouble {
            name: "a bad sector",
            make: |disk| disk.break_reads(records()).unwrap(),
            mend: |disk| disk.mend_reads(records()).unwrap(),
        },
        Trouble {
            name: "gone",
            make: |disk| disk.rename(&records(), Path::new("/data/away")).unwrap(),
            mend: |disk| disk.rename(Path::new("/data/away"), &records()).unwrap(),
        },
        Trouble {
            name: "a flipped bit",
            make: |disk| disk.rot(records(), 40, 2).unwrap(),
            mend: |disk| disk.rot(records(), 40, 2).unwrap(),
        },
        Trouble {
            name: "all of `_kept` is gone",
            make: |disk| disk.rename(&layout().kept(), Path::new("/data/away")).unwrap(),
            mend: |disk| {
                // Meanwhile something else was kept.
                let _ = disk.rename(&layout().kept(), Path::new("/data/other"));
                disk.rename(Path::new("/data/away"), &layout().kept()).unwrap();
            },
        },
        Trouble {
            name: "`_kept` of another user",
            make: |disk| disk.set_owner(layout().kept(), OTHER_USER).unwrap(),
            mend: |disk| disk.set_owner(layout().kept(), SimDisk::USER).unwrap(),
        },
    ];
    for Trouble { name, make, mend } in troubles {
        let disk = withheld();
        make(&disk);
        for life in ["first", "second"] {
            check_that_a_alone_is_refused(&open(&disk).unwrap(), &format!("{name}, {life} opening"));
            disk.kill();
        }
        mend(&disk);
        let store = open(&disk).unwrap();
        assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()), "{name}");
        assert!(!disk.files().contains_key(&records()), "{name}");
    }
}

/// A list that cannot be read may name any run that has records. It is never replaced, those runs are refused, and
/// `check` reports it.
#[test]
fn a_list_that_cannot_be_read_is_left_as_it_is_and_refuses_its_runs() {
    let troubles = [
        Trouble {
            name: "a bad sector",
            make: |disk| disk.break_reads(layout().withheld_list()).unwrap(),
            mend: |disk| disk.mend_reads(layout().withheld_list()).unwrap(),
        },
        Trouble {
            name: "another user's",
            make: |disk| {
                disk.set_owner(layout().withheld_list(), OTHER_USER).unwrap();
                disk.set_mode(layout().withheld_list(), 0o600).unwrap();
            },
            mend: |disk| disk.set_owner(layout().withheld_list(), SimDisk::USER).unwrap(),
        },
        Trouble {
            name: "a flipped bit",
            make: |disk| disk.rot(layout().withheld_list(), 20, 3).unwrap(),
            mend: |disk| disk.rot(layout().withheld_list(), 20, 3).unwrap(),
        },
    ];
    for Trouble { name, make, mend } in troubles {
        let disk = withheld();
        make(&disk);
        let list = disk.files()[&layout().withheld_list()].clone();
        for life in ["first", "second"] {
            let store = open(&disk).unwrap();
            let list_finding = ("log_not_replayed", layout().relative(&layout().withheld_list()));
            assert!(codes(&store).contains(&list_finding), "{name}, {life}: {:?}", codes(&store));
            let refused = store.resume_run(&session_id("a"), &run_id("r")).unwrap_err();
            assert_eq!(refused.code(), "withheld", "{name}, {life}");
            assert_eq!(texts(&store, "b"), ALL, "{name}, {life}");
            drop(store);
            disk.kill();
        }
        let report = doctor::check_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
        let of_list = layout().relative(&layout().withheld_list());
        assert!(report.findings.iter().any(|finding| finding.file == of_list), "{name}: {:#?}", report.findings);
        assert_eq!(disk.files()[&layout().withheld_list()], list, "{name}: it is left as it is");
        mend(&disk);
        let store = open(&disk).unwrap();
        assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()), "{name}");
    }
}

/// Neither the list nor what is kept can be looked at: no writer can tell whose events are missing.
#[test]
fn a_store_with_neither_list_nor_records_to_look_at_does_not_open() {
    for hidden in [layout().kept(), layout().kept_of(&session_id("a"))] {
        let disk = withheld();
        disk.break_reads(layout().withheld_list()).unwrap();
        disk.set_owner(&hidden, OTHER_USER).unwrap();
        disk.set_mode(&hidden, 0o700).unwrap();
        let refused = open(&disk).unwrap_err();
        assert!(refused.to_string().contains("_kept"), "{refused}");
        assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "b"), ALL, "readers see the rest");
        disk.set_owner(&hidden, SimDisk::USER).unwrap();
        check_that_a_is_refused(&open(&disk).unwrap());
        disk.mend_reads(layout().withheld_list()).unwrap();
        assert_eq!(texts(&open(&disk).unwrap(), "a"), ALL);
    }
}

fn check_that_a_is_refused(store: &Store) {
    let refused = store.resume_run(&session_id("a"), &run_id("r")).unwrap_err();
    assert_eq!(refused.code(), "withheld", "{refused:?}");
}

/// What could not be read for a moment when the store was opened is read when its run is asked for.
#[test]
fn a_run_goes_on_as_soon_as_its_list_and_records_can_be_read() {
    for path in [layout().withheld_list(), records()] {
        let disk = withheld();
        disk.break_reads(&path).unwrap();
        let store = open(&disk).unwrap();
        check_that_a_is_refused_or_fenced(&store, &path);
        disk.mend_reads(&path).unwrap();
        check_that_a_is_refused_or_fenced(&store, &path);
        assert_eq!(texts(&store, "a"), ALL, "{}", path.display());
        drop(store);
        assert_eq!(codes(&open(&disk).unwrap()), []);
    }
}

/// The machine was restarted, so that the run takes no events in the end; its lines are put back before that is said.
fn check_that_a_is_refused_or_fenced(store: &Store, path: &Path) {
    let refused = store.resume_run(&session_id("a"), &run_id("r")).unwrap_err();
    assert!(["withheld", "fenced"].contains(&refused.code()), "{}: {refused:?}", path.display());
}

/// A repair makes a list again while records cannot be read: their run stays listed.
#[test]
fn a_repair_lists_records_that_it_cannot_read() {
    let disk = withheld();
    disk.rot(layout().withheld_list(), 20, 3).unwrap();
    disk.break_reads(records()).unwrap();
    doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    disk.reboot();
    check_that_a_is_refused(&open(&disk).unwrap());
    disk.mend_reads(records()).unwrap();
    let store = open(&disk).unwrap();
    assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()));
}

/// A repair makes a damaged list again from the records that are whole, and keeps the old one.
#[test]
fn a_repair_makes_a_damaged_list_again() {
    let disk = withheld();
    disk.rot(layout().withheld_list(), 20, 3).unwrap();
    let damaged = disk.files()[&layout().withheld_list()].clone();
    let repaired = doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    assert!(!repaired.has_failed(), "{:#?}", repaired.actions);
    let kept = layout().kept().join("_commit_log");
    assert!(disk.files().iter().any(|(path, bytes)| path.starts_with(&kept) && *bytes == damaged));
    disk.reboot();
    let store = open(&disk).unwrap();
    assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()));
}

/// One operation on the list or the records fails, once, wherever that is: no event is lost, and no run is refused for good.
#[test]
fn a_failure_for_a_moment_while_lines_are_put_back_costs_nothing() {
    let whole = withheld();
    let before = whole.operations();
    drop(open(&whole).unwrap());
    for operation in 1..=whole.operations() - before {
        for fault in [Fault::Eio, Fault::Enospc] {
            let disk = withheld();
            disk.fail(disk.operations() + operation, fault);
            drop(open(&disk));
            disk.power_cut(Crash::LoseAll);
            let store = open(&disk).unwrap();
            let found = (codes(&store), texts(&store, "a"));
            assert_eq!(found, (vec![], ALL.map(str::to_owned).to_vec()), "operation {operation}, {fault:?}");
        }
    }
    // Reading the list or the records fails, once: looks are no operations.
    for path in [layout().withheld_list(), records()] {
        let disk = withheld();
        disk.break_reads(&path).unwrap();
        drop(open(&disk).unwrap());
        disk.mend_reads(&path).unwrap();
        let store = open(&disk).unwrap();
        assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()));
    }
}

/// While the log is frozen for one run, the records of another neither grow nor are missed when they are gone: the log has
/// the same lines.
#[test]
fn a_frozen_log_and_records_of_the_same_lines_are_one() {
    let disk = with_nowhere_to_keep();
    let (other, kept) =
        (layout().journal(&session_id("b"), &run_id("r")), layout().kept_records(&session_id("b"), &run_id("r")));
    disk.set_mode(&other, 0o400).unwrap();
    drop(open(&disk).unwrap());
    let first = disk.files()[&kept].clone();
    for _ in 0..3 {
        disk.kill();
        drop(open(&disk).unwrap());
        assert_eq!(disk.files()[&kept].len(), first.len(), "they grow with every opening");
    }
    disk.remove_file(&kept).unwrap();
    assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "b"), ALL, "readers see the log's");
    let store = open(&disk).unwrap();
    assert_eq!(texts(&store, "b"), ALL);
    disk.set_mode(&other, 0o600).unwrap();
    store.resume_run(&session_id("b"), &run_id("r")).unwrap();
}

/// The doctor names records that cannot be read, repairs the rest, and leaves their run alone.
#[test]
fn a_repair_does_not_touch_a_run_whose_records_cannot_be_read() {
    let disk = withheld();
    disk.break_reads(records()).unwrap();
    let before = disk.files()[&journal()].clone();
    let whole = doctor::check_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    let relative = layout().relative(&records());
    let about: Vec<_> = whole.findings.iter().filter(|finding| finding.file == relative).collect();
    assert_eq!(about.len(), 1, "{:#?}", whole.findings);
    doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    assert_eq!(disk.files()[&journal()], before);
    disk.mend_reads(records()).unwrap();
    assert_eq!(texts(&open(&disk).unwrap(), "a"), ALL);
}

/// `_kept` does not matter while nothing is withheld.
#[test]
fn a_store_opens_whatever_lies_in_the_place_of_kept() {
    type Trouble = fn(&SimDisk);
    let troubles: [(&str, Trouble); 2] = [
        ("another user's directory", |disk| {
            disk.create_dir(&layout().kept()).unwrap();
            disk.set_owner(layout().kept(), OTHER_USER).unwrap();
            disk.set_mode(layout().kept(), 0o700).unwrap();
        }),
        ("a plain file", |disk| drop(disk.open(&layout().kept(), Access::CreateNew).unwrap())),
    ];
    for (name, make) in troubles {
        let disk = logged();
        make(&disk);
        let store = open(&disk).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()), "{name}");
        let run = store.resume_run(&session_id("a"), &run_id("r")).unwrap();
        run.append_durable(Event::token("four")).unwrap().wait().unwrap();
    }
}

/// The journal of `a` cannot be written, and its events cannot be kept apart either: they stay in the log.
pub(crate) fn with_nowhere_to_keep() -> SimDisk {
    let disk = logged();
    nowhere_to_keep(&disk);
    disk
}

fn nowhere_to_keep(disk: &SimDisk) {
    disk.set_mode(journal(), 0o400).unwrap();
    let (kept, own) = (layout().kept(), layout().kept_of(&session_id("a")));
    disk.create_dir(&kept).unwrap();
    disk.create_dir(&own).unwrap();
    disk.sync_dir(&kept).unwrap();
    disk.sync_dir(Path::new(DATA)).unwrap();
    disk.set_owner(&own, OTHER_USER).unwrap();
    disk.set_mode(&own, 0o755).unwrap();
}

#[test]
fn events_that_cannot_be_kept_apart_stay_in_the_log() {
    let disk = with_nowhere_to_keep();
    let runs = ["r1", "r2", "r3"].map(run_id);
    for run in &runs {
        let store = open(&disk).unwrap_or_else(|error| panic!("{error:?}\n{}", disk.log().join("\n")));
        assert_eq!(codes(&store), [("log_not_replayed", layout().relative(&journal()))]);
        assert_eq!(texts(&store, "a"), ALL, "by the writer");
        assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "a"), ALL, "by a reader beside it");
        assert!(store.resume_run(&session_id("a"), &run_id("r")).is_err());
        let other = store.adopt_run(&session_id("b"), run).unwrap();
        for word in ["one", "two"] {
            other.append_durable(Event::token(word)).unwrap().wait().unwrap();
        }
        drop((other, store));
        disk.power_cut(Crash::LoseAll);
        assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "a"), ALL, "by a reader alone");
    }
    disk.set_mode(journal(), 0o600).unwrap();
    for _ in 0..2 {
        let store = open(&disk).unwrap();
        assert_eq!((codes(&store), texts(&store, "a")), (vec![], ALL.map(str::to_owned).to_vec()));
        for run in &runs {
            let events = store.read_events(&session_id("b"), run, ReadOptions::default()).unwrap().events;
            assert_eq!(events.len(), 2);
        }
        drop(store);
        disk.power_cut(Crash::LoseAll);
    }
}

/// The run goes on as soon as its journal can be written. The old log, replayed once more, changes nothing.
#[test]
fn a_run_goes_on_although_its_events_are_still_in_the_log() {
    let disk = with_nowhere_to_keep();
    let store = open(&disk).unwrap();
    assert!(store.resume_run(&session_id("a"), &run_id("r")).is_err());
    disk.set_mode(journal(), 0o600).unwrap();
    let run = store.resume_run(&session_id("a"), &run_id("r")).unwrap();
    run.append_durable(Event::token("four")).unwrap().wait().unwrap();
    drop((run, store));
    for _ in 0..2 {
        disk.power_cut(Crash::LoseAll);
        let store = open(&disk).unwrap();
        assert_eq!((codes(&store), texts(&store, "a").len(), texts(&store, "b").len()), (vec![], 4, 3));
    }
}

/// A log that is still needed would be replayed over what a repair has written: where its lines belong, others would stand.
#[test]
fn a_repair_leaves_journals_alone_whose_events_are_still_in_the_log() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    for name in ["a", "b"] {
        store.create(NewSession::titled(name).with_id(session_id(name))).unwrap();
        store.adopt_run(&session_id(name), &run_id("r")).unwrap().append(Event::token("zero")).unwrap();
    }
    drop(store);
    let store = open(&disk).unwrap();
    for name in ["a", "b"] {
        let run = store.adopt_run(&session_id(name), &run_id("r")).unwrap();
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
    }
    disk.kill();
    nowhere_to_keep(&disk);
    // The first line of `b`, which a repair cuts out. The log holds the second alone.
    let other = layout().journal(&session_id("b"), &run_id("r"));
    disk.rot(&other, 30, 1).unwrap();
    let sidecar = layout().sidecar(&session_id("b"));
    disk.set_mode(&sidecar, 0o644).unwrap();
    let repair = || doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    let before = disk.files()[&other].clone();
    let repaired = repair();
    let failed = |action: &&doctor::Action| matches!(action.outcome, Some(doctor::Outcome::Failed { .. }));
    let failed: Vec<_> = repaired.actions.iter().filter(failed).map(|action| action.session.clone()).collect();
    assert!(failed.contains(&Some(session_id("b"))), "{:#?}", repaired.actions);
    assert_eq!(disk.files()[&other], before, "it is left alone");
    assert_eq!(disk.mode(&sidecar).unwrap(), 0o600, "the rest is repaired");
    disk.reboot();
    disk.set_mode(journal(), 0o600).unwrap();
    disk.set_owner(layout().kept_of(&session_id("a")), SimDisk::USER).unwrap();
    let repaired = repair();
    assert!(!repaired.has_failed(), "{:#?}", repaired.actions);
    let after = disk.files()[&other].clone();
    assert!(after.len() < before.len());
    disk.reboot();
    drop(open(&disk).unwrap());
    assert_eq!(disk.files()[&other], after, "no log is replayed over it");
}

/// A session is deleted whose journal lacks acknowledged events: what is kept of it stays kept.
#[test]
fn withheld_lines_of_a_deleted_session_stay_kept() {
    let disk = logged();
    disk.set_mode(journal(), 0o400).unwrap();
    let store = open(&disk).unwrap();
    let kept = disk.files()[&records()].clone();
    store.delete(&session_id("a")).unwrap();
    drop(store);
    for _ in 0..2 {
        let store = open(&disk).unwrap();
        assert!(store.get_session(&session_id("a")).is_err());
        assert_eq!(disk.files().get(&records()), Some(&kept));
    }
}

/// A run whose journal cannot be written cannot be ended. Followers wait, as for any run that cannot be told to be over.
#[test]
fn a_follower_of_a_dead_run_with_withheld_lines_waits() {
    let disk = logged();
    disk.set_mode(journal(), 0o400).unwrap();
    let clock = ManualClock::at(Timestamp::from_seconds(1_900_000_000.0));
    let options = Options { clock: Arc::new(clock), ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    let mut follow = store.follow(&session_id("a"), &run_id("r"), After::Start).unwrap();
    let shown = std::iter::from_fn(|| follow.poll().unwrap()).count();
    assert_eq!((shown, follow.is_over().unwrap()), (3, false));
    disk.set_mode(journal(), 0o600).unwrap();
    while follow.poll().unwrap().is_none() && !follow.is_over().unwrap() {}
    assert!(store.run_summary(&session_id("a"), &run_id("r")).unwrap().unwrap().seal.is_sealed());
}

/// An opening is cut at every operation, in every way, and whatever follows shows all events.
fn cut_everywhere(start: &SimDisk, what: &str) -> SimDisk {
    let check = |disk: &SimDisk, what: &str| {
        let store = open(disk).unwrap_or_else(|error| panic!("{what}: {error:?}\n{}", disk.log().join("\n")));
        assert_eq!(texts(&store, "a"), ALL, "{what}: still withheld\n{}", disk.log().join("\n"));
        drop(store);
        disk.set_mode(journal(), 0o600).unwrap();
        disk.kill();
        assert_eq!(texts(&open(disk).unwrap(), "a"), ALL, "{what}: put back\n{}", disk.log().join("\n"));
    };
    let whole = start.copy();
    drop(open(&whole).unwrap());
    for operation in 1..=whole.operations() - start.operations() {
        let stopped = start.copy();
        stopped.stop_before(start.operations() + operation);
        drop(open(&stopped));
        assert!(stopped.has_stopped(), "{what}: not stopped before operation {operation}");
        for end in USUAL.ends(&stopped) {
            let disk = stopped.copy();
            end.strike(&disk);
            check(&disk, &format!("{what}: operation {operation}, {end:?}"));
        }
    }
    whole
}

#[test]
fn no_crash_while_lines_are_withheld_or_put_back_loses_one() {
    let start = logged();
    start.set_mode(journal(), 0o400).unwrap();
    let withheld = cut_everywhere(&start, "withholding");
    withheld.kill();
    withheld.set_mode(journal(), 0o600).unwrap();
    cut_everywhere(&withheld, "putting back");
}

#[test]
fn no_crash_loses_lines_that_can_be_kept_in_the_log_alone() {
    let in_log = cut_everywhere(&with_nowhere_to_keep(), "leaving them in the log");
    in_log.kill();
    in_log.set_mode(journal(), 0o600).unwrap();
    cut_everywhere(&in_log, "putting back from the log");
    in_log.set_mode(journal(), 0o400).unwrap();
    in_log.set_owner(layout().kept_of(&session_id("a")), SimDisk::USER).unwrap();
    cut_everywhere(&in_log, "keeping them apart after all");
}

/// The run is resumed under a store that is open, and that is cut at every operation.
#[test]
fn no_crash_while_a_run_gets_its_lines_back_loses_one_or_misses_records() {
    let start = logged();
    start.set_mode(journal(), 0o400).unwrap();
    let resume = |disk: &SimDisk, operations: Option<u64>| {
        let store = open(disk).unwrap();
        disk.set_mode(journal(), 0o600).unwrap();
        let before = disk.operations();
        if let Some(operations) = operations {
            disk.stop_before(before + operations);
        }
        drop(store.resume_run(&session_id("a"), &run_id("r")));
        disk.operations() - before
    };
    let operations = resume(&start.copy(), None);
    assert!(operations > 3);
    for operation in 1..=operations {
        let stopped = start.copy();
        resume(&stopped, Some(operation));
        assert!(stopped.has_stopped(), "not stopped before operation {operation}");
        for end in USUAL.ends(&stopped) {
            let disk = stopped.copy();
            end.strike(&disk);
            let store = open(&disk).unwrap();
            let found = (codes(&store), texts(&store, "a"));
            assert_eq!(found, (vec![], ALL.map(str::to_owned).to_vec()), "operation {operation}, {end:?}");
        }
    }
}
