//! The process that writes and is killed: it appends to eight runs at once and says what was acknowledged, at once.
//!
//! It is this test program, started again for the one test below, with an order in its environment.

use std::env;
use std::io::{self, Read, Write};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use lastword::{Event, Run, Store};

use crate::data::{run_id, session_id};
use crate::order::{Afterwards, Order, STREAMS, Way};
use crate::process::Process;

const ORDER: &str = "LASTWORD_REAL_ORDER";
/// What it says when everything is acknowledged: it closes its store now.
pub(crate) const CLOSING: &str = "closing";
/// What it says when everything is acknowledged and it waits for its end.
pub(crate) const STAYING: &str = "staying";

/// Starts a writing process.
pub(crate) fn start(order: &Order) -> Process {
    let mut command = Command::new(env::current_exe().expect("this program has a file"));
    command.args(["--exact", "child::writes_when_it_is_told_to", "--nocapture"]);
    command.env(ORDER, serde_json::to_string(order).expect("an order is JSON"));
    Process::start(command)
}

/// The last events of each stream that were acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acks {
    pub(crate) appended: [u64; STREAMS],
    pub(crate) durable: [u64; STREAMS],
    pub(crate) count: u64,
}

impl Acks {
    /// Notes what a line of output says, if it is an acknowledgement.
    pub(crate) fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let &["ack", stream, seq, kind] = words.as_slice() else { return };
        let stream: usize = stream.parse().expect("a stream is a number");
        let seq: u64 = seq.parse().expect("an event has a number");
        match kind {
            // Two syncs may be told of by two threads; the later one covers the earlier.
            "durable" => self.durable[stream] = self.durable[stream].max(seq),
            _ => {
                let last = std::mem::replace(&mut self.appended[stream], seq);
                assert!(last < seq, "stream {stream} acknowledged {seq} after {last}");
            }
        }
        self.count += 1;
    }
}

/// One line in one write, so that whoever kills this process has all of it or nothing.
fn say(line: &str) {
    let line = format!("{line}\n");
    io::stdout().lock().write_all(line.as_bytes()).expect("somebody listens");
}

fn acknowledge(stream: usize, seq: u64, kind: &str) {
    say(&format!("ack {stream} {seq} {kind}"));
}

/// Not a test unless there is an order: then the test is in the process that gave it.
#[test]
fn writes_when_it_is_told_to() {
    let Ok(order) = env::var(ORDER) else { return };
    // The harness may have begun a line.
    say("");
    work(&serde_json::from_str(&order).expect("an order can be read"));
}

fn work(order: &Order) {
    let store = Store::open(&order.data, order.options()).expect("the directory can be opened");
    thread::scope(|scope| {
        for stream in 0..STREAMS {
            let store = &store;
            scope.spawn(move || write_stream(order, store, stream));
        }
    });
    match order.afterwards {
        Afterwards::Stay => say(STAYING),
        Afterwards::Close => {
            say(CLOSING);
            drop(store);
        }
    }
    await_the_end();
}

/// Whoever started this process kills it. If that one is gone, there is no more input.
fn await_the_end() {
    let _ = io::stdin().read(&mut [0]);
}

/// Sends a stream's events, and waits until all of them are acknowledged.
fn write_stream(order: &Order, store: &Store, stream: usize) {
    let run = store.resume_run(&session_id(stream), &run_id()).expect("the run goes on");
    let (told, all_told) = channel();
    let first = run.last_seq() + 1;
    for seq in first..first + order.events {
        append(order, &run, stream, seq, &told);
    }
    drop(told);
    // Ends when the last callback has let go of its end.
    all_told.into_iter().for_each(drop);
}

fn append(order: &Order, run: &Run, stream: usize, seq: u64, told: &Sender<()>) {
    let event = Event::token(&order.text(stream, seq));
    let way = order.way(stream, seq);
    let appended = match way {
        Way::Buffered => run.append(event),
        Way::Waited | Way::Told => run.append_durable(event),
    };
    let appended = appended.expect("an event can be appended");
    assert_eq!((appended.first_seq, appended.last_seq), (seq, seq), "stream {stream}");
    acknowledge(stream, seq, "appended");
    match way {
        Way::Buffered => {}
        Way::Waited => {
            appended.wait().expect("a sync succeeds").expect("durability was asked for");
            acknowledge(stream, seq, "durable");
        }
        Way::Told => {
            let told = told.clone();
            appended.on_durable(move |outcome| {
                outcome.expect("a sync succeeds").expect("durability was asked for");
                acknowledge(stream, seq, "durable");
                drop(told);
            });
        }
    }
}
