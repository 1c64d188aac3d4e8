//! `lastword ls`

use lastword::Metadata;
use lastword::model::Object;

use super::failure::Failure;
use super::{Context, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// The keys of a listed session that are copied as they are.
const SHOWN_KEYS: [&str; 7] =
    ["title", "created_at", "updated_at", "pinned", "archived", "active_stream_id", "parent_session_id"];

pub(super) fn run(context: &Context, _args: Args) -> Result<(), Failure> {
    let listed = context.reader()?.list()?;
    let mut unreadable = Vec::new();
    output::all(|out| {
        for entry in listed {
            match entry.metadata {
                Ok(metadata) if context.json => writeln!(out, "{}", as_json(&metadata))?,
                Ok(metadata) => writeln!(out, "{}", as_line(&metadata))?,
                Err(error) => unreadable.push(error),
            }
        }
        Ok(())
    })?;
    for error in unreadable {
        eprintln!("lastword: warning: {error}");
    }
    Ok(())
}

fn as_json(metadata: &Metadata) -> String {
    let mut object = Object::default();
    object.set_text("session_id", metadata.id().as_str());
    for key in SHOWN_KEYS {
        object.set(key, output::on_one_line(metadata.get(key).unwrap_or("null")));
    }
    object.set("message_count", metadata.message_count().to_string());
    let is_pending = metadata.get("pending_user_message").is_some_and(|text| !matches!(text, "null" | "\"\""));
    object.set("has_pending_user_message", is_pending.to_string());
    object.to_json()
}

fn as_line(metadata: &Metadata) -> String {
    let changed = metadata.updated_at().map_or("-".to_owned(), output::moment);
    let rows = metadata.message_count();
    let title = output::plain(&metadata.title()).replace(['\n', '\t'], " ");
    format!("{:<32}  {changed:<16}  {rows:>6}  {title}", metadata.id().as_str())
}
