//! `lastword --server URL new`

use lastword::client::Client;

use crate::cli::failure::Failure;
use crate::cli::{Context, new};

pub(super) async fn run(context: &Context, client: &Client, args: new::Args) -> Result<(), Failure> {
    let created = client.create_session(&args.session()?).await?;
    new::tell(context, &created.session)
}
