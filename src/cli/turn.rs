//! `lastword turn`

use lastword::{RunId, StoreError, UserTurn};

use super::failure::Failure;
use super::{Context, output, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    id: String,
    /// What the user says.
    #[arg(long, value_name = "TEXT")]
    message: String,
    /// The id of the run that will answer; a fresh one if none is given.
    #[arg(long)]
    run: Option<String>,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let run = args.run.as_deref().map(RunId::parse).transpose().map_err(StoreError::from)?;
    let store = context.writer()?;
    let run = store.begin_run(&session, UserTurn { run, ..UserTurn::text(&args.message) })?;
    match context.json {
        true => output::line(&format!("{{\"run_id\":\"{}\"}}", run.id())),
        false => output::line(run.id().as_str()),
    }
}
