//! The scheduler: one thread has its turn, all others are parked.
//!
//! A schedule that fails is left as it is: its threads stay parked for as long as the process lives, because none of them can
//! be ended from outside, and what they hold would have to be taken apart in a state that is already wrong.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{CURRENT, Schedule, text_of};
use crate::entropy::SeededEntropy;

/// The schedule's time that a step takes.
const STEP: Duration = Duration::from_micros(1);

/// How long a thread may take, in real time, to come to its next step.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// What holds for one run.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) schedule: Schedule,
    pub(super) early_timeouts: bool,
    pub(super) steps_max: u64,
    pub(super) time_max: Duration,
}

/// The number of a thread, in the order in which they were started.
pub(crate) type ThreadNumber = usize;

/// Gives threads their turns.
#[derive(Debug)]
pub(super) struct Scheduler {
    state: Mutex<State>,
    /// Wakes the thread that waits for the end of all others.
    over: Condvar,
}

#[derive(Debug)]
struct State {
    threads: Vec<Thread>,
    /// The thread that runs.
    turn: Option<ThreadNumber>,
    now: Duration,
    steps: u64,
    rules: Rules,
    random: SeededEntropy,
    /// How many options each choice had.
    options: Vec<usize>,
    failure: Option<String>,
    is_over: bool,
}

#[derive(Debug)]
struct Thread {
    name: String,
    state: ThreadState,
    /// Wakes it when it has its turn.
    parked: Arc<Condvar>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Ready,
    Waits { wait: Wait, until: Option<Duration>, since_step: u64 },
    Ended,
}

impl Thread {
    /// The time limit of what it waits for.
    fn limit(&self) -> Option<Duration> {
        match self.state {
            ThreadState::Waits { until, .. } => until,
            ThreadState::Ready | ThreadState::Ended => None,
        }
    }
}

/// What a thread waits for. Locks and condition variables are known by their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Lock(usize),
    Signal(usize),
    End(ThreadNumber),
    Time,
}

/// A thread of a schedule, and its way to the scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Scheduled {
    scheduler: Arc<Scheduler>,
    number: ThreadNumber,
}

impl Scheduler {
    /// Runs `work` as the first thread of a schedule, and gives what it returned, or what went wrong, and how many options
    /// each choice had.
    pub(super) fn run<T: Send + 'static>(
        rules: Rules,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (Result<T, String>, Vec<usize>) {
        let scheduler = Arc::new(Scheduler { state: Mutex::new(State::new(rules)), over: Condvar::new() });
        let first = scheduler.begin_thread("first");
        let real = std::thread::Builder::new().name("first".to_owned()).spawn(move || first.run(work));
        let real = real.expect("a test may start threads");
        scheduler.state.lock().turn = Some(0);
        scheduler.await_end();
        let (failure, options) = {
            let mut state = scheduler.state.lock();
            (state.failure.clone(), std::mem::take(&mut state.options))
        };
        let outcome = match failure {
            Some(failure) => Err(failure),
            None => Ok(real.join().expect("a thread that panics is a failure")),
        };
        (outcome, options)
    }

    fn begin_thread(self: &Arc<Self>, name: &str) -> Scheduled {
        let mut state = self.state.lock();
        state.threads.push(Thread { name: name.to_owned(), state: ThreadState::Ready, parked: Arc::default() });
        Scheduled { scheduler: self.clone(), number: state.threads.len() - 1 }
    }

    fn await_end(&self) {
        let mut state = self.state.lock();
        let first = state.turn.map(|turn| state.threads[turn].parked.clone());
        if let Some(parked) = first {
            parked.notify_one();
        }
        while !state.is_over {
            let steps = state.steps;
            let is_late = self.over.wait_for(&mut state, STUCK_AFTER).timed_out();
            if is_late && state.steps == steps && !state.is_over {
                let what = format!("a thread takes longer than {STUCK_AFTER:?} to its next step");
                state.fail(&what);
            }
        }
    }

