//! What every storage backend must do, checked for each of them: files on a real disk, files on the simulated one.

use std::path::Path;
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::storage::sim::SimDisk;
use lastword::storage::{
    Access, Birth, CommitOptions, Continuation, Durability, Expected, FileStorage, FilesOptions, Mode, ObjectKind,
    OsDisk, Put, PutObject, PutOutcome, Seal, SharedDisk, Storage, StorageError,
};
use lastword::{AttachmentId, Revision, RunId, SessionId};

/// One backend, and a way to close and open it again.
struct Backend {
    name: &'static str,
    disk: SharedDisk,
    root: std::path::PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Backend {
    fn open(&self, mode: Mode) -> Result<Arc<dyn Storage>, StorageError> {
        let options = FilesOptions {
            allow_network_fs: true,
            clock: Arc::new(ManualClock::at(Timestamp::from_seconds(1.0))),
            commit: CommitOptions { segment_bytes: 4096, ..CommitOptions::default() },
            ..FilesOptions::in_mode(mode)
        };
        Ok(Arc::new(FileStorage::open(self.disk.clone(), &self.root, options)?))
    }

    fn writer(&self) -> Arc<dyn Storage> {
        self.open(Mode::Write).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn backends() -> Vec<Backend> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("deep/data");
    let real = Backend { name: "real files", disk: Arc::new(OsDisk), root, _folder: Some(folder) };
    let disk = Arc::new(SimDisk::new());
    vec![real, Backend { name: "simulated files", disk, root: "/data".into(), _folder: None }]
}

fn session(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn run(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

fn put(storage: &Arc<dyn Storage>, id: &str, bytes: &[u8], expected: Expected) -> PutOutcome {
    storage.put_document(&session(id), bytes, &Put { expected, keep_replaced: false }).unwrap()
}

fn stored(outcome: PutOutcome) -> Revision {
    match outcome {
        PutOutcome::Stored(revision) => revision,
        other => panic!("not stored: {other:?}"),
    }
}

fn lines_of(storage: &Arc<dyn Storage>, id: &str, run_id: &str) -> String {
    let bytes = storage.journal_bytes(&session(id), &run(run_id)).unwrap().expect("a journal");
    let mut buffer = vec![0; 100_000];
    let len = bytes.read_at(&mut buffer, 0).unwrap();
    String::from_utf8(buffer[..len].to_vec()).unwrap()
}

#[test]
fn a_document_is_put_over_the_expected_revision_only() {
    for backend in backends() {
        let storage = backend.writer();
        assert!(storage.document(&session("a")).unwrap().is_none());
        let first = stored(put(&storage, "a", b"one", Expected::Absent));
        assert!(matches!(put(&storage, "a", b"two", Expected::Absent), PutOutcome::Conflict { .. }));
        let second = stored(put(&storage, "a", b"two", Expected::Revision(first.clone())));
        assert_ne!(first, second);
        let outcome = put(&storage, "a", b"three", Expected::Revision(first));
        assert_eq!(outcome, PutOutcome::Conflict { found: Some(second.clone()) });
        let document = storage.document(&session("a")).unwrap().unwrap();
        assert_eq!((document.bytes.as_slice(), &document.revision), (b"two".as_slice(), &second), "{}", backend.name);
        assert_eq!(storage.document_revision(&session("a")).unwrap(), Some(second));
    }
}

#[test]
fn a_revision_outlives_the_process() {
    for backend in backends() {
        let revision = stored(put(&backend.writer(), "a", b"one", Expected::Absent));
        let storage = backend.writer();
        assert_eq!(storage.document_revision(&session("a")).unwrap(), Some(revision.clone()), "{}", backend.name);
        stored(put(&storage, "a", b"two", Expected::Revision(revision)));
    }
}

#[test]
fn only_one_of_many_puts_over_one_revision_is_stored() {
    for backend in backends() {
        let storage = backend.writer();
        let revision = stored(put(&storage, "a", b"base", Expected::Absent));
        let barrier = std::sync::Barrier::new(8);
        let stored = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8u8)
                .map(|number| {
                    let (storage, revision, barrier) = (&storage, revision.clone(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        matches!(put(storage, "a", &[number], Expected::Revision(revision)), PutOutcome::Stored(_))
                    })
                })
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).filter(|stored| *stored).count()
        });
        assert_eq!(stored, 1, "{}", backend.name);
    }
}

