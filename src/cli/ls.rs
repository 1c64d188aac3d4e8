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
                Ok(summary) if context.json => writeln!(out, "{}", summary.to_json())?,
                Ok(summary) => writeln!(out, "{}", as_line(&summary))?,
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

fn as_line(summary: &Summary) -> String {
    let updated_at = summary.updated_at();
    let changed = if updated_at > 0.0 { output::moment(updated_at) } else { "-".to_owned() };
    let rows = summary.message_count();
    let title = output::plain(&summary.title()).replace(['\n', '\t'], " ");
    format!("{:<32}  {changed:<16}  {rows:>6}  {title}", summary.id().as_str())
}
