//! What is acknowledged is durable, in the log or in its journal, whichever operation of the disk fails.

use super::by_hand::{ByHand, Journal, SMALL, Written, has_damage};
use super::*;
use crate::storage::disk::Disk;
use crate::storage::sim::{Fault, SimDisk};

/// Something goes wrong at the operation of this number, or from it on.
type Trouble = fn(&SimDisk, u64);

const TROUBLES: [(&str, Trouble); 6] = [
    ("it fails", |disk, at| disk.fail(at, Fault::Eio)),
    ("it finds no room", |disk, at| disk.fail(at, Fault::Enospc)),
    ("it writes a part", |disk, at| disk.fail(at, Fault::ShortWrite(100))),
    ("the disk is full from it on", |disk, at| disk.fill(at)),
    ("every fsync fails from it on", |disk, at| disk.break_syncs(at)),
    ("every fsync finds no room from it on", |disk, at| disk.fill_at_sync(at)),
];

/// At least as many as the longest commit here has.
const OPERATIONS: u64 = 50;

type Commit = fn(&ByHand, &[(Journal, Written)]) -> bool;

/// Hands in all lines, and waits for them together.
const WAITED_FOR: Commit = |scene, journals| {
    let tickets: Vec<_> = journals.iter().map(|(journal, written)| scene.submit(journal, written)).collect();
    tickets.into_iter().map(Ticket::wait).filter(Result::is_err).count() == 0
};

/// Notes the journals, as for buffered appends, and commits.
const NOTED: Commit = |scene, journals| {
    journals.iter().for_each(|(journal, _)| scene.committer.note(&journal.stream));
    scene.committer.commit().is_ok()
};

/// One batch of lines of these lengths, each in a journal of its own.
fn check_batch(lengths: &[usize], commit: Commit) {
    let scene = ByHand::new(SMALL);
    let journals = written(&scene, lengths, 0);
    let before = scene.disk.operations();
    assert!(commit(&scene, &journals), "undisturbed");
    assert_all_survive(&scene, &journals, "undisturbed");
    assert!(scene.disk.operations() - before < OPERATIONS, "more operations than are tried");
    for operation in 1..=OPERATIONS {
        for (what, trouble) in TROUBLES {
            check_trouble(lengths, commit, operation, trouble, &format!("{lengths:?}, operation {operation}: {what}"));
        }
    }
}

/// A store that goes on makes the next batch durable too, and one that has stopped fails it as well.
fn check_trouble(lengths: &[usize], commit: Commit, operation: u64, trouble: Trouble, what: &str) {
    let scene = ByHand::new(SMALL);
    let batches = [written(&scene, lengths, 0), written(&scene, lengths, 10)];
    trouble(&scene.disk, scene.disk.operations() + operation);
    for batch in &batches {
        let is_durable = commit(&scene, batch);
        assert_eq!(is_durable, !scene.committer.latch().is_stopped(), "{what}: neither done nor stopped");
        if is_durable {
            assert_all_survive(&scene, batch, what);
        }
        scene.disk.make_room();
        scene.disk.mend_syncs();
    }
    let has_failed = scene.disk.log().iter().any(|line| line.contains(" sync ") && line.ends_with(" !Eio"));
    assert!(!has_failed || scene.committer.latch().is_stopped(), "{what}: an fsync failed");
}

fn written(scene: &ByHand, lengths: &[usize], first: usize) -> Vec<(Journal, Written)> {
    let write = |(number, length): (usize, &usize)| {
        let journal = scene.journal(&format!("r{}", first + number));
        let written = journal.write("line", *length);
        (journal, written)
    };
    lengths.iter().enumerate().map(write).collect()
}

fn assert_all_survive(scene: &ByHand, journals: &[(Journal, Written)], what: &str) {
    for (number, (_, written)) in journals.iter().enumerate() {
        let log = || scene.disk.log().join("\n");
        assert!(scene.survives(written), "{what}: line {number} is acknowledged and lost\n{}", log());
    }
}

#[test]
fn a_batch_that_spans_segments_is_acknowledged_when_all_of_it_is_durable() {
    check_batch(&[600; 4], WAITED_FOR);
}

/// The log only refers to them.
#[test]
fn lines_too_long_for_the_log_are_acknowledged_when_their_journal_is_synced() {
    check_batch(&[3_000], WAITED_FOR);
    check_batch(&[40, 3_000, 40], WAITED_FOR);
}

#[test]
fn a_commit_makes_lines_durable_that_no_appender_waits_for() {
    check_batch(&[40, 600, 600], NOTED);
    check_batch(&[3_000, 40], NOTED);
}

/// The sync of a journal leaves its segment without a name. Lines that are logged there later name it again: else it would
/// be used for other lines while it has the only durable copy of these.
#[test]
fn a_segment_stays_for_lines_that_were_logged_after_a_sync_of_their_journal() {
    let scene = ByHand::new(CommitOptions { log_bytes: 2048, ..SMALL });
    let (quiet, busy) = (scene.journal("quiet"), scene.journal("busy"));
    let commit = |journal: &Journal, written: &Written| assert!(scene.submit(journal, written).wait().is_ok());
    let first = quiet.write("first", 40);
    commit(&quiet, &first);
    scene.committer.sweep();
    assert_eq!(quiet.stream.synced(), quiet.stream.written(), "the log is not needed for it");
    let second = quiet.write("second", 40);
    commit(&quiet, &second);
    for number in 0..20 {
        let line = busy.write(&number.to_string(), 300);
        commit(&busy, &line);
        for written in [&first, &second, &line] {
            assert!(scene.survives(written), "after line {number}\n{}", scene.disk.log().join("\n"));
        }
    }
}

