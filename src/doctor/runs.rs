//! What is to be said of one run: its record and its journal.

use std::path::PathBuf;
use std::time::Duration;

use super::finding::{Code, Finding, Severity, Words};
use super::journal::{Gap, JournalLook, Repeat, Several, Which, look_through};
use super::meter::Counted;
use super::rewrite::Cure;
use super::ward::{Examined, Treatment, Ward};
use crate::format::{Damage, DamageKind, Scanner};
use crate::limits::DOCTOR_FINDINGS_PER_JOURNAL_MAX;
use crate::model::{RunId, SessionId};
use crate::recovery::RecoveryOptions;
use crate::storage::{RecordFound, RunFound, StorageError, with_cause};
use crate::store::{Began, Journal, LastSign, LeaseFacts, Liveness, Now, Origin, RunFacts, judge};

const CUT: &str = "cut the damaged bytes out, and keep the journal as it is now in _kept";
const PUT_RIGHT: &str = "put the checksum right, and keep the journal as it is now in _kept";
const CHECKSUM_ALONE: &str =
    "this event's checksum is damaged, and nothing else of it; until that is put right it is not shown";

/// A run that was looked at.
#[derive(Debug)]
pub(super) struct RunLook {
    pub(super) run: RunId,
    pub(super) record: RecordFound,
    pub(super) look: JournalLook,
    pub(super) file: PathBuf,
}

impl RunLook {
    pub(super) fn which<'a>(&'a self, session: &'a SessionId) -> Which<'a> {
        Which { session, run: &self.run, checked_after: self.record.checked_after() }
    }

