//! Objects beside a session, attachments and branches, cut at every disk operation: the old one, the new one or nothing.
//! What was acknowledged is there, what is there is whole, and nothing is put beside a deleted session.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Disk, Expected, FileStorage, FilesOptions, Mode, ObjectKind, Put, PutObject, Storage};
use lastword::{Attachment, AttachmentId, NewSession, Store, StoreError};

use crate::machine::{DATA, End, Machine, Memory, NOW, USUAL, created, id, open, prepared};

/// What was put, tried to be put and removed, by kind and key.
#[derive(Debug, Default, Clone)]
struct Objects {
    acknowledged: BTreeMap<(ObjectKind, String), Vec<u8>>,
    /// What may be there instead; nothing for a removal.
    tried: BTreeMap<(ObjectKind, String), Option<Vec<u8>>>,
    is_deleting: bool,
    is_deleted: bool,
}

fn files(disk: &SimDisk, mode: Mode) -> Result<FileStorage, lastword::StorageError> {
    let options = FilesOptions {
        clock: Arc::new(ManualClock::at(Timestamp::from_seconds(NOW as f64))),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        commit: USUAL.log,
        ..FilesOptions::in_mode(mode)
    };
    FileStorage::open(Arc::new(disk.clone()), Path::new(DATA), options)
}

impl Objects {
    fn put(&mut self, storage: &dyn Storage, kind: ObjectKind, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let name = (kind, key.to_owned());
        self.tried.insert(name.clone(), Some(bytes.to_owned()));
        let outcome = storage.put_object(&id(), kind, key, bytes)?;
        assert_eq!(outcome, PutObject::Stored);
        self.tried.remove(&name);
        self.acknowledged.insert(name, bytes.to_owned());
        Ok(())
    }

    fn remove(&mut self, storage: &dyn Storage, kind: ObjectKind, key: &str) -> Result<(), StoreError> {
        let name = (kind, key.to_owned());
        self.tried.insert(name.clone(), None);
        assert!(storage.remove_object(&id(), kind, key)?);
        self.tried.remove(&name);
        self.acknowledged.remove(&name);
        Ok(())
    }

