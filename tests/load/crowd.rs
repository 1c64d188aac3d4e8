//! A thousand followers and a hundred writers: none is lost, memory stays as it is, and nobody feels those who are stuck.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{interval, sleep, timeout};

use crate::measure::{megabytes, millis, quantile};
use crate::served::Served;
use crate::wire::{Caller, Heard, begin_run, open_stream};
use crate::{alone, runtime, size};

const WRITERS: usize = 100;
const FOLLOWERS_EACH: usize = 10;
/// Of these, in every tenth run, one reads slowly.
const SLOW_EVERY: usize = 10;
const SLOW_PAUSE: Duration = Duration::from_millis(300);
const BATCH: usize = 2;
/// For how long it goes on with those who are stuck, and then without.
const PHASE: Duration = Duration::from_millis(1_500);
/// How long they take to get stuck, before anything is measured.
const SETTLE: Duration = Duration::from_millis(500);
const STUCK_ON_THE_LONG_RUN: usize = 20;
/// A window that is full soon.
const WINDOW: u32 = 4096;
/// How long the last events may take to arrive.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is measured.
    Between,
    Calm,
    Stuck,
    Over,
}

struct Scene {
    address: SocketAddr,
    phase: Cell<Phase>,
    /// How long appends took, with and without those who are stuck.
    calm: RefCell<Vec<Duration>>,
    stuck: RefCell<Vec<Duration>>,
    gaps: Cell<usize>,
}

/// An event of about 270 bytes as a line of the journal.
fn event(words: &str) -> String {
    format!("{{\"event\":\"token\",\"payload\":{{\"text\":\"{words}\"}}}}\n")
}

impl Scene {
    /// Appends at a bounded rate until it is over, then ends the run. Gives the number of its last event.
    async fn write(self: Rc<Self>, nth: usize, rate: usize) -> u64 {
        let mut caller = Caller::connect(self.address).await;
        let path = format!("/v1/sessions/s{nth}/runs/r/events");
        let batch = event("To the sea, ").repeat(BATCH);
        let pause = Duration::from_secs(1) / rate as u32;
        sleep(pause * nth as u32 / WRITERS as u32).await;
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.phase.get() != Phase::Over {
            ticks.tick().await;
            let (phase, begun) = (self.phase.get(), Instant::now());
            append(&mut caller, &path, &batch).await;
            match phase {
                _ if phase != self.phase.get() => {}
                Phase::Calm => self.calm.borrow_mut().push(begun.elapsed()),
                Phase::Stuck => self.stuck.borrow_mut().push(begun.elapsed()),
                Phase::Between | Phase::Over => {}
            }
        }
        append(&mut caller, &path, "{\"event\":\"done\"}\n").await
    }

    /// Reads to the end of the run, and sees every event once and in order. Gives the number of the last.
    async fn follow(self: Rc<Self>, nth: usize, is_slow: bool) -> u64 {
        let window = is_slow.then_some(WINDOW);
        let mut stream = open_stream(self.address, &format!("s{nth}"), window).await.unwrap();
        let (mut heard, mut seen) = (Heard::default(), Seen::default());
        let mut buffer = vec![0; if is_slow { 2048 } else { 16 * 1024 }];
        while !heard.is_over() {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "a follower of s{nth} was cut off behind {}", seen.last);
            heard.take(&buffer[..read], |line| seen.take(line));
            if is_slow && self.phase.get() != Phase::Over {
                sleep(SLOW_PAUSE).await;
            }
        }
        self.gaps.set(self.gaps.get() + seen.gaps);
        assert_eq!(seen.end, Some(seen.last), "s{nth} did not end in order");
        seen.last
    }

    /// Readers that take nothing: of a run that has more than fits between us, and of those that are written.
    async fn open_stuck(&self) -> Vec<TcpStream> {
        let mut stuck = Vec::new();
        let of_writers = (0..WRITERS).step_by(SLOW_EVERY).map(|nth| format!("s{nth}"));
        for session in (0..STUCK_ON_THE_LONG_RUN).map(|_| "long".to_owned()).chain(of_writers) {
            stuck.push(open_stream(self.address, &session, Some(WINDOW)).await.unwrap());
        }
        stuck
    }

    fn begin(&self, phase: Phase) {
        self.phase.set(phase);
    }
}

