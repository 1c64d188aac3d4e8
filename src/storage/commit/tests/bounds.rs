//! Bounds of the committer: lines that wait, files of abandoned journals, journals that it knows.

use super::by_hand::{ByHand, SMALL};
use super::*;
use crate::storage::sim::schedule::{Explorer, sleep};

/// Without a background interval no thread commits what no appender waits for.
#[test]
fn lines_that_wait_for_a_commit_are_bounded() {
    let scene = ByHand::new(SMALL);
    let path = Path::new("/long");
    let stream = Arc::new(Stream::new(&SessionId::parse("s").unwrap(), &RunId::parse("r").unwrap(), path, 0));
    let file: Arc<dyn DiskFile> = Arc::new(Panicking);
    stream.hold(&file);
    scene.committer.register(&stream);
    let line = vec![b'x'; 1024 * 1024];
    let mut tickets = Vec::new();
    for number in 0..20 {
        let offset = number * line.len() as u64;
        stream.note_written(offset + line.len() as u64);
        tickets.push(scene.committer.submit(&stream, offset, &line));
        let waiting = scene.committer.queue.lock().gathered.lines.len();
        assert!(waiting <= COMMIT_LINES_BYTES_MAX, "{waiting} bytes wait");
    }
    let durable = tickets.iter().filter(|ticket| ticket.is_durable()).count();
    assert!((10..20).contains(&durable), "{durable} of 20 are durable: a batch at a time");
    let spare = scene.committer.queue.lock().spare.lines.capacity();
    assert!(spare <= COMMIT_LINES_BYTES_MAX, "{spare} bytes are kept");
}

/// Files that are open at most while many journals are written and abandoned, one after the other.
fn open_files_of_abandoned_journals(scene: &ByHand, pause: impl Fn()) -> usize {
    let (mut most, before) = (0, scene.disk.open_files());
    for number in 0..40 {
        let journal = scene.journal(&format!("r{number}"));
        let written = journal.write("line", 20);
        scene.submit(&journal, &written).wait().unwrap();
        drop(journal);
        scene.committer.leave();
        pause();
        most = most.max(scene.disk.open_files() - before);
    }
    most
}

/// The journals, the segment, and the directories that are kept open.
const OPEN_FILES_MAX: usize = 8 + 3;

const ONE_SEGMENT: CommitOptions = CommitOptions { background: None, segment_bytes: 16 * 1024, log_bytes: 128 * 1024 };

#[test]
fn few_abandoned_journals_keep_their_file_open_without_threads() {
    let most = open_files_of_abandoned_journals(&ByHand::new(ONE_SEGMENT), || {});
    assert!((8..=OPEN_FILES_MAX).contains(&most), "{most} files are open");
}

/// The second thread sweeps, although the log has room.
#[test]
fn few_abandoned_journals_keep_their_file_open() {
    let work = || {
        let scene = ByHand::with_threads(ONE_SEGMENT, Threads::new(false));
        let most = open_files_of_abandoned_journals(&scene, || sleep(Duration::from_millis(10)));
        scene.committer.close();
        most
    };
    let explorer = Explorer { singles_max: 20, pairs_max: 0, seeds: 5, early_timeouts: false, ..Explorer::default() };
    explorer.explore(work, |most| assert!((8..=OPEN_FILES_MAX).contains(&most), "{most} files are open"));
}

/// A server knows the journals of its whole life otherwise.
#[test]
fn journals_that_are_gone_are_forgotten_and_others_are_not() {
    let scene = ByHand::new(SMALL);
    let kept = scene.journal("kept");
    kept.write("line", 20);
    let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
    for _ in 0..5_000 {
        scene.committer.register(&Arc::new(Stream::new(&session, &run, Path::new("/gone"), 0)));
    }
    let known = scene.committer.streams.lock().len();
    assert!(known <= 16, "{known} journals are known");
    scene.committer.secure_session(&session).unwrap();
    assert_eq!(kept.stream.synced(), kept.stream.written(), "it is there");
}
