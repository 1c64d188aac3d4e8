//! Anything may befall a directory: the doctor tells of it, changes nothing by looking, loses nothing by repairing.

use std::collections::{BTreeMap, BTreeSet};

use lastword::StorageError;
use lastword::doctor::{self, Code, DoctorError, Finding, Severity};
use proptest::prelude::*;

use crate::accidents::{Accident, Mishap, STRAYS, Talk, Turn, accident, befall, build, happen, mishaps, talks};
use crate::data::{Data, Files, files_in, sid};
use crate::repairs::is_derived;
use crate::seeds;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..seeds::config("doctor") }
}

fn is_record(name: &str) -> bool {
    name.ends_with(".run")
}

/// Session and run of a journal's name.
fn ids_of(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("_run_journal/")?.strip_suffix(".jsonl")?.split_once('/')
}

/// The events of each journal, with number and line.
type Events = BTreeMap<String, Vec<(Option<u64>, String)>>;

/// The events of every journal, each with its number.
fn events(data: &Data, names: &Files) -> Events {
    let reader = data.reader();
    let of = |name: &String| {
        let (session, run) = ids_of(name)?;
        let all = reader.read_events(&sid(session), &crate::data::rid(run), Default::default()).unwrap();
        Some((name.clone(), all.events.into_iter().map(|event| (event.seq, event.line)).collect()))
    };
    names.keys().filter_map(of).collect()
}

/// How many characters a line's checksum takes.
const CHECKSUM_CHARS: usize = 18;

/// The lines of a file that were written as they are, but for those whose event stood before them, glued or not, perhaps
/// with a damaged checksum: then that one is mended, and stays where it is.
fn whole_lines<'b>(bytes: &'b [u8], written: &BTreeSet<Vec<u8>>) -> Vec<&'b [u8]> {
    let (mut found, mut at) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii_end();
        let event = &text[..text.len().saturating_sub(CHECKSUM_CHARS)];
        let is_event = written.contains(line) && !event.is_empty();
        if is_event && !bytes[..at].windows(event.len()).any(|before| before == event) {
            found.push(line);
        }
        at += line.len();
    }
    found
}

/// What is told of the bytes of a journal. Ids of another run are only a warning, because the event is read all the same.
fn damage_in<'f>(findings: &'f [Finding], name: &str) -> Vec<&'f Finding> {
    let is_of_bytes = |finding: &Finding| match finding.code {
        Code::OrphanJournal => false,
        Code::ForeignId => true,
        _ => finding.severity == Severity::Damage,
    };
    findings.iter().filter(|finding| is_of_bytes(finding) && finding.file.to_str() == Some(name)).collect()
}

/// The numbers of events that cannot be read any more.
fn lost_numbers(before: &[(Option<u64>, String)], after: &[(Option<u64>, String)]) -> Vec<u64> {
    let is_lost = |seq: &u64| after.len() < before.len() && !after.iter().any(|(found, _)| *found == Some(*seq));
    before.iter().filter_map(|(seq, _)| *seq).filter(is_lost).collect()
}

/// Whether events went from the end, line by line: then nothing tells that they were ever there.
fn is_cut_cleanly(lost: &[u64], after: &[(Option<u64>, String)]) -> bool {
    let highest = after.iter().filter_map(|(seq, _)| *seq).max().unwrap_or(0);
    lost.iter().all(|seq| *seq > highest)
}

struct Case {
    data: Data,
    healthy: Files,
    damaged: Files,
    /// The files that something befell.
    hit: BTreeSet<String>,
}

impl Case {
    fn new(talks: &[Talk], was_opened: bool, mishaps: &[Mishap]) -> Self {
        let data = build(talks);
        if was_opened {
            data.store().list().unwrap();
        }
        let healthy = data.files();
        let hit = mishaps.iter().map(|mishap| happen(&data, &healthy, mishap)).collect();
        let damaged = data.files();
        Case { data, healthy, damaged, hit }
    }

