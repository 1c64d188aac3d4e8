//! Durable appends of many streams: one thread that drives all their tickets, and the two raw ways beside it.
//!
//! The driver appends the next event of each stream whose last one was acknowledged. A ticket may be settled before it
//! is handed out, or later and from another thread: either way its callback leaves a note, and the driver reads notes.
//! Everything here works for a slice of time and gives the microseconds an event took.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use lastword::{Event, Run, StorageError};
use parking_lot::{Condvar, Mutex};

use super::Outcomes;
use super::rounds::micros_each;
use super::scene::TOKEN;

/// A store that is silent for so long will not answer any more.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Notes on what was acknowledged.
#[derive(Default)]
struct Inbox {
    notes: Mutex<Notes>,
    arrived: Condvar,
}

#[derive(Default)]
struct Notes {
    streams: Vec<usize>,
    failure: Option<StorageError>,
}

impl Inbox {
    fn note(&self, stream: usize, settled: Result<(), StorageError>) {
        let mut notes = self.notes.lock();
        match settled {
            Ok(()) => notes.streams.push(stream),
            Err(failure) => notes.failure = Some(failure),
        }
        drop(notes);
        self.arrived.notify_one();
    }

    /// Takes all the notes there are, and waits only if there are none.
    fn take(&self, streams: &mut Vec<usize>) -> Outcomes<()> {
        let mut notes = self.notes.lock();
        let is_silent = |notes: &mut Notes| notes.streams.is_empty() && notes.failure.is_none();
        if self.arrived.wait_while_for(&mut notes, is_silent, SILENCE_MAX).timed_out() {
            return Err(format!("no append was acknowledged within {} seconds", SILENCE_MAX.as_secs()).into());
        }
        if let Some(failure) = notes.failure.take() {
            return Err(failure.into());
        }
        streams.clear();
        std::mem::swap(streams, &mut notes.streams);
        Ok(())
    }
}

/// One thread drives every stream, each with one event under way.
pub(super) fn driven(runs: &[Run], slice: Duration) -> Outcomes<f64> {
    let (event, inbox) = (Event::token(TOKEN), Arc::new(Inbox::default()));
    drive(runs.len(), slice, &inbox, |stream| {
        let inbox = inbox.clone();
        let appended = runs[stream].append_durable(event.clone())?;
        appended.on_durable(move |settled| inbox.note(stream, settled.map(drop)));
        Ok(())
    })
}

/// Appends to each stream that is ready until the slice is over, which is when the last has been acknowledged.
fn drive(
    streams: usize,
    slice: Duration,
    inbox: &Inbox,
    mut append: impl FnMut(usize) -> Outcomes<()>,
) -> Outcomes<f64> {
    let mut ready: Vec<usize> = (0..streams).collect();
    let (mut under_way, mut acknowledged) = (0, 0);
    let begin = Instant::now();
    loop {
        if begin.elapsed() < slice || acknowledged == 0 {
            ready.iter().try_for_each(|stream| append(*stream))?;
            under_way += ready.len();
        }
        if under_way == 0 {
            return Ok(micros_each(begin.elapsed(), acknowledged));
        }
        inbox.take(&mut ready)?;
        under_way -= ready.len();
        acknowledged += ready.len();
    }
}

/// One thread writes and syncs each file in turn.
pub(super) fn synced_in_turn(files: &mut [File], line: &[u8], slice: Duration) -> Outcomes<f64> {
    let (mut acknowledged, mut at) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < slice || acknowledged == 0 {
        write_and_sync(&mut files[at], line)?;
        acknowledged += 1;
        at = (at + 1) % files.len();
    }
    Ok(micros_each(begin.elapsed(), acknowledged))
}

/// One thread a file, each of which writes and syncs its own.
pub(super) fn synced_by_each(files: &mut [File], line: &[u8], slice: Duration) -> Outcomes<f64> {
    let start = Barrier::new(files.len() + 1);
    let keep_syncing = |file: &mut File| {
        start.wait();
        let (begin, mut acknowledged) = (Instant::now(), 0);
        while begin.elapsed() < slice || acknowledged == 0 {
            write_and_sync(file, line)?;
            acknowledged += 1;
        }
        Ok::<usize, std::io::Error>(acknowledged)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = files.iter_mut().map(|file| scope.spawn(|| keep_syncing(file))).collect();
        start.wait();
        let begin = Instant::now();
        let mut acknowledged = 0;
        for thread in threads {
            acknowledged += thread.join().map_err(|_| "a thread that writes panicked")??;
        }
        Ok(micros_each(begin.elapsed(), acknowledged))
    })
}

pub(super) fn write_and_sync(file: &mut File, line: &[u8]) -> std::io::Result<()> {
    file.write_all(line)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const STREAMS: usize = 5;

    fn check(settle: impl Fn(&Arc<Inbox>, usize)) {
        let (inbox, mut appended) = (Arc::new(Inbox::default()), [0; STREAMS]);
        let taken = drive(STREAMS, Duration::from_millis(20), &inbox, |stream| {
            appended[stream] += 1;
            settle(&inbox, stream);
            Ok(())
        });
        assert!(taken.unwrap() > 0.0);
        assert!(appended.iter().all(|count| *count > 1), "{appended:?}");
        assert!(inbox.notes.lock().streams.is_empty(), "every acknowledgement is counted");
    }

    #[test]
    fn tickets_may_be_settled_before_they_are_handed_out() {
        check(|inbox, stream| inbox.note(stream, Ok(())));
    }

    #[test]
    fn tickets_may_be_settled_later_and_by_another_thread() {
        let (sender, tickets) = mpsc::channel::<(Arc<Inbox>, usize)>();
        let committer = thread::spawn(move || {
            for (inbox, stream) in tickets {
                thread::yield_now();
                inbox.note(stream, Ok(()));
            }
        });
        check(|inbox, stream| sender.send((inbox.clone(), stream)).unwrap());
        drop(sender);
        committer.join().unwrap();
    }

    #[test]
    fn a_failed_sync_ends_the_measurement() {
        let inbox = Inbox::default();
        let lost = || StorageError::NoDirectory { path: "gone".into() };
        let driven = drive(STREAMS, Duration::ZERO, &inbox, |stream| {
            inbox.note(stream, Err(lost()));
            Ok(())
        });
        assert!(driven.is_err());
    }
}
