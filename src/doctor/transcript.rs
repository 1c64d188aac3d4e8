//! What is to be said of a session whose document can be read, and what it should be: turns and markers are decided by
//! the same rules as a live read, row numbers are put right where the journals tell how.

use std::collections::{BTreeSet, HashMap};

use super::finding::{Code, Finding, Severity};
use super::runs::RunLook;
use super::ward::{Examined, IndexSays, NewDocument, Treatment, Ward};
use crate::format::{encode, read_session};
use crate::model::fold::Folded;
use crate::model::marker::{FoldedUpTo, folded_up_to, is_interrupted, set_folded_records};
use crate::model::{
    Branch, BranchReason, List, NotAList, RunEnd, RunId, Session, SessionId, Summary, ToolCard, TurnNote,
};
use crate::recovery::{Evidence, Facts, GivenUp, Plan, Step, Watch, given_up, hope_again, plan};

/// A session, and what it should be.
pub(super) struct Transcript<'w> {
    ward: &'w Ward<'w>,
    id: SessionId,
    before: Session,
    after: Session,
    runs: &'w [RunLook],
    codes: BTreeSet<Code>,
    words: Vec<String>,
    touches: bool,
    /// Markers that gave up and are to look once more, each with its run.
    hopeful: Vec<(usize, String)>,
    /// Whether a turn may replace another: what it replaces is stored beside the document.
    replaces_turns: bool,
    branch: Option<Branch>,
}

impl<'w> Transcript<'w> {
    pub(super) fn new(ward: &'w Ward<'w>, session: Session, runs: &'w [RunLook]) -> Self {
        Transcript {
            ward,
            id: session.id().clone(),
            after: session.clone(),
            before: session,
            runs,
            codes: BTreeSet::new(),
            words: Vec::new(),
            touches: false,
            hopeful: Vec::new(),
            replaces_turns: false,
            branch: None,
        }
    }

    /// Says what is wrong with it and what a repair would make of it.
    pub(super) fn examine(mut self, told: &mut Examined) {
        self.replaces_turns = true;
        self.check_id(told);
        self.check_count(told);
        self.check_rows(told);
        self.check_answers(told);
        self.check_cards(told);
        self.check_index(told);
        told.treatments.extend(self.treatment());
    }

    /// The session as it should be, without a word on what is wrong with it.
    pub(super) fn resolved(mut self) -> (Session, Vec<String>) {
        self.check_answers(&mut Examined::default());
        (self.after, self.words)
    }

    /// The session with its cards beside the answers that their runs' journals name: those that point at none, or all of
    /// them where rows were lost.
    pub(super) fn with_cards_pointed(mut self, all: bool) -> Session {
        let answers = self.answers();
        for at in 0..self.after.len(List::ToolCalls) {
            let Some(card) = self.after.item(List::ToolCalls, at).map(ToolCard::parse) else { continue };
            let is_right = |index: usize| !all && points_at_answer(&self.after, index);
            let target = answers.row_of(&card).filter(|_| !card.row_index().is_some_and(is_right));
            if target.is_some() && target != card.row_index() {
                self.point_card(at, target);
            }
        }
        self.after
    }

    fn finding(&self, code: Code, severity: Severity) -> Finding {
        let file = self.ward.relative(self.ward.files.layout().sidecar(&self.id));
        Finding::new(code, severity, file).of(&self.id)
    }

    fn check_id(&self, told: &mut Examined) {
        let stated = self.before.get("session_id").and_then(crate::model::text_of);
        if let Some(stated) = stated.filter(|stated| *stated != self.id.as_str()) {
            let message = format!(
                "the file says that it is session {stated:?}; its name decides, and it is shown as {}",
                self.id
            );
            told.tell(self.finding(Code::ForeignId, Severity::Info).leaves(message, "if it is a copy, move it away"));
        }
    }

