//! Numbers of runs, continuations, kept stderr and lease notes, interrupted at every operation: no number is given twice, a record is
//! the old one or the new one, and a renewal that was acknowledged outlives the process.

use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::SimDisk;
use lastword::storage::{Birth, Continuation, Disk, FileStorage, FilesOptions, Mode, Storage};
use lastword::{RunId, StorageError, StoreError};

use crate::ledger::run_id;
use crate::logged::layout;
use crate::machine::{DATA, End, Machine, Memory, NOW, SMALL_PAGES, USUAL, id};

/// How many numbers one write reserves. The workload takes one more, so that it reserves twice.
const RANGE: u64 = 1024;

fn storage(machine: &Machine, disk: &SimDisk) -> Result<FileStorage, StorageError> {
    let options = FilesOptions {
        clock: Arc::new(ManualClock::at(Timestamp::from_seconds(NOW as f64))),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        commit: machine.log,
        ..FilesOptions::in_mode(Mode::Write)
    };
    FileStorage::open(Arc::new(disk.clone()), DATA.as_ref(), options)
}

/// The highest number that was given.
#[derive(Debug, Clone, Default)]
struct Given(u64);

impl Given {
    fn take(&mut self, storage: &FileStorage) -> Result<u64, StorageError> {
        let next = storage.next_order(0)?;
        assert!(self.0 < next, "{next} was given after {}", self.0);
        self.0 = next;
        Ok(next)
    }
}

impl Memory for Given {
    fn check(&self, machine: &Machine, disk: &SimDisk, _: End, what: &str) {
        let next = storage(machine, disk).and_then(|storage| storage.next_order(0));
        let next = next.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(self.0 < next, "{what}: {next} was given after {}", self.0);
    }
}

fn take_two_ranges(disk: &SimDisk, given: &mut Given) -> Result<(), StoreError> {
    let storage = storage(&USUAL, disk)?;
    for _ in 0..=RANGE {
        given.take(&storage)?;
    }
    Ok(())
}

#[test]
fn no_number_repeats_after_a_crash_at_any_operation() {
    let nothing = |_: &SimDisk, _: &mut Given| Ok(());
    for machine in [USUAL, SMALL_PAGES] {
        machine.crash_everywhere(&nothing, &take_two_ranges);
        machine.crash_everywhere(&take_two_ranges, &take_two_ranges);
    }
}

/// The reservation is lost, and a crash interrupts the search for the highest number and the next reservation.
#[test]
fn no_number_repeats_after_a_crash_while_a_lost_reservation_is_made_up_for() {
    let begin = |disk: &SimDisk, given: &mut Given| {
        take_two_ranges(disk, given)?;
        let storage = storage(&USUAL, disk)?;
        let birth = Birth { order: Some(given.take(&storage)?), ..Birth::default() };
        storage.create_journal(&id(), &run_id("r"), &birth)?;
        drop(storage);
        disk.remove_file(&layout().run_order()).unwrap();
        disk.sync_dir(DATA.as_ref()).unwrap();
        Ok(())
    };
    USUAL.crash_everywhere(&begin, &take_two_ranges);
}

/// What was noted of the run `r`, and what was about to be.
#[derive(Debug, Clone, Default)]
struct Noted {
    continued: Vec<Continuation>,
    next: Option<Continuation>,
}

impl Memory for Noted {
    fn check(&self, machine: &Machine, disk: &SimDisk, end: End, what: &str) {
        let storage = storage(machine, disk).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let birth = storage.birth(&id(), &run_id("r")).unwrap().unwrap_or_else(|| panic!("{what}: the record is gone"));
        let tried: Vec<Continuation> = self.continued.iter().copied().chain(self.next).collect();
        assert!([&self.continued, &tried].contains(&&birth.continued), "{what}: {:?}", birth.continued);
        assert_eq!((birth.order, birth.takes_appends), (Some(1), !end.is_power()), "{what}");
    }
}

fn begin_numbered(disk: &SimDisk, _: &mut Noted) -> Result<(), StoreError> {
    let storage = storage(&USUAL, disk)?;
    let birth = Birth { order: Some(storage.next_order(0)?), ..Birth::default() };
    storage.create_journal(&id(), &run_id("r"), &birth)?;
    Ok(())
}

#[test]
fn a_record_is_the_old_one_or_the_new_one_after_a_crash_while_a_continuation_is_noted() {
    let note = |disk: &SimDisk, noted: &mut Noted| {
        let storage = storage(&USUAL, disk)?;
        for after_seq in [2, 5] {
            let continuation = Continuation { after_seq, order: storage.next_order(0)? };
            noted.next = Some(continuation);
            storage.note_continuation(&id(), &run_id("r"), continuation)?;
            noted.continued.extend(noted.next.take());
        }
        Ok(())
    };
    USUAL.crash_everywhere(&begin_numbered, &note);
}

/// What is kept of the stderr of the run `r`: the text that was acknowledged last, and one that was about to be.
#[derive(Debug, Clone, Default)]
struct Kept {
    last: Option<String>,
    next: Option<String>,
}

