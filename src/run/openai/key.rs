//! Where a key is found. The key itself is in no configuration, no log and no message.

use std::path::PathBuf;

use crate::storage::read_secret;

/// Where a key is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ApiKey {
    /// None is needed.
    #[default]
    None,
    /// In this variable of the environment.
    Variable(String),
    /// In this file.
    File(PathBuf),
}

impl ApiKey {
    /// Reads it, without the white space around it.
    pub(super) fn read(&self) -> Result<Option<String>, String> {
        let key = match self {
            ApiKey::None => return Ok(None),
            ApiKey::Variable(name) => std::env::var(name)
                .map_err(|_| format!("The variable {name}, which should hold the key, is not set"))?,
            ApiKey::File(path) => read_secret(path).map_err(|cause| {
                format!("The file {}, which should hold the key, cannot be read: {cause}", path.display())
            })?,
        };
        let key = key.trim();
        if key.is_empty() { Err("The key is empty".to_owned()) } else { Ok(Some(key.to_owned())) }
    }
}
