//! What a store has done, in numbers that only grow: for whoever watches it, never for the store itself.
//!
//! Every number counts what has happened, not what was attempted, unless its name says so. Nothing here decides, waits or
//! survives the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Bounds of times, in nanoseconds: from what memory takes to what a disk in trouble does.
pub const NANOS_BOUNDS: &[u64] = &[
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

/// Bounds of how many appends share a sync.
pub const BATCH_BOUNDS: &[u64] = &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that many threads add to at the same time, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct BusyCounter(Counter);

impl BusyCounter {
    pub(crate) fn add(&self, more: u64) {
        self.0.add(more);
    }
}

/// How values are spread over fixed bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is beyond the last.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one with these bounds, which must ascend. A value belongs to the first bound that is not below it.
    pub fn new(bounds: &'static [u64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Takes a value in.
    pub fn observe(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Takes a time in, in nanoseconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What was taken in so far.
    pub fn spread(&self) -> Spread {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Spread { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// The bounds, ascending.
    pub bounds: &'static [u64],
    /// How many values belong to each bound alone, and at the end how many are beyond the last.
    pub counts: Vec<u64>,
    /// All values together. It wraps, as any sum would, after five hundred years of nanoseconds.
    pub sum: u64,
}

impl Spread {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// For each bound how many values are not above it, and at the end how many there are at all.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts.iter().scan(0, |so_far, count| {
            *so_far += count;
            Some(*so_far)
        }))
    }
}

/// What one journal's writer has done, or several one after the other. Only one writes on a sheet at any time, so that
/// an append pays for no atomic addition and no other core's cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Sheet {
    appends: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    failures: AtomicU64,
}

/// The sheets of all journals that are open, and of those that were.
#[derive(Debug, Default)]
struct Sheets {
    all: Vec<Arc<Sheet>>,
    free: Vec<Arc<Sheet>>,
}

/// A sheet in the hands of one journal. Its numbers stay when it is given back.
///
/// Whoever adds must be alone with it, by a lock of the journal's.
#[derive(Debug)]
pub(crate) struct Tally {
    sheet: Arc<Sheet>,
    meter: Arc<Meter>,
}

impl Tally {
    /// Events became lines of the journal.
    #[inline(always)]
    pub(crate) fn wrote(&self, events: u64, bytes: u64) {
        add_alone(&self.sheet.events, events);
        add_alone(&self.sheet.bytes, bytes);
    }

    /// An append was answered: taken, or not because the journal failed, or refused.
    #[inline(always)]
    pub(crate) fn answered(&self, answer: Answered) {
        add_alone(
            match answer {
                Answered::Taken => &self.sheet.appends,
                Answered::Refused => &self.sheet.refused,
                Answered::Failed => &self.sheet.failures,
            },
            1,
        );
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.meter.sheets.lock().free.push(self.sheet.clone());
    }
}

#[inline(always)]
fn add_alone(number: &AtomicU64, more: u64) {
    number.store(number.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// How an append was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    Taken,
    Refused,
    Failed,
}

/// What became of interrupted answers, one count for each decision that was saved.
#[derive(Debug, Default)]
pub(crate) struct RecoveryCounters {
    pub(crate) folded: Counter,
    pub(crate) recovered: Counter,
    pub(crate) armed: Counter,
    pub(crate) resolved: Counter,
    pub(crate) grown: Counter,
    pub(crate) ended_late: Counter,
    pub(crate) looked_in_vain: Counter,
    pub(crate) given_up: Counter,
    pub(crate) mended: Counter,
}

/// Counts what a store does. Several stores may share one; then it counts for all of them.
#[derive(Debug)]
pub struct Meter {
    sheets: Mutex<Sheets>,
    pub(crate) sync_failures: Counter,
    pub(crate) batch_appends: Histogram,
    pub(crate) sync_nanos: Histogram,
    pub(crate) save_failures: Counter,
    pub(crate) save_nanos: Histogram,
    pub(crate) recoveries: RecoveryCounters,
    pub(crate) dead_runs_closed: Counter,
    pub(crate) damaged_lines: Counter,
    pub(crate) findings: Counter,
    pub(crate) cache_hits: BusyCounter,
    pub(crate) cache_misses: BusyCounter,
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            sheets: Mutex::default(),
            sync_failures: Counter::default(),
            batch_appends: Histogram::new(BATCH_BOUNDS),
            sync_nanos: Histogram::new(NANOS_BOUNDS),
            save_failures: Counter::default(),
            save_nanos: Histogram::new(NANOS_BOUNDS),
            recoveries: RecoveryCounters::default(),
            dead_runs_closed: Counter::default(),
            damaged_lines: Counter::default(),
            findings: Counter::default(),
            cache_hits: BusyCounter::default(),
            cache_misses: BusyCounter::default(),
        }
    }
}

impl Meter {
    /// A sheet for a journal to count on.
    pub(crate) fn tally(self: &Arc<Self>) -> Tally {
        let mut sheets = self.sheets.lock();
        let sheet = sheets.free.pop().unwrap_or_else(|| {
            let sheet = Arc::<Sheet>::default();
            sheets.all.push(sheet.clone());
            sheet
        });
        Tally { sheet, meter: self.clone() }
    }

