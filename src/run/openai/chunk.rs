//! What one chunk of a streamed chat completion says. Lenient: what servers add or leave out is no reason to fail.
//!
//! Words stay JSON text on their way to the journal, so that half a character that was cut between two chunks finds its
//! other half there.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::key::Secrets;
use crate::model::{Object, text_of};

/// A value of any kind.
pub(super) type Any = Option<Box<RawValue>>;

/// A chunk, or the error that stands in its place.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Any,
    pub(super) error: Any,
    pub(super) model: Any,
    /// In an error that stands for itself.
    message: Any,
    detail: Any,
    code: Any,
    #[serde(rename = "type")]
    kind: Any,
}

/// One choice. An answer is made of the choices with index 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    index: Any,
    /// In a stream.
    pub(super) delta: Option<Delta>,
    /// In an answer as a whole.
    pub(super) message: Option<Delta>,
    pub(super) finish_reason: Any,
    /// What some servers say of a choice that failed.
    error: Any,
}

/// What is added to an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    content: Any,
    refusal: Any,
    reasoning_content: Any,
    reasoning: Any,
    reasoning_details: Any,
    tool_calls: Option<Vec<CallPart>>,
    /// How a tool was called before there could be several.
    function_call: Option<FunctionPart>,
}

/// A part of a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallPart {
    pub(super) index: Any,
    pub(super) id: Any,
    pub(super) function: Option<FunctionPart>,
}

/// What is called, and with what.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionPart {
    pub(super) name: Any,
    pub(super) arguments: Any,
}

impl Chunk {
    /// The error that it is, or carries.
    pub(super) fn failure(&self, whole: &str) -> Option<ErrorWords> {
        if is_there(&self.error) {
            return Some(ErrorWords::of_body(whole));
        }
        let is_chunk = self.choices.is_some() || is_there(&self.usage);
        let has_words = is_there(&self.message) || is_there(&self.detail);
        let has_name = is_there(&self.code) || is_there(&self.kind);
        (!is_chunk && has_words && has_name).then(|| ErrorWords::of_body(whole))
    }

    /// The choices of the answer: those with index 0. Of those without an index, only the first of a chunk can be meant.
    pub(super) fn answer(self) -> impl Iterator<Item = Choice> {
        let mut has_answer = false;
        let is_answer = move |choice: &Choice| {
            let is_first = if is_there(&choice.index) { number(&choice.index) == Some(0) } else { !has_answer };
            has_answer |= is_first;
            is_first
        };
        self.choices.into_iter().flatten().filter(is_answer)
    }
}

impl Choice {
    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<ErrorWords> {
        let words = self.error.as_ref().filter(|_| is_there(&self.error)).map(|error| ErrorWords::of_body(error.get()));
        let reason = text(&self.finish_reason);
        let is_error = reason.eq_ignore_ascii_case("error");
        let plain = || ErrorWords { code: String::new(), message: format!("It ended with finish_reason {reason:?}.") };
        words.or_else(|| is_error.then(plain))
    }
}

/// Whether a value is there and is not null.
fn is_there(value: &Any) -> bool {
    value.as_ref().is_some_and(|value| value.get() != "null")
}

/// The text of a value; empty if it is none.
pub(super) fn text(value: &Any) -> String {
    value.as_ref().and_then(|value| text_of(value.get())).unwrap_or_default().into_owned()
}

/// The number of a value, which some servers spell as a text.
pub(super) fn number(value: &Any) -> Option<u64> {
    value.as_ref()?.get().trim_matches('"').parse().ok()
}

impl Delta {
    /// The parts of tool calls that it adds. A server that spells a call in both ways means one call.
    pub(super) fn calls(&mut self) -> Vec<CallPart> {
        let calls = self.tool_calls.take().unwrap_or_default();
        let function = self.function_call.take().filter(|_| calls.is_empty());
        let legacy = function.map(|function| CallPart { function: Some(function), ..CallPart::default() });
        calls.into_iter().chain(legacy).collect()
    }

    /// The words that it adds to the answer, as JSON texts.
    pub(super) fn words(&self) -> Vec<String> {
        [&self.content, &self.refusal].into_iter().flat_map(|value| pieces(value, Kind::Words)).collect()
    }

