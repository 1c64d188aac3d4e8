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

/// A value that a card refers to and that is not stored.
#[derive(Debug)]
pub struct MissingValue {
    /// The id of the attachment that held it.
    pub id: AttachmentId,
    /// The card's run; empty if the card names none.
    pub run: String,
    /// Whether the run's journal still holds it, so that [`store_missing`] stores it again.
    pub is_in_journal: bool,
}

/// The values that cards refer to and that are not stored. Folds the journal of each run that misses one, one at a time.
pub fn find_missing<'c>(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cards: impl Iterator<Item = &'c str>,
) -> Result<Vec<MissingValue>, StorageError> {
    let mut found = Vec::new();
    for (run, missing) in missing_values(storage, session, cards)? {
        let large = look(storage, session, &run).folded.large;
        let is_in_journal = |id: &AttachmentId| large.iter().any(|value| value.id == *id);
        let of_run = |id| MissingValue { run: run.clone(), is_in_journal: is_in_journal(&id), id };
        found.extend(missing.into_iter().map(of_run));
    }
    found.sort_by(|a, b| (&a.run, &a.id).cmp(&(&b.run, &b.id)));
    Ok(found)
}

/// By run, the values that its cards refer to and that are not stored.
fn missing_values<'c>(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cards: impl Iterator<Item = &'c str>,
) -> Result<HashMap<String, HashSet<AttachmentId>>, StorageError> {
    let mut missing: HashMap<String, HashSet<AttachmentId>> = HashMap::new();
    for card in cards.filter(|card| card.contains("\"attachment\"")).map(ToolCard::parse) {
        let run = card.run().map(|run| run.to_string()).unwrap_or_default();
        for stored in STORED_KEYS.iter().filter_map(|key| StoredValue::parse(card.fields().get(key)?)) {
            if storage.object_len(session, ObjectKind::Attachment, stored.id.as_str())?.is_none() {
                missing.entry(run.clone()).or_default().insert(stored.id);
            }
        }
    }
    Ok(missing)
}

/// A session that was deleted meanwhile gets nothing: saving its document will say so.
fn put(storage: &Arc<dyn Storage>, session: &SessionId, value: &LargeValue) -> Result<(), StorageError> {
    sidecar::put_attachment(&**storage, session, value.json.as_bytes(), MEDIA_TYPE, None).map(|_| ())
}
