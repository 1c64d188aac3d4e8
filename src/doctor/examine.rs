//! One session, looked at whole: its files, its journals, its document.

use std::path::{Path, PathBuf};

use super::finding::{Code, Finding, Severity};
use super::rebuild::Broken;
use super::runs::RunLook;
use super::transcript::Transcript;
use super::ward::{Examined, NewDocument, Treatment, Ward};
use crate::format::{Scanner, Unreadable, read_session};
use crate::model::{List, Session, SessionId};
use crate::storage::{Document, Layout, OpenToOthers, SessionFound, StorageError, Strays, with_cause};

impl Ward<'_> {
    /// Looks at one session.
    pub(super) fn examine(&self, id: &SessionId, scanner: &mut Scanner) -> Examined {
        let mut told = Examined::default();
        match self.files.look_at_session(id) {
            Ok(found) => self.examine_files(id, found, scanner, &mut told),
            Err(error) => told.tell(self.unreadable(id).leaves(
                format!("the files of this session cannot be looked at: {}", with_cause(&error)),
                "give access to them, or look at the device",
            )),
        }
        told
    }

    fn examine_files(&self, id: &SessionId, found: SessionFound, scanner: &mut Scanner, told: &mut Examined) {
        let SessionFound { has_sidecar, runs, strays, troubles } = found;
        self.tell_of_strays(Some(id), strays, told);
        self.tell_of_objects(id, told);
        for (file, reason) in &troubles {
            told.tell(self.of_trouble(Some(id), file, reason));
        }
        let runs: Vec<RunLook> = runs.into_iter().filter_map(|run| self.look_at_run(id, run, scanner, told)).collect();
        if !has_sidecar {
            return self.examine_orphan(id, &runs, scanner, told);
        }
        match self.storage.document(id) {
            // Deleted, or gone by now.
            Ok(None) => {}
            Ok(Some(document)) => self.examine_document(id, document, &runs, scanner, told),
            Err(error) => told.tell(self.cannot_read(id, &error)),
        }
    }

    fn examine_document(
        &self,
        id: &SessionId,
        document: Document,
        runs: &[RunLook],
        scanner: &mut Scanner,
        told: &mut Examined,
    ) {
        // A copy is only needed of one that cannot be read, which is read again then.
        let Document { bytes, revision } = document;
        let reason = match read_session(id, bytes) {
            Ok(mut session) => {
                session.set_base(revision.clone());
                let is_list = session.is_list(List::Messages);
                if !has_lost_messages(&session)
                    || is_list && !self.knows_more(id, session.len(List::Messages), runs, scanner)
                {
                    self.tell_of_missing(&session, told);
                    return Transcript::new(self, session, runs).examine(told);
                }
                None
            }
            Err(reason) => Some(reason),
        };
        let bytes = self.storage.document(id).ok().flatten().map(|document| document.bytes);
        let offset = bytes.as_deref().zip(reason.as_ref()).map_or(0, |(bytes, reason)| damaged_line(bytes, reason));
        let finding = self.unreadable(id).at(offset);
        let broken = Broken { id, bytes, revision: Some(revision), code: Code::SidecarUnreadable };
        let message = match reason {
            None => {
                "the file of this session has fewer messages than it says; those that are lost are not shown".to_owned()
            }
            Some(reason) => format!("the file of this session cannot be read ({reason}); the session is not shown"),
        };
        self.tell_rebuilt(finding, message, broken, runs, scanner, told);
    }

    /// Whether anything knows more messages than these.
    fn knows_more(&self, id: &SessionId, rows: usize, runs: &[RunLook], scanner: &mut Scanner) -> bool {
        let bytes = self.storage.document(id).ok().flatten().map(|document| document.bytes);
        let broken = Broken { id, bytes, revision: None, code: Code::SidecarUnreadable };
        let new = self.made_again(broken, runs, scanner).and_then(|new| read_session(id, new.bytes).ok());
        new.is_some_and(|new| new.len(List::Messages) > rows)
    }

    /// From whatever knows messages, else from the journals.
    fn made_again(&self, broken: Broken<'_>, runs: &[RunLook], scanner: &mut Scanner) -> Option<NewDocument> {
        let Broken { id, bytes, revision, code } = broken;
        let again = || Broken { id, bytes: bytes.clone(), revision: revision.clone(), code };
        self.rebuild(again(), runs, scanner).or_else(|| self.rebuild_from_journals(again(), runs))
    }

    /// A session without a document.
    fn examine_orphan(&self, id: &SessionId, runs: &[RunLook], scanner: &mut Scanner, told: &mut Examined) {
        let versions = self.files.versions_of(id).unwrap_or_default();
        if runs.is_empty() && versions.is_empty() || self.is_live {
            return;
        }
        let with_events = runs.iter().filter(|run| run.look.bytes > 0);
        let (code, file) = match with_events.min_by(|a, b| a.run.cmp(&b.run)).or(runs.first()) {
            Some(run) => (Code::OrphanJournal, run.file.clone()),
            None => (Code::SidecarUnreadable, self.sidecar(id)),
        };
        let is_empty = runs.iter().all(|run| run.look.events == 0) && versions.is_empty();
        let severity = if is_empty { Severity::Info } else { Severity::Damage };
        let mut finding = Finding::new(code, severity, file).of(id);
        if code == Code::OrphanJournal {
            finding.run = runs.iter().find(|run| run.file == finding.file).map(|run| run.run.clone());
        }
        let message =
            "the file of this session is missing, so that it is not shown; if it was deleted on purpose, leave it so";
        let broken = Broken { id, bytes: None, revision: None, code };
        let others = runs.iter().filter(|run| code == Code::OrphanJournal && run.file != finding.file);
        let others: Vec<Finding> = others.map(|run| self.orphan(id, run, severity)).collect();
        self.tell_rebuilt(finding, message.to_owned(), broken, runs, scanner, told);
        told.findings.extend(others);
    }

    fn orphan(&self, id: &SessionId, run: &RunLook, severity: Severity) -> Finding {
        let finding = Finding::new(Code::OrphanJournal, severity, run.file.clone()).of_run(id, &run.run);
        finding.says("the session of this journal is missing too", "what is done for the session's other journals")
    }

    /// Tells of a document that is to be made again, and how.
    fn tell_rebuilt(
        &self,
        finding: Finding,
        message: String,
        broken: Broken<'_>,
        runs: &[RunLook],
        scanner: &mut Scanner,
        told: &mut Examined,
    ) {
        let (is_wanted, was_there) = (self.wants(broken.code) && !self.is_live, broken.revision.is_some());
        let new = self.made_again(broken, runs, scanner);
        told.tell(match &new {
            Some(new) if was_there => {
                finding.says(message, format!("{}; the file as it is now is kept in _kept", new.words.join("; ")))
            }
            Some(new) => finding.says(message, new.words.join("; ")),
            None => finding.leaves(message, "no backup, no kept version and no journal knows anything of it"),
        });
        told.treatments.extend(new.filter(|_| is_wanted).map(Treatment::Document));
    }

    fn cannot_read(&self, id: &SessionId, error: &StorageError) -> Finding {
        let message =
            format!("the file of this session cannot be read, and the session is not shown: {}", with_cause(error));
        self.unreadable(id).leaves(message, "what lies there is no document that could be kept and replaced")
    }

    fn sidecar(&self, id: &SessionId) -> PathBuf {
        self.relative(self.files.layout().sidecar(id))
    }

    fn unreadable(&self, id: &SessionId) -> Finding {
        Finding::new(Code::SidecarUnreadable, Severity::Damage, self.sidecar(id)).of(id)
    }

    /// Files that nobody finished, and files that others may open.
    pub(super) fn tell_of_strays(&self, session: Option<&SessionId>, strays: Strays, told: &mut Examined) {
        let of_session = |finding: Finding| Finding { session: session.cloned(), ..finding };
        for file in strays.temps.into_iter().filter(|_| !self.is_live) {
            let finding = of_session(Finding::new(Code::StaleTemp, Severity::Info, file.clone()));
            let message = "somebody died while writing this file; nothing was said to be saved that is only here";
            told.tell(finding.says(message, words_for_temp(&file)));
            told.treatments.extend(self.wants(Code::StaleTemp).then_some(Treatment::Temp(file)));
        }
        for OpenToOthers { file, mode, is_ours } in strays.open {
            let may_change = mode & 0o022 != 0;
            let (severity, what) = match may_change {
                true => (Severity::Warning, "read and change"),
                false => (Severity::Info, "look at"),
            };
            let finding = of_session(Finding::new(Code::OpenPermissions, severity, file.clone()));
            let message = format!("others than its owner may {what} this (mode {mode:04o})");
            told.tell(match is_ours {
                true => finding.says(message, words_for_mode(mode)),
                false => finding.leaves(message, "it is another program's file"),
            });
            let is_treated = is_ours && self.wants(Code::OpenPermissions) && !self.is_live;
            told.treatments.extend(is_treated.then_some(Treatment::Private(file, mode)));
        }
    }
}

