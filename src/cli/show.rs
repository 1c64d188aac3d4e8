//! `lastword show`

use std::io::{self, Write};
use std::sync::Arc;

use lastword::format::encode;
use lastword::model::Object;
use lastword::{List, Metadata, Row, Session, SessionId, StorageError, Store, StoreError};

use super::failure::Failure;
use super::{Context, greet, output, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    pub(super) id: String,
    /// Only what stands before the transcript.
    #[arg(long)]
    pub(super) metadata: bool,
    /// The conversation as a model may be shown it, as the messages of a chat request.
    #[arg(long, conflicts_with = "metadata")]
    pub(super) context: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let id = session_to_find(&args.id)?;
    let store = context.reader()?;
    if args.metadata {
        return print_metadata(&object_of(&store.metadata(&id)?), context.json);
    }
    let (store, session) = full_read(context, store, &id)?;
    match args.context {
        true => print_context(&store.context(&id)?),
        false => print(context, &session, false),
    }
}

/// Prints the messages of a chat request, and on the side what they do not hold.
fn print_context(shown: &lastword::Context) -> Result<(), Failure> {
    for left in &shown.left_out {
        eprintln!("lastword: left out: {}: {}", output::plain(&left.what), left.why);
    }
    output::line(&shown.to_json())
}

/// Prints a session, or the context that a model may be shown.
pub(super) fn print(context: &Context, session: &Session, is_context: bool) -> Result<(), Failure> {
    if is_context {
        return print_context(&session.context());
    }
    match context.json {
        true => output::all(|out| out.write_all(encode(session).bytes())),
        false => output::all(|out| print_session(session, out)),
    }
}

/// A full read. Where an interrupted answer has to be resolved, the directory is opened to be written; if that is not
/// to be had, the session is shown as it is.
fn full_read(context: &Context, reader: Store, id: &SessionId) -> Result<(Store, Arc<Session>), Failure> {
    let read = |store: Store| store.get_session(id).map(|session| (store, session));
    if !reader.is_unresolved(id)? {
        return Ok(read(reader)?);
    }
    match Store::open(&context.data, context.options()) {
        Ok(writer) => {
            greet(&writer);
            Ok(read(writer)?)
        }
        Err(error) if may_only_read(&error) => Ok(read(reader)?),
        Err(error) => Err(error.into()),
    }
}

/// Whether somebody else writes, or this user may not, or this version should not.
fn may_only_read(error: &StoreError) -> bool {
    match error.storage() {
        Some(StorageError::Io { source, .. }) => {
            matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
        }
        Some(error) => matches!(
            error,
            StorageError::Busy { .. } | StorageError::NewerFormat { .. } | StorageError::NetworkFileSystem { .. }
        ),
        None => false,
    }
}

fn object_of(metadata: &Metadata) -> Object {
    let mut object = Object::default();
    for (key, value) in metadata.iter() {
        object.set(&key, output::on_one_line(value));
    }
    object.set("message_count", metadata.message_count().to_string());
    object
}

/// Prints what stands before a transcript.
pub(super) fn print_metadata(object: &Object, json: bool) -> Result<(), Failure> {
    if json {
        return output::line(&object.to_json());
    }
    output::all(|out| object.iter().try_for_each(|(key, value)| writeln!(out, "{key}: {}", output::plain(value))))
}

fn print_session(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    let rows = session.len(List::Messages);
    writeln!(out, "{} ({}, {rows} messages)", output::plain(&session.title()), session.id())?;
    for row in session.messages() {
        print_row(&row, out)?;
    }
    if let Some(turn) = session.pending_turn() {
        let run = session.active_run().unwrap_or_default();
        writeln!(out, "\nuser (waiting for run {})\n{}", output::plain(&run), indented(&turn.message))?;
    }
    Ok(())
}

fn print_row(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let when = row.timestamp().map(|at| format!(", {}", output::moment(at as f64))).unwrap_or_default();
    let kind = if row.is_error() { " (notice)" } else { "" };
    writeln!(out, "\n{}{kind}{when}\n{}", output::plain(&row.role()), indented(&row.content()))
}

fn indented(text: &str) -> String {
    output::plain(text).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
