//! Chaos with a seed: producers with leases that work, only renew, die and come back; readers that are cut; and a server that
//! is stopped, killed and started again, with its wall clock set ahead so that the grace of its runs is over.
//!
//! `LASTWORD_CHAOS_SECONDS` and `LASTWORD_CHAOS_SEED` choose a longer run and another seed; `.ci/soak` sets them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lastword::Event;
use lastword::client::ClientError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::conversation::{Conversation, question};
use crate::dice::Dice;
use crate::event_source::{EventSource, Frame};
use crate::fake_clock::FakeClock;
use crate::host::{DEADLINE, Host, in_time, outside, run_id, runtime};
use crate::table::Signal;
use crate::verdict::{check_directory, journal, names, texts};

const SESSIONS: u64 = 4;
const SECONDS: u64 = 12;
const SEED: u64 = 7;
const HOUR: i64 = 3_600;

/// What all tasks share.
struct Weather {
    /// No more runs begin.
    is_enough: AtomicBool,
    /// No producer comes back any more: a run that is reported as orphaned stays so.
    is_settled: AtomicBool,
    /// When the server was awake: each time since which every lease counts anew (its start, the end of a pause), and when it
    /// was stopped or killed. The last one has no end yet.
    awake: Mutex<Vec<(Instant, Option<Instant>)>>,
}

impl Weather {
    fn is_enough(&self) -> bool {
        self.is_enough.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        self.awake.lock().push((Instant::now(), None));
    }

    fn end_awake(&self) {
        self.awake.lock().last_mut().into_iter().for_each(|(_, until)| *until = Some(Instant::now()));
    }

    /// The longest time without a sign of life that the server can have counted since this one.
    fn longest_silence(&self, last_sign: Instant) -> Duration {
        let now = Instant::now();
        let silence = |(since, until): &(Instant, Option<Instant>)| {
            until.unwrap_or(now).saturating_duration_since(last_sign.max(*since))
        };
        self.awake.lock().iter().map(silence).max().unwrap_or_default()
    }
}

/// The outcome of a producer.
#[derive(Debug)]
struct Produced {
    run: String,
    /// The texts that were acknowledged.
    texts: Vec<String>,
    is_done: bool,
    /// What was sent when the run was found to be sealed.
    refused: Option<String>,
}

/// How a producer goes on after its first words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// It appends and ends.
    Works,
    /// It renews its lease for longer than that lasts, then appends and ends.
    Renews,
    /// It never comes back.
    Dies,
    /// It is silent for a while, perhaps beyond its lease, then appends and ends.
    ComesBack,
}

struct Producer {
    conversation: Conversation,
    weather: Arc<Weather>,
    dice: Dice,
    lease: Duration,
    /// When the request of the last sign of life was sent.
    last_sign: Instant,
    produced: Produced,
}

impl Producer {
    /// Does what its plan says. Drops `working` when the next run may be tried: it is silent, or over.
    async fn work(mut self, plan: Plan, working: oneshot::Sender<()>) -> Produced {
        let mut working = Some(working);
        let words = self.dice.below(6);
        if self.say(words).await {
            match plan {
                Plan::Works => {}
                Plan::Renews => self.renew_beyond_the_lease().await,
                Plan::Dies => return self.produced,
                Plan::ComesBack => {
                    drop(working.take());
                    let silence = self.lease.mul_f64(0.3 + self.dice.below(50) as f64 / 10.0);
                    tokio::time::sleep(silence).await;
                }
            }
            let words = 1 + self.dice.below(12);
            if self.produced.refused.is_none() && self.say(words).await {
                self.produced.is_done = self.append(None).await;
            }
        }
        self.produced
    }

    async fn say(&mut self, words: u64) -> bool {
        for _ in 0..words {
            let text = format!("{}/{}.", self.produced.run, self.produced.texts.len() + 1);
            if !self.append(Some(text)).await {
                return false;
            }
            tokio::time::sleep(self.dice.millis(200)).await;
        }
        true
    }

