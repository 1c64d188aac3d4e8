//! A session whose document is lost or cannot be read, made again from whatever knows most of it: what can still be read
//! of the file, the backup, kept versions, the session that a journal carries, and the journals themselves.

use std::collections::BTreeSet;
use std::path::Path;

use super::finding::Code;
use super::journal::show_all;
use super::runs::RunLook;
use super::transcript::Transcript;
use super::ward::{NewDocument, Ward};
use crate::format::{Record, Scanner, encode, read_session, salvage_session};
use crate::model::marker::rebuilt_notice;
use crate::model::{List, Object, Revision, Row, Session, SessionId};
use crate::recovery::{add_answer, look};

/// Something that a session can be made from.
struct Source {
    session: Session,
    /// Its bytes, if it can be taken as it is.
    whole: Option<Vec<u8>>,
    /// What it is, in words.
    name: String,
    /// When the event was written that carried it, if one did.
    carried_at: Option<f64>,
}

impl Source {
    /// How much it knows: messages first, then cards, then how young it is.
    fn knows(&self) -> (usize, usize, i64, bool) {
        let updated_at = self.session.updated_at().unwrap_or(0.0) as i64;
        let cards = self.session.len(List::ToolCalls) + self.session.len(List::ContextMessages);
        (self.session.len(List::Messages), cards, updated_at, self.whole.is_some())
    }

    /// The last moment that it surely knows of, in seconds. What was salvaged in part knows when it was saved, but not all
    /// of what was saved.
    fn knows_until(&self) -> f64 {
        let rows = self.session.len(List::Messages);
        let is_all =
            self.whole.is_some() || self.carried_at.is_some() || self.stated().is_some_and(|stated| rows >= stated);
        let last = || self.session.messages().filter_map(|row| row.timestamp()).max().unwrap_or(0) as f64;
        match is_all {
            true => self.session.updated_at().unwrap_or(0.0).max(last()).max(self.carried_at.unwrap_or(0.0)),
            false => 0.0,
        }
    }

    /// How many messages it says that it has.
    fn stated(&self) -> Option<usize> {
        self.session.get("message_count").and_then(|count| count.parse().ok())
    }

    /// How many messages it has, and how many it should have.
    fn extent(&self) -> String {
        let rows = self.session.len(List::Messages);
        match self.stated().filter(|stated| *stated > rows) {
            Some(stated) => format!("{rows} of {stated} messages"),
            None => format!("{rows} messages"),
        }
    }
}

/// The file as it lies there.
pub(super) struct Broken<'b> {
    pub(super) id: &'b SessionId,
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) revision: Option<Revision>,
    pub(super) code: Code,
}

