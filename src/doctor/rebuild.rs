//! A session whose document is lost or cannot be read, made again from whatever knows most of it: what can still be read
//! of the file, the backup, kept versions, the session that a journal carries, and the journals themselves.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::finding::Code;
use super::journal::show_all;
use super::runs::RunLook;
use super::transcript::Transcript;
use super::ward::{NewDocument, Ward};
use crate::clock::Timestamp;
use crate::format::{Record, Scanner, encode, read_session, salvage_session};
use crate::model::marker::rebuilt_notice;
use crate::model::{List, Object, Revision, Row, Session, SessionId};
use crate::recovery::{Said, add_answer};

/// Something that a session can be made from.
struct Source {
    session: Session,
    /// Its bytes, if it can be taken as it is.
    whole: Option<Vec<u8>>,
    /// Whether no message of its own time can be missing.
    has_all: bool,
    /// What it is, in words.
    name: String,
    /// When the event was written that carried it, if one did.
    carried_at: Option<f64>,
}

impl Source {
    fn salvaged(id: &SessionId, bytes: &[u8], name: String) -> Option<Self> {
        let salvaged = salvage_session(id, bytes)?;
        let source = Source { session: salvaged.session, whole: None, has_all: false, name, carried_at: None };
        let is_complete = source.stated().is_some_and(|stated| source.rows() >= stated);
        let is_short = source.stated().is_some_and(|stated| source.rows() < stated);
        Some(Source { has_all: is_complete || salvaged.has_all_messages && !is_short, ..source })
    }

    fn rows(&self) -> usize {
        self.session.len(List::Messages)
    }

    /// How many messages it says that it has.
    fn stated(&self) -> Option<usize> {
        self.session.get("message_count").and_then(|count| count.parse().ok())
    }

    /// How much it knows: messages first, then cards, then how young it is.
    fn knows(&self) -> (usize, usize, i64, bool) {
        let updated_at = self.session.updated_at().unwrap_or(0.0) as i64;
        let cards = self.session.len(List::ToolCalls) + self.session.len(List::ContextMessages);
        (self.rows(), cards, updated_at, self.whole.is_some())
    }

    /// Whether a session can be made of it at all.
    fn counts(&self) -> bool {
        self.rows() > 0 || self.session.pending_turn().is_some() || self.whole.is_some()
    }

    /// The last moment that it surely knows of, in seconds.
    fn knows_until(&self) -> f64 {
        let last = self.session.messages().filter_map(|row| row.timestamp()).max().unwrap_or(0) as f64;
        self.session.updated_at().unwrap_or(0.0).max(last).max(self.carried_at.unwrap_or(0.0))
    }

    /// How many messages it has, and how many it should have.
    fn extent(&self) -> String {
        let rows = self.rows();
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
        let name = || "what can still be read of the file itself".to_owned();
        let own = bytes.and_then(|bytes| Source::salvaged(id, &bytes, name()));
        let (bytes, words) = match own {
            // Nothing older knows better than a file that has everything.
            Some(own) if own.has_all && own.rows() > 0 => self.made_from(own, None, runs),
            own => match self.best_version(id, runs, scanner) {
                Some(best) if own.as_ref().is_none_or(|own| best.knows() > own.knows()) => {
                    self.made_from(best, own.as_ref(), runs)
                }
                best => match own.into_iter().chain(best).find(Source::counts) {
                    Some(source) => self.made_from(source, None, runs),
                    None => return None,
                },
            },
        };
        Some(NewDocument { bytes, replaces: revision, codes: BTreeSet::from([code]), words, branch: None })
    }

    /// The same for a session of which no document knows a message.
    pub(super) fn rebuild_from_journals(&self, broken: Broken<'_>, runs: &[RunLook]) -> Option<NewDocument> {
        let Broken { id, bytes, revision, code } = broken;
        let head = bytes.and_then(|bytes| salvage_session(id, &bytes)).map(|salvaged| salvaged.session);
        let (bytes, words) = self.made_from_journals(id, head, runs)?;
        Some(NewDocument { bytes, replaces: revision, codes: BTreeSet::from([code]), words, branch: None })
    }