#[test]
fn a_head_is_the_beginning_of_a_document() {
    for backend in backends() {
        let storage = backend.writer();
        stored(put(&storage, "a", b"0123456789", Expected::Absent));
        let head = storage.document_head(&session("a"), 4).unwrap().unwrap();
        assert_eq!((head.bytes.as_slice(), head.is_all), (b"0123".as_slice(), false));
        let head = storage.document_head(&session("a"), 400).unwrap().unwrap();
        assert_eq!((head.bytes.len(), head.is_all), (10, true));
        assert!(storage.document_head(&session("b"), 4).unwrap().is_none(), "{}", backend.name);
    }
}

#[test]
fn all_documents_are_listed_with_their_revisions() {
    for backend in backends() {
        let storage = backend.writer();
        let revisions = ["c", "a", "b"].map(|id| (session(id), stored(put(&storage, id, b"{}", Expected::Absent))));
        let mut listed = storage.documents().unwrap();
        listed.sort_by(|a, b| a.session.cmp(&b.session));
        assert_eq!(listed.len(), 3, "{}", backend.name);
        for (id, revision) in revisions {
            let found = listed.iter().find(|entry| entry.session == id).unwrap();
            assert_eq!(found.revision.as_ref(), Some(&revision), "{}", backend.name);
        }
        assert!(storage.delete_session(&session("b")).unwrap());
        assert_eq!(storage.documents().unwrap().len(), 2, "{}", backend.name);
    }
}

#[test]
fn what_a_put_replaces_is_kept_every_time_it_is_asked_to() {
    for backend in backends() {
        let storage = backend.writer();
        let mut revision = stored(put(&storage, "a", b"version 0", Expected::Absent));
        for number in 1..=3 {
            let keep = Put { expected: Expected::Revision(revision), keep_replaced: true };
            let bytes = format!("version {number}");
            revision = stored(storage.put_document(&session("a"), bytes.as_bytes(), &keep).unwrap());
        }
        let kept = backend.disk.read_dir(&backend.root.join("_kept/a")).unwrap();
        assert_eq!(kept.len(), 3, "{}: {kept:?}", backend.name);
    }
}

#[test]
fn a_journal_is_created_once_appended_to_and_read_back() {
    for backend in backends() {
        let storage = backend.writer();
        let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
        assert_eq!(journal.tail.last_seq, 0);
        journal.writer.append(b"{\"seq\":1}\n", Durability::Buffered).unwrap().wait().unwrap();
        let ticket = journal.writer.append(b"{\"seq\":2}\n{\"seq\":3}\n", Durability::Durable).unwrap();
        assert!(ticket.wait().unwrap().is_some(), "{}: a durable append gives proof", backend.name);
        assert_eq!(lines_of(&storage, "a", "r"), "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n");
        let again = storage.create_journal(&session("a"), &run("r"), &Birth::default());
        assert!(matches!(again, Err(StorageError::RunTaken { .. })), "{}", backend.name);
        assert_eq!(storage.journals(&session("a")).unwrap(), [run("r")]);
    }
}

#[test]
fn a_journal_goes_on_where_it_ended() {
    for backend in backends() {
        {
            let storage = backend.writer();
            let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
            let lines = b"{\"seq\":1}\n{\"seq\":2,\"event\":\"done\",\"terminal\":true}\n";
            journal.writer.append(lines, Durability::Buffered).unwrap().wait().unwrap();
        }
        let storage = backend.writer();
        let journal = storage.open_journal(&session("a"), &run("r")).unwrap();
        assert_eq!((journal.tail.last_seq, journal.tail.seal), (2, Seal::Done), "{}", backend.name);
        let missing = storage.open_journal(&session("a"), &run("other"));
        assert!(matches!(missing, Err(StorageError::RunNotFound { .. })));
    }
}

#[test]
fn a_writer_rests_and_goes_on() {
    for backend in backends() {
        let storage = backend.writer();
        let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
        journal.writer.rest().unwrap();
        for seq in 1..=2 {
            let line = format!("{{\"seq\":{seq}}}\n");
            journal.writer.append(line.as_bytes(), Durability::Buffered).unwrap().wait().unwrap();
            journal.writer.rest().unwrap();
            journal.writer.rest().unwrap();
        }
        journal.writer.fence("of a test");
        journal.writer.rest().unwrap();
        assert!(journal.writer.append(b"{}\n", Durability::Buffered).is_err(), "{}", backend.name);
        assert_eq!(lines_of(&storage, "a", "r"), "{\"seq\":1}\n{\"seq\":2}\n");
    }
}

