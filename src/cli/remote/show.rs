//! `lastword --server URL show`

use lastword::SessionId;
use lastword::client::Client;
use lastword::format::read_session;
use lastword::model::Object;

use crate::cli::failure::Failure;
use crate::cli::{Context, output, session_to_find, show};

pub(super) async fn run(context: &Context, client: &Client, args: show::Args) -> Result<(), Failure> {
    let id = session_to_find(&args.id)?;
    if args.metadata {
        return print_metadata(context, client, &id).await;
    }
    let text = client.session(&id).await?.text;
    let session = read_session(&id, text.into_bytes())
        .map_err(|cause| Failure::Storage(format!("the server's session {id} cannot be read: {cause}")))?;
    show::print(context, &session, args.context)
}

async fn print_metadata(context: &Context, client: &Client, id: &SessionId) -> Result<(), Failure> {
    let text = client.metadata(id).await?.text;
    let given = Object::parse(&text)
        .ok_or_else(|| Failure::Storage(format!("the server's metadata of session {id} are no object")))?;
    let mut object = Object::default();
    given.iter().for_each(|(key, value)| object.set(key, output::on_one_line(value)));
    show::print_metadata(&object, context.json)
}
