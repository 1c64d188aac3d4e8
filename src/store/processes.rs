//! The processes that work for runs, as the store remembers them beyond the death of this one. Starting and ending them is
//! the business of those above.

use super::{Store, StoreError};
use crate::storage::ProcessGroup;

impl Store {
    /// Which boot of the machine this is; empty where that is not known.
    pub fn boot_id(&self) -> String {
        self.shared.storage.boot_id()
    }

    /// Notes a process group before it goes to work.
    pub fn note_group(&self, group: &ProcessGroup) -> Result<(), StoreError> {
        Ok(self.shared.storage.note_group(group)?)
    }

    /// Forgets a process group that is gone.
    pub fn forget_group(&self, token: &str) -> Result<(), StoreError> {
        Ok(self.shared.storage.forget_group(token)?)
    }

    /// The process groups that are noted: this writer's, and those that earlier ones left behind. Refused to a store that
    /// was opened to be read.
    pub fn noted_groups(&self) -> Result<Vec<ProcessGroup>, StoreError> {
        Ok(self.shared.storage.noted_groups()?)
    }
}
