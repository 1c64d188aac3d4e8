//! Appends to a journal whose writer does what the test says: what is shown when, what a failure leaves, who is told.

use std::sync::OnceLock;
use std::time::Duration;

use super::*;
use crate::clock::ManualClock;
use crate::storage::Tail;
use crate::sync::atomic::AtomicBool;
use crate::sync::schedule::{Explorer, sleep, spawn};

/// What the writer does, and what it has seen.
#[derive(Debug, Default)]
struct Script {
    journal: OnceLock<Weak<RunJournal>>,
    written: Mutex<Vec<u8>>,
    /// What readers were shown before and after each write: the visible extent, and where a hidden end begins.
    seen: Mutex<Vec<(u64, Option<u64>)>>,
    next_append_fails: Mutex<Option<Failing>>,
    rest_fails: AtomicBool,
}

/// How an append fails.
#[derive(Debug, Clone, Copy, Default)]
struct Failing {
    kept_lines: usize,
    lacks_line_feed: bool,
    is_over: bool,
}

#[derive(Debug)]
struct ScriptedWriter(Arc<Script>);

impl Script {
    fn look(&self) {
        let journal = self.journal.get().and_then(Weak::upgrade).unwrap();
        self.seen.lock().push((journal.shown_extent(), journal.hidden_end()));
    }

    fn fail_next(&self, how: Failing) {
        *self.next_append_fails.lock() = Some(how);
    }

    fn written_bytes(&self) -> u64 {
        self.written.lock().len() as u64
    }

    /// What was seen during the last write.
    fn seen_last(&self) -> [(u64, Option<u64>); 2] {
        *self.seen.lock().last_chunk().unwrap()
    }

    /// The numbers of the lines that were written.
    fn seqs(&self) -> Vec<u64> {
        let text = String::from_utf8(self.written.lock().clone()).unwrap();
        let seq = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
        text.lines().map(seq).collect()
    }
}

fn failure() -> StorageError {
    StorageError::Fenced { run: RunId::parse("r").unwrap(), why: "the test says so" }
}

impl JournalWriter for ScriptedWriter {
    fn append(&mut self, lines: &[u8], _: Durability) -> Result<Ticket, AppendFailure> {
        self.0.look();
        let failing = self.0.next_append_fails.lock().take();
        let kept = match failing {
            Some(Failing { kept_lines, lacks_line_feed, .. }) => {
                let kept: usize = lines.split_inclusive(|byte| *byte == b'\n').take(kept_lines).map(<[u8]>::len).sum();
                kept - usize::from(lacks_line_feed)
            }
            None => lines.len(),
        };
        self.0.written.lock().extend_from_slice(&lines[..kept]);
        self.0.look();
        match failing {
            Some(Failing { is_over, .. }) => {
                Err(AppendFailure { kept_bytes: kept, is_over, error: Box::new(failure()) })
            }
            None => Ok(Ticket::buffered()),
        }
    }

    fn rest(&mut self) -> Result<(), StorageError> {
        if self.0.rest_fails.load(Ordering::SeqCst) { Err(failure()) } else { Ok(()) }
    }

