//! Attachments under `kill -9`: every one that was acknowledged is whole, and nothing half is found.
//!
//! The process that stores them is this test program, started again for the second test below.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use lastword::{AttachmentId, NewSession, Options, SessionId, Store};

const DATA: &str = "LASTWORD_REAL_ATTACHMENTS";
const KILLS: usize = 12;

fn session() -> SessionId {
    SessionId::parse("_pictures").expect("an id")
}

/// Bytes of which each picture has its own, and more pages than one write has.
fn picture(number: usize) -> Vec<u8> {
    (0..300_000).map(|at| (at * 7 + number * 131) as u8).chain(number.to_le_bytes()).collect()
}

#[test]
fn every_acknowledged_attachment_is_whole_after_twelve_kills() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
    let data = home.path().join("data");
    let store = Store::open(&data, Options::default()).unwrap();
    store.create(NewSession::titled("x").with_id(session())).unwrap();
    drop(store);
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        acknowledged = store_until_killed(&data, 1 + kill % 5).unwrap_or(acknowledged);
        let store = Store::open(&data, Options::default()).unwrap();
        for number in 0..=acknowledged + 1 {
            let id = AttachmentId::of_bytes(&picture(number));
            match store.attachment(&session(), &id).unwrap() {
                Some(found) => {
                    let bytes = store.attachment_bytes(&session(), &id).unwrap().expect("its bytes are there");
                    assert_eq!((found.bytes as usize, AttachmentId::of_bytes(&bytes)), (bytes.len(), id));
                    assert!(number > acknowledged || found.media_type == "image/png", "{found:?}");
                }
                None => assert!(number > acknowledged, "picture {number} of {acknowledged} is gone"),
            }
        }
        drop(store);
        let names = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let temps: Vec<_> = names.filter(|name| name.starts_with("_tmp")).collect();
        assert!(temps.is_empty(), "{temps:?} are left");
    }
    assert!(acknowledged >= KILLS, "only {acknowledged} were stored");
}

/// Starts the process and kills it some time after so many more acknowledgements. Gives the last one.
fn store_until_killed(data: &Path, more: usize) -> Option<usize> {
    let mut command = Command::new(env::current_exe().expect("this program has a file"));
    command.args(["--exact", "attachments::stores_when_it_is_told_to", "--nocapture"]).env(DATA, data);
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is taken once")).lines();
    let mut numbers = Vec::new();
    let number = |line: &str| line.strip_prefix("stored ").and_then(|number| number.parse::<usize>().ok());
    while numbers.len() < more {
        let line = lines.next().expect("the process goes on").expect("its output is text");
        numbers.extend(number(&line));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    // It may have gone on until it was killed.
    numbers.extend(lines.map_while(Result::ok).filter_map(|line| number(&line)));
    numbers.last().copied()
}

/// Not a test unless there is an order: then the test is in the process that gave it.
#[test]
fn stores_when_it_is_told_to() {
    let Ok(data) = env::var(DATA) else { return };
    let store = Store::open(data, Options::default()).expect("the directory can be opened");
    let is_there = |number: &usize| {
        let id = AttachmentId::of_bytes(&picture(*number));
        store.attachment(&session(), &id).expect("it can be looked at").is_some()
    };
    // The last one may have been cut: it is put again.
    let first = (0..).find(|number| !is_there(number)).expect("some are missing").saturating_sub(1);
    for number in first.. {
        store.put_attachment(&session(), &picture(number), "image/png", None).expect("it can be stored");
        let line = format!("\nstored {number}\n");
        io::stdout().lock().write_all(line.as_bytes()).expect("its parent listens");
    }
}