    /// Gives the turn to the next thread; to none when all have ended, or something is wrong.
    fn pass_turn(&self, state: &mut State, from: ThreadNumber) {
        state.turn = state.choose(from);
        match state.turn {
            Some(next) => state.threads[next].parked.notify_one(),
            None => self.over.notify_all() > 0,
        };
    }
}

impl State {
    fn new(rules: Rules) -> Self {
        let seed = if let Schedule::Seeded { seed, .. } = rules.schedule { seed } else { 0 };
        State {
            threads: Vec::new(),
            turn: None,
            now: Duration::ZERO,
            steps: 0,
            rules,
            random: SeededEntropy::new(seed),
            options: Vec::new(),
            failure: None,
            is_over: false,
        }
    }

    fn fail(&mut self, what: &str) {
        let threads: Vec<_> =
            self.threads.iter().map(|thread| format!("  {}: {:?}", thread.name, thread.state)).collect();
        let (steps, now) = (self.steps, self.now);
        let report = format!("{what}\nafter {steps} steps and {now:?}, with the threads\n{}", threads.join("\n"));
        self.failure.get_or_insert(report);
        (self.is_over, self.turn) = (true, None);
    }

    /// The thread that goes on. None when all have ended, or none can.
    fn choose(&mut self, from: ThreadNumber) -> Option<ThreadNumber> {
        if self.is_over {
            return None;
        }
        self.wake_those_due();
        let is_any = |state: ThreadState| self.threads.iter().any(|thread| thread.state == state);
        if self.threads.iter().all(|thread| thread.state == ThreadState::Ended) {
            self.is_over = true;
        } else if !is_any(ThreadState::Ready) && !self.pass_time() {
            self.fail("every thread waits for another");
        } else if self.steps > self.rules.steps_max {
            self.fail("it does not end");
        } else if self.now > self.rules.time_max {
            self.fail("it does not end in time");
        }
        if self.is_over {
            return None;
        }
        let candidates = self.candidates(from);
        let next = candidates[self.pick(candidates.len())];
        if let Some(until) = self.threads[next].limit() {
            self.now = self.now.max(until);
            self.threads[next].state = ThreadState::Ready;
        }
        Some(next)
    }

    /// The threads that can go on: the calm choice first, those whose time limit could pass last.
    fn candidates(&self, from: ThreadNumber) -> Vec<ThreadNumber> {
        let count = self.threads.len();
        let in_turn = || (from..from + count).map(|number| number % count);
        let is_ready = |number: &ThreadNumber| self.threads[*number].state == ThreadState::Ready;
        let may_time_out = |until: Duration| self.rules.early_timeouts && until <= self.rules.time_max;
        let is_limited = |number: &ThreadNumber| self.threads[*number].limit().is_some_and(may_time_out);
        in_turn().filter(is_ready).chain(in_turn().filter(is_limited)).collect()
    }

    /// Jumps to the next time limit. `false` if there is none.
    fn pass_time(&mut self) -> bool {
        let Some(next) = self.threads.iter().filter_map(Thread::limit).min() else { return false };
        self.now = self.now.max(next);
        self.wake_those_due();
        true
    }

    fn wake_those_due(&mut self) {
        let now = self.now;
        for thread in self.threads.iter_mut().filter(|thread| thread.limit().is_some_and(|until| until <= now)) {
            thread.state = ThreadState::Ready;
        }
    }

    /// One of so many options, as the schedule says.
    fn pick(&mut self, options: usize) -> usize {
        if options < 2 {
            return 0;
        }
        let choice = self.options.len();
        self.options.push(options);
        match &self.rules.schedule {
            Schedule::Calm => 0,
            Schedule::Deviating(deviations) => {
                deviations.iter().find(|(at, _)| *at == choice).map_or(0, |(_, option)| option % options)
            }
            Schedule::Seeded { one_in, .. } => match self.random.next_u64() % one_in {
                0 => (self.random.next_u64() % options as u64) as usize,
                _ => 0,
            },
        }
    }

    fn wake(&mut self, number: ThreadNumber) {
        self.threads[number].state = ThreadState::Ready;
    }

