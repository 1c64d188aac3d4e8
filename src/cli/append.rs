//! `lastword append`
//!
//! What has arrived on stdin is appended with one write and acknowledged line by line, without waiting for more.

use std::io::{self, BufRead, Write};

use lastword::limits::LINE_BYTES_MAX;
use lastword::{AppendError, Durability, Event, Run, StoreError};

use super::failure::Failure;
use super::{Context, Lasting, run_to_find, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    id: String,
    /// The run.
    run: String,
    /// How lasting an event is before it is acknowledged.
    #[arg(long, value_enum, default_value = "buffered")]
    durability: Lasting,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let run = run_to_find(&args.run)?;
    let store = context.writer()?;
    store.metadata(&session)?;
    let run = store.resume_run(&session, &run)?;
    let mut appender = Appender { run, durability: args.durability.into(), lines_read: 0 };
    let mut input = io::stdin().lock();
    let mut pending = Vec::new();
    loop {
        // What is pending holds no line feed: only what arrives is searched.
        let searched = pending.len();
        if !read_more(&mut input, &mut pending)? {
            break;
        }
        let whole = pending[searched..].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| searched + at + 1);
        appender.take(&pending[..whole])?;
        pending.drain(..whole);
        if pending.len() > LINE_BYTES_MAX {
            appender.lines_read += 1;
            return Err(appender.refuse(&format!("it is longer than {LINE_BYTES_MAX} bytes: send it in parts")));
        }
    }
    appender.take(&pending)
}

/// Reads what is there, and waits only if nothing is.
fn read_more(input: &mut impl BufRead, pending: &mut Vec<u8>) -> Result<bool, Failure> {
    let broken = |cause| Failure::Storage(format!("could not read standard input: {cause}"));
    let arrived = match input.fill_buf() {
        Ok(arrived) => arrived,
        Err(cause) if cause.kind() == io::ErrorKind::Interrupted => return Ok(true),
        Err(cause) => return Err(broken(cause)),
    };
    pending.extend_from_slice(arrived);
    let len = arrived.len();
    input.consume(len);
    Ok(len > 0)
}

struct Appender {
    run: Run,
    durability: Durability,
    lines_read: usize,
}

impl Appender {
    /// Appends whole lines. Those before a line that cannot be taken are appended and acknowledged.
    fn take(&mut self, lines: &[u8]) -> Result<(), Failure> {
        let mut events = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.lines_read += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parse(line) {
                // What comes before the end is acknowledged first, so that a failure of the end does not hide it.
                Ok(end) if end.terminal_state().is_some() => {
                    self.append(&std::mem::take(&mut events))?;
                    self.append(&[end])?;
                }
                Ok(event) => events.push(event),
                Err(reason) => {
                    self.append(&events)?;
                    return Err(self.refuse(&reason));
                }
            }
        }
        self.append(&events)
    }

    fn refuse(&self, reason: &str) -> Failure {
        Failure::Usage(format!("line {} of the input was not appended: {reason}", self.lines_read))
    }

    fn append(&mut self, events: &[Event]) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        let before = self.run.last_seq();
        match self.run.append_all(events, self.durability) {
            Ok(appended) => {
                let (from, to) = (appended.first_seq, appended.last_seq);
                appended.wait()?;
                acknowledge(from, to)
            }
            Err(error) => {
                if let StoreError::Append(AppendError::Failed { appended_to: Some(last), .. }) = &error
                    && self.durability == Durability::Buffered
                {
                    acknowledge(before + 1, *last)?;
                }
                Err(error.into())
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Event, String> {
    let text = std::str::from_utf8(line).map_err(|cause| cause.to_string())?;
    Event::parse(text).map_err(|cause| cause.to_string())
}

fn acknowledge(from: u64, to: u64) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut lines = String::new();
    for seq in from..=to {
        lines.push_str(&format!("{{\"seq\":{seq}}}\n"));
    }
    out.write_all(lines.as_bytes()).and_then(|()| out.flush()).map_err(|cause| match cause.kind() {
        io::ErrorKind::BrokenPipe => Failure::No("nobody reads the acknowledgements: the rest was not appended".into()),
        _ => Failure::output(cause),
    })
}
