//! Sessions: what a save refuses, keeps and carries over; the list; deletion.

use std::collections::HashSet;
use std::sync::{Arc, Barrier};

use lastword::{List, NewSession, Outcome, Row, SaveIntent, SaveOptions, SidecarError, StoreError};

use crate::fixture::fixture;

#[test]
fn of_two_changes_of_one_version_the_second_is_a_conflict() {
    let fixture = fixture();
    let first = fixture.store.get_session(&fixture.id).unwrap();
    let (mut one, mut two) = ((*first).clone(), (*first).clone());
    one.set_text("title", "one");
    two.set_text("title", "two");
    let saved = fixture.store.save(&one, SaveOptions::default()).unwrap();
    let conflict = fixture.store.save(&two, SaveOptions::default()).unwrap_err();
    assert!(matches!(conflict, StoreError::Sidecar(SidecarError::Conflict { .. })));
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().revision(), saved.revision());
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().title(), "one");
}

#[test]
fn a_save_without_a_change_of_what_another_program_replaced_or_removed_is_a_conflict() {
    let fixture = fixture();
    let path = fixture.folder.path().join(format!("{}.json", fixture.id));
    let quiet = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
    let session = fixture.store.get_session(&fixture.id).unwrap();
    assert_eq!(fixture.store.save(&session, quiet).unwrap().revision(), session.revision(), "nothing is written");
    let text = std::fs::read_to_string(&path).unwrap().replace("A title", "Another title");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(fixture.store.save(&session, quiet).unwrap_err().code(), "conflict");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(fixture.store.save(&session, quiet).unwrap_err().code(), "conflict");
    assert!(!path.exists());
}

/// However late: file systems keep the last time that they know instead.
#[test]
fn a_session_whose_file_is_of_the_far_future_is_saved() {
    let fixture = fixture();
    let path = fixture.folder.path().join(format!("{}.json", fixture.id));
    for year in [2300_u64, 2600, 9999, 200_000] {
        let moment = std::time::UNIX_EPOCH + std::time::Duration::from_secs((year - 1970) * 31_556_952);
        // A file system that does not know the time at all has nothing to be tried.
        if std::fs::File::options().write(true).open(&path).unwrap().set_modified(moment).is_ok() {
            let title = year.to_string();
            let saved =
                fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set_text("title", &title));
            assert_eq!(saved.unwrap_or_else(|error| panic!("{year}: {error:?}")).title(), title);
        }
    }
}

