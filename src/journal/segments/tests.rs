//! The order of a stream on simulated files: numbered runs, runs of earlier versions and other programs, clocks set back.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::clock::{ManualClock, Timestamp};
use crate::format::LineEncoder;
use crate::journal::{ReplayLimits, ReplayStatus, replay_session};
use crate::model::{Cursor, Event};
use crate::storage::sim::SimDisk;
use crate::storage::{Access, Disk, Durability, FileStorage, FilesOptions, Mode};

/// A data directory and a clock that shows this second.
struct Machine {
    disk: SimDisk,
    storage: Arc<dyn Storage>,
    now: f64,
}

fn sid() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn rid(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

impl Machine {
    fn new() -> Self {
        let disk = SimDisk::new();
        Machine { storage: open(&disk), disk, now: 100.0 }
    }

    /// Another process after this one was killed.
    fn reopen(self) -> Self {
        drop(self.storage);
        self.disk.kill();
        Machine { storage: open(&self.disk), ..self }
    }

    /// Begins a run at this second, with a number.
    fn begin(&mut self, run: &str, now: f64) {
        let order = Some(self.storage.next_order(0).unwrap());
        self.begin_with(run, now, order);
    }

    /// The same as an earlier version did it, without one.
    fn begin_unnumbered(&mut self, run: &str, now: f64) {
        self.begin_with(run, now, None);
    }

    fn begin_with(&mut self, run: &str, now: f64, order: Option<u64>) {
        self.now = now;
        let birth = Birth { begun_at: now, order, ..Birth::default() };
        self.storage.create_journal(&sid(), &rid(run), &birth).unwrap();
    }

    /// Appends `count` events.
    fn append(&self, run: &str, count: u64) {
        let mut opened = self.storage.open_journal(&sid(), &rid(run)).unwrap();
        let lines = lines_of(run, opened.tail.last_seq, count, self.now);
        opened.writer.append(&lines, Durability::Buffered).unwrap().wait().unwrap();
    }

    /// Notes that the run goes on after this event.
    fn go_on(&self, run: &str, after_seq: u64) {
        let order = self.storage.next_order(0).unwrap();
        self.storage.note_continuation(&sid(), &rid(run), Continuation { after_seq, order }).unwrap();
    }

    /// Puts a journal there as another program would.
    fn put_foreign(&self, run: &str, count: u64, now: f64) {
        let path = Path::new("/data/_run_journal/s").join(format!("{run}.jsonl"));
        let lines = String::from_utf8(lines_of(run, 0, count, now)).unwrap();
        let crc_bytes = r#","crc":"xxxxxxxx"}"#.len();
        let unchecked: String = lines.lines().map(|line| format!("{}}}\n", &line[..line.len() - crc_bytes])).collect();
        self.disk.open(&path, Access::CreateNew).unwrap().write_at(unchecked.as_bytes(), 0).unwrap();
    }

    /// The runs in the order in which they began.
    fn runs(&self) -> Vec<String> {
        runs_as_begun(&self.storage, &sid()).unwrap().iter().map(ToString::to_string).collect()
    }

    /// The segments as texts like `a:0-2` and `a:2-`.
    fn segments(&self) -> Vec<String> {
        segments(&self.storage, &sid()).unwrap().iter().map(text_of).collect()
    }

    /// The events of a replay after a cursor, as texts like `a:1`.
    fn replayed(&self, cursor: Option<&str>) -> Vec<String> {
        let cursor = cursor.map(Cursor::parse);
        let replay =
            replay_session(&self.storage, &sid(), cursor.as_ref(), ReplayLimits::default(), &|_| None).unwrap();
        assert_eq!(replay.status, ReplayStatus::Ok);
        replay.events.iter().map(|(run, event)| format!("{run}:{}", event.seq.unwrap())).collect()
    }
}

fn open(disk: &SimDisk) -> Arc<dyn Storage> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(100.0)));
    let options = FilesOptions { clock, ..FilesOptions::in_mode(Mode::Write) };
    Arc::new(FileStorage::open(Arc::new(disk.clone()), Path::new("/data"), options).unwrap())
}

fn lines_of(run: &str, after_seq: u64, count: u64, now: f64) -> Vec<u8> {
    let (mut encoder, mut lines) = (LineEncoder::new(&sid(), &rid(run)), Vec::new());
    for seq in after_seq + 1..=after_seq + count {
        encoder.encode(seq, Timestamp::from_seconds(now), &Event::token("x"), &mut lines);
    }
    lines
}

fn text_of(segment: &Segment) -> String {
    let until = segment.until_seq.map(|seq| seq.to_string()).unwrap_or_default();
    format!("{}:{}-{until}", segment.run, segment.after_seq)
}

#[test]
fn a_clock_that_was_set_back_does_not_reorder_runs() {
    let mut machine = Machine::new();
    for (run, now) in [("r1", 200.0), ("r2", 300.0), ("r3", 50.0), ("r0", 49.0)] {
        machine.begin(run, now);
        machine.append(run, 1);
        machine = machine.reopen();
    }
    assert_eq!(machine.runs(), ["r1", "r2", "r3", "r0"]);
    assert_eq!(machine.replayed(None), ["r1:1", "r2:1", "r3:1", "r0:1"]);
    assert_eq!(machine.replayed(Some("r2:1")), ["r3:1", "r0:1"], "a reader that resumes gets the later runs");
}

