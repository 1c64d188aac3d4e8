//! Unit tests of a tail, its ring buffer, the task that fills it, and the followers that share it.

use std::pin::pin;
use std::sync::Barrier;

use futures_util::FutureExt;
use parking_lot::MutexGuard;

use super::*;
use crate::format::{EventRef, Ids};
use crate::http::stream::follower::{Follower, Next, Waits};
use crate::http::tests::{DEADLINE, TestServer, done, run, session, tasks, until};
use crate::model::{Event, RunEnd, Truth};
use crate::storage::Durability;
use crate::store::{After, Run};

/// A frame at this place of the journal.
fn frame(offset: u64, seq: Option<u64>, bytes: usize) -> Frame {
    let line = format!("{{{}}}", "x".repeat(bytes));
    let event = EventRef {
        line: line.as_bytes(),
        offset,
        seq,
        name: "token".into(),
        created_at: None,
        terminal: Truth::False,
        terminal_state: None,
        payload: None,
        ids: Ids::Own,
        checked: false,
    };
    Frame::new(&run("r"), &event)
}

/// A tail that a reader fills: events 1 to `count`, of this many bytes.
fn filled(count: u64, bytes: usize) -> (Arc<Tail>, Vec<Frame>) {
    let tail = Tail::new(&session(), &run("r"));
    tail.ring.lock().has_reader = true;
    (tail.clone(), (1..=count).map(|seq| add(&tail, Some(seq), bytes)).collect())
}

/// Adds one event.
fn add(tail: &Tail, seq: Option<u64>, bytes: usize) -> Frame {
    let frame = frame(tail.ring.lock().to, seq, bytes);
    tail.push(vec![frame.clone()], frame.end());
    frame
}

/// What a tail has for a reader at a place: numbers, or why there are none.
fn offered(tail: &Tail, place: u64) -> Result<Vec<u64>, &'static str> {
    match tail.offer(place, usize::MAX, usize::MAX) {
        Offer::Frames(frames, _) => Ok(frames.iter().filter_map(|frame| frame.seq).collect()),
        Offer::NotYet => Err("not yet"),
        Offer::Ended(_) => Err("ended"),
        Offer::Behind => Err("behind"),
        Offer::Failed => Err("failed"),
    }
}

#[test]
fn a_reader_that_reconnects_is_given_what_comes_after_its_last_event_and_nothing_twice() {
    let (tail, _) = filled(5, 10);
    for seq in 1..5 {
        let place = tail.place_behind(seq).unwrap();
        assert_eq!(offered(&tail, place), Ok((seq + 1..=5).collect()), "{seq}");
    }
    assert_eq!(offered(&tail, tail.place_behind(5).unwrap()), Err("not yet"));
    assert_eq!((tail.place_behind(0), tail.place_behind(6)), (None, None));
    // An event without a number comes after the one before it.
    add(&tail, None, 10);
    add(&tail, Some(6), 10);
    assert_eq!(offered(&tail, tail.place_behind(5).unwrap()), Ok(vec![6]));
    let first = tail.offer(tail.place_behind(5).unwrap(), 1, 1);
    assert!(matches!(&first, Offer::Frames(frames, _) if frames[0].seq.is_none()), "{first:?}");
}

#[test]
fn the_end_is_told_after_the_last_event() {
    let (tail, frames) = filled(3, 10);
    tail.end(Some(RunState::Ended(RunEnd::Completed)));
    assert_eq!(offered(&tail, frames[1].offset), Ok(vec![2, 3]));
    assert_eq!(offered(&tail, frames[2].end()), Err("ended"));
    assert!(tail.is_spent());
}

