//! What every storage backend promises, in words of documents and journals. Blocking.
//!
//! Nothing else may be relied on:
//! - A document that was put is there, whole, after a power cut, once `put_document` has returned. Before that it is
//!   the old one or the new one, never a mixture.
//! - A put names the revision that it replaces. If another is there, that is a value ([`PutOutcome::Conflict`]) and
//!   nothing was written. What a put is told to keep is durable elsewhere before it is replaced.
//! - Lines that were appended are there after the death of the process, once `append` has returned, and after a power
//!   cut once their ticket is done; that covers every line before them. A line that was not acknowledged is absent or
//!   whole. A reader never sees a line that is taken back later.
//! - A journal has one writer. After a failed append that writer does no more and says why, unless the disk was full
//!   and the next append may find room; a new one begins with what is really there. After a failed sync nothing is
//!   written any more, to any journal or document, until the storage is opened again.
//! - A session's stream shows segments of its runs in the order of their numbers, which [`Storage::next_order`] gives and
//!   no clock decides. A run's first segment begins with its first event and has the run's `order`. Each
//!   [`Continuation`] says that the events after `after_seq` come later, at the place of its own `order`, because another
//!   run began in between.
//! - A deleted session is not there, even if a crash interrupted its removal, and cannot be put or begun again.
//! - An object beside a session (an attachment, a branch) that was put is there, whole, after a power cut, once
//!   `put_object` has returned. Before that it is the old one, the new one or, if there was none, absent. It is deleted
//!   with its session: after that it is not there, and a put writes nothing. Its key follows the rule of its kind; under
//!   any other key there is nothing, and nothing can be put.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::StorageError;
use super::finding::Finding;
use super::ticket::Ticket;
use crate::format::EventRef;
use crate::model::{AttachmentId, Revision, RunId, SessionId, TurnNote};

/// A stored document.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their revision.
    pub revision: Revision,
}

/// The beginning of a stored document.
#[derive(Debug, Clone)]
pub struct DocumentHead {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Whether that is all of it.
    pub is_all: bool,
    /// The revision of the whole.
    pub revision: Revision,
}

/// A document in a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentEntry {
    /// Its session.
    pub session: SessionId,
    /// Its revision; none if it cannot be looked at.
    pub revision: Option<Revision>,
}

/// What a put expects to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Nothing: the document is new.
    Absent,
    /// Exactly this revision.
    Revision(Revision),
}

/// How a document is put.
#[derive(Debug, Clone)]
pub struct Put {
    /// What it replaces.
    pub expected: Expected,
    /// Whether the replaced version is kept.
    pub keep_replaced: bool,
}

/// How a put ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome {
    /// The document is stored, and this is its revision.
    Stored(Revision),
    /// Something else is there than was expected; nothing was written.
    Conflict {
        /// What is there, if anything.
        found: Option<Revision>,
    },
    /// The session was deleted; nothing was written.
    Deleted,
}

/// A kind of object that is stored beside a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// The bytes of an attachment. Its key is an [`AttachmentId`].
    Attachment,
    /// What is known of an attachment: media type, file name, length. Its key is the same [`AttachmentId`].
    AttachmentInfo,
    /// Rows of the session that others took the place of. Its key follows the rule of run ids.
    Branch,
}

impl ObjectKind {
    /// Every kind.
    pub const ALL: [ObjectKind; 3] = [ObjectKind::Attachment, ObjectKind::AttachmentInfo, ObjectKind::Branch];

    /// Whether an object of this kind can have this key.
    pub fn admits(self, key: &str) -> bool {
        match self {
            ObjectKind::Attachment | ObjectKind::AttachmentInfo => AttachmentId::parse(key).is_ok(),
            ObjectKind::Branch => RunId::parse(key).is_ok(),
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::Attachment => "attachment",
            ObjectKind::AttachmentInfo => "attachment info",
            ObjectKind::Branch => "branch",
        })
    }
}

/// How a put of an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutObject {
    /// The object is stored, durably.
    Stored,
    /// The session was deleted; nothing was written.
    Deleted,
}

/// How durable an append has to be before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// It survives the death of the process.
    #[default]
    Buffered,
    /// It survives a power cut.
    Durable,
}

