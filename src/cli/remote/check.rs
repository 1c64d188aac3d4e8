//! `lastword --server URL check`

use lastword::client::Client;
use lastword::doctor::Report;

use crate::cli::failure::Failure;
use crate::cli::{Context, check, session_to_find};

pub(super) async fn run(context: &Context, client: &Client, args: check::Args) -> Result<(), Failure> {
    let sessions: Vec<_> = args.ids.iter().map(|id| session_to_find(id)).collect::<Result<_, _>>()?;
    let text = client.check(&sessions).await?;
    let report = Report::from_json(&text)
        .ok_or_else(|| Failure::Storage("the server's report is not understood: is it a newer version?".to_owned()))?;
    check::tell(context, &report)
}
