//! The replay of the commit log: cut anywhere, beside programs that know nothing of it, and with logs that do not count.

use std::path::{Path, PathBuf};

use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk, Layout};
use lastword::{Finding, ReadOptions, Store, StoreError};

use crate::ledger::{Ledger, run_id, session_id};
use crate::machine::{DATA, End, Machine, Memory, SMALL_PAGES, USUAL, log_of};
use crate::verdict::Verdict;

fn layout() -> Layout {
    Layout::new(Path::new(DATA))
}

fn journal() -> PathBuf {
    layout().journal(&session_id("a"), &run_id("r1"))
}

/// Puts bytes where another program would, durably.
fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let folder = path.parent().unwrap();
    make_folder(disk, folder);
    if disk.stat(path).is_ok() {
        disk.remove_file(path).unwrap();
    }
    let file = disk.open(path, Access::CreateNew).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
    file.sync().unwrap();
    disk.sync_dir(folder).unwrap();
}

fn make_folder(disk: &SimDisk, path: &Path) {
    let Some(above) = path.parent() else { return };
    make_folder(disk, above);
    if disk.stat(path).is_err() {
        disk.create_dir(path).unwrap();
        disk.sync_dir(above).unwrap();
    }
}

fn log_files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().filter(|(path, _)| path.starts_with(layout().commit_log())).collect()
}

/// A run with three acknowledged events, one record of the log each, whose process was killed.
fn left_behind(machine: &Machine) -> (SimDisk, Ledger) {
    let (disk, mut ledger) = (machine.disk(), Ledger::default());
    let store = machine.open(&disk).unwrap();
    ledger.create(&store, "a").unwrap();
    let run = ledger.adopt(&store, "a", "r1").unwrap();
    (0..3).for_each(|_| ledger.append_durable(&run, 0).unwrap());
    disk.kill();
    (disk, ledger)
}

fn lines(disk: &SimDisk) -> Vec<Vec<u8>> {
    disk.files()[&journal()].split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// A line of another program.
fn foreign(seq: u64, text: &str) -> Vec<u8> {
    format!("{{\"seq\":{seq},\"event\":\"token\",\"payload\":{{\"text\":\"{text}\"}}}}\n").into_bytes()
}

fn texts(store: &Store) -> Vec<(u64, String)> {
    let found = store.read_events(&session_id("a"), &run_id("r1"), ReadOptions::default()).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    let text = |payload: &str| serde_json::from_str::<serde_json::Value>(payload).unwrap()["text"].to_string();
    found.events.iter().map(|event| (event.seq.unwrap(), text(event.payload()))).collect()
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code).collect()
}

/// The streams that a log is still needed for when the power goes, or the process dies.
fn work(machine: &Machine, disk: &SimDisk, ledger: &mut Ledger) -> Result<(), StoreError> {
    let store = machine.open(disk)?;
    ledger.create(&store, "a")?;
    let runs = [ledger.begin(&store, "a", "r1")?, ledger.adopt(&store, "b", "r2")?];
    for run in [0, 1, 1, 0, 1] {
        ledger.append(&runs[run], 0)?;
        ledger.append_durable(&runs[run], 0)?;
    }
    ledger.append(&runs[0], 0)
}

/// What is left after the work was cut and the store was not opened since, and what is known of it.
fn cut_work(machine: &Machine, operation: u64, end: End) -> Option<(SimDisk, Ledger)> {
    let (disk, mut ledger) = (machine.disk(), Ledger::default());
    disk.stop_before(operation);
    let _ = work(machine, &disk, &mut ledger);
    if !disk.has_stopped() {
        return None;
    }
    end.strike(&disk);
    let seen = Verdict { machine, ledger: &ledger, end }.pass(&disk.copy()).unwrap();
    ledger.settle(&seen, end.is_power());
    Some((disk, ledger))
}

fn replay_cut_everywhere(machine: &Machine) {
    for operation in (20..).step_by(3) {
        for end in [End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::Seeded(operation))] {
            let Some((disk, ledger)) = cut_work(machine, operation, end) else { return };
            machine.crash_everywhere_on(&disk, &ledger, &|disk, _| machine.open(disk).map(drop));
        }
    }
}

#[test]
fn a_replay_cut_anywhere_is_made_up_for() {
    replay_cut_everywhere(&Machine { cap: 4, ..USUAL });
}

