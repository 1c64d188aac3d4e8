//! The conversation for a model, with what is stored beside the session: large tool values and a user's files.

use std::cell::{Cell, RefCell};

use super::{Store, StoreError};
use crate::limits::CONTEXT_STORED_BYTES_MAX;
use crate::model::fold::StoredValue;
use crate::model::{AttachmentId, Context, Objects, SessionId, StoredFile};
use crate::sidecar;
use crate::storage::{ObjectKind, Storage, StorageError};

impl Store {
    /// The conversation as a model may be shown it, after a full read of the session: like
    /// [`Session::context`](crate::Session::context), with every tool's arguments and result and every file of the user.
    /// What cannot be sent is named in [`Context::left_out`]. A turn that the pending one replaces is not part of it.
    pub fn context(&self, id: &SessionId) -> Result<Context, StoreError> {
        let read = self.get_session(id)?;
        let session = self.shared.as_asked(&read)?;
        let objects = StoredObjects::of(&*self.shared.storage, id);
        let context = session.context_with(&objects);
        match objects.failure.into_inner() {
            None => Ok(context),
            Some(failure) => Err(failure.into()),
        }
    }
}

const MISSING: &str = "it is not stored beside the session";

/// The objects beside one session, up to the bytes that one conversation is given.
struct StoredObjects<'s> {
    storage: &'s dyn Storage,
    session: &'s SessionId,
    bytes_left: Cell<u64>,
    /// Why the storage cannot be read: then there is no conversation, because the next attempt may have all of it.
    failure: RefCell<Option<StorageError>>,
}

impl<'s> StoredObjects<'s> {
    fn of(storage: &'s dyn Storage, session: &'s SessionId) -> Self {
        let bytes_left = Cell::new(CONTEXT_STORED_BYTES_MAX);
        StoredObjects { storage, session, bytes_left, failure: RefCell::new(None) }
    }

    fn bytes(&self, id: &AttachmentId) -> Result<Vec<u8>, String> {
        let missing = || MISSING.to_owned();
        let (kind, key) = (ObjectKind::Attachment, id.as_str());
        let len = self.had(self.storage.object_len(self.session, kind, key))?.ok_or_else(missing)?;
        let left = self.bytes_left.get().checked_sub(len);
        self.bytes_left.set(left.ok_or_else(|| "the conversation would become too large with it".to_owned())?);
        self.had(self.storage.object(self.session, kind, key))?.ok_or_else(missing)
    }

    /// Damage is a reason to leave something out, for good. Any other failure is noted.
    fn had<T>(&self, read: Result<T, StorageError>) -> Result<T, String> {
        read.map_err(|error| {
            let why = error.to_string();
            if !matches!(error, StorageError::Damaged { .. } | StorageError::TooLarge { .. }) {
                self.failure.borrow_mut().get_or_insert(error);
            }
            why
        })
    }
}

impl Objects for StoredObjects<'_> {
    fn value(&self, value: &StoredValue) -> Result<String, String> {
        String::from_utf8(self.bytes(&value.id)?).map_err(|_| "it is not text".to_owned())
    }

    fn file(&self, id: &AttachmentId) -> Result<StoredFile, String> {
        let bytes = self.bytes(id)?;
        let known = self.had(sidecar::attachment(self.storage, self.session, id))?;
        let known = known.ok_or_else(|| MISSING.to_owned())?;
        Ok(StoredFile { media_type: known.media_type, filename: known.filename, bytes })
    }
}
