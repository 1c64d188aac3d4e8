//! The committer when its surroundings fail: threads that do not start, commits that panic, locks that are lost.

mod acknowledged;
mod bounds;
mod by_hand;
mod lock_file;
mod schedules;

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use crate::sync::Mutex as TestMutex;

use super::*;
use crate::clock::Timestamp;
use crate::model::RunId;
use crate::storage::OsDisk;
use crate::storage::directories::Directories;
use crate::storage::disk::{Access, DiskFile, FileStat, SharedDisk};
use crate::storage::finding::OnFinding;
use crate::storage::layout::Layout;
use crate::storage::lock::WriterLock;

const LONG: Duration = Duration::from_secs(20);

struct Scene {
    committer: Arc<Committer>,
    findings: Arc<LiveFindings>,
    reported: Arc<TestMutex<Vec<Finding>>>,
    root: PathBuf,
    _folder: Option<tempfile::TempDir>,
    disk: SharedDisk,
}

impl Scene {
    fn new(threads: Threads) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::on(Arc::new(OsDisk), folder.path(), threads);
        Scene { _folder: Some(folder), ..scene }
    }

    fn on(disk: SharedDisk, root: &Path, threads: Threads) -> Self {
        let options = CommitOptions { segment_bytes: 4096, log_bytes: 4096 * 8, ..CommitOptions::default() };
        Scene::with_options(disk, root, threads, options)
    }

    fn with_options(disk: SharedDisk, root: &Path, threads: Threads, options: CommitOptions) -> Self {
        let reported: Arc<TestMutex<Vec<Finding>>> = Arc::default();
        let notes = reported.clone();
        let listener = OnFinding::new(move |finding| notes.lock().push(finding.clone()));
        let findings = Arc::new(LiveFindings::new(Some(listener)));
        let directories = Arc::new(Directories::new(disk.clone(), root));
        let found = FoundLog { next_number: 1, ..FoundLog::default() };
        let log = Log::new(disk.clone(), directories, Layout::new(root), "store", options, found);
        let parts = Parts {
            log,
            last_batch: 0,
            options,
            latch: Arc::default(),
            left_max: 8,
            findings: findings.clone(),
            meter: Arc::default(),
        };
        let committer = Committer::with_threads(parts, threads);
        Scene { committer, findings, reported, root: root.to_owned(), _folder: None, disk }
    }

    /// A journal with a file of its own.
    fn stream(&self, name: &str) -> Arc<Stream> {
        let path = self.root.join(name);
        let file: Arc<dyn DiskFile> = Arc::from(self.disk.open(&path, Access::CreateNew).unwrap());
        self.stream_on(&path, file)
    }

    fn stream_on(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<Stream> {
        let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
        let stream = Arc::new(Stream::new(&session, &run, path, 0));
        stream.hold(&file);
        self.committer.register(&stream);
        file.write_at(LINE, 0).unwrap_or_default();
        stream.note_written(LINE.len() as u64);
        stream
    }
}

const LINE: &[u8] = b"{\"seq\":1}\n";

fn failing_spawn(failures: usize) -> Threads {
    let left = std::sync::atomic::AtomicUsize::new(failures);
    let spawn = move |name: &str, work: Box<dyn FnOnce() + Send>| {
        let is_refused = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        match is_refused {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => crate::sync::thread::spawn(name, work),
        }
    };
    Threads::spawned_by(false, Arc::new(spawn))
}

#[test]
fn without_its_thread_each_append_is_committed_at_once_and_the_failure_is_reported() {
    let scene = Scene::new(failing_spawn(usize::MAX));
    let reported = scene.reported.lock().len();
    assert_eq!(reported, 1, "when the store is opened");
    assert_eq!(scene.findings.current()[0].code, NO_THREAD);
    let stream = scene.stream("a");
    scene.committer.note(&stream);
    assert_eq!(stream.covered(), LINE.len() as u64, "durable, although no appender waits for it");
    assert_eq!(scene.reported.lock().len(), 1, "a failure a moment ago is not tried again");
    let other = scene.stream("b");
    let (tell, told) = channel();
    let ticket = scene.committer.submit(&other, 0, LINE);
    ticket.on_durable(move |outcome| tell.send(outcome.is_ok()).unwrap());
    assert!(told.recv_timeout(LONG).unwrap(), "callbacks are called without it");
    scene.committer.close();
}

