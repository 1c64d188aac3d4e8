//! Two threads at the same journal, and tickets that a close or a failure must answer, under every schedule.

use super::*;
use crate::storage::disk::Disk;
use crate::storage::sim::schedule::{Explorer, sleep, spawn};
use crate::storage::sim::{Crash, Fault, SimDisk};

const JOURNAL: &str = "/journal";

fn explorer() -> Explorer {
    Explorer { singles_max: 200, pairs_max: 200, seeds: 50, ..Explorer::default() }
}

/// Bytes of the journal that survive a power cut.
fn durable_bytes(disk: &SimDisk) -> u64 {
    let disk = disk.copy();
    disk.power_cut(Crash::LoseAll);
    disk.files().get(Path::new(JOURNAL)).map_or(0, |bytes| bytes.len() as u64)
}

/// A journal whose name is durable and whose first line is not.
fn journal(disk: &SimDisk) -> (Arc<Stream>, Arc<dyn DiskFile>) {
    let file: Arc<dyn DiskFile> = Arc::from(disk.open(Path::new(JOURNAL), Access::CreateNew).unwrap());
    disk.sync_dir(Path::new("/")).unwrap();
    let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
    let stream = Arc::new(Stream::new(&session, &run, Path::new(JOURNAL), 0));
    stream.hold(&file);
    file.write_at(LINE, 0).unwrap();
    stream.note_written(LINE.len() as u64);
    (stream, file)
}

/// The log would be used again for lines that are durable nowhere.
#[test]
fn lines_that_are_written_while_a_journal_is_synced_do_not_count_as_synced() {
    let work = || {
        let disk = SimDisk::new();
        let (stream, file) = journal(&disk);
        let syncing = stream.clone();
        let syncer = spawn("syncer", move || syncing.secure().unwrap());
        file.write_at(LINE, LINE.len() as u64).unwrap();
        stream.note_written(2 * LINE.len() as u64);
        syncer.join();
        (disk, stream.synced())
    };
    explorer().explore(work, |(disk, synced)| assert!(synced <= durable_bytes(&disk), "{synced}"));
}

/// A kernel tells of a failed fsync once. The second sync succeeds, and proves nothing.
#[test]
fn of_two_syncs_at_once_neither_forgets_that_the_first_one_failed() {
    let work = || {
        let disk = SimDisk::new();
        let (stream, _file) = journal(&disk);
        disk.fail(disk.operations() + 1, Fault::Eio);
        let other = stream.clone();
        let syncer = spawn("syncer", move || other.secure().is_ok());
        let outcomes = [stream.secure().is_ok(), syncer.join()];
        (disk, outcomes, stream.synced())
    };
    explorer().explore(work, |(disk, outcomes, synced)| {
        assert_eq!((outcomes, synced, durable_bytes(&disk)), ([false, false], 0, 0));
    });
}

/// A committer with its threads, and a ticket that is not settled.
fn submitted(disk: &SimDisk, options: CommitOptions) -> (Scene, Ticket) {
    let scene = Scene::with_options(Arc::new(disk.clone()), Path::new("/data"), Threads::new(false), options);
    let (stream, _file) = journal(disk);
    scene.committer.register(&stream);
    let ticket = scene.committer.submit(&stream, 0, LINE);
    (scene, ticket)
}

/// Without the background no thread commits unasked: the close finds the ticket.
const ASKED: CommitOptions = CommitOptions { background: None, segment_bytes: 4096, log_bytes: 8192 };

#[test]
fn a_close_that_fails_answers_pending_tickets_with_the_failure() {
    for is_waited_for in [false, true] {
        let work = move || {
            let disk = SimDisk::new();
            disk.create_dir(Path::new("/data")).unwrap();
            let (scene, ticket) = submitted(&disk, ASKED);
            let asked = ticket.clone();
            let waiter = is_waited_for.then(|| spawn("waiter", move || asked.wait().is_ok()));
            disk.break_syncs(disk.operations() + 1);
            scene.committer.close();
            let told = waiter.map(|waiter| waiter.join());
            (disk, told.unwrap_or_else(|| ticket.wait().is_ok()))
        };
        explorer().explore(work, |(disk, is_told_durable)| {
            assert!(!is_told_durable || durable_bytes(&disk) > 0 || log_holds_line(&disk), "nothing of it is durable");
        });
    }
}

#[test]
fn a_close_makes_durable_what_is_pending_and_says_so() {
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let (scene, ticket) = submitted(&disk, ASKED);
        scene.committer.close();
        let late = scene.committer.submit(&journal_again(&disk), 0, LINE).wait();
        (disk, ticket.wait().is_ok(), late.is_ok())
    };
    explorer().explore(work, |(disk, is_durable, is_late_durable)| {
        assert!(is_durable && durable_bytes(&disk) == LINE.len() as u64);
        assert!(!is_late_durable, "a store that is closed takes nothing");
    });
}