/// What is noted of a run when its journal is created, and what became of it since. [`Storage::create_journal`] stores the
/// first three and the turn; the others are what [`Storage::birth`] reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Birth {
    /// When it began, in seconds.
    pub begun_at: f64,
    /// For how long after its last append an outside producer counts as alive; none if it never does.
    pub lease_seconds: Option<f64>,
    /// The place of its first segment in the session's stream; none for runs that were begun without a number.
    pub order: Option<u64>,
    /// What is noted of the turn that it answers; none for runs of earlier versions and turns without any such note.
    pub turn: Option<TurnNote>,
    /// The places of its later segments, by rising `after_seq` and `order`.
    pub continued: Vec<Continuation>,
    /// Whether it may take more events. `false` if its journal was removed or its record closed, or if the machine was
    /// restarted since it began: such a run is fenced for good. A sealed journal is not known here.
    pub takes_appends: bool,
    /// When an outside producer last renewed its lease without an event, in seconds. Read for runs with a lease alone.
    pub renewed_at: Option<f64>,
}

impl Birth {
    /// The place of its last segment; 0 if it has none with a number.
    pub fn last_order(&self) -> u64 {
        self.continued.iter().map(|continuation| continuation.order).chain(self.order).max().unwrap_or(0)
    }
}

/// The place of a later segment of a run: its events after a number, up to the next continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuation {
    /// The number of the last event before it.
    pub after_seq: u64,
    /// Its place in the session's stream.
    pub order: u64,
}

/// A process group that works for a run. Noted so that the next writer can end it if this one could not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGroup {
    /// What its note is called, and what its processes carry in their environment: nobody else's is the same.
    pub token: String,
    /// Its number, which is that of its first process.
    pub id: u32,
    /// When its first process started, in the kernel's ticks since the machine did; none where that is not known.
    pub started_ticks: Option<u64>,
    /// In which boot of the machine.
    pub boot_id: String,
    /// The session that it works for.
    pub session_id: String,
    /// The run.
    pub run_id: String,
    /// The process that started it.
    pub owner_id: u32,
    /// When that started; none where that is not known.
    pub owner_started_ticks: Option<u64>,
}

/// Whether a journal takes more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seal {
    /// It does.
    #[default]
    Open,
    /// It ended with `done`: exactly one `stream_end` may follow.
    Done,
    /// It does not.
    Closed,
}

impl Seal {
    /// The seal after an event of this name that ends the run, or does not.
    pub fn after(self, name: &str, is_terminal: bool) -> Seal {
        match (self, is_terminal) {
            (Seal::Open, false) => Seal::Open,
            (Seal::Open, true) if name == "done" => Seal::Done,
            _ => Seal::Closed,
        }
    }

    /// Whether an event of this name may follow.
    pub fn admits(self, name: &str) -> bool {
        match self {
            Seal::Open => true,
            Seal::Done => name == "stream_end",
            Seal::Closed => false,
        }
    }

    /// The seal after a line that was found.
    pub fn after_found(self, event: &EventRef<'_>) -> Seal {
        self.after(&event.name, event.is_terminal())
    }

    /// Whether the run has ended.
    pub fn is_sealed(self) -> bool {
        self != Seal::Open
    }
}

/// How a journal ends, as its next writer has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tail {
    /// The highest number that was ever assigned, as far as can be known.
    pub last_seq: u64,
    /// Whether it takes more.
    pub seal: Seal,
    /// Bytes up to and including the last whole line.
    pub extent: u64,
}

/// A journal and its one writer.
#[derive(Debug)]
pub struct OpenedJournal {
    /// The writer.
    pub writer: Box<dyn JournalWriter>,
    /// Where it goes on.
    pub tail: Tail,
}

/// An append that failed. Whole lines may have got through before the failure; they count as appended.
#[derive(Debug)]
pub struct AppendFailure {
    /// How many of the batch's bytes are in the journal, all of them whole lines, the last perhaps without its line feed.
    pub kept_bytes: usize,
    /// Whether this writer does no more. If not, the next append may succeed.
    pub is_over: bool,
    /// What went wrong. Boxed, because an append that succeeds should not carry the room for it around.
    pub error: Box<StorageError>,
}

/// The one writer of a journal.
pub trait JournalWriter: Send + fmt::Debug {
    /// Appends whole lines. They are visible to readers when this returns, and durable when the ticket is done.
    fn append(&mut self, lines: &[u8], durability: Durability) -> Result<Ticket, AppendFailure>;