    fn assert_told(&self, findings: &[Finding]) -> Result<(), TestCaseError> {
        let healthy = Data::new();
        self.healthy.iter().for_each(|(name, bytes)| healthy.put(name, bytes));
        let (before, after) = (events(&healthy, &self.healthy), events(&self.data, &self.healthy));
        for (name, after) in after {
            let lost = lost_numbers(&before[&name], &after);
            let is_told = !damage_in(findings, &name).is_empty();
            prop_assert!(is_told || is_cut_cleanly(&lost, &after), "{name} lost {lost:?}, and nobody says so");
            if !self.hit.contains(&name) {
                prop_assert!(!is_told, "{name} is healthy: {findings:?}");
            }
        }
        Ok(())
    }

    /// Files that nothing befell and that wait for nothing are as they were.
    fn assert_healthy_files_stay(&self, talks: &[Talk], after: &Files) -> Result<(), TestCaseError> {
        let is_quiet = |name: &str| match name.strip_suffix(".json").and_then(|name| name.strip_prefix('s')) {
            Some(at) => talks[at.parse::<usize>().unwrap()].turn == Turn::Answered,
            None => true,
        };
        let must_stay =
            |name: &str| !self.hit.contains(name) && is_quiet(name) && !is_derived(name) && !is_record(name);
        for (name, bytes) in self.healthy.iter().filter(|(name, _)| must_stay(name)) {
            prop_assert!(after.get(name) == Some(bytes), "{name} was healthy, and changed");
        }
        Ok(())
    }

    fn assert_lines_stay(&self, after: &Files) -> Result<(), TestCaseError> {
        let lines =
            |bytes: &Vec<u8>| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
        let written: BTreeSet<Vec<u8>> = self.healthy.values().flat_map(lines).collect();
        for (name, bytes) in self.damaged.iter().filter(|(name, _)| ids_of(name).is_some()) {
            let (before, after) = (whole_lines(bytes, &written), whole_lines(&after[name], &written));
            let is_subsequence = before.iter().all({
                let mut rest = after.iter();
                move |line| rest.any(|found| found == line)
            });
            prop_assert!(is_subsequence, "{name}: whole lines changed or moved");
        }
        Ok(())
    }

    /// No event is lost, and none appears but one whose checksum alone was damaged, as it was written. If it stood again
    /// behind others, it is in its own place now; if a stranger had its number meanwhile, the number is its own again.
    fn assert_events_stay(&self, before: &Events, after: &Events) -> Result<(), TestCaseError> {
        let written: Vec<String> =
            self.healthy.values().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        let was_written = |line: &str| line.contains("\"crc\"") && written.iter().any(|text| text.contains(line));
        for (name, after) in after {
            let mut before = before[name].iter().peekable();
            for event in after {
                let is_known = before.next_if(|known| known.1 == event.1 || spoilt(&known.1, &event.1)).is_some();
                prop_assert!(is_known || was_written(&event.1), "{name}: {event:?} appears");
            }
            for event in before {
                let is_there =
                    |found: &(Option<u64>, String)| found.1 == event.1 || (found.0 == event.0 && was_written(&found.1));
                prop_assert!(after.iter().any(is_there), "{name}: {event:?} is lost");
            }
        }
        Ok(())
    }

    fn assert_nothing_is_gone(&self, after: &Files) -> Result<(), TestCaseError> {
        // A note of a run that can be read may learn more.
        let learns =
            |name: &str, bytes: &[u8]| is_record(name) && serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
        let must_stay = |name: &str, bytes: &[u8]| !is_derived(name) && !learns(name, bytes);
        for (name, bytes) in self.damaged.iter().filter(|(name, bytes)| must_stay(name, bytes)) {
            prop_assert!(after.values().any(|found| found == bytes), "what stood in {name} is gone");
        }
        Ok(())
    }

