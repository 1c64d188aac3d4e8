//! What is to be said of one run: its record and its journal.

use std::path::PathBuf;

use super::finding::{Code, Finding, Severity};
use super::journal::{Gap, JournalLook, look_through};
use super::meter::Counted;
use super::rewrite::Cure;
use super::ward::{Examined, Treatment, Ward};
use crate::format::{Damage, DamageKind, Scanner};
use crate::limits::DOCTOR_FINDINGS_PER_JOURNAL_MAX;
use crate::model::{RunId, SessionId};
use crate::storage::{RecordFound, RunFound, StorageError};

const CUT: &str = "cut the damaged bytes out, and keep the journal as it is now in _kept";
const NOT_MENDED: &str = "nothing: what is missing stands nowhere else";

/// A run that was looked at.
#[derive(Debug)]
pub(super) struct RunLook {
    pub(super) run: RunId,
    pub(super) record: RecordFound,
    pub(super) look: JournalLook,
    pub(super) file: PathBuf,
}

impl RunLook {
    /// Whether its producer still counts as alive.
    pub(super) fn is_leased(&self, now_seconds: f64) -> bool {
        let RecordFound::Read { begun_at, lease_seconds: Some(lease), .. } = self.record else { return false };
        now_seconds < self.look.last_at.unwrap_or(0.0).max(begun_at) + lease
    }
}

impl Ward<'_> {
    /// Looks at a run and says what is wrong with it. Nothing to look at if it has no journal that can be read.
    pub(super) fn look_at_run(
        &self,
        session: &SessionId,
        found: RunFound,
        scanner: &mut Scanner,
        told: &mut Examined,
    ) -> Option<RunLook> {
        let RunFound { run, has_journal, record } = found;
        if let RecordFound::Damaged(reason) = &record {
            told.tell(self.damaged_record(session, &run, reason));
        }
        if !has_journal {
            return None;
        }
        let file = self.relative(self.files.layout().journal(session, &run));
        let look = match self.read_journal(session, &run, scanner) {
            Ok(Some(look)) => look,
            Ok(None) => return None,
            Err(error) => {
                let finding = Finding::new(Code::BadJson, Severity::Damage, file).of_run(session, &run);
                let message =
                    format!("this journal cannot be read, and its answer is not shown: {}", with_cause(&error));
                told.tell(finding.says(message, "nothing: give access to the file, or look at the device"));
                return None;
            }
        };
        told.journals += 1;
        told.bytes += look.bytes;
        told.events += look.events;
        let run = RunLook { run, record, look, file };
        self.tell_of_journal(session, &run, scanner, told);
        Some(run)
    }

    fn read_journal(
        &self,
        session: &SessionId,
        run: &RunId,
        scanner: &mut Scanner,
    ) -> Result<Option<JournalLook>, StorageError> {
        let Some(bytes) = self.storage.journal_bytes(session, run)? else { return Ok(None) };
        look_through(scanner, &Counted { bytes, meter: &self.meter }, session, run).map(Some)
    }

    fn damaged_record(&self, session: &SessionId, run: &RunId, reason: &str) -> Finding {
        let file = self.relative(self.files.layout().run_record(session, run));
        let message =
            format!("the note of when this run began cannot be read ({reason}); the run takes no more events");
        let finding = Finding::new(Code::BadJson, Severity::Warning, file).of_run(session, run).at(0);
        finding.says(message, "nothing: the run's events are in its journal, and another run can be begun")
    }

    fn tell_of_journal(&self, session: &SessionId, run: &RunLook, scanner: &mut Scanner, told: &mut Examined) {
        let RunLook { look, .. } = run;
        // The unfinished last line of a live run is being written.
        let is_being_written = |damage: &Damage| self.is_live && look.is_tail(damage);
        let mut findings: Vec<Finding> = Vec::new();
        let finding = |code, severity| Finding::new(code, severity, run.file.clone()).of_run(session, &run.run);
        for damage in look.damage.iter().filter(|damage| !is_being_written(damage)) {
            if findings.len() < DOCTOR_FINDINGS_PER_JOURNAL_MAX {
                let (message, repair) = words_of(damage);
                findings.push(finding(damage.kind.into(), Severity::Damage).at(damage.line).says(message, repair));
            }
        }
        for repeat in look.repeats.iter().take(DOCTOR_FINDINGS_PER_JOURNAL_MAX) {
            let seq = repeat.seq;
            let (severity, message, repair) = match repeat.is_same {
                true => (
                    Severity::Warning,
                    format!("event {seq} stands here again; it counts once"),
                    "leave it out, and keep the journal as it is now in _kept",
                ),
                false => (
                    Severity::Damage,
                    format!("another event with the number {seq} stands before this one, and only that one is shown"),
                    "nothing: both are whole, and nobody can tell which was meant",
                ),
            };
            findings.push(finding(Code::DuplicateSeq, severity).at(repeat.offset).says(message, repair));
        }
        if let Some((offset, count)) = look.foreign {
            let message = format!("{count} events here carry the ids of another run or session");
            let repair = "nothing: they are read as they lie; move the file if it belongs elsewhere";
            findings.push(finding(Code::ForeignId, Severity::Warning).at(offset).says(message, repair));
        }
        let before = if look.gaps.is_empty() { Vec::new() } else { self.looks_before(session, run, scanner) };
        for gap in look.gaps.iter().take(DOCTOR_FINDINGS_PER_JOURNAL_MAX) {
            let (severity, message, repair) = words_of_gap(run, gap, &before);
            findings.push(finding(Code::MissingSeq, severity).at(gap.offset).says(message, repair));
        }
        if let Some(message) = self.is_dead(run) {
            let repair = "nothing: what it holds is brought into the transcript, and the journal stays as it is";
            findings.push(finding(Code::UnsealedDeadRun, Severity::Info).says(message, repair));
        }
        let being_written = look.damage.iter().filter(|damage| is_being_written(damage)).count() as u64;
        let counted = look.damaged - being_written + look.repeated + look.gaps.len() as u64;
        told.untold += counted.saturating_sub(findings.len() as u64);
        told.findings.append(&mut findings);
        if !self.is_live {
            let cure = Cure::of(&run.run, look, |code| self.wants(code));
            told.treatments.extend(cure.map(Treatment::Journal));
        }
    }

    fn is_dead(&self, run: &RunLook) -> Option<String> {
        let is_over = self.is_live || run.look.end.seal.is_sealed() || run.is_leased(self.now.seconds());
        (!is_over).then(|| match run.look.events {
            0 => "nothing was ever written to this run, and nobody works on it".to_owned(),
            events => {
                format!("this run stopped after {events} events without saying how it ended, and nobody works on it")
            }
        })
    }

    /// The run's journals as they were before repairs. One that cannot be read explains nothing.
    fn looks_before(&self, session: &SessionId, run: &RunLook, scanner: &mut Scanner) -> Vec<JournalLook> {
        let kept = self.files.kept_journals(session, &run.run).unwrap_or_default();
        let mut look = |file: &PathBuf| {
            let bytes = self.files.kept_bytes(file).ok().flatten()?;
            look_through(scanner, &*bytes, session, &run.run).ok()
        };
        kept.iter().filter_map(&mut look).collect()
    }
}