    fn delete(&mut self, storage: &dyn Storage) -> Result<(), StoreError> {
        self.is_deleting = true;
        assert!(storage.delete_session(&id())?);
        self.is_deleted = true;
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = &(ObjectKind, String)> {
        self.acknowledged.keys().chain(self.tried.keys())
    }

    fn seen(&self, storage: &dyn Storage) -> BTreeMap<(ObjectKind, String), Vec<u8>> {
        let found = |name: &(ObjectKind, String)| storage.object(&id(), name.0, &name.1).unwrap();
        let seen: BTreeMap<_, _> = self.names().filter_map(|name| Some((name.clone(), found(name)?))).collect();
        for kind in ObjectKind::ALL {
            let listed = storage.objects(&id(), kind).unwrap();
            let known: Vec<_> = seen.keys().filter(|name| name.0 == kind).map(|name| name.1.clone()).collect();
            assert_eq!(listed, known, "{kind}");
        }
        seen
    }

    fn assert_promised(&self, seen: &BTreeMap<(ObjectKind, String), Vec<u8>>, is_deleted: bool, what: &str) {
        if is_deleted {
            assert!(self.is_deleting && seen.is_empty(), "{what}: {seen:?}");
            return;
        }
        assert!(!self.is_deleted, "{what}: a deleted session is back");
        for name in self.names() {
            let (found, known) = (seen.get(name), self.acknowledged.get(name));
            let is_tried = self.tried.get(name).is_some_and(|tried| found == tried.as_ref());
            assert!(found == known || is_tried, "{what}: {name:?} is {found:?}\n{self:?}");
        }
    }
}

impl Memory for Objects {
    fn check(&self, _: &Machine, disk: &SimDisk, _: End, what: &str) {
        let read = files(disk, Mode::ReadOnly).ok().map(|reader| self.seen(&reader));
        let storage = files(disk, Mode::Write).unwrap();
        let is_deleted = storage.is_deleted(&id()).unwrap();
        let seen = self.seen(&storage);
        self.assert_promised(&seen, is_deleted, what);
        assert!(read.is_none_or(|read| read == seen), "{what}: a reader saw something else");
        assert_eq!(storage.findings(), [], "{what}");
        let is_temp = |path: &Path| path.to_string_lossy().contains("_tmp") && !path.starts_with("/data/_tombstones");
        let temps: Vec<_> = disk.files().into_keys().filter(|path| is_temp(path)).collect();
        assert!(temps.is_empty(), "{what}: {temps:?} are left");
        // An attachment that is put again is acknowledged, and that holds.
        let tried = self.tried.iter().filter_map(|(name, tried)| Some((name, tried.as_ref()?)));
        let attachments = self.acknowledged.iter().chain(tried).filter(|(name, _)| name.0 == ObjectKind::Attachment);
        let expected = if is_deleted { PutObject::Deleted } else { PutObject::Stored };
        for ((kind, key), bytes) in attachments.clone() {
            assert_eq!(storage.put_object(&id(), *kind, key, bytes).unwrap(), expected, "{what}");
        }
        drop(storage);
        disk.power_cut(Crash::LoseAll);
        let storage = files(disk, Mode::Write).unwrap();
        for ((kind, key), bytes) in attachments {
            let found = storage.object(&id(), *kind, key).unwrap();
            assert!(found.as_ref() == Some(bytes).filter(|_| !is_deleted), "{what}: put again");
        }
        for folder in ["_attachments", "_branches"] {
            let is_left = disk.stat(&Path::new(DATA).join(folder).join("s")).is_ok();
            assert!(!is_deleted || !is_left, "{what}: {folder} of a deleted session");
        }
    }
}

fn key(bytes: &[u8]) -> String {
    AttachmentId::of_bytes(bytes).to_string()
}

fn with_document(disk: &SimDisk, _: &mut Objects) -> Result<(), StoreError> {
    let storage = files(disk, Mode::Write)?;
    storage.put_document(&id(), b"{}", &Put { expected: Expected::Absent, keep_replaced: false })?;
    Ok(())
}

const LARGE: [u8; 10_000] = [7; 10_000];

#[test]
fn an_object_that_is_put_is_the_old_one_the_new_one_or_nothing_wherever_that_is_cut() {
    USUAL.crash_everywhere::<Objects>(&with_document, &|disk, told| {
        let storage = files(disk, Mode::Write)?;
        told.put(&storage, ObjectKind::Attachment, &key(&LARGE), &LARGE)?;
        told.put(&storage, ObjectKind::AttachmentInfo, &key(&LARGE), b"{}")?;
        told.put(&storage, ObjectKind::Attachment, &key(&LARGE), &LARGE)
    });
    USUAL.crash_everywhere::<Objects>(&with_document, &|disk, told| {
        let storage = files(disk, Mode::Write)?;
        told.put(&storage, ObjectKind::Branch, "b", b"old")?;
        told.put(&storage, ObjectKind::Branch, "b", &LARGE)?;
        told.put(&storage, ObjectKind::Branch, "c", b"other")
    });
}

#[test]
fn an_object_that_is_removed_is_there_or_not_wherever_that_is_cut() {
    let before = |disk: &SimDisk, told: &mut Objects| {
        let storage = files(disk, Mode::Write)?;
        told.put(&storage, ObjectKind::Branch, "a", b"a")?;
        told.put(&storage, ObjectKind::Branch, "b", b"b")
    };
    USUAL.crash_everywhere::<Objects>(&before, &|disk, told| {
        told.remove(&files(disk, Mode::Write)?, ObjectKind::Branch, "a")
    });
}

#[test]
fn a_deletion_takes_the_objects_of_its_session_with_it_wherever_that_is_cut() {
    let before = |disk: &SimDisk, told: &mut Objects| {
        with_document(disk, told)?;
        let storage = files(disk, Mode::Write)?;
        told.put(&storage, ObjectKind::Attachment, &key(b"a"), b"a")?;
        told.put(&storage, ObjectKind::Branch, "b", b"b")
    };
    USUAL.crash_everywhere::<Objects>(&before, &|disk, told| {
        let storage = files(disk, Mode::Write)?;
        told.delete(&storage)?;
        let late = storage.put_object(&id(), ObjectKind::Branch, "late", b"late")?;
        assert_eq!(late, PutObject::Deleted);
        Ok(())
    });
}

/// Attachments that were acknowledged, and those that were tried.
#[derive(Debug, Default, Clone)]
struct Attached {
    stored: Vec<Attachment>,
    tried: Vec<&'static [u8]>,
}

impl Attached {
    fn put(&mut self, store: &Store, bytes: &'static [u8], media_type: &str) -> Result<(), StoreError> {
        self.tried.push(bytes);
        self.stored.push(store.put_attachment(&id(), bytes, media_type, Some("a.png"))?);
        Ok(())
    }
}

impl Memory for Attached {
    fn check(&self, machine: &Machine, disk: &SimDisk, _: End, what: &str) {
        let store = machine.open(disk).unwrap();
        for stored in &self.stored {
            assert_eq!(store.attachment(&id(), &stored.id).unwrap().as_ref(), Some(stored), "{what}");
            let bytes = store.attachment_bytes(&id(), &stored.id).unwrap().expect("it was acknowledged");
            assert_eq!(AttachmentId::of_bytes(&bytes), stored.id, "{what}");
        }
        let infos: Vec<_> =
            disk.files().into_keys().filter(|path| path.extension().is_some_and(|end| end == "info")).collect();
        for info in infos {
            assert!(disk.stat(&info.with_extension("")).is_ok(), "{what}: {} without its bytes", info.display());
        }
        for bytes in &self.tried {
            let attachment = AttachmentId::of_bytes(bytes);
            if let Some(found) = store.attachment(&id(), &attachment).unwrap() {
                let media_types = ["image/png", "application/octet-stream"];
                assert!(media_types.contains(&found.media_type.as_str()), "{what}: {found:?}");
                assert_eq!(found.bytes, bytes.len() as u64, "{what}");
                assert_eq!(store.attachment_bytes(&id(), &attachment).unwrap().as_deref(), Some(*bytes), "{what}");
            }
            store.put_attachment(&id(), bytes, "image/png", Some("a.png")).unwrap();
        }
        drop(store);
        disk.power_cut(Crash::LoseAll);
        let store = machine.open(disk).unwrap();
        for bytes in &self.tried {
            let found = store.attachment(&id(), &AttachmentId::of_bytes(bytes)).unwrap();
            assert_eq!(found.map(|found| found.media_type), Some("image/png".to_owned()), "{what}: put again");
        }
    }
}

#[test]
fn an_attachment_is_acknowledged_when_it_is_durable_and_its_bytes_are_before_what_is_known_of_them() {
    let before = |disk: &SimDisk, _: &mut Attached| open(disk)?.create(NewSession::titled("x").with_id(id())).map(drop);
    USUAL.crash_everywhere::<Attached>(&before, &|disk, told| {
        let store = open(disk)?;
        told.put(&store, &LARGE, "image/png")?;
        told.put(&store, b"", "image/png")?;
        told.put(&store, &LARGE, "image/jpeg")
    });
}

/// What fails is reported as what it is, leaves nothing to be seen, and nothing that takes room.
#[test]
fn an_attachment_that_finds_no_room_leaves_nothing_and_is_stored_when_there_is_room() {
    let (fresh, _) = prepared(created);
    for operation in 1.. {
        let disk = fresh.copy();
        let store = open(&disk).unwrap();
        let (before, first) = (disk.files().len(), disk.operations());
        disk.fail(first + operation, Fault::Enospc);
        let stored = store.put_attachment(&id(), &LARGE, "image/png", None);
        if disk.operations() < first + operation {
            stored.unwrap();
            assert!(operation > 10, "only {operation} operations");
            return;
        }
        let what = format!("operation {operation}: {}", disk.log().last().unwrap());
        let attachment = AttachmentId::of_bytes(&LARGE);
        match stored {
            // A directory fsync that fails stops the store, whatever it found.
            Err(_) if !store.is_writable() => {}
            Err(error) => {
                assert_eq!(error.code(), "no_space", "{what}: {error:?}");
                if store.attachment(&id(), &attachment).unwrap().is_none() {
                    assert_eq!(disk.files().len(), before, "{what}: something is left");
                }
                let stored = store.put_attachment(&id(), &LARGE, "image/png", None).unwrap();
                assert_eq!(stored.media_type, "image/png", "{what}");
            }
            Ok(_) => panic!("{what}: it was acknowledged"),
        }
    }
}

#[test]
fn nothing_is_put_after_a_failed_fsync() {
    let (disk, _) = prepared(created);
    let storage = files(&disk, Mode::Write).unwrap();
    disk.break_syncs(disk.operations() + 1);
    let failed = storage.put_object(&id(), ObjectKind::Branch, "b", b"b");
    assert!(failed.is_err());
    assert!(!storage.can_write());
    for attempt in 0..2 {
        assert!(storage.put_object(&id(), ObjectKind::Branch, "c", b"c").is_err(), "attempt {attempt}");
        assert!(storage.remove_object(&id(), ObjectKind::Branch, "b").is_err(), "attempt {attempt}");
    }
    assert_eq!(storage.object(&id(), ObjectKind::Branch, "c").unwrap(), None);
}
