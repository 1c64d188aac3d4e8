//! `lastword turn`

use lastword::{RunId, StoreError, UserTurn};

use super::failure::Failure;
use super::{Context, output, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    pub(super) id: String,
    /// What the user says.
    #[arg(long, value_name = "TEXT")]
    pub(super) message: String,
    /// The id of the run that will answer; a fresh one if none is given.
    #[arg(long)]
    pub(super) run: Option<String>,
}

/// What the user says, to be answered by a run of this id.
pub(super) fn user_turn(message: &str, run: Option<&str>) -> Result<UserTurn, Failure> {
    let run = run.map(RunId::parse).transpose().map_err(StoreError::from)?;
    Ok(UserTurn { run, ..UserTurn::text(message) })
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let turn = user_turn(&args.message, args.run.as_deref())?;
    let run = context.writer()?.begin_run(&session, turn)?;
    tell(context, run.id())
}

/// Prints the id of a run that was begun.
pub(super) fn tell(context: &Context, run: &RunId) -> Result<(), Failure> {
    match context.json {
        true => output::line(&format!("{{\"run_id\":\"{run}\"}}")),
        false => output::line(run.as_str()),
    }
}
