//! Attachments of a session on any storage: bytes and what is known of them, stored once by content hash.

use crate::format::{read_attachment_info, write_attachment_info};
use crate::model::{Attachment, AttachmentId, SessionId};
use crate::storage::{ObjectKind, PutObject, Storage, StorageError};

/// The media type of bytes of which none is known.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";

/// Stores an attachment, durably, unless it is there; nothing if the session was deleted. Whether the session exists is not
/// looked at, nor are the bounds. The first media type and file name that the same bytes were stored with stay; a type that says
/// nothing of the bytes gives way to one that does.
///
/// The bytes are durable before the rest, so that a crash in between leaves bytes of an unknown type. What the first look
/// finds is made durable with the bytes: the process that stored it may have died before it did so.
pub fn put_attachment(
    storage: &dyn Storage,
    session: &SessionId,
    bytes: &[u8],
    media_type: &str,
    filename: Option<&str>,
) -> Result<Option<Attachment>, StorageError> {
    let id = AttachmentId::of_bytes(bytes);
    let known = stored_info(storage, session, &id)?.filter(|known| known.bytes == bytes.len() as u64);
    if storage.put_object(session, ObjectKind::Attachment, id.as_str(), bytes)? == PutObject::Deleted {
        return Ok(None);
    }
    let attachment = described(id, bytes, (media_type, filename), known.as_ref());
    if known.as_ref() == Some(&attachment) {
        return Ok(known);
    }
    let info = write_attachment_info(&attachment);
    let stored = storage.put_object(session, ObjectKind::AttachmentInfo, attachment.id.as_str(), &info)?;
    Ok((stored == PutObject::Stored).then_some(attachment))
}

/// Types that say nothing of the bytes: that of none, and what programs send that were told of none.
const VAGUE_MEDIA_TYPES: [&str; 2] = [UNKNOWN_MEDIA_TYPE, "application/x-www-form-urlencoded"];

fn described(
    id: AttachmentId,
    bytes: &[u8],
    (media_type, filename): (&str, Option<&str>),
    known: Option<&Attachment>,
) -> Attachment {
    let is_vague = |media_type: &str| VAGUE_MEDIA_TYPES.contains(&media_type);
    let known_type = known.map(|known| known.media_type.clone()).filter(|known| !is_vague(known));
    let known_name = known.and_then(|known| known.filename.clone());
    let filename = known_name.or_else(|| filename.map(str::to_owned));
    let media_type = known_type.unwrap_or_else(|| media_type.to_owned());
    Attachment { id, media_type, filename, bytes: bytes.len() as u64 }
}

/// What is known of a session's attachment, if it is there.
pub fn attachment(
    storage: &dyn Storage,
    session: &SessionId,
    id: &AttachmentId,
) -> Result<Option<Attachment>, StorageError> {
    let Some(bytes) = storage.object_len(session, ObjectKind::Attachment, id.as_str())? else { return Ok(None) };
    let unknown = || Attachment { id: id.clone(), media_type: UNKNOWN_MEDIA_TYPE.to_owned(), filename: None, bytes };
    let known = stored_info(storage, session, id)?;
    Ok(Some(known.map_or_else(unknown, |known| Attachment { bytes, ..known })))
}

/// The bytes of a session's attachment, if it is there.
pub fn attachment_bytes(
    storage: &dyn Storage,
    session: &SessionId,
    id: &AttachmentId,
) -> Result<Option<Vec<u8>>, StorageError> {
    storage.object(session, ObjectKind::Attachment, id.as_str())
}

fn stored_info(
    storage: &dyn Storage,
    session: &SessionId,
    id: &AttachmentId,
) -> Result<Option<Attachment>, StorageError> {
    let line = storage.object(session, ObjectKind::AttachmentInfo, id.as_str())?;
    Ok(line.and_then(|line| read_attachment_info(id, &line)))
}
