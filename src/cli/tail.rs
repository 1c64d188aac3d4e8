//! `lastword tail`

use std::io::{self, Write};

use lastword::{After, Found, ReadOptions, RunId, SessionId, Store, StoreError};

use super::failure::Failure;
use super::{Context, output, run_to_find, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    pub(super) id: String,
    /// The run.
    pub(super) run: String,
    /// Only events behind the one of this number.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(super) after: u64,
    /// Wait for more until the run has ended.
    #[arg(long)]
    pub(super) follow: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let run = run_to_find(&args.run)?;
    let store = context.reader()?;
    match args.follow {
        true => follow(&store, &session, &run, args.after),
        false => print(&store, &session, &run, args.after),
    }
}

fn print(store: &Store, session: &SessionId, run: &RunId, after_seq: u64) -> Result<(), Failure> {
    let events = store.events(session, run, ReadOptions { after_seq, ..ReadOptions::default() })?;
    let mut failure = None;
    output::all(|out| {
        for found in events {
            match found {
                Ok(Found::Event(event)) => writeln!(out, "{}", event.line)?,
                Ok(Found::Damage(damage)) => {
                    let (what, offset, bytes) = (damage.kind.code(), damage.offset, damage.bytes);
                    output::aside(&format!("warning: {what} at byte {offset} of run {run}, {bytes} bytes passed over"));
                }
                Err(error) => failure = Some(StoreError::from(error)),
            }
        }
        Ok(())
    })?;
    failure.map_or(Ok(()), |error| Err(error.into()))
}

fn follow(store: &Store, session: &SessionId, run: &RunId, after_seq: u64) -> Result<(), Failure> {
    let after = if after_seq == 0 { After::Start } else { After::Seq(after_seq) };
    let mut following = store.follow(session, run, after)?;
    for event in following.by_ref() {
        let event = event?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}", event.line).and_then(|()| out.flush()).map_err(Failure::output)?;
    }
    match following.ended()? {
        Some(state) if state.end().is_none() => {
            output::aside(&format!("run {run} of session {session} is over without an end: {state}"));
        }
        _ => {}
    }
    Ok(())
}
