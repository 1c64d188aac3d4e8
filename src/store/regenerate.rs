//! Turns that replace others: what a request names, what it asks, and the session as it was before.
//!
//! `begin_run` notes the place in the run's record and leaves the transcript as it is. `recovery/replace.rs` decides when the run
//! has ended, and says what a crash leaves at each step.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Shared, Store, StoreError, UserTurn};
use crate::model::message_id::{find_answered, find_user, user_message_id, user_rows};
use crate::model::{BranchReason, List, PendingTurn, ReplacedTurn, Row, RunId, Session, SessionId, TurnNote};
use crate::recovery::{place_of, row_print, without_replaced};

/// Which turn of a session another one replaces, with everything after it. Until its run has ended, the old rows stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaces {
    /// The last question gets another answer. Message, attachments, id and metadata are those of the stored row.
    LastAnswer,
    /// The same for the question that this run answered, or of this id, or whose answer has this id.
    Answer(String),
    /// The user's message with this id is edited: the turn says what it says now.
    Message(String),
}

/// A message of the user that the session knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedBefore {
    /// The run that answers it; none in a session of another program.
    pub run: Option<RunId>,
    /// What it says.
    pub message: String,
    /// Its attachments, a JSON list.
    pub attachments: String,
    /// Whether its answer is not in the transcript yet.
    pub is_pending: bool,
}

/// A turn as it is begun: what is asked, and what is noted of it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) pending: PendingTurn,
    pub(super) note: TurnNote,
}

/// The turn that a request names.
struct Named {
    place: usize,
    reason: BranchReason,
    /// The row that is asked again; none for an edit, which brings its own words.
    question: Option<Row>,
}

impl Store {
    /// The run that a message was sent for, and what it said: the turn that waits for its answer, or the last row of this id.
    pub fn run_of_message(&self, session: &SessionId, message: &str) -> Result<Option<AskedBefore>, StoreError> {
        let read = self.shared.read(session)?;
        if let Some(pending) = self.shared.pending_message(&read.session, message)? {
            return Ok(Some(pending));
        }
        let Some(at) = find_user(&read.session, message) else { return Ok(None) };
        let row = read.session.message(at).unwrap_or_default();
        let run = row.run().and_then(|run| RunId::parse(&run).ok());
        let (message, attachments) = (row.content().into_owned(), attachments_of(&row));
        Ok(Some(AskedBefore { run, message, attachments, is_pending: false }))
    }

    /// What was noted of a turn when its run began; nothing for one without any such note.
    pub fn turn_note(&self, session: &SessionId, run: &RunId) -> Result<Option<TurnNote>, StoreError> {
        self.shared.turn_note(session, run)
    }

    /// The session as this run is to know it, read in full: without the turn that it replaces, while it is pending.
    pub fn session_for_run(&self, session: &SessionId, run: &RunId) -> Result<Arc<Session>, StoreError> {
        let read = self.get_session(session)?;
        let is_active = read.active_run().as_deref() == Some(run.as_str());
        Ok(match if is_active { self.shared.as_asked(&read)? } else { Cow::Borrowed(&*read) } {
            Cow::Owned(before) => Arc::new(before),
            Cow::Borrowed(_) => read,
        })
    }
}

impl Shared {
    /// What was noted of a turn when its run began.
    pub(super) fn turn_note(&self, session: &SessionId, run: &RunId) -> Result<Option<TurnNote>, StoreError> {
        Ok(self.storage.birth(session, run)?.and_then(|birth| birth.turn))
    }

