//! What the chunks say about the answer as a whole: its run, model, usage, times and state, and what its producer adds.

use super::Frame;
use crate::http::chat::value::shown;
use crate::model::{Fields, Object, RunEnd, RunId, quoted, text_of};

/// The key of a message's metadata that is Lastword's. A producer's own is left out.
pub(in crate::http::chat) const OURS: &str = "lastword";

/// The tokens that an answer took: of its input, its output and both. A number that is not known is `null`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::http::chat) struct Usage([Option<u64>; 3]);

impl Usage {
    /// Reads what a producer or an endpoint says; nothing if it gives no number.
    pub(in crate::http::chat) fn of(fields: &Fields<'_>) -> Option<Self> {
        let number = |keys: [&str; 2]| keys.iter().filter_map(|key| fields.get(key)?.parse::<u64>().ok()).next();
        let input = number(["input_tokens", "prompt_tokens"]);
        let output = number(["output_tokens", "completion_tokens"]);
        let total = number(["total_tokens", "total_tokens"]).or_else(|| Some(input?.saturating_add(output?)));
        let usage = [input, output, total];
        usage.iter().any(Option::is_some).then_some(Usage(usage))
    }

    /// A sum is unknown if a part is.
    fn plus(self, other: Usage) -> Self {
        let sum = |nth: usize| Some(self.0[nth]?.saturating_add(other.0[nth]?));
        Usage([sum(0), sum(1), sum(2)])
    }

    pub(in crate::http::chat) fn to_json(self) -> String {
        let [input, output, total] = self.0.map(|number| number.map_or_else(|| "null".to_owned(), |n| n.to_string()));
        format!("{{\"input_tokens\":{input},\"output_tokens\":{output},\"total_tokens\":{total}}}")
    }
}

/// What is known about the run.
#[derive(Debug)]
pub(super) struct About {
    run: Box<str>,
    model: Option<String>,
    usage: Option<Usage>,
    began_at: Option<f64>,
    ended_at: Option<f64>,
}

impl About {
    pub(super) fn new(run: &RunId) -> Self {
        About { run: run.as_str().into(), model: None, usage: None, began_at: None, ended_at: None }
    }

    pub(super) fn began_at(&mut self, seconds: Option<f64>) {
        self.began_at = seconds.filter(|seconds| seconds.is_finite());
    }

    pub(super) fn ended_at(&mut self, seconds: Option<f64>) {
        self.ended_at = seconds.filter(|seconds| seconds.is_finite()).or(self.ended_at);
    }

    /// Notes what a `usage` event tells: usages add up, as in the note of the run. Whether it tells anything.
    pub(super) fn add_usage(&mut self, fields: &Fields<'_>) -> bool {
        let usage = Usage::of(fields);
        self.usage = match (self.usage, usage) {
            (Some(known), Some(more)) => Some(known.plus(more)),
            (known, more) => known.or(more),
        };
        self.note_model(fields) || usage.is_some()
    }

    /// The last event may name the model, and the usage where no event did.
    pub(super) fn note_end(&mut self, fields: &Fields<'_>) {
        let told = || Usage::of(&fields.get("usage").and_then(Fields::parse)?);
        self.usage = self.usage.or_else(told);
        self.note_model(fields);
    }

    fn note_model(&mut self, fields: &Fields<'_>) -> bool {
        let model = fields.get("model").and_then(text_of).filter(|model| !model.is_empty());
        let is_told = model.is_some();
        self.model = model.map(|model| model.into_owned()).or(self.model.take());
        is_told
    }

    /// What is known while the run goes on.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.frame(self.known(), out);
    }

    /// Everything, when the run has ended.
    pub(super) fn write_end(&self, state: &str, out: &mut Vec<u8>) {
        let mut known = self.known();
        if !RunEnd::parse(state).is_some_and(RunEnd::is_by_itself) {
            // What it used after its last report is not known.
            known.set("usage", "null");
        }
        if let Some(seconds) = self.began_at {
            known.set("began_at", seconds.to_string());
        }
        known.set("ended_at", self.ended_at.map_or_else(|| "null".to_owned(), |seconds| seconds.to_string()));
        known.set_text("state", state);
        self.frame(known, out);
    }

    fn known(&self) -> Object {
        let mut known = Object::default();
        known.set_text("run_id", &self.run);
        known.set("model", self.model.as_deref().map_or_else(|| "null".into(), quoted));
        known.set("usage", self.usage.map_or_else(|| "null".to_owned(), Usage::to_json));
        known
    }

    fn frame(&self, known: Object, out: &mut Vec<u8>) {
        let metadata = format!("{{\"{OURS}\":{}}}", known.to_json());
        Frame::open(out, "message-metadata").json("messageMetadata", &metadata).close();
    }
}

/// What a producer adds to the message's metadata.
pub(super) fn write_metadata(payload: &str, out: &mut Vec<u8>) {
    if let Some(metadata) = producers_metadata(payload) {
        Frame::open(out, "message-metadata").json("messageMetadata", &metadata.to_json()).close();
    }
}

/// The metadata that is not ours, if there is any.
pub(in crate::http::chat) fn producers_metadata(payload: &str) -> Option<Object> {
    let mut metadata = Object::default();
    for (key, value) in Object::parse(payload)?.iter() {
        if !matches!(key, OURS | "__proto__" | "constructor" | "prototype") {
            metadata.set(key, shown(value));
        }
    }
    let is_empty = metadata.iter().next().is_none();
    (!is_empty).then_some(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_in_both_dialects() {
        let read = |json: &str| Usage::of(&Fields::parse(json).unwrap()).map(Usage::to_json);
        let expected = Some(r#"{"input_tokens":3,"output_tokens":4,"total_tokens":7}"#.to_owned());
        assert_eq!(read(r#"{"input_tokens":3,"output_tokens":4}"#), expected);
        assert_eq!(read(r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}"#), expected);
        let in_part = Some(r#"{"input_tokens":null,"output_tokens":4,"total_tokens":null}"#.to_owned());
        assert_eq!(read(r#"{"output_tokens":4,"input_tokens":"many"}"#), in_part);
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn metadata_that_is_ours_or_refused_is_left_out() {
        let read = |json: &str| producers_metadata(json).map(|metadata| metadata.to_json());
        assert_eq!(read(r#"{"a":{"b":1},"lastword":{"run_id":"x"}}"#).as_deref(), Some(r#"{"a":{"b":1}}"#));
        for odd in ["{}", "7", "[1]", r#"{"__proto__":{"a":1}}"#, r#"{"lastword":1}"#] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