#[test]
fn a_thread_that_could_not_be_started_is_tried_again_and_then_the_finding_is_over() {
    let scene = Scene::new(failing_spawn(1));
    assert_eq!(scene.findings.current().len(), 1);
    let stream = scene.stream("a");
    let watch = Stopwatch::start();
    while !scene.findings.current().is_empty() {
        scene.committer.note(&stream);
        assert!(watch.elapsed() < LONG, "it is not tried again");
        thread::yield_now();
    }
    assert!(watch.elapsed() > Duration::from_millis(500), "not at every append");
    scene.committer.close();
}

/// Without appends nothing would start it. `/readyz` asks for the findings, and so it does.
#[test]
fn an_idle_store_that_is_asked_for_its_findings_starts_its_thread() {
    let scene = Scene::new(failing_spawn(1));
    let watch = Stopwatch::start();
    while !scene.findings.current().is_empty() {
        scene.committer.retry_thread();
        assert!(watch.elapsed() < LONG, "it is not tried again");
        thread::yield_now();
    }
    scene.committer.close();
}

/// A file whose bytes cannot be read back without a panic.
#[derive(Debug)]
struct Panicking;

impl DiskFile for Panicking {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        panic!("a bug in the disk")
    }
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn set_modified(&self, _: i128) -> io::Result<()> {
        Ok(())
    }
    fn stat(&self) -> io::Result<FileStat> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn a_panic_in_a_commit_stops_the_store_and_no_waiter_hangs() {
    let scene = Scene::new(Threads::new(false));
    let bad = scene.stream_on(Path::new("/bad"), Arc::new(Panicking));
    let good: Vec<_> = (0..4).map(|number| scene.stream(&number.to_string())).collect();
    let (tell, told) = channel();
    thread::scope(|scope| {
        for stream in &good {
            let (committer, tell) = (&scene.committer, tell.clone());
            let bad = bad.clone();
            scope.spawn(move || {
                committer.note(&bad);
                let outcome = committer.submit(stream, 0, LINE).wait();
                tell.send(outcome.map(drop).map_err(|error| error.to_string())).unwrap();
            });
        }
        let outcomes: Vec<_> =
            (0..4).map(|_| told.recv_timeout(LONG).expect("a waiter hangs after the panic")).collect();
        assert!(outcomes.iter().any(|outcome| outcome.as_ref().is_err_and(|why| why.contains("panicked"))));
    });
    let why = scene.committer.latch().check().unwrap_err();
    assert!(matches!(&why, StorageError::Stopped { source } if matches!(**source, StorageError::Panicked { .. })));
    let refused = scene.committer.submit(&good[0], 0, LINE).wait();
    assert!(refused.is_err());
    scene.committer.close();
}

#[test]
fn an_idle_store_notices_within_a_second_that_its_lock_file_is_gone() {
    let scene = Scene::new(Threads::new(false));
    let layout = Layout::new(&scene.root);
    let now = Timestamp::from_seconds(1.0);
    let lock = Arc::new(WriterLock::take(&scene.disk, &layout, now, Default::default()).unwrap());
    scene.committer.latch().guard(&lock);
    std::fs::remove_file(layout.lock()).unwrap();
    let watch = Stopwatch::start();
    while !scene.committer.latch().is_stopped() {
        assert!(watch.elapsed() < LONG, "it is never noticed");
        thread::yield_now();
    }
    // Less than a second on a machine that is not busy.
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    let why = scene.committer.latch().check().unwrap_err();
    assert!(matches!(&why, StorageError::Stopped { source } if matches!(**source, StorageError::LockLost { .. })));
    scene.committer.close();
}