fn journal_again(disk: &SimDisk) -> Arc<Stream> {
    let file: Arc<dyn DiskFile> = Arc::from(disk.open(Path::new(JOURNAL), Access::Write).unwrap());
    let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
    let stream = Arc::new(Stream::new(&session, &run, Path::new(JOURNAL), 0));
    stream.hold(&file);
    stream
}

/// Whether a segment of the log has the line after a power cut.
fn log_holds_line(disk: &SimDisk) -> bool {
    let disk = disk.copy();
    disk.power_cut(Crash::LoseAll);
    let has_line = |bytes: &Vec<u8>| bytes.windows(LINE.len()).any(|window| window == LINE);
    disk.files().iter().any(|(path, bytes)| path.starts_with("/data/_commit_log") && has_line(bytes))
}

/// A ticket that is handed in while the store closes is settled all the same: its waiter must not hang.
#[test]
fn an_append_that_comes_while_the_store_closes_is_answered() {
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let (scene, first) = submitted(&disk, CommitOptions { background: Some(Duration::from_millis(50)), ..ASKED });
        let (committer, again) = (scene.committer.clone(), journal_again(&disk));
        let appender = spawn("appender", move || committer.submit(&again, 0, LINE).wait().is_ok());
        let callback = Arc::new(TestMutex::new(None));
        let told = callback.clone();
        first.on_durable(move |outcome| *told.lock() = Some(outcome.is_ok()));
        scene.committer.close();
        appender.join();
        let told = *callback.lock();
        (disk, told)
    };
    explorer().explore(work, |(disk, told)| {
        assert_eq!(told, Some(true));
        assert_eq!(durable_bytes(&disk), LINE.len() as u64);
    });
}

/// No appender waits for this ticket, so that no step but the close settles it.
#[test]
fn a_ticket_that_comes_while_the_store_closes_is_settled_although_no_appender_waits_for_it() {
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let (scene, _first) = submitted(&disk, ASKED);
        let (committer, again) = (scene.committer.clone(), journal_again(&disk));
        let told: Arc<TestMutex<Option<bool>>> = Arc::default();
        let note = told.clone();
        let appender = spawn("appender", move || {
            let ticket = committer.submit(&again, 0, LINE);
            ticket.when_settled(move |is_durable| *note.lock() = Some(is_durable));
        });
        scene.committer.close();
        appender.join();
        told
    };
    explorer().explore(work, |told| assert!(told.lock().is_some(), "it is pending for ever"));
}

/// Names of the log's files that were made by the thread that tends it are durable before a record in them is acknowledged.
#[test]
fn a_segment_that_the_second_thread_made_is_there_after_a_power_cut() {
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let options = CommitOptions { background: None, segment_bytes: 1024, log_bytes: 16 * 1024 };
        let scene = Scene::with_options(Arc::new(disk.clone()), Path::new("/data"), Threads::new(false), options);
        let (stream, file) = journal(&disk);
        scene.committer.register(&stream);
        let line = [&[b'x'; 299][..], b"\n"].concat();
        let mut lost = None;
        for number in 0..12_u64 {
            let offset = number * 300;
            file.write_at(&line, offset).unwrap();
            stream.note_written(offset + 300);
            scene.committer.submit(&stream, offset, &line).wait().unwrap();
            lost = lost.or_else(|| (logged_lines(&disk) < number + 1).then_some(number));
        }
        scene.committer.close();
        lost
    };
    explorer().explore(work, |lost| assert_eq!(lost, None, "an acknowledged line is not in the log after a power cut"));
}

/// How many lines of 300 bytes the log has after a power cut.
fn logged_lines(disk: &SimDisk) -> u64 {
    let disk = disk.copy();
    disk.power_cut(Crash::LoseAll);
    let files = disk.files().into_iter().filter(|(path, _)| path.starts_with("/data/_commit_log"));
    files.map(|(_, bytes)| bytes.iter().filter(|byte| **byte == b'x').count() as u64).sum::<u64>() / 299
}

