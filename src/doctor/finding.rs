//! What the doctor finds: a code for programs, a severity, a place, and words for people.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::format::DamageKind;
use crate::model::{Object, RunId, SessionId};

/// How bad a finding is. The worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something that was written is not there any more, or cannot be read.
    Damage,
    /// Nothing is lost, but something is not as it should be and stays so until it is repaired.
    Warning,
    /// Worth knowing; what is to be done is done when the session is next read, or the directory next opened.
    Info,
}

impl Severity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Damage => "damage",
            Severity::Warning => "warning",
            Severity::Info => "info",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Severity::Damage, Severity::Warning, Severity::Info].into_iter().find(|severity| severity.as_str() == word)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident $word:literal)+) => {
        /// What a finding is about: a word for programs, the same in every version.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])+ $name),+ }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $word),+ }
            }
        }
    };
}

codes! {
    /// The last line of a journal is not whole.
    TornTail "torn_tail"
    /// A checksum does not fit its bytes.
    ChecksumMismatch "checksum_mismatch"
    /// Bytes are not UTF-8.
    BadUtf8 "bad_utf8"
    /// Something is not JSON, or cannot be read at all.
    BadJson "bad_json"
    /// NUL bytes where text should be.
    NulRun "nul_run"
    /// Two records stand on one line.
    GluedRecords "glued_records"
    /// A line is longer than any we write.
    LineTooLong "line_too_long"
    /// A number was given to two events.
    DuplicateSeq "duplicate_seq"
    /// Events are missing.
    MissingSeq "missing_seq"
    /// Something carries the ids of another run or session.
    ForeignId "foreign_id"
    /// A journal has no session.
    OrphanJournal "orphan_journal"
    /// A run has no end and no producer.
    UnsealedDeadRun "unsealed_dead_run"
    /// A marker still hopes for its answer.
    ArmedMarker "armed_marker"
    /// A marker gave up, and its answer can be read.
    GaveUpButReadable "gave_up_but_readable"
    /// A turn waits for an answer that nobody will end.
    PendingTurn "pending_turn"
    /// A session's document is missing or cannot be read.
    SidecarUnreadable "sidecar_unreadable"
    /// A number that points at rows, or counts them, is wrong.
    RowIndexMismatch "row_index_mismatch"
    /// A list of the sessions says something else than the sessions.
    IndexDrift "index_drift"
    /// Somebody did not finish writing a file.
    StaleTemp "stale_temp"
    /// Parts of a deleted session are not in the trash.
    DeletedLeftover "deleted_leftover"
    /// A newer program wrote this.
    NewerFormat "newer_format"
    /// Others than the owner may read or change a file.
    OpenPermissions "open_permissions"
    /// The commit log holds events that were not put into their journals.
    LogNotReplayed "log_not_replayed"
    /// A commit log belongs to another store.
    ForeignLog "foreign_log"
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no code of a finding; those are: {all}", all = all_words())]
pub struct UnknownCode(String);

fn all_words() -> String {
    Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(word: &str) -> Result<Self, UnknownCode> {
        Code::ALL.iter().find(|code| code.as_str() == word).copied().ok_or_else(|| UnknownCode(word.to_owned()))
    }
}

impl From<DamageKind> for Code {
    fn from(kind: DamageKind) -> Self {
        match kind {
            DamageKind::TornTail => Code::TornTail,
            DamageKind::ChecksumMismatch => Code::ChecksumMismatch,
            DamageKind::BadUtf8 => Code::BadUtf8,
            DamageKind::BadJson => Code::BadJson,
            DamageKind::NulRun => Code::NulRun,
            DamageKind::GluedRecords => Code::GluedRecords,
            DamageKind::LineTooLong => Code::LineTooLong,
        }
    }
}

/// What is said of a finding: what it means, and what a repair does or why it does nothing.
pub(super) enum Words {
    Mended(String, &'static str),
    Left(String, &'static str),
}

/// How what is said of a repair begins if there is none.
const NO_REPAIR: &str = "nothing";

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// The session.
    pub session: Option<SessionId>,
    /// The run.
    pub run: Option<RunId>,
    /// The file, from the data directory on.
    pub file: PathBuf,
    /// The first byte of the damaged line, or of whatever is damaged.
    pub offset: Option<u64>,
    /// What it means for the user.
    pub message: String,
    /// What a repair would do about it, or why it would do nothing.
    pub repair: String,
    /// Whether a repair would do anything.
    pub is_mendable: bool,
}

impl Finding {
    /// A finding about a file.
    pub(super) fn new(code: Code, severity: Severity, file: PathBuf) -> Self {
        let (message, repair) = (String::new(), String::new());
        Finding { code, severity, session: None, run: None, file, offset: None, message, repair, is_mendable: false }
    }

    pub(super) fn of(self, session: &SessionId) -> Self {
        Finding { session: Some(session.clone()), ..self }
    }

    pub(super) fn of_run(self, session: &SessionId, run: &RunId) -> Self {
        Finding { session: Some(session.clone()), run: Some(run.clone()), ..self }
    }

    pub(super) fn at(self, offset: u64) -> Self {
        Finding { offset: Some(offset), ..self }
    }

    /// Something that a repair mends.
    pub(super) fn says(self, message: impl Into<String>, repair: impl Into<String>) -> Self {
        Finding { message: message.into(), repair: repair.into(), is_mendable: true, ..self }
    }

    /// Something that a repair leaves alone, and why.
    pub(super) fn leaves(self, message: impl Into<String>, why: &str) -> Self {
        let repair = if why.is_empty() { NO_REPAIR.to_owned() } else { format!("{NO_REPAIR}: {why}") };
        Finding { message: message.into(), repair, is_mendable: false, ..self }
    }

    /// The one or the other.
    pub(super) fn told(self, words: Words) -> Self {
        match words {
            Words::Mended(message, repair) => self.says(message, repair),
            Words::Left(message, why) => self.leaves(message, why),
        }
    }

    /// As `check --json` prints it.
    pub fn to_json(&self) -> String {
        let mut json = Object::default();
        json.set_text("code", self.code.as_str());
        json.set_text("severity", self.severity.as_str());
        set_or_null(&mut json, "session", self.session.as_ref().map(SessionId::as_str));
        set_or_null(&mut json, "run", self.run.as_ref().map(RunId::as_str));
        json.set_text("file", &self.file.to_string_lossy());
        json.set("offset", self.offset.map_or("null".to_owned(), |offset| offset.to_string()));
        json.set_text("message", &self.message);
        json.set_text("repair", &self.repair);
        json.to_json()
    }

    /// What somebody else found, in the same words.
    pub(super) fn from_json(json: &str) -> Option<Self> {
        let json = Object::parse(json)?;
        let repair = json.text("repair")?.into_owned();
        Some(Finding {
            code: json.text("code")?.parse().ok()?,
            severity: Severity::of(&json.text("severity")?)?,
            session: json.text("session").map(|id| SessionId::parse(&id)).transpose().ok()?,
            run: json.text("run").map(|id| RunId::parse(&id)).transpose().ok()?,
            file: PathBuf::from(&*json.text("file")?),
            offset: json.get("offset").and_then(|offset| offset.parse().ok()),
            message: json.text("message")?.into_owned(),
            is_mendable: !repair.starts_with(NO_REPAIR),
            repair,
        })
    }
}

pub(super) fn set_or_null(json: &mut Object, key: &str, text: Option<&str>) {
    match text {
        Some(text) => json.set_text(key, text),
        None => json.set(key, "null"),
    }
}
