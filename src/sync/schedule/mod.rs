//! Thread schedules: the ways in which threads can overtake each other, enumerated and repeated at will.
//!
//! A store on a simulated disk has no threads of its own, unless it is opened by a thread that runs under a schedule: then its
//! threads run too, one at a time. A thread keeps its turn until its next *step*: locking a mutex, waiting on or notifying a
//! condition variable, using an atomic, starting or joining a thread, an operation of the simulated disk. There the schedule
//! decides which thread goes on. Everything between two steps touches nothing that is shared, so that the order of steps is
//! all that a real machine could vary, but for what weaker memory orderings allow.
//!
//! **Time** is the schedule's own: a microsecond a step, and when every thread waits it jumps to the next time limit. With
//! [`Explorer::early_timeouts`] a time limit may also pass while others could go on, as on a slow machine.
//!
//! **Which schedules.** At a *choice* more than one thread can go on. By default the same one does, or, if it cannot, the next.
//! [`Explorer::explore`] runs the work once like this, then once for every other option of every choice (one deviation),
//! then with two deviations, then with deviations everywhere, thrown by seeds. Most races need one or two.
//!
//! **What is found.** A panic of any thread, threads that all wait for each other, one that never ends, and whatever the check
//! of the caller says about what the work returned. The message has the [`Schedule`], which [`Explorer::replay`] repeats.
//!
//! ```
//! use lastword::storage::sim::schedule::{Explorer, spawn};
//! use lastword::storage::sim::{Crash, SimDisk};
//! use lastword::{Event, NewSession, Options, ReadOptions, Store, UserTurn};
//! use std::sync::Arc;
//!
//! let open = |disk: &SimDisk| Store::open_on(Arc::new(disk.clone()), "/data", Options::default());
//! let explorer = Explorer { singles_max: 20, pairs_max: 20, seeds: 5, ..Explorer::default() };
//! explorer.explore(
//!     move || {
//!         let disk = SimDisk::new();
//!         let store = open(&disk).unwrap();
//!         let id = store.create(NewSession::titled("two appenders")).unwrap();
//!         let run = store.begin_run(&id, UserTurn::text("Hello?")).unwrap();
//!         let other = run.clone();
//!         let appender = spawn("other", move || other.append_durable(Event::token("a")).unwrap().wait().unwrap());
//!         run.append_durable(Event::token("b")).unwrap().wait().unwrap();
//!         appender.join();
//!         // Both were acknowledged. The power is cut before the store is closed.
//!         (disk.copy(), id, run.id().clone())
//!     },
//!     |(disk, id, run)| {
//!         disk.power_cut(Crash::LoseAll);
//!         let found = open(&disk).unwrap().read_events(&id, &run, ReadOptions::default()).unwrap();
//!         assert_eq!(found.events.len(), 2);
//!     },
//! );
//! ```

mod scheduler;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use self::scheduler::{Rules, Scheduler};
pub(crate) use self::scheduler::{Scheduled, ThreadNumber};
use super::thread;

/// Which thread goes on at each choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Schedule {
    /// The same thread while it can, else the next one.
    #[default]
    Calm,
    /// The same, but for these choices, counted from 0, where the option of this number is taken. Option 0 is the calm one.
    Deviating(Vec<(usize, usize)>),
    /// At one in so many choices any option, by a seed.
    Seeded {
        /// The seed.
        seed: u64,
        /// How rarely the calm option is not taken.
        one_in: u64,
    },
}

/// How many schedules are tried, and what ends one that does not end by itself.
#[derive(Debug, Clone)]
pub struct Explorer {
    /// Schedules with one deviation, at most; if there are more, these are spread over all choices.
    pub singles_max: usize,
    /// The same with two.
    pub pairs_max: usize,
    /// Schedules that are thrown by a seed.
    pub seeds: u64,
    /// Whether a time limit may pass although some thread could go on.
    pub early_timeouts: bool,
    /// Steps of one schedule, at most.
    pub steps_max: u64,
    /// The schedule's own time, at most.
    pub time_max: Duration,
}

impl Default for Explorer {
    fn default() -> Self {
        Explorer {
            singles_max: 1_000,
            pairs_max: 1_000,
            seeds: 200,
            early_timeouts: true,
            steps_max: 1_000_000,
            time_max: Duration::from_secs(600),
        }
    }
}

/// What an exploration has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// How many schedules were run.
    pub schedules: usize,
    /// How many choices the calm one had.
    pub choices: usize,
}

/// How often the seeds deviate, in turns.
const ONE_IN: [u64; 4] = [2, 8, 32, 128];

