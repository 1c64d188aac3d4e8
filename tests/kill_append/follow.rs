//! `tail --follow` in another process, beside writers that come and go.

use crate::data::{BUFFERED, DONE, Data, RUN, SESSION, Shown, lines_of, seq_of, shown, token, tokens_from};
use crate::process::Process;
use crate::torn_line::{texts_before, torn_run};

const FOLLOW: [&str; 4] = ["tail", SESSION, RUN, "--follow"];

/// Texts of a run, one of them long.
fn texts(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| if n % 25 == 7 { "漢é🦀".repeat(20_000) } else { format!("é{n} ") }).collect()
}

/// The events that the follower gives until it ends by itself.
fn until_the_end(follower: Process) -> Vec<Shown> {
    let ended = follower.end();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    shown(&ended.lines)
}

/// Listens until the follower has given the event of this number, so that it is known to be under way.
fn listen_to(follower: &Process, seq: u64) -> Vec<Shown> {
    let lines: Vec<String> = (0..seq).map_while(|_| follower.next_line()).collect();
    let events = shown(&lines);
    assert_eq!(events.last().map(|event| event.seq), Some(seq), "the follower ended early");
    events
}

#[track_caller]
fn assert_complete(found: &[Shown], texts: &[String]) {
    let (last, tokens) = found.split_last().expect("something was given");
    assert_eq!((last.event.as_str(), last.seq), ("done", texts.len() as u64 + 1));
    let numbers: Vec<u64> = tokens.iter().map(|event| event.seq).collect();
    assert!(tokens == tokens_from(1, texts), "not what was sent, or not once: {numbers:?}");
}

#[test]
fn a_follower_sees_every_event_of_a_run_that_is_being_written_and_ends_with_it() {
    let data = Data::with_turn();
    let texts = texts(0, 200);
    let follower = data.start(&FOLLOW);
    let mut writer = data.start(&BUFFERED);
    writer.feed(lines_of(&texts).into_iter().chain([DONE.to_owned()]));
    assert_complete(&until_the_end(follower), &texts);
    assert_eq!(writer.end().code(), Some(0));
}

#[test]
fn a_follower_goes_on_when_another_writer_takes_up_what_a_killed_one_left() {
    let data = Data::with_turn();
    let follower = data.start(&FOLLOW);
    let mut writer = data.start(&BUFFERED);
    writer.feed((0..).map(|n| token(&texts(n, n + 1)[0])));
    let mut seen = listen_to(&follower, 60);
    writer.kill();
    let acknowledged = writer.end().lines.last().map_or(0, |ack| seq_of(ack));
    let there = data.tail_after(0).len();
    assert!(there >= 60 && there as u64 >= acknowledged, "{there} of {acknowledged} acknowledged events are there");
    let texts = texts(0, there + 40);
    let mut rest = lines_of(&texts[there..]);
    rest.push(DONE.to_owned());
    data.append(&BUFFERED, &rest);
    seen.extend(until_the_end(follower));
    assert_complete(&seen, &texts);
}

#[test]
fn a_follower_that_came_upon_a_torn_line_goes_on_with_what_took_its_place() {
    let data = torn_run();
    let follower = data.start(&FOLLOW);
    // The journal is short enough to be read at once, so that whoever gives these has read the torn line too.
    let mut seen = listen_to(&follower, texts_before().len() as u64);
    let texts = [texts_before(), vec!["instead, ".to_owned(), "and so on.".to_owned()]].concat();
    let mut rest = lines_of(&texts[2..]);
    rest.push(DONE.to_owned());
    data.append(&BUFFERED, &rest);
    seen.extend(until_the_end(follower));
    assert_complete(&seen, &texts);
}