    /// The session as the run that answers its pending turn is to know it: without the turn that it replaces.
    pub(super) fn as_asked<'s>(&self, session: &'s Session) -> Result<Cow<'s, Session>, StoreError> {
        let run = session.active_run().and_then(|run| RunId::parse(&run).ok());
        let note = run.map(|run| self.turn_note(session.id(), &run)).transpose()?.flatten();
        let before = note.and_then(|note| without_replaced(session, &note));
        Ok(before.map_or(Cow::Borrowed(session), Cow::Owned))
    }

    /// The same for a run that is to be settled. A record that cannot be read must not take the session with it: its turn is
    /// one like any other then, and nothing is replaced. Only a lack of descriptors, which passes, is waited for.
    pub(super) fn note_to_settle(&self, session: &SessionId, run: &RunId) -> Result<TurnNote, StoreError> {
        match self.storage.birth(session, run) {
            Err(error) if error.is_no_descriptor() => Err(error.into()),
            birth => Ok(birth.ok().flatten().and_then(|birth| birth.turn).unwrap_or_default()),
        }
    }

    fn pending_message(&self, session: &Session, message: &str) -> Result<Option<AskedBefore>, StoreError> {
        let (Some(turn), Some(run)) = (session.pending_turn(), session.active_run()) else { return Ok(None) };
        let Ok(run) = RunId::parse(&run) else { return Ok(None) };
        let note = self.turn_note(session.id(), &run)?.unwrap_or_default();
        let id = note.message_id.unwrap_or_else(|| format!("{run}-user"));
        let asked =
            AskedBefore { run: Some(run), message: turn.message, attachments: turn.attachments, is_pending: true };
        Ok((id == message).then_some(asked))
    }

    /// What a turn asks and what is to be noted of it. The session has no turn that waits.
    pub(super) fn asked(&self, session: &Session, turn: &UserTurn) -> Result<Asked, StoreError> {
        let given = turn.note()?;
        let Some(replaces) = &turn.replaces else { return Ok(Asked { pending: turn.pending()?, note: given }) };
        let named = self.named(session, replaces)?;
        let row = session.message(named.place).unwrap_or_default();
        let message = user_message_id(&row, named.place);
        let replaced_row = row_print(session, named.place).filter(|_| message.starts_with("row-"));
        let asked = match &named.question {
            Some(question) => turn.asking(question),
            None => turn.clone(),
        };
        let note = TurnNote {
            message_id: if named.question.is_some() { None } else { given.message_id }.or(Some(message.clone())),
            metadata: given.metadata.or_else(|| metadata_of(named.question.as_ref()?)),
            replaces: Some(ReplacedTurn { message, reason: named.reason }),
            replaced_row,
        };
        Ok(Asked { pending: asked.pending()?, note })
    }

    fn named(&self, session: &Session, replaces: &Replaces) -> Result<Named, StoreError> {
        let unknown = |message: &str| StoreError::UnknownMessage {
            session: session.id().clone(),
            message: message.chars().take(SHOWN_CHARS_MAX).collect(),
        };
        let again = |place: usize| {
            let question = Some(session.message(place).unwrap_or_default());
            Named { place, reason: BranchReason::Regenerate, question }
        };
        match replaces {
            Replaces::LastAnswer => {
                let none = || StoreError::NoQuestion { session: session.id().clone() };
                user_rows(session).next().map(|(place, _)| again(place)).ok_or_else(none)
            }
            Replaces::Answer(id) => match find_answered(session, id) {
                Some(place) => Ok(again(place)),
                None => self.failed_attempt(session, id)?.ok_or(unknown(id)),
            },
            Replaces::Message(id) => {
                let edited = |place| Named { place, reason: BranchReason::Edit, question: None };
                find_user(session, id).map(edited).ok_or(unknown(id))
            }
        }
    }

    /// The turn that a run should have replaced and did not. What it asked, if that was an edit, stands in a branch: its own, or
    /// the one that its turn became when it was restored and replaced in its turn.
    fn failed_attempt(&self, session: &Session, run: &str) -> Result<Option<Named>, StoreError> {
        let Ok(run) = RunId::parse(run) else { return Ok(None) };
        let note = self.turn_note(session.id(), &run)?.unwrap_or_default();
        let Some(place) = place_of(session, &note) else { return Ok(None) };
        let is_edit = note.replaces.is_some_and(|replaced| replaced.reason == BranchReason::Edit);
        if !is_edit {
            let question = session.message(place);
            return Ok(Some(Named { place, reason: BranchReason::Regenerate, question }));
        }
        // Without its branch it is not known what was asked.
        let branch = self.branch_of_run(session.id(), &run)?;
        let question = branch.and_then(|branch| branch.cut.rows.first().map(|row| Row::parse(row)));
        Ok(question.map(|question| Named { place, reason: BranchReason::Edit, question: Some(question) }))
    }
}

/// Characters of a message id that an error shows.
const SHOWN_CHARS_MAX: usize = 80;

impl UserTurn {
    /// The turn that asks what a stored row asks.
    fn asking(&self, row: &Row) -> UserTurn {
        UserTurn {
            message: row.content().into_owned(),
            attachments: attachments_of(row),
            source: row.fields().text("_source").map(|source| source.into_owned()),
            ..self.clone()
        }
    }
}

fn attachments_of(row: &Row) -> String {
    row.fields().get("attachments").filter(|list| list.starts_with('[')).unwrap_or("[]").to_owned()
}

fn metadata_of(row: &Row) -> Option<String> {
    row.fields().get(crate::model::message_id::METADATA).filter(|json| json.starts_with('{')).map(str::to_owned)
}

/// Whether a session has fewer rows than another.
pub(super) fn is_shorter(session: &Session, than: &Session) -> bool {
    session.len(List::Messages) < than.len(List::Messages)
}
