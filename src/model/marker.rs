//! The rows that tell the user that an answer did not end by itself: their words, and what they note for a later read.

use std::borrow::Cow;

use super::json::{Object, text_of};
use super::row::Row;
use super::text::{is_truthy, python_text};

const STOPPED: &str = "You stopped this answer. What had arrived is kept above; send another message to go on.";
const FAILED: &str = "The answer failed before it was complete. What had arrived is kept above; please try again.";

const PENDING: &str = "This answer was interrupted. Nothing of it has been found yet, but it may still appear here; \
                       you can also send your message again.";
const RECOVERED: &str = "This answer was interrupted. What had arrived was recovered from the run journal and stands \
                         above; send another message to go on.";
const LOST: &str = "This answer was interrupted, and no agent output was recovered. Please send your message again.";
const COMPLETE: &str = "The connection to this answer was lost, but all of it was recovered from the run journal and \
                        stands above.";
const STOPPED_RECOVERED: &str = "You stopped this answer. What had arrived was recovered from the run journal and \
                                 stands above; send another message to go on.";
const STOPPED_EMPTY: &str = "You stopped this answer before anything had arrived. Send another message to go on.";
const LIMIT_RECOVERED: &str = "This answer ended at its limit of tool calls. What had arrived was recovered from the \
                               run journal and stands above; send another message to go on.";

const REBUILT: &str = "The file of this conversation was lost. What stands above was rebuilt from the run journals; what you \
                       had written stood only in that file.";

const ARMED: &str = "_pending_journal_recovery";
const RETRY_RUN: &str = "_journal_retry_stream_id";
const RETRY_ATTEMPTS: &str = "_journal_retry_attempts";
const RETRY_FIRST_SEEN: &str = "_journal_retry_first_seen_ts";
/// How many whole records of an unsealed journal were folded into the rows above the marker. Gone once nothing more can
/// come.
const FOLDED_RECORDS: &str = "_recovered_records";
/// The same in bytes, a torn tail included, as earlier versions noted it.
const FOLDED_BYTES: &str = "_recovered_bytes";
const RUN: &str = "_run_id";

/// How much is known of an interrupted answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Nothing yet; a later read looks again.
    Pending,
    /// What had arrived is in the rows above.
    Recovered,
    /// All of it is in the rows above.
    Complete,
    /// The user stopped it, and what had arrived is in the rows above.
    StoppedRecovered,
    /// The user stopped it before anything had arrived.
    StoppedEmpty,
    /// It ran into its limit of tool calls, and what had arrived is in the rows above.
    LimitRecovered,
    /// Its producer said why it failed, and what had arrived is in the rows above.
    FailedRecovered(String),
    /// Its producer said why it failed, and nothing else has been found.
    FailedPending(String),
    /// There is nothing left to hope for.
    Lost,
    /// Its producer said why it failed, and there is nothing left to hope for.
    FailedLost(String),
}

impl Finding {
    /// The words for it.
    pub fn words(&self) -> String {
        let plain = match self {
            Finding::Pending => PENDING,
            Finding::Recovered => RECOVERED,
            Finding::Complete => COMPLETE,
            Finding::StoppedRecovered => STOPPED_RECOVERED,
            Finding::StoppedEmpty => STOPPED_EMPTY,
            Finding::LimitRecovered => LIMIT_RECOVERED,
            Finding::Lost => LOST,
            Finding::FailedRecovered(why) => {
                return format!(
                    "The answer failed: {why}\nWhat had arrived was recovered from the run journal and stands above; \
                     please try again."
                );
            }
            Finding::FailedLost(why) => {
                return format!("The answer failed: {why}\nno agent output was recovered; please try again.");
            }
            Finding::FailedPending(why) => {
                return format!("The answer failed: {why}\nNothing else of it has been found yet; please try again.");
            }
        };
        plain.to_owned()
    }
}

/// The marker of an answer that the user stopped. It is final: nothing is left to recover.
pub fn stopped_marker(now_seconds: i64) -> Row {
    let mut row = marker("interrupted", STOPPED, now_seconds);
    row.fields_mut().set_text("interruption_cause", "stopped_by_user");
    row
}

