//! The small files: the store's identity, run records, tombstones, the lock. Through the store on the simulated disk.

use std::path::Path;

use lastword::storage::StorageError;
use lastword::{Event, NewSession, ReadOptions, Store, StoreError};

use crate::data::{Data, NOW, open, open_to_read, read, rid, sid};
use crate::mutations::{Mutation, all};

/// What a store tells of rows and events.
fn contents(store: &Store) -> Vec<String> {
    let mut told: Vec<String> = store.list().unwrap().iter().map(|entry| entry.id.to_string()).collect();
    for id in [sid("good"), sid("bad")] {
        let session = store.get_session_for_scan(&id).unwrap();
        told.extend(session.messages().map(|row| row.content().into_owned()));
        for run in store.runs(&id).unwrap() {
            let found = store.read_events(&id, &run, ReadOptions::default()).unwrap();
            told.extend(found.events.into_iter().map(|event| event.line));
            told.push(format!("{run}: {:?}", found.damage));
        }
    }
    told
}

/// Which of many accidents are worth a look at everything.
const LOOK_EVERY: usize = 16;

/// What is told of a directory to which nothing happened.
fn whole(data: &Data) -> Vec<String> {
    contents(&open_to_read(&data.disk_with("", b"")).unwrap())
}

#[test]
fn with_any_identity_everything_can_be_read_and_a_writer_is_told_what_is_wrong() {
    let data = Data::new();
    let whole = whole(&data);
    let identity = data.bytes("_lastword.json").to_vec();
    for (number, mutation) in all(identity.len()).enumerate() {
        let bytes = mutation.of(&identity);
        let disk = data.disk_with("_lastword.json", &bytes);
        let reader = open_to_read(&disk).unwrap();
        assert_eq!(reader.list().unwrap().len(), 2, "{mutation:?}");
        assert!(number % LOOK_EVERY > 0 || contents(&reader) == whole, "{mutation:?}");
        let is_torn = matches!(mutation, Mutation::Cut(len) if len + 1 < identity.len());
        match open(&disk, NOW) {
            Ok(store) => {
                assert!(!is_torn && store.get_session(&sid("good")).is_ok(), "{mutation:?}");
                assert!(number % LOOK_EVERY > 0 || contents(&store) == whole, "{mutation:?}");
            }
            Err(StoreError::Storage(StorageError::Damaged { path, .. } | StorageError::NewerFormat { path, .. })) => {
                assert!(path.ends_with("_lastword.json"));
                assert_eq!(read(&disk, Path::new("_lastword.json")), bytes, "{mutation:?}: left as it is");
            }
            Err(error) => panic!("{mutation:?}: {error:?}"),
        }
    }
}

#[test]
fn with_any_lock_note_a_writer_opens_the_store() {
    let data = Data::new();
    let whole = whole(&data);
    let note = data.bytes("_lock").to_vec();
    for mutation in all(note.len()).step_by(31) {
        let disk = data.disk_with("_lock", &mutation.of(&note));
        assert!(contents(&open(&disk, NOW).unwrap()) == whole, "{mutation:?}");
    }
}

/// A record says who may append. Whatever becomes of it, no event is lost and no number is given twice.
#[test]
fn with_any_run_record_all_events_are_there_and_no_number_is_given_again() {
    let data = Data::new();
    let whole = whole(&data);
    for run in ["open", "adopted", "first"] {
        let path = format!("_run_journal/bad/_{run}.run");
        let record = data.bytes(&path).to_vec();
        let last_seq = open_to_read(&data.disk_with("", b"")).unwrap().run_summary(&sid("bad"), &rid(run));
        let last_seq = last_seq.unwrap().unwrap().last_seq;
        for (number, mutation) in all(record.len()).enumerate() {
            let disk = data.disk_with(&path, &mutation.of(&record));
            let store = open(&disk, NOW).unwrap();
            assert!(number % LOOK_EVERY > 0 || contents(&store) == whole, "{run}: {mutation:?}");
            match store.resume_run(&sid("bad"), &rid(run)).and_then(|open| open.append(Event::token("more"))) {
                Ok(appended) => assert!(appended.first_seq > last_seq, "{run}: {mutation:?}"),
                Err(error) => assert!(matches!(error.code(), "fenced" | "sealed"), "{run}: {mutation:?}: {error:?}"),
            }
            let found = store.read_events(&sid("bad"), &rid(run), ReadOptions::default()).unwrap();
            let numbers: Vec<u64> = found.events.iter().map(|event| event.seq.unwrap()).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{run}: {mutation:?}: {numbers:?}");
        }
    }
}

#[test]
fn with_any_record_of_a_removed_run_the_others_are_as_they_were() {
    let data = Data::new();
    let whole = whole(&data);
    let path = "_run_journal/bad/_removed.run";
    let record = data.bytes(path).to_vec();
    for (number, mutation) in all(record.len()).enumerate() {
        let disk = data.disk_with(path, &mutation.of(&record));
        let store = open(&disk, NOW).unwrap();
        assert!(number % LOOK_EVERY > 0 || contents(&store) == whole, "{mutation:?}");
        assert!(!store.runs(&sid("bad")).unwrap().contains(&rid("removed")), "{mutation:?}");
    }
}

/// A tombstone counts by being there. What it says only names a folder in the trash.
#[test]
fn with_any_tombstone_the_session_stays_deleted_and_what_was_left_of_it_goes_to_the_trash() {
    let mut data = Data::new();
    let tombstone = data.bytes("_tombstones/gone.json").to_vec();
    let (sidecar, name) = (data.path("_trash/gone.", "/session.json"), Path::new("gone.json"));
    let left = data.files.remove(Path::new(&sidecar)).unwrap();
    data.files.insert(name.to_owned(), left.clone());
    for mutation in all(tombstone.len()) {
        let disk = data.disk_with("_tombstones/gone.json", &mutation.of(&tombstone));
        for store in [open_to_read(&disk).unwrap(), open(&disk, NOW).unwrap()] {
            assert!(matches!(store.get_session(&sid("gone")), Err(StoreError::NotFound { .. })), "{mutation:?}");
            assert_eq!(store.list().unwrap().len(), 2, "{mutation:?}");
        }
        let again = open(&disk, NOW).unwrap().create(NewSession::titled("again").with_id(sid("gone")));
        assert_eq!(again.unwrap_err().code(), "deleted", "{mutation:?}");
        let kept = crate::data::files_of(&disk, Path::new("/data/_trash"));
        assert!(kept.values().any(|bytes| *bytes == left), "{mutation:?}: the sidecar is not in the trash");
        assert!(kept.keys().all(|path| path.starts_with("_trash")), "{mutation:?}");
    }
}
