//! Attachments that a session refers to and that are not stored: files of messages and large values of tool cards, in the
//! transcript and in branches. A value that its run's journal holds is stored again; a file stands nowhere else.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::finding::{Code, Finding, Severity};
use super::ward::{Examined, Treatment, Ward};
use crate::format::read_branch;
use crate::model::{AttachmentId, List, Object, PARTS, RunId, Session, SessionId};
use crate::recovery::find_missing;
use crate::storage::ObjectKind;

/// How many missing attachments of one session are told; the others are only counted.
const TOLD_MAX: usize = 1_000;

/// Where the references of a session stand: its document, or one of its branches.
struct Place<'a> {
    words: &'a str,
    files: Vec<AttachmentId>,
    cards: Vec<&'a str>,
}

impl Ward<'_> {
    /// Looks for every attachment that the session or one of its branches refers to. Holds one branch at a time.
    pub(super) fn tell_of_missing(&self, session: &Session, told: &mut Examined) {
        let (id, mut seen) = (session.id(), HashSet::new());
        let pending = session.get("pending_attachments").into_iter().flat_map(files_in_list);
        let files = session.texts(List::Messages).flat_map(files_in_row).chain(pending).collect();
        let cards = session.texts(List::ToolCalls).collect();
        self.tell_of_place(id, Place { words: "the session", files, cards }, &mut seen, told);
        // A directory that cannot be listed is told with the session's other files.
        for key in self.storage.objects(id, ObjectKind::Branch).unwrap_or_default() {
            let Ok(Some(bytes)) = self.storage.object(id, ObjectKind::Branch, &key) else { continue };
            let Ok(branch) = read_branch(id, &bytes) else { continue };
            let words = format!("branch {key}");
            let files = branch.cut.rows.iter().flat_map(|row| files_in_row(row)).collect();
            let cards = branch.cut.tool_calls.iter().map(String::as_str).collect();
            self.tell_of_place(id, Place { words: &words, files, cards }, &mut seen, told);
        }
    }

    fn tell_of_place(&self, id: &SessionId, place: Place<'_>, seen: &mut HashSet<AttachmentId>, told: &mut Examined) {
        let is_gone = |file: &AttachmentId| {
            matches!(self.storage.object_len(id, ObjectKind::Attachment, file.as_str()), Ok(None))
        };
        let files: Vec<_> = place.files.into_iter().filter(|file| seen.insert(file.clone()) && is_gone(file)).collect();
        let mut values = find_missing(&self.storage, id, place.cards.iter().copied()).unwrap_or_default();
        values.retain(|value| seen.insert(value.id.clone()));
        // Beside a writer at work the session may have been deleted since its document was read.
        let is_some = !files.is_empty() || !values.is_empty();
        if !is_some || self.is_live && !matches!(self.storage.document(id), Ok(Some(_))) {
            return;
        }
        for file in files {
            let message = format!("{} refers to a file that is not stored, and it is not shown", place.words);
            let finding = self.missing(id, &file);
            tell(told, finding.leaves(message, "send the same file again, or put it back from a backup"));
        }
        let is_mended = values.iter().any(|value| value.is_in_journal);
        for value in values {
            let finding = Finding { run: RunId::parse(&value.run).ok(), ..self.missing(id, &value.id) };
            let message = format!("{} refers to a tool value that is not stored, and it is not shown", place.words);
            tell(
                told,
                match value.is_in_journal {
                    true => finding.says(message, STORE_AGAIN),
                    false => finding.leaves(message, "no journal holds it; put it back from a backup"),
                },
            );
        }
        if is_mended && self.wants(Code::ChecksumMismatch) && !self.is_live {
            told.treatments.push(Treatment::Values(place.cards.into_iter().map(str::to_owned).collect()));
        }
    }

    fn missing(&self, id: &SessionId, attachment: &AttachmentId) -> Finding {
        let (kind, layout) = (ObjectKind::Attachment, self.files.layout());
        let file = layout.object(id, kind, attachment.as_str()).unwrap_or_else(|| layout.sidecar(id));
        Finding::new(Code::ChecksumMismatch, Severity::Damage, self.relative(file)).of(id)
    }
}

/// What a repair does about a value that a journal holds.
pub(super) const STORE_AGAIN: &str = "store the value again from the journal of its run";

fn tell(told: &mut Examined, finding: Finding) {
    match told.findings.len() < TOLD_MAX {
        true => told.tell(finding),
        false => told.untold.add(finding.severity, 1),
    }
}

/// The stored files that a row names: those of a user, and those of an answer.
fn files_in_row(row: &str) -> Vec<AttachmentId> {
    let row = Some(row).filter(|row| row.contains("lastword:sha256-")).and_then(Object::parse);
    let lists = |row: &Object| ["attachments", PARTS].map(|key| row.get(key).map(files_in_list).unwrap_or_default());
    row.iter().flat_map(lists).flatten().collect()
}

fn files_in_list(list: &str) -> Vec<AttachmentId> {
    let items = serde_json::from_str::<Vec<&RawValue>>(list).unwrap_or_default();
    let of_item = |item: &RawValue| AttachmentId::of_url(&Object::parse(item.get())?.text("url")?);
    items.into_iter().filter_map(of_item).collect()
}
