//! Repair: the plan, and its execution. Every step replaces one file or moves one, keeps what was there, and can be made
//! again; so a repair that was interrupted is finished by the next one, with the same result.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::examine::{words_for_mode, words_for_temp};
use super::finding::{Code, Finding, Severity, set_or_null};
use super::options::DoctorOptions;
use super::references::STORE_AGAIN;
use super::report::Report;
use super::rounds::{go_round, idle_scanner};
use super::ward::{Examined, NewDocument, Treatment, Ward};
use super::{DoctorError, look_round, open};
use crate::format::{Scanner, encode_branch, read_session};
use crate::index::Index;
use crate::limits::SIDECAR_BYTES_MAX;
use crate::model::{Branch, List, Object, RunId, SessionId};
use crate::recovery::store_missing;
use crate::storage::{Expected, Mode, ObjectKind, Put, PutOutcome, SharedDisk, with_cause};

/// How often the journals of one session are looked through again because there was too much to remember.
const ROUNDS_MAX: usize = 1_000;

/// One thing that a repair does, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The findings that it treats.
    pub codes: Vec<Code>,
    /// The session.
    pub session: Option<SessionId>,
    /// The run.
    pub run: Option<RunId>,
    /// The file, from the data directory on.
    pub file: PathBuf,
    /// What is done, in words.
    pub words: String,
    /// What became of it; nothing if it is only planned.
    pub outcome: Option<Outcome>,
}

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done {
        /// Where that is kept which was replaced or moved, from the data directory on.
        kept: Option<PathBuf>,
    },
    /// It was not done, and the file is as it was.
    Failed {
        /// Why.
        why: String,
    },
}

impl Action {
    fn is_done(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Done { .. }))
    }

    fn to_json(&self) -> String {
        let mut json = Object::default();
        let codes: Vec<String> = self.codes.iter().map(|code| format!("\"{code}\"")).collect();
        json.set("codes", format!("[{}]", codes.join(",")));
        set_or_null(&mut json, "session", self.session.as_ref().map(SessionId::as_str));
        set_or_null(&mut json, "run", self.run.as_ref().map(RunId::as_str));
        json.set_text("file", &self.file.to_string_lossy());
        json.set_text("action", &self.words);
        let (state, kept, why) = match &self.outcome {
            None => ("planned", None, None),
            Some(Outcome::Done { kept }) => ("done", kept.as_ref(), None),
            Some(Outcome::Failed { why }) => ("failed", None, Some(why.as_str())),
        };
        json.set_text("state", state);
        set_or_null(&mut json, "kept", kept.map(|path| path.to_string_lossy()).as_deref());
        set_or_null(&mut json, "error", why);
        json.to_json()
    }
}

/// A plan, or what became of it.
#[derive(Debug, Clone, Default)]
pub struct Repair {
    /// What was found.
    pub report: Report,
    /// What is done about it, in order.
    pub actions: Vec<Action>,
    /// Whether it was done, and not only planned.
    pub is_applied: bool,
}

impl Repair {
    /// The findings that a repair does nothing about.
    pub fn left_alone(&self) -> impl Iterator<Item = &Finding> {
        self.report.findings.iter().filter(|finding| !finding.is_mendable)
    }

    /// Whether something that should have been done was not.
    pub fn has_failed(&self) -> bool {
        self.actions.iter().any(|action| matches!(action.outcome, Some(Outcome::Failed { .. })))
    }

    /// As `repair --json` prints it.
    pub fn to_json(&self) -> String {
        let list = |items: Vec<String>| items.join(",");
        let actions = list(self.actions.iter().map(Action::to_json).collect());
        let left = list(self.left_alone().map(Finding::to_json).collect());
        let summary = self.report.summary.to_json();
        let applied = self.is_applied;
        format!("{{\"applied\":{applied},\"actions\":[{actions}],\"left_alone\":[{left}],\"summary\":{summary}}}")
    }
}

/// What a repair would do. Changes nothing.
pub fn plan_on(disk: SharedDisk, root: &Path, options: &DoctorOptions) -> Result<Repair, DoctorError> {
    let files = open(disk, root, options, Mode::ReadOnly)?;
    let is_live = files.is_held()?;
    let ward = Ward::new(files, options, is_live)?;
    draw_up(&ward).map(|drawn| drawn.repair)
}