    /// The words that it adds to the reasoning, as JSON texts. Servers that name them twice mean the same ones.
    pub(super) fn thoughts(&self) -> Vec<String> {
        let named = [&self.reasoning_content, &self.reasoning, &self.reasoning_details];
        let named = named.into_iter().map(|value| pieces(value, Kind::Words)).find(|pieces| !pieces.is_empty());
        let among_words = pieces(&self.content, Kind::Thoughts);
        named.unwrap_or_default().into_iter().chain(among_words).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Words,
    Thoughts,
}

fn pieces(value: &Any, kind: Kind) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(value) = value {
        gather(value.get(), kind, DEPTH_MAX, &mut found);
    }
    found
}

/// How deep words may lie: in a text, in a part, in a list. What is nested deeper is no answer of anybody's.
const DEPTH_MAX: usize = 8;

/// A text, or the texts of a list of parts. A part that is a thought is none of the words.
fn gather(json: &str, kind: Kind, depth: usize, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match json.as_bytes().first() {
        Some(b'"') if kind == Kind::Words && json != "\"\"" => found.push(json.to_owned()),
        Some(b'[') => {
            let parts: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
            parts.iter().for_each(|part| gather(part.get(), kind, depth, found));
        }
        Some(b'{') => {
            let part = Object::parse(json).unwrap_or_default();
            match (part.get("thinking"), kind) {
                (Some(thought), Kind::Thoughts) => gather(thought, Kind::Words, depth, found),
                (None, Kind::Words) => {
                    let words = part.get("text").or(part.get("summary"));
                    words.into_iter().for_each(|words| gather(words, kind, depth, found));
                }
                _ => {}
            }
        }
        _ => {}
    }
}

/// An error as servers describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ErrorWords {
    /// A word for it; empty if there is none.
    pub(super) code: String,
    /// A sentence; empty if there is none.
    pub(super) message: String,
}

impl ErrorWords {
    /// From the value of an `error` key, or a whole body.
    pub(super) fn of(value: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let Value::Object(fields) = value else { return ErrorWords { code: String::new(), message: text(value) } };
        let first = |keys: &[&str]| {
            keys.iter().filter_map(|key| fields.get(*key)).map(text).find(|text| !text.is_empty()).unwrap_or_default()
        };
        ErrorWords { code: first(&["code", "type"]), message: first(&["message", "detail", "error"]) }
    }

    /// The same, with nothing in it that must not be shown.
    pub(super) fn without(self, secrets: &Secrets) -> Self {
        ErrorWords { message: secrets.hide(self.message), ..self }
    }

