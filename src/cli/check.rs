//! `lastword check`

use std::io::{self, Write};

use lastword::doctor::{self, Finding, Report, Severity};

use super::failure::Failure;
use super::progress::{self, ProgressLine};
use super::{Context, output, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only these sessions.
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<String>,
}

/// Findings of one severity that are printed for people; all of them are in the JSON.
const SHOWN_MAX: usize = 200;

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let sessions = args.ids.iter().map(|id| session_to_find(id)).collect::<Result<_, _>>()?;
    let (line, options) = ProgressLine::show(context.doctor(sessions));
    let report = doctor::check(&context.data, &options)?;
    drop(line);
    tell(context, &report)
}

/// Prints a report, and says no if anything is bad.
pub(super) fn tell(context: &Context, report: &Report) -> Result<(), Failure> {
    match context.json {
        true => output::line(&report.to_json())?,
        false => output::all(|out| print(report, out))?,
    }
    if report.is_bad() { Err(Failure::Told) } else { Ok(()) }
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for severity in [Severity::Damage, Severity::Warning, Severity::Info] {
        let found: Vec<&Finding> = report.findings.iter().filter(|finding| finding.severity == severity).collect();
        for finding in found.iter().take(SHOWN_MAX) {
            print_finding(finding, out)?;
        }
        if found.len() > SHOWN_MAX {
            writeln!(out, "... and {} more of severity {}: see --json\n", found.len() - SHOWN_MAX, severity.as_str())?;
        }
    }
    writeln!(out, "{}", verdict(report))
}

pub(super) fn print_finding(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let place = finding.offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
    let file = output::plain(&finding.file.display().to_string());
    writeln!(out, "{} {}: {file}{place}", finding.severity.as_str(), finding.code)?;
    writeln!(out, "  {}", output::plain(&finding.message))?;
    writeln!(out, "  repair: {}\n", output::plain(&finding.repair))
}

/// What was looked at, and what came of it, in a line or two.
pub(super) fn verdict(report: &Report) -> String {
    let summary = &report.summary;
    let looked_at = format!(
        "{}, {} ({}, {})",
        count(summary.sessions, "session"),
        count(summary.journals, "journal"),
        count(summary.events, "event"),
        progress::bytes(summary.journal_bytes),
    );
    let beside = if summary.is_live { "; a writer is at work, so what it is doing was not judged" } else { "" };
    let untold = match summary.untold {
        0 => String::new(),
        untold => format!(", {untold} of them only counted"),
    };
    match summary.damage + summary.warning + summary.info {
        0 => format!("{looked_at}: all is well{beside}"),
        _ => format!(
            "{looked_at}: {} damaged, {}, {}{untold}{beside}",
            count(summary.damage, "place"),
            count(summary.warning, "warning"),
            count(summary.info, "note"),
        ),
    }
}

pub(super) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