/// Repairs a directory, if there is anything to repair.
///
/// What a crash leaves behind each step is what one of the steps leaves: a temp file, or a kept copy, or the new file. The
/// next repair looks again, and goes on from there.
pub fn repair_on(disk: SharedDisk, root: &Path, options: &DoctorOptions) -> Result<Repair, DoctorError> {
    let planned = {
        let files = open(disk.clone(), root, options, Mode::ReadOnly)?;
        let is_live = files.is_held()?;
        draw_up(&Ward::new(files, options, is_live)?)?
    };
    let Drawn { repair: Repair { report, mut actions, .. }, by_opening, is_closed, .. } = planned;
    // A directory of a newer program is refused when it is opened to be written.
    if actions.is_empty() && !report.summary.is_live && !is_closed {
        return Ok(Repair { report, actions, is_applied: true });
    }
    let files = open(disk, root, options, Mode::Write)?;
    let ward = Ward::new(files, options, false)?;
    actions.truncate(by_opening);
    actions.iter_mut().for_each(|action| action.outcome = Some(ward.outcome_of_opening(action)));
    // What lies there now is looked at again: opening the directory has changed it, and so may others have before.
    let drawn = draw_up(&ward)?;
    let mut scanner = idle_scanner();
    for session in &drawn.sessions {
        ward.treat_session(session, &mut scanner, &mut actions);
    }
    if let Some(examined) = drawn.directory {
        ward.act(None, examined, &mut scanner, &mut actions);
        ward.renew_indexes(&report.findings, &mut actions);
    }
    Ok(Repair { report, actions, is_applied: true })
}

/// What is to be done.
struct Drawn {
    repair: Repair,
    /// So many of the actions, the first ones, are done by opening the directory to write it.
    by_opening: usize,
    /// The sessions that are to be treated.
    sessions: Vec<SessionId>,
    /// What is to be done outside the sessions.
    directory: Option<Examined>,
    /// Whether there is something to do, and a newer program at home.
    is_closed: bool,
}

/// Looks at everything and says what is to be done.
fn draw_up(ward: &Ward<'_>) -> Result<Drawn, DoctorError> {
    let (mut report, mut actions) = (Report::default(), Vec::new());
    let (sessions, listing) = look_round(ward)?;
    let (mut behind, mut to_treat) = (0, Vec::new());
    go_round(ward, &sessions, |session, examined| {
        behind += u64::from(examined.is_index_behind);
        if !examined.treatments.is_empty() {
            to_treat.push((session.clone(), ward.actions_of(Some(session), &examined)));
        }
        report.add(examined);
    });
    to_treat.sort_by(|a, b| a.0.cmp(&b.0));
    report.summary.sessions = sessions.len() as u64;
    report.summary.is_live = ward.is_live;
    let mut directory = None;
    match listing {
        Some(listing) => {
            let mut examined = ward.examine_directory(&listing);
            examined.findings.extend(ward.of_index(behind));
            actions.extend(ward.actions_by_opening(&examined.findings));
            report.add(Examined { findings: examined.findings.clone(), ..Examined::default() });
            directory = Some(examined);
        }
        None => {
            let found = ward.findings_of_log_about(&sessions);
            actions.extend(ward.actions_by_opening(&found));
            found.into_iter().for_each(|finding| report.tell(finding));
        }
    }
    let by_opening = actions.len();
    let is_wanted = actions.iter().any(|action| action.codes.iter().any(|code| ward.wants(*code)));
    let sessions = to_treat.iter().map(|(session, _)| session.clone()).collect();
    actions.extend(to_treat.into_iter().flat_map(|(_, actions)| actions));
    actions.extend(directory.iter().flat_map(|examined| ward.actions_of(None, examined)));
    report.sort();
    actions.extend(directory.iter().filter_map(|_| ward.index_action(&report.findings)));
    // Nothing is written where a newer program is at home, nor for the sake of what nobody asked for.
    // One branch of a newer program keeps nothing else from being repaired.
    let is_newer = |finding: &Finding| finding.code == Code::NewerFormat && finding.session.is_none();
    let is_newer = report.findings.iter().any(is_newer);
    let is_closed = is_newer && !actions.is_empty();
    if is_closed || actions.len() == by_opening && !is_wanted {
        actions.clear();
    }
    let by_opening = by_opening.min(actions.len());
    Ok(Drawn { repair: Repair { report, actions, is_applied: false }, by_opening, sessions, directory, is_closed })
}

impl Action {
    fn new(codes: impl IntoIterator<Item = Code>, file: PathBuf, words: &str) -> Self {
        let codes = codes.into_iter().collect();
        Action { codes, session: None, run: None, file, words: words.to_owned(), outcome: None }
    }
}