#[test]
fn a_replay_cut_anywhere_is_made_up_for_on_small_pages() {
    replay_cut_everywhere(&Machine { cap: 4, log: log_of(1024, 2), ..SMALL_PAGES });
}

/// The journal of another program that began its numbers anew: what was acknowledged wins.
#[derive(Debug, Clone, Default)]
struct Overwritten {
    expected: Vec<(u64, String)>,
    replaced: Vec<u8>,
}

impl Memory for Overwritten {
    fn check(&self, machine: &Machine, disk: &SimDisk, _: End, what: &str) {
        let reader = machine.open_to_read(disk).unwrap();
        assert_eq!(texts(&reader), self.expected, "a reader: {what}");
        let store = machine.open(disk).unwrap();
        assert_eq!(texts(&store), self.expected, "{what}\n{}", disk.log().join("\n"));
        assert!(is_kept(disk, &self.replaced), "{what}: the other bytes are gone");
        drop(store);
        let again = machine.open(disk).unwrap();
        assert_eq!((texts(&again), again.findings()), (self.expected.clone(), Vec::new()), "{what}");
    }
}

fn is_kept(disk: &SimDisk, bytes: &[u8]) -> bool {
    let holds = |kept: &[u8]| kept.windows(bytes.len()).any(|part| part == bytes);
    disk.files().iter().any(|(path, kept)| path.starts_with(layout().kept()) && holds(kept))
}

/// The journal of `left_behind` with other lines, and what must come of it.
fn overwritten(lines_of: impl Fn(&[Vec<u8>]) -> Vec<Vec<u8>>, replaced: &[u8]) -> (SimDisk, Overwritten, u64) {
    let (disk, _) = left_behind(&USUAL);
    let own = lines(&disk);
    let mut expected = texts(&USUAL.open(&disk.copy()).unwrap());
    expected.extend([(4, "\"four\"".to_owned()), (5, "\"five\"".to_owned())]);
    put(&disk, &journal(), &lines_of(&own).concat());
    (disk, Overwritten { expected, replaced: replaced.to_vec() }, own[0].len() as u64)
}

#[track_caller]
fn check_overwritten((disk, memory, offset): (SimDisk, Overwritten, u64)) {
    let store = USUAL.open(&disk.copy()).unwrap();
    let findings = store.findings();
    assert_eq!(codes(&findings), ["duplicate_seq"]);
    assert_eq!(findings[0].file, journal().strip_prefix(DATA).unwrap());
    assert_eq!((findings[0].offset, findings[0].run.clone()), (Some(offset), Some(run_id("r1"))));
    Machine { cap: 40, ..USUAL }.crash_everywhere_on(&disk, &memory, &|disk, _| USUAL.open(disk).map(drop));
}

#[test]
fn an_acknowledged_line_wins_over_another_of_the_same_length() {
    let other = |own: &[Vec<u8>]| String::from_utf8(own[1].clone()).unwrap().replace("<a r1 2>", "[nobody]");
    let (disk, _) = left_behind(&USUAL);
    let replaced = other(&lines(&disk)).into_bytes();
    let with = |own: &[Vec<u8>]| {
        vec![own[0].clone(), other(own).into_bytes(), own[2].clone(), foreign(4, "four"), foreign(5, "five")]
    };
    check_overwritten(overwritten(with, &replaced));
}

#[test]
fn an_acknowledged_line_wins_over_a_shorter_one_and_later_numbers_stay() {
    let with = |own: &[Vec<u8>]| {
        vec![own[0].clone(), foreign(2, "no"), foreign(3, "no"), foreign(4, "four"), foreign(5, "five")]
    };
    check_overwritten(overwritten(with, &[foreign(2, "no"), foreign(3, "no")].concat()));
}

#[test]
fn an_acknowledged_line_wins_over_a_longer_one_and_later_numbers_stay() {
    let long = "no ".repeat(200);
    let with = |own: &[Vec<u8>]| vec![own[0].clone(), foreign(2, &long), foreign(4, "four"), foreign(5, "five")];
    check_overwritten(overwritten(with, &foreign(2, &long)));
}