/// A line would not fit there: a hole would stand before it, or it would stand in the place of another.
#[test]
fn a_writer_that_rested_takes_nothing_if_another_program_has_changed_its_journal() {
    type Change = fn(&Backend, &Path);
    let changes: [(&str, Change); 4] = [
        ("shorter", |backend, path| backend.disk.open(path, Access::Write).unwrap().set_len(10).unwrap()),
        ("empty", |backend, path| backend.disk.open(path, Access::Write).unwrap().set_len(0).unwrap()),
        ("longer", |backend, path| overwrite(backend, path, b"{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n")),
        ("gone", |backend, path| backend.disk.remove_file(path).unwrap()),
    ];
    for (name, change) in changes {
        for backend in backends() {
            let storage = backend.writer();
            let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
            journal.writer.append(b"{\"seq\":1}\n{\"seq\":2}\n", Durability::Buffered).unwrap().wait().unwrap();
            journal.writer.rest().unwrap();
            let path = backend.root.join("_run_journal/a/r.jsonl");
            change(&backend, &path);
            let len = || backend.disk.stat(&path).map_or(0, |stat| stat.len);
            let before = len();
            for _ in 0..2 {
                let refused = journal.writer.append(b"{\"seq\":3}\n", Durability::Buffered).unwrap_err();
                assert!(refused.is_over && refused.kept_bytes == 0, "{}: {name}: {refused:?}", backend.name);
                assert_eq!(len(), before, "{}: {name}", backend.name);
            }
        }
    }
}

#[test]
fn a_fenced_writer_takes_nothing_for_good() {
    for backend in backends() {
        let storage = backend.writer();
        let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
        journal.writer.fence("of a test");
        for _ in 0..2 {
            let failure = journal.writer.append(b"{}\n", Durability::Buffered).unwrap_err();
            assert!(matches!(*failure.error, StorageError::Fenced { .. }), "{}", backend.name);
        }
        assert_eq!(lines_of(&storage, "a", "r"), "");
    }
}

/// What could not be begun is discarded, and only as long as it holds nothing.
#[test]
fn a_journal_that_holds_a_line_is_not_discarded() {
    for backend in backends() {
        let storage = backend.writer();
        let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
        storage.create_journal(&session("a"), &run("empty"), &Birth::default()).unwrap();
        journal.writer.append(b"{\"seq\":1}\n", Durability::Buffered).unwrap().wait().unwrap();
        let refused = storage.discard_journal(&session("a"), &run("r"));
        assert!(matches!(refused, Err(StorageError::RunTaken { .. })), "{}: {refused:?}", backend.name);
        assert_eq!(lines_of(&storage, "a", "r"), "{\"seq\":1}\n");
        assert!(storage.birth(&session("a"), &run("r")).unwrap().is_some(), "{}", backend.name);
        storage.discard_journal(&session("a"), &run("empty")).unwrap();
        assert_eq!(storage.journals(&session("a")).unwrap(), [run("r")], "{}", backend.name);
        storage.create_journal(&session("a"), &run("empty"), &Birth::default()).unwrap();
    }
}

#[test]
fn a_removed_journal_is_gone_and_its_id_stays_taken() {
    for backend in backends() {
        let storage = backend.writer();
        let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
        journal.writer.append(b"{\"seq\":1}\n", Durability::Buffered).unwrap().wait().unwrap();
        assert!(storage.remove_journal(&session("a"), &run("r")).unwrap());
        assert!(!storage.remove_journal(&session("a"), &run("r")).unwrap());
        assert!(storage.journal_bytes(&session("a"), &run("r")).unwrap().is_none());
        let again = storage.create_journal(&session("a"), &run("r"), &Birth::default());
        assert!(matches!(again, Err(StorageError::RunTaken { .. })), "{}", backend.name);
    }
}

#[test]
fn a_deleted_session_is_gone_with_its_journals_and_cannot_be_put_or_begun_again() {
    for backend in backends() {
        let storage = backend.writer();
        let revision = stored(put(&storage, "a", b"{}", Expected::Absent));
        let mut journal = storage.create_journal(&session("a"), &run("r"), &Birth::default()).unwrap();
        journal.writer.append(b"{\"seq\":1}\n", Durability::Buffered).unwrap().wait().unwrap();
        assert!(storage.delete_session(&session("a")).unwrap());
        assert!(!storage.delete_session(&session("a")).unwrap());
        assert!(storage.is_deleted(&session("a")).unwrap());
        assert!(storage.document(&session("a")).unwrap().is_none());
        assert!(storage.documents().unwrap().is_empty() && storage.journals(&session("a")).unwrap().is_empty());
        for expected in [Expected::Absent, Expected::Revision(revision)] {
            assert_eq!(put(&storage, "a", b"{}", expected), PutOutcome::Deleted, "{}", backend.name);
        }
        assert!(storage.create_journal(&session("a"), &run("new"), &Birth::default()).is_err());
        assert!(storage.open_journal(&session("a"), &run("r")).is_err());
    }
}