impl Explorer {
    /// Runs `work` under many schedules, and has `check` look at what each of them gave, outside of any schedule.
    ///
    /// # Panics
    ///
    /// If a thread or the check panics, or a schedule does not end.
    pub fn explore<T: Send + 'static>(
        &self,
        work: impl Fn() -> T + Send + Sync + 'static,
        check: impl Fn(T),
    ) -> Explored {
        let work: Arc<dyn Fn() -> T + Send + Sync> = Arc::new(work);
        let run = |schedule: &Schedule| self.run_one(schedule, &work, &check);
        let run_all = |deviations: Vec<Deviations>| -> Vec<Taken> {
            deviations
                .into_iter()
                .map(|deviations| Taken { options: run(&deviations.schedule()), deviations })
                .collect()
        };
        let calm = run_all(vec![Deviations::default()]);
        let singles = run_all(deviating_once_more(&calm, self.singles_max));
        let pairs = run_all(deviating_once_more(&singles, self.pairs_max));
        for schedule in self.seeded() {
            run(&schedule);
        }
        let schedules = 1 + singles.len() + pairs.len() + self.seeds as usize;
        Explored { schedules, choices: calm[0].options.len() }
    }

    /// Runs `work` under one schedule.
    ///
    /// # Panics
    ///
    /// As [`Explorer::explore`].
    pub fn replay<T: Send + 'static>(
        &self,
        schedule: &Schedule,
        work: impl Fn() -> T + Send + Sync + 'static,
        check: impl Fn(T),
    ) {
        let work: Arc<dyn Fn() -> T + Send + Sync> = Arc::new(work);
        self.run_one(schedule, &work, &check);
    }

    fn seeded(&self) -> impl Iterator<Item = Schedule> {
        (0..self.seeds).map(|seed| Schedule::Seeded { seed, one_in: ONE_IN[seed as usize % ONE_IN.len()] })
    }

    /// Gives the number of options of each choice.
    fn run_one<T: Send + 'static>(
        &self,
        schedule: &Schedule,
        work: &Arc<dyn Fn() -> T + Send + Sync>,
        check: &impl Fn(T),
    ) -> Vec<usize> {
        let rules = Rules {
            early_timeouts: self.early_timeouts,
            steps_max: self.steps_max,
            time_max: self.time_max,
            schedule: schedule.clone(),
        };
        let work = work.clone();
        let (outcome, options) = Scheduler::run(rules, move || work());
        let checked = outcome.and_then(|given| {
            catch_unwind(AssertUnwindSafe(|| check(given))).map_err(|panic| text_of(&*panic).to_owned())
        });
        if let Err(wrong) = checked {
            panic!("{wrong}\nunder the schedule {schedule:?}");
        }
        options
    }
}

/// Choices at which another option than the calm one is taken, in order.
#[derive(Debug, Clone, Default)]
struct Deviations(Vec<(usize, usize)>);

impl Deviations {
    fn schedule(&self) -> Schedule {
        if self.0.is_empty() { Schedule::Calm } else { Schedule::Deviating(self.0.clone()) }
    }
}

/// A schedule that was run, and how many options each of its choices had.
struct Taken {
    deviations: Deviations,
    options: Vec<usize>,
}

impl Taken {
    /// Every schedule that deviates once more, later.
    fn further(&self) -> impl Iterator<Item = Deviations> {
        let from = self.deviations.0.last().map_or(0, |(choice, _)| choice + 1);
        let choices = self.options.iter().enumerate().skip(from);
        let deviations = choices.flat_map(|(choice, options)| (1..*options).map(move |option| (choice, option)));
        deviations.map(|one| Deviations(self.deviations.0.iter().copied().chain([one]).collect()))
    }
}

/// Schedules that deviate once more than these, at most so many, spread over all that there are.
fn deviating_once_more(taken: &[Taken], most: usize) -> Vec<Deviations> {
    let all = || taken.iter().flat_map(Taken::further);
    match most {
        0 => Vec::new(),
        _ => all().step_by(all().count().div_ceil(most).max(1)).collect(),
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Scheduled>> = const { RefCell::new(None) };
}

/// A step of the current thread, if it runs under a schedule: another may go on first.
#[inline]
pub(crate) fn step() {
    if let Some(scheduled) = Scheduled::current() {
        scheduled.step();
    }
}

/// Whether the current thread runs under a schedule.
pub fn is_scheduled() -> bool {
    Scheduled::current().is_some()
}

/// The time of the schedule that the current thread runs under; nothing outside of one.
pub fn now() -> Option<Duration> {
    Scheduled::current().map(|scheduled| scheduled.now())
}

/// Lets this much of the schedule's time pass for the current thread. Without effect outside of a schedule.
pub fn sleep(time: Duration) {
    if let Some(scheduled) = Scheduled::current() {
        scheduled.sleep(time);
    }
}

/// A thread that was started with [`spawn`].
pub struct Spawned<T> {
    handle: thread::JoinHandle<T>,
}

impl<T> fmt::Debug for Spawned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spawned").field(&self.handle.thread().name()).finish()
    }
}

impl<T> Spawned<T> {
    /// Waits for it to end.
    ///
    /// # Panics
    ///
    /// If it panicked.
    pub fn join(self) -> T {
        self.handle.join().unwrap_or_else(|panic| panic!("a thread panicked: {}", text_of(&*panic)))
    }
}

/// Starts a thread that belongs to the schedule of the current one.
///
/// # Panics
///
/// If the system cannot start another thread.
pub fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Spawned<T> {
    Spawned { handle: thread::spawn(name, work).expect("a test may start threads") }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests;
