//! What a list shows of a session, small enough to keep of every session there is.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::{memchr2, memmem};

use super::id::SessionId;
use super::json::{Object, quoted, text_of};
use super::session::{List, Metadata, Revision, Session};
use super::text::is_truthy;
use crate::limits::LISTED_CHARS_MAX;

/// What is listed of a session behind its id: keys of the sidecar as they are, and two that are made up. Each with what
/// it is if nothing is noted. A value that is no text, number or truth is listed as null.
const KEYS: [(&str, &str); 9] = [
    ("title", "null"),
    ("created_at", "null"),
    ("updated_at", "null"),
    ("pinned", "null"),
    ("archived", "null"),
    ("active_stream_id", "null"),
    ("parent_session_id", "null"),
    (ROWS, "0"),
    (IS_PENDING, "false"),
];
const ROWS: &str = "message_count";
/// What a list adds: made up when it is shown, because it depends on the time.
const STATE: &str = "state";
/// Keys as they stand before their values.
const ACTIVE_RUN: &str = r#""active_stream_id":"#;
const TITLE: &str = r#""title":"#;
const ARCHIVED: &str = r#""archived":"#;
const IS_PENDING: &str = "has_pending_user_message";

/// What a session is doing, as a list shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionState {
    /// No turn waits for an answer.
    #[default]
    Idle,
    /// A run answers its turn.
    Answering,
    /// The run that was to answer its turn is over, and no read of the session has resolved that yet.
    Interrupted,
}

impl SessionState {
    /// The word that lists use.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionState::Idle => "idle",
            SessionState::Answering => "answering",
            SessionState::Interrupted => "interrupted",
        }
    }
}

/// One session in a list: a few of its values, as they were in one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    id: SessionId,
    revision: Revision,
    updated_at: f64,
    /// A JSON object on one line with those keys that are not as usual.
    noted: Arc<str>,
}

impl Summary {
    /// What is listed of a session that was read whole; nothing if it was never stored.
    pub fn of_session(session: &Session) -> Option<Self> {
        let rows = session.len(List::Messages);
        Some(Self::new(session.id(), session.revision()?, session.updated_at(), rows, |key| session.get(key)))
    }

    /// What is listed of a session whose metadata alone was read.
    pub fn of_metadata(metadata: &Metadata) -> Option<Self> {
        let (revision, rows) = (metadata.revision()?, metadata.message_count());
        Some(Self::new(metadata.id(), revision, metadata.updated_at(), rows, |key| metadata.get(key)))
    }

    fn new<'a>(
        id: &SessionId,
        revision: &Revision,
        updated_at: Option<f64>,
        rows: usize,
        get: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let rows = rows.to_string();
        let is_pending = get("pending_user_message").is_some_and(is_truthy);
        let mut noted = Object::default();
        for (key, usual) in KEYS {
            let value = match key {
                ROWS => Cow::Borrowed(&*rows),
                IS_PENDING => Cow::Borrowed(if is_pending { "true" } else { "false" }),
                key => get(key).map_or(Cow::Borrowed("null"), listed),
            };
            if value != usual {
                noted.set(key, &*value);
            }
        }
        Self::restore(id.clone(), revision.clone(), updated_at.unwrap_or(0.0), &noted.to_json())
    }

    /// A summary that was noted before.
    pub(crate) fn restore(id: SessionId, revision: Revision, updated_at: f64, noted: &str) -> Self {
        Summary { id, revision, updated_at, noted: noted.into() }
    }

    /// What is noted of it: a JSON object on one line.
    pub(crate) fn noted(&self) -> &str {
        &self.noted
    }

    /// The session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The stored revision that this was read from.
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    /// When the session was last changed, in seconds; 0 if it does not say.
    pub fn updated_at(&self) -> f64 {
        self.updated_at
    }

    /// Its title, cut to what a list can show.
    pub fn title(&self) -> String {
        self.get("title").as_deref().and_then(text_of).unwrap_or_default().into_owned()
    }

    /// Whether it says that it is archived.
    pub fn is_archived(&self) -> bool {
        self.noted_value(ARCHIVED).is_some_and(is_truthy)
    }

    /// The run that answers the pending turn, if there is one. Found without reading all that is noted.
    pub fn active_run(&self) -> Option<Cow<'_, str>> {
        text_of(self.noted_value(ACTIVE_RUN)?).filter(|run| !run.is_empty())
    }

    /// The title as [`Summary::title`] gives it, found without reading all that is noted.
    pub(crate) fn listed_title(&self) -> Cow<'_, str> {
        self.noted_value(TITLE).and_then(text_of).unwrap_or_default()
    }

    /// The JSON text behind a key, in quotes and with its colon. What is noted has known keys and plain values, as
    /// [`Object::to_json`] writes them: inside of a text a quote has a backslash before it, so that the key is none.
    fn noted_value(&self, key: &str) -> Option<&str> {
        let behind = memmem::find(self.noted.as_bytes(), key.as_bytes())? + key.len();
        let value = &self.noted[behind..];
        let len = if value.starts_with('"') { literal_len(value) } else { value.find([',', '}'])? };
        value.get(..len)
    }

    /// How many rows its transcript has.
    pub fn message_count(&self) -> usize {
        self.get("message_count").and_then(|rows| rows.parse().ok()).unwrap_or(0)
    }

    /// The JSON text of a listed key.
    pub fn get(&self, key: &str) -> Option<String> {
        let (_, usual) = KEYS.iter().find(|(known, _)| *known == key)?;
        let noted = Object::parse(&self.noted).unwrap_or_default();
        Some(noted.get(key).unwrap_or(usual).to_owned())
    }

    /// All of it as a JSON object on one line.
    pub fn to_json(&self) -> String {
        self.to_object().to_json()
    }

    /// The same with the state of the session, as lists show it.
    pub fn to_listed_json(&self, state: SessionState) -> String {
        let mut object = self.to_object();
        object.set_text(STATE, state.as_str());
        object.to_json()
    }

    fn to_object(&self) -> Object {
        let noted = Object::parse(&self.noted).unwrap_or_default();
        let mut object = Object::default();
        object.set_text("session_id", self.id.as_str());
        for (key, usual) in KEYS {
            object.set(key, noted.get(key).unwrap_or(usual));
        }
        object
    }
}