impl Ward<'_> {
    /// The session made again; nothing if nothing is known of it.
    pub(super) fn rebuild(&self, broken: Broken<'_>, runs: &[RunLook], scanner: &mut Scanner) -> Option<NewDocument> {
        let Broken { id, bytes, revision, code } = broken;
        let new = match self.best_source(id, bytes, runs, scanner) {
            Some(source) => self.made_from(id, source, runs),
            None => self.made_from_journals(id, runs)?,
        };
        let (bytes, words) = new;
        Some(NewDocument { bytes, replaces: revision, codes: BTreeSet::from([code]), words })
    }

    /// What knows most; of those that know the same, the first. Only the best so far is held.
    fn best_source(
        &self,
        id: &SessionId,
        bytes: Option<Vec<u8>>,
        runs: &[RunLook],
        scanner: &mut Scanner,
    ) -> Option<Source> {
        let mut best: Option<Source> = None;
        let mut compare = |source: Source| {
            let counts = source.knows().0 > 0 || source.session.pending_turn().is_some() || source.whole.is_some();
            if counts && best.as_ref().is_none_or(|best| source.knows() > best.knows()) {
                best = Some(source);
            }
        };
        if let Some(session) = bytes.and_then(|bytes| salvage_session(id, &bytes)) {
            let name = "what can still be read of the file itself".to_owned();
            compare(Source { session, whole: None, name, carried_at: None });
        }
        for file in self.files.versions_of(id).unwrap_or_default() {
            self.version(id, &file).into_iter().for_each(&mut compare);
        }
        for run in runs {
            self.carried(id, run, scanner).into_iter().for_each(&mut compare);
        }
        best
    }

    fn version(&self, id: &SessionId, file: &Path) -> Option<Source> {
        let bytes = self.files.read_version(file).ok().flatten()?;
        let name = file.display().to_string();
        match read_session(id, bytes.clone()).ok().filter(|session| session.is_list(List::Messages)) {
            Some(session) => Some(Source { session, whole: Some(bytes), name, carried_at: None }),
            None => salvage_session(id, &bytes).map(|session| Source { session, whole: None, name, carried_at: None }),
        }
    }

    /// The session that a journal's last event carries for whoever shows it.
    fn carried(&self, id: &SessionId, run: &RunLook, scanner: &mut Scanner) -> Option<Source> {
        run.look.end.terminal.as_ref()?;
        let bytes = self.storage.journal_bytes(id, &run.run).ok().flatten()?;
        let mut carried = None;
        show_all(scanner, &*bytes, id, &run.run, |record| {
            if let Record::Event(event) = record
                && event.is_terminal()
            {
                carried = session_in(event.payload.unwrap_or_default()).or(carried.take());
            }
        })
        .ok()?;
        let session = read_session(id, carried?.into_bytes()).ok()?;
        let is_own = session.get("session_id").and_then(crate::model::text_of).as_deref() == Some(id.as_str());
        let name = format!("the session that run {} carried", run.run);
        let carried_at = Some(run.look.last_at.unwrap_or(0.0));
        (is_own && session.is_list(List::Messages)).then_some(Source { session, whole: None, name, carried_at })
    }

    fn made_from(&self, id: &SessionId, source: Source, runs: &[RunLook]) -> (Vec<u8>, Vec<String>) {
        let until = source.knows_until();
        let mut words = vec![format!("rebuilt from {}, which knows {}", source.name, source.extent())];
        let (mut session, steps) = Transcript::new(self, source.session, runs).resolved();
        words.extend(steps);
        let answers =
            |row: &Row, run: &RunLook| row.role() == "assistant" && row.run().as_deref() == Some(run.run.as_str());
        let is_there = |run: &RunLook| session.messages().any(|row| answers(&row, run));
        let unknown = |run: &&RunLook| run.look.first_at.is_some_and(|at| at > until) && !is_there(run);
        let unknown: Vec<&RunLook> = runs.iter().filter(unknown).collect();
        words.extend(self.add_answers(id, &mut session, unknown));
        match source.whole.filter(|_| words.len() == 1) {
            Some(bytes) => (bytes, words),
            None => (as_bytes(&mut session), words),
        }
    }

    fn made_from_journals(&self, id: &SessionId, runs: &[RunLook]) -> Option<(Vec<u8>, Vec<String>)> {
        let mut session = Session::new(id.clone(), "Rebuilt from its journals", self.now);
        let first = runs.iter().filter_map(|run| run.look.first_at).fold(f64::INFINITY, f64::min);
        if first.is_finite() {
            session.set("created_at", &crate::clock::Timestamp::from_seconds(first).to_string());
        }
        let answers = self.add_answers(id, &mut session, runs.iter().collect());
        if answers.is_empty() {
            return None;
        }
        session.push_message(&rebuilt_notice(self.now.whole_seconds())).ok()?;
        let mut words = vec![format!("rebuilt from {} journals; what the user said stood nowhere else", answers.len())];
        words.extend(answers);
        Some((as_bytes(&mut session), words))
    }

    /// Adds the answers of these runs in the order in which they began, and says which.
    fn add_answers(&self, id: &SessionId, session: &mut Session, mut runs: Vec<&RunLook>) -> Vec<String> {
        runs.sort_by(|a, b| {
            let at = |run: &RunLook| run.look.first_at.unwrap_or(0.0);
            at(a).total_cmp(&at(b)).then_with(|| a.run.cmp(&b.run))
        });
        let mut words = Vec::new();
        for run in runs {
            let evidence = look(&self.storage, id, run.run.as_str());
            let tells = evidence.has_output() || evidence.error_row.is_some();
            let began = run.look.first_at.unwrap_or(0.0);
            if tells && add_answer(session, run.run.as_str(), &evidence, began, self.now) == Ok(true) {
                words.push(format!("run {}: its answer is added", run.run));
            }
        }
        words
    }
}

/// The session in an event's payload, as JSON text.
fn session_in(payload: &str) -> Option<String> {
    Object::parse(payload)?.get("session").map(str::to_owned)
}

fn as_bytes(session: &mut Session) -> Vec<u8> {
    session.set("message_count", &session.len(List::Messages).to_string());
    encode(session).bytes().to_vec()
}
