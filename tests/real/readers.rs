//! Readers beside writers that come and go: one that opens the directory again and again, one that follows every run,
//! and the `lastword` command, which tails and follows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lastword::{After, Follow, JournalEvent, Options, Store};
use serde_json::Value;

use crate::data::{Data, all_events, assert_is_sent, run_id, session_id};
use crate::order::{Order, STREAMS, round_of};
use crate::process::Process;

/// What the readers share.
struct Watch {
    root: PathBuf,
    /// For its texts.
    order: Order,
    /// The last event of each stream that any of them has seen.
    seen: [AtomicU64; STREAMS],
    is_over: AtomicBool,
}

/// Readers at work.
pub(crate) struct Readers {
    watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
    follower: Process,
}

impl Readers {
    pub(crate) fn start(data: &Data, order: &Order) -> Self {
        let seen = std::array::from_fn(|_| AtomicU64::new(0));
        let root = data.root.clone();
        let watch = Arc::new(Watch { root, order: order.clone(), seen, is_over: AtomicBool::new(false) });
        let readers: [fn(&Watch); 3] = [reopen_and_read, follow_all, tail_again_and_again];
        let start = |read: fn(&Watch)| {
            let watch = watch.clone();
            thread::spawn(move || read(&watch))
        };
        let threads = readers.map(start).into_iter().collect();
        Readers { follower: Process::start(tail(&data.root, 0, true)), threads, watch }
    }

    /// The last event of each stream that was seen so far.
    pub(crate) fn seen(&self) -> [u64; STREAMS] {
        std::array::from_fn(|stream| self.watch.seen[stream].load(Ordering::SeqCst))
    }

    /// Lets the readers end, now that all runs have; they have seen everything.
    pub(crate) fn end_with(self, events: usize) {
        self.watch.is_over.store(true, Ordering::SeqCst);
        let seen = self.watch.clone();
        self.threads.into_iter().for_each(|reader| reader.join().expect("a reader saw what it should"));
        // Each run has its end beside its tokens.
        let total: u64 = seen.seen.iter().map(|last| last.load(Ordering::SeqCst)).sum();
        assert_eq!(total as usize, events + STREAMS, "the readers saw every event");
        let ended = self.follower.end();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert_eq!(seen.check_lines(0, &ended.lines), seen.seen[0].load(Ordering::SeqCst), "the follower saw them too");
    }
}

impl Watch {
    /// Checks that this is the event of this number, and notes that it was seen.
    fn see(&self, stream: usize, seq: u64, event: &JournalEvent) {
        assert_eq!(event.seq, Some(seq), "stream {stream}: a reader sees numbers repeat or lack");
        if event.name == "token" {
            let payload: Value = serde_json::from_str(event.payload()).expect("a payload is JSON");
            let round = round_of(payload["text"].as_str().expect("a token has a text"));
            assert_is_sent(event, &self.order.text_of_round(round, stream, seq), stream);
        }
        self.seen[stream].fetch_max(seq, Ordering::SeqCst);
    }

    /// Checks lines of `tail` from the first event on, and gives the number of the last.
    fn check_lines(&self, stream: usize, lines: &[String]) -> u64 {
        for (line, seq) in lines.iter().zip(1..) {
            let event: Value = serde_json::from_str(line).expect("tail prints JSON lines");
            assert_eq!(event["seq"].as_u64(), Some(seq), "stream {stream}: tail repeats or leaves out");
            if event["event"] == "token" {
                let text = event["payload"]["text"].as_str().expect("a token has a text");
                let sent = self.order.text_of_round(round_of(text), stream, seq);
                assert!(text == sent, "stream {stream}: event {seq} is not what was sent");
            }
        }
        self.seen[stream].fetch_max(lines.len() as u64, Ordering::SeqCst);
        lines.len() as u64
    }

    /// Looks again and again, and once more when all is over.
    fn until_over(&self, mut look: impl FnMut()) {
        loop {
            let is_over = self.is_over.load(Ordering::SeqCst);
            look();
            if is_over {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn reader(&self) -> Store {
        Store::open_read_only(&self.root, Options::default()).expect("the directory can be read")
    }
}

/// Opens the directory anew each time. No stream is ever shorter than it was.
fn reopen_and_read(watch: &Watch) {
    let mut lengths = [0; STREAMS];
    watch.until_over(|| {
        for (stream, events) in all_events(&watch.reader()).iter().enumerate() {
            assert!(
                events.len() >= lengths[stream],
                "stream {stream}: {} events, then {}",
                lengths[stream],
                events.len()
            );
            // What was checked before is only counted.
            for (event, seq) in events.iter().zip(1..).skip(lengths[stream]) {
                watch.see(stream, seq, event);
            }
            lengths[stream] = events.len();
        }
    });
}

/// Opens the directory once, and follows every run through the deaths of its writers to its end.
fn follow_all(watch: &Watch) {
    let store = watch.reader();
    let begin = |stream| store.follow(&session_id(stream), &run_id(), After::Start).expect("a run can be followed");
    let mut follows: Vec<Follow> = (0..STREAMS).map(begin).collect();
    let mut lasts = [0; STREAMS];
    watch.until_over(|| {
        for (stream, follow) in follows.iter_mut().enumerate() {
            while let Some(event) = follow.poll().expect("a run can be followed") {
                lasts[stream] += 1;
                watch.see(stream, lasts[stream], &event);
            }
        }
    });
    assert!(lasts.iter().zip(&watch.seen).all(|(last, seen)| *last == seen.load(Ordering::SeqCst)));
}

/// Asks the command for one run after another.
fn tail_again_and_again(watch: &Watch) {
    let mut lengths = [0; STREAMS];
    let mut turns = (0..STREAMS).cycle();
    watch.until_over(|| {
        let stream = turns.next().expect("it goes round");
        let ended = Process::start(tail(&watch.root, stream, false)).end();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        let last = watch.check_lines(stream, &ended.lines);
        assert!(last >= lengths[stream], "stream {stream}: {} events, then {last}", lengths[stream]);
        lengths[stream] = last;
    });
}

fn tail(root: &Path, stream: usize, follows: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("--data").arg(root).arg("tail").arg(session_id(stream).as_str()).arg(run_id().as_str());
    if follows {
        command.arg("--follow");
    }
    command
}