/// The marker of an answer whose producer reported a failure, in the producer's words where it has any.
pub fn failed_marker(kind: &str, message: &str, now_seconds: i64) -> Row {
    let message = if message.trim().is_empty() { FAILED } else { message };
    marker(if kind.is_empty() { "error" } else { kind }, message, now_seconds)
}

/// The marker of an answer that was interrupted.
pub fn interrupted_marker(finding: &Finding, cause: &str, run: &str, now_seconds: i64) -> Row {
    let mut row = marker("interrupted", &finding.words(), now_seconds);
    row.fields_mut().set_text("interruption_cause", cause);
    row.fields_mut().set_text(RUN, run);
    row
}

/// The notice at the end of a transcript that was made again from journals alone.
pub fn rebuilt_notice(now_seconds: i64) -> Row {
    marker("rebuilt", REBUILT, now_seconds)
}

fn marker(kind: &str, words: &str, now_seconds: i64) -> Row {
    let mut row = Row::assistant(words, now_seconds);
    row.fields_mut().set("_error", "true");
    row.fields_mut().set_text("type", kind);
    row
}

/// When an armed marker was first seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FirstSeen {
    /// Nobody noted it: there is no age to judge.
    Unknown,
    /// What is noted is no time.
    Unusable,
    /// At this second.
    At(f64),
}

/// What an armed marker notes for the next read that looks for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// The run, as the marker has it; empty if it names none.
    pub run: String,
    /// How often its journal was looked at in vain; none if what is noted is no such number.
    pub attempts: Option<i64>,
    /// Since when.
    pub first_seen: FirstSeen,
}

impl Retry {
    /// What a marker notes, if it is armed.
    pub fn of(row: &Row) -> Option<Self> {
        let fields = row.fields();
        (is_interrupted(row) && fields.is_true(ARMED)).then(|| Retry {
            run: fields.get(RETRY_RUN).filter(|run| is_truthy(run)).map(python_text).unwrap_or_default().into_owned(),
            attempts: match fields.get(RETRY_ATTEMPTS) {
                Some(noted) if is_truthy(noted) => whole_number(noted).map(|attempts| attempts.max(0.0) as i64),
                _ => Some(0),
            },
            first_seen: first_seen(fields),
        })
    }
}

fn first_seen(fields: &Object) -> FirstSeen {
    match fields.get(RETRY_FIRST_SEEN) {
        Some(noted) if is_truthy(noted) => number(noted).map_or(FirstSeen::Unusable, FirstSeen::At),
        _ => FirstSeen::Unknown,
    }
}

/// A number, also if it was noted as a text or as true.
fn number(noted: &str) -> Option<f64> {
    let text = if noted == "true" { Cow::Borrowed("1") } else { text_of(noted).unwrap_or(Cow::Borrowed(noted)) };
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

fn whole_number(noted: &str) -> Option<f64> {
    number(noted).filter(|number| number.fract() == 0.0)
}

/// Whether a marker says that what had arrived stands above it.
pub fn says_recovered(row: &Row) -> bool {
    row.content().contains("recovered from the run journal")
}

/// Whether a row says that an answer was interrupted.
pub fn is_interrupted(row: &Row) -> bool {
    row.is_error() && row.fields().text("type").as_deref() == Some("interrupted")
}

/// Lets a marker ask for another look at its run's journal.
pub fn arm(marker: &mut Row, run: &str, attempts: u32, first_seen_seconds: i64) {
    let fields = marker.fields_mut();
    fields.set(ARMED, "true");
    if fields.get(RETRY_RUN).is_none() {
        fields.set_text(RETRY_RUN, run);
    }
    fields.set(RETRY_ATTEMPTS, attempts.to_string());
    fields.set(RETRY_FIRST_SEEN, first_seen_seconds.to_string());
}

/// Notes one more look in vain.
pub fn spend(marker: &mut Row, attempts: i64, first_seen_seconds: Option<i64>) {
    marker.fields_mut().set(RETRY_ATTEMPTS, attempts.to_string());
    if let Some(seconds) = first_seen_seconds {
        marker.fields_mut().set(RETRY_FIRST_SEEN, seconds.to_string());
    }
}

/// Gives a marker its final words, or at least those that only more output would change.
pub fn settle(marker: &mut Row, finding: &Finding, run: &str) {
    let fields = marker.fields_mut();
    for key in [ARMED, RETRY_RUN, RETRY_ATTEMPTS, RETRY_FIRST_SEEN] {
        fields.remove(key);
    }
    fields.set_text("content", &finding.words());
    if !run.is_empty() {
        fields.set_text(RUN, run);
    }
}

/// How much of its run's journal was folded above a marker whose run may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldedUpTo {
    /// So many whole records.
    Records(u64),
    /// So many bytes, of which some may have been a torn tail.
    Bytes(u64),
}