    fn check_count(&mut self, told: &mut Examined) {
        let rows = self.before.len(List::Messages);
        let stated: Option<usize> = self.before.get("message_count").and_then(|count| count.parse().ok());
        let Some(stated) = stated.filter(|stated| *stated != rows) else { return };
        let message =
            format!("message_count says {stated}, and there are {rows} messages; lists show the wrong number");
        told.tell(self.finding(Code::RowIndexMismatch, Severity::Warning).says(message, "set it to the right number"));
        if self.ward.wants(Code::RowIndexMismatch) {
            self.after.set("message_count", &rows.to_string());
            self.did(Code::RowIndexMismatch, format!("message_count becomes {rows}"));
        }
    }

    /// Rows that lack what every row has: a damaged key hides what it held.
    fn check_rows(&self, told: &mut Examined) {
        let lacks = |row: &&str| !row.contains("\"role\"") || !row.contains("\"content\"");
        let count = self.before.texts(List::Messages).filter(lacks).count();
        if count > 0 {
            let message = format!("{count} messages here have no role or no content; they may have changed");
            let finding = self.finding(Code::BadJson, Severity::Warning);
            told.tell(finding.leaves(message, "nobody can tell what they were"));
        }
    }

    fn did(&mut self, code: Code, words: String) {
        self.codes.insert(code);
        self.words.push(words);
    }

    /// Turns that wait, and markers that hope or gave up.
    fn check_answers(&mut self, told: &mut Examined) {
        let watch = Watch::of(&self.before);
        let (pending, mut wanted) = (self.check_pending(&watch, told), HashMap::new());
        for retry in &watch.armed {
            self.check_armed(&retry.run, told, &mut wanted);
        }
        for marker in given_up(&self.before) {
            self.check_given_up(&marker, told, &mut wanted);
        }
        let mut grown = Vec::new();
        for growing in &watch.growing {
            let Some(run) = self.runs.iter().find(|run| run.run.as_str() == growing.run) else { continue };
            let is_known = wanted.contains_key(&growing.run);
            if growing.noted != Some(FoldedUpTo::Records(run.look.lines))
                && self.ward.wants(Code::ArmedMarker)
                && !is_known
            {
                wanted.insert(growing.run.clone(), self.ward.look(&self.before, &growing.run));
                grown.push(growing.run.clone());
            }
        }
        let settled = self.decide(pending, wanted);
        for run in grown.iter().filter(|run| settled.contains(run)) {
            self.tell_grown(run, told);
        }
        self.check_lengths(told);
    }

    /// Tells of a journal that holds more than the rows above its marker.
    fn tell_grown(&self, run: &str, told: &mut Examined) {
        let message = format!("more of the interrupted answer of run {run} has arrived than stands in the transcript");
        let finding = Finding { run: RunId::parse(run).ok(), ..self.finding(Code::ArmedMarker, Severity::Info) };
        told.tell(finding.says(message, "bring it in above its marker, as the next full read would"));
    }

    /// Markers that note more of a journal than it holds: cut since, it would not be looked at if it grew by as much. The
    /// journals of notes of earlier versions are read in any case.
    fn check_lengths(&mut self, told: &mut Examined) {
        for at in self.after.messages_with("\"interrupted\"") {
            let mut row = self.after.message(at).unwrap_or_default();
            let noted = row.run().zip(folded_up_to(&row)).filter(|_| is_interrupted(&row));
            let Some((name, FoldedUpTo::Records(noted))) = noted.map(|(name, noted)| (name.into_owned(), noted)) else {
                continue;
            };
            let run = self.runs.iter().find(|run| run.run.as_str() == name && run.look.lines < noted);
            let Some(run) = run else { continue };
            let message =
                format!("this journal was longer when its answer was brought into the transcript ({noted} lines)");
            let finding =
                Finding::new(Code::UnsealedDeadRun, Severity::Info, run.file.clone()).of_run(&self.id, &run.run);
            told.tell(finding.says(message, "note its length in the transcript, so that what it gets is seen"));
            set_folded_records(&mut row, Some(run.look.lines));
            // Whatever else is to be treated: a journal may just have been cut.
            if !self.ward.is_live && self.after.replace_message(at, &row).is_ok() {
                self.did(Code::UnsealedDeadRun, format!("run {name}: its marker notes {} lines", run.look.lines));
            }
        }
    }

