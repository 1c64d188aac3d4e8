//! Objects that cannot be read, written or moved: a journal of another user, a trash on another file system, a bad sector.
//! One of them costs one session, never the store.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lastword::doctor::{self, DoctorOptions};
use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk, OnFinding};
use lastword::{After, Event, Finding, NewSession, Options, SaveOptions, StorageError, Store};

use crate::ledger::{run_id, session_id};
use crate::logged::{ALL, layout, logged, options_of, texts};
use crate::machine::{DATA, USUAL, created, id, open, prepared};

const OTHER_USER: u32 = 2000;

/// A way in which one journal cannot be written, and how to make up for it.
struct Obstacle {
    name: &'static str,
    /// The session whose journal it is, and the other one.
    sessions: [&'static str; 2],
    obstruct: fn(&SimDisk, &Path),
    clear: fn(&SimDisk, &Path),
}

fn obstacles() -> [Obstacle; 5] {
    fn give_back(disk: &SimDisk, path: &Path) {
        disk.set_owner(path, SimDisk::USER).unwrap();
        disk.set_mode(path, 0o600).unwrap();
    }
    let of = |name, obstruct| Obstacle { name, sessions: ["a", "b"], obstruct, clear: give_back };
    [
        of("read-only", |disk, path| disk.set_mode(path, 0o400).unwrap()),
        of("unreadable", |disk, path| disk.set_mode(path, 0o000).unwrap()),
        of("another user's", |disk, path| disk.set_owner(path, OTHER_USER).unwrap()),
        Obstacle {
            name: "on a bad sector",
            // Its journal holds something to be read.
            sessions: ["b", "a"],
            obstruct: |disk, path| disk.break_reads(path).unwrap(),
            clear: |disk, path| disk.mend_reads(path).unwrap(),
        },
        Obstacle {
            name: "a directory",
            sessions: ["a", "b"],
            obstruct: |disk, path| {
                disk.rename(path, &path.with_extension("away")).unwrap();
                disk.create_dir(path).unwrap();
                disk.sync_dir(path.parent().unwrap()).unwrap();
            },
            clear: |disk, path| {
                disk.remove_dir(path).unwrap();
                disk.rename(&path.with_extension("away"), path).unwrap();
            },
        },
    ]
}

#[test]
fn a_journal_that_cannot_be_written_concerns_its_own_run_and_gets_its_events_when_it_can() {
    for Obstacle { name, sessions: [bad, good], obstruct, clear } in obstacles() {
        let disk = logged();
        let journal = layout().journal(&session_id(bad), &run_id("r"));
        obstruct(&disk, &journal);
        let store = open(&disk).unwrap_or_else(|error| panic!("{name}: the store does not open: {error:?}"));
        let found = codes(&store);
        let relative = layout().relative(&journal);
        assert!(found.contains(&("log_not_replayed", relative)), "{name}: {found:?}");
        assert_eq!(texts(&store, good), ALL, "{name}: the other session");
        assert_eq!(texts(&store, bad), ALL, "{name}: what is withheld is shown");
        assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), bad), ALL, "{name}: by readers too");
        let other = store.resume_run(&session_id(good), &run_id("r")).unwrap();
        other.append_durable(Event::token("more")).unwrap().wait().unwrap();
        let refused = store.resume_run(&session_id(bad), &run_id("r")).unwrap_err();
        assert!(matches!(refused.storage(), Some(StorageError::Withheld { .. })), "{name}: {refused:?}");
        assert_eq!(refused.code(), "withheld");
        let kept = layout().kept_records(&session_id(bad), &run_id("r"));
        assert!(disk.files().contains_key(&kept), "{name}: they are kept in {}", kept.display());
        drop((other, store));
        // The log is retired: it is not needed for them any more.
        disk.power_cut(Crash::LoseAll);
        clear(&disk, &journal);
        let store = open(&disk).unwrap();
        assert_eq!(codes(&store), [], "{name}");
        assert_eq!(texts(&store, bad), ALL, "{name}: they are back");
        assert!(!disk.files().contains_key(&kept), "{name}: and no longer kept apart");
        disk.power_cut(Crash::LoseAll);
        assert_eq!(texts(&open(&disk).unwrap(), bad), ALL, "{name}: for good");
    }
}