    /// Lets go of what it holds open, until the next append. What is not durable is made so first; if that fails, this
    /// writer does no more. A writer that has not appended yet rests.
    fn rest(&mut self) -> Result<(), StorageError>;

    /// Takes no more, because the session is gone. Final.
    fn fence(&mut self, why: &'static str);
}

/// The bytes of a journal, growing while it is written. Reading never repairs.
pub trait JournalBytes: Send + fmt::Debug {
    /// Reads at an offset; none at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError>;
}

/// A store's documents, journals and objects beside them.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Whether anything can be written at all.
    fn can_write(&self) -> bool;

    /// The failure since which nothing is written any more; none while there was none, and for a reader.
    fn stopped_by(&self) -> Option<StorageError> {
        None
    }

    /// Makes everything that was appended so far survive a power cut, now.
    fn commit(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// What was found wrong when it was opened, and what was done about it.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// What is wrong now, and was not when it was opened.
    fn live_findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Whether there are no threads of its own, and every step is made by its caller: a simulated disk.
    fn is_by_hand(&self) -> bool {
        false
    }

    /// Since when a process holds the directory to write it, in seconds; none if no process does. Asked by readers.
    fn held_since(&self) -> Option<f64> {
        None
    }

    /// Which boot of the machine this is; empty where that is not known.
    fn boot_id(&self) -> String {
        String::new()
    }

    /// Notes a process group, so that it is known after the death of this process.
    fn note_group(&self, _group: &ProcessGroup) -> Result<(), StorageError> {
        Ok(())
    }

    /// Forgets a process group that is gone.
    fn forget_group(&self, _token: &str) -> Result<(), StorageError> {
        Ok(())
    }

    /// The process groups that are noted. Refused to readers: what they would do about them is the writer's business.
    fn noted_groups(&self) -> Result<Vec<ProcessGroup>, StorageError> {
        Ok(Vec::new())
    }

    /// The transcript that the agent itself keeps of a session, where it can be had.
    fn core_transcript(&self, session: &SessionId) -> Result<Option<Vec<u8>>, StorageError>;

    /// A session's document.
    fn document(&self, session: &SessionId) -> Result<Option<Document>, StorageError>;

    /// At least the first bytes of a session's document.
    fn document_head(&self, session: &SessionId, bytes: usize) -> Result<Option<DocumentHead>, StorageError>;

    /// The revision of a session's document, without reading it.
    fn document_revision(&self, session: &SessionId) -> Result<Option<Revision>, StorageError>;

    /// Bytes of a session's document, without reading it; none if it is not there, or if only reading it would tell.
    fn document_bytes(&self, _: &SessionId) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Whether a session's document still is the one of this revision. Asked on every warm read.
    fn is_current(&self, session: &SessionId, revision: &Revision) -> Result<bool, StorageError> {
        Ok(self.document_revision(session)?.as_ref() == Some(revision))
    }

    /// Stores a document.
    fn put_document(&self, session: &SessionId, bytes: &[u8], put: &Put) -> Result<PutOutcome, StorageError>;

    /// All documents with their revisions, in no order.
    fn documents(&self) -> Result<Vec<DocumentEntry>, StorageError>;

    /// Something that is another whenever documents came or went since; nothing if that cannot be told now.
    fn documents_token(&self) -> Result<Option<u128>, StorageError> {
        Ok(None)
    }

    /// What the index noted for its next opening. Derived: it may be lost, torn, stale or garbled, and promises nothing.
    fn index_notes(&self) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }

    /// Adds to the index's notes and gives their length.
    fn append_index_notes(&self, _lines: &[u8]) -> Result<u64, StorageError> {
        Ok(0)
    }

    /// Gives the index other notes.
    fn replace_index_notes(&self, _lines: &[u8]) -> Result<(), StorageError> {
        Ok(())
    }

    /// Whether another program left a backup of this document that it might put back.
    fn has_foreign_backup(&self, session: &SessionId) -> Result<bool, StorageError>;

    /// Deletes a session with its journals, into the trash. `false` if it is not there.
    fn delete_session(&self, session: &SessionId) -> Result<bool, StorageError>;

    /// Whether the session was deleted.
    fn is_deleted(&self, session: &SessionId) -> Result<bool, StorageError>;

