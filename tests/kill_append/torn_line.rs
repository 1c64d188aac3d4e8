//! A process that dies in the middle of a write leaves part of a line.

use std::fs;
use std::process::Command;

use crate::data::{BUFFERED, DONE, Data, answered, token, tokens_from, transcript};
use crate::process::Process;

/// What was acknowledged before the write that tears.
pub(crate) const BEFORE: [&str; 2] = ["Nach ", "Sète. "];

/// What the line that tears says: no cut falls on a character's border by habit.
pub(crate) fn torn_text() -> String {
    "海é🦀".repeat(160_000)
}

/// A run whose last line was torn by a real death: the kernel stops a write at the largest size that a file may have,
/// here a little more than a file of the commit log, and kills the process at the next.
pub(crate) fn torn_run() -> Data {
    let data = Data::with_turn();
    let plain = data.command(&BUFFERED);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -c 0; ulimit -f 2200; exec \"$@\"", "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    let mut process = Process::start(limited);
    for text in BEFORE {
        process.send(&token(text));
        assert!(process.next_line().is_some(), "a short line is taken");
    }
    process.send(&token(&torn_text()));
    let ended = process.end();
    assert!(ended.code().is_none() && ended.lines.is_empty(), "the process died of its long line: {ended:?}");
    let journal = fs::read(data.journal()).expect("the journal is there");
    assert!(journal.last() != Some(&b'\n') && journal.len() > 1_100_000, "the line is torn: {} bytes", journal.len());
    data
}

/// The texts acknowledged before the line that tore.
pub(crate) fn texts_before() -> Vec<String> {
    BEFORE.map(str::to_owned).to_vec()
}

/// The bytes of the torn line.
pub(crate) fn torn_bytes(data: &Data) -> Vec<u8> {
    let journal = fs::read(data.journal()).expect("the journal is there");
    journal.rsplit(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()
}

/// Whether these bytes were put aside before they were cut off.
pub(crate) fn is_kept(data: &Data, bytes: &[u8]) -> bool {
    let is_in_kept = |path: &std::path::PathBuf| path.starts_with(data.root().join("_kept")) && path.is_file();
    data.everything().iter().filter(|path| is_in_kept(path)).any(|path| fs::read(path).is_ok_and(|kept| kept == bytes))
}

#[test]
fn a_torn_line_is_no_event_and_its_number_goes_to_the_next() {
    let data = torn_run();
    let torn = torn_bytes(&data);
    assert_eq!(data.tail_after(0), tokens_from(1, &texts_before()));
    assert_eq!(data.append(&BUFFERED, &[token("Fin."), DONE.to_owned()]), [3, 4]);
    let found = data.sound_tail();
    assert_eq!(found[..3], tokens_from(1, &["Nach ".into(), "Sète. ".into(), "Fin.".into()]));
    assert_eq!(found[3].event, "done");
    assert!(is_kept(&data, &torn), "the torn bytes were somebody's words");
    assert_eq!(transcript(&data.stored().expect("the session is there")), answered("Nach Sète. Fin."));
}
