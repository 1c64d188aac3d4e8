//! Files of a message: where the bytes of each are, and the form in which a row names them. Pure; storing them is done by
//! the routes.

use super::data_url::{BadDataUrl, DataUrl, UNKNOWN_TYPE, is_exact, media_type};
use crate::limits::FILENAME_CHARS_MAX;
use crate::model::{Attachment, AttachmentId, Object};

/// A file that came with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct FilePart {
    /// What the client says of it.
    fields: Object,
    pub(in crate::http) at: FileAt,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum FileAt {
    /// In the message.
    Inline(DataUrl),
    /// In the store, beside the session.
    Stored(AttachmentId),
    /// Somewhere else; its URL stays as it is.
    Elsewhere,
}

/// A file that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BadFile {
    #[error("is a file without `url` and `mediaType`")]
    NoUrl,
    #[error("cannot be stored: {0}")]
    DataUrl(#[from] BadDataUrl),
    #[error("names an attachment of another session: upload it to this one")]
    OtherSession,
    #[error("has a `url` that names no attachment: it is `lastword:sha256-` and 64 lower-case hex digits")]
    BadReference,
}

impl FilePart {
    /// Reads a part of type `file`.
    pub(in crate::http) fn parse(part: &str, session: &str) -> Result<Self, BadFile> {
        let fields = Object::parse(&on_one_line(part)).ok_or(BadFile::NoUrl)?;
        let url = fields.text("url").ok_or(BadFile::NoUrl)?.into_owned();
        fields.text("mediaType").ok_or(BadFile::NoUrl)?;
        let at = FileAt::of_url(&url, session)?;
        Ok(FilePart { fields, at })
    }

    /// The media type under which inline bytes are stored: what the part says, if it names one type.
    pub(in crate::http) fn media_type(&self) -> String {
        let said = self.fields.text("mediaType").and_then(|said| media_type(&said)).filter(|said| is_exact(said));
        match (&self.at, said) {
            (_, Some(said)) => said,
            (FileAt::Inline(url), None) if is_exact(&url.media_type) => url.media_type.clone(),
            _ => UNKNOWN_TYPE.to_owned(),
        }
    }

    /// What the file is called, as far as that is kept with its bytes.
    pub(in crate::http) fn filename(&self) -> Option<String> {
        self.fields.text("filename").map(|name| plain_name(&name)).filter(|name| !name.is_empty())
    }

    /// The part as a row keeps it. Bytes that were inline are stored under this id by now.
    pub(in crate::http) fn to_json(&self, stored: Option<&AttachmentId>) -> String {
        let mut fields = self.fields.clone();
        if let Some(id) = stored {
            fields.set_text("url", &id.to_url());
        }
        fields.to_json()
    }
}

impl FileAt {
    /// Where a URL says that a file is.
    pub(in crate::http) fn of_url(url: &str, session: &str) -> Result<Self, BadFile> {
        if let Some(inline) = DataUrl::parse(url)? {
            return Ok(FileAt::Inline(inline));
        }
        if url.starts_with("lastword:") {
            return AttachmentId::of_url(url).map(FileAt::Stored).ok_or(BadFile::BadReference);
        }
        match Reference::of(url) {
            Some(reference) if reference.session == session => {
                AttachmentId::parse(reference.attachment).map(FileAt::Stored).map_err(|_| BadFile::BadReference)
            }
            Some(other) if url.starts_with('/') || AttachmentId::parse(other.attachment).is_ok() => {
                Err(BadFile::OtherSession)
            }
            _ => Ok(FileAt::Elsewhere),
        }
    }
}

/// A URL that has the form of an attachment's: `/v1/sessions/{sid}/attachments/{attachment}`, on whatever host.
struct Reference<'a> {
    session: &'a str,
    attachment: &'a str,
}

impl<'a> Reference<'a> {
    fn of(url: &'a str) -> Option<Self> {
        let is_ours = url.starts_with('/') || url.starts_with("http://") || url.starts_with("https://");
        let path = url.split(['?', '#']).next().filter(|_| is_ours)?;
        let (_, rest) = path.rsplit_once("/v1/sessions/")?;
        let (session, rest) = rest.split_once('/')?;
        let attachment = rest.strip_prefix("attachments/").filter(|attachment| !attachment.contains('/'))?;
        Some(Reference { session, attachment })
    }
}

