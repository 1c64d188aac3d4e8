//! What a turn's user row notes of the run that answered it: state, model, usage, times, the producer's metadata.

use super::evidence::Evidence;
use crate::clock::Timestamp;
use crate::limits::RUN_METADATA_BYTES_MAX;
use crate::model::{NotAList, Object, Row, RunEnd, Session, quoted, seconds_of};

/// The key of a user row that holds the note.
const RUN: &str = "_run";
/// How deep metadata is merged. What lies deeper is replaced.
const MERGE_DEPTH_MAX: usize = 32;

/// What a run's events tell of the run itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunNote {
    /// The model that answered.
    pub model: Option<String>,
    /// What it used, summed over its `usage` events; none if nothing told.
    pub usage: Option<Usage>,
    /// When the event happened that ended it, JSON.
    pub ended_at: Option<String>,
    /// The producer's `metadata` events, merged.
    pub metadata: Option<Object>,
}

/// Tokens, where they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Read by the model.
    pub input: Option<u64>,
    /// Written by it.
    pub output: Option<u64>,
    /// Both, as the producer counts.
    pub total: Option<u64>,
}

impl Usage {
    /// Reads it, in our words or in those of OpenAI's endpoint; nothing if it names no number.
    fn parse(fields: &Object) -> Option<Self> {
        let number = |keys: [&str; 2]| keys.iter().find_map(|key| fields.get(key)?.parse().ok());
        let input = number(["input_tokens", "prompt_tokens"]);
        let output = number(["output_tokens", "completion_tokens"]);
        let total = number(["total_tokens", "total_tokens"]);
        let is_told = input.or(output).or(total).is_some();
        is_told.then(|| Usage { input, output, total: total.or(sum(input, output)) })
    }

    fn plus(self, other: Usage) -> Self {
        Usage {
            input: sum(self.input, other.input),
            output: sum(self.output, other.output),
            total: sum(self.total, other.total),
        }
    }

    fn to_json(self) -> String {
        let number = |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let (input, output, total) = (number(self.input), number(self.output), number(self.total));
        format!(r#"{{"input_tokens":{input},"output_tokens":{output},"total_tokens":{total}}}"#)
    }
}

/// A sum is unknown if a part is.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

impl RunNote {
    /// Takes an event of the run; most say nothing of it.
    pub(super) fn add(&mut self, event: &str, payload: &str) {
        match event {
            "usage" => self.add_usage(payload),
            "metadata" => self.add_metadata(payload),
            "done" => self.add_done(payload),
            _ => {}
        }
    }

    fn add_usage(&mut self, payload: &str) {
        let Some(fields) = Object::parse(payload) else { return };
        self.add_model(&fields);
        if let Some(usage) = Usage::parse(&fields) {
            self.usage = Some(self.usage.map_or(usage, |known| known.plus(usage)));
        }
    }

    /// The last event may say it instead.
    fn add_done(&mut self, payload: &str) {
        let Some(fields) = Object::parse(payload) else { return };
        self.add_model(&fields);
        let told = || Usage::parse(&Object::parse(fields.get("usage")?)?);
        self.usage = self.usage.or_else(told);
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

    /// Notes when the run ended.
    pub(super) fn end(&mut self, created_at: Option<&[u8]>) {
        let at = created_at.filter(|at| seconds_of(at).is_some()).and_then(|at| std::str::from_utf8(at).ok());
        self.ended_at = at.map(str::to_owned);
    }

    fn to_json(&self, ending: Option<RunEnd>, began_at: Option<String>) -> String {
        let null = || "null".to_owned();
        let mut note = Object::default();
        note.set_text("state", ending.unwrap_or(RunEnd::InterruptedByCrash).as_str());
        note.set("model", self.model.as_deref().map_or_else(|| null().into(), quoted));
        note.set("usage", self.usage.map_or_else(null, Usage::to_json));
        note.set("began_at", began_at.unwrap_or_else(null));
        note.set("ended_at", self.ended_at.clone().unwrap_or_else(null));
        if let Some(metadata) = &self.metadata {
            note.set("metadata", metadata.to_json());
        }
        note.to_json()
    }
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
    let note = evidence.note.to_json(evidence.ending, began_at.or_else(|| noted_beginning(&row)));
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

    #[track_caller]
    fn check(events: &[(&str, &str)], expected: &str) {
        let mut note = RunNote::default();
        events.iter().for_each(|(event, payload)| note.add(event, payload));
        assert_eq!(note.to_json(Some(RunEnd::Completed), None), expected);
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
            r#"{"state":"completed","model":null,"usage":{"input_tokens":3,"output_tokens":null,"total_tokens":null},"began_at":null,"ended_at":null}"#,
        );
        check(
            &[("done", r#"{"model":"n","usage":{"input_tokens":1,"output_tokens":2}}"#)],
            r#"{"state":"completed","model":"n","usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3},"began_at":null,"ended_at":null}"#,
        );
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
        let mut note = RunNote::default();
        note.add("metadata", &deep);
        note.add("metadata", &deep);
        assert_eq!(note.metadata.unwrap().to_json(), deep);
    }
}