/// How long the string literal is that a text begins with.
fn literal_len(text: &str) -> usize {
    let mut at = 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest.as_bytes())) {
        at += found + 1;
        match text.as_bytes()[at - 1] {
            b'"' => return at,
            _ => at += 1,
        }
    }
    text.len()
}

/// A value as it is listed: on one line, and no longer than a list can show.
fn listed(raw: &str) -> Cow<'_, str> {
    if raw.starts_with(['[', '{']) || (raw.len() > LISTED_CHARS_MAX && !raw.starts_with('"')) {
        return Cow::Borrowed("null");
    }
    match text_of(raw) {
        Some(text) if text.len() > LISTED_CHARS_MAX => {
            let shown: String = text.chars().take(LISTED_CHARS_MAX).collect();
            Cow::Owned(quoted(&shown).into())
        }
        _ => Cow::Borrowed(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_short_plain_values_on_one_line() {
        let long = format!("\"{}\"", "x".repeat(5_000));
        for (raw, shown) in
            [("null", "null"), ("1.5", "1.5"), (r#""a\nb""#, r#""a\nb""#), ("{\n}", "null"), ("[1]", "null")]
        {
            assert_eq!(listed(raw), shown);
        }
        assert_eq!(listed(&long).len(), LISTED_CHARS_MAX + 2);
        assert_eq!(listed(&"9".repeat(5_000)), "null");
    }

    /// Whatever stands in a session, what is found quickly is what a parser finds.
    #[test]
    fn a_title_and_whether_it_is_archived_are_found_without_reading_everything() {
        let tricky = [
            "null",
            "true",
            "false",
            "0",
            "-1.5e3",
            r#""""#,
            r#""plain""#,
            r#""a \"archived\":true, b""#,
            r#""\"title\":\"no\"""#,
            r#""\\""#,
            r#""\\\"""#,
            r#""\u00e9\ud83d\ude00 é, }""#,
            r#""archived""#,
            r#""\"archived""#,
            r#"":true,""#,
            "[1]",
            "{}",
        ];
        for title in tricky {
            for other in tricky {
                for archived in tricky {
                    let get = |key: &str| match key {
                        "title" => Some(title),
                        "created_at" | "pinned" | "active_stream_id" => Some(other),
                        "archived" => Some(archived),
                        _ => None,
                    };
                    let id = SessionId::parse("s").unwrap();
                    let summary = Summary::new(&id, &Revision::new("1"), None, 3, get);
                    let parsed = summary.get("archived").is_some_and(|archived| is_truthy(&archived));
                    assert_eq!(summary.listed_title(), summary.title(), "{}", summary.to_json());
                    assert_eq!(summary.is_archived(), parsed, "{}", summary.to_json());
                }
            }
        }
    }
}
