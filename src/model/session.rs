//! A session as it was read: one text, and for every key and row the place where it stands in it.
//!
//! Rows are parsed when somebody touches them. What nobody touched is written back byte for byte.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::id::{RunId, SessionId};
use super::json::{quoted, text_of};
use super::row::Row;
use super::text::is_blank;
use super::title::UNTITLED;
use super::tool::ToolCard;
use crate::clock::Timestamp;

/// The version of a stored session. Opaque: two are equal or they are not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision(Arc<str>);

impl Revision {
    /// A revision that a storage backend made up.
    pub fn new(text: &str) -> Self {
        Revision(text.into())
    }

    /// The revision as text, for an ETag.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Bytes that a document has around a key or a row: quotes, a comma, a line break and its indentation.
const PIECE_FRAME_BYTES: usize = 8;

/// A piece of JSON text: a place in the session's text, or text of its own.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Shared { start: usize, end: usize },
    Owned(Arc<str>),
}

impl Piece {
    pub(crate) fn text<'a>(&'a self, source: &'a str) -> &'a str {
        match self {
            Piece::Shared { start, end } => &source[*start..*end],
            Piece::Owned(text) => text,
        }
    }

    /// Where it stands in the session's text; nowhere if it has a text of its own.
    fn place(&self) -> Range<usize> {
        match self {
            Piece::Shared { start, end } => *start..*end,
            Piece::Owned(_) => 0..0,
        }
    }
}

/// The value of a top-level key: any JSON, or a list whose items are known one by one.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    Value(Piece),
    Items(Vec<Piece>),
}

/// A top-level key, without its quotes but otherwise as it is spelt in the file.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Piece,
    pub(crate) slot: Slot,
}

/// What a session was read from or saved as.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) revision: Revision,
    pub(crate) messages: usize,
}

/// The three lists of a session whose items are read one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The transcript.
    Messages,
    /// The tool cards.
    ToolCalls,
    /// The conversation as a model was last shown it.
    ContextMessages,
}

impl List {
    /// All three.
    pub const ALL: [List; 3] = [List::Messages, List::ToolCalls, List::ContextMessages];

    /// The key that holds it.
    pub fn key(self) -> &'static str {
        match self {
            List::Messages => "messages",
            List::ToolCalls => "tool_calls",
            List::ContextMessages => "context_messages",
        }
    }
}

/// A key that should hold a list holds something else, which is not overwritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is not a list in this session")]
pub struct NotAList {
    /// The key.
    pub key: &'static str,
}

/// The user's message whose answer is not yet in the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingTurn {
    /// What the user said.
    pub message: String,
    /// The list of attachments, as JSON.
    pub attachments: String,
    /// When the turn began, in seconds.
    pub started_at: Option<f64>,
    /// Where it came from, unless it is the web UI.
    pub source: Option<String>,
}

/// A conversation: its metadata and its rows. Cheap to clone, whatever its size.
#[derive(Clone)]
pub struct Session {
    id: SessionId,
    source: Arc<String>,
    entries: Vec<Entry>,
    base: Option<Base>,
    /// Whether it differs from what was read or saved.
    is_changed: bool,
}

impl Session {
    pub(crate) fn from_parts(id: SessionId, source: Arc<String>, entries: Vec<Entry>) -> Self {
        Session { id, source, entries, base: None, is_changed: false }
    }

    /// A session that is not stored yet.
    pub fn new(id: SessionId, title: &str, now: Timestamp) -> Self {
        let mut session = Session::from_parts(id, Arc::default(), Vec::new());
        let now = now.to_string();
        let id = quoted(session.id.as_str());
        let title = quoted(title);
        let metadata: [(&str, &str); 13] = [
            ("session_id", &id),
            ("title", &title),
            ("created_at", &now),
            ("updated_at", &now),
            ("pinned", "false"),
            ("archived", "false"),
            ("active_stream_id", "null"),
            ("pending_user_message", "null"),
            ("pending_attachments", "[]"),
            ("pending_started_at", "null"),
            ("pending_user_source", "null"),
            ("parent_session_id", "null"),
            ("message_count", "0"),
        ];
        session.entries.extend(metadata.map(|(key, value)| Entry {
            key: Piece::Owned(key.into()),
            slot: Slot::Value(Piece::Owned(value.into())),
        }));
        session.entries.extend(
            List::ALL.map(|list| Entry { key: Piece::Owned(list.key().into()), slot: Slot::Items(Vec::new()) }),
        );
        session
    }