async fn append(caller: &mut Caller, path: &str, lines: &str) -> u64 {
    let (status, body) = caller.ask("POST", path, "application/x-ndjson", lines).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["last_seq"].as_u64().unwrap()
}

/// What a follower has seen.
#[derive(Debug, Default)]
struct Seen {
    last: u64,
    gaps: usize,
    is_end: bool,
    end: Option<u64>,
}

impl Seen {
    fn take(&mut self, line: &[u8]) {
        if let Some(id) = line.strip_prefix(b"id: r:") {
            let seq: u64 = std::str::from_utf8(id).unwrap().parse().unwrap();
            assert_eq!(seq, self.last + 1, "an event is missing, or came twice");
            self.last = seq;
        }
        self.gaps += usize::from(line == b"event: gap");
        self.is_end |= line == b"event: end";
        if let Some(data) = line.strip_prefix(b"data: ").filter(|_| self.is_end) {
            self.end = serde_json::from_slice::<Value>(data).unwrap()["last_seq"].as_u64();
        }
    }
}

#[test]
fn a_thousand_followers_and_a_hundred_writers() {
    let _turn = alone();
    let served = Served::start(&[]);
    runtime().block_on(LocalSet::new().run_until(load(&served)));
    assert!(!served.log().contains("panicked"), "{}", served.log());
}

async fn load(served: &Served) {
    let scene = Rc::new(Scene {
        address: served.address,
        phase: Cell::new(Phase::Between),
        calm: RefCell::default(),
        stuck: RefCell::default(),
        gaps: Cell::new(0),
    });
    prepare(&scene).await;
    let followers = follow_all(&scene);
    warm_up(&scene).await;
    let rate = size("LASTWORD_LOAD_RATE", 5);
    let writers: Vec<_> = (0..WRITERS).map(|nth| spawn_local(scene.clone().write(nth, rate))).collect();
    let memory = alternate(served, &scene, Duration::from_secs(size("LASTWORD_LOAD_SECONDS", 15) as u64)).await;
    scene.begin(Phase::Over);
    expect_all_seen(writers, followers).await;
    report(&scene, &memory);
}

/// A session and a run for each writer, and one run that is longer than what fits into the sockets of who follows.
async fn prepare(scene: &Rc<Scene>) {
    let mut caller = Caller::connect(scene.address).await;
    for nth in 0..WRITERS {
        begin_run(&mut caller, &format!("s{nth}")).await;
    }
    begin_run(&mut caller, "long").await;
    let large = event(&"x".repeat(20_000)).repeat(50);
    for _ in 0..4 {
        append(&mut caller, "/v1/sessions/long/runs/r/events", &large).await;
    }
}

fn follow_all(scene: &Rc<Scene>) -> Vec<(usize, JoinHandle<u64>)> {
    let places = (0..WRITERS).flat_map(|nth| (0..FOLLOWERS_EACH).map(move |at| (nth, at)));
    places.map(|(nth, at)| (nth, spawn_local(scene.clone().follow(nth, at == 0 && nth % SLOW_EVERY == 0)))).collect()
}

/// Everybody follows, and as much was said in each run as the server keeps of it in memory.
async fn warm_up(scene: &Rc<Scene>) {
    let mut caller = Caller::connect(scene.address).await;
    let wanted = format!("\nlastword_followers {}\n", WRITERS * FOLLOWERS_EACH);
    let all_follow = async {
        while !caller.get("/metrics").await.1.contains(&wanted) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, all_follow).await.expect("everybody follows");
    let large = event(&"x".repeat(20_000)).repeat(16);
    for nth in 0..WRITERS {
        append(&mut caller, &format!("/v1/sessions/s{nth}/runs/r/events"), &large).await;
    }
    // Once with those who are stuck, so that they have been there before memory is looked at.
    drop(settled(scene).await);
}

async fn settled(scene: &Scene) -> Vec<TcpStream> {
    let stuck = scene.open_stuck().await;
    sleep(SETTLE).await;
    stuck
}