/// Each attempt on a disk that is nearly full would leave another one.
#[test]
fn a_segment_that_could_not_be_filled_leaves_no_file() {
    let mut struck = 0;
    for operation in 1..=OPERATIONS {
        let scene = ByHand::new(SMALL);
        let journals = written(&scene, &[40], 0);
        scene.disk.fail(scene.disk.operations() + operation, Fault::Enospc);
        assert!(WAITED_FOR(&scene, &journals));
        struck += usize::from(scene.disk.log().iter().any(|line| line.contains("segment") && line.contains(" !")));
        let lengths = scene.segment_lengths();
        assert!(lengths.iter().all(|length| *length == SMALL.segment_bytes), "operation {operation}: {lengths:?}");
    }
    assert!(struck >= 3, "creation, write and fsync of a segment");
}

/// A replay would undo what another program or a repair writes after the close.
#[test]
fn a_log_that_is_closed_without_room_for_a_segment_is_retired_durably() {
    let prepare = || {
        let scene = ByHand::new(SMALL);
        let journals = written(&scene, &[40], 0);
        assert!(WAITED_FOR(&scene, &journals) && scene.replayed_records() == 1);
        (scene, journals)
    };
    let (whole, _journals) = prepare();
    let before = whole.disk.operations();
    whole.committer.close();
    let log = whole.disk.log();
    let is_header = |line: &&String| line.contains("write /data/_commit_log");
    let header = log.iter().rfind(is_header).and_then(|line| line.split(' ').next()?.parse::<u64>().ok()).unwrap();
    assert!(header > before && whole.replayed_records() == 0);
    let (scene, journals) = prepare();
    scene.disk.fail(header, Fault::Enospc);
    scene.committer.close();
    assert_eq!(scene.replayed_records(), 0, "{}", scene.disk.log().join("\n"));
    assert_all_survive(&scene, &journals, "closed");
}

/// A sweep, a deletion or an append has met the failure. A commit with nothing to do would find no trace of it.
#[test]
fn a_commit_of_a_store_that_has_stopped_fails() {
    let scene = ByHand::new(SMALL);
    let journals = written(&scene, &[40], 0);
    scene.disk.fail(scene.disk.operations() + 1, Fault::Eio);
    scene.committer.secure(&journals[0].0.stream).unwrap_err();
    let refused = scene.committer.commit().unwrap_err();
    assert!(
        matches!(&refused, StorageError::Stopped { source } if matches!(**source, StorageError::SyncFailed { .. }))
    );
}

/// Zeroes in their place would be put into the journal by a replay.
#[test]
fn lines_that_another_program_cut_off_do_not_enter_the_log() {
    let scene = ByHand::new(SMALL);
    let journals = written(&scene, &[40, 40], 0);
    scene.disk.open(journals[0].0.stream.path(), Access::Write).unwrap().set_len(10).unwrap();
    assert!(NOTED(&scene, &journals), "it costs no other journal its durability");
    assert_eq!(scene.replayed_records(), 1);
    assert_all_survive(&scene, &journals[1..], "the other journal");
}

/// Of a segment that is used again, the new records may reach the medium and the header of the earlier use stay. The old
/// records after them would look like acknowledged ones after damage.
#[test]
fn a_power_cut_while_a_segment_is_used_again_leaves_nothing_that_looks_like_damage() {
    let log = use_segments_again(None);
    let headers = log.iter().filter(|line| line.contains("segment-0000 at 0,")).count();
    assert!(headers > 2, "no segment was used again\n{}", log.join("\n"));
    // A segment that could not be written is filled with zeroes first.
    let is_record = |line: &&String| line.contains("write /data/_commit_log") && !line.contains(" at 0,");
    let records = log.iter().filter(is_record).filter_map(|line| line.split(' ').next()?.parse().ok());
    records.step_by(2).for_each(|operation| drop(use_segments_again(Some(operation))));
}

/// Cuts the power before each operation, in many ways. One operation finds no room.
fn use_segments_again(without_room: Option<u64>) -> Vec<String> {
    let disk = SimDisk::new().with_page_bytes(64);
    let scene = ByHand::on(disk, CommitOptions { log_bytes: 2048, ..SMALL }, Threads::new(true));
    let journals = ["a", "b"].map(|name| scene.journal(name));
    without_room.into_iter().for_each(|operation| scene.disk.fail(operation, Fault::Enospc));
    let damaged: Arc<TestMutex<Option<String>>> = Arc::default();
    let noted = damaged.clone();
    scene.disk.observe(move |disk| {
        for crash in disk.crashes(15) {
            let copy = disk.copy();
            copy.power_cut(crash);
            if has_damage(&copy.files()) {
                noted.lock().get_or_insert_with(|| copy.log().join("\n"));
            }
        }
    });
    for _ in 0..30 {
        let batch = journals.each_ref().map(|journal| scene.submit(journal, &journal.write("line", 40)));
        batch.into_iter().for_each(|ticket| assert!(ticket.wait().is_ok()));
    }
    assert_eq!(*damaged.lock(), None);
    scene.disk.log()
}
