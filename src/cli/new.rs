//! `lastword new`

use lastword::model::UNTITLED;
use lastword::{NewSession, SessionId, StoreError};

use super::failure::Failure;
use super::{Context, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id; a fresh one if none is given.
    #[arg(long, allow_hyphen_values = true)]
    id: Option<String>,
    /// The session's title. Without one, the first words of its first message become the title.
    #[arg(long, default_value = UNTITLED)]
    title: String,
}

impl Args {
    /// The session that is asked for.
    pub(super) fn session(self) -> Result<NewSession, Failure> {
        let id = self.id.as_deref().map(SessionId::parse).transpose().map_err(StoreError::from)?;
        Ok(NewSession { id, title: self.title })
    }
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = args.session()?;
    let id = context.writer()?.create(session)?;
    tell(context, &id)
}

/// Prints the id of a session that was created.
pub(super) fn tell(context: &Context, id: &SessionId) -> Result<(), Failure> {
    match context.json {
        true => output::line(&format!("{{\"session_id\":\"{id}\"}}")),
        false => output::line(id.as_str()),
    }
}