/// Writers go on, with those who are stuck and without, in turns. Gives the server's memory over time.
async fn alternate(served: &Served, scene: &Scene, length: Duration) -> Vec<usize> {
    let (begun, mut memory) = (Instant::now(), Vec::new());
    while begun.elapsed() < length || memory.len() < 8 {
        sleep(SETTLE).await;
        scene.begin(Phase::Calm);
        memory.push(measured(served).await);
        scene.begin(Phase::Between);
        let stuck = settled(scene).await;
        scene.begin(Phase::Stuck);
        memory.push(measured(served).await);
        scene.begin(Phase::Between);
        drop(stuck);
    }
    memory
}

async fn measured(served: &Served) -> usize {
    sleep(PHASE).await;
    served.memory()
}

/// Each follower saw all of its run, to the end.
async fn expect_all_seen(writers: Vec<JoinHandle<u64>>, followers: Vec<(usize, JoinHandle<u64>)>) {
    let mut last_seqs = Vec::new();
    for writer in writers {
        last_seqs.push(timeout(PATIENCE, writer).await.expect("a writer ends").unwrap());
    }
    for (nth, follower) in followers {
        let seen = timeout(PATIENCE, follower).await.expect("a follower sees the end").unwrap();
        assert_eq!(seen, last_seqs[nth], "a follower of s{nth}");
    }
    eprintln!("{} events to {FOLLOWERS_EACH} followers each", last_seqs.iter().sum::<u64>());
}

/// A third of what was seen at the beginning, and of what was seen at the end.
fn report(scene: &Scene, memory: &[usize]) {
    let third = memory.len() / 3;
    let most = |part: &[usize]| *part.iter().max().unwrap();
    let (first, last) = (most(&memory[..third]), most(&memory[memory.len() - third..]));
    let over_time: Vec<usize> = memory.iter().map(|bytes| bytes / 1_000_000).collect();
    eprintln!("memory: {:.1} MB at first, {:.1} MB in the end: {over_time:?}", megabytes(first), megabytes(last));
    let (mut calm, mut stuck) = (scene.calm.borrow_mut(), scene.stuck.borrow_mut());
    for part in [0.5, 0.99] {
        let (calm, stuck) = (quantile(&mut calm, part), quantile(&mut stuck, part));
        eprintln!("append, p{}: {:.2} ms, {:.2} ms with stuck readers", part * 100.0, millis(calm), millis(stuck));
    }
    eprintln!("{} appends measured, {} gaps told", calm.len() + stuck.len(), scene.gaps.get());
    assert!(last as f64 <= first as f64 * 1.25 + 10e6, "memory grows: {memory:?}");
    // Half of all appends are as quick; the slowest of a hundred have what a busy machine does to them.
    assert!(quantile(&mut stuck, 0.5) <= quantile(&mut calm, 0.5) * 2 + Duration::from_millis(2), "writers feel it");
    assert!(quantile(&mut stuck, 0.99) <= quantile(&mut calm, 0.99) * 4 + Duration::from_millis(50), "writers feel it");
}

/// What a reader that takes nothing may keep of the server's memory: what is handed on at a time, and the connection.
const STUCK_BYTES_MAX: f64 = 260_000.0;

#[test]
fn stuck_readers_keep_a_bounded_part_of_memory() {
    let _turn = alone();
    let served = Served::start(&[]);
    runtime().block_on(LocalSet::new().run_until(async {
        let mut caller = Caller::connect(served.address).await;
        begin_run(&mut caller, "long").await;
        let lines = event(&"To the sea, ".repeat(20)).repeat(4_000);
        for _ in 0..4 {
            append(&mut caller, "/v1/sessions/long/runs/r/events", &lines).await;
        }
        sleep(SETTLE).await;
        let (before, stuck) = (served.memory(), size("LASTWORD_LOAD_STUCK", 300));
        let mut streams = Vec::new();
        for _ in 0..stuck {
            streams.push(open_stream(served.address, "long", Some(WINDOW)).await.unwrap());
        }
        sleep(SETTLE * 4).await;
        let bytes_each = served.memory().saturating_sub(before) as f64 / stuck as f64;
        eprintln!("{stuck} stuck readers: {:.1} KB each", bytes_each / 1e3);
        assert!(bytes_each <= STUCK_BYTES_MAX, "a stuck reader keeps {bytes_each} bytes");
    }));
}