    /// Appends a token, or the end, again and again until it is answered. Says whether it was accepted.
    async fn append(&mut self, text: Option<String>) -> bool {
        let event = text.as_deref().map_or_else(Event::done, Event::token);
        let (run, seq) = (self.produced.run.clone(), self.produced.texts.len() as u64 + 1);
        loop {
            let sent = Instant::now();
            match self.conversation.append(&run, seq, std::slice::from_ref(&event)).await {
                Ok(last_seq) => {
                    assert_eq!(last_seq, seq, "{run}");
                    self.last_sign = sent;
                    self.produced.texts.extend(text);
                    return true;
                }
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(30)).await,
                Err(error) => {
                    self.check_refusal(&error);
                    self.produced.refused = Some(text.unwrap_or_default());
                    return false;
                }
            }
        }
    }

    async fn renew_beyond_the_lease(&mut self) {
        let until = Instant::now() + self.lease.mul_f64(1.5);
        while Instant::now() < until && self.produced.refused.is_none() {
            let sent = Instant::now();
            let run = run_id(&self.produced.run);
            match self.conversation.client.renew_lease(&self.conversation.session, &run).await {
                Ok(last_seq) => {
                    assert_eq!(last_seq, self.produced.texts.len() as u64, "{run}: what is there was acknowledged");
                    self.last_sign = sent;
                }
                Err(error) if error.is_transient() => {}
                Err(error) => {
                    self.check_refusal(&error);
                    self.produced.refused = Some(String::new());
                }
            }
            tokio::time::sleep(self.lease / 5).await;
        }
    }

    /// Only a producer that was silent for longer than its lease, in awake time of the server, may find its run sealed.
    fn check_refusal(&self, error: &ClientError) {
        let run = &self.produced.run;
        assert_eq!(error.code(), Some("sealed"), "{run} of {}: {error}", self.conversation.session);
        let silence = self.weather.longest_silence(self.last_sign);
        let session = &self.conversation.session;
        assert!(silence > self.lease, "{run} of {session} was sealed after {silence:?}, its lease is {:?}", self.lease);
    }
}

/// What a reader saw: the ids and lines of events, in order.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

fn note(seen: &Seen, frame: Frame, path: &str) {
    assert_ne!(frame.event, "snapshot", "{path}: a reader is told to forget: {frame:?}");
    if frame.is_event() {
        seen.lock().push((frame.id.unwrap_or_default(), frame.data.unwrap_or_default()));
    }
}

/// How a reader is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// It is connected most of the time, and cut now and then.
    Stays,
    /// It comes for a moment and is away for longer, until no more runs begin: meanwhile no reader waits for a run.
    Visits,
}

impl Habit {
    /// How long a connection lasts, if it is cut.
    fn cut_after(self, dice: &mut Dice) -> Option<Duration> {
        match self {
            Habit::Stays => (dice.below(3) == 0).then(|| dice.millis(1_500)),
            Habit::Visits => Some(dice.millis(500)),
        }
    }

    fn is_away_for(self, dice: &mut Dice, weather: &Weather) -> Duration {
        match self {
            Habit::Visits if !weather.is_enough() => dice.millis(6_000),
            _ => Duration::from_millis(50),
        }
    }
}

/// What a reader reads.
struct Target {
    address: String,
    path: String,
    habit: Habit,
}

