//! The store's identity, `_lastword.json`: its uuid and the version of its format.

use serde::{Deserialize, Serialize};

use super::{FileStorage, Purpose, store_of_log, write};
use crate::entropy::uuid4;
use crate::storage::error::StorageError;

/// The newest format that this program knows.
pub(super) const FORMAT_VERSION: u32 = 1;

/// The contents of `_lastword.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) store: String,
    pub(super) format: u32,
}

impl FileStorage {
    /// The store's uuid; none for a reader that cannot tell.
    pub(super) fn check_identity(&self) -> Result<Option<String>, StorageError> {
        let path = self.layout.identity();
        let found = match write::read_small::<Identity>(&*self.disk, &path) {
            Err(_) | Ok(None) if self.lock.is_none() => {
                let store = store_of_log(&*self.disk, &self.layout).unwrap_or_default();
                store.map(|store| Identity { store, format: FORMAT_VERSION })
            }
            Err(StorageError::Damaged { .. } | StorageError::TooLarge { .. }) if self.purpose == Purpose::Repair => {
                self.keep_identity()?;
                None
            }
            found => found?,
        };
        match found {
            Some(found) if found.format > FORMAT_VERSION && self.lock.is_some() => {
                Err(StorageError::NewerFormat { path, version: found.format, known: FORMAT_VERSION })
            }
            None if self.lock.is_some() => {
                // A log that was left without it tells whose it is; with another uuid it would not be replayed.
                let store = store_of_log(&*self.disk, &self.layout)?;
                let store = store.unwrap_or_else(|| uuid4(&*self.entropy));
                let identity = Identity { store, format: FORMAT_VERSION };
                self.replace(&path, &write::to_json_line(&identity))?;
                Ok(Some(identity.store))
            }
            found => Ok(found.map(|found| found.store)),
        }
    }
}
