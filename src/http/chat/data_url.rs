//! `data:` URLs (RFC 2397) and media types, read strictly. Pure.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::limits::MEDIA_TYPE_BYTES_MAX;

/// The media type of bytes of which nothing is known.
pub(in crate::http) const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The media type of a data URL that names none.
const DATA_URL_TYPE: &str = "text/plain;charset=US-ASCII";

/// The contents of a data URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct DataUrl {
    pub(in crate::http) media_type: String,
    pub(in crate::http) bytes: Vec<u8>,
}

/// A data URL that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BadDataUrl {
    #[error("its data URL has no comma before the data")]
    NoComma,
    #[error("its data URL is not base64 as RFC 4648 has it, with padding and without line breaks")]
    NotBase64,
    #[error("its data URL has a % that is not followed by two hex digits")]
    NotPercentEncoded,
    #[error("its data URL names a media type that is none")]
    BadType,
}

impl DataUrl {
    /// Reads a data URL. Nothing for a URL of another scheme.
    pub(in crate::http) fn parse(url: &str) -> Result<Option<Self>, BadDataUrl> {
        let Some(rest) = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).map(|_| &url[5..]) else {
            return Ok(None);
        };
        let (head, data) = rest.split_once(',').ok_or(BadDataUrl::NoComma)?;
        let (head, is_base64) = match head.rsplit_once(';') {
            Some((head, last)) if last.trim().eq_ignore_ascii_case("base64") => (head, true),
            None if head.trim().eq_ignore_ascii_case("base64") => ("", true),
            _ => (head, false),
        };
        let media_type = type_of(head)?;
        let data = percent_decoded(data)?;
        let bytes = match is_base64 {
            true => STANDARD.decode(&data).map_err(|_| BadDataUrl::NotBase64)?,
            false => data.into_owned(),
        };
        Ok(Some(DataUrl { media_type, bytes }))
    }
}

fn type_of(head: &str) -> Result<String, BadDataUrl> {
    let head = percent_decoded(head)?;
    let head = std::str::from_utf8(&head).map_err(|_| BadDataUrl::BadType)?.trim();
    match head {
        "" => Ok(DATA_URL_TYPE.to_owned()),
        // Only parameters.
        _ if head.starts_with(';') => media_type(&format!("text/plain{head}")).ok_or(BadDataUrl::BadType),
        _ => media_type(head).ok_or(BadDataUrl::BadType),
    }
}

fn percent_decoded(text: &str) -> Result<Cow<'_, [u8]>, BadDataUrl> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text.as_bytes()));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        (rest, _) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => (after, bytes.push(hex(*high)? << 4 | hex(*low)?)),
            (b'%', _) => return Err(BadDataUrl::NotPercentEncoded),
            _ => (after, bytes.push(byte)),
        };
    }
    Ok(Cow::Owned(bytes))
}

fn hex(digit: u8) -> Result<u8, BadDataUrl> {
    let value = char::from(digit).to_digit(16).ok_or(BadDataUrl::NotPercentEncoded)?;
    Ok(value as u8)
}

/// A media type such as `image/png` or `text/plain;charset=utf-8`, type and subtype in lower case; nothing for a text that
/// is none, or one that a header cannot carry.
pub(in crate::http) fn media_type(text: &str) -> Option<String> {
    let text = text.trim();
    // A comma would make two types of one where a browser reads it.
    let is_carried =
        text.len() <= MEDIA_TYPE_BYTES_MAX && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b',');
    let end = text.find(';').unwrap_or(text.len());
    let (kind, subtype) = text[..end].trim().split_once('/')?;
    let is_type = is_carried && is_token(kind) && is_token(subtype);
    is_type.then(|| format!("{}/{}{}", kind.to_ascii_lowercase(), subtype.to_ascii_lowercase(), text[end..].trim_end()))
}

/// Whether a media type names one type, and not a range such as `image/*`.
pub(in crate::http) fn is_exact(media_type: &str) -> bool {
    !media_type.contains('*')
}

