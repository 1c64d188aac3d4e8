//! `lastword repair`

use std::io::{self, Write};

use lastword::Store;
use lastword::doctor::{self, Action, Code, DoctorOptions, Finding, Outcome, Repair, Severity};
use lastword::storage::Layout;

use super::check::{count, print_finding, verdict};
use super::failure::Failure;
use super::progress::ProgressLine;
use super::{Context, end_leftovers, output, session_to_find};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only these sessions.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Only this session. May be given more than once.
    #[arg(long = "session", value_name = "ID")]
    sessions: Vec<String>,
    /// Only what was found under this code. May be given more than once.
    #[arg(long, value_name = "CODE")]
    only: Vec<Code>,
    /// Do it. Without this the plan is printed and nothing is changed.
    #[arg(long)]
    apply: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let ids = args.ids.iter().chain(&args.sessions);
    let sessions = ids.map(|id| session_to_find(id)).collect::<Result<_, _>>()?;
    let options = DoctorOptions { only: args.only, ..context.doctor(sessions) };
    let (line, options) = ProgressLine::show(options);
    let repair = match args.apply {
        true => doctor::repair(&context.data, &options)?,
        false => doctor::plan(&context.data, &options)?,
    };
    drop(line);
    if args.apply {
        end_leftovers_in(context);
    }
    match context.json {
        true => output::line(&repair.to_json())?,
        false => output::all(|out| print(&repair, out))?,
    }
    match repair.has_failed() {
        true => Err(Failure::Storage("some repairs failed, and what they were for is as it was: see above".to_owned())),
        false => Ok(()),
    }
}

/// A repair is a writer too, and whatever processes an earlier one left behind end with it. Only where commands were
/// started is there anything to look for.
fn end_leftovers_in(context: &Context) {
    if Layout::new(&context.data).groups().is_dir()
        && let Ok(store) = Store::open(&context.data, context.options())
    {
        end_leftovers(&store);
    }
}

fn print(repair: &Repair, out: &mut dyn Write) -> io::Result<()> {
    for action in &repair.actions {
        print_action(action, out)?;
    }
    let left: Vec<&Finding> = repair.left_alone().filter(|finding| finding.severity != Severity::Info).collect();
    if !left.is_empty() {
        writeln!(out, "Left alone, because it cannot be mended:\n")?;
        left.iter().try_for_each(|finding| print_finding(finding, out))?;
    }
    writeln!(out, "found in {}", verdict(&repair.report))?;
    writeln!(out, "{}", closing(repair))
}

fn print_action(action: &Action, out: &mut dyn Write) -> io::Result<()> {
    let state = match &action.outcome {
        None => "would",
        Some(Outcome::Done { .. }) => "done",
        Some(Outcome::Failed { .. }) => "FAILED",
    };
    let codes: Vec<&str> = action.codes.iter().map(|code| code.as_str()).collect();
    writeln!(out, "{state} {} ({})", output::plain(&action.file.display().to_string()), codes.join(", "))?;
    writeln!(out, "  {}", output::plain(&action.words))?;
    match &action.outcome {
        Some(Outcome::Done { kept: Some(kept) }) => {
            writeln!(out, "  before: {}", output::plain(&kept.display().to_string()))?
        }
        Some(Outcome::Failed { why }) => writeln!(out, "  {}", output::plain(why))?,
        _ => {}
    }
    writeln!(out)
}

fn closing(repair: &Repair) -> String {
    let failed = repair.actions.iter().filter(|action| matches!(action.outcome, Some(Outcome::Failed { .. }))).count();
    let actions = count(repair.actions.len() as u64 - failed as u64, "repair");
    match (repair.is_applied, failed) {
        _ if repair.actions.is_empty() && repair.report.summary.is_live => {
            "nothing is repaired beside a writer at work: stop it first".to_owned()
        }
        _ if repair.actions.is_empty() => "nothing to repair".to_owned(),
        (false, _) => format!("{actions} planned, nothing changed: add --apply to make them"),
        (true, 0) => format!("{actions} made"),
        (true, failed) => format!("{actions} made, {failed} failed; what failed is as it was"),
    }
}
