//! Attachments of sessions: stored once by content hash, durable before the turn that names them.

use super::sessions::not_found;
use super::{Store, StoreError};
use crate::limits::{ATTACHMENT_BYTES_MAX, ATTACHMENT_NAME_BYTES_MAX, MEDIA_TYPE_BYTES_MAX};
use crate::model::{Attachment, AttachmentId, SessionId};
use crate::sidecar;

impl Store {
    /// Stores an attachment of a session. It is durable when this returns. The same bytes again are stored once: nothing is
    /// written, and what is returned has the media type and the file name that were given first.
    pub fn put_attachment(
        &self,
        session: &SessionId,
        bytes: &[u8],
        media_type: &str,
        filename: Option<&str>,
    ) -> Result<Attachment, StoreError> {
        if bytes.len() > ATTACHMENT_BYTES_MAX {
            return Err(StoreError::AttachmentTooLarge { bytes: bytes.len(), max: ATTACHMENT_BYTES_MAX });
        }
        check_media_type(media_type)?;
        filename.map_or(Ok(()), check_filename)?;
        self.shared.metadata(session)?;
        let stored = sidecar::put_attachment(&*self.shared.storage, session, bytes, media_type, filename)?;
        stored.ok_or_else(|| not_found(session))
    }

    /// What is known of an attachment of a session, without its bytes; nothing if it is not there.
    pub fn attachment(&self, session: &SessionId, id: &AttachmentId) -> Result<Option<Attachment>, StoreError> {
        Ok(sidecar::attachment(&*self.shared.storage, session, id)?)
    }

    /// The bytes of an attachment of a session; nothing if it is not there. Bytes that do not have its hash are an error.
    pub fn attachment_bytes(&self, session: &SessionId, id: &AttachmentId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(sidecar::attachment_bytes(&*self.shared.storage, session, id)?)
    }
}

/// A media type becomes the header of an answer: `type/subtype`, and parameters perhaps, in visible ASCII.
fn check_media_type(media_type: &str) -> Result<(), StoreError> {
    let essence = media_type.split(';').next().unwrap_or_default().trim_end();
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(is_token_byte);
    let is_two = essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    let is_visible = media_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match is_two && is_visible && media_type.len() <= MEDIA_TYPE_BYTES_MAX {
        true => Ok(()),
        false => Err(StoreError::BadAttachment {
            what: "media type",
            given: media_type.chars().take(40).collect(),
            rule: "use type/subtype in at most 255 ASCII characters",
        }),
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte)
}

fn check_filename(filename: &str) -> Result<(), StoreError> {
    match filename.len() <= ATTACHMENT_NAME_BYTES_MAX && !filename.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(StoreError::BadAttachment {
            what: "file name",
            given: filename.chars().take(40).collect(),
            rule: "use at most 1024 bytes without control characters",
        }),
    }
}