#[test]
fn one_writes_and_any_number_read() {
    for backend in backends() {
        assert!(matches!(backend.open(Mode::ReadOnly), Err(StorageError::NoDirectory { .. })), "{}", backend.name);
        let writer = backend.writer();
        stored(put(&writer, "a", b"{}", Expected::Absent));
        match backend.open(Mode::Write) {
            Err(StorageError::Busy { holder, .. }) => assert_eq!(holder.unwrap().pid, std::process::id()),
            other => panic!("{}: {other:?}", backend.name),
        }
        let reader = backend.open(Mode::ReadOnly).unwrap();
        assert!(reader.document(&session("a")).unwrap().is_some());
        let refused =
            reader.put_document(&session("b"), b"{}", &Put { expected: Expected::Absent, keep_replaced: false });
        assert!(matches!(refused, Err(StorageError::ReadOnly)));
        assert!(reader.create_journal(&session("a"), &run("r"), &Birth::default()).is_err());
        assert!(reader.delete_session(&session("a")).is_err());
        assert!(matches!(reader.next_order(0), Err(StorageError::ReadOnly)));
        let key = key_of(ObjectKind::Branch, "x");
        let refused = reader.put_object(&session("a"), ObjectKind::Branch, &key, b"x");
        assert!(matches!(refused, Err(StorageError::ReadOnly)), "{}: {refused:?}", backend.name);
        assert!(matches!(reader.remove_object(&session("a"), ObjectKind::Branch, &key), Err(StorageError::ReadOnly)));
        put_object(&writer, "a", ObjectKind::Branch, &key, b"x");
        assert_eq!(reader.object(&session("a"), ObjectKind::Branch, &key).unwrap().as_deref(), Some(&b"x"[..]));
        assert_eq!(reader.objects(&session("a"), ObjectKind::Branch).unwrap(), [key]);
        let noted = Continuation { after_seq: 1, order: 1 };
        assert!(matches!(reader.note_continuation(&session("a"), &run("r"), noted), Err(StorageError::ReadOnly)));
        assert!(matches!(reader.keep_stderr(&session("a"), &run("r"), "x"), Err(StorageError::ReadOnly)));
        assert!(matches!(reader.note_renewal(&session("a"), &run("r"), 1.0), Err(StorageError::ReadOnly)));
        assert!(matches!(reader.forget_renewal(&session("a"), &run("r")), Err(StorageError::ReadOnly)));
        drop(writer);
        backend.writer();
    }
}

/// A key of an object with these bytes.
fn key_of(kind: ObjectKind, text: &str) -> String {
    match kind {
        ObjectKind::Attachment | ObjectKind::AttachmentInfo => AttachmentId::of_bytes(text.as_bytes()).to_string(),
        ObjectKind::Branch => text.to_owned(),
    }
}

fn put_object(storage: &Arc<dyn Storage>, id: &str, kind: ObjectKind, key: &str, bytes: &[u8]) {
    let outcome = storage.put_object(&session(id), kind, key, bytes).unwrap();
    assert_eq!(outcome, PutObject::Stored, "{kind} {key}");
}

#[test]
fn an_object_is_there_once_it_is_put_under_its_session_kind_and_key_alone() {
    for backend in backends() {
        let (a, b) = (session("a"), session("b"));
        {
            let storage = backend.writer();
            for kind in ObjectKind::ALL {
                assert_eq!(storage.objects(&a, kind).unwrap(), [""; 0], "{}", backend.name);
                for text in ["y", "x", ""] {
                    let key = key_of(kind, if text.is_empty() { "empty" } else { text });
                    if kind == ObjectKind::Attachment && text.is_empty() {
                        continue;
                    }
                    put_object(&storage, "a", kind, &key, text.as_bytes());
                }
            }
        }
        let storage = backend.writer();
        for kind in ObjectKind::ALL {
            let (x, y) = (key_of(kind, "x"), key_of(kind, "y"));
            assert_eq!(storage.object(&a, kind, &x).unwrap().as_deref(), Some(&b"x"[..]), "{}: {kind}", backend.name);
            assert_eq!(storage.object_len(&a, kind, &y).unwrap(), Some(1), "{}: {kind}", backend.name);
            let mut keys = vec![x.clone(), y];
            keys.extend((kind != ObjectKind::Attachment).then(|| key_of(kind, "empty")));
            keys.sort();
            assert_eq!(storage.objects(&a, kind).unwrap(), keys, "{}: {kind}", backend.name);
            assert_eq!(storage.object(&b, kind, &x).unwrap(), None, "{}: {kind}", backend.name);
            assert_eq!(storage.object_len(&b, kind, &x).unwrap(), None, "{}: {kind}", backend.name);
            let other = key_of(kind, "other");
            assert_eq!(storage.object(&a, kind, &other).unwrap(), None, "{}: {kind}", backend.name);
            assert_eq!(storage.object_len(&a, kind, &other).unwrap(), None, "{}: {kind}", backend.name);
        }
    }
}

