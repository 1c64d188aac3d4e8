//! Attachments that are stored while their session is deleted, and by two threads at once.

use lastword::storage::sim::schedule::{Explorer, spawn};
use lastword::storage::sim::{Crash, SimDisk};
use lastword::{AttachmentId, Store};

use crate::world::{Trial, session_id};

/// A put is acknowledged before the deletion, and then the attachment is in the trash, or it is refused: nothing of the
/// session is left in its place.
#[test]
fn an_attachment_that_meets_the_deletion_of_its_session_is_in_the_trash_or_refused() {
    Trial::default().run(|world| {
        let store = world.open();
        let storing = store.clone();
        let stores =
            spawn("storer", move || storing.put_attachment(&session_id("a"), b"x", "text/plain", None).is_ok());
        world.with_acks(|acks| acks.deleted.insert("a".to_owned(), false));
        store.delete(&session_id("a")).unwrap();
        world.with_acks(|acks| acks.deleted.insert("a".to_owned(), true));
        let is_stored = stores.join();
        let files = world.disk.files();
        let name = AttachmentId::of_bytes(b"x").to_string();
        assert!(!files.keys().any(|path| path.starts_with("/data/_attachments")), "{:?}", files.keys());
        assert!(!files.keys().any(|path| path.to_string_lossy().contains("_tmp")), "{:?}", files.keys());
        let is_in_trash = files.keys().any(|path| path.starts_with("/data/_trash") && path.ends_with(&name));
        assert!(is_in_trash || !is_stored, "it was acknowledged and is gone");
        assert_eq!(store.attachment(&session_id("a"), &AttachmentId::of_bytes(b"x")).unwrap(), None);
    });
}

/// Each of two threads that store the same bytes has its answer when they are durable, with a media type that stays.
#[test]
fn the_same_attachment_of_two_threads_is_durable_for_both() {
    let explorer = Explorer { singles_max: 200, pairs_max: 4_000, seeds: 100, ..Explorer::default() };
    let open =
        |disk: &SimDisk| Store::open_on(std::sync::Arc::new(disk.clone()), "/data", lastword::Options::default());
    explorer.explore(
        move || {
            let disk = SimDisk::new();
            let store = open(&disk).unwrap();
            let id = session_id("a");
            store.create(lastword::NewSession::titled("x").with_id(id.clone())).unwrap();
            let (storing, other, seen) = (store.clone(), id.clone(), disk.clone());
            let put = move || {
                storing.put_attachment(&other, b"x", "image/png", None).unwrap();
                seen.copy()
            };
            let stores = spawn("storer", put);
            store.put_attachment(&id, b"x", "image/png", None).unwrap();
            let disks = [disk.copy(), stores.join()];
            (disks, id)
        },
        move |(disks, id)| {
            for disk in disks {
                disk.power_cut(Crash::LoseAll);
                let found = open(&disk).unwrap().attachment(&id, &AttachmentId::of_bytes(b"x")).unwrap();
                assert_eq!(found.map(|found| found.media_type).as_deref(), Some("image/png"));
            }
        },
    );
}
