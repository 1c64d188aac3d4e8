//! Where a follower is: which events it was told, where the next connection goes on, and when it is at the end. Knows no
//! connection.

use std::collections::VecDeque;

use super::told::{EndNotice, SentEvent, Told};
use crate::format::sse::Sent;
use crate::model::{Cursor, Object, RunId, SeenSeqs};

/// The place before the first event of a session.
const BEGINNING: &str = "0";

/// Runs of a session whose events are known apart; those before them are not sent again.
const RUNS_MAX: usize = 1_024;

/// What is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    Run(RunId),
    Session,
}

/// What comes of something that was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Tell(Told),
    Nothing,
    /// The connection is no good, and another one is needed. Why.
    Again(String),
}

/// A follower's place.
#[derive(Debug)]
pub(super) struct Resume {
    scope: Scope,
    cursor: Option<(RunId, u64)>,
    /// Whether only what is live was asked for.
    is_from_now: bool,
    has_connected: bool,
    runs: VecDeque<SeenRun>,
    /// Lines without a number: the server sends them all again over every connection.
    unnumbered_told: u64,
    unnumbered_here: u64,
    /// An end that came before the last event: the last event there was, and the one that the end named.
    early_end: Option<(u64, u64)>,
    is_over: bool,
}

/// What was told of a run.
#[derive(Debug)]
struct SeenRun {
    run: RunId,
    /// Events up to here are not asked for.
    floor: u64,
    highest: u64,
    seqs: SeenSeqs,
    has_ended: bool,
}

impl SeenRun {
    fn new(run: &RunId, floor: u64) -> Self {
        SeenRun { run: run.clone(), floor, highest: floor, seqs: SeenSeqs::default(), has_ended: false }
    }

    fn is_new(&mut self, seq: u64) -> bool {
        self.highest = self.highest.max(seq);
        seq > self.floor && self.seqs.insert(seq)
    }
}

impl Resume {
    /// Behind an event, or from the first one.
    pub(super) fn new(scope: Scope, cursor: Option<(RunId, u64)>) -> Self {
        let runs = cursor.iter().map(|(run, seq)| SeenRun::new(run, *seq)).collect();
        Resume {
            scope,
            cursor,
            is_from_now: false,
            has_connected: false,
            runs,
            unnumbered_told: 0,
            unnumbered_here: 0,
            early_end: None,
            is_over: false,
        }
    }

    /// With what is live.
    pub(super) fn from_now(scope: Scope) -> Self {
        Resume { is_from_now: true, ..Resume::new(scope, None) }
    }

    /// The id of the event that the next connection goes on behind.
    pub(super) fn last_event_id(&self) -> Option<String> {
        self.cursor.as_ref().map(|(run, seq)| format!("{run}:{seq}"))
    }

    /// Whether the next connection should tell only what is live.
    pub(super) fn is_from_now(&self) -> bool {
        self.is_from_now && self.cursor.is_none()
    }

    /// Whether nothing follows.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether there was a connection before.
    pub(super) fn has_connected(&self) -> bool {
        self.has_connected
    }

    /// There is a new connection.
    pub(super) fn connected(&mut self) -> Option<Told> {
        self.unnumbered_here = 0;
        let is_first = !std::mem::replace(&mut self.has_connected, true);
        (!is_first && self.is_from_now()).then_some(Told::Missed)
    }

    /// Takes an id that no event came with: a server says so where what is live begins. `0` is the beginning of the session.
    pub(super) fn begin_at(&mut self, id: &str) {
        if !self.is_from_now() {
            return;
        }
        if id.trim() == BEGINNING {
            self.is_from_now = false;
        } else if let Ok(place) = place(id) {
            self.seen(&place.0).floor = place.1;
            self.cursor = Some(place);
        }
    }

    /// Takes what was sent. An error says what is not understood.
    pub(super) fn take(&mut self, sent: Sent) -> Result<Step, String> {
        match sent.name.as_str() {
            _ if sent.has_own_id && !sent.id.is_empty() => self.take_event(sent),
            "gap" => Notice::of(&sent)?.gap(),
            "snapshot" => {
                self.forget();
                Notice::of(&sent)?.snapshot()
            }
            "end" => self.take_end(Notice::of(&sent)?),
            _ if is_line(&sent.data) => Ok(self.take_unnumbered(sent)),
            _ => Ok(Step::Nothing),
        }
    }

    fn take_event(&mut self, sent: Sent) -> Result<Step, String> {
        let (run, seq) = place(&sent.id)?;
        if seq == 0 {
            return Err(format!("{:?} is no event's id", sent.id));
        }
        self.check_run(&run)?;
        let seen = self.seen(&run);
        if !seen.is_new(seq) {
            return Ok(Step::Nothing);
        }
        // A run that was over without being sealed may go on, and end again.
        seen.has_ended = false;
        self.early_end = None;
        self.cursor = Some((run.clone(), seq));
        let Sent { id, name, data, .. } = sent;
        Ok(Step::Tell(Told::Event(SentEvent { id, run: Some(run), seq: Some(seq), name, line: data })))
    }