#[test]
fn an_object_takes_the_place_of_the_one_with_its_key_and_is_removed_once() {
    for backend in backends() {
        let storage = backend.writer();
        let a = session("a");
        for kind in [ObjectKind::AttachmentInfo, ObjectKind::Branch] {
            let (x, y) = (key_of(kind, "x"), key_of(kind, "y"));
            put_object(&storage, "a", kind, &x, b"a longer version");
            put_object(&storage, "a", kind, &x, b"another");
            put_object(&storage, "a", kind, &y, b"stays");
            assert_eq!(storage.object(&a, kind, &x).unwrap().as_deref(), Some(&b"another"[..]), "{}", backend.name);
            assert!(storage.remove_object(&a, kind, &x).unwrap());
            assert!(!storage.remove_object(&a, kind, &x).unwrap(), "{}: {kind}", backend.name);
            assert_eq!(storage.object(&a, kind, &x).unwrap(), None, "{}: {kind}", backend.name);
            assert_eq!(storage.objects(&a, kind).unwrap(), [y], "{}: {kind}", backend.name);
        }
    }
}

/// Bytes that do not have the hash that they are asked for by are an error, and the next put of the right ones heals it.
#[test]
fn an_attachment_is_the_bytes_with_its_hash_or_an_error() {
    for backend in backends() {
        let storage = backend.writer();
        let (a, kind, key) = (session("a"), ObjectKind::Attachment, key_of(ObjectKind::Attachment, "right"));
        put_object(&storage, "a", kind, &key, b"right");
        overwrite(&backend, &backend.root.join("_attachments/a").join(&key), b"wrong");
        let damaged = storage.object(&a, kind, &key).unwrap_err();
        assert!(matches!(damaged, StorageError::Damaged { .. }), "{}: {damaged:?}", backend.name);
        put_object(&storage, "a", kind, &key, b"right");
        assert_eq!(storage.object(&a, kind, &key).unwrap().as_deref(), Some(&b"right"[..]), "{}", backend.name);
    }
}

#[test]
fn a_key_that_is_not_of_its_kind_names_nothing_and_cannot_be_put() {
    let hash = key_of(ObjectKind::Attachment, "x");
    for backend in backends() {
        let storage = backend.writer();
        let a = session("a");
        let long = "x".repeat(129);
        for kind in ObjectKind::ALL {
            let mut bad = vec!["", ".", "..", "../a", "a/b", "a b", "caf\u{e9}", &long];
            if kind != ObjectKind::Branch {
                bad.extend(["x", "_x", &hash[..40], "sha256-"]);
            }
            for key in bad {
                let refused = storage.put_object(&a, kind, key, b"x");
                assert!(matches!(refused, Err(StorageError::BadKey { .. })), "{}: {kind} {key:?}", backend.name);
                assert_eq!(storage.object(&a, kind, key).unwrap(), None, "{}: {kind} {key:?}", backend.name);
                assert_eq!(storage.object_len(&a, kind, key).unwrap(), None, "{}: {kind} {key:?}", backend.name);
                assert!(!storage.remove_object(&a, kind, key).unwrap(), "{}: {kind} {key:?}", backend.name);
            }
            assert_eq!(storage.objects(&a, kind).unwrap(), [""; 0], "{}: {kind}", backend.name);
        }
        for key in ["_x", "-x", ".x", "x.json", "x.info", "_tmp-x", "x.tmp", "..."] {
            put_object(&storage, "a", ObjectKind::Branch, key, key.as_bytes());
            let found = storage.object(&a, ObjectKind::Branch, key).unwrap();
            assert_eq!(found.as_deref(), Some(key.as_bytes()), "{}: {key}", backend.name);
        }
        assert_eq!(storage.objects(&a, ObjectKind::Branch).unwrap().len(), 8, "{}", backend.name);
    }
}

