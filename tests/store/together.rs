//! One write for all who wait for the same pen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lastword::clock::{Clock, SystemClock};
use lastword::journal::{OpenFileBudget, RunJournal, read_events};
use lastword::storage::{AppendFailure, Birth, FileStorage, FilesOptions, JournalWriter, Mode, OsDisk, Storage};
use lastword::{Durability, Event, ReadOptions, RunId, SessionId, StorageError, Ticket};

/// A journal's writer that counts its writes, and holds the first one until it is told to go on.
#[derive(Debug)]
struct HeldWriter {
    journal: Box<dyn JournalWriter>,
    has_begun: mpsc::Sender<()>,
    go_on: Option<mpsc::Receiver<()>>,
    writes: Arc<AtomicUsize>,
}

impl JournalWriter for HeldWriter {
    fn append(&mut self, lines: &[u8], durability: Durability) -> Result<Ticket, AppendFailure> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        if let Some(go_on) = self.go_on.take() {
            self.has_begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        self.journal.append(lines, durability)
    }

    fn rest(&mut self) -> Result<(), StorageError> {
        self.journal.rest()
    }

    fn fence(&mut self, why: &'static str) {
        self.journal.fence(why);
    }
}

/// Without that there would be nine writes. A thread that comes late writes for itself, but hardly all eight are late.
#[test]
fn events_that_wait_for_the_same_write_are_written_together() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = FilesOptions { allow_network_fs: true, clock: clock.clone(), ..FilesOptions::in_mode(Mode::Write) };
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(Arc::new(OsDisk), folder.path(), options).unwrap());
    let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
    let mut opened = storage.create_journal(&session, &run, &Birth::default()).unwrap();
    let ((has_begun, begun), (release, go_on)) = (mpsc::channel(), mpsc::channel());
    let writes = Arc::new(AtomicUsize::new(0));
    opened.writer =
        Box::new(HeldWriter { journal: opened.writer, has_begun, go_on: Some(go_on), writes: writes.clone() });
    let journal = RunJournal::new(&session, &run, opened, clock, Arc::new(OpenFileBudget::new(8)), &Arc::default());
    let append = || journal.append(&[Event::token("x")], Durability::Buffered).unwrap().last_seq;
    let mut seqs: Vec<u64> = std::thread::scope(|scope| {
        let mut threads = vec![scope.spawn(append)];
        begun.recv().unwrap();
        threads.extend((0..8).map(|_| scope.spawn(append)));
        // Nothing tells when they wait; a quarter of a second is plenty for eight threads to begin.
        let _ = begun.recv_timeout(Duration::from_millis(250));
        release.send(()).unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=9).collect::<Vec<_>>());
    assert!(writes.load(Ordering::SeqCst) < 9, "{} writes", writes.load(Ordering::SeqCst));
    assert_eq!(read_events(&storage, &session, &run, ReadOptions::default(), None).unwrap().events.len(), 9);
}
