//! Readers that are slow or stuck: told so, caught up from disk, let go in the end, and never felt by the writer.

use std::thread;
use std::time::{Duration, Instant};

use crate::house::{DONE, House};
use crate::wire::ask;

#[test]
fn a_slow_reader_is_told_of_the_gap_and_misses_nothing() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["first"]);
    let mut slow = house.follow("a", "r", "");
    assert_eq!(slow.event().unwrap().seq(), Some(1));
    // More than the sockets between us and the ring of the run hold.
    let large = "x".repeat(60_000);
    let words: Vec<&str> = vec![&large; 20];
    for _ in 0..20 {
        house.tokens("a", "r", &words);
    }
    house.append("a", "r", DONE).expect(200);
    let rest = slow.events();
    let seqs: Vec<u64> = rest.iter().filter_map(|event| event.seq()).collect();
    assert_eq!(seqs, (2..=402).collect::<Vec<_>>());
    let gaps: Vec<_> = rest.iter().filter(|event| event.name == "gap").collect();
    assert!(
        !gaps.is_empty() && gaps.iter().all(|gap| gap.id.is_none() && gap.json()["run_id"] == "r"),
        "{}",
        gaps.len()
    );
    assert_eq!(rest.last().unwrap().name, "end");
}

#[test]
fn a_stuck_reader_is_let_go_and_nobody_feels_it() {
    let house = House::with(|options| options.write_timeout = Duration::from_millis(500));
    house.run("a", "r");
    let mut stuck = house.follow("a", "r", "");
    stuck.read_until("retry");
    let mut well = house.follow("a", "r", "");
    // It takes what comes while it comes: who does not is stuck, too.
    let well = thread::spawn(move || std::iter::from_fn(|| well.event()).filter(|event| event.id.is_some()).count());
    let large = "x".repeat(60_000);
    let words: Vec<&str> = vec![&large; 20];
    let begun = Instant::now();
    for _ in 0..20 {
        house.tokens("a", "r", &words);
    }
    let took = begun.elapsed();
    house.append("a", "r", DONE).expect(200);
    assert_eq!(well.join().unwrap(), 401);
    assert!(took < Duration::from_secs(20), "the writer waited {took:?}");
    let is_gone = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(20));
        house.get("/metrics").text().contains("\nlastword_followers 0\n")
    });
    assert!(is_gone, "the stuck reader is still there");
}

#[test]
fn a_tail_that_rested_goes_on_where_it_was() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["1"]);
    let mut one = house.follow("a", "r", "");
    assert_eq!(one.event().unwrap().seq(), Some(1));
    // Long enough for the tail to let go of its file and its ring.
    thread::sleep(Duration::from_millis(2_500));
    let mut other = ask("GET", "/v1/sessions/a/runs/r/events")
        .header("accept", "text/event-stream")
        .header("last-event-id", "r:1")
        .open(house.address);
    other.read_until("retry");
    for seq in 2..=5 {
        house.tokens("a", "r", &["x"]);
        assert_eq!((one.event().unwrap().seq(), other.event().unwrap().seq()), (Some(seq), Some(seq)));
    }
}