    /// From the body of an answer, whatever it is.
    pub(super) fn of_body(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => ErrorWords::of(value.get("error").unwrap_or(&value)),
            Err(_) => {
                ErrorWords { code: String::new(), message: body.split_whitespace().collect::<Vec<_>>().join(" ") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(delta: &str, words: &[&str], thoughts: &[&str]) {
        let delta: Delta = serde_json::from_str(delta).unwrap();
        assert_eq!((delta.words(), delta.thoughts()), (words.map_quoted(), thoughts.map_quoted()));
    }

    trait Quoted {
        fn map_quoted(&self) -> Vec<String>;
    }

    impl Quoted for &[&str] {
        fn map_quoted(&self) -> Vec<String> {
            self.iter().map(|text| format!("\"{text}\"")).collect()
        }
    }

    #[test]
    fn words_come_in_many_shapes() {
        check(r#"{"content":"a"}"#, &["a"], &[]);
        check(r#"{"content":[{"type":"text","text":"a"},"b"],"refusal":null}"#, &["a", "b"], &[]);
        check(r#"{"content":null,"refusal":"no"}"#, &["no"], &[]);
        check(r#"{"content":"","role":7,"tool_calls":null}"#, &[], &[]);
        check(r#"{"content":"\ud83d"}"#, &["\\ud83d"], &[]);
    }

    #[test]
    fn thoughts_come_in_many_shapes_and_never_as_words() {
        check(r#"{"reasoning_content":"","reasoning":"hm"}"#, &[], &["hm"]);
        check(r#"{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}]}"#, &[], &["hm"]);
        check(r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"hm"}]}"#, &[], &["hm"]);
        let parts =
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}"#;
        check(parts, &["a"], &["hm"]);
    }

    #[test]
    fn what_is_nested_without_end_is_no_words_and_takes_no_stack() {
        const LEVELS: usize = 1 << 20;
        let lists = format!("{}\"a\"{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
        let parts = format!("{}\"a\"{}", "{\"text\":".repeat(LEVELS), "}".repeat(LEVELS));
        for nested in [lists, parts] {
            for key in ["content", "reasoning"] {
                check(&format!("{{\"{key}\":{nested}}}"), &[], &[]);
            }
        }
    }

    #[test]
    fn an_error_may_stand_in_the_place_of_a_chunk() {
        let failure =
            |json: &str| serde_json::from_str::<Chunk>(json).unwrap().failure(json).map(|words| words.message);
        assert_eq!(failure(r#"{"error":{"message":"no"}}"#).as_deref(), Some("no"));
        assert_eq!(failure(r#"{"object":"error","message":"no","code":503}"#).as_deref(), Some("no"));
        assert_eq!(failure(r#"{"choices":[],"error":null}"#), None);
        assert_eq!(failure(r#"{"message":"hello"}"#), None);
    }

    #[test]
    fn the_answer_is_the_choice_with_index_0_wherever_it_stands() {
        let answer = |choices: &str| -> Vec<String> {
            let chunk: Chunk = serde_json::from_str(&format!("{{\"choices\":{choices}}}")).unwrap();
            chunk.answer().map(|choice| text(&choice.finish_reason)).collect()
        };
        let choice = |index: &str, reason: &str| format!("{{{index}\"finish_reason\":\"{reason}\"}}");
        let list = |choices: &[String]| format!("[{}]", choices.join(","));
        let (zero, one, bare) = (choice("\"index\":0,", "a"), choice("\"index\":1,", "b"), choice("", "c"));
        assert_eq!(answer(&list(&[one.clone(), zero.clone()])), ["a"]);
        assert_eq!(answer(&list(&[zero.clone(), one.clone(), zero.clone()])), ["a", "a"]);
        assert_eq!(answer(&list(&[one.clone(), bare.clone(), bare.clone()])), ["c"], "a missing index is 0, once");
        assert_eq!(answer(&list(&[choice("\"index\":\"0\",", "d"), choice("\"index\":null,", "e")])), ["d"]);
        assert!(answer(&list(&[one])).is_empty());
        assert!(answer("null").is_empty());
    }

    #[test]
    fn a_choice_fails_by_its_reason_or_its_error() {
        let failure = |json: &str| serde_json::from_str::<Choice>(json).unwrap().failure().map(|words| words.message);
        assert_eq!(failure(r#"{"finish_reason":"stop","error":null}"#), None);
        assert_eq!(failure(r#"{"finish_reason":"length"}"#), None);
        let reason = failure(r#"{"finish_reason":"error"}"#).unwrap();
        assert!(reason.contains("finish_reason \"error\""), "{reason}");
        assert_eq!(failure(r#"{"finish_reason":"error","error":{"code":502,"message":"no"}}"#).as_deref(), Some("no"));
        assert_eq!(failure(r#"{"error":"no"}"#).as_deref(), Some("no"));
    }

    #[test]
    fn a_call_of_the_old_kind_is_a_call_unless_it_is_also_one_of_the_new_kind() {
        let names = |delta: &str| -> Vec<String> {
            let parts = serde_json::from_str::<Delta>(delta).unwrap().calls();
            parts.into_iter().map(|part| text(&part.function.unwrap().name)).collect()
        };
        assert_eq!(names(r#"{"function_call":{"name":"f","arguments":"{}"}}"#), ["f"]);
        assert_eq!(names(r#"{"function_call":{"name":"f"},"tool_calls":[{"function":{"name":"f"}}]}"#), ["f"]);
        assert!(names(r#"{"function_call":null,"tool_calls":null}"#).is_empty());
    }

    #[test]
    fn errors_come_in_many_shapes() {
        let error = |code: &str, message: &str| ErrorWords { code: code.to_owned(), message: message.to_owned() };
        let body = r#"{"error":{"message":"slow down","type":"rate","code":"rate_limit"}}"#;
        assert_eq!(ErrorWords::of_body(body), error("rate_limit", "slow down"));
        assert_eq!(ErrorWords::of_body(r#"{"error":"no"}"#), error("", "no"));
        assert_eq!(ErrorWords::of_body(r#"{"detail":"gone","code":7}"#), error("7", "gone"));
        assert_eq!(ErrorWords::of_body("<h1>502</h1>\n bad"), error("", "<h1>502</h1> bad"));
    }
}