#[test]
fn runs_without_numbers_keep_their_order_in_time() {
    let mut machine = Machine::new();
    for (run, now) in [("c", 10.0), ("a", 30.0), ("b", 20.0)] {
        machine.begin_unnumbered(run, now);
        machine.append(run, 1);
    }
    machine.put_foreign("d", 1, 15.0);
    let machine = machine.reopen();
    assert_eq!(machine.runs(), ["c", "d", "b", "a"]);
    assert_eq!(machine.segments(), ["c:0-", "d:0-", "b:0-", "a:0-"]);
    assert_eq!(machine.replayed(None), ["c:1", "d:1", "b:1", "a:1"]);
}

/// What comes into it later comes after all that a reader of the stream has.
#[test]
fn a_run_of_another_program_without_an_event_comes_last() {
    let mut machine = Machine::new();
    machine.begin_unnumbered("b", 10.0);
    machine.append("b", 1);
    machine.put_foreign("a", 0, 0.0);
    machine.begin("c", 20.0);
    machine.append("c", 1);
    assert_eq!(machine.runs(), ["b", "c", "a"]);
    assert_eq!(machine.reopen().runs(), ["b", "c", "a"]);
}

#[test]
fn runs_with_numbers_come_among_those_without_by_time() {
    let mut machine = Machine::new();
    machine.begin_unnumbered("old", 100.0);
    machine.append("old", 1);
    machine.begin("n1", 200.0);
    machine.append("n1", 1);
    // The clock is set back: the second one comes after the first all the same.
    machine.begin("n2", 40.0);
    machine.append("n2", 1);
    machine.put_foreign("between", 1, 150.0);
    machine.put_foreign("later", 1, 250.0);
    machine.begin("n3", 300.0);
    machine.append("n3", 1);
    let expected = ["old", "between", "n1", "n2", "later", "n3"];
    assert_eq!(machine.runs(), expected);
    assert_eq!(machine.replayed(None), expected.map(|run| format!("{run}:1")));
    assert_eq!(machine.reopen().runs(), expected);
}

#[test]
fn a_run_that_goes_on_after_another_began_has_a_later_segment() {
    let mut machine = Machine::new();
    machine.begin("a", 100.0);
    machine.append("a", 2);
    machine.begin("b", 110.0);
    machine.append("b", 1);
    machine.go_on("a", 2);
    machine.append("a", 2);
    machine.begin("c", 120.0);
    machine.append("c", 1);
    machine.go_on("b", 1);
    machine.append("b", 1);
    let machine = machine.reopen();
    assert_eq!(machine.segments(), ["a:0-2", "b:0-1", "a:2-", "c:0-", "b:1-"]);
    assert_eq!(machine.runs(), ["a", "b", "c"]);
    let all = ["a:1", "a:2", "b:1", "a:3", "a:4", "c:1", "b:2"];
    assert_eq!(machine.replayed(None), all);
    for (at, cursor) in all.iter().enumerate() {
        assert_eq!(machine.replayed(Some(cursor)), all[at + 1..], "after {cursor}");
    }
    assert_eq!(machine.replayed(Some("b:0")), ["b:1", "a:3", "a:4", "c:1", "b:2"]);
}

/// A run that an earlier version began goes on under this one, while the clock shows less than when it began.
#[test]
fn a_run_without_a_number_that_goes_on_keeps_the_order_of_its_events() {
    let mut machine = Machine::new();
    machine.begin_unnumbered("old", 500.0);
    machine.append("old", 1);
    machine.begin("n1", 40.0);
    machine.append("n1", 1);
    machine.go_on("old", 1);
    machine.append("old", 1);
    assert_eq!(machine.segments(), ["n1:0-", "old:0-1", "old:1-"]);
    assert_eq!(machine.replayed(Some("old:1")), ["old:2"]);
    machine.begin("n2", 45.0);
    assert_eq!(machine.segments(), ["n1:0-", "old:0-1", "old:1-", "n2:0-"]);
}

#[test]
fn a_gap_between_two_segments_is_reported() {
    let mut machine = Machine::new();
    machine.begin("a", 100.0);
    machine.append("a", 1);
    machine.go_on("a", 2);
    let mut opened = machine.storage.open_journal(&sid(), &rid("a")).unwrap();
    opened.writer.append(&lines_of("a", 2, 1, 100.0), Durability::Buffered).unwrap().wait().unwrap();
    let replay = replay_session(&machine.storage, &sid(), None, ReplayLimits::default(), &|_| None).unwrap();
    assert_eq!(replay.status, ReplayStatus::Noncontiguous);
}

/// Whatever a record says, each event is in exactly one segment, and a run's segments are in the order of its events.
#[test]
fn continuations_that_contradict_each_other_lose_and_repeat_no_event() {
    /// Pairs of `after_seq` and `order`, and the segments that they make.
    type Case = (&'static [(u64, u64)], &'static [&'static str]);
    let of = |pairs: &[(u64, u64)]| pairs.iter().map(|&(after_seq, order)| Continuation { after_seq, order }).collect();
    let cases: [Case; 5] = [
        (&[(3, 5), (7, 9)], &["r:0-3", "r:3-7", "r:7-"]),
        (&[(3, 5), (2, 9)], &["r:0-3", "r:3-"]),
        (&[(3, 5), (7, 5)], &["r:0-3", "r:3-"]),
        (&[(3, 1), (7, 2)], &["r:0-"]),
        (&[(0, 3), (0, 4)], &["r:0-0", "r:0-0", "r:0-"]),
    ];
    for (continued, expected) in cases {
        let birth = Birth { order: Some(2), continued: of(continued), ..Birth::default() };
        let found: Vec<String> = in_stream_order(segments_of(rid("r"), 1.0, &birth)).iter().map(text_of).collect();
        assert_eq!(found, expected, "{continued:?}");
    }
}