#[test]
fn acknowledged_events_of_a_journal_that_is_read_only_are_shown_by_every_reader() {
    let disk = logged();
    disk.set_mode(layout().journal(&session_id("a"), &run_id("r")), 0o400).unwrap();
    let store = open(&disk).unwrap();
    assert_eq!(texts(&store, "a"), ALL, "by the writer");
    assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "a"), ALL, "by a reader beside it");
    drop(store);
    assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "a"), ALL, "by a reader alone");
    disk.reboot();
    assert_eq!(texts(&USUAL.open_to_read(&disk).unwrap(), "a"), ALL, "and after a restart");
}

#[test]
fn a_run_is_appended_to_again_as_soon_as_its_journal_can_be_written() {
    let disk = logged();
    let journal = layout().journal(&session_id("a"), &run_id("r"));
    disk.set_mode(&journal, 0o400).unwrap();
    let store = open(&disk).unwrap();
    assert!(store.resume_run(&session_id("a"), &run_id("r")).is_err());
    disk.set_mode(&journal, 0o600).unwrap();
    let run = store.resume_run(&session_id("a"), &run_id("r")).unwrap();
    assert_eq!(run.append_durable(Event::token("four")).unwrap().last_seq, 4);
    drop((run, store));
    disk.power_cut(Crash::LoseAll);
    let store = open(&disk).unwrap();
    assert_eq!((codes(&store), texts(&store, "a").len()), (vec![], 4));
}

/// Sessions `a` and `b`, of which `a` was deleted and its parts are not in the trash: a crash came before that.
fn half_deleted() -> SimDisk {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    for session in ["a", "b"] {
        store.create(NewSession::titled(session).with_id(session_id(session))).unwrap();
        store.adopt_run(&session_id(session), &run_id("r")).unwrap().append(Event::token("x")).unwrap();
    }
    store.delete(&session_id("a")).unwrap();
    drop(store);
    let trash = disk.files().into_keys().find(|path| path.ends_with("session.json")).unwrap();
    let trash = trash.parent().unwrap();
    for (part, place) in [("session.json", "/data/a.json"), ("run_journal", "/data/_run_journal/a")] {
        disk.rename(&trash.join(part), Path::new(place)).unwrap();
    }
    disk.reboot();
    disk
}

#[test]
fn what_is_left_of_a_deletion_and_cannot_be_moved_does_not_prevent_opening() {
    fn of_other(disk: &SimDisk, path: &str) {
        disk.set_owner(path, OTHER_USER).unwrap();
        disk.set_mode(path, 0o755).unwrap();
    }
    type Obstacle = fn(&SimDisk);
    let obstacles: [(&str, Obstacle); 3] = [
        ("another user's directory", |disk| of_other(disk, "/data/_run_journal")),
        ("a trash on another file system", |disk| disk.mount("/data/_trash").unwrap()),
        ("another user's trash", |disk| {
            of_other(disk, "/data/_trash");
            for entry in disk.read_dir(Path::new("/data/_trash")).unwrap() {
                of_other(disk, &format!("/data/_trash/{}", entry.name));
            }
        }),
    ];
    for (name, obstruct) in obstacles {
        let disk = half_deleted();
        obstruct(&disk);
        let store = open(&disk).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(store.get_session(&session_id("a")).is_err(), "{name}: it stays deleted");
        let of_a = |finding: &Finding| finding.code == "deleted_leftover" && finding.session == Some(session_id("a"));
        assert!(store.findings().iter().any(of_a), "{name}: {:?}", store.findings());
        store.update(&session_id("b"), SaveOptions::default(), |session| session.set_text("title", "x")).unwrap();
        drop(store);
        let options = DoctorOptions::default();
        let repaired = doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &options).unwrap();
        let failed = |action: &&doctor::Action| matches!(action.outcome, Some(doctor::Outcome::Failed { .. }));
        let failed: Vec<_> = repaired.actions.iter().filter(failed).collect();
        assert!(failed.iter().any(|action| action.session == Some(session_id("a"))), "{name}: {:#?}", repaired.actions);
    }
}

#[test]
fn a_trash_on_another_file_system_deletes_all_the_same_and_says_what_is_left() {
    let (disk, _) = prepared(created);
    disk.create_dir(Path::new("/data/_trash")).unwrap();
    disk.mount("/data/_trash").unwrap();
    let told: Arc<Mutex<Vec<Finding>>> = Arc::default();
    let notes = told.clone();
    let on_finding = OnFinding::new(move |finding| notes.lock().unwrap().push(finding.clone()));
    let options = Options { on_finding: Some(on_finding), ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    store.delete(&id()).unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["deleted_leftover"]);
    assert!(told[0].message.contains("file system"), "{}", told[0].message);
    assert!(store.get_session(&id()).is_err() && store.is_writable());
    drop(store);
    disk.power_cut(Crash::LoseAll);
    assert!(open(&disk).unwrap().get_session(&id()).is_err());
}