    /// Its id: the name of its file, whatever the file says inside.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    pub(crate) fn set_base(&mut self, revision: Revision) {
        self.base = Some(Base { revision, messages: self.len(List::Messages) });
    }

    /// Whether anything was changed since it was read or saved.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The revision that was read or saved; none for a session that was never stored.
    pub fn revision(&self) -> Option<&Revision> {
        self.base.as_ref().map(|base| &base.revision)
    }

    fn find(&self, key: &str) -> Option<usize> {
        self.entries.iter().rposition(|entry| entry.key.text(&self.source) == key)
    }

    /// The JSON text of a top-level value. The three lists have calls of their own.
    pub fn get(&self, key: &str) -> Option<&str> {
        match &self.entries[self.find(key)?].slot {
            Slot::Value(piece) => Some(piece.text(&self.source)),
            Slot::Items(_) => None,
        }
    }

    /// Gives a top-level key another value, which must be JSON or a save will refuse it. A new key goes before the transcript, where metadata belongs.
    pub fn set(&mut self, key: &str, json: &str) {
        debug_assert!(List::ALL.iter().all(|list| list.key() != key), "{key} is a list");
        if self.get(key) == Some(json) {
            return;
        }
        self.is_changed = true;
        let slot = Slot::Value(Piece::Owned(json.into()));
        match self.find(key) {
            Some(at) => self.entries[at].slot = slot,
            None => {
                let at = self.entries.iter().position(|entry| matches!(entry.slot, Slot::Items(_)));
                let spelt = quoted(key);
                let entry = Entry { key: Piece::Owned(spelt[1..spelt.len() - 1].into()), slot };
                self.entries.insert(at.unwrap_or(self.entries.len()), entry);
            }
        }
    }

    /// Gives a top-level key a string as its value.
    pub fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, &quoted(text));
    }

    fn text(&self, key: &str) -> Option<Cow<'_, str>> {
        self.get(key).and_then(text_of)
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.parse().ok()
    }

    /// Its title.
    pub fn title(&self) -> Cow<'_, str> {
        self.text("title").unwrap_or_default()
    }

    /// Whether it has no title, or one that shows nothing. A title that is not a text is one.
    pub fn is_untitled(&self) -> bool {
        match self.get("title") {
            None | Some("null") => true,
            Some(title) => text_of(title).is_some_and(|title| title == UNTITLED || title.chars().all(is_blank)),
        }
    }

    /// When it was last changed, in seconds.
    pub fn updated_at(&self) -> Option<f64> {
        self.number("updated_at")
    }

    /// The run that answers the pending turn, as the file has it.
    pub fn active_run(&self) -> Option<Cow<'_, str>> {
        self.text("active_stream_id").filter(|run| !run.is_empty())
    }

    /// The user's message that waits for its answer.
    pub fn pending_turn(&self) -> Option<PendingTurn> {
        let message = self.text("pending_user_message").filter(|message| !message.is_empty())?;
        Some(PendingTurn {
            message: message.into_owned(),
            attachments: self
                .get("pending_attachments")
                .filter(|list| list.starts_with('['))
                .unwrap_or("[]")
                .to_owned(),
            started_at: self.number("pending_started_at"),
            source: self.text("pending_user_source").map(Cow::into_owned),
        })
    }

    /// Whether anything in the session belongs to a run: a key that names runs, streams or events names it.
    pub fn mentions(&self, run: &RunId) -> bool {
        let of = |piece: &Piece| matches!(piece, Piece::Owned(text) if names_run(text, run));
        names_run(&self.source, run)
            || self.entries.iter().any(|entry| match &entry.slot {
                Slot::Value(value) => of(value),
                Slot::Items(items) => items.iter().any(of),
            })
    }

    /// Notes the user's message and the run that will answer it.
    pub fn set_pending(&mut self, run: &RunId, turn: &PendingTurn, started_at: Timestamp) {
        self.set_text("active_stream_id", run.as_str());
        self.set_text("pending_user_message", &turn.message);
        self.set("pending_attachments", &turn.attachments);
        self.set("pending_started_at", &started_at.to_string());
        match &turn.source {
            Some(source) => self.set_text("pending_user_source", source),
            None => self.set("pending_user_source", "null"),
        }
    }

    /// Forgets the pending message and its run.
    pub fn clear_pending(&mut self) {
        for key in ["active_stream_id", "pending_user_message", "pending_started_at", "pending_user_source"] {
            self.set(key, "null");
        }
        self.set("pending_attachments", "[]");
    }

    fn items(&self, list: List) -> &[Piece] {
        match self.find(list.key()).map(|at| &self.entries[at].slot) {
            Some(Slot::Items(items)) => items,
            _ => &[],
        }
    }

    fn items_mut(&mut self, list: List) -> Result<&mut Vec<Piece>, NotAList> {
        self.is_changed = true;
        let at = match self.find(list.key()) {
            Some(at) => at,
            None => {
                let key = Piece::Owned(list.key().into());
                self.entries.push(Entry { key, slot: Slot::Items(Vec::new()) });
                self.entries.len() - 1
            }
        };
        match &mut self.entries[at].slot {
            Slot::Items(items) => Ok(items),
            Slot::Value(_) => Err(NotAList { key: list.key() }),
        }
    }

    /// Whether a list can be added to: it is one, or is missing.
    pub fn is_list(&self, list: List) -> bool {
        self.find(list.key()).is_none_or(|at| matches!(self.entries[at].slot, Slot::Items(_)))
    }

    /// How many items a list has.
    pub fn len(&self, list: List) -> usize {
        self.items(list).len()
    }

    /// Whether a list has no items.
    pub fn is_empty(&self, list: List) -> bool {
        self.items(list).is_empty()
    }

    /// The JSON texts of a list's items.
    pub fn texts(&self, list: List) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.items(list).iter().map(|piece| piece.text(&self.source))
    }

    /// The JSON text of one item.
    pub fn item(&self, list: List, index: usize) -> Option<&str> {
        self.items(list).get(index).map(|piece| piece.text(&self.source))
    }

    /// The rows of the transcript, each parsed as it is reached.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = Row> + ExactSizeIterator {
        self.texts(List::Messages).map(Row::parse)
    }

    /// One row of the transcript.
    pub fn message(&self, index: usize) -> Option<Row> {
        self.items(List::Messages).get(index).map(|piece| Row::parse(piece.text(&self.source)))
    }

    /// The tool cards, each parsed as it is reached.
    pub fn tool_cards(&self) -> impl DoubleEndedIterator<Item = ToolCard> + ExactSizeIterator {
        self.texts(List::ToolCalls).map(ToolCard::parse)
    }

    /// Adds a row to the transcript's end.
    pub fn push_message(&mut self, row: &Row) -> Result<(), NotAList> {
        self.push_item(List::Messages, &row.fields().to_json())
    }

    /// Adds a tool card.
    pub fn push_tool_card(&mut self, card: &ToolCard) -> Result<(), NotAList> {
        self.push_item(List::ToolCalls, &card.fields().to_json())
    }

    /// Adds JSON text to a list's end. A save will refuse what is not JSON.
    pub fn push_item(&mut self, list: List, json: &str) -> Result<(), NotAList> {
        self.items_mut(list)?.push(Piece::Owned(json.into()));
        Ok(())
    }

    /// Puts another row in the place of one.
    pub fn replace_message(&mut self, index: usize, row: &Row) -> Result<(), NotAList> {
        self.replace_item(List::Messages, index, &row.fields().to_json())
    }

    /// Puts another item in the place of one.
    pub fn replace_item(&mut self, list: List, index: usize, json: &str) -> Result<(), NotAList> {
        self.items_mut(list)?[index] = Piece::Owned(json.into());
        Ok(())
    }

    /// Adds an item before the one that has this place.
    pub fn insert_item(&mut self, list: List, index: usize, json: &str) -> Result<(), NotAList> {
        self.items_mut(list)?.insert(index, Piece::Owned(json.into()));
        Ok(())
    }

    /// Puts rows in the place of others. Every tool card goes on pointing at the row that it pointed at; one whose row
    /// is gone points at the row before.
    pub fn splice_messages(&mut self, range: Range<usize>, rows: &[Row]) -> Result<(), NotAList> {
        if range.is_empty() && rows.is_empty() {
            return Ok(());
        }
        let items = self.items_mut(List::Messages)?;
        let had = items.len();
        items.splice(range.clone(), rows.iter().map(|row| Piece::Owned(row.fields().to_json().into())));
        if range.start < had && range.len() != rows.len() {
            self.move_cards(&range, rows.len());
        }
        Ok(())
    }

    fn move_cards(&mut self, range: &Range<usize>, added: usize) {
        for at in 0..self.len(List::ToolCalls) {
            let mut card = ToolCard::parse(self.items(List::ToolCalls)[at].text(&self.source));
            let moved = match card.row_index() {
                Some(index) if index >= range.end => index - range.len() + added,
                Some(index) if index >= range.start => range.start.saturating_sub(1),
                _ => continue,
            };
            card.set_row_index(moved);
            self.replace_item(List::ToolCalls, at, &card.fields().to_json()).expect("it has items");
        }
    }

    /// The places of the rows that hold this text somewhere, without parsing any.
    pub(crate) fn messages_with(&self, text: &str) -> Vec<usize> {
        let finder = memchr::memmem::Finder::new(text);
        let items = self.items(List::Messages);
        let is_as_read = items.iter().all(|piece| matches!(piece, Piece::Shared { .. }));
        let (Some(first), Some(last), true) = (items.first(), items.last(), is_as_read) else {
            let holds = |at: &usize| finder.find(items[*at].text(&self.source).as_bytes()).is_some();
            return (0..items.len()).filter(holds).collect();
        };
        let (begin, end) = (first.place().start, last.place().end);
        let hits = finder.find_iter(&self.source.as_bytes()[begin..end]);
        let mut rows: Vec<usize> =
            hits.map(|hit| items.partition_point(|piece| piece.place().end <= begin + hit)).collect();
        rows.dedup();
        rows
    }

    /// The bytes that it takes in memory, more or less.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of = |slot: &Slot| match slot {
            Slot::Value(_) => 0,
            Slot::Items(items) => items.capacity() * size_of::<Piece>(),
        };
        self.source.capacity() + self.entries.iter().map(|entry| size_of::<Entry>() + of(&entry.slot)).sum::<usize>()
    }

    /// Bytes of all its JSON: what its document has, but for line breaks and blanks.
    pub(crate) fn json_bytes(&self) -> u64 {
        let len = |piece: &Piece| piece.text(&self.source).len() + PIECE_FRAME_BYTES;
        let of = |slot: &Slot| match slot {
            Slot::Value(value) => len(value),
            Slot::Items(items) => items.iter().map(len).sum(),
        };
        self.entries.iter().map(|entry| len(&entry.key) + of(&entry.slot)).sum::<usize>() as u64
    }

    /// The top-level key under which something was set that is not JSON. What was read is JSON.
    pub(crate) fn key_with_bad_json(&self) -> Option<String> {
        let is_bad = |piece: &Piece| match piece {
            Piece::Owned(json) => serde_json::from_str::<&serde_json::value::RawValue>(json).is_err(),
            Piece::Shared { .. } => false,
        };
        let bad = self.entries.iter().find(|entry| match &entry.slot {
            Slot::Value(value) => is_bad(value),
            Slot::Items(items) => items.iter().any(is_bad),
        });
        bad.map(|entry| entry.key.text(&self.source).to_owned())
    }

    /// Cuts a list to its first items. Saving a shorter transcript needs stated intent.
    pub fn truncate(&mut self, list: List, len: usize) -> Result<(), NotAList> {
        self.items_mut(list)?.truncate(len);
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("messages", &self.len(List::Messages))
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

/// What is known of a session without reading its rows. There is no way to save it.
#[derive(Debug, Clone)]
pub struct Metadata {
    head: Session,
    message_count: usize,
}

impl Metadata {
    pub(crate) fn new(head: Session, message_count: usize) -> Self {
        Metadata { head, message_count }
    }

    /// What stands before the transcript of a session.
    pub(crate) fn of(session: &Session) -> Self {
        let is_value = |entry: &&Entry| matches!(entry.slot, Slot::Value(_));
        let entries = session.entries.iter().filter(is_value).cloned().collect();
        let source = session.source.clone();
        let head = Session { id: session.id.clone(), source, entries, base: session.base.clone(), is_changed: false };
        Metadata { head, message_count: session.len(List::Messages) }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.head.id
    }

    /// The stored revision.
    pub fn revision(&self) -> Option<&Revision> {
        self.head.revision()
    }

    /// Its title.
    pub fn title(&self) -> Cow<'_, str> {
        self.head.title()
    }

    /// When it was last changed, in seconds.
    pub fn updated_at(&self) -> Option<f64> {
        self.head.updated_at()
    }

    /// How many rows the transcript has.
    pub fn message_count(&self) -> usize {
        self.message_count
    }

    /// The run that answers the pending turn.
    pub fn active_run(&self) -> Option<Cow<'_, str>> {
        self.head.active_run()
    }

    /// The user's message that waits for its answer.
    pub fn pending_turn(&self) -> Option<PendingTurn> {
        self.head.pending_turn()
    }

    /// The JSON text of a metadata key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.head.get(key)
    }

    /// The metadata keys and the JSON texts of their values, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        self.head.entries.iter().filter_map(|entry| match &entry.slot {
            Slot::Value(piece) => Some((unescaped(entry.key.text(&self.head.source)), piece.text(&self.head.source))),
            Slot::Items(_) => None,
        })
    }
}

/// Looks for the id as JSON text, and then at the key before it: rows stay unparsed.
fn names_run(json: &str, run: &RunId) -> bool {
    let key_before = |at: usize| json[..at].trim_ascii_end().strip_suffix(':').map_or("", str::trim_ascii_end);
    let id = format!("\"{run}");
    memchr::memmem::find_iter(json.as_bytes(), id.as_bytes()).any(|at| {
        let is_whole = matches!(json.as_bytes().get(at + id.len()), Some(b'"' | b':'));
        is_whole && ["run_id\"", "stream_id\"", "event_id\""].iter().any(|key| key_before(at).ends_with(key))
    })
}

/// A key as it is meant, from how it is spelt in the file.
fn unescaped(key: &str) -> Cow<'_, str> {
    match key.contains('\\') {
        true => Cow::Owned(text_of(&format!("\"{key}\"")).unwrap_or_default().into_owned()),
        false => Cow::Borrowed(key),
    }
}
