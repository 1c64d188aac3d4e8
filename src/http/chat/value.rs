//! Values of events and rows as the AI SDK's packages take them: a tool's input, its output or failure, and UI parts. The
//! chat stream and the history share them, so that a reload shows what the stream showed.

use std::borrow::Cow;

use serde_json::Value;

use crate::http::base_path::BasePath;
use crate::model::{AttachmentId, Fields, Object, SessionId, is_truthy, python_text, quoted, text_of, trim};

/// What is said of a tool that never answered.
pub(super) const NO_ANSWER: &str = "interrupted";
/// What is said of a tool that failed without a word.
const FAILED: &str = "the tool failed";

/// A value on one line if every reader takes it, else its text: the packages refuse a whole stream for one key that could
/// change a prototype, strict readers half a surrogate pair, and readers have a limit of depth.
pub(super) fn shown(json: &str) -> String {
    let value = serde_json::from_str::<Value>(json);
    match value.is_ok_and(|value| !is_refused(&value)) {
        // In valid JSON a control character stands only between tokens.
        true => json.chars().filter(|c| *c >= ' ').collect(),
        false => quoted(json).into(),
    }
}

fn is_refused(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key("__proto__")
                || fields.get("constructor").is_some_and(|value| value.get("prototype").is_some())
                || fields.values().any(is_refused)
        }
        Value::Array(items) => items.iter().any(is_refused),
        _ => false,
    }
}

/// The text of the first of these keys that says anything.
pub(super) fn given<'a>(fields: &Fields<'a>, keys: &[&str]) -> Option<Cow<'a, str>> {
    keys.iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value)).map(python_text)
}

/// What a tool was called with.
pub(super) fn input(args: Option<&str>) -> String {
    args.filter(|args| is_truthy(args)).map_or_else(|| "{}".to_owned(), shown)
}

/// What a tool answered. A preview is not the answer, and is sent under a name of its own.
pub(super) fn output(result: Option<&str>, preview: &str) -> String {
    match result {
        Some(result) => shown(result),
        None if preview.is_empty() => "null".to_owned(),
        None => format!("{{\"preview\":{}}}", quoted(preview)),
    }
}

/// Why a tool failed.
pub(super) fn failure(result: Option<&str>, preview: &str) -> String {
    let said = result.filter(|result| *result != "null").map(|result| text_of(result).unwrap_or(result.into()));
    let said = said.as_deref().filter(|said| !trim(said).is_empty()).unwrap_or(preview);
    if said.is_empty() { FAILED.to_owned() } else { said.to_owned() }
}

/// A UI part with the addresses that a client of this session can fetch, and values that it takes.
pub(super) fn part_for(files: &FileAddresses, part: &Object) -> Object {
    let mut shown_part = Object::default();
    for (key, value) in part.iter() {
        match key {
            "url" => shown_part.set_text(key, &files.address(&text_of(value).unwrap_or_default())),
            "data" => shown_part.set(key, shown(value)),
            _ => shown_part.set(key, value),
        }
    }
    shown_part
}

/// Where a client fetches the files of a session.
#[derive(Debug, Clone)]
pub(in crate::http) struct FileAddresses(Box<str>);

impl FileAddresses {
    pub(in crate::http) fn of(base: &BasePath, session: &SessionId) -> Self {
        FileAddresses(format!("{base}/v1/sessions/{session}/attachments/").into())
    }

    /// Where a client fetches a file.
    pub(super) fn address(&self, url: &str) -> String {
        match AttachmentId::of_url(url) {
            Some(attachment) => format!("{}{attachment}", self.0),
            None => url.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_reader_refuses_are_sent_as_texts() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for value in
            [r#"{"a":[{"__proto__":1}]}"#, r#"{"constructor":{"prototype":1}}"#, r#"["\ud800"]"#, "1e999", &deep]
        {
            assert_eq!(shown(value), *quoted(value));
        }
        assert_eq!(shown("{\"constructor\":\r\n\t1}"), "{\"constructor\":1}");
    }

    #[test]
    fn a_preview_is_never_the_answer() {
        assert_eq!(output(Some("\"\""), "p"), "\"\"");
        assert_eq!(output(Some("0"), "p"), "0");
        assert_eq!(output(None, "p"), r#"{"preview":"p"}"#);
        assert_eq!(output(None, ""), "null");
    }

    #[test]
    fn a_failure_always_has_words() {
        assert_eq!(failure(Some("\"no\""), "p"), "no");
        assert_eq!(failure(Some(r#"{"code":7}"#), "p"), r#"{"code":7}"#);
        for nothing in [None, Some("null"), Some("\" \"")] {
            assert_eq!((failure(nothing, "p"), failure(nothing, "")), ("p".to_owned(), FAILED.to_owned()));
        }
    }
}