#[test]
fn fifty_updates_at_once_all_count() {
    let fixture = fixture();
    let barrier = Arc::new(Barrier::new(50));
    let threads: Vec<_> = (0..50)
        .map(|number| {
            let (store, id, barrier) = (fixture.store.clone(), fixture.id.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                let row = Row::user(&number.to_string(), number);
                store.update(&id, SaveOptions::default(), |session| session.push_message(&row).unwrap()).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let contents: HashSet<_> = fixture.rows().into_iter().map(|(_, content)| content).collect();
    assert_eq!(contents.len(), 50);
}

#[test]
fn a_shrinking_save_needs_stated_intent() {
    let fixture = fixture();
    fixture.begin("x").finish(Outcome::Completed).unwrap();
    let mut shorter = (*fixture.store.get_session(&fixture.id).unwrap()).clone();
    shorter.truncate(List::Messages, 0).unwrap();
    let refused = fixture.store.save(&shorter, SaveOptions::default()).unwrap_err();
    assert!(matches!(refused, StoreError::Sidecar(SidecarError::WouldShrink { from: 1, to: 0, .. })), "{refused}");
    assert_eq!(fixture.rows().len(), 1);
    let meant = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
    fixture.store.save(&shorter, meant).unwrap();
    assert!(fixture.rows().is_empty());
}

#[test]
fn a_damaged_sidecar_is_replaced_only_on_demand_and_then_kept() {
    let fixture = fixture();
    let session = (*fixture.store.get_session(&fixture.id).unwrap()).clone();
    let path = fixture.folder.path().join(format!("{}.json", fixture.id));
    std::fs::write(&path, b"\xff garbage").unwrap();
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap_err().code(), "corrupt_utf8");
    assert_eq!(fixture.store.save(&session, SaveOptions::default()).unwrap_err().code(), "conflict");
    let again = NewSession::titled("again").with_id(fixture.id.clone());
    assert_eq!(fixture.store.create(again).unwrap_err().code(), "exists");
    assert_eq!(std::fs::read(&path).unwrap(), b"\xff garbage");
    let replace = SaveOptions { intent: SaveIntent::Replace, ..SaveOptions::default() };
    fixture.store.save(&session, replace).unwrap();
    let kept = std::fs::read_dir(fixture.folder.path().join("_kept").join(fixture.id.as_str())).unwrap();
    let kept: Vec<_> = kept.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert_eq!(kept, [b"\xff garbage".to_vec()]);
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().title(), "A title");
}

#[test]
fn a_deleted_id_does_not_come_back() {
    let fixture = fixture();
    let stale = (*fixture.store.get_session(&fixture.id).unwrap()).clone();
    fixture.store.delete(&fixture.id).unwrap();
    assert_eq!(fixture.store.save(&stale, SaveOptions::default()).unwrap_err().code(), "deleted");
    let again = NewSession::titled("again").with_id(fixture.id.clone());
    assert_eq!(fixture.store.create(again).unwrap_err().code(), "deleted");
    assert_eq!(fixture.store.delete(&fixture.id).unwrap_err().code(), "not_found");
    assert!(fixture.store.list().unwrap().is_empty());
}

#[test]
fn a_list_is_sorted_by_change_and_one_bad_file_does_not_block_it() {
    let fixture = fixture();
    let newer = fixture.store.create(NewSession::titled("newer")).unwrap();
    std::fs::write(fixture.folder.path().join("bad.json"), b"[").unwrap();
    std::fs::write(fixture.folder.path().join(".DS_Store"), b"x").unwrap();
    let listed = fixture.store.list().unwrap();
    let ids: Vec<_> = listed.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, [newer.as_str(), fixture.id.as_str(), "bad"]);
    assert_eq!(listed[2].summary.as_ref().unwrap_err().code(), "corrupt_json");
    fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set("pinned", "true")).unwrap();
    assert_eq!(fixture.store.list().unwrap()[0].id, fixture.id);
}

#[test]
fn unknown_keys_inside_rows_and_cards_survive_a_turn() {
    let fixture = fixture();
    let odd = r#"{"role":"user","content":[{"type":"image"}],"x-custom":{"deep":[1.50,"\ud800"]}}"#;
    let card = r#"{"tid":"t","vendor":{"k":null}}"#;
    fixture
        .store
        .update(&fixture.id, SaveOptions::default(), |session| {
            session.push_item(List::Messages, odd).unwrap();
            session.push_item(List::ToolCalls, card).unwrap();
            session.push_item(List::ContextMessages, odd).unwrap();
            session.set("application_key", r#"{"nested": [true]}"#);
        })
        .unwrap();
    fixture.begin("next").finish(Outcome::Completed).unwrap();
    let session = fixture.store.get_session(&fixture.id).unwrap();
    assert_eq!(session.texts(List::Messages).next(), Some(odd));
    assert_eq!(session.texts(List::ToolCalls).next(), Some(card));
    assert_eq!(session.get("application_key"), Some(r#"{"nested": [true]}"#));
    assert_eq!(session.len(List::ContextMessages), 2, "the model's view goes on with the turn");
}

#[cfg(unix)]
#[test]
fn files_and_folders_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = fixture();
    let run = fixture.begin("x");
    run.finish(Outcome::Completed).unwrap();
    fixture.store.delete(&fixture.id).unwrap();
    let mut folders = vec![fixture.folder.path().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let metadata = entry.metadata().unwrap();
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode, if metadata.is_dir() { 0o700 } else { 0o600 }, "{}", entry.path().display());
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} names");
}

#[test]
fn what_is_not_json_is_not_saved() {
    let fixture = fixture();
    let refused = fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set("model", "gpt"));
    assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    let refused = fixture.store.update(&fixture.id, SaveOptions::default(), |session| {
        session.push_item(List::Messages, "{\"role\":").unwrap();
    });
    assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    assert_eq!(fixture.store.get_session(&fixture.id).unwrap().title(), "A title");
}