    fn fence(&mut self, _: &'static str) {}
}

fn open() -> (Arc<RunJournal>, Arc<Script>) {
    let script = Arc::new(Script::default());
    let opened = OpenedJournal { writer: Box::new(ScriptedWriter(script.clone())), tail: Tail::default() };
    let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
    let (files, meter) = (Arc::new(OpenFileBudget::new(4)), Arc::new(Meter::default()));
    let journal = RunJournal::new(&session, &run, opened, Arc::new(ManualClock::at(now())), files, &meter);
    script.journal.set(Arc::downgrade(&journal)).unwrap();
    (journal, script)
}

fn now() -> Timestamp {
    Timestamp::from_seconds(100.0)
}

fn stream_end() -> Event {
    Event::new("stream_end", "{}").unwrap()
}

fn append(journal: &RunJournal, event: Event) -> Result<Appended, AppendError> {
    journal.append(&[event], Durability::Buffered)
}

/// One write for all of these, as if each had come from a thread that waited for the pen.
fn append_together(journal: &RunJournal, requests: &[(&[Event], Durability)]) -> Vec<Result<Appended, AppendError>> {
    let request = |(events, durability): &(&[Event], Durability)| {
        Arc::new(Request { events: events.to_vec(), durability: *durability, answer: Mutex::new(None) })
    };
    let requests: Vec<Arc<Request>> = requests.iter().map(request).collect();
    journal.waiting_count.fetch_add(requests.len(), Ordering::AcqRel);
    journal.waiting.lock().extend(requests.iter().cloned());
    journal.append_waiting(&mut journal.pen.lock(), now());
    requests.iter().map(|request| request.answer.lock().take().unwrap()).collect()
}

/// Counts how often a follower is woken, and how often the end is reported.
struct Watched {
    woken: Arc<AtomicUsize>,
    told: Arc<AtomicUsize>,
    _follower: Attached,
}

fn counting(counter: &Arc<AtomicUsize>) -> impl Fn() + Send + Sync + 'static {
    let counter = counter.clone();
    move || {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

impl Watched {
    fn new(journal: &RunJournal) -> Self {
        let (woken, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let follower = journal.attach(AppendWaker(Arc::new(counting(&woken))));
        journal.on_end(counting(&told));
        Watched { woken, told, _follower: follower }
    }

    /// Wake-ups, and reports of the end.
    fn counts(&self) -> (usize, usize) {
        (self.woken.load(Ordering::SeqCst), self.told.load(Ordering::SeqCst))
    }
}

#[test]
fn events_are_shown_when_they_are_written_and_not_before() {
    let (journal, script) = open();
    let watched = Watched::new(&journal);
    append(&journal, Event::token("one")).unwrap();
    assert_eq!(script.seen_last(), [(0, None); 2]);
    let one = script.written_bytes();
    assert_eq!((journal.shown_extent(), watched.counts()), (one, (1, 0)));
    append(&journal, Event::token("two")).unwrap();
    assert_eq!(script.seen_last(), [(one, None); 2]);
    assert_eq!((journal.shown_extent(), watched.counts()), (script.written_bytes(), (2, 0)));
}

#[test]
fn the_end_of_a_run_is_hidden_before_a_byte_of_it_can_be_read() {
    for before_the_end in [&[][..], &[Event::token("last words")]] {
        let (journal, script) = open();
        append(&journal, Event::token("one")).unwrap();
        let place = script.written_bytes();
        journal.append(&[before_the_end, &[Event::done()]].concat(), Durability::Durable).unwrap();
        assert_eq!(script.seen_last(), [(place, Some(place)); 2]);
        append(&journal, stream_end()).unwrap();
        assert_eq!(script.seen_last(), [(place, Some(place)); 2], "it begins where its first event does");
        assert_eq!((journal.shown_extent(), journal.hidden_end()), (place, Some(place)), "until it is saved");
        journal.show_end();
        assert_eq!((journal.shown_extent(), journal.hidden_end()), (script.written_bytes(), None));
    }
}

#[test]
fn a_listener_that_comes_after_the_end_was_written_is_told_at_once() {
    let (journal, _) = open();
    append(&journal, Event::done()).unwrap();
    assert_eq!(Watched::new(&journal).counts().1, 1);
}

#[test]
fn a_listener_that_waits_is_told_once_when_the_end_is_shown() {
    for end in [vec![Event::done()], vec![Event::done(), stream_end()], vec![Event::cancel()]] {
        let (journal, _) = open();
        let watched = Watched::new(&journal);
        journal.show_end();
        journal.append(&end, Durability::Durable).unwrap();
        assert_eq!(watched.counts().1, 0, "its answer is not saved yet");
        journal.show_end();
        journal.show_end();
        assert_eq!(watched.counts().1, 1, "{end:?}");
    }
}

#[test]
fn a_reader_that_has_not_read_what_is_written_does_not_leave_although_it_is_not_shown_yet() {
    let (journal, script) = open();
    append(&journal, Event::token("one")).unwrap();
    let shown = script.written_bytes();
    append(&journal, Event::done()).unwrap();
    assert_eq!(journal.shown_extent(), shown);
    assert!(!journal.leave_at(shown) && !journal.is_left(), "there is more to come");
    assert!(journal.leave_at(script.written_bytes()) && journal.is_left());
    assert!(matches!(append(&journal, stream_end()), Err(AppendError::Left { .. })), "it has to be announced first");
    journal.set_left(false);
    append(&journal, stream_end()).unwrap();
    assert!(journal.leave_at(script.written_bytes()) && !journal.is_left(), "after a closed run nothing comes");
}

#[test]
fn a_refused_request_leaves_alone_what_is_written_with_it() {
    let (journal, script) = open();
    let too_many = [Event::token("b"), Event::done(), Event::token("c")];
    let buffered = Durability::Buffered;
    let requests = [
        (&[Event::token("a")][..], buffered),
        (&too_many[..], buffered),
        (&[Event::token("d")][..], Durability::Durable),
    ];
    let answers = append_together(&journal, &requests);
    assert_eq!(answers[0].as_ref().unwrap().last_seq, 1);
    assert!(matches!(&answers[1], Err(AppendError::Sealed { event, .. }) if &**event == "token"), "{:?}", answers[1]);
    assert_eq!(answers[2].as_ref().unwrap().first_seq, 2);
    assert_eq!((script.seqs(), journal.last_seq(), journal.seal()), (vec![1, 2], 2, Seal::Open));
}

#[test]
fn lines_that_got_through_before_a_failure_are_appended_and_none_of_them_is_durable() {
    let (journal, script) = open();
    script.fail_next(Failing { kept_lines: 3, ..Failing::default() });
    let events: Vec<[Event; 2]> = (0..3).map(|_| [Event::token("x"), Event::token("y")]).collect();
    let requests = [
        (&events[0][..1], Durability::Durable),
        (&events[0][1..], Durability::Buffered),
        (&events[1][..], Durability::Durable),
        (&events[2][..], Durability::Buffered),
    ];
    let answers = append_together(&journal, &requests);
    let durable = answers[0].as_ref().unwrap();
    assert!(durable.ticket.has_failed() && durable.last_seq == 1, "{durable:?}");
    assert!(matches!(answers[1].clone().unwrap().wait(), Ok(None)), "durability was not asked for");
    let reached = |answer: &Result<Appended, AppendError>| match answer {
        Err(AppendError::Failed { appended_to, .. }) => *appended_to,
        other => panic!("{other:?}"),
    };
    assert_eq!((reached(&answers[2]), reached(&answers[3])), (Some(3), None));
    assert_eq!((script.seqs(), journal.last_seq()), (vec![1, 2, 3], 3));
    assert_eq!(journal.shown_extent(), 0, "what should be durable and is not is not shown");
    assert_eq!(append(&journal, Event::token("z")).unwrap().last_seq, 4);
}

#[test]
fn buffered_lines_that_got_through_before_a_failure_are_shown() {
    let (journal, script) = open();
    let watched = Watched::new(&journal);
    script.fail_next(Failing { kept_lines: 1, ..Failing::default() });
    journal.append(&[Event::token("one"), Event::token("two")], Durability::Buffered).unwrap_err();
    assert_eq!((script.seqs(), journal.shown_extent()), (vec![1], script.written_bytes()));
    assert_eq!(watched.counts(), (1, 0), "a follower is woken");
}

#[test]
fn a_last_line_that_lacks_only_its_line_feed_is_appended() {
    let (journal, script) = open();
    let (one, two) = ([Event::token("one")], [Event::token("two")]);
    script.fail_next(Failing { kept_lines: 1, lacks_line_feed: true, ..Failing::default() });
    let answers = append_together(&journal, &[(&one[..], Durability::Buffered), (&two[..], Durability::Buffered)]);
    assert_eq!(answers[0].as_ref().unwrap().last_seq, 1);
    assert!(answers[1].is_err());
    assert_eq!(append(&journal, Event::token("three")).unwrap().last_seq, 2, "its number is not given again");
    script.fail_next(Failing { kept_lines: 1, lacks_line_feed: true, ..Failing::default() });
    append(&journal, Event::done()).unwrap();
    assert_eq!((journal.last_seq(), journal.seal()), (3, Seal::Done), "and an end is the end");
}

#[test]
fn an_end_that_was_not_written_hides_nothing_and_one_that_was_stays_hidden() {
    let (journal, script) = open();
    append(&journal, Event::token("one")).unwrap();
    let place = script.written_bytes();
    for durability in [Durability::Buffered, Durability::Durable] {
        script.fail_next(Failing::default());
        journal.append(&[Event::done()], durability).unwrap_err();
        assert_eq!((journal.hidden_end(), journal.shown_extent(), journal.seal()), (None, place, Seal::Open));
    }
    append(&journal, Event::token("two")).unwrap();
    let place = script.written_bytes();
    assert_eq!((journal.hidden_end(), journal.shown_extent()), (None, place), "the run goes on for its readers");
    script.fail_next(Failing { kept_lines: 1, ..Failing::default() });
    journal.append(&[Event::done(), stream_end()], Durability::Buffered).unwrap_err();
    assert_eq!((journal.hidden_end(), journal.shown_extent(), journal.seal()), (Some(place), place, Seal::Done));
}

#[test]
fn a_writer_that_does_no_more_ends_the_run_for_followers_and_listeners() {
    for is_over in [false, true] {
        let (journal, script) = open();
        let watched = Watched::new(&journal);
        script.fail_next(Failing { is_over, ..Failing::default() });
        append(&journal, Event::token("one")).unwrap_err();
        assert_eq!((journal.has_failed(), watched.counts().1), (is_over, usize::from(is_over)));
    }
}

#[test]
fn a_file_that_cannot_be_closed_for_another_ends_the_run_for_followers_and_listeners() {
    for fails in [false, true] {
        let (journal, script) = open();
        append(&journal, Event::token("one")).unwrap();
        let watched = Watched::new(&journal);
        script.rest_fails.store(fails, Ordering::SeqCst);
        assert!(journal.try_rest(), "no other thread appends");
        assert_eq!((journal.has_failed(), watched.counts()), (fails, (usize::from(fails), usize::from(fails))));
    }
    let (journal, _) = open();
    let held = journal.hold();
    assert!(!journal.try_rest(), "not while another thread appends");
    drop(held);
}

/// The writer looks at the count of followers without a barrier: it holds the pen, and so does a follower that is counted.
#[test]
fn a_follower_is_counted_while_no_thread_appends() {
    let work = || {
        let (journal, _) = open();
        let is_attached = Arc::new(AtomicBool::new(false));
        let held = journal.hold();
        let (attaching, noted) = (journal.clone(), is_attached.clone());
        let follower = spawn("follower", move || {
            let attached = attaching.attach(AppendWaker(Arc::new(|| ())));
            noted.store(true, Ordering::SeqCst);
            drop(attached);
        });
        sleep(Duration::from_secs(1));
        let was_attached = is_attached.load(Ordering::SeqCst);
        drop(held);
        follower.join();
        assert!(is_attached.load(Ordering::SeqCst));
        was_attached
    };
    let explorer = Explorer { singles_max: 20, pairs_max: 0, seeds: 0, ..Explorer::default() };
    explorer.explore(work, |was_attached| assert!(!was_attached, "the pen was held"));
}
