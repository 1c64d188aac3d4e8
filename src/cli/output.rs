//! What is printed: lines on stdout, asides on stderr, and text made safe for a terminal.

use std::io::{self, Write};

use super::failure::Failure;

/// Prints a line.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// Prints what a function writes, in large pieces.
pub(super) fn all(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Says something beside the result. Somebody who does not listen changes nothing.
pub(super) fn aside(text: &str) {
    let _ = writeln!(io::stderr(), "lastword: {text}");
}

/// Text of a conversation without anything that could command the terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// JSON without line breaks: in valid JSON they stand only between tokens.
pub(super) fn on_one_line(json: &str) -> String {
    json.chars().filter(|c| *c >= ' ').collect()
}

/// A moment as people read it, in their own time zone.
pub(super) fn moment(seconds: f64) -> String {
    match chrono::DateTime::from_timestamp(seconds as i64, 0) {
        Some(moment) => moment.with_timezone(&chrono::Local).format("%Y-%m-%d %H:%M").to_string(),
        None => "-".to_owned(),
    }
}
