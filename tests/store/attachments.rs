//! Attachments: stored once by content hash, within their bounds, gone with their session.

use std::fs;
use std::path::PathBuf;

use lastword::limits::{ATTACHMENT_BYTES_MAX, ATTACHMENT_NAME_BYTES_MAX, MEDIA_TYPE_BYTES_MAX};
use lastword::{AttachmentId, Options, SessionId, Store};

use crate::fixture::{Fixture, fixture};

impl Fixture {
    fn attachment_files(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("_attachments").join(self.id.as_str());
        let mut files: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

#[test]
fn an_attachment_is_found_by_the_hash_of_its_bytes_by_every_reader() {
    let Fixture { folder, store, id } = fixture();
    let stored = store.put_attachment(&id, b"picture", "image/png", Some("a b \u{1f30a}.png")).unwrap();
    assert_eq!(stored.id, AttachmentId::of_bytes(b"picture"));
    assert_eq!((stored.media_type.as_str(), stored.bytes), ("image/png", 7));
    assert_eq!(stored.filename.as_deref(), Some("a b \u{1f30a}.png"));
    let reader = Store::open_read_only(folder.path(), Options::default()).unwrap();
    for store in [&store, &reader] {
        assert_eq!(store.attachment(&id, &stored.id).unwrap().as_ref(), Some(&stored));
        assert_eq!(store.attachment_bytes(&id, &stored.id).unwrap().as_deref(), Some(&b"picture"[..]));
        let other = AttachmentId::of_bytes(b"other");
        assert_eq!(store.attachment(&id, &other).unwrap(), None);
        assert_eq!(store.attachment_bytes(&id, &other).unwrap(), None);
    }
    let refused = reader.put_attachment(&id, b"picture", "image/png", None).unwrap_err();
    assert_eq!(refused.code(), "read_only");
}

#[test]
fn the_same_bytes_are_stored_once_and_a_repeat_writes_nothing() {
    let fixture = fixture();
    let (store, id) = (&fixture.store, &fixture.id);
    let first = store.put_attachment(id, b"picture", "image/png", Some("a.png")).unwrap();
    let look = || fixture.attachment_files().into_iter().map(|path| (fs::metadata(&path).unwrap(), path));
    let times = || look().map(|(found, path)| (found.modified().unwrap(), path)).collect::<Vec<_>>();
    let before = times();
    assert_eq!(before.len(), 2, "its bytes, and what is known of them: {before:?}");
    let again = store.put_attachment(id, b"picture", "image/jpeg", Some("b.jpg")).unwrap();
    assert_eq!(again, first, "the first media type and file name stay");
    assert_eq!(times(), before);
}

#[test]
fn an_empty_attachment_is_one_and_its_session_must_be_there() {
    let Fixture { store, id, folder: _folder } = fixture();
    let empty = store.put_attachment(&id, b"", "text/plain", None).unwrap();
    assert_eq!((empty.bytes, empty.filename.as_deref()), (0, None));
    assert_eq!(store.attachment_bytes(&id, &empty.id).unwrap().as_deref(), Some(&b""[..]));
    let other = SessionId::parse("other").unwrap();
    assert_eq!(store.put_attachment(&other, b"x", "text/plain", None).unwrap_err().code(), "not_found");
    assert_eq!(store.attachment(&other, &empty.id).unwrap(), None, "an attachment belongs to its session");
}

#[test]
fn the_attachments_of_a_deleted_session_are_in_the_trash() {
    let fixture = fixture();
    let (store, id) = (&fixture.store, &fixture.id);
    let stored = store.put_attachment(id, b"picture", "image/png", None).unwrap();
    store.delete(id).unwrap();
    assert_eq!(store.attachment(id, &stored.id).unwrap(), None);
    assert_eq!(store.attachment_bytes(id, &stored.id).unwrap(), None);
    assert_eq!(store.put_attachment(id, b"picture", "image/png", None).unwrap_err().code(), "not_found");
    let trash = fs::read_dir(fixture.folder.path().join("_trash")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read(trash.join("attachments").join(stored.id.as_str())).unwrap(), b"picture");
    assert!(fixture.attachment_files().is_empty());
}

#[test]
fn bytes_without_what_is_known_of_them_are_of_an_unknown_type_until_they_are_put_again() {
    let fixture = fixture();
    let (store, id) = (&fixture.store, &fixture.id);
    let stored = store.put_attachment(id, b"picture", "image/png", Some("a.png")).unwrap();
    let info = fixture.attachment_files().into_iter().find(|path| path.extension().is_some()).unwrap();
    let line = fs::read(&info).unwrap();
    for damage in [None, Some(&b""[..]), Some(&line[..20]), Some(b"{}\n"), Some(b"\xff\xfe"), Some(b"null")] {
        match damage {
            None => fs::remove_file(&info).unwrap(),
            Some(bytes) => fs::write(&info, bytes).unwrap(),
        }
        let unknown = store.attachment(id, &stored.id).unwrap().unwrap();
        assert_eq!((unknown.media_type.as_str(), unknown.filename), ("application/octet-stream", None), "{damage:?}");
        assert_eq!(unknown.bytes, 7);
        assert_eq!(store.put_attachment(id, b"picture", "image/png", Some("a.png")).unwrap(), stored, "{damage:?}");
        assert_eq!(store.attachment(id, &stored.id).unwrap().as_ref(), Some(&stored));
        assert_eq!(fs::read(&info).unwrap(), line);
    }
}

#[test]
fn bytes_that_were_changed_are_never_given_out_and_healed_by_the_next_put() {
    let fixture = fixture();
    let (store, id) = (&fixture.store, &fixture.id);
    let stored = store.put_attachment(id, b"picture", "image/png", None).unwrap();
    let path = fixture.attachment_files().into_iter().find(|path| path.extension().is_none()).unwrap();
    for damage in [&b"pictures"[..], b"picturE", b""] {
        fs::write(&path, damage).unwrap();
        let refused = store.attachment_bytes(id, &stored.id).unwrap_err();
        assert!(refused.to_string().contains(stored.id.as_str()), "{refused}");
        store.put_attachment(id, b"picture", "image/png", None).unwrap();
        assert_eq!(store.attachment_bytes(id, &stored.id).unwrap().as_deref(), Some(&b"picture"[..]));
    }
}

#[test]
fn what_is_beyond_the_bounds_of_an_attachment_is_refused_and_nothing_is_stored() {
    let fixture = fixture();
    let (store, id) = (&fixture.store, &fixture.id);
    let large = vec![0; ATTACHMENT_BYTES_MAX + 1];
    assert_eq!(store.put_attachment(id, &large, "image/png", None).unwrap_err().code(), "too_large");
    let long = format!("image/{}", "x".repeat(MEDIA_TYPE_BYTES_MAX - 5));
    for bad in ["", "image", "image/", "/png", "image/png\r\nx: y", "image/p ng", "a/b/c", "image/\u{e9}", &long] {
        let refused = store.put_attachment(id, b"x", bad, None).unwrap_err();
        assert_eq!(refused.code(), "invalid_argument", "{bad:?}");
    }
    let long = "x".repeat(ATTACHMENT_NAME_BYTES_MAX + 1);
    for bad in ["a\nb", "a\0b", "\u{85}", &long] {
        let refused = store.put_attachment(id, b"x", "image/png", Some(bad)).unwrap_err();
        assert_eq!(refused.code(), "invalid_argument", "{bad:?}");
    }
    assert!(fixture.attachment_files().is_empty());
    let media_types = ["image/svg+xml", "text/plain; charset=utf-8", "application/vnd.openxmlformats-officedocument"];
    for (at, media_type) in media_types.into_iter().enumerate() {
        let stored = store.put_attachment(id, &[at as u8], media_type, Some("../../etc/passwd")).unwrap();
        assert_eq!(stored.media_type, media_type);
    }
    store.put_attachment(id, &large[1..], "image/png", None).unwrap();
}

#[test]
fn a_type_that_says_nothing_gives_way_to_one_that_does() {
    let Fixture { store, id, folder: _folder } = fixture();
    for vague in ["application/octet-stream", "application/x-www-form-urlencoded"] {
        let bytes = vague.as_bytes();
        store.put_attachment(&id, bytes, vague, None).unwrap();
        let named = store.put_attachment(&id, bytes, "image/png", Some("a.png")).unwrap();
        assert_eq!((&*named.media_type, named.filename.as_deref()), ("image/png", Some("a.png")));
        assert_eq!(store.put_attachment(&id, bytes, vague, None).unwrap(), named);
    }
}
