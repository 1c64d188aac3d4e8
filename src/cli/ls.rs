//! `lastword ls`

use lastword::Summary;

use super::failure::Failure;
use super::{Context, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(context: &Context, _args: Args) -> Result<(), Failure> {
    let listed = context.reader()?.list()?;
    let mut unreadable = Vec::new();
    output::all(|out| {
        for entry in listed {
            match entry.summary {
                Ok(summary) if context.json => writeln!(out, "{}", summary.to_listed_json(entry.state))?,
                Ok(summary) => writeln!(out, "{}", of_summary(&summary))?,
                Err(error) => unreadable.push(error),
            }
        }
        Ok(())
    })?;
    for error in unreadable {
        output::aside(&format!("warning: {error}"));
    }
    Ok(())
}

fn of_summary(summary: &Summary) -> String {
    as_line(summary.id().as_str(), summary.updated_at(), summary.message_count(), &summary.title())
}

/// A session as people read it.
pub(super) fn as_line(id: &str, updated_at: f64, rows: usize, title: &str) -> String {
    let changed = if updated_at > 0.0 { output::moment(updated_at) } else { "-".to_owned() };
    let title = output::plain(title).replace(['\n', '\t'], " ");
    format!("{id:<32}  {changed:<16}  {rows:>6}  {title}")
}