/// Whether a browser may show bytes of this type as a picture. SVG is a document: it can hold scripts.
pub(in crate::http) fn is_picture(media_type: &str) -> bool {
    let end = media_type.find(';').unwrap_or(media_type.len());
    let subtype = media_type[..end].trim().strip_prefix("image/");
    subtype.is_some_and(|subtype| !subtype.contains("svg") && !subtype.contains("xml"))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-*".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Result<Option<(&str, &[u8])>, BadDataUrl>) {
        let given = DataUrl::parse(url).map(|url| url.map(|url| (url.media_type, url.bytes)));
        assert_eq!(given, expected.map(|url| url.map(|(kind, bytes)| (kind.to_owned(), bytes.to_vec()))), "{url}");
    }

    #[test]
    fn data_urls_are_base64_or_percent_encoded() {
        check("data:image/png;base64,iVBORw==", Ok(Some(("image/png", b"\x89PNG"))));
        check("DATA:Image/PNG;name=a;BASE64,AA==", Ok(Some(("image/png;name=a", b"\0"))));
        check(
            "data:text/plain;charset=utf-8,a%20b%C3%A9+%2C",
            Ok(Some(("text/plain;charset=utf-8", "a bé+,".as_bytes()))),
        );
        check("data:,", Ok(Some(("text/plain;charset=US-ASCII", b""))));
        check("data:;base64,", Ok(Some(("text/plain;charset=US-ASCII", b""))));
        check("data:base64,AA==", Ok(Some(("text/plain;charset=US-ASCII", b"\0"))));
        check("data:;charset=utf-8,x", Ok(Some(("text/plain;charset=utf-8", b"x"))));
        check("data:a/b;base64,AA%3D%3D", Ok(Some(("a/b", b"\0"))));
        check("https://example.org/a.png", Ok(None));
        check("dat", Ok(None));
        check("é:data", Ok(None));
    }

    #[test]
    fn data_urls_are_read_strictly() {
        for data in ["AA", "AA=", "A===", "AA==AA==", "AB==", "A A=", "AA==\n", "_-==", "AA==,"] {
            check(&format!("data:a/b;base64,{data}"), Err(BadDataUrl::NotBase64));
        }
        for data in ["%", "%2", "%2g", "a%é1"] {
            check(&format!("data:a/b,{data}"), Err(BadDataUrl::NotPercentEncoded));
        }
        check("data:a/b;base64", Err(BadDataUrl::NoComma));
        check("data:image,AA", Err(BadDataUrl::BadType));
        check("data:a/b%0d%0ax:y,AA", Err(BadDataUrl::BadType));
    }

    #[test]
    fn a_media_type_is_one_that_a_header_can_carry() {
        for (text, expected) in [
            (" Image/PNG ", Some("image/png")),
            ("text/html; charset=UTF-8", Some("text/html; charset=UTF-8")),
            ("image/*", Some("image/*")),
            ("a", None),
            ("a/", None),
            ("/b", None),
            ("a/b/c", None),
            ("a b/c", None),
            ("a/b;x=\r\ny", None),
            ("a/b;x=é", None),
        ] {
            assert_eq!(media_type(text).as_deref(), expected, "{text}");
        }
        assert_eq!(media_type(&format!("a/{}", "b".repeat(MEDIA_TYPE_BYTES_MAX))), None);
    }

    #[test]
    fn only_pictures_without_scripts_are_shown() {
        for (kind, expected) in [
            ("image/png", true),
            ("image/webp; q=1", true),
            ("image/svg+xml", false),
            ("image/svg", false),
            ("image/x+xml", false),
            ("text/html", false),
            ("image", false),
        ] {
            assert_eq!(is_picture(kind), expected, "{kind}");
        }
    }

    proptest! {
        #![proptest_config(crate::seeds::config("data_url"))]

        #[test]
        fn bytes_come_back_from_either_form(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let percent: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            for url in [format!("data:a/b;base64,{}", STANDARD.encode(&bytes)), format!("data:a/b,{percent}")] {
                prop_assert_eq!(&DataUrl::parse(&url).unwrap().unwrap().bytes, &bytes);
            }
        }

        #[test]
        fn no_url_is_too_odd(url in "data:.{0,30}") {
            let _ = DataUrl::parse(&url);
        }
    }
}