/// An item of a turn's `attachments`: a file whose bytes can be stored, or anything else that stays as it is.
pub(in crate::http) fn attached(item: &str, session: &str) -> Result<Option<FilePart>, BadFile> {
    let Some(mut fields) = Object::parse(&on_one_line(item)) else { return Ok(None) };
    if let Some(id) = fields.text("attachment").filter(|_| fields.get("url").is_none()) {
        let id = AttachmentId::parse(&id).map_err(|_| BadFile::BadReference)?;
        return Ok(Some(uploaded(&fields, id)));
    }
    let Some(url) = fields.text("url").map(|url| url.into_owned()) else { return Ok(None) };
    let at = FileAt::of_url(&url, session)?;
    if at == FileAt::Elsewhere {
        return Ok(None);
    }
    if fields.get("mediaType").is_none() {
        let kind = fields.text("media_type").and_then(|kind| media_type(&kind));
        let kind = kind.or_else(|| if let FileAt::Inline(url) = &at { Some(url.media_type.clone()) } else { None });
        kind.into_iter().for_each(|kind| fields.set_text("mediaType", &kind));
    }
    if fields.get("type").is_none() {
        fields.set_text("type", "file");
    }
    Ok(Some(FilePart { fields, at }))
}

/// What the answer to an upload says, as a part.
fn uploaded(fields: &Object, id: AttachmentId) -> FilePart {
    let mut part = Object::default();
    part.set_text("type", "file");
    for (key, from) in [("mediaType", "media_type"), ("filename", "filename")] {
        fields.text(from).iter().for_each(|text| part.set_text(key, text));
    }
    FilePart { fields: part, at: FileAt::Stored(id) }
}

impl FilePart {
    /// The same with what the store knows of it, where the client does not say.
    pub(in crate::http) fn complete(&mut self, known: &Attachment) {
        if self.fields.get("mediaType").is_none() {
            self.fields.set_text("mediaType", &known.media_type);
        }
        if let Some(name) = known.filename.as_ref().filter(|_| self.fields.get("filename").is_none()) {
            self.fields.set_text("filename", name);
        }
    }
}

/// Whether two lists of attachments are the same files: equal types, names and places, whatever else is said of them.
pub(in crate::http) fn are_same(one: &str, other: &str) -> bool {
    let files = |list: &str| -> Option<Vec<[Option<String>; 4]>> {
        let items = serde_json::from_str::<Vec<Box<serde_json::value::RawValue>>>(list).ok()?;
        let file = |item: &serde_json::value::RawValue| match Object::parse(item.get()) {
            Some(fields) => {
                ["mediaType", "filename", "url", "type"].map(|key| fields.text(key).map(|text| text.into_owned()))
            }
            None => [Some(item.get().to_owned()), None, None, None],
        };
        Some(items.iter().map(|item| file(item)).collect())
    };
    files(one) == files(other)
}

/// A file's name without its folders, as far as it is kept.
pub(in crate::http) fn plain_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(FILENAME_CHARS_MAX).collect();
    name.trim().to_owned()
}

/// `Content-Disposition` (RFC 6266): an ASCII name for old readers, and the whole one.
pub(in crate::http) fn disposition(is_shown: bool, filename: Option<&str>) -> String {
    let mut text = String::from(if is_shown { "inline" } else { "attachment" });
    let Some(name) = filename.map(plain_name).filter(|name| !name.is_empty()) else { return text };
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() && !"\"\\%;".contains(c) || c == ' ' { c } else { '_' }).collect();
    text.push_str(&format!("; filename=\"{plain}\""));
    if plain != name {
        text.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            match byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
                true => text.push(char::from(byte)),
                false => text.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    text
}