impl Ward<'_> {
    fn actions_of(&self, session: Option<&SessionId>, examined: &Examined) -> Vec<Action> {
        examined.treatments.iter().map(|treatment| self.action_of(session, treatment)).collect()
    }

    fn action_of(&self, session: Option<&SessionId>, treatment: &Treatment) -> Action {
        let layout = self.files.layout();
        let action = match (treatment, session) {
            (Treatment::Journal(cure), Some(id)) => {
                let file = self.relative(layout.journal(id, &cure.run));
                let words = "write the journal anew without what is damaged, a line for each record";
                Action { run: Some(cure.run.clone()), ..Action::new(cure.codes.iter().copied(), file, words) }
            }
            (Treatment::Document(new), Some(id)) => {
                Action::new(new.codes.iter().copied(), self.relative(layout.sidecar(id)), &new.words.join("; "))
            }
            (Treatment::Values(_), Some(id)) => {
                Action::new([Code::ChecksumMismatch], self.relative(layout.sidecar(id)), STORE_AGAIN)
            }
            (Treatment::Temp(file), _) => Action::new([Code::StaleTemp], file.clone(), words_for_temp(file)),
            (Treatment::Private(file, mode), _) => {
                Action::new([Code::OpenPermissions], file.clone(), &words_for_mode(*mode))
            }
            (Treatment::Journal(_) | Treatment::Document(_) | Treatment::Values(_), None) => {
                unreachable!("these belong to a session")
            }
        };
        Action { session: session.cloned(), ..action }
    }

    /// Journals first; what becomes of the document is decided when they are as they will be.
    fn treat_session(&self, session: &SessionId, scanner: &mut Scanner, done: &mut Vec<Action>) {
        let is_document = |treatment: &Treatment| matches!(treatment, Treatment::Document(_));
        let mut examined = self.examine(session, scanner);
        examined.treatments.retain(|treatment| !is_document(treatment));
        for _ in 0..ROUNDS_MAX {
            let before = done.len();
            self.act(Some(session), examined, scanner, done);
            let mended: Vec<RunId> = done[before..]
                .iter()
                .filter(|action| action.is_done())
                .filter_map(|action| action.run.clone())
                .collect();
            examined = self.examine(session, scanner);
            // What was too much to be remembered at once takes another round.
            let has_more =
                |treatment: &Treatment| matches!(treatment, Treatment::Journal(cure) if mended.contains(&cure.run));
            if !examined.treatments.iter().any(has_more) {
                break;
            }
            examined.treatments.retain(has_more);
        }
        examined.treatments.retain(is_document);
        self.act(Some(session), examined, scanner, done);
    }

    /// Does what was decided, one thing after the other. What fails is told, and keeps nothing else from being done.
    fn act(&self, session: Option<&SessionId>, examined: Examined, scanner: &mut Scanner, done: &mut Vec<Action>) {
        for treatment in examined.treatments {
            let action = self.action_of(session, &treatment);
            let outcome = match self.treat(session, treatment, scanner) {
                Ok(kept) => Outcome::Done { kept },
                Err(why) => Outcome::Failed { why },
            };
            done.push(Action { outcome: Some(outcome), ..action });
        }
    }

    fn treat(
        &self,
        session: Option<&SessionId>,
        treatment: Treatment,
        scanner: &mut Scanner,
    ) -> Result<Option<PathBuf>, String> {
        match (treatment, session) {
            (Treatment::Journal(cure), Some(id)) => {
                cure.apply(&self.files, scanner, id).map_err(|error| with_cause(&error))
            }
            (Treatment::Document(new), Some(id)) => self.replace_document(id, &new),
            (Treatment::Values(cards), Some(id)) => {
                let stored = store_missing(&self.storage, id, cards.iter().map(String::as_str));
                stored.map(|()| None).map_err(|error| with_cause(&error))
            }
            (Treatment::Temp(file), _) => self.files.set_temp_aside(&file).map_err(|error| with_cause(&error)),
            (Treatment::Private(file, _), _) => {
                self.files.make_private(&file).map(|_| None).map_err(|error| with_cause(&error))
            }
            (Treatment::Journal(_) | Treatment::Document(_) | Treatment::Values(_), None) => {
                unreachable!("these belong to a session")
            }
        }
    }

    /// Keeps a session's document and puts the new one in its place, if that can be read.
    fn replace_document(&self, id: &SessionId, new: &NewDocument) -> Result<Option<PathBuf>, String> {
        let bytes = new.bytes.len() as u64;
        if bytes > SIDECAR_BYTES_MAX {
            return Err(format!("the new file would have {bytes} bytes, and {SIDECAR_BYTES_MAX} can be read"));
        }
        let session = read_session(id, new.bytes.clone());
        let session = session.map_err(|error| format!("the new file could not be read: {error}"))?;
        let in_branch = new.branch.iter().flat_map(|branch| branch.cut.tool_calls.iter().map(String::as_str));
        let cards = session.texts(List::ToolCalls).chain(in_branch);
        store_missing(&self.storage, id, cards).map_err(|error| with_cause(&error))?;
        new.branch.iter().try_for_each(|branch| self.put_branch(id, branch))?;
        let kept = self.files.keep_document(id).map_err(|error| with_cause(&error))?;
        let expected = new.replaces.clone().map_or(Expected::Absent, Expected::Revision);
        match self.storage.put_document(id, &new.bytes, &Put { expected, keep_replaced: false }) {
            Ok(PutOutcome::Stored(_)) => Ok(kept),
            Ok(PutOutcome::Conflict { .. }) => Err("another program changed the file meanwhile".to_owned()),
            Ok(PutOutcome::Deleted) => Err("the session was deleted".to_owned()),
            Err(error) => Err(with_cause(&error)),
        }
    }

    fn put_branch(&self, id: &SessionId, branch: &Branch) -> Result<(), String> {
        let bytes = encode_branch(id, branch).map_err(|list| format!("`{}` holds what is not JSON", list.key()))?;
        let put = self.storage.put_object(id, ObjectKind::Branch, &branch.branch_id, &bytes);
        put.map(drop).map_err(|error| with_cause(&error))
    }

    /// What opening the directory to write it does: the log is replayed, deletions are finished, an identity is written.
    fn actions_by_opening(&self, findings: &[Finding]) -> Vec<Action> {
        const CODES: [Code; 6] = [
            Code::LogNotReplayed,
            Code::ForeignLog,
            Code::ChecksumMismatch,
            Code::DuplicateSeq,
            Code::DeletedLeftover,
            Code::BadJson,
        ];
        let is_done = |finding: &&Finding| !self.is_live && finding.is_mendable && CODES.contains(&finding.code);
        let action = |finding: &Finding| Action {
            session: finding.session.clone(),
            run: finding.run.clone(),
            ..Action::new([finding.code], finding.file.clone(), &finding.repair)
        };
        findings.iter().filter(is_done).map(action).collect()
    }

    /// What became of something that opening the directory should have done: what it could not do, it has found.
    fn outcome_of_opening(&self, action: &Action) -> Outcome {
        let is_about = |finding: &&crate::storage::Finding| {
            let is_undone = matches!(finding.code, "deleted_leftover" | "log_not_replayed" | "bad_json");
            let is_same = finding.file == action.file || finding.session.is_some() && finding.session == action.session;
            is_undone && is_same && action.codes.iter().any(|code| code.as_str() == finding.code)
        };
        match self.storage.findings().iter().find(is_about) {
            Some(finding) => Outcome::Failed { why: finding.message.clone() },
            None => Outcome::Done { kept: None },
        }
    }

    fn index_action(&self, findings: &[Finding]) -> Option<Action> {
        let drift = findings.iter().find(|finding| finding.code == Code::IndexDrift)?;
        let action = || Action::new([Code::IndexDrift], drift.file.clone(), "make the list of the sessions anew");
        (self.wants(Code::IndexDrift) && !self.is_live).then(action)
    }

    /// Makes the list of the sessions anew if it was wrong; otherwise it learns of what changed.
    fn renew_indexes(&self, findings: &[Finding], done: &mut Vec<Action>) {
        let is_wrong = |finding: &&Finding| finding.code == Code::IndexDrift && finding.severity == Severity::Warning;
        let action = self.index_action(findings);
        let wrong: Vec<&Finding> = findings.iter().filter(is_wrong).filter(|_| action.is_some()).collect();
        // The other list alone is no reason: it is moved away before the first change, and then nobody knows of it.
        let ours = self.relative(self.files.layout().index());
        let retired = match wrong.is_empty() {
            false => self.files.retire_indexes(wrong.iter().any(|finding| finding.file == ours)),
            true => Ok(()),
        };
        let index = Index::new(Arc::clone(&self.storage), self.options.clock.clone());
        let has_index = matches!(self.storage.index_notes(), Ok(Some(_)));
        let list = || if action.is_some() || has_index { index.all().map(drop) } else { Ok(()) };
        let outcome = match retired.and_then(|()| list()) {
            Ok(()) => Outcome::Done { kept: None },
            Err(error) => Outcome::Failed { why: with_cause(&error) },
        };
        done.extend(action.map(|action| Action { outcome: Some(outcome), ..action }));
    }
}
