//! A power cut on real files: a process is killed while its commit log is needed, and its journals lose what was never
//! synced in them. What was acknowledged as durable comes back from the log.
//!
//! The log here is larger than all that is written, so that no journal is ever synced in its own file: all of its bytes
//! may be lost.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use lastword::format::commit::SegmentHeader;
use lastword::{ReadOptions, Store};

use crate::child::{self, Acks};
use crate::data::{Data, all_events, assert_is_sent, copy_folder, run_id, session_id};
use crate::moment::listen;
use crate::order::{Afterwards, Dice, Manner, Order, STREAMS};

const PAGE_BYTES: u64 = 4096;
/// By then everything that was appended has become durable by itself, however busy the machine is.
const LONG_AFTER: Duration = Duration::from_millis(1500);

/// When the process is killed.
enum Killed {
    /// When so many events were acknowledged, among others that were not.
    InTheMiddle(u64),
    /// When all were acknowledged.
    AtTheEnd,
    /// So long behind that.
    Later(Duration),
}

fn order(data: &Data, manner: Manner, seed: u64) -> Order {
    Order {
        data: data.root.clone(),
        seed,
        round: 1,
        manner,
        has_small_log: false,
        // Those are synced where they are, and cannot be lost.
        has_huge_events: false,
        events: 60,
        afterwards: Afterwards::Stay,
    }
}

/// A directory whose writer was killed, and what it had acknowledged.
fn killed(manner: Manner, seed: u64, when: &Killed) -> (Data, Order, Acks) {
    let data = Data::with_turns();
    let order = order(&data, manner, seed);
    let mut acks = Acks::default();
    let mut process = child::start(&order);
    listen(&process, &mut acks, |acks| matches!(when, Killed::InTheMiddle(count) if acks.count >= *count));
    if let Killed::Later(delay) = when {
        std::thread::sleep(*delay);
    }
    process.kill();
    process.end().lines.iter().for_each(|line| acks.note(line));
    (data, order, acks)
}

/// Takes from every journal what a power cut may take: everything, its end, or any of its pages.
fn lose_pages(data: &Data, dice: &mut Dice) {
    for stream in 0..STREAMS {
        let journal = data.journal(stream);
        let file = OpenOptions::new().write(true).open(&journal).expect("the journal is there");
        let len = file.metadata().expect("it is there").len();
        match dice.below(4) {
            0 => file.set_len(0).expect("a file can be cut"),
            1 => file.set_len(dice.below(len + 1)).expect("a file can be cut"),
            2 => (0..4).for_each(|_| lose_page(&file, dice.below(len / PAGE_BYTES + 1), len)),
            _ => {
                lose_page(&file, dice.below(len / PAGE_BYTES + 1), len);
                file.set_len(len - dice.below(len / 2 + 1)).expect("a file can be cut");
            }
        }
    }
}

/// A page that was never written reads as zeroes.
fn lose_page(file: &fs::File, page: u64, len: u64) {
    let start = page * PAGE_BYTES;
    let zeroes = vec![0; PAGE_BYTES.min(len.saturating_sub(start)) as usize];
    file.write_all_at(&zeroes, start).expect("a file can be written");
}

/// Every event up to these numbers is there, once, in order; what else is there is whole, and what was sent.
fn assert_back(store: &Store, order: &Order, durable: &[u64; STREAMS], who: &str) {
    for (stream, last) in durable.iter().enumerate() {
        let found = store.read_events(&session_id(stream), &run_id(), ReadOptions::default());
        let found = found.expect("a journal can be read");
        let seqs: Vec<u64> = found.events.iter().map(|event| event.seq.expect("it has a number")).collect();
        let acknowledged: Vec<u64> = seqs.iter().copied().take_while(|seq| seq <= last).collect();
        assert!(acknowledged.iter().copied().eq(1..=*last), "{who}, stream {stream} of {last}: {seqs:?}");
        assert!(seqs.is_sorted_by(|one, next| one < next), "{who}, stream {stream}: {seqs:?}");
        for event in &found.events {
            assert_is_sent(event, &order.text(stream, event.seq.expect("it has a number")), stream);
        }
    }
}

