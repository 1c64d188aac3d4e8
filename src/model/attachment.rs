//! Attachments: content-addressed ids and what is known of the bytes. An id that exists as a value is safe in a file name.

use std::fmt;
use std::sync::Arc;

use super::id::InvalidId;

/// The text of a message that is nothing but attachments: a turn has words.
pub const ONLY_ATTACHMENTS: &str = "(attachments)";

const PREFIX: &str = "sha256-";
const HASH_CHARS: usize = 64;
const URL_SCHEME: &str = "lastword:";
const RULE: &str = "use sha256- and the 64 lower-case hex digits of the SHA-256 hash of the bytes";

/// The id of an attachment: the SHA-256 hash of its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(Arc<str>);

impl AttachmentId {
    /// Takes a text that follows the rule of attachment ids.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_hash = |hash: &str| hash.len() == HASH_CHARS && hash.bytes().all(is_digit);
        match text.strip_prefix(PREFIX).is_some_and(is_hash) {
            true => Ok(AttachmentId(text.into())),
            false => Err(InvalidId::new("attachment", RULE, text)),
        }
    }

    /// The id of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let hash = hmac_sha256::Hash::hash(bytes);
        let digits =
            hash.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(|digit| char::from_digit(digit.into(), 16));
        let text = PREFIX.chars().chain(digits.map(|digit| digit.expect("half a byte is a hex digit")));
        AttachmentId(text.collect::<String>().into())
    }

    /// The id in a URL of the form `lastword:sha256-..`; none in any other.
    pub fn of_url(url: &str) -> Option<Self> {
        AttachmentId::parse(url.strip_prefix(URL_SCHEME)?).ok()
    }

    /// The URL by which rows name this attachment: `lastword:sha256-..`.
    pub fn to_url(&self) -> String {
        format!("{URL_SCHEME}{self}")
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attachment {}", self.0)
    }
}

/// What is known of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its id.
    pub id: AttachmentId,
    /// What its bytes are, as the first caller that stored them said: `image/png`.
    pub media_type: String,
    /// What the first caller that stored them called the file.
    pub filename: Option<String>,
    /// How many bytes it has.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn an_attachment_is_called_by_the_hash_of_its_bytes() {
        assert_eq!(AttachmentId::of_bytes(b"").as_str(), EMPTY);
        assert_eq!(AttachmentId::of_bytes(b"abc").as_str(), ABC);
        assert_eq!(AttachmentId::parse(ABC).unwrap(), AttachmentId::of_bytes(b"abc"));
    }

    #[test]
    fn other_texts_are_no_attachment_ids() {
        let hash = &ABC[PREFIX.len()..];
        for bad in [
            "",
            "sha256-",
            hash,
            &ABC[..ABC.len() - 1],
            &format!("{ABC}0"),
            &ABC.to_uppercase(),
            &format!("sha256-{}", hash.to_uppercase()),
            &format!("sha256-{}", "g".repeat(64)),
            &format!("{ABC}.info"),
            &format!(" {ABC}"),
            "sha256-../../../../../../../../../../../../../../../../../../etc/passwd..",
        ] {
            let error = AttachmentId::parse(bad).unwrap_err();
            assert!(error.to_string().contains("attachment id"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn rows_name_an_attachment_by_a_url() {
        let id = AttachmentId::of_bytes(b"abc");
        assert_eq!(id.to_url(), format!("lastword:{ABC}"));
        assert_eq!(AttachmentId::of_url(&id.to_url()), Some(id));
        for other in [ABC, "lastword:", "lastword:sha256-0", "https://example.org/a.png", "data:,abc"] {
            assert_eq!(AttachmentId::of_url(other), None, "{other}");
        }
    }
}
