//! What one chunk of a streamed chat completion says. Lenient: what servers add or leave out is no reason to fail.

use serde::Deserialize;
use serde_json::Value;

use super::key::Secret;

/// A chunk, or the error that stands in its place.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Chunk {
    #[serde(default)]
    pub(super) choices: Option<Vec<Choice>>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(default)]
    pub(super) error: Option<Value>,
    #[serde(default)]
    pub(super) model: Option<Value>,
}

/// One choice. Only the first is asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice {
    /// In a stream.
    #[serde(default)]
    pub(super) delta: Option<Delta>,
    /// In an answer as a whole.
    #[serde(default)]
    pub(super) message: Option<Delta>,
    #[serde(default)]
    pub(super) finish_reason: Option<Value>,
}

/// What is added to an answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    role: Option<Value>,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<Value>,
    #[serde(default)]
    reasoning_content: Option<Value>,
    #[serde(default)]
    reasoning: Option<Value>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallPart>>,
}

/// A part of a tool call.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallPart {
    #[serde(default)]
    pub(super) index: Option<usize>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: Option<FunctionPart>,
}

/// What is called, and with what.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionPart {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<Value>,
}

impl Delta {
    /// The words that it adds to the answer.
    pub(super) fn text(&self) -> String {
        let content = self.content.as_ref().map(words).unwrap_or_default();
        let refusal = self.refusal.as_ref().map(words).unwrap_or_default();
        content + &refusal
    }

    /// The words that it adds to the reasoning.
    pub(super) fn reasoning(&self) -> String {
        let named = [&self.reasoning_content, &self.reasoning];
        named.into_iter().flatten().map(words).find(|words| !words.is_empty()).unwrap_or_default()
    }

    /// Whether it says who speaks.
    pub(super) fn has_role(&self) -> bool {
        self.role.as_ref().is_some_and(|role| !role.is_null())
    }
}

/// A text, or the texts of a list of parts.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(words).collect(),
        Value::Object(part) => part.get("text").map(words).unwrap_or_default(),
        _ => String::new(),
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
    pub(super) fn without(self, secret: &Secret) -> Self {
        ErrorWords { message: secret.hide(self.message), ..self }
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

    fn delta(json: &str) -> Delta {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn words_come_in_many_shapes() {
        assert_eq!(delta(r#"{"content":"a"}"#).text(), "a");
        assert_eq!(delta(r#"{"content":[{"type":"text","text":"a"},"b"],"refusal":null}"#).text(), "ab");
        assert_eq!(delta(r#"{"content":null,"refusal":"no"}"#).text(), "no");
        assert_eq!(delta(r#"{"reasoning_content":"","reasoning":"hm"}"#).reasoning(), "hm");
        assert!(delta(r#"{"role":"assistant"}"#).has_role() && !delta(r#"{"role":null}"#).has_role());
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
