//! Workloads of many runs that share one commit log, interrupted everywhere.

use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::{Run, Store, StoreError};

use crate::ledger::Ledger;
use crate::machine::{End, Machine, Memory, SMALL_PAGES, USUAL, Work, log_of};

/// Two segments of the smallest size, so that the log fills, is swept and begins again every few events.
const TINY_LOG: Machine = Machine { log: log_of(1024, 2), cap: 16, ..USUAL };

/// Runs a workload in one store, from its opening to its closing.
fn in_one_store<'a>(
    machine: &'a Machine,
    work: fn(&Store, &mut Ledger) -> Result<(), StoreError>,
) -> impl Fn(&SimDisk, &mut Ledger) -> Result<(), StoreError> + 'a {
    move |disk, ledger| machine.open(disk).and_then(|store| work(&store, ledger))
}

fn two_sessions(store: &Store, ledger: &mut Ledger) -> Result<(), StoreError> {
    ledger.create(store, "a")?;
    ledger.create(store, "_b")
}

#[track_caller]
fn crash_everywhere(machine: Machine, work: fn(&Store, &mut Ledger) -> Result<(), StoreError>) {
    machine.crash_everywhere(&in_one_store(&machine, two_sessions), &in_one_store(&machine, work));
}

/// Several sessions and runs; tickets are waited for out of order, or never, or nobody asked for one.
fn interleaved(store: &Store, ledger: &mut Ledger) -> Result<(), StoreError> {
    let runs = [ledger.begin(store, "a", "r1")?, ledger.begin(store, "_b", "r1")?, ledger.adopt(store, "a", "r2")?];
    let first = ledger.claim(&runs[0], 0)?;
    ledger.append(&runs[1], 0)?;
    let second = ledger.claim(&runs[1], 0)?;
    ledger.append(&runs[2], 0)?;
    ledger.wait(second)?;
    ledger.append(&runs[0], 0)?;
    ledger.commit(store)?;
    ledger.wait(first)?;
    ledger.append(&runs[2], 0)?;
    let third = ledger.claim(&runs[2], 0)?;
    drop(ledger.claim(&runs[1], 0)?);
    ledger.wait(third)?;
    ledger.finish(&runs[0])
}

#[test]
fn interleaved_streams() {
    crash_everywhere(USUAL, interleaved);
}

#[test]
fn interleaved_streams_on_small_pages() {
    crash_everywhere(Machine { cap: 24, ..SMALL_PAGES }, interleaved);
}

/// More than the log holds, several times over.
fn overflow(runs: &[Run], ledger: &mut Ledger) -> Result<(), StoreError> {
    for round in 0..5 {
        for run in runs {
            ledger.append(run, 0)?;
        }
        ledger.append_durable(&runs[round % runs.len()], 0)?;
    }
    Ok(())
}

#[test]
fn a_log_that_fills_and_begins_again() {
    crash_everywhere(TINY_LOG, |store, ledger| {
        let runs = [ledger.adopt(store, "a", "r1")?, ledger.begin(store, "_b", "r1")?];
        overflow(&runs, ledger)?;
        ledger.commit(store)?;
        ledger.finish(&runs[1])
    });
}

#[test]
fn a_log_that_fills_and_begins_again_on_small_pages() {
    crash_everywhere(Machine { log: log_of(1024, 3), page_bytes: 64, ..TINY_LOG }, |store, ledger| {
        let runs = [ledger.adopt(store, "a", "r1")?, ledger.adopt(store, "_b", "r1")?];
        overflow(&runs, ledger)
    });
}

/// Lines that no segment has room for are durable in place, and the log only refers to them.
#[test]
fn lines_longer_than_a_segment() {
    crash_everywhere(TINY_LOG, |store, ledger| {
        let run = ledger.begin(store, "a", "r1")?;
        let other = ledger.adopt(store, "_b", "r1")?;
        ledger.append_durable(&run, 0)?;
        ledger.append(&other, 0)?;
        ledger.append_durable(&run, 1_500)?;
        ledger.append(&run, 1_500)?;
        ledger.append_durable(&run, 0)?;
        ledger.commit(store)?;
        ledger.finish(&run)
    });
}

#[test]
fn removing_a_run_and_deleting_a_session_that_the_log_still_holds() {
    crash_everywhere(Machine { cap: 32, ..USUAL }, |store, ledger| {
        let kept = ledger.adopt(store, "a", "kept")?;
        let gone = ledger.adopt(store, "a", "gone")?;
        let deleted = ledger.begin(store, "_b", "r1")?;
        for run in [&kept, &gone, &deleted] {
            ledger.append_durable(run, 0)?;
            ledger.append(run, 0)?;
        }
        ledger.remove_run(store, "a", "gone")?;
        ledger.append_durable(&kept, 0)?;
        ledger.delete(store, "_b")?;
        ledger.append_durable(&kept, 0)
    });
}

#[test]
fn closing_and_opening_again() {
    let lives = |disk: &SimDisk, ledger: &mut Ledger| -> Result<(), StoreError> {
        for life in 0..3 {
            let store = USUAL.open(disk)?;
            if life == 0 {
                ledger.create(&store, "a")?;
                ledger.begin(&store, "a", "r1")?;
            }
            let run = ledger.resume(&store, "a", "r1")?;
            ledger.append(&run, 0)?;
            ledger.append_durable(&run, 0)?;
            ledger.append(&run, 0)?;
        }
        Ok(())
    };
    let nothing: Work<'_, Ledger> = &|_, _| Ok(());
    Machine { cap: 32, ..USUAL }.crash_everywhere(nothing, &lives);
}

/// A sync that fails forgets what it should have made durable. The next process writes it again before it lets go of the
/// log.
#[test]
fn a_sync_that_fails_once_takes_nothing_that_was_acknowledged() {
    let work = in_one_store(&TINY_LOG, |store, ledger| {
        let runs = [ledger.adopt(store, "a", "r1")?, ledger.adopt(store, "_b", "r1")?];
        overflow(&runs, ledger)
    });
    let (disk, mut before) = (TINY_LOG.disk(), Ledger::default());
    in_one_store(&TINY_LOG, two_sessions)(&disk, &mut before).unwrap();
    let whole = disk.copy();
    work(&whole, &mut before.clone()).unwrap();
    for operation in disk.operations() + 1..=whole.operations() {
        let (disk, mut ledger) = (disk.copy(), before.clone());
        disk.fail(operation, Fault::Eio);
        let _ = work(&disk, &mut ledger);
        disk.kill();
        drop(TINY_LOG.open(&disk).unwrap());
        let end = End::Power(Crash::LoseAll);
        end.strike(&disk);
        ledger.check(&TINY_LOG, &disk, end, &format!("operation {operation}"));
    }
}
