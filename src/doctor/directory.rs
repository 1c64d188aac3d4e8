//! What belongs to no session: the store's identity, the commit log, both lists, and files that lie about.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use super::finding::{Code, Finding, Severity};
use super::ward::{Examined, Ward};
use crate::model::SessionId;
use crate::sidecar::load_metadata;
use crate::storage::{DirectoryListing, IdentityFound, LogFound, with_cause};

const REPLAY: &str = "put them into the journals, as the next writer would";
const SET_ASIDE: &str = "move it to _kept/_commit_log, as the next writer would";

impl Ward<'_> {
    /// Looks at the directory itself.
    pub(super) fn examine_directory(&self, listing: &DirectoryListing) -> Examined {
        let mut told = Examined::default();
        self.tell_of_identity(&mut told);
        for (file, reason) in &listing.troubles {
            told.tell(self.of_trouble(None, file, reason));
        }
        for (session, file, reason) in self.files.look_at_tombstones().unwrap_or_default() {
            let finding = Finding::new(Code::BadJson, Severity::Info, file).of(&session).at(0);
            let message =
                format!("the note of when this session was deleted cannot be read; it stays deleted: {reason}");
            told.tell(finding.leaves(message, "that it is there is all that counts"));
        }
        told.findings.extend(self.findings_of_log());
        if !self.is_live {
            self.tell_of_leftovers(listing, &mut told);
            self.tell_of_foreign_index(&mut told);
        }
        self.tell_of_strays(None, listing.strays.clone(), &mut told);
        told
    }

    /// Something that cannot be looked at keeps nobody from looking at the rest.
    pub(super) fn of_trouble(&self, session: Option<&SessionId>, file: &Path, reason: &str) -> Finding {
        let finding = Finding::new(Code::BadJson, Severity::Damage, file.to_owned());
        let finding = Finding { session: session.cloned(), ..finding };
        finding.leaves(
            format!("this cannot be looked at: {reason}"),
            "give access to it, or move away what lies in its place",
        )
    }

    /// What is to be said of the commit log. Beside a writer, which changes it all the time, only what it cannot put away.
    pub(super) fn findings_of_log(&self) -> Vec<Finding> {
        let found = if self.is_live { self.files.look_at_withheld() } else { self.files.look_at_log() };
        match found {
            Ok(found) => found.into_iter().map(|found| self.of_log(found)).collect(),
            Err(error) => {
                let file = self.relative(self.files.layout().commit_log());
                vec![self.of_trouble(None, &file, &with_cause(&error))]
            }
        }
    }

    /// The same about some sessions alone.
    pub(super) fn findings_of_log_about(&self, sessions: &[SessionId]) -> Vec<Finding> {
        let is_about = |finding: &Finding| finding.session.as_ref().is_some_and(|session| sessions.contains(session));
        self.findings_of_log().into_iter().filter(is_about).collect()
    }

    fn tell_of_identity(&self, told: &mut Examined) {
        let finding = |code, severity| Finding::new(code, severity, self.relative(self.files.layout().identity()));
        match self.files.look_at_identity() {
            IdentityFound::Missing | IdentityFound::Fine => {}
            IdentityFound::Newer { version } => told.tell(finding(Code::NewerFormat, Severity::Warning).leaves(
                format!("a newer program wrote this directory (format {version}); it can be read, and not written"),
                "use that program",
            )),
            IdentityFound::Damaged { reason } => told.tell(finding(Code::BadJson, Severity::Damage).at(0).says(
                format!("the store's identity cannot be read, so that nobody can write here: {reason}"),
                "keep it in _kept and write another, with the name that the commit log has",
            )),
        }
    }

    fn of_log(&self, found: LogFound) -> Finding {
        match found {
            LogFound::NotRetired { file } => Finding::new(Code::LogNotReplayed, Severity::Info, file).says(
                "the last writer did not close the store; all that it logged is in the journals",
                "retire the log",
            ),
            LogFound::Behind { session, run, file, offset } => {
                let finding =
                    Finding::new(Code::LogNotReplayed, Severity::Warning, file).of_run(&session, &run).at(offset);
                finding
                    .says("events of this journal are only in the commit log; other programs do not see them", REPLAY)
            }
            LogFound::Withheld { session, run, file, offset, kept, unreadable: None } => {
                let finding =
                    Finding::new(Code::LogNotReplayed, Severity::Warning, file).of_run(&session, &run).at(offset);
                let message =
                    format!("acknowledged events of this journal are kept in {}, and not in it yet", kept.display());
                finding.says(message, "put them into the journal, if it can be written by then")
            }
            LogFound::Withheld { session, run, kept, unreadable: Some(why), .. } => {
                let finding = Finding::new(Code::LogNotReplayed, Severity::Damage, kept).of_run(&session, &run);
                let message = format!("acknowledged events of this run are kept here, and cannot be read: {why}");
                finding.leaves(message, "its run takes no events until they can")
            }
            LogFound::Unlisted { file, why } => Finding::new(Code::LogNotReplayed, Severity::Damage, file)
                .says(format!("the list of runs with kept events cannot be read: {why}"), REPLAY),
            LogFound::Conflict { session, run, file, offset } => {
                let finding =
                    Finding::new(Code::DuplicateSeq, Severity::Damage, file).of_run(&session, &run).at(offset);
                let message =
                    "other bytes stand here than the events that were acknowledged; those are in the commit log";
                finding.says(message, "put the events back, and keep the other bytes in _kept")
            }
            LogFound::Damaged { file, offset } => {
                let finding = Finding::new(Code::ChecksumMismatch, Severity::Damage, file);
                let message = "the commit log is damaged here; what was logged there may be missing from a journal";
                let repair = if offset.is_none() { SET_ASIDE } else { "replay what can be read of it" };
                Finding { offset: offset.or(Some(0)), ..finding.says(message, repair) }
            }
            LogFound::Foreign { file } => Finding::new(Code::ForeignLog, Severity::Warning, file)
                .says("this part of the commit log belongs to another store, and is not replayed", SET_ASIDE),
            LogFound::Newer { file } => Finding::new(Code::NewerFormat, Severity::Warning, file)
                .leaves("a newer program wrote this commit log; it cannot be replayed here", "use that program"),
        }
    }

    fn tell_of_leftovers(&self, listing: &DirectoryListing, told: &mut Examined) {
        for (session, file) in &listing.leftovers {
            let finding = Finding::new(Code::DeletedLeftover, Severity::Warning, file.clone()).of(session);
            let message = "this session was deleted, and part of it is not in the trash yet";
            told.tell(finding.says(message, "move it to the trash, as the next writer would"));
        }
    }

    /// The list that the reference program keeps. It is only ever a copy of what the sessions say.
    fn tell_of_foreign_index(&self, told: &mut Examined) {
        let file = self.relative(self.files.layout().foreign_index());
        let finding = || Finding::new(Code::IndexDrift, Severity::Warning, file.clone());
        let repair = "move it to _kept; that program makes another";
        let bytes = match self.files.read_version(&file) {
            Ok(None) => return,
            Ok(Some(bytes)) => bytes,
            Err(error) => {
                return told
                    .tell(finding().says(format!("the reference program's list cannot be read: {error}"), repair));
            }
        };
        let listed = match serde_json::from_slice::<Vec<Listed>>(&bytes) {
            Ok(listed) => listed,
            Err(error) => {
                return told
                    .tell(finding().at(0).says(format!("the reference program's list is no list: {error}"), repair));
            }
        };
        let listed: HashMap<&str, &Listed> = listed.iter().map(|entry| (entry.session_id.as_str(), entry)).collect();
        let documents = self.documents();
        let ghosts = listed.keys().filter_map(|id| SessionId::parse(id).ok());
        let mut wrong: Vec<SessionId> = ghosts.filter(|id| !documents.contains(id)).collect();
        wrong.extend(documents.into_iter().filter(|id| !self.is_listed_right(id, &listed)));
        wrong.sort();
        if let Some(first) = wrong.first() {
            let message =
                format!("the reference program's list is wrong about {} sessions, {first} among them", wrong.len());
            told.tell(finding().of(first).says(message, repair));
        }
    }

    fn documents(&self) -> HashSet<SessionId> {
        self.storage.documents().unwrap_or_default().into_iter().map(|document| document.session).collect()
    }

    fn is_listed_right(&self, id: &SessionId, listed: &HashMap<&str, &Listed>) -> bool {
        // That program lists no file with such a name.
        if id.as_str().starts_with('_') {
            return true;
        }
        // What cannot be read is told elsewhere.
        let Ok(Some(metadata)) = load_metadata(&self.storage, id) else { return true };
        listed.get(id.as_str()).is_some_and(|entry| {
            entry.message_count.is_none_or(|count| count == metadata.message_count() as u64)
                && entry.title.as_deref().is_none_or(|title| title == metadata.title())
        })
    }

    /// What is to be said of the index if it knows older versions of so many sessions.
    pub(super) fn of_index(&self, behind: u64) -> Option<Finding> {
        let file = self.relative(self.files.layout().index());
        let message =
            format!("the index does not know the present version of {behind} sessions; lists read those anew");
        let finding = Finding::new(Code::IndexDrift, Severity::Info, file).says(message, "make the index anew");
        (behind > 0 && !self.is_live).then_some(finding)
    }
}

/// What is compared of an entry in the reference program's list.
#[derive(Deserialize)]
struct Listed {
    session_id: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    message_count: Option<u64>,
}
