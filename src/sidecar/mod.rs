//! One session's document: loaded, looked at, replaced. What a save would lose, it refuses or keeps.

mod attachments;

use std::sync::Arc;

pub use self::attachments::{attachment, attachment_bytes, put_attachment};

use crate::clock::Timestamp;
use crate::entropy::{Entropy, uuid4};
use crate::format::{Head, Unreadable, encode, read_head, read_session};
use crate::limits::{METADATA_PREFIX_BYTES, SIDECAR_BYTES_MAX};
use crate::model::{List, Metadata, Session, SessionId};
use crate::storage::{Expected, Put, PutOutcome, Storage, StorageError};

/// Why a session could not be loaded or saved.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SidecarError {
    /// Its document is damaged. It is left as it is.
    #[error("session {session} is unreadable and left as it is: restore or repair its file")]
    Unreadable {
        /// The session.
        session: SessionId,
        /// What is wrong with the document.
        source: Unreadable,
    },
    /// The transcript would become shorter, and nobody said that it should.
    #[error(
        "saving session {session} would cut its transcript from {from} rows to {to}: state that a shorter one is meant"
    )]
    WouldShrink {
        /// The session.
        session: SessionId,
        /// Rows that are stored.
        from: usize,
        /// Rows that were to be saved.
        to: usize,
    },
    /// Somebody else changed the document since it was read.
    #[error("session {session} was changed by somebody else since it was read: read it again and repeat the change")]
    Conflict {
        /// The session.
        session: SessionId,
    },
    /// The document would be larger than any that is loaded. Nothing was written.
    #[error(
        "session {session} cannot be saved: it would have {bytes} bytes, and at most {max} are allowed here: begin another session"
    )]
    TooLarge {
        /// The session.
        session: SessionId,
        /// The bytes of its document.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// A value that was set is not JSON. Nothing was written.
    #[error("session {session} cannot be saved: what was set for `{key}` is not JSON")]
    NotJson {
        /// The session.
        session: SessionId,
        /// The top-level key that holds it.
        key: String,
    },
    /// The session was deleted.
    #[error("session {session} was deleted: restore it, or choose another id")]
    Deleted {
        /// The session.
        session: SessionId,
    },
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What a save means to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaveIntent {
    /// The version that was read, with at least as many rows.
    #[default]
    Keep,
    /// The version that was read, with fewer rows perhaps. That version is kept.
    Shrink,
    /// Whatever is there, readable or not. That is kept.
    Replace,
}

/// How a session is saved.
#[derive(Debug, Clone, Copy)]
pub struct SaveOptions {
    /// What it replaces.
    pub intent: SaveIntent,
    /// Whether it counts as a change by the user, which moves the session up in lists.
    pub touch_updated_at: bool,
}

impl Default for SaveOptions {
    fn default() -> Self {
        SaveOptions { intent: SaveIntent::Keep, touch_updated_at: true }
    }
}

/// Loads a session, if it is there.
pub fn load(storage: &Arc<dyn Storage>, id: &SessionId) -> Result<Option<Session>, SidecarError> {
    let Some(document) = storage.document(id)? else { return Ok(None) };
    let mut session =
        read_session(id, document.bytes).map_err(|source| SidecarError::Unreadable { session: id.clone(), source })?;
    session.set_base(document.revision);
    Ok(Some(session))
}

/// Loads what stands before a session's transcript, if the session is there.
pub fn load_metadata(storage: &Arc<dyn Storage>, id: &SessionId) -> Result<Option<Metadata>, SidecarError> {
    let mut wanted = METADATA_PREFIX_BYTES;
    loop {
        let Some(head) = storage.document_head(id, wanted)? else { return Ok(None) };
        match read_head(id, &head.bytes) {
            Head::Metadata(mut session) => {
                let count = session.get("message_count").and_then(|count| count.parse().ok());
                let Some(count) = count else { return whole_metadata(storage, id) };
                session.set_base(head.revision);
                return Ok(Some(Metadata::new(session, count)));
            }
            Head::TooShort if !head.is_all && (wanted as u64) < SIDECAR_BYTES_MAX => wanted *= 4,
            _ => return whole_metadata(storage, id),
        }
    }
}

fn whole_metadata(storage: &Arc<dyn Storage>, id: &SessionId) -> Result<Option<Metadata>, SidecarError> {
    let session = load(storage, id)?;
    Ok(session.map(|session| {
        let rows = session.len(List::Messages);
        Metadata::new(session, rows)
    }))
}

/// Saves a session and gives it back as it is stored now. What is stored already is not written again.
pub fn save(
    storage: &Arc<dyn Storage>,
    session: &Session,
    options: SaveOptions,
    now: Timestamp,
    entropy: &dyn Entropy,
) -> Result<Session, SidecarError> {
    save_within(SIDECAR_BYTES_MAX, storage, session, options, now, entropy)
}

/// The same for a document of at most this many bytes.
pub fn save_within(
    bytes_max: u64,
    storage: &Arc<dyn Storage>,
    session: &Session,
    options: SaveOptions,
    now: Timestamp,
    entropy: &dyn Entropy,
) -> Result<Session, SidecarError> {
    let id = session.id();
    let (from, to) = (session.base().map_or(0, |base| base.messages), session.len(List::Messages));
    if to < from && options.intent == SaveIntent::Keep {
        return Err(SidecarError::WouldShrink { session: id.clone(), from, to });
    }
    if let Some(key) = session.key_with_bad_json() {
        return Err(SidecarError::NotJson { session: id.clone(), key });
    }
    if is_stored(storage, session, options)? {
        return Ok(session.clone());
    }
    let mut session = session.clone();
    session.set("message_count", &to.to_string());
    if options.touch_updated_at {
        session.set("updated_at", &now.to_string());
    }
    if to < from && storage.has_foreign_backup(id)? {
        // The reference program would put its longer backup back, unless told that the loss is meant.
        session.set_text("intentional_shrink_generation", &uuid4(entropy));
    }
    let put =
        Put { expected: expected(storage, &session, options.intent)?, keep_replaced: to < from || is_replace(options) };
    store(storage, &session, &put, bytes_max.min(SIDECAR_BYTES_MAX))
}

fn is_stored(storage: &Arc<dyn Storage>, session: &Session, options: SaveOptions) -> Result<bool, SidecarError> {
    let is_same = !session.is_changed() && !options.touch_updated_at && !is_replace(options);
    Ok(is_same && session.base().is_some() && storage.document_revision(session.id())?.as_ref() == session.revision())
}

fn is_replace(options: SaveOptions) -> bool {
    options.intent == SaveIntent::Replace
}

fn expected(storage: &Arc<dyn Storage>, session: &Session, intent: SaveIntent) -> Result<Expected, SidecarError> {
    let known = match intent {
        SaveIntent::Replace => storage.document_revision(session.id())?,
        SaveIntent::Keep | SaveIntent::Shrink => session.revision().cloned(),
    };
    Ok(known.map_or(Expected::Absent, Expected::Revision))
}

fn store(storage: &Arc<dyn Storage>, session: &Session, put: &Put, max: u64) -> Result<Session, SidecarError> {
    let id = session.id();
    let encoded = encode(session);
    let bytes = encoded.bytes().len() as u64;
    if bytes > max {
        return Err(SidecarError::TooLarge { session: id.clone(), bytes, max });
    }
    match storage.put_document(id, encoded.bytes(), put)? {
        PutOutcome::Conflict { .. } => Err(SidecarError::Conflict { session: id.clone() }),
        PutOutcome::Deleted => Err(SidecarError::Deleted { session: id.clone() }),
        PutOutcome::Stored(revision) => {
            let mut stored = encoded.into_session();
            stored.set_base(revision);
            Ok(stored)
        }
    }
}