/// Notes how many whole records of an unsealed journal stand above a marker, or that nothing more can come.
pub fn set_folded_records(marker: &mut Row, records: Option<u64>) {
    let fields = marker.fields_mut();
    fields.remove(FOLDED_BYTES);
    match records {
        Some(records) => fields.set(FOLDED_RECORDS, records.to_string()),
        None => fields.remove(FOLDED_RECORDS),
    }
}

/// How much of its run's journal stands above a marker whose run may still grow.
pub fn folded_up_to(marker: &Row) -> Option<FoldedUpTo> {
    let number = |key| marker.fields().get(key).and_then(|noted| noted.parse().ok());
    number(FOLDED_RECORDS).map(FoldedUpTo::Records).or_else(|| number(FOLDED_BYTES).map(FoldedUpTo::Bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecided_words_never_say_that_it_is_lost() {
        assert!(Finding::FailedLost("bad key".to_owned()).words().contains("no agent output was recovered"));
        for finding in [Finding::Pending, Finding::FailedPending("bad key".to_owned())] {
            assert!(!finding.words().contains("no agent output was recovered"), "{finding:?}");
        }
        assert!(Finding::Lost.words().contains("no agent output was recovered"));
    }

    #[test]
    fn words_that_promise_rows_say_where_they_come_from() {
        let why = || "bad key".to_owned();
        use Finding::{Complete, FailedRecovered, LimitRecovered, Recovered, StoppedRecovered};
        for finding in [Recovered, Complete, StoppedRecovered, LimitRecovered, FailedRecovered(why())] {
            assert!(finding.words().contains("recovered from the run journal"), "{finding:?}");
        }
    }

    #[test]
    fn retry_notes_that_are_no_numbers_are_told_from_missing_ones() {
        let row = |extra: &str| {
            Row::parse(&format!(
                r#"{{"_error":true,"type":"interrupted","_pending_journal_recovery":true,"_journal_retry_stream_id":"r"{extra}}}"#
            ))
        };
        let notes = |extra: &str| Retry::of(&row(extra)).map(|retry| (retry.attempts, retry.first_seen)).unwrap();
        assert_eq!(notes(""), (Some(0), FirstSeen::Unknown));
        let odd = r#","_journal_retry_attempts":2.9,"_journal_retry_first_seen_ts":"yesterday""#;
        assert_eq!(notes(odd), (None, FirstSeen::Unusable));
        let fine = r#","_journal_retry_attempts":3,"_journal_retry_first_seen_ts":17.5"#;
        assert_eq!(notes(fine), (Some(3), FirstSeen::At(17.5)));
        let as_text = r#","_journal_retry_attempts":"3","_journal_retry_first_seen_ts":"17""#;
        assert_eq!(notes(as_text), (Some(3), FirstSeen::At(17.0)));
        let huge = r#","_journal_retry_attempts":99999999999999999999,"_journal_retry_first_seen_ts":0.0"#;
        assert_eq!(notes(huge), (Some(i64::MAX), FirstSeen::Unknown));
        assert_eq!(Retry::of(&Row::parse(r#"{"_error":true,"_pending_journal_recovery":true}"#)), None);
    }
}