/// A deletion is not finished, and the disk is full: the store opens all the same.
#[test]
fn an_unfinished_deletion_on_a_full_disk_does_not_prevent_opening() {
    let disk = half_deleted();
    for entry in disk.read_dir(&layout().trash()).unwrap() {
        disk.remove_dir(&layout().trash().join(&entry.name)).unwrap();
    }
    disk.fill(disk.operations() + 1);
    let store = open(&disk).unwrap_or_else(|error| panic!("{error:?}\n{}", disk.log().join("\n")));
    assert!(store.findings().iter().any(|finding| finding.code == "deleted_leftover"));
    store.get_session(&session_id("b")).unwrap();
    drop(store);
    disk.make_room();
    assert_eq!(codes(&open(&disk).unwrap()), []);
}

/// A directory that may be written and not opened: what cannot be synced there is not put there either. A deletion that is
/// refused is none.
#[test]
fn a_directory_that_cannot_be_opened_is_not_changed() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    disk.create_dir(&layout().tombstones()).unwrap();
    disk.set_mode(layout().tombstones(), 0o300).unwrap();
    store.delete(&id()).unwrap_err();
    store.get_session(&id()).expect("its deletion was refused");
    disk.set_mode(layout().tombstones(), 0o700).unwrap();
    store.delete(&id()).unwrap();
    assert!(store.get_session(&id()).is_err());
}

/// Without the tombstones the store cannot tell which sessions are deleted.
#[test]
fn a_store_whose_tombstones_cannot_be_reached_does_not_open() {
    let disk = half_deleted();
    disk.set_owner(layout().tombstones(), OTHER_USER).unwrap();
    disk.set_mode(layout().tombstones(), 0o000).unwrap();
    let refused = open(&disk).unwrap_err();
    assert!(refused.to_string().contains("_tombstones"), "{refused}");
    disk.set_owner(layout().tombstones(), SimDisk::USER).unwrap();
    disk.set_mode(layout().tombstones(), 0o700).unwrap();
    open(&disk).unwrap();
}

#[test]
fn a_list_of_the_reference_program_is_kept_although_the_kept_files_lie_elsewhere() {
    let (disk, _) = prepared(created);
    disk.create_dir(Path::new("/data/_kept")).unwrap();
    disk.mount("/data/_kept").unwrap();
    let list = disk.open(Path::new("/data/_index.json"), Access::CreateNew).unwrap();
    list.write_at(b"[]", 0).unwrap();
    let store = open(&disk).unwrap();
    store.update(&id(), SaveOptions::default(), |session| session.set_text("title", "x")).unwrap();
    let files = disk.files();
    assert!(!files.contains_key(Path::new("/data/_index.json")));
    assert!(files.iter().any(|(path, bytes)| path.starts_with("/data/_kept") && bytes == b"[]"));
}

/// A run's record cannot be read, and its journal can: readers and followers are shown it.
#[test]
fn an_unreadable_record_hides_no_event() {
    let disk = logged();
    drop(open(&disk).unwrap());
    disk.set_owner(layout().run_record(&session_id("b"), &run_id("r")), OTHER_USER).unwrap();
    disk.set_mode(layout().run_record(&session_id("b"), &run_id("r")), 0o000).unwrap();
    let store = open(&disk).unwrap();
    assert_eq!(texts(&store, "b"), ALL);
    let mut follow = store.follow(&session_id("b"), &run_id("r"), After::Start).unwrap();
    assert_eq!(std::iter::from_fn(|| follow.poll().unwrap()).count(), 3);
}

#[test]
fn an_unreadable_sidecar_costs_its_own_session_alone() {
    let disk = logged();
    disk.break_reads(layout().sidecar(&session_id("a"))).unwrap();
    let store = open(&disk).unwrap();
    assert!(store.get_session(&session_id("a")).is_err());
    assert_eq!(texts(&store, "a"), ALL, "its journal can be read");
    store.get_session(&session_id("b")).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
}

pub(crate) fn codes(store: &Store) -> Vec<(&'static str, PathBuf)> {
    store.findings().into_iter().map(|finding| (finding.code, finding.file)).collect()
}