/// The reader before the replay, a copy of the directory and the directory itself give back all that is durable.
fn check_comes_back(data: &Data, order: &Order, durable: &[u64; STREAMS]) {
    let lost = data.files();
    assert_back(&data.reader(), order, durable, "a reader");
    assert!(lost == data.files(), "a reader changes nothing");
    let copy = data.copy();
    for (data, who) in [(&copy, "a copy"), (data, "the directory")] {
        let store = data.writer();
        assert_eq!(store.findings(), [], "{who}: what is put back where nothing stands is no finding");
        assert_back(&store, order, durable, who);
        drop(store);
        let first = data.files();
        drop(data.writer());
        assert!(first == data.files(), "{who}: opening twice is opening once");
    }
}

/// Loses pages of all journals after a kill, several times over.
fn lose_and_look(manner: Manner, seeds: std::ops::Range<u64>, when: impl Fn(&mut Dice) -> Killed) {
    for seed in seeds {
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let (data, order, acks) = killed(manner, seed, &when(&mut dice));
        lose_pages(&data, &mut dice);
        check_comes_back(&data, &order, &acks.durable);
    }
}

#[test]
fn what_was_acknowledged_as_durable_comes_back_after_its_pages_are_lost() {
    lose_and_look(Manner::Durable, 101..113, |dice| Killed::InTheMiddle(1 + dice.below(600)));
}

#[test]
fn a_durable_event_brings_back_the_buffered_ones_before_it() {
    lose_and_look(Manner::Mixed, 121..133, |dice| Killed::InTheMiddle(1 + dice.below(600)));
}

#[test]
fn a_run_that_lost_its_pages_goes_on_with_the_next_number_and_is_answered_whole() {
    let (mut data, order, acks) = killed(Manner::Durable, 141, &Killed::AtTheEnd);
    assert_eq!(acks.durable, [order.events; STREAMS]);
    lose_pages(&data, &mut Dice(141));
    let found = data.look();
    data.judge(&order, &acks, &found);
    data.finish(&order);
}

#[test]
fn what_nobody_asked_to_be_durable_is_so_soon_all_the_same() {
    for seed in [151, 152] {
        let (data, order, acks) = killed(Manner::Buffered, seed, &Killed::Later(LONG_AFTER));
        assert_eq!((acks.appended, acks.durable), ([order.events; STREAMS], [0; STREAMS]));
        lose_pages(&data, &mut Dice(seed));
        check_comes_back(&data, &order, &acks.appended);
    }
}

/// The files of a log that say whose they are; one that is only kept ready does not.
fn begun_segments(log: &Path) -> usize {
    let files = fs::read_dir(log).expect("there is a log").map(|file| file.expect("it can be listed").path());
    files.filter(|file| SegmentHeader::decode(&fs::read(file).expect("it can be read")).is_ok()).count()
}

#[test]
fn a_log_of_another_store_is_set_aside_and_told_and_not_replayed() {
    let (theirs, ..) = killed(Manner::Durable, 161, &Killed::AtTheEnd);
    let ours = Data::with_turns();
    copy_folder(&theirs.commit_log(), &ours.commit_log());
    assert!(all_events(&ours.reader()).iter().all(Vec::is_empty), "a reader does not take it for ours");
    let store = ours.writer();
    let segments = begun_segments(&theirs.commit_log());
    assert!(segments > 0, "there is a log to set aside");
    let findings = store.findings();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), vec!["foreign_log"; segments]);
    assert!(findings.iter().all(|finding| finding.file.starts_with("_commit_log")), "{findings:?}");
    assert_eq!(files_in(&ours.root.join("_kept").join("_commit_log")), segments);
    assert!(all_events(&store).iter().all(Vec::is_empty), "nothing was replayed");
    assert!((0..STREAMS).all(|stream| ours.journal(stream).metadata().expect("it is there").len() == 0));
}

#[test]
fn without_its_log_the_same_loss_is_a_loss() {
    let (data, order, acks) = killed(Manner::Durable, 171, &Killed::AtTheEnd);
    assert_eq!(acks.durable, [order.events; STREAMS]);
    lose_pages(&data, &mut Dice(171));
    fs::remove_dir_all(data.commit_log()).expect("there is a log");
    let store = data.writer();
    let is_lossy = |stream| {
        let found = store.read_events(&session_id(stream), &run_id(), ReadOptions::default()).expect("it can be read");
        (found.events.len() as u64) < order.events
    };
    assert!((0..STREAMS).any(is_lossy), "the damage that these tests do is damage");
}

fn files_in(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}