/// A line that is written while the commit thread reads back the ones before it is part of the next commit, which comes by
/// itself.
#[test]
fn a_line_that_is_written_during_a_commit_is_durable_within_the_interval() {
    const INTERVAL: Duration = Duration::from_millis(50);
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let options = CommitOptions { background: Some(INTERVAL), segment_bytes: 4096, log_bytes: 8192 };
        let scene = Scene::with_options(Arc::new(disk.clone()), Path::new("/data"), Threads::new(false), options);
        let (stream, file) = journal(&disk);
        scene.committer.register(&stream);
        scene.committer.note(&stream);
        // The thread comes after half of the interval, and leaves the other half to the sync.
        sleep(INTERVAL / 2);
        file.write_at(LINE, LINE.len() as u64).unwrap();
        stream.note_written(2 * LINE.len() as u64);
        scene.committer.note(&stream);
        sleep(INTERVAL);
        let covered = stream.covered();
        scene.committer.close();
        covered
    };
    // Time passes only when all threads wait.
    let explorer = Explorer { early_timeouts: false, ..explorer() };
    explorer.explore(work, |covered| assert_eq!(covered, 2 * LINE.len() as u64));
}

/// Durable lines would be safe without it, but each would cost a sync of its own journal for as long as the store lives.
#[test]
fn a_log_that_was_full_takes_records_again() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/data")).unwrap();
    let options = CommitOptions { background: None, segment_bytes: 1024, log_bytes: 2048 };
    let scene = Scene::with_options(Arc::new(disk.clone()), Path::new("/data"), Threads::new(true), options);
    let (stream, file) = journal(&disk);
    scene.committer.register(&stream);
    for number in 0..40_u64 {
        let line = format!("{:0>299}\n", number + 1);
        file.write_at(line.as_bytes(), number * 300).unwrap();
        stream.note_written((number + 1) * 300);
        scene.committer.submit(&stream, number * 300, line.as_bytes()).wait().unwrap();
        let is_logged = |(path, bytes): (&PathBuf, &Vec<u8>)| {
            path.starts_with("/data/_commit_log") && bytes.windows(300).any(|window| window == line.as_bytes())
        };
        assert!(disk.files().iter().any(is_logged), "line {number} is not in the log");
    }
}

/// A commit that finds nothing left to do must not say that all is durable: the step that took it may just have failed.
#[test]
fn a_commit_beside_a_step_that_fails_fails_too() {
    const INTERVAL: Duration = Duration::from_millis(50);
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let options = CommitOptions { background: Some(INTERVAL), ..ASKED };
        let scene = Scene::with_options(Arc::new(disk.clone()), Path::new("/data"), Threads::new(false), options);
        let (stream, _file) = journal(&disk);
        scene.committer.register(&stream);
        disk.break_syncs(disk.operations() + 1);
        scene.committer.note(&stream);
        sleep(INTERVAL / 2);
        let committed = scene.committer.commit();
        scene.committer.close();
        committed.is_ok()
    };
    explorer().explore(work, |is_durable| assert!(!is_durable, "no fsync has succeeded"));
}

/// A callback waits for an appender that has left its step to the thread that calls back.
#[test]
fn a_callback_may_wait_for_an_appender() {
    let work = || {
        let disk = SimDisk::new();
        disk.create_dir(Path::new("/data")).unwrap();
        let (scene, first) = submitted(&disk, ASKED);
        let (committer, again) = (scene.committer.clone(), journal_again(&disk));
        let done = Arc::new((TestMutex::new(None), Condvar::new()));
        let (told, awaited) = (done.clone(), done.clone());
        let appender = spawn("appender", move || {
            let outcome = committer.submit(&again, 0, LINE).wait();
            *told.0.lock() = Some(outcome.is_ok());
            told.1.notify_all();
        });
        first.clone().on_durable(move |_| {
            let mut outcome = awaited.0.lock();
            while outcome.is_none() {
                awaited.1.wait(&mut outcome);
            }
        });
        first.wait().unwrap();
        appender.join();
        scene.committer.close();
        done
    };
    explorer().explore(work, |done| assert_eq!(*done.0.lock(), Some(true)));
}

/// No appender waits, and the interval is long or none: the callback itself is what is waited for.
#[test]
fn a_callback_is_called_without_the_background_interval() {
    const SOON: Duration = Duration::from_millis(10);
    for background in [None, Some(Duration::from_secs(60))] {
        let work = move || {
            let disk = SimDisk::new();
            disk.create_dir(Path::new("/data")).unwrap();
            let (scene, ticket) = submitted(&disk, CommitOptions { background, ..ASKED });
            let told: Arc<TestMutex<Option<bool>>> = Arc::default();
            let note = told.clone();
            ticket.on_durable(move |outcome| *note.lock() = Some(outcome.is_ok()));
            sleep(SOON);
            let soon = *told.lock();
            scene.committer.close();
            soon
        };
        let explorer = Explorer { early_timeouts: false, ..explorer() };
        explorer.explore(work, |soon| assert_eq!(soon, Some(true)));
    }
}