    fn take_unnumbered(&mut self, sent: Sent) -> Step {
        self.unnumbered_here += 1;
        if self.unnumbered_here <= self.unnumbered_told {
            return Step::Nothing;
        }
        self.unnumbered_told = self.unnumbered_here;
        let Sent { name, data, .. } = sent;
        Step::Tell(Told::Event(SentEvent { id: String::new(), run: None, seq: None, name, line: data }))
    }

    fn take_end(&mut self, notice: Notice) -> Result<Step, String> {
        let run = match (&notice.run, &self.scope) {
            (None, Scope::Session) => {
                self.is_over = true;
                return Ok(Step::Tell(Told::Deleted));
            }
            (Some(run), _) | (None, Scope::Run(run)) => run.clone(),
        };
        self.check_run(&run)?;
        let end = EndNotice { run, last_seq: notice.last_seq, state: notice.text("state") };
        if let Some(why) = self.is_early(&end) {
            return Ok(Step::Again(why));
        }
        self.is_over = matches!(self.scope, Scope::Run(_));
        let is_told = std::mem::replace(&mut self.seen(&end.run).has_ended, true);
        Ok(if is_told { Step::Nothing } else { Step::Tell(Told::Ended(end)) })
    }

    /// An end before the last event would leave events out. A server that says the same twice is believed: a damaged
    /// journal may have lost what it counts.
    fn is_early(&mut self, end: &EndNotice) -> Option<String> {
        let last = end.last_seq.filter(|_| end.is_in_journal())?;
        let highest = self.seen(&end.run).highest;
        if last <= highest || self.early_end.replace((highest, last)) == Some((highest, last)) {
            return None;
        }
        Some(format!("the end of run {} came behind event {highest}, and {last} is its last", end.run))
    }

    fn check_run(&self, run: &RunId) -> Result<(), String> {
        match &self.scope {
            Scope::Run(followed) if followed != run => Err(format!("it tells of run {run} instead of {followed}")),
            _ => Ok(()),
        }
    }

    /// What was told does not count any more.
    fn forget(&mut self) {
        self.cursor = None;
        self.is_from_now = false;
        self.runs.clear();
        (self.unnumbered_told, self.unnumbered_here) = (0, 0);
        self.early_end = None;
    }

    fn seen(&mut self, run: &RunId) -> &mut SeenRun {
        let at = match self.runs.iter().rposition(|seen| seen.run == *run) {
            Some(at) => at,
            None => {
                if self.runs.len() == RUNS_MAX {
                    self.runs.pop_front();
                }
                self.runs.push_back(SeenRun::new(run, 0));
                self.runs.len() - 1
            }
        };
        &mut self.runs[at]
    }
}

/// The place that an id names.
fn place(id: &str) -> Result<(RunId, u64), String> {
    let bad = || format!("{:?} is no event's id", id.chars().take(80).collect::<String>());
    let Cursor { run, seq } = Cursor::parse(id);
    let run = run.and_then(|run| RunId::parse(&run).ok()).ok_or_else(bad)?;
    Ok((run, seq.ok_or_else(bad)?))
}

/// Whether this is an event as a journal has it.
fn is_line(data: &str) -> bool {
    Object::parse(data).is_some_and(|line| line.get("event").or(line.get("type")).is_some())
}

/// Something that is said about the stream.
struct Notice {
    object: Object,
    run: Option<RunId>,
    last_seq: Option<u64>,
}

impl Notice {
    fn of(sent: &Sent) -> Result<Self, String> {
        let bad = || format!("the notice {:?} says nothing that is understood", sent.name);
        let object = Object::parse(&sent.data).ok_or_else(bad)?;
        let run = object.text("run_id").map(|run| RunId::parse(&run)).transpose().map_err(|_| bad())?;
        let last_seq = object.get("last_seq").and_then(|seq| seq.parse().ok());
        Ok(Notice { object, run, last_seq })
    }

    fn text(&self, key: &str) -> String {
        self.object.text(key).unwrap_or_default().into_owned()
    }

    fn gap(self) -> Result<Step, String> {
        let after_seq = self.object.get("after_seq").and_then(|seq| seq.parse().ok());
        Ok(Step::Tell(Told::Gap { run: self.run, after_seq }))
    }

    fn snapshot(self) -> Result<Step, String> {
        let reason = self.text("reason");
        Ok(Step::Tell(Told::Snapshot { reason, run: self.run, last_seq: self.last_seq }))
    }
}

#[cfg(test)]
#[path = "resume/tests.rs"]
mod tests;