/// What is done about a file that others than its owner may open.
pub(super) fn words_for_mode(mode: u32) -> String {
    format!("leave it to its owner alone: mode {mode:04o} becomes {:04o}", mode & !0o077)
}

/// What is done about a file that somebody did not finish writing.
pub(super) fn words_for_temp(file: &Path) -> &'static str {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match Layout::is_repair_temp(&name) {
        true => "remove it: it is a repair's, and all that it holds is elsewhere",
        false => "move it to _kept/_temp",
    }
}

/// Whether a document holds fewer messages than it says, or something else in their place.
fn has_lost_messages(session: &Session) -> bool {
    let stated: u64 = session.get("message_count").and_then(|count| count.parse().ok()).unwrap_or(0);
    !session.is_list(List::Messages) || stated > session.len(List::Messages) as u64
}

/// The first byte of the line on which a document is no JSON any more.
fn damaged_line(bytes: &[u8], reason: &Unreadable) -> u64 {
    let at = match reason {
        Unreadable::Utf8 { offset } => *offset,
        Unreadable::Json { reason } => return start_of_line(bytes, line_in(reason)),
        Unreadable::Shape => 0,
    };
    memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |line_feed| line_feed as u64 + 1)
}

/// The number of the line that the JSON reader names.
fn line_in(reason: &str) -> usize {
    let digits = reason.rsplit(" at line ").next().unwrap_or_default().split(' ').next().unwrap_or_default();
    digits.parse().unwrap_or(1)
}

fn start_of_line(bytes: &[u8], line: usize) -> u64 {
    if line <= 1 {
        return 0;
    }
    memchr::memchr_iter(b'\n', bytes).nth(line - 2).map_or(0, |line_feed| line_feed as u64 + 1)
}
