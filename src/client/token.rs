//! A token that says who asks. It is shown nowhere.

use std::fmt;
use std::path::Path;

use crate::storage::read_secret;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Shorter ones may well be words of a message.
const HIDDEN_CHARS_MIN: usize = 4;

impl Token {
    /// Takes a text that a header may hold.
    pub fn new(text: &str) -> Result<Self, String> {
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Token(text.to_owned())),
            false => Err("a token is one word of printable ASCII characters".to_owned()),
        }
    }

    /// The first token of a file that holds one a line. Blank lines and those that begin with `#` hold none.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = read_secret(file).map_err(|cause| format!("could not read {}: {cause}", file.display()))?;
        Token::first_of(&text).map_err(|reason| format!("{}: {reason}", file.display()))
    }

    fn first_of(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let word = lines.next().and_then(|line| line.split_whitespace().next());
        word.ok_or_else(|| "there is no token in it".to_owned()).and_then(Token::new)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// A text without it: there are servers that repeat what they refuse.
    pub(super) fn hide(&self, text: String) -> String {
        if self.0.len() < HIDDEN_CHARS_MIN { text } else { text.replace(&self.0, "(hidden)") }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_of_a_file_is_taken_and_shown_nowhere() {
        let token = Token::first_of("\n# for the page\n  s3cret-token  \nanother\n").unwrap();
        assert_eq!(token.as_str(), "s3cret-token");
        assert_eq!(format!("{token:?}"), "token");
        assert_eq!(token.hide("no: s3cret-token".to_owned()), "no: (hidden)");
        assert!(Token::first_of("\n# nothing\n").is_err());
        assert!(Token::first_of("\u{e9}\n").is_err());
    }
}