    /// Whether its producer still counts as alive, by the rule of a full read in a process that has just begun.
    pub(super) fn is_live(&self, now_seconds: f64) -> bool {
        let RecordFound::Read { begun_at, lease_seconds, renewed_at, .. } = self.record else { return false };
        let last_sign = self.look.last_at.unwrap_or(0.0).max(begun_at).max(renewed_at.unwrap_or(0.0));
        let lease = |seconds| LeaseFacts { seconds, last_sign: LastSign::Wall(last_sign) };
        let facts = RunFacts {
            is_session_deleted: false,
            journal: if self.look.end.seal.is_sealed() { Journal::Sealed } else { Journal::Unsealed },
            origin: Origin::Ours { takes_appends: true },
            is_held: false,
            is_awaited: true,
            lease: lease_seconds.map(lease),
            began: Began::Wall(begun_at),
        };
        let grace = RecoveryOptions::default().grace;
        // Every run began before this process.
        let now = Now { awake: Duration::ZERO, wall: now_seconds, holder_began: f64::INFINITY, grace };
        matches!(judge(&facts, &now), Liveness::Live { .. })
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
        let checked_after = record.checked_after();
        let look = match self.read_journal(Which { session, run: &run, checked_after }, scanner) {
            Ok(Some(look)) => look,
            Ok(None) => {
                told.findings.extend(self.vanished(session, &run, file));
                return None;
            }
            Err(error) => {
                let finding = Finding::new(Code::BadJson, Severity::Damage, file).of_run(session, &run);
                let message =
                    format!("this journal cannot be read, and its answer is not shown: {}", with_cause(&error));
                told.tell(finding.leaves(message, "give access to the file, or look at the device"));
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

    fn read_journal(&self, which: Which<'_>, scanner: &mut Scanner) -> Result<Option<JournalLook>, StorageError> {
        let Some(bytes) = self.storage.journal_bytes(which.session, which.run)? else { return Ok(None) };
        look_through(scanner, &Counted { bytes, meter: &self.meter }, which).map(Some)
    }

    /// A name without a file behind it: gone by now, or a link that leads nowhere.
    fn vanished(&self, session: &SessionId, run: &RunId, file: PathBuf) -> Option<Finding> {
        let is_gone = self.is_live || self.storage.is_deleted(session).unwrap_or(false);
        let finding = Finding::new(Code::BadJson, Severity::Damage, file).of_run(session, run);
        let message = "this journal cannot be read: it is a link that leads nowhere";
        (!is_gone).then(|| finding.leaves(message, "put back what it leads to"))
    }

    fn damaged_record(&self, session: &SessionId, run: &RunId, reason: &str) -> Finding {
        let file = self.relative(self.files.layout().run_record(session, run));
        let message =
            format!("the note of when this run began cannot be read ({reason}); the run takes no more events");
        let finding = Finding::new(Code::BadJson, Severity::Warning, file).of_run(session, run).at(0);
        finding.leaves(message, "the run's events are in its journal, and another run can be begun")
    }

    fn tell_of_journal(&self, session: &SessionId, run: &RunLook, scanner: &mut Scanner, told: &mut Examined) {
        let look = &run.look;
        let finding = |code, severity| Finding::new(code, severity, run.file.clone()).of_run(session, &run.run);
        let before = if look.gaps.is_empty() { Vec::new() } else { self.looks_before(session, run, scanner) };
        let mut findings: Vec<Finding> = Vec::new();
        let mut tell = |places: &mut dyn Iterator<Item = Place>| {
            for (at, (code, severity, offset, words)) in places.enumerate() {
                match at < DOCTOR_FINDINGS_PER_JOURNAL_MAX {
                    true => findings.push(Finding { offset, ..finding(code, severity).told(words) }),
                    false => told.untold.add(severity, 1),
                }
            }
        };
        tell(&mut self.damaged_places(look));
        tell(&mut look.spoilt.iter().map(spoilt_place));
        tell(&mut look.repeats.iter().map(repeated_place));
        tell(&mut self.odd_places(run).into_iter());
        tell(&mut look.gaps.iter().map(|gap| missing_place(run, gap, &before)));
        tell(&mut self.dead_run(run).into_iter());
        told.untold.add(Severity::Damage, look.damaged - look.damage.len() as u64);
        told.untold.add(Severity::Warning, look.repeated - look.repeats.len() as u64);
        told.findings.append(&mut findings);
        if !self.is_live {
            let cure = Cure::of(run.which(session), look, |code| self.wants(code));
            told.treatments.extend(cure.map(Treatment::Journal));
        }
    }

    /// What is damaged, but for the unfinished last line of a live run, which is being written.
    fn damaged_places<'l>(&'l self, look: &'l JournalLook) -> impl Iterator<Item = Place> + 'l {
        let is_settled = move |damage: &&Damage| !(self.is_live && look.is_tail(damage));
        let place = move |damage: &Damage| {
            let words = match look.restorable.contains(&damage.offset) {
                true => Words::Mended(CHECKSUM_ALONE.to_owned(), PUT_RIGHT),
                false => words_of(damage),
            };
            (damage.kind.into(), Severity::Damage, Some(damage.line), words)
        };
        look.damage.iter().filter(is_settled).map(place)
    }

    /// Events that are read, and are not as they should be. Each kind is told once.
    fn odd_places(&self, run: &RunLook) -> Vec<Place> {
        let look = &run.look;
        // Every line of a run that we began ourselves has a checksum.
        let is_ours = matches!(run.record, RecordFound::Read { checked_after: Some(0), .. });
        let unchecked = if is_ours { look.unchecked } else { Several::default() };
        let kinds = [
            (
                Code::ForeignId,
                look.foreign,
                "carry the ids of another run or session",
                "they are read as they lie; move the file if it belongs elsewhere",
            ),
            (Code::ForeignId, look.unnumbered, "have no number that can be used", "they are read as they lie"),
            (
                Code::ChecksumMismatch,
                unchecked,
                "have no checksum, which this run's events should have; they may have changed",
                "nobody can tell what they were",
            ),
            (
                Code::BadJson,
                look.incomplete,
                "lack something that every event has; they may have changed",
                "nobody can tell what they were",
            ),
        ];
        let place = |(code, several, what, why): (Code, Several, &str, &'static str)| {
            let message = format!("events here that {what}: {}", several.count);
            (several.count > 0).then_some((code, Severity::Warning, Some(several.first), Words::Left(message, why)))
        };
        kinds.into_iter().filter_map(place).collect()
    }

    fn dead_run(&self, run: &RunLook) -> Option<Place> {
        if self.is_live || run.look.end.seal.is_sealed() || run.is_live(self.now.seconds()) {
            return None;
        }
        let message = match run.look.events {
            0 => "no event was ever written to this run, and nobody works on it".to_owned(),
            events => format!("this run has {events} events and no end, and nobody works on it"),
        };
        let why = "what it holds is brought into the transcript, and the journal stays as it is";
        Some((Code::UnsealedDeadRun, Severity::Info, None, Words::Left(message, why)))
    }

    /// The run's journals as they were before repairs. One that cannot be read explains nothing.
    fn looks_before(&self, session: &SessionId, run: &RunLook, scanner: &mut Scanner) -> Vec<JournalLook> {
        let kept = self.files.kept_journals(session, &run.run).unwrap_or_default();
        let mut look = |file: &PathBuf| {
            let bytes = self.files.kept_bytes(file).ok().flatten()?;
            look_through(scanner, &*bytes, run.which(session)).ok()
        };
        kept.iter().filter_map(&mut look).collect()
    }
}

/// What is found in a place of a journal.
type Place = (Code, Severity, Option<u64>, Words);

fn spoilt_place(offset: &u64) -> Place {
    let message = "this event's checksum is damaged, and nothing else of it; it is shown".to_owned();
    (Code::ChecksumMismatch, Severity::Warning, Some(*offset), Words::Mended(message, PUT_RIGHT))
}

fn repeated_place(repeat: &Repeat) -> Place {
    let seq = repeat.seq;
    let (severity, words) = match repeat.is_same {
        true => {
            let message = format!("event {seq} stands here again; it counts once");
            (Severity::Warning, Words::Mended(message, "leave it out, and keep the journal as it is now in _kept"))
        }
        false => {
            let message =
                format!("another event with the number {seq} stands before this one, and only that one is shown");
            (Severity::Damage, Words::Left(message, "both are whole, and nobody can tell which was meant"))
        }
    };
    (Code::DuplicateSeq, severity, Some(repeat.line), words)
}

/// What is known of missing numbers: some were never given, others went with damage that a repair cut out.
fn missing_place(run: &RunLook, gap: &Gap, before: &[JournalLook]) -> Place {
    let (first, last) = (*gap.numbers.start(), *gap.numbers.end());
    let which = if first == last { format!("event {first}") } else { format!("events {first} to {last}") };
    let was_left_out = matches!(run.record, RecordFound::Read { last_seq_floor, .. } if last_seq_floor == last);
    let knew = |look: &JournalLook| look.seen.contains_any(&gap.numbers);
    let was_missing = |look: &JournalLook| {
        let next = look.gaps.partition_point(|known| known.numbers.end() < &first);
        look.gaps.get(next).is_some_and(|known| known.numbers.start() <= &last)
    };
    let was_cut = |look: &JournalLook| look.damaged > 0 && !was_missing(look);
    let (severity, words) = if before.iter().any(knew) {
        let message = format!("{which}: missing, though a journal in _kept still has some of them");
        (Severity::Damage, Words::Left(message, "nobody can tell why they went; the lines can be copied back by hand"))
    } else if before.iter().any(was_cut) {
        let message = format!("{which}: damaged, and cut out by a repair; the journal before that is in _kept");
        (Severity::Info, Words::Left(message, "that was done"))
    } else if was_left_out {
        let message = format!("{which}: left out, because a line that was cut off may have had that number");
        (Severity::Info, Words::Left(message, "no event is missing"))
    } else {
        let message = format!("{which}: missing; the answer may lack words here");
        (Severity::Damage, Words::Left(message, "what is missing stands nowhere else"))
    };
    (Code::MissingSeq, severity, Some(gap.offset), words)
}

fn words_of(damage: &Damage) -> Words {
    let bytes = damage.bytes;
    let (message, repair) = match damage.kind {
        DamageKind::TornTail => (
            format!("the last {bytes} bytes are part of a line whose writing was interrupted; they are no event"),
            "cut them off, and keep the journal as it is now in _kept",
        ),
        DamageKind::ChecksumMismatch => {
            ("this event's bytes changed after they were written; it is not shown".to_owned(), CUT)
        }
        DamageKind::BadUtf8 => (format!("{bytes} bytes here are no text; what stood there is not shown"), CUT),
        DamageKind::BadJson => (format!("{bytes} bytes here are no event; what stood there is not shown"), CUT),
        DamageKind::NulRun => (format!("{bytes} bytes here are zeroes, or cut by them; what stood there is lost"), CUT),
        DamageKind::GluedRecords => (
            "records stand on one line here that should have one each; whole ones are read here, but not by every program"
                .to_owned(),
            "give each whole record a line of its own, and keep the journal as it is now in _kept",
        ),
        DamageKind::LineTooLong => {
            (format!("a line of {bytes} bytes is longer than any that is read; it is passed over"), CUT)
        }
    };
    Words::Mended(message, repair)
}