    /// Stores an object beside a session, in the place of the one with this key if there is one. Whether the session has a
    /// document is not looked at. An attachment that is there with these bytes is not written again, but made durable.
    fn put_object(
        &self,
        session: &SessionId,
        kind: ObjectKind,
        key: &str,
        bytes: &[u8],
    ) -> Result<PutObject, StorageError>;

    /// An object beside a session. An attachment whose bytes do not have its hash is an error.
    fn object(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<Option<Vec<u8>>, StorageError>;

    /// How many bytes an object has, without reading it; none if it is not there.
    fn object_len(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<Option<u64>, StorageError>;

    /// The keys of a session's objects of one kind, in order.
    fn objects(&self, session: &SessionId, kind: ObjectKind) -> Result<Vec<String>, StorageError>;

    /// Removes an object, durably, and for good: it does not go to the trash. `false` if it is not there.
    fn remove_object(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<bool, StorageError>;

    /// Creates a journal, durably, so that its run id is taken from now on.
    fn create_journal(&self, session: &SessionId, run: &RunId, birth: &Birth) -> Result<OpenedJournal, StorageError>;

    /// Opens a journal that exists, to append to it. What a crash left of a last line is kept aside and cut off.
    fn open_journal(&self, session: &SessionId, run: &RunId) -> Result<OpenedJournal, StorageError>;

    /// The bytes of a journal.
    fn journal_bytes(&self, session: &SessionId, run: &RunId) -> Result<Option<Box<dyn JournalBytes>>, StorageError>;

    /// How many bytes a journal has; none if there is no journal.
    fn journal_len(&self, session: &SessionId, run: &RunId) -> Result<Option<u64>, StorageError>;

    /// What was noted of a run when its journal was created; nothing for one that another program began.
    fn birth(&self, session: &SessionId, run: &RunId) -> Result<Option<Birth>, StorageError>;

    /// The number after which every line of a journal carries a checksum, because this program wrote it; none if another
    /// program began the run and may still write it.
    fn checked_after(&self, _session: &SessionId, _run: &RunId) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Takes back [`Storage::create_journal`]: removes a journal that holds nothing, and frees its run id.
    fn discard_journal(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError>;

    /// The runs of a session that have a journal, in order.
    fn journals(&self, session: &SessionId) -> Result<Vec<RunId>, StorageError>;

    /// Moves a journal to the trash, for good: its run id is not taken again. `false` if there is none.
    fn remove_journal(&self, session: &SessionId, run: &RunId) -> Result<bool, StorageError>;

    /// A number that is greater than `after` and than every one given before, also before a crash or a power cut, and whatever
    /// the clock says. Numbers begin at 1 and have gaps. For the place of a segment in a session's stream.
    fn next_order(&self, after: u64) -> Result<u64, StorageError>;

    /// Notes, durably, that the events of a run after a number come at a later place of the stream.
    ///
    /// One with the same `after_seq` as the last one replaces it. Nothing is noted, and that is not an error, for a run
    /// that has no record of ours or was removed, for a lower `after_seq` or an `order` that is not greater than those
    /// noted before, and beyond 64 continuations of one run: later events belong to the last segment then.
    fn note_continuation(
        &self,
        session: &SessionId,
        run: &RunId,
        continuation: Continuation,
    ) -> Result<(), StorageError>;

    /// Keeps the end of what a run's commands printed on stderr, durably, in the place of what was kept before. At most
    /// [`STDERR_BYTES_MAX`](crate::limits::STDERR_BYTES_MAX) of it are kept, the last ones.
    ///
    /// What a crash leaves: what was kept before, or the new text, whole. Nothing is kept, and that is not an error, for a run
    /// that has no record of ours or was removed, and for a session that was deleted.
    fn keep_stderr(&self, session: &SessionId, run: &RunId, text: &str) -> Result<(), StorageError>;

    /// What is kept of a run's stderr; nothing if there is none, or a record that cannot be read.
    fn kept_stderr(&self, session: &SessionId, run: &RunId) -> Result<Option<String>, StorageError>;

    /// Notes when an outside producer renewed the lease of its run without an event, so that it is known after the death
    /// of this process. Not after a power cut: the run takes no more events then. Nothing is noted for a session that
    /// was deleted or a run without a journal.
    fn note_renewal(&self, session: &SessionId, run: &RunId, at_seconds: f64) -> Result<(), StorageError>;

    /// Forgets the renewals of a run's lease, because it has ended.
    fn forget_renewal(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError>;
}