/// What is known of missing numbers: some were never given, others went with damage that a repair cut out.
fn words_of_gap(run: &RunLook, gap: &Gap, before: &[JournalLook]) -> (Severity, String, &'static str) {
    let (first, last) = (*gap.numbers.start(), *gap.numbers.end());
    let which = if first == last { format!("event {first}") } else { format!("events {first} to {last}") };
    if matches!(run.record, RecordFound::Read { last_seq_floor, .. } if last_seq_floor == last) {
        let message = format!("{which}: left out when the run was taken over from another program");
        return (Severity::Info, message, "nothing");
    }
    let was_damaged =
        |look: &JournalLook| look.damaged > 0 && !look.gaps.iter().any(|known| known.numbers == gap.numbers);
    match before.iter().any(was_damaged) {
        true => {
            let message = format!("{which}: damaged, and cut out by a repair; the journal before that is in _kept");
            (Severity::Info, message, "nothing: that was done")
        }
        false => (Severity::Damage, format!("{which}: missing; the answer may lack words here"), NOT_MENDED),
    }
}

fn words_of(damage: &Damage) -> (String, &'static str) {
    let bytes = damage.bytes;
    match damage.kind {
        DamageKind::TornTail => (
            format!("the last {bytes} bytes are part of a line whose writing was interrupted; they are no event"),
            "cut them off, and keep the journal as it is now in _kept",
        ),
        DamageKind::ChecksumMismatch => {
            ("this event's bytes changed after they were written; it is not shown".to_owned(), CUT)
        }
        DamageKind::BadUtf8 => (format!("{bytes} bytes here are no text; what stood there is not shown"), CUT),
        DamageKind::BadJson => (format!("{bytes} bytes here are no event; what stood there is not shown"), CUT),
        DamageKind::NulRun => (
            format!("{bytes} bytes here were never written, or were overwritten with zeroes; what stood there is lost"),
            CUT,
        ),
        DamageKind::GluedRecords => (
            "records stand on one line here that should have one each; whole ones are read, other programs may lose them"
                .to_owned(),
            "give each whole record a line of its own, and keep the journal as it is now in _kept",
        ),
        DamageKind::LineTooLong => {
            (format!("a line of {bytes} bytes is longer than any that is read; it is passed over"), CUT)
        }
    }
}

pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
