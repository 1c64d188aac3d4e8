//! A data directory that processes are killed on, and what is known to be in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lastword::format::DamageKind;
use lastword::{Event, JournalEvent, NewSession, Options, Outcome, ReadOptions, RunId, SessionId, Store, UserTurn};
use tempfile::TempDir;

use crate::child::Acks;
use crate::order::{Order, STREAMS};

pub(crate) fn session_id(stream: usize) -> SessionId {
    SessionId::parse(&format!("s{stream}")).expect("a good id")
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("r1").expect("a good id")
}

/// The events of each stream.
pub(crate) type Streams = Vec<Vec<JournalEvent>>;

/// A data directory that goes with the test.
pub(crate) struct Data {
    pub(crate) root: PathBuf,
    /// Every line that is known to be in a journal, for good.
    known: Vec<Vec<String>>,
    /// The round that sent each of them.
    rounds: Vec<Vec<u64>>,
    _home: TempDir,
}

impl Data {
    /// Eight sessions, the turn of each waiting for the events of its run.
    pub(crate) fn with_turns() -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
        let root = home.path().join("data");
        let store = Store::open(&root, Options::default()).expect("a new directory can be opened");
        for stream in 0..STREAMS {
            let session = NewSession::titled("Où?").with_id(session_id(stream));
            store.create(session).expect("a session can be created");
            let turn = UserTurn::text("Wohin? どこへ?").with_run(run_id());
            store.begin_run(&session_id(stream), turn).expect("a run can be begun");
        }
        Data { root, known: vec![Vec::new(); STREAMS], rounds: vec![Vec::new(); STREAMS], _home: home }
    }

    /// The same files at another place, and the same knowledge of them.
    pub(crate) fn copy(&self) -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
        let root = home.path().join("data");
        copy_folder(&self.root, &root);
        Data { root, known: self.known.clone(), rounds: self.rounds.clone(), _home: home }
    }

    pub(crate) fn commit_log(&self) -> PathBuf {
        self.root.join("_commit_log")
    }

    pub(crate) fn journal(&self, stream: usize) -> PathBuf {
        self.root.join("_run_journal").join(format!("s{stream}")).join("r1.jsonl")
    }

    pub(crate) fn reader(&self) -> Store {
        Store::open_read_only(&self.root, Options::default()).expect("the directory can be read")
    }

    pub(crate) fn writer(&self) -> Store {
        Store::open(&self.root, Options::default()).expect("the directory can be opened")
    }

    /// What a reader sees that comes before any writer, and a writer behind it: the same. Opening a second time changes
    /// nothing.
    pub(crate) fn look(&self) -> Streams {
        let before = all_events(&self.reader());
        let after = all_events(&self.writer());
        assert!(lines(&before) == lines(&after), "a reader before the replay sees what a writer sees behind it");
        let first = self.files();
        drop(self.writer());
        assert!(first == self.files(), "opening twice is opening once");
        after
    }

    /// Everything that was ever known is there as it was; behind it what this process sent, in order, whole, without
    /// gaps, and at least what it had acknowledged.
    pub(crate) fn judge(&mut self, order: &Order, acks: &Acks, found: &Streams) {
        for (stream, events) in found.iter().enumerate() {
            let acknowledged = acks.appended[stream].max(acks.durable[stream]);
            let last = events.len() as u64;
            assert!(last >= acknowledged, "stream {stream}: {acknowledged} was acknowledged, {last} is the last there");
            assert!(events.len() >= self.known[stream].len(), "stream {stream}: known events are gone");
            for (event, seq) in events.iter().zip(1..) {
                assert_eq!(event.seq, Some(seq), "stream {stream}: numbers repeat or lack");
                self.judge_one(order, stream, seq, event);
            }
        }
    }

    fn judge_one(&mut self, order: &Order, stream: usize, seq: u64, event: &JournalEvent) {
        match self.known[stream].get(seq as usize - 1) {
            Some(known) => assert!(*known == event.line, "stream {stream}: event {seq} is not what it was"),
            None => {
                assert_is_sent(event, &order.text(stream, seq), stream);
                self.known[stream].push(event.line.clone());
                self.rounds[stream].push(order.round);
            }
        }
    }

    pub(crate) fn known_events(&self) -> usize {
        self.known.iter().map(Vec::len).sum()
    }

    /// Ends every run in peace. The transcripts hold every event once.
    pub(crate) fn finish(&self, order: &Order) {
        let store = self.writer();
        for stream in 0..STREAMS {
            let run = store.resume_run(&session_id(stream), &run_id()).expect("the run goes on");
            let end = run.finish(Outcome::Completed).expect("the run can be ended");
            assert_eq!(end.last_seq, self.known[stream].len() as u64 + 1, "it goes on with the next number");
            let rounds = self.rounds[stream].iter().zip(1..);
            let answer: String = rounds.map(|(round, seq)| order.text_of_round(*round, stream, seq)).collect();
            let session = store.get_session(&session_id(stream)).expect("the session is there");
            let rows: Vec<_> = session.messages().filter(|row| row.role() == "assistant").collect();
            assert_eq!(rows.len(), usize::from(!answer.is_empty()), "stream {stream}");
            assert!(rows.iter().all(|row| row.content() == answer), "stream {stream}: not the whole answer");
        }
    }

    /// Every file with its bytes, but for the lock, which says who came last.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        visit(&self.root, &mut |path| {
            if !path.ends_with("_lock") {
                files.insert(path.to_owned(), fs::read(path).expect("a file can be read"));
            }
        });
        files
    }
}

/// Every event of every stream. A line that is not whole may stand at the end of a journal, and no other damage.
pub(crate) fn all_events(store: &Store) -> Streams {
    let read = |stream| {
        let found = store.read_events(&session_id(stream), &run_id(), ReadOptions::default());
        let found = found.expect("a journal can be read");
        assert!(found.damage.iter().all(|damage| damage.kind == DamageKind::TornTail), "{:?}", found.damage);
        found.events
    };
    (0..STREAMS).map(read).collect()
}

fn lines(streams: &Streams) -> Vec<Vec<&str>> {
    streams.iter().map(|events| events.iter().map(|event| event.line.as_str()).collect()).collect()
}

/// An event is, byte for byte, the token of this text.
#[track_caller]
pub(crate) fn assert_is_sent(event: &JournalEvent, text: &str, stream: usize) {
    let sent = Event::token(text);
    let is_sent = (event.name.as_str(), event.payload()) == (sent.name(), sent.payload());
    assert!(is_sent, "stream {stream}: event {:?} is not what was sent", event.seq);
}

pub(crate) fn visit(folder: &Path, see: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("a folder can be listed").path();
        match path.is_dir() {
            true => visit(&path, see),
            false => see(&path),
        }
    }
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy can be made");
    visit(from, &mut |path| {
        let copy = to.join(path.strip_prefix(from).expect("it was found there"));
        fs::create_dir_all(copy.parent().expect("a file lies in a folder")).expect("the copy can be made");
        fs::copy(path, copy).expect("a file can be copied");
    });
}
