//! `lastword new`

use lastword::{NewSession, SessionId, StoreError};

use super::failure::Failure;
use super::{Context, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id; a fresh one if none is given.
    #[arg(long)]
    id: Option<String>,
    /// The session's title.
    #[arg(long, default_value = "Untitled")]
    title: String,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let id = args.id.as_deref().map(SessionId::parse).transpose().map_err(StoreError::from)?;
    let store = context.writer()?;
    let id = store.create(NewSession { id, title: args.title })?;
    match context.json {
        true => output::line(&format!("{{\"session_id\":\"{id}\"}}")),
        false => output::line(id.as_str()),
    }
}