#[test]
fn the_objects_of_a_deleted_session_are_gone_and_none_is_put() {
    for backend in backends() {
        for is_with_document in [true, false] {
            let (storage, id) = (backend.writer(), if is_with_document { "a" } else { "b" });
            if is_with_document {
                stored(put(&storage, id, b"{}", Expected::Absent));
            }
            for kind in ObjectKind::ALL {
                put_object(&storage, id, kind, &key_of(kind, "x"), b"x");
            }
            assert!(storage.delete_session(&session(id)).unwrap(), "{}", backend.name);
            let check = |storage: &Arc<dyn Storage>| {
                for kind in ObjectKind::ALL {
                    let key = key_of(kind, "x");
                    assert_eq!(storage.object(&session(id), kind, &key).unwrap(), None, "{}: {kind}", backend.name);
                    assert_eq!(storage.object_len(&session(id), kind, &key).unwrap(), None, "{}", backend.name);
                    assert_eq!(storage.objects(&session(id), kind).unwrap(), [""; 0], "{}: {kind}", backend.name);
                    assert!(!storage.remove_object(&session(id), kind, &key).unwrap(), "{}: {kind}", backend.name);
                    let outcome = storage.put_object(&session(id), kind, &key, b"x").unwrap();
                    assert_eq!(outcome, PutObject::Deleted, "{}: {kind}", backend.name);
                    assert_eq!(storage.object(&session(id), kind, &key).unwrap(), None, "{}: {kind}", backend.name);
                }
            };
            check(&storage);
            for folder in ["_attachments", "_branches"] {
                assert!(backend.disk.stat(&backend.root.join(folder).join(id)).is_err(), "{}: {folder}", backend.name);
            }
            drop(storage);
            check(&backend.writer());
        }
    }
}

#[test]
fn numbers_rise_across_openings() {
    for backend in backends() {
        let mut last = 0;
        for _ in 0..3 {
            let storage = backend.writer();
            for _ in 0..2_000 {
                let next = storage.next_order(0).unwrap();
                assert!(last < next, "{}: {next} after {last}", backend.name);
                last = next;
            }
        }
        assert!(last < 10_000, "{}: a closed store leaves a gap of less than one range", backend.name);
    }
}