/// In valid JSON a control character stands only between tokens.
pub(in crate::http) fn on_one_line(json: &str) -> String {
    json.chars().filter(|c| *c >= ' ').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn id() -> AttachmentId {
        AttachmentId::parse(&format!("sha256-{HASH}")).unwrap()
    }

    #[test]
    fn a_url_says_where_the_bytes_are() {
        let path = format!("/v1/sessions/c/attachments/sha256-{HASH}");
        for url in [
            format!("lastword:sha256-{HASH}"),
            path.clone(),
            format!("/chat{path}"),
            format!("https://example.org/chat{path}"),
            format!("http://127.0.0.1:4437{path}"),
            format!("https://example.org/lastword{path}?ticket=x#y"),
        ] {
            assert_eq!(FileAt::of_url(&url, "c"), Ok(FileAt::Stored(id())), "{url}");
        }
        let inline = DataUrl { media_type: "a/b".to_owned(), bytes: vec![0] };
        assert_eq!(FileAt::of_url("data:a/b;base64,AA==", "c"), Ok(FileAt::Inline(inline)));
        for url in [
            "https://example.org/a.png".to_owned(),
            "https://example.org/v1/sessions/other/attachments/logo.png".to_owned(),
            "b".to_owned(),
            format!("/v1/sessions/c/files/sha256-{HASH}"),
        ] {
            assert_eq!(FileAt::of_url(&url, "c"), Ok(FileAt::Elsewhere), "{url}");
        }
        assert_eq!(FileAt::of_url(&path, "d"), Err(BadFile::OtherSession));
        assert_eq!(FileAt::of_url(&format!("https://host{path}"), "d"), Err(BadFile::OtherSession));
        for url in ["lastword:sha256-x", "/v1/sessions/c/attachments/x", "/v1/sessions/c/attachments/"] {
            assert_eq!(FileAt::of_url(url, "c"), Err(BadFile::BadReference), "{url}");
        }
    }

    #[test]
    fn a_row_names_what_was_stored_and_keeps_what_the_client_says() {
        let part = r#"{"type":"file","mediaType":"Image/PNG","filename":"..\\dir/a.png","url":"data:,","x":[1,
            2]}"#;
        let part = FilePart::parse(part, "c").unwrap();
        assert_eq!((part.media_type().as_str(), part.filename().as_deref()), ("image/png", Some("a.png")));
        let expected = format!(
            r#"{{"type":"file","mediaType":"Image/PNG","filename":"..\\dir/a.png","url":"lastword:sha256-{HASH}","x":[1,            2]}}"#
        );
        assert_eq!(part.to_json(Some(&id())), expected);
        let range = r#"{"type":"file","mediaType":"image/*","url":"data:image/gif;base64,AA=="}"#;
        assert_eq!(FilePart::parse(range, "c").unwrap().media_type(), "image/gif");
        let none = r#"{"type":"file","mediaType":"?","url":"lastword:sha256-"#.to_owned() + HASH + r#""}"#;
        assert_eq!(FilePart::parse(&none, "c").unwrap().media_type(), UNKNOWN_TYPE);
    }

    #[test]
    fn attachments_of_a_turn_are_files_in_whatever_form() {
        let json = |item: &str| {
            let part = attached(item, "c").unwrap()?;
            Some(part.to_json(Some(&id())))
        };
        let url = format!("lastword:sha256-{HASH}");
        let upload =
            format!(r#"{{"attachment":"sha256-{HASH}","media_type":"image/png","bytes":0,"filename":"a.png"}}"#);
        let expected = format!(r#"{{"type":"file","mediaType":"image/png","filename":"a.png","url":"{url}"}}"#);
        assert_eq!(json(&upload), Some(expected));
        let bare = r#"{"url":"data:image/png;base64,AA=="}"#;
        assert_eq!(json(bare), Some(format!(r#"{{"url":"{url}","mediaType":"image/png","type":"file"}}"#)));
        for other in [r#""a.png""#, "7", r#"{"name":"a.png","path":"/a.png"}"#, r#"{"url":"https://example.org/"}"#] {
            assert_eq!(json(other), None, "{other}");
        }
        assert_eq!(attached(r#"{"attachment":"../x"}"#, "c"), Err(BadFile::BadReference));
    }

    #[test]
    fn the_same_files_are_the_same_however_they_are_spelt() {
        let one = r#"[{"type":"file","mediaType":"a/b","url":"lastword:x"}]"#;
        assert!(are_same(one, r#"[ {"url":"lastword:\u0078", "mediaType":"a/b","type":"file","more":1} ]"#));
        for other in ["[]", r#"[{"type":"file","mediaType":"a/c","url":"lastword:x"}]"#] {
            assert!(!are_same(one, other), "{other}");
        }
        assert!(are_same("[1]", "[1]") && !are_same("[1]", "[2]"));
    }

    #[test]
    fn a_name_in_a_header_is_harmless_and_whole() {
        for (name, expected) in [
            (Some("a b.png"), r#"attachment; filename="a b.png""#),
            (Some("../../etc/passwd"), r#"attachment; filename="passwd""#),
            (Some("a\"\r\nx: y"), r#"attachment; filename="a_x: y"; filename*=UTF-8''a%22x%3A%20y"#),
            (Some("é%.pdf"), r#"attachment; filename="__.pdf"; filename*=UTF-8''%C3%A9%25.pdf"#),
            (Some("/"), "attachment"),
            (None, "attachment"),
        ] {
            assert_eq!(disposition(false, name), expected);
        }
        assert_eq!(disposition(true, None), "inline");
    }
}