    /// What is known of the run of a turn that nobody will end, if there is one and it is to be treated.
    fn check_pending(&self, watch: &Watch, told: &mut Examined) -> Option<Evidence> {
        if !watch.is_pending && self.before.pending_turn().is_some() && !self.ward.is_live {
            let message = "a message waits for an answer, and no run is named that would give one";
            let why = "it becomes part of the transcript with the next turn";
            told.tell(self.finding(Code::PendingTurn, Severity::Info).leaves(message, why));
        }
        let run = self.before.active_run().filter(|_| watch.is_pending && !self.ward.is_live)?;
        let now = self.ward.now.seconds();
        if self.runs.iter().any(|known| known.run.as_str() == run && known.is_live(now)) {
            return None;
        }
        let message = format!("a message waits for run {run}, and nobody works on it");
        let repair =
            "bring the message and what arrived of its answer into the transcript, as the next full read would";
        let finding = Finding { run: RunId::parse(&run).ok(), ..self.finding(Code::PendingTurn, Severity::Info) };
        told.tell(finding.says(message, repair));
        self.ward.wants(Code::PendingTurn).then(|| self.ward.look(&self.before, &run))
    }

    fn check_armed(&self, run: &str, told: &mut Examined, wanted: &mut HashMap<String, Evidence>) {
        let evidence = self.ward.look(&self.before, run);
        let finding = Finding { run: RunId::parse(run).ok(), ..self.finding(Code::ArmedMarker, Severity::Info) };
        told.tell(match tells_something(&evidence) {
            true => finding.says(
                "an interrupted answer is still to be brought into the transcript",
                "do so, as the next full read would",
            ),
            false => {
                finding.leaves("an answer was interrupted and may still be found", "there is nothing to bring in yet")
            }
        });
        if tells_something(&evidence) && self.ward.wants(Code::ArmedMarker) {
            wanted.insert(run.to_owned(), evidence);
        }
    }

    fn check_given_up(&mut self, marker: &GivenUp, told: &mut Examined, wanted: &mut HashMap<String, Evidence>) {
        let Some(run) = marker.run.clone().or_else(|| self.run_of(marker)) else { return };
        let evidence = self.ward.look(&self.before, &run);
        let tells = evidence.has_output() || evidence.error_row.is_some();
        if !tells || marker.is_answered_by(&self.before, &evidence) {
            return;
        }
        let message =
            format!("the marker in message {} says that the answer was lost, and run {run} holds it", marker.at);
        let repair = "bring the answer into the transcript, above the marker";
        let finding =
            Finding { run: RunId::parse(&run).ok(), ..self.finding(Code::GaveUpButReadable, Severity::Warning) };
        told.tell(finding.says(message, repair));
        if self.ward.wants(Code::GaveUpButReadable) {
            self.hopeful.push((marker.at, run.clone()));
            wanted.insert(run, evidence);
        }
    }

    /// The one run of the marker's turn that nothing in the session names. Without times nobody can tell.
    fn run_of(&self, marker: &GivenUp) -> Option<String> {
        let since = marker.since?;
        let began = |run: &&RunLook| {
            let at = run.look.first_at.unwrap_or(0.0) as i64;
            at + 2 >= since && marker.until.is_none_or(|until| at < until)
        };
        let mut unnamed = self.runs.iter().filter(began).filter(|run| !self.before.mentions(&run.run));
        let only = unnamed.next()?;
        unnamed.next().is_none().then(|| only.run.to_string())
    }

    /// The same decision as a live read makes. Gives the runs for which something changes.
    fn decide(&mut self, pending: Option<Evidence>, runs: HashMap<String, Evidence>) -> Vec<String> {
        if self.ward.is_live || pending.is_none() && runs.is_empty() {
            return Vec::new();
        }
        let wants_core = pending.is_some() && self.before.is_empty(List::Messages);
        let core = || self.ward.storage.core_transcript(&self.id).ok().flatten();
        let turn = self.turn_note();
        let facts = Facts {
            turn: &turn,
            now: self.ward.now,
            process_began: self.ward.now,
            options: &self.ward.options.recovery,
            core: if wants_core { core().and_then(|bytes| read_session(&self.id, bytes).ok()) } else { None },
            pending,
            runs,
        };
        // A list that is no list is left as it is.
        let Ok(Some(plan)) = self.hopeful_session().and_then(|session| plan(&session, &facts)) else {
            return Vec::new();
        };
        let settled = plan.steps.iter().map(|(run, _)| run.clone()).collect();
        self.take_over(plan);
        settled
    }