    /// Everything can be opened and read, but for what still cannot be made again.
    fn assert_opens(&self, talks: &[Talk]) -> Result<(), TestCaseError> {
        let findings = self.data.findings();
        let store = self.data.store();
        prop_assert!(store.list().is_ok());
        for at in 0..talks.len() {
            let id = sid(&format!("s{at}"));
            let is_lost = |finding: &Finding| {
                matches!(finding.code, Code::SidecarUnreadable | Code::OrphanJournal)
                    && finding.session.as_ref() == Some(&id)
                    && (finding.repair.starts_with("nothing") || finding.repair.starts_with("as for"))
            };
            let found = store.get_session(&id);
            prop_assert!(found.is_ok() || findings.iter().any(is_lost), "{id}: {found:?}, {findings:?}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config(160))]

    #[test]
    fn whatever_befalls_a_directory_is_told_and_mended_and_nothing_is_lost(
        talks in talks(),
        was_opened in any::<bool>(),
        mishaps in mishaps(),
    ) {
        let case = Case::new(&talks, was_opened, &mishaps);
        let data = &case.data;
        let stamps = data.stamps();
        let report = data.check();
        prop_assert!(stamps == data.stamps(), "looking changed something");
        case.assert_told(&report.findings)?;
        let before = events(data, &case.healthy);
        let repair = match doctor::repair(&data.root, &data.doctor()) {
            // A flipped bit may make it a newer program's.
            Err(DoctorError::Storage(StorageError::NewerFormat { .. })) => return Ok(()),
            repair => repair.unwrap(),
        };
        prop_assert!(!repair.has_failed(), "{:?}", repair.actions);
        let after = data.files();
        case.assert_nothing_is_gone(&after)?;
        case.assert_healthy_files_stay(&talks, &after)?;
        case.assert_lines_stay(&after)?;
        case.assert_events_stay(&before, &events(data, &case.healthy))?;
        for stray in STRAYS.iter().filter(|name| case.hit.contains(**name)) {
            let is_temp = lastword::storage::Layout::is_temp(stray.rsplit('/').next().unwrap());
            prop_assert_eq!(after.contains_key(*stray), !is_temp, "{}", stray);
        }
        let stamps = data.stamps();
        let again = doctor::repair(&data.root, &data.doctor()).unwrap();
        prop_assert!(again.actions.is_empty(), "done again: {:?}, after {:?}", again.actions, repair.actions);
        prop_assert!(stamps == data.stamps(), "the second repair changed something");
        case.assert_opens(&talks)?;
        case.assert_events_stay(&before, &events(data, &case.healthy))?;
    }
}

/// Whether a line is another but for its checksum.
fn spoilt(line: &str, other: &str) -> bool {
    line.len() == other.len()
        && line.as_bytes()[..line.len().saturating_sub(CHECKSUM_CHARS)]
            == other.as_bytes()[..line.len().saturating_sub(CHECKSUM_CHARS)]
}

/// Where an accident begins, and where its line does.
fn place_of(bytes: &[u8], accident: &Accident) -> Option<(u64, u64)> {
    let at = match accident {
        Accident::FlipBit(bit) => bit / 8 % bytes.len(),
        Accident::Delete(at, _) | Accident::Insert(at, _) | Accident::Zero(at, _) => at % bytes.len(),
        _ => return None,
    };
    let line = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |line_feed| line_feed + 1);
    Some((line as u64, at as u64))
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn damage_is_told_on_the_line_on_which_it_begins(talks in talks(), accident in accident()) {
        let told = &talks[0].runs[0];
        let healthy = told.lines("s0", "r0").concat();
        let mut bytes = healthy.clone();
        befall(&mut bytes, &accident, b"");
        let Some((line, at)) = place_of(&healthy, &accident) else { return Ok(()) };
        let read = |bytes: &[u8]| {
            let data = Data::new();
            data.put("s0.json", crate::rows::session(&[]).to_string().replace("\"talk\"", "\"s0\"").as_bytes());
            data.put("_run_journal/s0/r0.jsonl", bytes);
            let found = events(&data, &files_in(&data.root)).remove("_run_journal/s0/r0.jsonl").unwrap();
            (found, data.findings())
        };
        let ((before, _), (after, findings)) = (read(&healthy), read(&bytes));
        let lost = lost_numbers(&before, &after);
        let damage = damage_in(&findings, "_run_journal/s0/r0.jsonl");
        let is_there = damage.iter().any(|finding| finding.offset.is_some_and(|offset| line <= offset && offset <= at));
        let is_about_numbers = |finding: &&Finding| matches!(finding.code, Code::MissingSeq | Code::DuplicateSeq);
        let is_explained = damage.iter().any(is_about_numbers) || is_cut_cleanly(&lost, &after) && damage.is_empty();
        prop_assert!(lost.is_empty() || is_there || is_explained, "lost {:?} on line {} at {}: {:?}", lost, line, at, findings);
    }
}
