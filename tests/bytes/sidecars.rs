//! Sidecars, by their reader alone. They have no checksum: a changed letter is a changed letter. But what does not touch
//! the change is there, and what is no JSON any more is told and never guessed at.

use lastword::format::{Head, Unreadable, read_head, read_session};
use lastword::{List, Session};
use serde::de::IgnoredAny;

use crate::data::{Data, recorded, sid};
use crate::mutations::{ALL_BYTES_MAX, Mutation, cuts, flips, sample};
use crate::sidecar_rules;

struct Sidecar {
    name: String,
    bytes: Vec<u8>,
    session: Session,
    /// Where each row ends.
    row_ends: Vec<usize>,
}

impl Sidecar {
    fn new(name: &str, bytes: Vec<u8>) -> Option<Self> {
        let session = read_session(&sid("s"), bytes.clone()).ok()?;
        let text = std::str::from_utf8(&bytes).unwrap();
        let mut end = text.find("\"messages\"").unwrap_or(text.len());
        let mut row_ends = Vec::new();
        for row in session.texts(List::Messages) {
            end += text[end..].find(row).unwrap() + row.len();
            row_ends.push(end);
        }
        Some(Sidecar { name: name.to_owned(), bytes, session, row_ends })
    }

    /// Fails unless a changed sidecar is told to be unreadable where it is, or has every row before the change.
    fn check(&self, mutation: Mutation) {
        let bytes = mutation.of(&self.bytes);
        let is_json = serde_json::from_slice::<IgnoredAny>(&bytes).is_ok() && std::str::from_utf8(&bytes).is_ok();
        let told = || format!("{}: {mutation:?}", self.name);
        match read_session(&sid("s"), bytes) {
            Ok(session) => {
                assert!(is_json, "{} is taken for JSON", told());
                let whole = self.row_ends.iter().filter(|end| **end <= mutation.at()).count();
                assert!(session.texts(List::Messages).take(whole).eq(self.rows(whole)), "{}", told());
            }
            Err(Unreadable::Utf8 { offset }) => assert!(offset <= mutation.at(), "{}", told()),
            Err(Unreadable::Json { reason }) => assert!(!is_json && reason.contains("line"), "{}: {reason}", told()),
            Err(Unreadable::Shape) => assert!(is_json, "{}", told()),
        }
    }

    fn rows(&self, count: usize) -> impl Iterator<Item = &str> {
        self.session.texts(List::Messages).take(count)
    }

    /// A part of a sidecar is no sidecar, and its head says what the whole says, or nothing.
    fn check_cut(&self, len: usize) {
        let bytes = &self.bytes[..len];
        let is_whole = len >= self.bytes.trim_ascii_end().len();
        assert_eq!(read_session(&sid("s"), bytes.to_vec()).is_ok(), is_whole, "{}: cut at {len}", self.name);
        if let Head::Metadata(head) = read_head(&sid("s"), bytes) {
            for key in ["title", "updated_at", "message_count", "session_id", "active_stream_id", "pinned"] {
                assert_eq!(head.get(key), self.session.get(key), "{}: {key}, cut at {len}", self.name);
            }
        }
    }
}

/// Our own, and recorded ones, each of another length.
fn sidecars(recorded_count: usize) -> Vec<Sidecar> {
    let data = Data::new();
    let ours = ["good.json", "bad.json"].map(|name| (name.to_owned(), data.bytes(name).to_vec()));
    let theirs = recorded(".json").into_iter().filter(|(path, _)| path.iter().any(|part| part == "sessions"));
    let mut theirs: Vec<_> = theirs.map(|(path, bytes)| (path.display().to_string(), bytes)).collect();
    theirs.retain(|(name, _)| !name.contains("_run_journal"));
    let each = theirs.len().div_ceil(recorded_count);
    let all = ours.into_iter().chain(theirs.into_iter().step_by(each));
    all.filter_map(|(name, bytes)| Sidecar::new(&name, bytes)).collect()
}

#[test]
fn a_sidecar_cut_anywhere_is_unreadable_and_its_head_never_lies() {
    for sidecar in sidecars(6) {
        cuts(sidecar.bytes.len()).for_each(|cut| sidecar.check_cut(cut.at()));
    }
}

#[test]
fn a_sidecar_with_any_bit_changed_is_unreadable_or_has_every_row_before_it() {
    for sidecar in sidecars(2) {
        assert!(sidecar.bytes.len() <= ALL_BYTES_MAX);
        flips(sidecar.bytes.len()).for_each(|flip| sidecar.check(flip));
    }
}

#[test]
fn the_rules_for_any_bytes_hold_after_any_accident() {
    for sidecar in sidecars(10) {
        sample(sidecar.bytes.len(), 30).for_each(|mutation| sidecar_rules::check(&mutation.of(&sidecar.bytes)));
    }
}
