//! Act, first half: tool values that are too large for the document are stored beside it, before it is saved.
//!
//! A crash in between leaves values that no document refers to. They have the same names when they are stored again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::evidence::look;
use crate::model::fold::{LargeValue, StoredValue};
use crate::model::{AttachmentId, STORED_KEYS, SessionId, ToolCard};
use crate::sidecar;
use crate::storage::{ObjectKind, Storage, StorageError};

/// The media type of the values.
const MEDIA_TYPE: &str = "application/json";

/// Stores the values that cards of a fold refer to, durably. A store that cannot be written is left as it is: its readers
/// save no document either.
pub fn store_large(storage: &Arc<dyn Storage>, session: &SessionId, values: &[LargeValue]) -> Result<(), StorageError> {
    if !storage.can_write() {
        return Ok(());
    }
    values.iter().try_for_each(|value| put(storage, session, value))
}

/// Stores the values that cards refer to and that are not there, as far as journals still hold them.
pub fn store_missing<'c>(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cards: impl Iterator<Item = &'c str>,
) -> Result<(), StorageError> {
    for (run, missing) in missing_values(storage, session, cards)? {
        let large = look(storage, session, &run).folded.large;
        let mut found = large.iter().filter(|value| missing.contains(&value.id));
        found.try_for_each(|value| put(storage, session, value))?;
    }
    Ok(())
}

/// By run, the values that its cards refer to and that are not stored.
fn missing_values<'c>(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cards: impl Iterator<Item = &'c str>,
) -> Result<HashMap<String, HashSet<AttachmentId>>, StorageError> {
    let mut missing: HashMap<String, HashSet<AttachmentId>> = HashMap::new();
    for card in cards.filter(|card| card.contains("\"attachment\"")).map(ToolCard::parse) {
        let Some(run) = card.run() else { continue };
        for stored in STORED_KEYS.iter().filter_map(|key| StoredValue::parse(card.fields().get(key)?)) {
            if storage.object_len(session, ObjectKind::Attachment, stored.id.as_str())?.is_none() {
                missing.entry(run.to_string()).or_default().insert(stored.id);
            }
        }
    }
    Ok(missing)
}

/// A session that was deleted meanwhile gets nothing: saving its document will say so.
fn put(storage: &Arc<dyn Storage>, session: &SessionId, value: &LargeValue) -> Result<(), StorageError> {
    sidecar::put_attachment(&**storage, session, value.json.as_bytes(), MEDIA_TYPE, None).map(|_| ())
}
