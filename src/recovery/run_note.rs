//! What a turn's user row notes of the run that answered it: state, runner, model, usage, times, metadata.

use super::evidence::Evidence;
use super::usage::{Usage, UsageSum};
use crate::clock::Timestamp;
use crate::format::EventRef;
use crate::limits::RUN_METADATA_BYTES_MAX;
use crate::model::fold::ATTEMPT_EVENT;
use crate::model::{NotAList, Object, Row, RunEnd, Session, quoted, seconds_of};
use crate::storage::Seal;

/// The key of a user row that holds the note.
pub(super) const RUN: &str = "_run";
/// How deep metadata is merged. What lies deeper is replaced.
const MERGE_DEPTH_MAX: usize = 32;

/// The key of the note that says what a run used at least, where its usage is not known.
pub(super) const AT_LEAST: &str = "usage_at_least";
/// The key that only a note has whose run can change no more: an event of ours has ended it.
pub(super) const ATTEMPTS: &str = "attempts";

/// What a run's events tell of the run itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunNote {
    /// The runner that answered, by its last attempt; none for a producer that makes no attempts.
    pub runner: Option<String>,
    /// How many attempts were made; none for a producer that makes none.
    pub attempts: Option<u64>,
    /// The model that answered.
    pub model: Option<String>,
    /// What its `usage` events report, added up; none if there was none.
    pub usage: Option<UsageSum>,
    /// When its first event with a usable time happened, JSON.
    pub first_event_at: Option<String>,
    /// When the event happened that ended it, JSON.
    pub ended_at: Option<String>,
    /// Why it ended, in the words of the event that ended it.
    pub close_reason: Option<String>,
    /// The highest number of its events.
    pub last_seq: u64,
    /// Whether its journal takes nothing more. After a `done`, a `stream_end` may follow.
    pub is_closed: bool,
    /// The producer's `metadata` events, merged.
    pub metadata: Option<Object>,
}

impl RunNote {
    /// Takes an event of the run; most say nothing of it.
    pub(super) fn add(&mut self, event: &EventRef<'_>) {
        self.last_seq = self.last_seq.max(event.seq.unwrap_or(0));
        if self.first_event_at.is_none() {
            self.first_event_at = usable_time(event);
        }
        self.add_report(&event.name, event.payload.unwrap_or_default());
    }

    fn add_report(&mut self, event: &str, payload: &str) {
        match event {
            "usage" => self.add_usage(payload),
            "metadata" => self.add_metadata(payload),
            "done" => self.add_done(payload),
            ATTEMPT_EVENT => self.add_attempt(payload),
            _ => {}
        }
    }

    fn add_usage(&mut self, payload: &str) {
        let Some(fields) = Object::parse(payload) else { return };
        self.add_model(&fields);
        if let Some(usage) = Usage::parse(&fields).map(UsageSum::reported) {
            self.usage = Some(self.usage.map_or(usage, |known| known.plus(usage)));
        }
    }

    fn add_attempt(&mut self, payload: &str) {
        let Some(fields) = Object::parse(payload) else { return };
        let attempt = fields.get("attempt").and_then(|attempt| attempt.parse::<u64>().ok());
        self.attempts = self.attempts.max(attempt);
        let runner = fields.text("runner").filter(|runner| !runner.is_empty());
        self.runner = runner.map(|runner| runner.into_owned()).or(self.runner.take());
    }

    /// The last event may say it instead.
    fn add_done(&mut self, payload: &str) {
        let Some(fields) = Object::parse(payload) else { return };
        self.add_model(&fields);
        let told = || Usage::parse(&Object::parse(fields.get("usage")?)?);
        self.usage = self.usage.or_else(|| told().map(UsageSum::reported));
    }

    fn add_model(&mut self, fields: &Object) {
        let model = fields.text("model").filter(|model| !model.is_empty());
        self.model = model.map(|model| model.into_owned()).or(self.model.take());
    }

    fn add_metadata(&mut self, payload: &str) {
        let Some(more) = Object::parse(payload) else { return };
        let merged = merged(self.metadata.clone().unwrap_or_default(), &more, MERGE_DEPTH_MAX);
        if merged.to_json().len() <= RUN_METADATA_BYTES_MAX {
            self.metadata = Some(merged);
        }
    }