    /// All numbers as they are now. What happens meanwhile may be in some of them and not yet in others.
    pub fn snapshot(&self) -> Snapshot {
        let (batch_appends, save_nanos) = (self.batch_appends.spread(), self.save_nanos.spread());
        Snapshot {
            appends: self.appends(),
            sync_failures: self.sync_failures.get(),
            syncs: batch_appends.count(),
            batch_appends,
            sync_nanos: self.sync_nanos.spread(),
            saves: save_nanos.count(),
            save_failures: self.save_failures.get(),
            save_nanos,
            recoveries: self.recoveries.snapshot(),
            dead_runs_closed: self.dead_runs_closed.get(),
            damaged_lines: self.damaged_lines.get(),
            findings: self.findings.get(),
            cache_hits: self.cache_hits.0.get(),
            cache_misses: self.cache_misses.0.get(),
        }
    }

    fn appends(&self) -> Appends {
        let sheets = self.sheets.lock();
        let sum = |number: fn(&Sheet) -> &AtomicU64| -> u64 {
            sheets.all.iter().map(|sheet| number(sheet).load(Ordering::Relaxed)).sum()
        };
        Appends {
            calls: sum(|sheet| &sheet.appends),
            events: sum(|sheet| &sheet.events),
            bytes: sum(|sheet| &sheet.bytes),
            refused: sum(|sheet| &sheet.refused),
            failures: sum(|sheet| &sheet.failures),
        }
    }
}

impl RecoveryCounters {
    fn snapshot(&self) -> Recoveries {
        Recoveries {
            folded: self.folded.get(),
            recovered: self.recovered.get(),
            armed: self.armed.get(),
            resolved: self.resolved.get(),
            grown: self.grown.get(),
            ended_late: self.ended_late.get(),
            looked_in_vain: self.looked_in_vain.get(),
            given_up: self.given_up.get(),
            mended: self.mended.get(),
        }
    }
}

/// The numbers of a meter at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Appends to journals, those that end a run included.
    pub appends: Appends,
    /// Batches that one sync of the commit log made durable. Closing a store is none.
    pub syncs: u64,
    /// Batches that could not be made durable. The first one stops its store.
    pub sync_failures: u64,
    /// How many durable writes each batch had, of which each may hold appends of several callers. None where lines became
    /// durable that nobody waited for.
    pub batch_appends: Spread,
    /// How long each batch took to be written to the log and synced, in nanoseconds.
    pub sync_nanos: Spread,
    /// Sessions that were written to their documents. One that was stored already is not written again.
    pub saves: u64,
    /// Saves that the disk failed. A conflict or a refusal is none.
    pub save_failures: u64,
    /// How long each save took, in nanoseconds.
    pub save_nanos: Spread,
    /// What became of interrupted answers.
    pub recoveries: Recoveries,
    /// Runs without a producer that were ended for somebody who waited for them.
    pub dead_runs_closed: u64,
    /// Damaged places of journals that whoever looked for an answer met, the same ones again at each look. A torn end is
    /// none: any crash may leave one.
    pub damaged_lines: u64,
    /// What was found wrong when stores were opened.
    pub findings: u64,
    /// Whole sessions that were read from memory.
    pub cache_hits: u64,
    /// Whole sessions that had to be read from their documents, or waited for somebody who did.
    pub cache_misses: u64,
}

/// What was appended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appends {
    /// Calls whose events were all taken.
    pub calls: u64,
    /// Events that stand in journals, also those of calls that failed behind them.
    pub events: u64,
    /// Bytes of their lines.
    pub bytes: u64,
    /// Calls that were refused, because the run had ended or an event is none that can be journalled.
    pub refused: u64,
    /// Calls that failed because their journal did.
    pub failures: u64,
}

/// What became of interrupted answers, one count for each run and each save that settled something of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recoveries {
    /// The run had ended properly, and its answer only had to come into the transcript.
    pub folded: u64,
    /// The turn was interrupted, and what had arrived came into the transcript, or its failure did.
    pub recovered: u64,
    /// The turn was interrupted, and nothing was found yet: its marker asks for another look.
    pub armed: u64,
    /// A marker that asked for another look found its answer, or how it ended.
    pub resolved: u64,
    /// More arrived after what there was had been recovered.
    pub grown: u64,
    /// The run itself ended after its turn had been given up for dead.
    pub ended_late: u64,
    /// A marker asked, and there was still nothing.
    pub looked_in_vain: u64,
    /// A marker asks no more.
    pub given_up: u64,
    /// What a marker noted was unusable, or there was another of the same run.
    pub mended: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_first_bound_that_is_not_below_it() {
        let histogram = Histogram::new(&[0, 1, 10]);
        [0, 1, 2, 10, 11, 500].into_iter().for_each(|value| histogram.observe(value));
        let spread = histogram.spread();
        assert_eq!((spread.counts.as_slice(), spread.sum, spread.count()), ([1, 1, 2, 2].as_slice(), 524, 6));
        let cumulative: Vec<_> = spread.cumulative().collect();
        assert_eq!(cumulative, [(Some(0), 1), (Some(1), 2), (Some(10), 4), (None, 6)]);
    }

    #[test]
    fn bounds_ascend() {
        assert!(NANOS_BOUNDS.is_sorted_by(|a, b| a < b) && BATCH_BOUNDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_sheet_that_is_given_back_keeps_its_numbers_and_is_used_again() {
        let meter = Arc::new(Meter::default());
        for round in 1..=3 {
            let (one, other) = (meter.tally(), meter.tally());
            one.wrote(2, 20);
            other.wrote(1, 10);
            other.answered(Answered::Taken);
            drop(one);
            assert_eq!(
                meter.appends(),
                Appends { calls: round, events: 3 * round, bytes: 30 * round, ..Appends::default() }
            );
        }
        assert_eq!(meter.sheets.lock().all.len(), 2, "no more sheets than journals at the same time");
    }
}