    /// What is noted of the pending turn. A record that cannot be read notes nothing.
    fn turn_note(&self) -> TurnNote {
        let run = self.before.active_run().and_then(|run| RunId::parse(&run).ok());
        let birth = run.and_then(|run| self.ward.storage.birth(&self.id, &run).ok().flatten());
        let note = birth.and_then(|birth| birth.turn).unwrap_or_default();
        TurnNote { replaces: note.replaces.filter(|_| self.replaces_turns), ..note }
    }

    fn hopeful_session(&self) -> Result<Session, NotAList> {
        let mut session = self.after.clone();
        for (at, run) in &self.hopeful {
            hope_again(&mut session, *at, run, self.ward.now)?;
        }
        Ok(session)
    }

    fn take_over(&mut self, plan: Plan) {
        let failed = plan.branch.as_ref().filter(|branch| branch.reason == BranchReason::Failed);
        let failed = failed.map(|branch| branch.branch_id.clone());
        let turn = |run: &str| match failed.as_deref() == Some(run) {
            true => "the turn that it was to replace stays, and a branch",
            false => "its turn",
        };
        for (run, step) in plan.steps {
            let (code, words) = match step {
                Step::Folded => (Code::PendingTurn, format!("{} gets the answer, which had ended", turn(&run))),
                Step::Recovered { rows } => {
                    (Code::PendingTurn, format!("{} gets {} and a marker", turn(&run), recovered(rows)))
                }
                Step::Armed => (Code::PendingTurn, format!("{} gets a marker that waits for the answer", turn(&run))),
                Step::Promoted { rows } => {
                    let gave_up = self.hopeful.iter().any(|(_, hopeful)| *hopeful == run);
                    let code = if gave_up { Code::GaveUpButReadable } else { Code::ArmedMarker };
                    (code, format!("its marker gets {} above it", recovered(rows)))
                }
                Step::Spent { .. } | Step::GaveUp | Step::Mended => {
                    (Code::ArmedMarker, "its marker is settled".to_owned())
                }
            };
            self.did(code, format!("run {run}: {words}"));
        }
        self.touches |= plan.touches;
        self.after = plan.session;
        self.branch = plan.branch;
    }

    /// Cards that point at no answer.
    fn check_cards(&mut self, told: &mut Examined) {
        let cards = || self.before.tool_cards().enumerate();
        let is_lost = |index: &usize| !points_at_answer(&self.before, *index);
        let lost: Vec<(usize, usize)> =
            cards().filter_map(|(at, card)| Some((at, card.row_index().filter(is_lost)?))).collect();
        if lost.is_empty() {
            return;
        }
        let answers = self.answers();
        for (at, index) in lost {
            let target =
                self.after.item(List::ToolCalls, at).map(ToolCard::parse).and_then(|card| answers.row_of(&card));
            let message = format!(
                "tool card {at} points at message {index}, which is no answer, and is shown in the wrong place"
            );
            let finding = self.finding(Code::RowIndexMismatch, Severity::Warning);
            told.tell(match target {
                Some(_) => finding.says(message, "let it point at the answer that its run's journal names"),
                None => finding.leaves(message, "no journal tells where it belongs"),
            });
            if !self.ward.is_live && self.ward.wants(Code::RowIndexMismatch) {
                self.point_card(at, target);
            }
        }
    }

    fn point_card(&mut self, at: usize, target: Option<usize>) {
        let card = self.after.item(List::ToolCalls, at).map(ToolCard::parse);
        let (Some(mut card), Some(row)) = (card, target) else { return };
        card.set_row_index(row);
        if self.after.replace_item(List::ToolCalls, at, &card.fields().to_json()).is_ok() {
            self.did(Code::RowIndexMismatch, format!("tool card {at} points at message {row}"));
        }
    }

