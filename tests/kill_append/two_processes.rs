//! One process writes a data directory at a time, any number read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::data::{BUFFERED, DONE, Data, RUN, SESSION, answered, lines_of, seq_of, token, transcript};
use crate::process::Process;

/// A writer that has the directory: it has acknowledged an event and waits for more.
fn holder(data: &Data) -> Process {
    let mut holder = data.start(&BUFFERED);
    holder.send(&token("held"));
    assert_eq!(holder.next_line().as_deref(), Some("{\"seq\":1}"));
    holder
}

#[test]
fn a_second_writer_is_told_who_holds_the_directory() {
    let data = Data::with_turn();
    let holder = holder(&data);
    let turn = ["turn", SESSION, "--message", "And then?"];
    for args in [&["new"][..], &["new", "--id", "other"], &turn, &BUFFERED] {
        let refused = data.ask_with(args, &[token("mine")]);
        assert_eq!(refused.code(), Some(3), "{args:?}: {}", refused.stderr);
        assert!(refused.lines.is_empty(), "{args:?} printed {:?}", refused.lines);
        let words: Vec<&str> = refused.stderr.split(|c: char| !c.is_ascii_digit()).collect();
        assert!(words.contains(&holder.id().to_string().as_str()), "{args:?}: {}", refused.stderr);
    }
    assert_eq!(holder.end().code(), Some(0));
    assert_eq!(data.sound_tail().len(), 1);
}

#[test]
fn readers_read_beside_a_writer() {
    let data = Data::with_turn();
    let _holder = holder(&data);
    assert_eq!(data.must(&["ls"]).lines.len(), 1);
    assert_eq!(data.stored().expect("the session is there")["active_stream_id"], RUN);
    assert_eq!(data.sound_tail()[0].text, "held");
}

#[test]
fn after_the_holder_is_killed_a_writer_works_at_once() {
    let data = Data::with_turn();
    let mut holder = holder(&data);
    holder.kill();
    holder.end();
    assert_eq!(data.append(&BUFFERED, &[token(" and free"), DONE.to_owned()]), [2, 3]);
    assert_eq!(transcript(&data.stored().expect("the session is there")), answered("held and free"));
}

const WRITERS: usize = 8;
const ROUNDS: usize = 3;
const EVENTS: usize = 4;

/// Appends these events as soon as the directory is free.
fn append_with_patience(data: &Data, texts: &[String], deadline: Instant) -> Vec<u64> {
    let input = lines_of(texts);
    loop {
        let ended = data.ask_with(&BUFFERED, &input);
        match ended.code() {
            Some(0) => return ended.lines.iter().map(|line| seq_of(line)).collect(),
            Some(3) => assert!(ended.lines.is_empty(), "a refused writer acknowledges nothing"),
            _ => panic!("append failed: {}", ended.stderr),
        }
        assert!(Instant::now() < deadline, "the directory was never free");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What one writer got in: the text of each number it was given.
fn write_all_rounds(data: &Data, writer: usize, deadline: Instant) -> Vec<(u64, String)> {
    let mut given = Vec::new();
    for round in 0..ROUNDS {
        let texts: Vec<String> = (0..EVENTS).map(|event| format!("w{writer} r{round} é{event} ")).collect();
        let seqs = append_with_patience(data, &texts, deadline);
        assert_eq!(seqs.len(), EVENTS, "every event is acknowledged");
        given.extend(seqs.into_iter().zip(texts));
    }
    given
}

#[test]
fn eight_writers_at_once_never_share_a_number_and_lose_nothing() {
    let data = Data::with_turn();
    let deadline = Instant::now() + Duration::from_secs(60);
    let given: Vec<(u64, String)> = std::thread::scope(|scope| {
        let data = &data;
        let start = |writer| scope.spawn(move || write_all_rounds(data, writer, deadline));
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("no writer fails")).collect()
    });
    let total = WRITERS * ROUNDS * EVENTS;
    let acknowledged: BTreeMap<u64, String> = given.into_iter().collect();
    assert!(acknowledged.keys().copied().eq(1..=total as u64), "numbers repeat or lack: {:?}", acknowledged.keys());
    let found: BTreeMap<u64, String> = data.sound_tail().into_iter().map(|event| (event.seq, event.text)).collect();
    assert_eq!(found, acknowledged);
}