impl Memory for Kept {
    fn check(&self, machine: &Machine, disk: &SimDisk, end: End, what: &str) {
        let storage = storage(machine, disk).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let kept = storage.kept_stderr(&id(), &run_id("r")).unwrap();
        assert!(kept == self.last || self.next.is_some() && kept == self.next, "{what}: {kept:?}");
        let birth = storage.birth(&id(), &run_id("r")).unwrap().unwrap_or_else(|| panic!("{what}: the record is gone"));
        assert_eq!((birth.order, birth.takes_appends), (Some(1), !end.is_power()), "{what}");
        assert_eq!(storage.journals(&id()).unwrap(), [run_id("r")], "{what}");
    }
}

#[test]
fn stderr_that_is_kept_is_the_old_or_the_new_text_after_a_crash_and_the_record_stays_whole() {
    let begin = |disk: &SimDisk, _: &mut Kept| begin_numbered(disk, &mut Noted::default());
    let keep = |disk: &SimDisk, kept: &mut Kept| {
        let storage = storage(&USUAL, disk)?;
        for text in ["the disk is on fire\n".repeat(40), "and the house\n".repeat(400)] {
            kept.next = Some(text.clone());
            storage.keep_stderr(&id(), &run_id("r"), &text)?;
            kept.last = kept.next.take();
        }
        Ok(())
    };
    for machine in [USUAL, SMALL_PAGES] {
        machine.crash_everywhere(&begin, &keep);
    }
}

/// The renewals of the run `r`: the one that was acknowledged last, and one that was about to be.
#[derive(Debug, Clone, Default)]
struct Renewed {
    last: Option<f64>,
    next: Option<f64>,
}

impl Memory for Renewed {
    fn check(&self, machine: &Machine, disk: &SimDisk, end: End, what: &str) {
        let storage = storage(machine, disk).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let birth = storage.birth(&id(), &run_id("r")).unwrap().unwrap_or_else(|| panic!("{what}: the record is gone"));
        assert_eq!(birth.takes_appends, !end.is_power(), "{what}");
        let found = birth.renewed_at;
        match end {
            // A note in the middle of being created is empty; one that is overwritten is the old one or the new one.
            End::Kill => assert!([self.last, self.next].contains(&found), "{what}: {found:?}"),
            // Any of those that were noted, or none: the run takes no more events.
            End::Power(_) => assert!(found.is_none_or(|at| [10.0, 20.0].contains(&at)), "{what}: {found:?}"),
        }
        assert_eq!(storage.journals(&id()).unwrap(), [run_id("r")], "{what}");
    }
}

#[test]
fn a_renewal_outlives_the_process_and_is_garbled_by_no_crash() {
    let begin = |disk: &SimDisk, _: &mut Renewed| {
        let storage = storage(&USUAL, disk)?;
        let birth = Birth { lease_seconds: Some(30.0), ..Birth::default() };
        storage.create_journal(&id(), &run_id("r"), &birth)?;
        Ok(())
    };
    let renew = |disk: &SimDisk, renewed: &mut Renewed| {
        let storage = storage(&USUAL, disk)?;
        for at in [10.0, 20.0] {
            renewed.next = Some(at);
            storage.note_renewal(&id(), &run_id("r"), at)?;
            renewed.last = renewed.next.take();
        }
        renewed.next = None;
        Ok(())
    };
    let forget = |disk: &SimDisk, renewed: &mut Renewed| {
        let storage = storage(&USUAL, disk)?;
        storage.forget_renewal(&id(), &run_id("r"))?;
        renewed.last = None;
        Ok(())
    };
    let begin_and_renew = |disk: &SimDisk, renewed: &mut Renewed| {
        begin(disk, renewed)?;
        renew(disk, renewed)
    };
    for machine in [USUAL, SMALL_PAGES] {
        machine.crash_everywhere(&begin, &renew);
        machine.crash_everywhere(&begin_and_renew, &forget);
    }
}

/// A failed fsync of the reservation stops the store like any other, and no number of it was given.
#[test]
fn a_reservation_whose_sync_fails_gives_no_number() {
    let disk = SimDisk::new();
    let storage = storage(&USUAL, &disk).unwrap();
    disk.break_syncs(disk.operations() + 1);
    let refused = storage.next_order(0).unwrap_err();
    assert!(matches!(refused, StorageError::SyncFailed { .. }), "{refused:?}");
    assert!(storage.next_order(0).is_err());
    assert!(storage.stopped_by().is_some());
}

#[test]
fn without_room_no_number_is_given_and_with_room_the_next_one_is() {
    let disk = SimDisk::new();
    let storage = storage(&USUAL, &disk).unwrap();
    disk.fill(disk.operations() + 1);
    assert!(storage.next_order(0).is_err());
    disk.make_room();
    assert_eq!(storage.next_order(0).unwrap(), 1);
}

/// A run whose machine was restarted takes no more events, and its birth says so.
#[test]
fn a_run_of_an_earlier_boot_takes_no_appends() {
    let disk = SimDisk::new();
    begin_numbered(&disk, &mut Noted::default()).unwrap();
    let takes_appends = |run: &RunId| storage(&USUAL, &disk).unwrap().birth(&id(), run).unwrap().unwrap().takes_appends;
    assert!(takes_appends(&run_id("r")));
    disk.reboot();
    assert!(!takes_appends(&run_id("r")));
}
