//! Every bound of the store, units last in the name. Nothing here reads or decides anything.

use std::time::Duration;

/// Characters of a session or run id.
pub const ID_CHARS_MAX: usize = 128;

/// Bytes of one journal line, line feed excluded. A longer event is refused; a longer line found in a file is damage.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The highest number of an event, which every JSON reader can count to exactly. A higher one found in a file is none.
pub const SEQ_MAX: u64 = (1 << 53) - 1;

/// Levels of lists and objects within each other in JSON from outside: the outermost value of a body or of a line is level 1.
/// What is made of it has a few levels more, and readers take 128 (serde_json) or about 1,000 (Python).
pub const JSON_DEPTH_MAX: usize = 100;

/// Bytes of an event's name.
pub const EVENT_NAME_BYTES_MAX: usize = 256;

/// Bytes of one sidecar. A larger one is not loaded.
pub const SIDECAR_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes of a user's message or a session's title.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Characters of a client's id of a message.
pub const MESSAGE_ID_CHARS_MAX: usize = 256;

/// Bytes of a client's metadata of a message: it stands in the run's record.
pub const MESSAGE_METADATA_BYTES_MAX: usize = 32 * 1024;
/// Bytes of one attachment.
pub const ATTACHMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of an attachment's file name.
pub const ATTACHMENT_NAME_BYTES_MAX: usize = 1024;

/// Bytes of a media type.
pub const MEDIA_TYPE_BYTES_MAX: usize = 255;

/// Bytes of our own small files: the store's identity, the lock, a run's record, a tombstone.
pub const RECORD_BYTES_MAX: u64 = 64 * 1024;

/// Bytes that are kept of what a run's commands print on stderr.
pub const STDERR_BYTES_MAX: usize = 8 * 1024;

/// Bytes of room for lines that an open journal keeps between two appends.
pub const IDLE_LINES_BYTES_MAX: usize = 64 * 1024;

/// Journal files kept open for appending at the same time, unless the options say otherwise: half of the files that the
/// system lets a process open, but not fewer and not more than these.
pub const OPEN_JOURNALS: std::ops::RangeInclusive<usize> = 4..=8192;

/// Abandoned journals whose files stay open until the commit log needs them no more: a part of the files that the system
/// lets a process open, but not fewer and not more than these.
pub const LEFT_JOURNALS: std::ops::RangeInclusive<usize> = 2..=64;

/// Bytes of lines that wait to become durable. Whoever appends beyond them waits until they are.
pub const COMMIT_LINES_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of one file of the commit log that are read.
pub const SEGMENT_BYTES_READ_MAX: u64 = 256 * 1024 * 1024;

/// Bytes asked of a journal in one read.
pub const READ_CHUNK_BYTES: usize = 256 * 1024;

/// Bytes that somebody who follows a run asks of its journal in one read, and keeps of it while it does not go on.
pub const FOLLOW_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes of the first read of a sidecar whose metadata alone is wanted.
pub const METADATA_PREFIX_BYTES: usize = 8 * 1024;

/// Bytes of the first read at the end of a journal that is opened for appending.
pub const TAIL_BYTES: u64 = 64 * 1024;

/// Events of one session replay.
pub const REPLAY_EVENTS_MAX: usize = 4096;

/// Bytes of one session replay.
pub const REPLAY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Seconds for which a producer outside may ask to count as alive after its last sign of life.
pub const LEASE_SECONDS_MAX: f64 = 86_400.0;

/// Characters of one value, like a title, that a list shows of a session.
pub const LISTED_CHARS_MAX: usize = 1_000;

/// Changes of sessions that the index gathers before it writes them down.
pub const INDEX_CHANGES_MAX: usize = 256;

/// Bytes of an index file; a longer one is begun anew.
pub const INDEX_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes that an index file may hold beyond four times what it would need.
pub const INDEX_SLACK_BYTES: u64 = 1024 * 1024;

/// Sessions of the list that one page of those wanted looks through.
pub const LIST_SCAN_MAX: usize = 20_000;

/// How often a listing that this process keeps changing is compared with the files, at the most.
pub const LISTING_RECHECK: Duration = Duration::from_secs(1);

/// How old the last change of a folder must be before its time tells it from the next one.
pub const FOLDER_TIME_SETTLES: Duration = Duration::from_millis(50);

/// Places of one journal, damaged or with a number that was there already, that the doctor remembers.
pub const DOCTOR_PLACES_MAX: usize = 1 << 20;

/// Findings about one journal that the doctor tells one by one; the rest is counted.
pub const DOCTOR_FINDINGS_PER_JOURNAL_MAX: usize = 1_000;

/// Findings that the doctor tells one by one; the rest is counted.
pub const DOCTOR_FINDINGS_MAX: usize = 200_000;

/// Characters of what people see of a tool's arguments or result, where the producer gives no words of its own.
pub const PREVIEW_CHARS_MAX: usize = 120;

/// Bytes of a tool's arguments or result that a card holds. Larger ones are stored as attachments.
pub const TOOL_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of what `metadata` events of a run add up to. An event that would make it more is left out of the transcript.
pub const RUN_METADATA_BYTES_MAX: usize = 64 * 1024;

/// Bytes of stored values and files that one conversation for a model is given, the latest first.
pub const CONTEXT_STORED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Keys of a tool call's arguments that a card shows.
pub const CARD_ARGS_KEYS_MAX: usize = 4;

/// Characters of one argument that a card shows.
pub const CARD_ARG_CHARS_MAX: usize = 120;

/// Bytes of the body of a chat request, which may hold the whole conversation. Only its last message is kept.
pub const CHAT_BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes of a chat request that must arrive within the time that a body may take.
pub const CHAT_BODY_PACE_BYTES: u64 = 1024 * 1024;

/// Bytes of a short field of a chat request, like its id.
pub const CHAT_FIELD_BYTES_MAX: usize = 64 * 1024;

/// Parts of one message of a chat, and attachments of one turn.
pub const PARTS_MAX: usize = 1_024;

/// Characters of a file's name.
pub const FILENAME_CHARS_MAX: usize = 255;

/// How long after a history left out a live answer the stream still gives that answer, although it has ended.
pub const LEFT_OUT_FOR: Duration = Duration::from_secs(10);

/// Answers that histories left out and that are remembered.
pub const LEFT_OUT_MAX: usize = 1_024;

/// Chunks of one answer of an endpoint that cannot be read and are skipped. With one more the stream counts as broken.
pub const SKIPPED_CHUNKS_MAX: usize = 16;

/// Attachments that an answer names when it says what was not sent; the rest is counted.
pub const UNSENT_NAMED_MAX: usize = 8;
/// Bytes of large tool arguments and results that one page of a chat's history holds; of the others it holds references.
pub const HISTORY_LARGE_BYTES_MAX: u64 = 8 << 20;