#[tokio::test]
async fn what_goes_on_after_its_end_is_shown_to_a_new_follower_beside_one_that_stays() {
    let server = TestServer::new();
    let (begun, hub) = (server.begin("r"), &server.app.hub);
    let mut stays = caught_up(&server, &begun).await;
    begun.append(done()).unwrap();
    expect_seqs(next(&mut stays).await, &[2]);
    assert!(matches!(next(&mut stays).await, Next::End(_)));
    begun.append(Event::parse(r#"{"event":"stream_end"}"#).unwrap()).unwrap();
    let mut later = Follower::new(hub, hub.tail(&session(), &run("r")), 2, Waits::ForMore);
    expect_seqs(next(&mut later).await, &[3]);
}

/// A follower that has the first event and shares the tail.
async fn caught_up(server: &TestServer, begun: &Run) -> Follower {
    let hub = &server.app.hub;
    begun.append(Event::token("x")).unwrap();
    let mut follower = Follower::new(hub, hub.tail(&session(), &run("r")), 0, Waits::ForMore);
    expect_seqs(next(&mut follower).await, &[1]);
    assert!(within(Duration::from_millis(10), follower.next()).await.is_none());
    follower
}

/// The numbers that a follower is given up to this one, and how often it is told of a gap.
async fn shown_until(follower: &mut Follower, last: u64) -> (Vec<u64>, usize) {
    let (mut seqs, mut gaps) = (vec![follower.last_seq()], 0);
    while seqs.last() != Some(&last) {
        match next(follower).await {
            Next::Frames(frames) => seqs.extend(frames.iter().filter_map(|frame| frame.seq)),
            Next::Gap { after_seq } => {
                assert_eq!(Some(&after_seq), seqs.last());
                gaps += 1;
            }
            other => panic!("{other:?} after {seqs:?}"),
        }
    }
    (seqs, gaps)
}

fn append_many(begun: &Run, count: u64) {
    let many: Vec<Event> = (0..count).map(|_| Event::token("x")).collect();
    begun.append_all(&many, Durability::Buffered).unwrap();
}

#[tokio::test]
async fn of_more_events_than_are_read_at_a_time_a_follower_is_shown_each_once() {
    for count in [BATCH_EVENTS_MAX as u64, 4 * BATCH_EVENTS_MAX as u64] {
        let server = TestServer::new();
        let begun = server.begin("r");
        let mut follower = caught_up(&server, &begun).await;
        // A task of its own, which runs after each batch.
        let shown = tokio::spawn(async move { shown_until(&mut follower, count + 1).await });
        tokio::task::yield_now().await;
        append_many(&begun, count);
        assert_eq!(shown.await.unwrap().0, (1..=count + 1).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn of_more_events_than_the_ring_holds_a_slow_follower_is_shown_each_once_and_told_of_the_gap() {
    for (count, has_gap) in [(2 * BATCH_EVENTS_MAX as u64, false), (2 * RING_FRAMES_MAX as u64, true)] {
        let server = TestServer::new();
        let begun = server.begin("r");
        let mut follower = caught_up(&server, &begun).await;
        append_many(&begun, count);
        let tail = follower.tail().clone();
        until(|| tail.ring.lock().last_seq == count + 1).await;
        let (seqs, gaps) = shown_until(&mut follower, count + 1).await;
        assert_eq!(seqs, (1..=count + 1).collect::<Vec<_>>());
        assert_eq!(gaps > 0, has_gap, "{count}");
    }
}

#[tokio::test]
async fn a_follower_gives_everything_up_to_its_bound_and_nothing_after_it() {
    let server = TestServer::new();
    let (begun, hub) = (server.begin("r"), &server.app.hub);
    begun.append_all(&[Event::token("1"), Event::token("2"), Event::token("3")], Durability::Buffered).unwrap();
    for bound in 1..=3 {
        let mut follower = Follower::new(hub, hub.tail(&session(), &run("r")), 0, Waits::ForMore);
        follower.stop_after(bound);
        follower.stop_after(9);
        expect_seqs(next(&mut follower).await, &(1..=bound).collect::<Vec<_>>());
        assert!(matches!(next(&mut follower).await, Next::CaughtUp));
    }
}

#[test]
fn a_tail_that_nothing_fills_has_no_place_for_a_reader_that_reconnects() {
    let (tail, _) = filled(5, 10);
    tail.end(None);
    assert_eq!((tail.place_behind(3), tail.place_behind(5)), (None, None));
    let (tail, _) = filled(5, 10);
    tail.ring.lock().has_reader = false;
    assert_eq!((tail.place_behind(3), tail.place_behind(5)), (None, None));
}

#[test]
fn a_reader_gets_the_frame_at_its_place_or_is_sent_to_the_disk() {
    // Once the number of frames is the bound, once their bytes are.
    for (count, bytes) in [(RING_FRAMES_MAX as u64 + 3, 10), (60, RING_BYTES_MAX / 20)] {
        let (tail, frames) = filled(count, bytes);
        assert!(tail.ring.lock().bytes <= RING_BYTES_MAX);
        assert!(tail.ring.lock().frames.len() <= RING_FRAMES_MAX);
        let mut kept = 0;
        for (frame, seq) in frames.iter().zip(1..) {
            match offered(&tail, frame.offset) {
                Ok(seqs) => {
                    assert_eq!(seqs, (seq..=count).collect::<Vec<_>>());
                    kept += 1;
                }
                Err(why) => assert_eq!((why, kept), ("behind", 0), "{seq}"),
            }
        }
        assert_eq!(kept, tail.ring.lock().frames.len());
        assert!(kept < frames.len());
    }
}

#[test]
fn one_frame_that_is_larger_than_the_ring_is_kept() {
    let (tail, frames) = filled(3, RING_BYTES_MAX + 1);
    assert_eq!(offered(&tail, frames[1].offset), Err("behind"));
    assert_eq!(offered(&tail, frames[2].offset), Ok(vec![3]));
}

#[test]
fn a_ring_that_is_freed_sends_readers_that_lag_to_the_disk() {
    let (tail, frames) = filled(3, 10);
    tail.clear();
    for frame in &frames {
        assert_eq!(offered(&tail, frame.offset), Err("behind"));
    }
    assert_eq!(tail.ring.lock().bytes, 0);
    assert_eq!(offered(&tail, frames[2].end()), Err("not yet"));
    assert_eq!((tail.place_behind(2), tail.place_behind(3)), (None, Some(frames[2].end())));
    // It goes on where it was.
    add(&tail, Some(4), 10);
    assert_eq!(offered(&tail, frames[2].end()), Ok(vec![4]));
    assert_eq!(offered(&tail, frames[1].offset), Err("behind"));
}

#[tokio::test]
async fn a_reader_joins_the_ring_where_it_has_read_to_and_not_before_the_ring_begins() {
    let server = TestServer::new();
    let (begun, hub) = (server.begin("r"), &server.app.hub);
    let follow = || Box::new(server.store().follow(&session(), &run("r"), After::Start).unwrap());
    let drained = || {
        let mut follow = follow();
        let events = std::iter::from_fn(|| follow.poll().unwrap()).count();
        (events, follow)
    };
    begun.append_all(&[Event::token("1"), Event::token("2")], Durability::Buffered).unwrap();
    let tail = hub.tail(&session(), &run("r"));
    let (first, first_place) = drained();
    assert_eq!(first, 2);
    let begins = first_place.read_to();
    assert_eq!(tail.join(first_place, hub).unwrap(), begins);
    // One that has read nothing goes on by itself.
    let mut behind = tail.join(follow(), hub).unwrap_err();
    assert_eq!(std::iter::from_fn(|| behind.poll().unwrap()).count(), 2);
    assert_eq!(tail.join(drained().1, hub).unwrap(), begins);
    begun.append(Event::token("3")).unwrap();
    until(|| offered(&tail, begins) == Ok(vec![3])).await;
    // One that has read more than the ring begins with is given none of that again.
    let place = tail.join(drained().1, hub).unwrap();
    assert!(place > begins);
    assert_eq!(offered(&tail, place), Err("not yet"));
}

/// Looking and going to sleep are two steps: an event that comes between them wakes the reader. The reader and the task that
/// adds the event queue for the ring's lock, so that the event is added as soon as the reader has looked.
#[test]
fn an_event_that_comes_while_a_reader_looks_is_shown_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(async { TestServer::new() });
    let (tail, _) = filled(1, 10);
    let mut follower = Follower::new(&server.app.hub, tail.clone(), 1, Waits::ForMore);
    for seq in 2..100 {
        let (added, held) = (Barrier::new(2), tail.ring.lock());
        let frame = frame(held.to, Some(seq), 10);
        let shown = std::thread::scope(|scope| {
            let reader = scope.spawn(|| look_twice(&mut follower, &added));
            std::thread::park_timeout(Duration::from_millis(1));
            scope.spawn(|| {
                tail.push(vec![frame.clone()], frame.end());
                added.wait();
            });
            std::thread::park_timeout(Duration::from_millis(1));
            MutexGuard::unlock_fair(held);
            reader.join().unwrap()
        });
        expect_seqs(shown.unwrap_or_else(|| panic!("event {seq} is not shown")), &[seq]);
    }
}

/// What a follower has before an event was added, or after that, if it is woken.
fn look_twice(follower: &mut Follower, added: &Barrier) -> Option<Next> {
    let mut next = pin!(follower.next());
    let first = next.as_mut().now_or_never();
    added.wait();
    first.or_else(|| next.now_or_never())
}

async fn next(follower: &mut Follower) -> Next {
    within(DEADLINE, follower.next()).await.expect("the stream hangs")
}

#[track_caller]
fn expect_seqs(next: Next, seqs: &[u64]) {
    let Next::Frames(frames) = next else { panic!("{next:?}") };
    assert_eq!(frames.iter().filter_map(|frame| frame.seq).collect::<Vec<_>>(), seqs);
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_any_more_fails_its_followers_and_is_tried_anew_by_the_next_one() {
    let server = TestServer::new();
    let (begun, hub) = (server.begin("r"), &server.app.hub);
    begun.append(Event::token("1")).unwrap();
    let tail = hub.tail(&session(), &run("r"));
    let mut followers = [0, 1].map(|_| Follower::new(hub, tail.clone(), 0, Waits::ForMore));
    for follower in &mut followers {
        expect_seqs(next(follower).await, &[1]);
        // It has caught up and shares the tail.
        assert!(within(Duration::from_millis(10), follower.next()).await.is_none());
    }
    server.disk.break_reads(server.journal("r")).unwrap();
    begun.append(Event::token("2")).unwrap();
    for follower in &mut followers {
        assert!(matches!(next(follower).await, Next::Failed));
    }
    server.disk.mend_reads(server.journal("r")).unwrap();
    let anew = hub.tail(&session(), &run("r"));
    assert!(!Arc::ptr_eq(&anew, &tail));
    expect_seqs(next(&mut Follower::new(hub, anew, 1, Waits::ForMore)).await, &[2]);
}

/// Leaves a tail after this silence, and waits for its task to end.
async fn leave_after(silence: Duration) {
    let server = TestServer::new();
    let (begun, hub) = (server.begin("r"), &server.app.hub);
    begun.append(Event::token("1")).unwrap();
    let before = tasks();
    let mut follower = Follower::new(hub, hub.tail(&session(), &run("r")), 0, Waits::ForMore);
    expect_seqs(next(&mut follower).await, &[1]);
    assert!(within(silence, follower.next()).await.is_none());
    assert!(tasks() > before && hub.followed_runs() == 1);
    drop(follower);
    until(|| tasks() == before).await;
    assert_eq!(hub.followed_runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_tail_that_waits_for_more_ends_when_the_last_follower_leaves() {
    leave_after(REST_AFTER / 2).await;
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_tail_that_rests_ends_when_the_last_follower_leaves() {
    leave_after(REST_AFTER * 3).await;
}

#[tokio::test]
async fn a_follower_is_shown_what_comes_and_the_end() {
    let server = TestServer::new();
    let (begun, hub) = (server.begin("r"), &server.app.hub);
    let mut follower = Follower::new(hub, hub.tail(&session(), &run("r")), 0, Waits::ForMore);
    for seq in 1..=3 {
        begun.append(Event::token("x")).unwrap();
        expect_seqs(next(&mut follower).await, &[seq]);
    }
    begun.append(done()).unwrap();
    expect_seqs(next(&mut follower).await, &[4]);
    assert!(matches!(next(&mut follower).await, Next::End(RunState::Ended(_))));
}
