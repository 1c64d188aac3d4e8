//! Tokens: who may read, who may change. Compared in constant time, and never shown.

use std::fmt;

use hmac_sha256::Hash;
use subtle::{Choice, ConstantTimeEq};

use super::door::{KeyId, SigningKey};

/// Characters of a token that nobody guesses. A shorter one is taken, and said to be one.
const TOKEN_CHARS_SAFE: usize = 16;
/// Characters of the longest.
const TOKEN_CHARS_MAX: usize = 512;
/// Tokens of one file.
const TOKENS_MAX: usize = 1_000;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To look.
    Read,
    /// To look and to change.
    Write,
}

struct Token {
    secret: Box<str>,
    access: Access,
    id: TokenId,
    /// Signs the cookies and tickets of this token.
    key: SigningKey,
}

/// Which token a request brought: a digest of it, the same after a restart of the server. Debug output hides it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenId([u8; 16]);

impl TokenId {
    fn of(secret: &str) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&Hash::hash(secret.as_bytes())[..16]);
        TokenId(id)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenId")
    }
}

/// Who sends a request: what it may do, and by which token. The guard puts it into the request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) access: Access,
    /// None where the server has no tokens, and for the paths that need none.
    pub(super) token: Option<TokenId>,
}

impl Caller {
    /// The caller of a server without tokens.
    pub(super) const ANYONE: Caller = Caller { access: Access::Write, token: None };
    /// The caller of a path that needs no token, on a server that has tokens.
    pub(super) const STRANGER: Caller = Caller { access: Access::Read, token: None };
}

/// The tokens of a server.
#[derive(Default)]
pub struct Tokens {
    tokens: Vec<Token>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.tokens.len())
    }
}

/// A file of tokens that cannot be used. It never says what a token is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTokens {
    /// A line is no token.
    #[error(
        "line {line} is no token: write up to {TOKEN_CHARS_MAX} visible characters without spaces, and `read-only` behind it if it must not change anything"
    )]
    Line {
        /// Its number.
        line: usize,
    },
    /// There is none in it.
    #[error("there is no token in it: write one on each line, for instance the output of `openssl rand -hex 32`")]
    None,
    /// There are too many in it.
    #[error("there are more than {TOKENS_MAX} tokens in it: take out those that nobody uses")]
    TooMany,
}

impl Tokens {
    /// Reads the text of a token file: one token a line, perhaps with `read-only` behind it; `#` begins a comment line.
    pub fn parse(text: &str) -> Result<Self, BadTokens> {
        let mut tokens = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                tokens.push(parse_line(line).ok_or(BadTokens::Line { line: at + 1 })?);
            }
        }
        match tokens.len() {
            0 => Err(BadTokens::None),
            1..=TOKENS_MAX => Ok(Tokens { tokens }),
            _ => Err(BadTokens::TooMany),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether everybody may do everything.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether one of them is so short that it could be guessed.
    pub fn are_guessable(&self) -> bool {
        self.tokens.iter().any(|token| token.secret.len() < TOKEN_CHARS_SAFE)
    }

    /// The caller who brings this token. Takes as long whichever token it is, and if it is none.
    pub(super) fn caller(&self, given: &str) -> Option<Caller> {
        let access = self.access(given)?;
        Some(Caller { access, token: Some(TokenId::of(given)) })
    }

    /// What a token allows whose id is known; nothing if it was removed.
    pub(super) fn access_of(&self, id: TokenId) -> Option<Access> {
        let its = self.tokens.iter().filter(|token| token.id == id).map(|token| token.access);
        its.reduce(|one, other| if one == Access::Write { one } else { other })
    }

    /// Whether a caller may still be served: its token is there, or no token is wanted.
    pub(super) fn still_has(&self, caller: Caller) -> bool {
        match caller.token {
            Some(id) => self.tokens.iter().any(|token| token.id == id),
            // A stranger needs none.
            None => caller.access == Access::Read || self.is_empty(),
        }
    }

    /// The key that signs for a token.
    pub(super) fn key_of(&self, id: TokenId) -> Option<&SigningKey> {
        self.tokens.iter().find(|token| token.id == id).map(|token| &token.key)
    }

    /// The key that a signed value names, and the token that it belongs to.
    pub(super) fn key_named(&self, name: KeyId) -> Option<(TokenId, &SigningKey)> {
        self.tokens.iter().find(|token| token.key.id() == name).map(|token| (token.id, &token.key))
    }

    /// What a caller with this token may do. Takes as long whichever token it is, and if it is none.
    pub fn access(&self, given: &str) -> Option<Access> {
        let (mut may_read, mut may_write) = (Choice::from(0), Choice::from(0));
        for Token { secret, access, .. } in &self.tokens {
            let is_it = secret.as_bytes().ct_eq(given.as_bytes());
            may_read |= is_it;
            may_write |= is_it & Choice::from(u8::from(*access == Access::Write));
        }
        match (bool::from(may_write), bool::from(may_read)) {
            (true, _) => Some(Access::Write),
            (false, true) => Some(Access::Read),
            (false, false) => None,
        }
    }
}

fn parse_line(line: &str) -> Option<Token> {
    let mut words = line.split_whitespace();
    let secret = words.next()?;
    let access = match (words.next(), words.next()) {
        (None, _) => Access::Write,
        (Some("read-only" | "readonly" | "ro"), None) => Access::Read,
        _ => return None,
    };
    let is_plain = secret.bytes().all(|byte| byte.is_ascii_graphic());
    let fits = secret.len() <= TOKEN_CHARS_MAX && is_plain;
    fits.then(|| Token { secret: secret.into(), access, id: TokenId::of(secret), key: SigningKey::of(secret) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_tokens_some_of_which_only_read() {
        let tokens = Tokens::parse("# ours\nabcdefghijklmnop\n\n ponmlkjihgfedcba  read-only \r\n").unwrap();
        assert_eq!(tokens.access("abcdefghijklmnop"), Some(Access::Write));
        assert_eq!(tokens.access("ponmlkjihgfedcba"), Some(Access::Read));
        for no in ["", "abcdefghijklmno", "abcdefghijklmnopq", "read-only", "# ours"] {
            assert_eq!(tokens.access(no), None, "{no}");
        }
    }

    #[test]
    fn the_same_token_twice_allows_what_any_of_its_lines_allows() {
        let tokens = Tokens::parse("abcdefghijklmnop read-only\nabcdefghijklmnop").unwrap();
        assert_eq!(tokens.access("abcdefghijklmnop"), Some(Access::Write));
    }

    #[test]
    fn a_file_that_protects_nothing_is_refused_without_quoting_it() {
        assert_eq!(Tokens::parse("\n# none\n").unwrap_err(), BadTokens::None);
        let long = "x".repeat(513);
        for bad in [long.as_str(), "abcdefghijklmnop reads", "abcdefghijklmnop read-only x", "abcdefghijklmn\u{e9}p"] {
            let error = Tokens::parse(&format!("\n{bad}")).unwrap_err();
            assert_eq!(error, BadTokens::Line { line: 2 });
            assert!(!error.to_string().contains(bad));
        }
        assert!(Tokens::parse("abcdefghijklmnop\nshort").unwrap().are_guessable());
        assert!(!Tokens::parse("abcdefghijklmnop").unwrap().are_guessable());
        assert!(!format!("{:?}", Tokens::parse("abcdefghijklmnop").unwrap()).contains("abc"));
    }
}