#[test]
fn no_number_is_given_to_two_threads() {
    for backend in backends() {
        let storage = backend.writer();
        let mut given: Vec<u64> = std::thread::scope(|scope| {
            let take = || (0..500).map(|_| storage.next_order(0).unwrap()).collect::<Vec<u64>>();
            let takers: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        given.sort_unstable();
        assert_eq!(given, (1..=4_000).collect::<Vec<u64>>(), "{}", backend.name);
    }
}

/// The file that holds the reservation is lost or damaged: the records of the runs say how far numbers were given.
#[test]
fn numbers_do_not_repeat_if_the_reservation_is_lost() {
    type Damage = fn(&Backend, &Path);
    let damages: [(&str, Damage); 3] = [
        ("removed", |backend, path| backend.disk.remove_file(path).unwrap()),
        ("emptied", |backend, path| overwrite(backend, path, b"")),
        ("lowered by hand", |backend, path| overwrite(backend, path, b"{\"reserved_until\":1,\"crc\":\"00000000\"}\n")),
    ];
    for (what, damage) in damages {
        for backend in backends() {
            let path = backend.root.join("_run_order");
            let storage = backend.writer();
            for _ in 1..3_000 {
                storage.next_order(0).unwrap();
            }
            let order = Some(storage.next_order(0).unwrap());
            let birth = Birth { order, ..Birth::default() };
            storage.create_journal(&session("a"), &run("r"), &birth).unwrap();
            let noted = Continuation { after_seq: 0, order: storage.next_order(0).unwrap() };
            storage.note_continuation(&session("a"), &run("r"), noted).unwrap();
            drop(storage);
            damage(&backend, &path);
            let storage = backend.writer();
            assert_eq!(storage.next_order(0).unwrap(), noted.order + 1, "{}: {what}", backend.name);
            drop(storage);
            let next = backend.writer().next_order(0).unwrap();
            assert_eq!(next, noted.order + 1 + 1024, "{}: {what}: and it is whole again", backend.name);
        }
    }
}

/// A run that cannot be looked at may have any number that was given: more are left out than there can be.
#[test]
fn numbers_do_not_repeat_if_a_record_is_damaged_as_well() {
    for backend in backends() {
        let storage = backend.writer();
        let order = storage.next_order(0).unwrap();
        storage.create_journal(&session("a"), &run("r"), &Birth { order: Some(order), ..Birth::default() }).unwrap();
        drop(storage);
        overwrite(&backend, &backend.root.join("_run_journal/a/_r.run"), b"garbage");
        backend.disk.remove_file(&backend.root.join("_run_order")).unwrap();
        assert!(backend.writer().next_order(0).unwrap() > 1 << 32, "{}", backend.name);
    }
}

#[test]
fn the_end_of_stderr_is_kept_for_runs_of_ours_that_are_there() {
    for backend in backends() {
        let storage = backend.writer();
        let (a, r) = (session("a"), run("r"));
        storage.keep_stderr(&a, &r, "too early").unwrap();
        let order = storage.next_order(0).unwrap();
        storage.create_journal(&a, &r, &Birth { order: Some(order), ..Birth::default() }).unwrap();
        assert_eq!(storage.kept_stderr(&a, &r).unwrap(), None, "{}", backend.name);
        for text in ["first", "last \u{1b}[1m \u{e9}\n"] {
            storage.keep_stderr(&a, &r, text).unwrap();
            assert_eq!(storage.kept_stderr(&a, &r).unwrap().as_deref(), Some(text), "{}", backend.name);
        }
        let noted = Continuation { after_seq: 3, order: storage.next_order(0).unwrap() };
        storage.note_continuation(&a, &r, noted).unwrap();
        storage.keep_stderr(&a, &r, "third").unwrap();
        drop(storage);
        let storage = backend.writer();
        assert_eq!(storage.kept_stderr(&a, &r).unwrap().as_deref(), Some("third"), "{}", backend.name);
        let birth = storage.birth(&a, &r).unwrap().unwrap();
        assert_eq!(
            (birth.order, birth.continued),
            (Some(order), vec![noted]),
            "{}: nothing else changed",
            backend.name
        );
    }
}

#[test]
fn a_birth_tells_the_places_of_a_run() {
    for backend in backends() {
        let storage = backend.writer();
        let (a, r) = (session("a"), run("r"));
        let order = storage.next_order(0).unwrap();
        storage.create_journal(&a, &r, &Birth { begun_at: 5.0, order: Some(order), ..Birth::default() }).unwrap();
        let expected = Birth { begun_at: 5.0, order: Some(order), takes_appends: true, ..Birth::default() };
        assert_eq!(storage.birth(&a, &r).unwrap(), Some(expected.clone()), "{}", backend.name);
        let continued = [3, 7].map(|after_seq| Continuation { after_seq, order: storage.next_order(0).unwrap() });
        for noted in continued {
            storage.note_continuation(&a, &r, noted).unwrap();
        }
        // Nothing is noted of a run that is not there.
        storage.note_continuation(&a, &run("other"), continued[0]).unwrap();
        storage.note_continuation(&session("b"), &r, continued[0]).unwrap();
        assert_eq!(storage.birth(&a, &run("other")).unwrap(), None);
        drop(storage);
        let storage = backend.writer();
        let expected = Birth { continued: continued.to_vec(), ..expected };
        assert_eq!(storage.birth(&a, &r).unwrap(), Some(expected), "{}", backend.name);
        storage.open_journal(&a, &r).unwrap();
        storage.remove_journal(&a, &r).unwrap();
        assert!(!storage.birth(&a, &r).unwrap().unwrap().takes_appends, "{}: it was removed", backend.name);
    }
}

/// A run that another program began has no place, and one that was taken over can go on at a later one.
#[test]
fn a_run_of_another_program_gets_a_place_when_it_goes_on() {
    for backend in backends() {
        let storage = backend.writer();
        storage.create_journal(&session("a"), &run("ours"), &Birth::default()).unwrap();
        let path = backend.root.join("_run_journal/a/theirs.jsonl");
        backend.disk.open(&path, Access::CreateNew).unwrap().write_at(b"{\"seq\":1}\n", 0).unwrap();
        let noted = Continuation { after_seq: 1, order: storage.next_order(0).unwrap() };
        storage.note_continuation(&session("a"), &run("theirs"), noted).unwrap();
        assert_eq!(storage.birth(&session("a"), &run("theirs")).unwrap(), None, "{}", backend.name);
        storage.open_journal(&session("a"), &run("theirs")).unwrap();
        storage.note_continuation(&session("a"), &run("theirs"), noted).unwrap();
        let birth = storage.birth(&session("a"), &run("theirs")).unwrap().unwrap();
        assert_eq!((birth.order, birth.continued), (None, vec![noted]), "{}", backend.name);
    }
}

#[test]
fn a_renewed_lease_outlives_the_process_until_it_is_forgotten() {
    for backend in backends() {
        let (a, r) = (session("a"), run("_odd.lease"));
        let leased = Birth { lease_seconds: Some(30.0), ..Birth::default() };
        let storage = backend.writer();
        let renewed_at = |storage: &Arc<dyn Storage>| storage.birth(&a, &r).unwrap().unwrap().renewed_at;
        storage.create_journal(&a, &r, &leased).unwrap();
        assert_eq!(renewed_at(&storage), None);
        for at in [10.0, 1_800_000_000.25, 20.5] {
            storage.note_renewal(&a, &r, at).unwrap();
            assert_eq!(renewed_at(&storage), Some(at), "{}", backend.name);
        }
        assert_eq!(
            storage.journals(&a).unwrap(),
            std::slice::from_ref(&r),
            "{}: a note is not a journal",
            backend.name
        );
        drop(storage);
        let storage = backend.writer();
        assert_eq!(renewed_at(&storage), Some(20.5), "{}", backend.name);
        assert_eq!(renewed_at(&backend.open(Mode::ReadOnly).unwrap()), Some(20.5), "{}", backend.name);
        storage.forget_renewal(&a, &r).unwrap();
        storage.forget_renewal(&a, &r).unwrap();
        assert_eq!(renewed_at(&storage), None, "{}", backend.name);
    }
}

#[test]
fn a_garbled_lease_note_is_none_and_the_next_one_counts() {
    for backend in backends() {
        let (a, r) = (session("a"), run("r"));
        let storage = backend.writer();
        storage.create_journal(&a, &r, &Birth { lease_seconds: Some(30.0), ..Birth::default() }).unwrap();
        let path = backend.root.join("_run_journal/a/_r.lease");
        let renewed_at = || storage.birth(&a, &r).unwrap().unwrap().renewed_at;
        storage.note_renewal(&a, &r, 10.0).unwrap();
        for garbage in [
            &b""[..],
            b"{\"renewed_at\":",
            b"{\"renewed_at\":1800000000.250000,\"crc\":\"00000000\"}\n",
            &[0; 50],
            &[b'x'; 80],
        ] {
            overwrite(&backend, &path, garbage);
            assert_eq!(renewed_at(), None, "{}", backend.name);
            storage.note_renewal(&a, &r, 11.0).unwrap();
            assert_eq!(renewed_at(), Some(11.0), "{}: over {garbage:?}", backend.name);
        }
    }
}

#[test]
fn no_lease_note_stays_beside_journals_that_are_gone() {
    for backend in backends() {
        let leased = Birth { lease_seconds: Some(30.0), ..Birth::default() };
        let storage = backend.writer();
        let names = |id: &str| {
            let folder = backend.root.join("_run_journal").join(id);
            let entries = backend.disk.read_dir(&folder).unwrap_or_default();
            entries.into_iter().map(|entry| entry.name).collect::<Vec<String>>()
        };
        let leases = |id: &str| names(id).iter().filter(|name| name.ends_with(".lease")).count();
        for id in ["a", "b", "c"] {
            storage.create_journal(&session(id), &run("r"), &leased).unwrap();
            storage.note_renewal(&session(id), &run("r"), 1.0).unwrap();
            assert_eq!(leases(id), 1, "{}", backend.name);
        }
        storage.discard_journal(&session("a"), &run("r")).unwrap();
        storage.remove_journal(&session("b"), &run("r")).unwrap();
        storage.delete_session(&session("c")).unwrap();
        for id in ["a", "b", "c", "d"] {
            // Nor does a late renewal leave one.
            storage.note_renewal(&session(id), &run("r"), 2.0).unwrap();
            assert_eq!(leases(id), 0, "{}: {id}: {:?}", backend.name, names(id));
        }
    }
}

#[test]
fn a_newer_format_is_read_but_not_written() {
    for backend in backends() {
        stored(put(&backend.writer(), "a", b"{}", Expected::Absent));
        let path = backend.root.join("_lastword.json");
        overwrite(&backend, &path, b"{\"store\":\"x\",\"format\":99}\n");
        let refused = backend.open(Mode::Write);
        assert!(matches!(refused, Err(StorageError::NewerFormat { version: 99, .. })), "{}", backend.name);
        assert!(backend.open(Mode::ReadOnly).unwrap().document(&session("a")).unwrap().is_some());
    }
}

fn overwrite(backend: &Backend, path: &Path, bytes: &[u8]) {
    let file = backend.disk.open(path, Access::Write).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
}

#[test]
fn a_network_file_system_is_written_only_if_allowed_and_always_read() {
    let open = |disk: SharedDisk, mode, allow_network_fs| {
        FileStorage::open(disk, Path::new("/data"), FilesOptions { allow_network_fs, ..FilesOptions::in_mode(mode) })
    };
    let disk: SharedDisk = Arc::new(SimDisk::new().on_network_file_system("NFS"));
    let refused = open(disk.clone(), Mode::Write, false);
    assert!(matches!(refused, Err(StorageError::NetworkFileSystem { kind: "NFS", .. })), "{refused:?}");
    open(disk.clone(), Mode::Write, true).unwrap();
    open(disk, Mode::ReadOnly, false).unwrap();
}
