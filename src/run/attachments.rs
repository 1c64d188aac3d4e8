//! The attachments of the message that is answered, resolved for a runner: a reference to stored bytes becomes the bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use crate::limits::CONTEXT_STORED_BYTES_MAX;
use crate::model::{Attachment, AttachmentId, Object, SessionId};
use crate::store::Store;

/// Where stored attachments are read.
pub(super) trait Attachments {
    /// What is known of an attachment; nothing if it is not there or cannot be read.
    fn known(&self, id: &AttachmentId) -> Option<Attachment>;
    /// Its bytes; nothing if they are not there or cannot be read.
    fn bytes(&self, id: &AttachmentId) -> Option<Vec<u8>>;
}

/// The attachments of a session.
pub(super) struct Stored<'a> {
    pub(super) store: &'a Store,
    pub(super) session: &'a SessionId,
}

impl Attachments for Stored<'_> {
    fn known(&self, id: &AttachmentId) -> Option<Attachment> {
        self.store.attachment(self.session, id).ok().flatten()
    }

    fn bytes(&self, id: &AttachmentId) -> Option<Vec<u8>> {
        self.store.attachment_bytes(self.session, id).ok().flatten()
    }
}

/// A JSON list of attachments with a data URL in the place of each `lastword:` URL. The URL stays where nothing is stored,
/// and where the list would hold more than [`CONTEXT_STORED_BYTES_MAX`] bytes of files. Whatever is no list stays as it is.
pub(super) fn resolved(list: &str, stored: &impl Attachments) -> String {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(list) else { return list.to_owned() };
    if !list.contains("lastword:") {
        return list.to_owned();
    }
    let mut room = CONTEXT_STORED_BYTES_MAX;
    let items = items.into_iter().map(|item| match resolve(item.get(), stored, &mut room) {
        Some(resolved) => resolved,
        None => item.get().to_owned(),
    });
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn resolve(item: &str, stored: &impl Attachments, room: &mut u64) -> Option<String> {
    let mut item = Object::parse(item)?;
    let id = AttachmentId::of_url(&item.text("url")?)?;
    let known = stored.known(&id).filter(|known| known.bytes <= *room)?;
    let bytes = stored.bytes(&id)?;
    *room = room.saturating_sub(bytes.len() as u64);
    let media_type = item.text("mediaType").filter(|kind| !kind.is_empty());
    let media_type = media_type.map_or(known.media_type, |kind| kind.into_owned());
    item.set_text("url", &format!("data:{media_type};base64,{}", STANDARD.encode(bytes)));
    Some(item.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few bytes that are stored, and how many bytes are said to be there.
    struct Shelf(&'static [u8], u64);

    impl Attachments for Shelf {
        fn known(&self, id: &AttachmentId) -> Option<Attachment> {
            let is_here = *id == AttachmentId::of_bytes(self.0);
            let known = || Attachment { id: id.clone(), media_type: "image/png".into(), filename: None, bytes: self.1 };
            is_here.then(known)
        }

        fn bytes(&self, id: &AttachmentId) -> Option<Vec<u8>> {
            self.known(id).map(|_| self.0.to_vec())
        }
    }

    #[track_caller]
    fn check(list: &str, expected: &str) {
        assert_eq!(resolved(list, &Shelf(b"abc", 3)), expected);
    }

    fn url() -> String {
        AttachmentId::of_bytes(b"abc").to_url()
    }

    #[test]
    fn a_reference_becomes_a_data_url_and_everything_else_stays() {
        check(
            &format!(r#"[{{"type":"file","mediaType":"image/webp","url":"{}","x":[1, 2]}}, "notes.pdf"]"#, url()),
            r#"[{"type":"file","mediaType":"image/webp","url":"data:image/webp;base64,YWJj","x":[1, 2]},"notes.pdf"]"#,
        );
        check(&format!(r#"[{{"url":"{}"}}]"#, url()), r#"[{"url":"data:image/png;base64,YWJj"}]"#);
        for list in ["[]", r#"[{"url":"https://x/a.png"}, null]"#, "lastword:", r#"{"url":"lastword:"}"#] {
            check(list, list);
        }
    }

    #[test]
    fn what_is_not_stored_or_too_large_stays_a_reference() {
        let other = format!(r#"[{{"url":"{}"}}]"#, AttachmentId::of_bytes(b"other").to_url());
        check(&other, &other);
        let list = format!(r#"[{{"url":"{}"}}]"#, url());
        assert_eq!(resolved(&list, &Shelf(b"abc", CONTEXT_STORED_BYTES_MAX + 1)), list);
    }
}
