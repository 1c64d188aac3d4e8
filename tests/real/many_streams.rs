//! Eight streams at once in one process, killed at any moment and taken up again by the next, many times over.

use crate::child::{self, Acks};
use crate::data::Data;
use crate::moment::Moment;
use crate::order::{Afterwards, Dice, Manner, Order};
use crate::readers::Readers;

/// A directory that processes are killed on again and again.
struct Ordeal {
    data: Data,
    order: Order,
    dice: Dice,
}

impl Ordeal {
    fn begin(manner: Manner, has_small_log: bool, seed: u64) -> Self {
        let data = Data::with_turns();
        let order = Order {
            data: data.root.clone(),
            seed,
            round: 0,
            manner,
            has_small_log,
            has_huge_events: true,
            events: 0,
            afterwards: Afterwards::Close,
        };
        Ordeal { data, order, dice: Dice(seed) }
    }

    /// Lets a process write until the moment has come, kills it, and looks at what is left.
    fn kill_once(&mut self, readers: Option<&Readers>) {
        let moment = Moment::choose(&mut self.dice);
        self.order.round += 1;
        self.order.events = moment.events();
        // Shown by the test harness if a check fails.
        println!("seed {}, round {}, {moment:?}", self.order.seed, self.order.round);
        let mut acks = Acks::default();
        let mut process = child::start(&self.order);
        moment.wait(&process, &self.data.commit_log(), &mut acks);
        process.kill();
        let ended = process.end();
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended.lines.iter().for_each(|line| acks.note(line));
        let shown = readers.map(Readers::seen);
        let found = self.data.look();
        self.data.judge(&self.order, &acks, &found);
        for (events, seen) in found.iter().zip(shown.into_iter().flatten()) {
            assert!(events.len() as u64 >= seen, "a reader saw event {seen}, and {} are left", events.len());
        }
    }
}

fn survive(manner: Manner, has_small_log: bool, seeds: std::ops::Range<u64>, kills: usize) {
    for seed in seeds {
        let mut ordeal = Ordeal::begin(manner, has_small_log, seed);
        (0..kills).for_each(|_| ordeal.kill_once(None));
        assert!(ordeal.data.known_events() > 0, "seed {seed}: nothing was ever appended");
        ordeal.data.finish(&ordeal.order);
    }
}

#[test]
fn eight_streams_survive_forty_kills_of_buffered_appends() {
    survive(Manner::Buffered, false, 1..9, 5);
}

#[test]
fn eight_streams_survive_forty_kills_of_buffered_appends_while_the_log_is_used_again_and_again() {
    survive(Manner::Buffered, true, 11..19, 5);
}

#[test]
fn eight_streams_survive_fifty_kills_of_durable_appends() {
    survive(Manner::Durable, false, 21..31, 5);
}

#[test]
fn eight_streams_survive_fifty_kills_of_durable_appends_while_the_log_is_used_again_and_again() {
    survive(Manner::Durable, true, 31..41, 5);
}

#[test]
fn no_reader_ever_sees_half_an_event_or_one_twice_or_one_that_forty_kills_take_back() {
    for (seed, has_small_log) in [(41, true), (42, true), (43, false), (44, false)] {
        let mut ordeal = Ordeal::begin(Manner::Mixed, has_small_log, seed);
        let readers = Readers::start(&ordeal.data, &ordeal.order);
        (0..10).for_each(|_| ordeal.kill_once(Some(&readers)));
        ordeal.data.finish(&ordeal.order);
        readers.end_with(ordeal.data.known_events());
    }
}
