//! `lastword --server URL ls`

use lastword::client::{Client, ListQuery, ListedSession};
use lastword::model::Object;

use crate::cli::failure::Failure;
use crate::cli::{Context, ls, output};

/// Sessions that are asked for at once.
const PAGE: u32 = 500;

pub(super) async fn run(context: &Context, client: &Client) -> Result<(), Failure> {
    let mut query = ListQuery { limit: Some(PAGE), ..ListQuery::default() };
    loop {
        let page = client.sessions(&query).await?;
        print(context, page.sessions)?;
        match page.next_cursor {
            Some(cursor) if query.cursor.as_ref() != Some(&cursor) => query.cursor = Some(cursor),
            _ => return Ok(()),
        }
    }
}

fn print(context: &Context, sessions: Vec<ListedSession>) -> Result<(), Failure> {
    let mut unreadable = Vec::new();
    output::all(|out| {
        for session in sessions {
            match session {
                Ok(summary) if context.json => writeln!(out, "{}", output::on_one_line(&summary.to_json()))?,
                Ok(summary) => writeln!(out, "{}", as_line(&summary))?,
                Err(error) => unreadable.push(error.message),
            }
        }
        Ok(())
    })?;
    unreadable.iter().for_each(|message| output::aside(&format!("warning: {message}")));
    Ok(())
}

fn as_line(summary: &Object) -> String {
    let text = |key| summary.text(key).unwrap_or_default();
    let updated_at = summary.get("updated_at").and_then(|moment| moment.parse().ok()).unwrap_or(0.0);
    let rows = summary.get("message_count").and_then(|rows| rows.parse().ok()).unwrap_or(0);
    ls::as_line(&text("session_id"), updated_at, rows, &text("title"))
}
