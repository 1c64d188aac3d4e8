//! `lastword append`
//!
//! What has arrived on stdin is appended with one write and acknowledged line by line, without waiting for more.

use std::io::{self, Write};

use lastword::{AppendError, Durability, Event, Run, StoreError};

use super::failure::Failure;
use super::input::{Input, Taken, read_some};
use super::{Context, Lasting, run_to_find, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    pub(super) id: String,
    /// The run.
    pub(super) run: String,
    /// How lasting an event is before it is acknowledged.
    #[arg(long, value_enum, default_value = "buffered")]
    pub(super) durability: Lasting,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let run = run_to_find(&args.run)?;
    let store = context.writer()?;
    store.metadata(&session)?;
    let run = store.resume_run(&session, &run)?;
    let mut appender = Appender { run, durability: args.durability.into() };
    let (mut stdin, mut input) = (io::stdin().lock(), Input::default());
    while let Some(arrived) = read_some(&mut stdin)? {
        appender.take(input.take(&arrived))?;
    }
    appender.take(input.finish())
}

struct Appender {
    run: Run,
    durability: Durability,
}

impl Appender {
    /// Appends what was taken. What stands before a line that cannot be taken is appended and acknowledged.
    fn take(&mut self, taken: Taken) -> Result<(), Failure> {
        taken.batches.iter().try_for_each(|events| self.append(events))?;
        taken.refusal.map_or(Ok(()), Err)
    }

    fn append(&mut self, events: &[Event]) -> Result<(), Failure> {
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

/// Says that these events are as lasting as was asked for.
pub(super) fn acknowledge(from: u64, to: u64) -> Result<(), Failure> {
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