    /// Notes how the run stands after an event: whether it decides how the run ended, and what may follow.
    pub(super) fn add_end(&mut self, event: &EventRef<'_>, decides: bool, seal: Seal) {
        self.is_closed = seal == Seal::Closed;
        if decides {
            self.ended_at = usable_time(event);
            let fields = event.payload.and_then(Object::parse).unwrap_or_default();
            let reason = fields.text("close_reason").filter(|reason| !reason.is_empty());
            self.close_reason = reason.map(|reason| reason.into_owned());
        }
    }

    /// The note. Of a run that can change no more it has everything that lists show; of another one, which may still be
    /// written to, only what its rows need.
    fn to_json(&self, end: Option<RunEnd>, is_final: bool, began_at: Option<String>) -> String {
        let null = || "null".to_owned();
        let text = |text: &Option<String>| text.as_deref().map_or_else(|| null().into(), quoted);
        let usage = self.usage.map(|usage| usage.of_run(end));
        let mut note = Object::default();
        note.set_text("state", end.unwrap_or(RunEnd::InterruptedByCrash).as_str());
        note.set("model", text(&self.model));
        let known = usage.map(|usage| usage.known).filter(|known| known.says_anything());
        note.set("usage", known.map_or_else(null, Usage::to_json));
        if let Some(usage) = usage.filter(|usage| !usage.known.is_complete()) {
            note.set(AT_LEAST, usage.at_least.to_json());
        }
        note.set("began_at", began_at.unwrap_or_else(null));
        note.set("ended_at", self.ended_at.clone().unwrap_or_else(null));
        if is_final {
            note.set("runner", text(&self.runner));
            note.set(ATTEMPTS, self.attempts.map_or_else(null, |attempts| attempts.to_string()));
            note.set("first_event_at", self.first_event_at.clone().unwrap_or_else(null));
            note.set("close_reason", text(&self.close_reason));
        }
        if is_final && self.is_closed {
            note.set("last_seq", self.last_seq.to_string());
        }
        if let Some(metadata) = &self.metadata {
            note.set("metadata", metadata.to_json());
        }
        note.to_json()
    }
}

/// When an event happened, as JSON, if that is a usable time.
fn usable_time(event: &EventRef<'_>) -> Option<String> {
    let at = event.to_fold().created_at.filter(|at| seconds_of(at).is_some())?;
    std::str::from_utf8(at).ok().map(str::to_owned)
}

fn merged(mut old: Object, new: &Object, depth: usize) -> Object {
    for (key, value) in new.iter() {
        let both = old.get(key).and_then(Object::parse).zip(Object::parse(value)).filter(|_| depth > 0);
        match both {
            Some((inner, more)) => old.set(key, merged(inner, &more, depth - 1).to_json()),
            None => old.set(key, value),
        }
    }
    old
}

/// Notes a run in the user row of the turn that it answered, unless that row names another run.
pub(super) fn note_run(
    session: &mut Session,
    user: Option<usize>,
    run: &str,
    evidence: &Evidence,
    began_at: Option<f64>,
) -> Result<(), NotAList> {
    let Some((at, mut row)) = user.and_then(|at| Some((at, session.message(at)?))) else { return Ok(()) };
    if row.run().is_some_and(|other| other != run) {
        return Ok(());
    }
    let began_at = began_at.filter(|at| *at > 0.0 && at.is_finite()).map(|at| Timestamp::from_seconds(at).to_string());
    let began_at = began_at.or_else(|| noted_beginning(&row));
    let is_final = evidence.is_ours && evidence.ending.is_some();
    let note = evidence.note.to_json(evidence.ending, is_final, began_at);
    if row.fields().get(RUN) == Some(&note) {
        return Ok(());
    }
    row.fields_mut().set(RUN, note);
    session.replace_message(at, &row)
}