/// Follows a stream over any number of connections, some of which it cuts, until it sees the end that `is_over` looks for.
async fn follow(
    target: Target,
    weather: Arc<Weather>,
    mut dice: Dice,
    seen: Seen,
    is_over: impl Fn(&Weather, &Frame) -> bool,
) {
    let Target { address, path, habit } = target;
    let mut last_id: Option<String> = None;
    loop {
        if let Ok(mut source) = EventSource::connect(&address, &path, last_id.as_deref()).await {
            let cut_after = habit.cut_after(&mut dice).filter(|_| habit == Habit::Stays || !weather.is_enough());
            let cut = async {
                match cut_after {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            let reading = async {
                while let Some(frame) = source.next().await {
                    let is_over = is_over(&weather, &frame);
                    note(&seen, frame, &path);
                    if is_over {
                        return true;
                    }
                }
                false
            };
            let is_over = tokio::select! { is_over = reading => is_over, () = cut => false };
            last_id = source.last_id;
            if is_over {
                return;
            }
        }
        tokio::time::sleep(habit.is_away_for(&mut dice, &weather)).await;
    }
}

/// A run, its producer and its readers.
struct Story {
    run: String,
    producing: JoinHandle<Produced>,
    readers: Vec<(JoinHandle<()>, Seen)>,
}

/// Begins a run when the one before has ended or is dead. Says whether it began before it was enough.
async fn begin(conversation: &Conversation, run: &str, lease: Duration, weather: &Weather) -> bool {
    let new = outside(&run_id(run), &question(run), Some(lease.as_secs_f64()));
    loop {
        match conversation.client.begin_run(&conversation.session, &new).await {
            Ok(_) => return true,
            // An answer that was lost: the run has begun, and may be over.
            Err(error) if error.code() == Some("exists") => return true,
            Err(error) if error.is_transient() => {}
            Err(error) => {
                assert_eq!(error.code(), Some("run_in_progress"), "{run}: {error}");
                if weather.is_enough() {
                    return false;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs of a session one after the other, until it is enough.
async fn live(conversation: Conversation, weather: Arc<Weather>, mut dice: Dice, habit: Habit) -> Vec<Story> {
    let mut stories = Vec::new();
    while !weather.is_enough() {
        let run = format!("r{}", stories.len() + 1);
        let lease = Duration::from_millis(1_000 + 400 * dice.below(3));
        let sent = Instant::now();
        if !begin(&conversation, &run, lease, &weather).await {
            break;
        }
        let plan = match dice.below(8) {
            0..=2 => Plan::Works,
            3 | 4 => Plan::Renews,
            5 => Plan::Dies,
            _ => Plan::ComesBack,
        };
        let produced = Produced { run: run.clone(), texts: Vec::new(), is_done: false, refused: None };
        let producer = Producer {
            conversation: conversation.clone(),
            weather: weather.clone(),
            dice: Dice(dice.roll()),
            lease,
            last_sign: sent,
            produced,
        };
        let (working, is_silent) = oneshot::channel();
        let producing = tokio::spawn(producer.work(plan, working));
        let readers = (0..dice.below(3)).map(|_| {
            let seen = Seen::default();
            let followed = run.clone();
            let is_over = move |weather: &Weather, frame: &Frame| {
                frame.end().filter(|(of, ..)| *of == followed).is_some_and(|(.., state)| {
                    assert_ne!(state, "gone", "{followed}");
                    state != "orphaned" || weather.is_settled.load(Ordering::Relaxed)
                })
            };
            let target = Target { address: conversation.address.clone(), path: conversation.path_of_run(&run), habit };
            let following = follow(target, weather.clone(), Dice(dice.roll()), seen.clone(), is_over);
            (tokio::spawn(following), seen)
        });
        let readers = readers.collect();
        stories.push(Story { run, producing, readers });
        // The sender is only ever dropped.
        let _ = is_silent.await;
    }
    stories
}

/// Reads the session now and then, for as long as it is let.
async fn read_on(conversation: Conversation, mut dice: Dice) {
    loop {
        let _ = conversation.client.session(&conversation.session).await;
        tokio::time::sleep(dice.millis(1_000)).await;
    }
}

/// Stops, kills and starts the server at random moments.
fn rage(host: &mut Host, clock: &FakeClock, weather: &Weather, dice: &mut Dice, time: Duration) {
    let (until, mut hours) = (Instant::now() + time, 0);
    while Instant::now() < until {
        // Leases lapse only in calm weather: a start and a pause grant them anew.
        let calm = if dice.below(2) == 0 { 5_000 } else { 1_000 };
        std::thread::sleep(Duration::from_millis(200 + dice.below(calm)));
        if dice.below(3) == 0 {
            let pause = Duration::from_millis(1_500 + dice.below(2_500));
            println!("a pause of {pause:?}");
            host.signal(Signal::STOP);
            weather.end_awake();
            std::thread::sleep(pause);
            weather.wake();
            host.signal(Signal::CONT);
        } else {
            hours += i64::from(dice.below(3) > 0);
            println!("killed; the clock is {hours} h ahead");
            host.kill();
            weather.end_awake();
            std::thread::sleep(dice.millis(400));
            restart(host, clock, weather, hours);
        }
    }
    host.kill();
    weather.end_awake();
    restart(host, clock, weather, hours + 1);
}

fn restart(host: &mut Host, clock: &FakeClock, weather: &Weather, hours: i64) {
    clock.set(hours * HOUR);
    weather.wake();
    host.revive();
}

/// All that happened in a session.
struct History {
    conversation: Conversation,
    runs: Vec<(Produced, Vec<Seen>)>,
    of_session: Seen,
    following: JoinHandle<()>,
}

/// Waits until a session is over: its producers, then the readers of its runs.
async fn settle(stories: Vec<Story>, weather: &Weather, left: &AtomicU64) -> Vec<(Produced, Vec<Seen>)> {
    let mut produced = Vec::new();
    let mut readers = Vec::new();
    for story in stories {
        let of_run = in_time(&format!("the producer of {}", story.run), DEADLINE, story.producing).await;
        produced.push(of_run.expect("a producer does not break"));
        readers.push(story.readers);
    }
    left.fetch_sub(1, Ordering::Relaxed);
    while left.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    weather.is_settled.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for (produced, readers) in produced.into_iter().zip(readers) {
        let mut seen = Vec::new();
        for (reading, of_run) in readers {
            let run = &produced.run;
            let ended = in_time(&format!("the end of {run} for its reader"), DEADLINE, reading).await;
            ended.unwrap_or_else(|broken| panic!("a reader of {run} breaks: {broken}"));
            seen.push(of_run);
        }
        all.push((produced, seen));
    }
    all
}

impl History {
    /// Waits until the reader of the session has seen as much as there is.
    async fn complete(&self) {
        let mut expected = 0;
        for (produced, _) in &self.runs {
            let events = self.conversation.client.events(&self.conversation.session, &run_id(&produced.run), 0).await;
            let mut events = events.expect("the run can be read");
            while events.next().await.expect("the run can be read").is_some() {
                expected += 1;
            }
        }
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.of_session.lock().len() < expected && Instant::now() < deadline {
            assert!(!self.following.is_finished(), "the reader of {} breaks", self.conversation.session);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.following.abort();
    }

    fn judge(&self, host: &Host) {
        let session = self.conversation.session.as_str();
        let mut all = HashSet::new();
        for (produced, readers) in &self.runs {
            let run = &produced.run;
            let lines = journal(&host.data, session, run);
            check_produced(session, produced, &lines);
            let ids = (1..).map(|seq| format!("{run}:{seq}"));
            let events: Vec<(String, String)> = ids.zip(lines).collect();
            for seen in readers {
                assert_eq!(*seen.lock(), events, "a reader of {run} of {session}");
            }
            all.extend(events);
        }
        let seen = self.of_session.lock();
        let distinct: HashSet<(String, String)> = seen.iter().cloned().collect();
        let ids: Vec<&String> = seen.iter().map(|(id, _)| id).collect();
        assert_eq!(distinct.len(), seen.len(), "the reader of {session} saw events twice: {ids:?}");
        let missed: Vec<&String> = all.difference(&distinct).map(|(id, _)| id).collect();
        assert!(missed.is_empty(), "the reader of {session} missed {missed:?}: {ids:?}");
        assert_eq!(distinct, all, "{session}");
        for (produced, _) in &self.runs {
            let of_run: Vec<u64> = ids.iter().filter_map(|id| seq_in(id, &produced.run)).collect();
            assert!(of_run.is_sorted(), "the reader of {session} saw {} out of order: {ids:?}", produced.run);
        }
    }
}

fn seq_in(id: &str, run: &str) -> Option<u64> {
    id.strip_prefix(run)?.strip_prefix(':')?.parse().ok()
}

fn run_of(id: &str) -> &str {
    id.rsplit_once(':').map_or(id, |(run, _)| run)
}

/// Every acknowledged event is in the journal once and in order, and nothing else but the end that the server wrote.
fn check_produced(session: &str, produced: &Produced, lines: &[String]) {
    let Produced { run, texts: said, is_done, refused } = produced;
    let found = texts(lines, "token");
    let with_refused: Vec<&String> = said.iter().chain(refused).collect();
    assert!(found.iter().eq(said) || found.iter().eq(with_refused), "{run} of {session}: {found:?}, not {produced:?}");
    let last = names(lines).into_iter().next_back();
    let is_ended = last.as_deref() == Some("done");
    assert!(is_ended == *is_done || refused.is_some(), "{run} of {session} ends with {last:?}: {produced:?}");
    let own_ends = names(lines).iter().filter(|name| *name != "token").count();
    assert!(own_ends <= 1, "{run} of {session}: {:?}", names(lines));
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn no_live_producer_is_given_up_and_no_reader_misses_anything_whatever_happens_to_the_server() {
    let seconds = number("LASTWORD_CHAOS_SECONDS").unwrap_or(SECONDS);
    let seed = number("LASTWORD_CHAOS_SEED").unwrap_or(SEED);
    println!("LASTWORD_CHAOS_SEED={seed} LASTWORD_CHAOS_SECONDS={seconds}");
    let (runtime, clock, mut dice) = (runtime(), FakeClock::ahead(0), Dice(seed));
    let mut host = clock.start(&["--log", "warn"]);
    let weather = Arc::new(Weather {
        is_enough: AtomicBool::new(false),
        is_settled: AtomicBool::new(false),
        awake: Mutex::new(vec![(Instant::now(), None)]),
    });
    let begun = (0..SESSIONS).map(|number| {
        let conversation = runtime.block_on(Conversation::create(&host, &format!("s{number}")));
        let of_session = Seen::default();
        let habit = if number % 2 == 0 { Habit::Stays } else { Habit::Visits };
        let target = Target { address: conversation.address.clone(), path: conversation.path(), habit };
        let following = follow(target, weather.clone(), Dice(dice.roll()), of_session.clone(), |_, _| false);
        let following = runtime.spawn(following);
        let reading = runtime.spawn(read_on(conversation.clone(), Dice(dice.roll())));
        let living = runtime.spawn(live(conversation.clone(), weather.clone(), Dice(dice.roll()), habit));
        (conversation, of_session, following, reading, living)
    });
    let begun: Vec<_> = begun.collect();
    rage(&mut host, &clock, &weather, &mut dice, Duration::from_secs(seconds));
    weather.is_enough.store(true, Ordering::Relaxed);
    let left = AtomicU64::new(SESSIONS);
    let histories = runtime.block_on(async {
        let settling = begun.into_iter().map(|(conversation, of_session, following, reading, living)| {
            let (weather, left) = (&weather, &left);
            async move {
                let stories =
                    in_time("a session's last run", DEADLINE, living).await.expect("a session does not break");
                let runs = settle(stories, weather, left).await;
                reading.abort();
                History { conversation, runs, of_session, following }
            }
        });
        let histories = futures_util::future::join_all(settling).await;
        for history in &histories {
            history.complete().await;
        }
        histories
    });
    // Reads resolve what is left.
    histories.iter().for_each(|history| drop(runtime.block_on(history.conversation.read())));
    host.stop();
    for history in &histories {
        history.judge(&host);
        let done = history.runs.iter().filter(|(produced, _)| produced.is_done).count();
        let refused = history.runs.iter().filter(|(produced, _)| produced.refused.is_some()).count();
        let runs = history.runs.len();
        let ids: Vec<String> = history.of_session.lock().iter().map(|(id, _)| id.clone()).collect();
        let changes = ids.windows(2).filter(|pair| run_of(&pair[0]) != run_of(&pair[1])).count();
        let distinct = ids.iter().map(|id| run_of(id)).collect::<HashSet<_>>().len();
        let continued = (changes + 1).saturating_sub(distinct);
        println!("{} continued {continued} times", history.conversation.session);
        println!("{}: {runs} runs, {done} completed, {refused} came back too late", history.conversation.session);
    }
    check_directory(&host.data);
}