#[test]
fn a_reader_from_before_the_replay_sees_what_is_appended_behind_it() {
    let with = |own: &[Vec<u8>]| vec![own[0].clone(), foreign(2, "no"), foreign(4, "four"), foreign(5, "five")];
    let (disk, mut memory, _) = overwritten(with, b"no");
    let reader = USUAL.open_to_read(&disk).unwrap();
    assert_eq!(texts(&reader), memory.expected);
    let run = USUAL.open(&disk).unwrap().resume_run(&session_id("a"), &run_id("r1")).unwrap();
    run.append(lastword::Event::token("six")).unwrap();
    memory.expected.push((6, "\"six\"".to_owned()));
    assert_eq!(texts(&reader), memory.expected);
}

/// A page was lost before the place that another program overwrote: both are put right.
#[test]
fn an_acknowledged_line_is_put_back_before_another_that_wins() {
    let with = |own: &[Vec<u8>]| {
        let (lost, other) = (vec![0; own[1].len()], [vec![b'x'; own[2].len() - 1], b"\n".to_vec()].concat());
        vec![own[0].clone(), lost, other, foreign(4, "four"), foreign(5, "five")]
    };
    let (disk, memory, lost) = overwritten(with, b"xxxx");
    let own = lines(&disk);
    check_overwritten((disk, memory, lost + own[0].len() as u64));
}

#[test]
fn a_journal_that_another_program_removed_is_made_again_and_stays() {
    let (disk, ledger) = left_behind(&USUAL);
    disk.remove_file(&journal()).unwrap();
    disk.sync_dir(journal().parent().unwrap()).unwrap();
    USUAL.crash_everywhere_on(&disk, &ledger, &|disk, _| USUAL.open(disk).map(drop));
    drop(USUAL.open(&disk).unwrap());
    disk.power_cut(Crash::LoseAll);
    let verdict = Verdict { machine: &USUAL, ledger: &ledger, end: End::Power(Crash::LoseAll) };
    verdict.pass(&disk).unwrap();
}

/// The log holds the end of the journal alone, which is no journal without its beginning.
#[test]
fn logged_events_of_a_journal_that_another_program_removed_with_all_before_them_are_kept_and_told() {
    let (disk, mut ledger) = left_behind(&USUAL);
    drop(USUAL.open(&disk).unwrap());
    let store = USUAL.open(&disk).unwrap();
    let run = ledger.resume(&store, "a", "r1").unwrap();
    (0..3).for_each(|_| ledger.append_durable(&run, 0).unwrap());
    disk.kill();
    let own = lines(&disk);
    assert_eq!(own.len(), 6);
    disk.remove_file(&journal()).unwrap();
    disk.sync_dir(journal().parent().unwrap()).unwrap();
    let store = USUAL.open(&disk).unwrap();
    let findings = store.findings();
    assert_eq!(codes(&findings), ["missing_seq"]);
    assert_eq!(findings[0].offset, Some(own[..3].concat().len() as u64));
    assert!(disk.stat(&journal()).is_err(), "a journal that begins with a hole");
    drop(store);
    disk.power_cut(Crash::LoseAll);
    assert!(is_kept(&disk, &own[3..].concat()), "the acknowledged events are gone");
    assert_eq!(USUAL.open(&disk).unwrap().findings(), [], "they are told once");
}

/// After a clean end the log has no say: whatever another program does then stands, even if the power goes.
#[test]
fn what_another_program_writes_after_a_clean_end_stands() {
    let (disk, _) = left_behind(&USUAL);
    drop(USUAL.open(&disk).unwrap());
    let store = USUAL.open(&disk).unwrap();
    let run = store.resume_run(&session_id("a"), &run_id("r1")).unwrap();
    run.append_durable(lastword::Event::token("four")).unwrap().wait().unwrap();
    drop((run, store));
    let rewritten = [foreign(1, &"one ".repeat(300)), foreign(2, "two")].concat();
    put(&disk, &journal(), &rewritten);
    disk.power_cut(Crash::LoseAll);
    let store = USUAL.open(&disk).unwrap();
    assert_eq!(store.findings(), []);
    assert_eq!(disk.files()[&journal()], rewritten);
}