    /// The version that knows most; of those that know the same, the first. Only the best so far is held.
    fn best_version(&self, id: &SessionId, runs: &[RunLook], scanner: &mut Scanner) -> Option<Source> {
        let mut best: Option<Source> = None;
        let mut compare = |source: Source| {
            if source.counts() && best.as_ref().is_none_or(|best| source.knows() > best.knows()) {
                best = Some(source);
            }
        };
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
            Some(session) => Some(Source { session, whole: Some(bytes), has_all: true, name, carried_at: None }),
            None => Source::salvaged(id, &bytes, name),
        }
    }

    /// The session that a journal's last event carries for whoever shows it.
    fn carried(&self, id: &SessionId, run: &RunLook, scanner: &mut Scanner) -> Option<Source> {
        run.look.end.terminal.as_ref()?;
        let bytes = self.storage.journal_bytes(id, &run.run).ok().flatten()?;
        let mut carried = None;
        show_all(scanner, &*bytes, run.which(id), |record| {
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
        let is_one = is_own && session.is_list(List::Messages);
        is_one.then_some(Source { session, whole: None, has_all: true, name, carried_at })
    }

    /// A source, with what else is known: later messages of the file itself, and answers that it cannot have.
    fn made_from(&self, source: Source, own: Option<&Source>, runs: &[RunLook]) -> (Vec<u8>, Vec<String>) {
        let mut words = vec![format!("rebuilt from {}, which knows {}", source.name, source.extent())];
        let (until, has_all) = (source.knows_until(), source.has_all);
        let lost = match (has_all, source.stated()) {
            (true, _) | (false, None) => usize::MAX,
            (false, Some(stated)) => stated.saturating_sub(source.rows()),
        };
        let mut session = source.session;
        words.extend(own.and_then(|own| add_later_rows(&mut session, &own.session)));
        let (mut session, steps) = self.resolved(session, runs);
        words.extend(steps);
        let answered = answers_of(&session);
        let is_candidate = |run: &&RunLook| match has_all {
            true => run.look.first_at.is_some_and(|at| at > until) && !answered.contains_key(run.run.as_str()),
            false => run.look.events > 0,
        };
        let candidates: Vec<&RunLook> = runs.iter().filter(is_candidate).collect();
        words.extend(self.add_answers(&mut session, candidates, lost));
        let session = Transcript::new(self, session, runs).with_cards_pointed(!has_all);
        match source.whole.filter(|_| words.len() == 1) {
            Some(bytes) => (bytes, words),
            None => (as_bytes(session), words),
        }
    }

    /// A session with its turns and markers resolved. Where parts of two versions came together, one marker may have to be
    /// settled before the next can be seen.
    fn resolved(&self, mut session: Session, runs: &[RunLook]) -> (Session, Vec<String>) {
        const ROUNDS_MAX: usize = 8;
        let mut words = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let (after, steps) = Transcript::new(self, session, runs).resolved();
            session = after;
            if steps.is_empty() {
                break;
            }
            words.extend(steps);
        }
        (session, words)
    }

    /// The answers in the journals, with those keys of the file that can still be read.
    fn made_from_journals(
        &self,
        id: &SessionId,
        head: Option<Session>,
        runs: &[RunLook],
    ) -> Option<(Vec<u8>, Vec<String>)> {
        let mut session = match &head {
            Some(head) => head.clone(),
            None => self.begun_with(id, runs),
        };
        let answers = self.add_answers(&mut session, runs.iter().collect(), usize::MAX);
        if answers.is_empty() {
            let words =
                vec!["rebuilt from what can still be read of the file itself, which knows no message".to_owned()];
            let is_worth_it = |head: &Session| head.get("title").is_some();
            return head.filter(is_worth_it).map(|head| (as_bytes(head), words));
        }
        session.push_message(&rebuilt_notice(self.now.whole_seconds())).ok()?;
        let mut words =
            vec![format!("rebuilt from {}; what the user said stood nowhere else", journals(answers.len()))];
        words.extend(answers);
        Some((as_bytes(session), words))
    }

    fn begun_with(&self, id: &SessionId, runs: &[RunLook]) -> Session {
        let mut session = Session::new(id.clone(), "Rebuilt from its journals", self.now);
        let first = runs.iter().filter_map(|run| run.look.first_at).fold(f64::INFINITY, f64::min);
        if first.is_finite() {
            session.set("created_at", &Timestamp::from_seconds(first).to_string());
        }
        session
    }

    /// Adds the answers of these runs in the order in which they began, up to so many rows, and says which.
    fn add_answers(&self, session: &mut Session, mut runs: Vec<&RunLook>, rows_max: usize) -> Vec<String> {
        runs.sort_by(|a, b| {
            let at = |run: &RunLook| run.look.first_at.unwrap_or(0.0);
            at(a).total_cmp(&at(b)).then_with(|| a.run.cmp(&b.run))
        });
        let (answered, said) = (answers_of(session), Said::anywhere(session));
        let (mut words, mut added) = (Vec::new(), 0);
        for run in runs {
            let evidence = self.look(session, run.run.as_str());
            let known = answered.get(run.run.as_str()).copied().unwrap_or(0);
            if added >= rows_max || known >= evidence.folded.rows.len() {
                continue;
            }
            let began = run.look.first_at.unwrap_or(0.0);
            let rows = add_answer(session, run.run.as_str(), &evidence, began, &said, self.now).unwrap_or(0);
            if rows > 0 {
                words.push(format!("run {}: its answer is added", run.run));
            }
            added += rows;
        }
        words
    }
}

/// How many rows each run's answer has.
fn answers_of(session: &Session) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for row in session.messages().filter(|row| row.role() == "assistant" && !row.is_error()) {
        if let Some(run) = row.run() {
            *counts.entry(run.into_owned()).or_default() += 1;
        }
    }
    counts
}

/// Adds the messages that stand behind the last one that both know.
fn add_later_rows(session: &mut Session, own: &Session) -> Option<String> {
    let words = |row: &Row| (row.role().into_owned(), row.content().into_owned());
    let known: HashSet<(String, String)> = session.messages().map(|row| words(&row)).collect();
    let rows: Vec<Row> = own.messages().collect();
    let last_common = rows.iter().rposition(|row| known.contains(&words(row)));
    let later = &rows[last_common.map_or(0, |at| at + 1)..];
    later.iter().try_for_each(|row| session.push_message(row)).ok()?;
    (!later.is_empty()).then(|| format!("{} later messages of the file itself are added", later.len()))
}

/// The session in an event's payload, as JSON text.
fn session_in(payload: &str) -> Option<String> {
    Object::parse(payload)?.get("session").map(str::to_owned)
}

fn as_bytes(mut session: Session) -> Vec<u8> {
    session.set("message_count", &session.len(List::Messages).to_string());
    encode(&session).bytes().to_vec()
}

fn journals(count: usize) -> String {
    if count == 1 { "1 journal".to_owned() } else { format!("{count} journals") }
}
