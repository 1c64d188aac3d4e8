//! The loops that append as fast as a peer lets them, with one event outstanding for each stream.
//! They know nothing of the peers but the traits here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::mailbox::Mailbox;
use crate::workload::{Case, Entry, Numbers, Outcome, Pace};

/// Something to append to, a batch at a time.
pub trait Log: Send {
    /// When this returns, all of the batch is as safe as the log was opened for.
    fn append(&mut self, batch: &[Entry]) -> Outcome<()>;
}

/// Takes an event for each of these streams and tells later, from whatever thread, that it is safe.
pub trait Submit {
    fn submit(&mut self, streams: &[usize]) -> Outcome<()>;
}

/// The stream whose event is safe, or why it is not.
pub type Acknowledged = Result<usize, String>;

/// Appends one event of one stream and returns when it is safe.
pub type Stream = Box<dyn FnMut() -> Outcome<()> + Send>;

/// How a peer is driven.
pub enum Way {
    /// By one thread that appends and waits.
    InLine(Box<dyn Log>),
    /// By one thread that appends for every stream whose last event was acknowledged.
    EventLoop(Box<dyn Submit>, Arc<Mailbox<Acknowledged>>),
    /// By a thread for each stream.
    Threads(Vec<Stream>),
}

/// Events per second.
pub fn measure(way: Way, case: &Case, pace: Pace) -> Outcome<f64> {
    match way {
        Way::InLine(log) => in_line(log, case, pace),
        Way::EventLoop(submit, acknowledged) => event_loop(submit, &acknowledged, case.streams, pace),
        Way::Threads(streams) => threads(streams, pace),
    }
}

fn in_line(mut log: Box<dyn Log>, case: &Case, pace: Pace) -> Outcome<f64> {
    let (mut numbers, mut meter) = (Numbers::default(), Meter::start(pace));
    while !meter.is_over() {
        let round: Vec<Entry> = (0..case.streams).map(|stream| numbers.next(stream)).collect();
        round.chunks(case.at_once).try_for_each(|batch| log.append(batch))?;
        meter.count(round.len());
    }
    Ok(meter.per_second())
}

fn event_loop(
    mut submit: Box<dyn Submit>,
    acknowledged: &Mailbox<Acknowledged>,
    streams: usize,
    pace: Pace,
) -> Outcome<f64> {
    let mut idle: Vec<usize> = (0..streams).collect();
    let mut taken = Vec::new();
    let mut meter = Meter::start(pace);
    while !meter.is_over() {
        submit.submit(&idle)?;
        take_idle(acknowledged, &mut taken, &mut idle)?;
        meter.count(idle.len());
    }
    let mut outstanding = streams - idle.len();
    while outstanding > 0 {
        take_idle(acknowledged, &mut taken, &mut idle)?;
        outstanding -= idle.len();
    }
    Ok(meter.per_second())
}

/// The streams whose event was acknowledged since the last look, at least one.
fn take_idle(
    acknowledged: &Mailbox<Acknowledged>,
    taken: &mut Vec<Acknowledged>,
    idle: &mut Vec<usize>,
) -> Outcome<()> {
    acknowledged.take_all(taken);
    idle.clear();
    for stream in taken.drain(..) {
        idle.push(stream?);
    }
    Ok(())
}

fn threads(streams: Vec<Stream>, pace: Pace) -> Outcome<f64> {
    let (events, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let append_until_over = |mut append: Stream| -> Outcome<()> {
        while !is_over.load(Ordering::Relaxed) {
            append()?;
            events.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let append_until_over = &append_until_over;
    thread::scope(|scope| {
        let running: Vec<_> =
            streams.into_iter().map(|append| scope.spawn(move || append_until_over(append))).collect();
        thread::sleep(pace.warm_up);
        let (before, begin) = (events.load(Ordering::Relaxed), Instant::now());
        thread::sleep(pace.measured);
        let (after, taken) = (events.load(Ordering::Relaxed), begin.elapsed());
        is_over.store(true, Ordering::Relaxed);
        running.into_iter().try_for_each(|thread| thread.join().expect("a stream does not panic"))?;
        Ok((after - before) as f64 / taken.as_secs_f64())
    })
}

/// Counts what is acknowledged between the end of the warm-up and the end of the time.
struct Meter {
    warm: Instant,
    measured: Duration,
    begin: Option<Instant>,
    last: Instant,
    events: usize,
}

impl Meter {
    fn start(pace: Pace) -> Self {
        let now = Instant::now();
        Meter { warm: now + pace.warm_up, measured: pace.measured, begin: None, last: now, events: 0 }
    }

    fn count(&mut self, events: usize) {
        self.last = Instant::now();
        match self.begin {
            Some(_) => self.events += events,
            None if self.warm <= self.last => self.begin = Some(self.last),
            None => {}
        }
    }

    fn is_over(&self) -> bool {
        self.begin.is_some_and(|begin| self.measured <= self.last - begin)
    }

    fn per_second(&self) -> f64 {
        let begin = self.begin.expect("it is over");
        self.events as f64 / (self.last - begin).as_secs_f64()
    }
}
