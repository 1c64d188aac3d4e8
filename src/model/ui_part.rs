//! The UI parts that the events `file`, `source` and `data` give, in the shape of the AI SDK's messages. Pure.
//!
//! The transcript keeps them in the row's [`PARTS`], the chat stream sends them: both ask this one function, so that a
//! reload shows what the stream showed.

use super::attachment::AttachmentId;
use super::json::{Fields, Object};
use super::text::{is_truthy, python_text};

/// The key of an assistant's row that holds its UI parts, a JSON list.
pub(crate) const PARTS: &str = "_parts";

/// Bytes of the name of a data part, without `data-`.
const DATA_NAME_BYTES_MAX: usize = 64;
/// Bytes of an id, a media type or a file name.
const WORD_BYTES_MAX: usize = 256;
/// What a file is of which only the bytes are known.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The part that an event adds to the answer, or none if it adds none or its payload does not fit.
pub(crate) fn ui_part(event: &str, payload: &str) -> Option<Object> {
    let fields = || Fields::parse(payload);
    match event {
        "file" => file(&fields()?),
        "source" => source(&fields()?),
        "data" => data(&fields()?),
        _ => None,
    }
}

fn part(kind: &str) -> Object {
    let mut part = Object::default();
    part.set_text("type", kind);
    part
}

fn file(fields: &Fields<'_>) -> Option<Object> {
    let attachment = word(fields, &["attachment"]).and_then(|id| AttachmentId::parse(&id).ok());
    let url = attachment.map(|id| id.to_url()).or_else(|| text(fields, &["url"]).filter(|url| is_file_address(url)));
    let mut file = part("file");
    file.set_text("mediaType", &word(fields, &["media_type", "mediaType"]).unwrap_or_else(|| UNKNOWN_TYPE.to_owned()));
    file.set_text("url", &url?);
    if let Some(name) = word(fields, &["filename"]) {
        file.set_text("filename", &name);
    }
    Some(file)
}

/// A page if it has an address, else a document.
fn source(fields: &Fields<'_>) -> Option<Object> {
    let url = text(fields, &["url"]).filter(|url| is_page(url));
    let title = text(fields, &["title"]);
    let id = word(fields, &["id", "source_id"]).or_else(|| url.clone()).or_else(|| title.clone())?;
    let Some(url) = url else {
        let kind = word(fields, &["media_type", "mediaType"]).unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
        let name = word(fields, &["filename"]);
        let mut document = part("source-document");
        document.set_text("sourceId", &id);
        document.set_text("mediaType", &kind);
        document.set_text("title", title.as_ref().or(name.as_ref()).unwrap_or(&id));
        name.iter().for_each(|name| document.set_text("filename", name));
        return Some(document);
    };
    let mut page = part("source-url");
    page.set_text("sourceId", &id);
    page.set_text("url", &url);
    title.iter().for_each(|title| page.set_text("title", title));
    Some(page)
}

fn data(fields: &Fields<'_>) -> Option<Object> {
    let name = text(fields, &["name"]).filter(|name| is_data_name(name))?;
    let mut data = part(&format!("data-{name}"));
    if let Some(id) = word(fields, &["id"]) {
        data.set_text("id", &id);
    }
    data.set("data", fields.get("data").unwrap_or("null"));
    Some(data)
}

fn is_data_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=DATA_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Addresses that a page may open without running anything.
fn is_page(url: &str) -> bool {
    has_scheme(url, &["https:", "http:"])
}

/// Addresses of files that a page may load without running anything.
pub(crate) fn is_file_address(url: &str) -> bool {
    let is_path = url.starts_with('/') && !url.starts_with("//");
    is_path || has_scheme(url, &["https:", "http:", "data:"]) || AttachmentId::of_url(url).is_some()
}

fn has_scheme(url: &str, schemes: &[&str]) -> bool {
    let begins = |scheme: &&str| url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    schemes.iter().any(begins) && !url.chars().any(char::is_control)
}

/// The text of the first of these keys that says anything. A number is as good as its text.
fn text(fields: &Fields<'_>, keys: &[&str]) -> Option<String> {
    let is_text = |value: &&str| is_truthy(value) && !value.starts_with(['{', '[']);
    keys.iter().filter_map(|key| fields.get(key)).find(is_text).map(|value| python_text(value).into_owned())
}

fn word(fields: &Fields<'_>, keys: &[&str]) -> Option<String> {
    text(fields, keys).filter(|word| word.len() <= WORD_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(event: &str, payload: &str, expected: Option<&str>) {
        assert_eq!(ui_part(event, payload).map(|part| part.to_json()).as_deref(), expected, "{event} {payload}");
    }

    #[test]
    fn a_file_is_an_attachment_or_an_address() {
        let id = format!("sha256-{}", "a1".repeat(32));
        let stored = format!(r#"{{"type":"file","mediaType":"image/png","url":"lastword:{id}"}}"#);
        check("file", &format!(r#"{{"media_type":"image/png","attachment":"{id}"}}"#), Some(&stored));
        check("file", &format!(r#"{{"media_type":"image/png","url":"lastword:{id}"}}"#), Some(&stored));
        check(
            "file",
            r#"{"url":"https://a/b","filename":"b.bin"}"#,
            Some(r#"{"type":"file","mediaType":"application/octet-stream","url":"https://a/b","filename":"b.bin"}"#),
        );
        for odd in
            ["7", "{}", r#"{"url":"javascript:alert(1)"}"#, r#"{"url":"//a/b"}"#, r#"{"attachment":"sha256-00"}"#]
        {
            check("file", odd, None);
        }
    }

    #[test]
    fn a_source_is_a_page_or_a_document() {
        check(
            "source",
            r#"{"id":7,"url":"http://a","title":"A"}"#,
            Some(r#"{"type":"source-url","sourceId":"7","url":"http://a","title":"A"}"#),
        );
        check(
            "source",
            r#"{"url":"http://a"}"#,
            Some(r#"{"type":"source-url","sourceId":"http://a","url":"http://a"}"#),
        );
        check(
            "source",
            r#"{"id":"d","media_type":"text/plain","filename":"d.txt","url":"javascript:x"}"#,
            Some(
                r#"{"type":"source-document","sourceId":"d","mediaType":"text/plain","title":"d.txt","filename":"d.txt"}"#,
            ),
        );
        check("source", r#"{"media_type":"text/plain"}"#, None);
        check("source", "null", None);
    }

    #[test]
    fn data_has_a_plain_name_and_any_value() {
        check("data", r#"{"name":"x","data":[1, 2]}"#, Some(r#"{"type":"data-x","data":[1, 2]}"#));
        check("data", r#"{"name":"x","id":"1"}"#, Some(r#"{"type":"data-x","id":"1","data":null}"#));
        for odd in [r#"{"name":""}"#, r#"{"name":"a b"}"#, r#"{"name":{"a":1}}"#, "{}", "[]"] {
            check("data", odd, None);
        }
        check("token", r#"{"name":"x"}"#, None);
    }
}