    /// The answers of each run, and where its journal has its cards.
    fn answers(&self) -> Answers {
        let mut answers = Answers::default();
        for (at, row) in self.after.messages().enumerate() {
            if let Some(run) = row.run().filter(|_| row.role() == "assistant" && !row.is_error()) {
                answers.rows.entry(run.into_owned()).or_default().push(at);
            }
        }
        for run in
            answers.rows.iter().filter(|(_, rows)| rows.len() > 1).map(|(run, _)| run.clone()).collect::<Vec<_>>()
        {
            let folded = self.ward.look(&self.after, &run).folded;
            answers.folded.insert(run, (folded.rows.len(), rows_of_cards(&folded)));
        }
        answers
    }

    fn check_index(&self, told: &mut Examined) {
        let Some(revision) = self.before.revision() else { return };
        match self.ward.noted(&self.id, revision) {
            IndexSays::Nothing => {}
            IndexSays::Outdated => told.is_index_behind = true,
            IndexSays::Summary(noted) => {
                let is_counted = self.before.get("message_count") == Some(&self.before.len(List::Messages).to_string());
                if is_counted && noted != Summary::of_session(&self.before).as_ref() {
                    let file = self.ward.relative(self.ward.files.layout().index());
                    let message =
                        format!("the index says something else of session {} than its file; lists show that", self.id);
                    let finding = Finding::new(Code::IndexDrift, Severity::Warning, file).of(&self.id);
                    told.tell(finding.says(message, "make the index anew, and keep this one in _kept"));
                }
            }
        }
    }

    /// The new document, if it is another.
    fn treatment(mut self) -> Option<Treatment> {
        if self.codes.is_empty() || self.ward.is_live {
            return None;
        }
        let rows = self.after.len(List::Messages);
        self.after.set("message_count", &rows.to_string());
        if self.touches {
            self.after.set("updated_at", &self.ward.now.to_string());
        }
        let is_shorter = rows < self.before.len(List::Messages);
        if is_shorter && self.ward.storage.has_foreign_backup(&self.id).unwrap_or(false) {
            let generation = crate::entropy::uuid4(&*self.ward.options.entropy);
            self.after.set_text("intentional_shrink_generation", &generation);
        }
        let bytes = encode(&self.after).bytes().to_vec();
        let replaces = self.before.revision().cloned();
        Some(Treatment::Document(NewDocument {
            bytes,
            replaces,
            codes: self.codes,
            words: self.words,
            branch: self.branch,
        }))
    }
}

fn tells_something(evidence: &Evidence) -> bool {
    evidence.has_output()
        || evidence.error_row.is_some()
        || evidence.is_ours
        || evidence.ending == Some(RunEnd::InterruptedByUser)
}

fn points_at_answer(session: &Session, index: usize) -> bool {
    session.message(index).is_some_and(|row| row.role() == "assistant")
}

/// Where the answers of each run stand.
#[derive(Default)]
struct Answers {
    rows: HashMap<String, Vec<usize>>,
    /// How many rows a journal makes, and to which of them each card belongs.
    folded: HashMap<String, (usize, CardRows)>,
}

/// The folded row of each card, by id and name; nothing where cards of several rows have both in common, as cards
/// without a number may.
type CardRows = HashMap<(String, String), Option<usize>>;

fn rows_of_cards(folded: &Folded) -> CardRows {
    let mut rows = CardRows::new();
    for card in &folded.cards {
        let key = (card.card.tid().into_owned(), card.card.name().into_owned());
        let known = rows.entry(key).or_insert(Some(card.row));
        *known = known.filter(|row| *row == card.row);
    }
    rows
}

impl Answers {
    /// The row of a card: the only one of its run, or the one in the same place as in the run's journal.
    fn row_of(&self, card: &ToolCard) -> Option<usize> {
        let run = card.run()?;
        let rows = self.rows.get(&*run)?;
        if let [only] = rows[..] {
            return Some(only);
        }
        let (count, cards) = self.folded.get(&*run)?;
        let place = (*cards.get(&(card.tid().into_owned(), card.name().into_owned()))?)?;
        rows.get(place).filter(|_| rows.len() == *count).copied()
    }
}

fn recovered(rows: usize) -> String {
    if rows == 1 { "1 recovered row".to_owned() } else { format!("{rows} recovered rows") }
}
