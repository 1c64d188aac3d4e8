//! `append` is killed at random moments and taken up again, many times over.

use std::fs;
use std::time::{Duration, Instant};

use crate::data::{BUFFERED, DONE, DURABLE, Data, answered, seq_of, token, transcript};
use crate::process::Process;

/// Repeatable chance (splitmix64).
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}

/// What an attempt sends as this event. No two are the same, most are short, some are long enough to be torn.
fn text_of(seed: u64, attempt: u64, seq: u64) -> String {
    let mut dice = Dice(seed ^ (attempt << 48) ^ (seq << 16));
    let letters = ["a", "é", "漢字", "🦀", "\"", "\\", "\n", "\u{2028}"];
    let length = if dice.below(10) == 0 { 100_000 + dice.below(200_000) } else { dice.below(80) };
    let mut text = format!("{attempt}/{seq}:");
    let phrase: String = (0..7).map(|_| letters[dice.below(8) as usize]).collect();
    text.push_str(&phrase.repeat(length as usize / phrase.len() + 1));
    // White space at the end of an answer is not kept in the transcript.
    text + "."
}

/// When to kill.
#[derive(Debug)]
enum Moment {
    Acknowledged(u64),
    Passed(Duration),
    /// As soon as a write is seen, which then is often still at work.
    Written,
}

impl Moment {
    fn choose(dice: &mut Dice) -> Self {
        match dice.below(3) {
            0 => Moment::Acknowledged(dice.below(60)),
            1 => Moment::Passed(Duration::from_micros(dice.below(30_000))),
            _ => Moment::Written,
        }
    }

    /// Waits for it, and gives the last number that was acknowledged meanwhile.
    fn wait(&self, data: &Data, process: &Process) -> Option<u64> {
        match *self {
            Moment::Acknowledged(count) => (0..count).map_while(|_| process.next_line()).last().map(|ack| seq_of(&ack)),
            Moment::Passed(delay) => {
                std::thread::sleep(delay);
                None
            }
            Moment::Written => {
                wait_for_growth(data);
                None
            }
        }
    }
}

fn wait_for_growth(data: &Data) {
    let len = || fs::metadata(data.journal()).expect("the journal is there").len();
    let (before, deadline) = (len(), Instant::now() + Duration::from_secs(30));
    while len() == before {
        assert!(Instant::now() < deadline, "nothing is written");
        std::hint::spin_loop();
    }
}

/// A run that is killed again and again, and what is known to be in it.
struct Ordeal {
    data: Data,
    append: [&'static str; 5],
    seed: u64,
    attempts: u64,
    texts: Vec<String>,
}

impl Ordeal {
    fn begin(append: [&'static str; 5], seed: u64) -> Self {
        Ordeal { data: Data::with_turn(), append, seed, attempts: 0, texts: Vec::new() }
    }

    /// Feeds the run until the moment has come, kills it, and looks at what is left.
    fn kill_at(&mut self, moment: &Moment) {
        self.attempts += 1;
        let (seed, attempt, first) = (self.seed, self.attempts, self.texts.len() as u64 + 1);
        let mut process = self.data.start(&self.append);
        process.feed((first..).map(move |seq| token(&text_of(seed, attempt, seq))));
        let acknowledged = moment.wait(&self.data, &process);
        process.kill();
        let rest = process.end().lines.last().map(|ack| seq_of(ack));
        self.judge(first, rest.or(acknowledged).unwrap_or(first - 1), moment);
    }

    /// Everything acknowledged is there, and what else is there is what was sent next.
    fn judge(&mut self, first: u64, acknowledged: u64, moment: &Moment) {
        let context = format!("seed {}, attempt {}, {moment:?}", self.seed, self.attempts);
        let found = self.data.tail_after(first - 1);
        for (event, seq) in found.iter().zip(first..) {
            assert_eq!(event.seq, seq, "{context}");
            assert!(
                event.text == text_of(self.seed, self.attempts, seq),
                "{context}: event {seq} is not what was sent"
            );
        }
        let last = first - 1 + found.len() as u64;
        assert!(last >= acknowledged, "{context}: {acknowledged} was acknowledged, {last} is the last one there");
        self.texts.extend(found.into_iter().map(|event| event.text));
    }

    /// Ends the run in peace. Its journal and its transcript hold every event once.
    fn finish(self) {
        let last = self.texts.len() as u64 + 1;
        assert_eq!(self.data.append(&self.append, &[DONE.to_owned()]), [last]);
        let found = self.data.sound_tail();
        assert!(found.iter().map(|event| event.seq).eq(1..=last), "seed {}: numbers repeat or lack", self.seed);
        assert!(found.iter().map(|event| &event.text).eq(self.texts.iter().chain([&String::new()])), "{}", self.seed);
        let session = self.data.stored().expect("the session is there");
        assert!(transcript(&session) == answered(&self.texts.concat()), "seed {}: not the whole answer", self.seed);
    }
}

fn survive(append: [&'static str; 5], seeds: std::ops::Range<u64>, kills: usize) {
    for seed in seeds {
        let mut dice = Dice(seed);
        let mut ordeal = Ordeal::begin(append, seed);
        (0..kills).for_each(|_| ordeal.kill_at(&Moment::choose(&mut dice)));
        assert!(!ordeal.texts.is_empty(), "seed {seed}: nothing was ever appended");
        ordeal.finish();
    }
}

#[test]
fn every_acknowledged_event_survives_forty_kills_of_buffered_appends_exactly_once() {
    survive(BUFFERED, 1..5, 10);
}

#[test]
fn every_acknowledged_event_survives_twenty_kills_of_durable_appends_exactly_once() {
    survive(DURABLE, 101..105, 5);
}