/// When the run began, as an earlier note says.
fn noted_beginning(row: &Row) -> Option<String> {
    let noted = Object::parse(row.fields().get(RUN)?)?;
    noted.get("began_at").filter(|at| *at != "null").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_of(events: &[(&str, &str)]) -> RunNote {
        let mut note = RunNote::default();
        events.iter().for_each(|(event, payload)| note.add_report(event, payload));
        note
    }

    #[track_caller]
    fn check(events: &[(&str, &str)], expected: &str) {
        assert_eq!(note_of(events).to_json(Some(RunEnd::Completed), false, None), expected);
    }

    #[test]
    fn usage_is_the_sum_of_what_is_told_in_either_spelling() {
        check(&[], r#"{"state":"completed","model":null,"usage":null,"began_at":null,"ended_at":null}"#);
        check(
            &[
                ("usage", r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":9}"#),
                ("usage", r#"{"input_tokens":1,"output_tokens":1,"model":"m"}"#),
                ("done", r#"{"usage":{"input_tokens":100,"output_tokens":100}}"#),
            ],
            r#"{"state":"completed","model":"m","usage":{"input_tokens":4,"output_tokens":5,"total_tokens":11},"began_at":null,"ended_at":null}"#,
        );
        check(
            &[("usage", r#"{"input_tokens":3}"#), ("usage", "[]"), ("usage", r#"{"x":1}"#)],
            r#"{"state":"completed","model":null,"usage":{"input_tokens":3,"output_tokens":null,"total_tokens":null},"usage_at_least":{"input_tokens":3,"output_tokens":null,"total_tokens":null},"began_at":null,"ended_at":null}"#,
        );
        check(
            &[("done", r#"{"model":"n","usage":{"input_tokens":1,"output_tokens":2}}"#)],
            r#"{"state":"completed","model":"n","usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3},"began_at":null,"ended_at":null}"#,
        );
    }

    #[test]
    fn the_usage_of_a_run_that_did_not_end_by_itself_is_not_known() {
        let note = note_of(&[("usage", r#"{"input_tokens":3,"output_tokens":4}"#)]);
        for end in [None, Some(RunEnd::InterruptedByUser), Some(RunEnd::InterruptedByCrash), Some(RunEnd::Errored)] {
            let json = note.to_json(end, false, None);
            let expected = r#""usage":null,"usage_at_least":{"input_tokens":3,"output_tokens":4,"total_tokens":7}"#;
            assert!(json.contains(expected), "{json}");
        }
    }

    #[test]
    fn a_note_of_a_run_that_can_change_no_more_has_what_lists_show() {
        let attempts =
            [("attempt", r#"{"attempt":1,"of":3,"runner":"a"}"#), ("attempt", r#"{"attempt":2,"runner":"b"}"#)];
        let note = RunNote { last_seq: 7, close_reason: Some("exit".to_owned()), ..note_of(&attempts) };
        let json = note.to_json(Some(RunEnd::Errored), true, None);
        let shown = r#""runner":"b","attempts":2,"first_event_at":null,"close_reason":"exit""#;
        assert!(json.contains(shown) && !json.contains("last_seq"), "{json}");
        let closed = RunNote { is_closed: true, ..note }.to_json(Some(RunEnd::Errored), true, None);
        assert!(closed.contains(r#""last_seq":7"#), "{closed}");
    }

    #[test]
    fn metadata_is_merged_in_depth_and_bounded() {
        let long = format!(r#"{{"long":"{}"}}"#, "x".repeat(RUN_METADATA_BYTES_MAX));
        check(
            &[
                ("metadata", r#"{"a":{"x":1,"y":[1]},"b":1.50}"#),
                ("metadata", "7"),
                ("metadata", &long),
                ("metadata", r#"{"a":{"y":[2],"z":{}},"c":null}"#),
            ],
            r#"{"state":"completed","model":null,"usage":null,"began_at":null,"ended_at":null,"metadata":{"a":{"x":1,"y":[2],"z":{}},"b":1.50,"c":null}}"#,
        );
        let deep = format!("{}1{}", r#"{"a":"#.repeat(120), "}".repeat(120));
        let note = note_of(&[("metadata", &deep), ("metadata", &deep)]);
        assert_eq!(note.metadata.unwrap().to_json(), deep);
    }
}
