//! `lastword --server URL turn`

use lastword::client::{Client, NewRun};

use crate::cli::failure::Failure;
use crate::cli::{Context, session_to_find, turn};

pub(super) async fn run(context: &Context, client: &Client, args: turn::Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let turn = turn::user_turn(&args.message, args.run.as_deref())?;
    let run = client.begin_run(&session, &NewRun { turn, runner: None }).await?;
    turn::tell(context, &run)
}
