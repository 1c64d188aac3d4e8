//! Signed values: the text in a cookie or in a ticket. It says which key made it and until when it holds, and proves both.
//!
//! Layout, before base64url without padding: 8 bytes id of the key, 8 bytes expiry (microseconds since 1970, big endian),
//! 1 byte depth, 32 bytes HMAC-SHA256 over purpose, expiry, depth and subject. The subject itself is not in it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac_sha256::HMAC;
use subtle::ConstantTimeEq;

use crate::clock::Timestamp;

/// What the key of a token is derived for. Another number makes all cookies and tickets void.
const KEY_LABEL: &[u8] = b"lastword signing key 1";
const KEY_ID_BYTES: usize = 8;
const EXPIRY_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
const VALUE_BYTES: usize = KEY_ID_BYTES + EXPIRY_BYTES + 1 + MAC_BYTES;
/// Characters of a signed value.
const VALUE_CHARS: usize = (VALUE_BYTES * 8).div_ceil(6);

/// What a value is for. One that was signed for one purpose is void for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Purpose {
    Cookie,
    Ticket,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Purpose::Cookie => b"lastword cookie 1\0",
            Purpose::Ticket => b"lastword ticket 1\0",
        }
    }
}

/// The name of a key in the values that it signed. It tells nothing about the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct KeyId([u8; KEY_ID_BYTES]);

/// A key that signs, derived from a token. Debug output hides it.
pub(in crate::http) struct SigningKey {
    key: [u8; 32],
    id: KeyId,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    pub(in crate::http) fn of(secret: &str) -> Self {
        let key = HMAC::mac(KEY_LABEL, secret.as_bytes());
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&HMAC::mac(b"id", key)[..KEY_ID_BYTES]);
        SigningKey { key, id: KeyId(id) }
    }

    pub(in crate::http) fn id(&self) -> KeyId {
        self.id
    }

    /// A value for this purpose and subject, as text for a header or a query.
    pub(super) fn sign(&self, purpose: Purpose, expires_at: Timestamp, depth: u8, subject: &str) -> String {
        let mut bytes = Vec::with_capacity(VALUE_BYTES);
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&expires_at.micros().to_be_bytes());
        bytes.push(depth);
        bytes.extend_from_slice(&self.mac(purpose, expires_at, depth, subject));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Whether this key signed a value for this purpose and subject, and it has not expired.
    pub(super) fn confirms(&self, value: &Signed, purpose: Purpose, subject: &str, now: Timestamp) -> bool {
        let expected = self.mac(purpose, value.expires_at, value.depth, subject);
        bool::from(expected.ct_eq(&value.mac)) && now < value.expires_at
    }

    fn mac(&self, purpose: Purpose, expires_at: Timestamp, depth: u8, subject: &str) -> [u8; MAC_BYTES] {
        let mut mac = HMAC::new(self.key);
        mac.update(purpose.label());
        mac.update(expires_at.micros().to_be_bytes());
        mac.update([depth]);
        mac.update(subject.as_bytes());
        mac.finalize()
    }
}

/// A value as a request brings it, not yet confirmed by its key.
pub(super) struct Signed {
    pub(super) key: KeyId,
    expires_at: Timestamp,
    /// Segments of the path that a ticket is for; 0 in a cookie.
    pub(super) depth: u8,
    mac: [u8; MAC_BYTES],
}

impl Signed {
    /// Takes a text apart; none if it does not have the form of a signed value.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() != VALUE_CHARS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (key, rest) = bytes.split_first_chunk::<KEY_ID_BYTES>()?;
        let (expiry, rest) = rest.split_first_chunk::<EXPIRY_BYTES>()?;
        let (depth, mac) = rest.split_first()?;
        let mac = *mac.first_chunk::<MAC_BYTES>().filter(|_| mac.len() == MAC_BYTES)?;
        let micros = i64::from_be_bytes(*expiry);
        // A negative moment would become 1970, whose mac differs.
        let expires_at = Timestamp::from_micros(micros);
        Some(Signed { key: KeyId(*key), expires_at, depth: *depth, mac })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn holds(key: &SigningKey, text: &str, purpose: Purpose, subject: &str, now: f64) -> bool {
        Signed::parse(text)
            .is_some_and(|value| value.key == key.id() && key.confirms(&value, purpose, subject, at(now)))
    }

    #[test]
    fn a_value_holds_for_its_purpose_its_subject_its_key_and_its_time() {
        let (key, other) = (SigningKey::of("0123456789abcdef"), SigningKey::of("0123456789abcdeg"));
        let text = key.sign(Purpose::Ticket, at(100.0), 2, "/v1/events");
        assert!(holds(&key, &text, Purpose::Ticket, "/v1/events", 99.9));
        assert!(!holds(&key, &text, Purpose::Ticket, "/v1/events", 100.0), "expired");
        assert!(!holds(&key, &text, Purpose::Cookie, "/v1/events", 1.0), "another purpose");
        assert!(!holds(&key, &text, Purpose::Ticket, "/v1/event", 1.0), "another subject");
        assert!(!holds(&other, &text, Purpose::Ticket, "/v1/events", 1.0), "another key");
        assert_eq!(text.len(), VALUE_CHARS);
        assert!(!text.contains("0123456789abcdef") && !format!("{key:?}").contains("0123"));
    }

    #[test]
    fn a_value_with_any_bit_changed_is_void() {
        let key = SigningKey::of("0123456789abcdef");
        let text = key.sign(Purpose::Cookie, at(100.0), 0, "");
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!holds(&key, &URL_SAFE_NO_PAD.encode(changed), Purpose::Cookie, "", 1.0), "bit {bit}");
        }
        for wrong in ["", "x", &text[1..], &format!("{text}A"), &text.replace(&text[..1], "="), &"A".repeat(66)] {
            assert!(!holds(&key, wrong, Purpose::Cookie, "", 1.0), "{wrong}");
        }
    }
}