    /// Those who wait for this, the first to come first.
    fn waiting_for(&self, wanted: Wait) -> Vec<ThreadNumber> {
        let since = |number: &ThreadNumber| match self.threads[*number].state {
            ThreadState::Waits { wait, since_step, .. } if wait == wanted => Some(since_step),
            _ => None,
        };
        let mut waiting: Vec<_> = (0..self.threads.len()).filter(|number| since(number).is_some()).collect();
        waiting.sort_by_key(since);
        waiting
    }
}

impl Scheduled {
    /// The current thread, if it runs under a schedule.
    #[inline]
    pub(crate) fn current() -> Option<Scheduled> {
        // A thread that ends has none any more.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    pub(crate) fn number(&self) -> ThreadNumber {
        self.number
    }

    /// Another thread of the same schedule, which is still to be started.
    pub(crate) fn begin_thread(&self, name: &str) -> Scheduled {
        self.scheduler.begin_thread(name)
    }

    /// Does the work of this thread, in its turns.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        self.park(self.scheduler.state.lock());
        CURRENT.set(Some(self.clone()));
        let done = catch_unwind(AssertUnwindSafe(work));
        CURRENT.set(None);
        self.end(done.as_ref().err().map(|panic| text_of(&**panic)));
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn end(&self, panic: Option<&str>) {
        let mut state = self.scheduler.state.lock();
        state.threads[self.number].state = ThreadState::Ended;
        if let Some(text) = panic {
            let what = format!("{} panicked: {text}", state.threads[self.number].name);
            state.fail(&what);
        }
        state.waiting_for(Wait::End(self.number)).into_iter().for_each(|number| state.wake(number));
        self.scheduler.pass_turn(&mut state, self.number);
    }

    /// Lets another thread go on, if the schedule says so.
    pub(crate) fn step(&self) {
        let mut state = self.scheduler.state.lock();
        state.steps += 1;
        state.now += STEP;
        self.scheduler.pass_turn(&mut state, self.number);
        self.park(state);
    }

    /// Waits for the turn of this thread.
    fn park(&self, mut state: MutexGuard<'_, State>) {
        let parked = state.threads[self.number].parked.clone();
        while state.turn != Some(self.number) {
            parked.wait(&mut state);
        }
    }

    fn wait(&self, wait: Wait, limit: Option<Duration>) {
        let mut state = self.scheduler.state.lock();
        state.steps += 1;
        let (until, since_step) = (limit.map(|limit| state.now.saturating_add(limit)), state.steps);
        state.threads[self.number].state = ThreadState::Waits { wait, until, since_step };
        self.scheduler.pass_turn(&mut state, self.number);
        self.park(state);
    }

    pub(crate) fn wait_for_lock(&self, address: usize) {
        self.wait(Wait::Lock(address), None);
    }

    pub(crate) fn wait_for_signal(&self, address: usize, limit: Option<Duration>) {
        self.wait(Wait::Signal(address), limit);
    }

    pub(crate) fn wait_for_end(&self, number: ThreadNumber) {
        let has_ended = self.scheduler.state.lock().threads[number].state == ThreadState::Ended;
        if !has_ended {
            self.wait(Wait::End(number), None);
        }
    }

    pub(crate) fn sleep(&self, time: Duration) {
        self.wait(Wait::Time, Some(time));
    }

    pub(crate) fn now(&self) -> Duration {
        let mut state = self.scheduler.state.lock();
        state.now += STEP;
        state.now
    }

    /// Those who wait for a lock can try again.
    pub(crate) fn note_unlocked(&self, address: usize) {
        let mut state = self.scheduler.state.lock();
        state.waiting_for(Wait::Lock(address)).into_iter().for_each(|number| state.wake(number));
    }

    pub(crate) fn notify_one(&self, address: usize) {
        self.step();
        let mut state = self.scheduler.state.lock();
        let waiting = state.waiting_for(Wait::Signal(address));
        if !waiting.is_empty() {
            let first = waiting[state.pick(waiting.len())];
            state.wake(first);
        }
    }

    pub(crate) fn notify_all(&self, address: usize) {
        self.step();
        let mut state = self.scheduler.state.lock();
        state.waiting_for(Wait::Signal(address)).into_iter().for_each(|number| state.wake(number));
    }
}
