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

/// What a request carries that nothing else may show.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    /// The key, if one is needed.
    pub(super) key: Option<String>,
    /// Headers, by name.
    pub(super) headers: Vec<(String, String)>,
    /// What stands behind the question mark of the address.
    pub(super) asked: Vec<String>,
}

/// Shorter values are no secrets, and may well be words of a message.
const SECRET_CHARS_MIN: usize = 8;

impl Secrets {
    /// A text without them: there are servers that repeat the key which they refuse.
    pub(super) fn hide(&self, text: String) -> String {
        let headers = self.headers.iter().map(|(_, value)| value);
        let all = self.key.iter().chain(headers).chain(&self.asked);
        let secrets = all.filter(|value| value.len() >= SECRET_CHARS_MIN);
        secrets.fold(text, |text, secret| text.replace(secret.as_str(), "(hidden)"))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secrets")
    }
}