/// A file of an older log of the same store, as a copy of the directory that was begun earlier may bring it.
#[test]
fn a_segment_from_before_those_that_count_is_not_replayed() {
    let (disk, _) = left_behind(&USUAL);
    let old = log_files(&disk);
    drop(USUAL.open(&disk).unwrap());
    let rewritten = foreign(1, "one");
    put(&disk, &journal(), &rewritten);
    for (number, (_, bytes)) in old.iter().enumerate() {
        put(&disk, &layout().segment(50 + number as u32), bytes);
    }
    let reader = USUAL.open_to_read(&disk).unwrap();
    assert_eq!(texts(&reader), [(1, "\"one\"".to_owned())]);
    let store = USUAL.open(&disk).unwrap();
    assert_eq!((store.findings(), &disk.files()[&journal()]), (Vec::new(), &rewritten));
}

#[test]
fn the_log_of_another_store_is_set_aside_and_not_replayed() {
    let (other, _) = left_behind(&USUAL);
    let disk = USUAL.disk();
    disk.create_dir(Path::new("/elsewhere")).unwrap();
    Ledger::default().create(&USUAL.open(&disk).unwrap(), "a").unwrap();
    let identity = |disk: &SimDisk| disk.files()[&layout().identity()].clone();
    assert_ne!(identity(&disk), identity(&other), "two stores");
    for (number, (_, bytes)) in log_files(&other).iter().enumerate() {
        put(&disk, &layout().segment(50 + number as u32), bytes);
    }
    let work = |disk: &SimDisk| USUAL.open(disk).map(|store| store.findings());
    let findings = work(&disk.copy()).unwrap();
    assert_eq!(codes(&findings), ["foreign_log"]);
    assert_eq!(findings[0].file, layout().segment(50).strip_prefix(DATA).unwrap());
    let kept = log_files(&other)[0].1.clone();
    Machine { cap: 40, ..USUAL }.crash_everywhere_on(&disk, &SetAside { kept }, &|disk, _| work(disk).map(drop));
}

/// A log that belongs to nobody here.
#[derive(Debug, Clone, Default)]
struct SetAside {
    kept: Vec<u8>,
}

impl Memory for SetAside {
    fn check(&self, machine: &Machine, disk: &SimDisk, _: End, what: &str) {
        let store = machine.open(disk).unwrap();
        assert_eq!(texts(&store), [], "{what}");
        assert!(disk.stat(&journal()).is_err(), "{what}");
        assert!(is_kept(disk, &self.kept), "{what}: it is gone");
        drop(store);
        assert_eq!(machine.open(disk).unwrap().findings(), [], "{what}: it is still there");
    }
}

#[test]
fn a_copy_of_the_directory_replays_like_the_original() {
    let (disk, ledger) = left_behind(&USUAL);
    let mut own = lines(&disk);
    own.pop();
    put(&disk, &journal(), &own.concat());
    let copy = USUAL.disk();
    disk.files().iter().for_each(|(path, bytes)| put(&copy, path, bytes));
    let read = |disk: &SimDisk| texts(&USUAL.open(disk).unwrap());
    assert_eq!(read(&copy), read(&disk));
    Verdict { machine: &USUAL, ledger: &ledger, end: End::Kill }.pass(&copy).unwrap();
}

/// A journal that is longer than what is copied at once, and in whose last line's place another stands.
#[test]
fn a_replay_that_rebuilds_the_end_of_a_long_journal_leaves_all_before_it_as_it_was() {
    let (disk, mut ledger) = (USUAL.disk(), Ledger::default());
    let store = USUAL.open(&disk).unwrap();
    ledger.create(&store, "a").unwrap();
    let run = ledger.adopt(&store, "a", "r1").unwrap();
    (0..40).for_each(|_| ledger.append(&run, 16_000).unwrap());
    drop((run, store));
    let store = USUAL.open(&disk).unwrap();
    let run = ledger.resume(&store, "a", "r1").unwrap();
    (0..2).for_each(|_| ledger.append_durable(&run, 0).unwrap());
    disk.kill();
    let whole = disk.files()[&journal()].clone();
    assert!(whole.len() > 600_000, "{} bytes", whole.len());
    let last = lines(&disk).pop().unwrap().len();
    put(&disk, &journal(), &[&whole[..whole.len() - last], &vec![b'x'; last - 1], b"\n"].concat());
    let store = USUAL.open(&disk).unwrap();
    assert_eq!(codes(&store.findings()), ["duplicate_seq"]);
    assert!(disk.files()[&journal()] == whole, "the rebuilt journal differs");
    drop(store);
    disk.power_cut(Crash::LoseAll);
    assert!(disk.files()[&journal()] == whole, "a power cut takes some of it");
}
