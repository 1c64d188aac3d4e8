//! Where a key is found. The key itself is in no configuration, no log and no message.

use std::fmt;
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
    pub(super) fn read(&self) -> Result<Secret, String> {
        let key = match self {
            ApiKey::None => return Ok(Secret::default()),
            ApiKey::Variable(name) => std::env::var(name)
                .map_err(|_| format!("The variable {name}, which should hold the key, is not set"))?,
            ApiKey::File(path) => read_secret(path).map_err(|cause| {
                format!("The file {}, which should hold the key, cannot be read: {cause}", path.display())
            })?,
        };
        let key = key.trim();
        if key.is_empty() { Err("The key is empty".to_owned()) } else { Ok(Secret(Some(key.to_owned()))) }
    }
}

/// A key that was read, if one is needed. Only a request may show it.
#[derive(Clone, Default)]
pub(super) struct Secret(Option<String>);

impl Secret {
    /// The key itself.
    pub(super) fn key(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// A text without the key: there are servers that repeat the key which they refuse.
    pub(super) fn hide(&self, text: String) -> String {
        match &self.0 {
            Some(key) => text.replace(key.as_str(), "(the key)"),
            None => text,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}
