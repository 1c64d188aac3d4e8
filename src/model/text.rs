//! Text as the reference program compares it: what it calls white space, true, and the text of a value.
//!
//! Duplicate detection works on data that program wrote, so these follow its language's rules and not ours.

use std::borrow::Cow;

use serde_json::Value;

use super::json::text_of;

/// White space in the reference program's sense: Unicode's, and the four ASCII separators.
pub fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// The text without white space at its ends.
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// The form in which two texts are compared: every run of white space is one blank, none at the ends.
pub fn normal_form(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for word in text.split(is_blank).filter(|word| !word.is_empty()) {
        if !normal.is_empty() {
            normal.push(' ');
        }
        normal.push_str(word);
    }
    normal
}

/// Whether the reference program takes this JSON value for true.
pub fn is_truthy(raw: &str) -> bool {
    match raw.as_bytes().first() {
        None | Some(b'n' | b'f') => false,
        Some(b't') => true,
        Some(b'"') => raw.len() > 2,
        Some(b'[' | b'{') => raw[1..raw.len() - 1].chars().any(|c| !c.is_ascii_whitespace()),
        Some(_) => raw.parse::<f64>().is_ok_and(|number| number != 0.0),
    }
}

/// The text of a JSON value as the reference program would print it.
pub fn python_text(raw: &str) -> Cow<'_, str> {
    if let Some(text) = text_of(raw) {
        return text;
    }
    match serde_json::from_str::<Value>(raw) {
        Ok(value) => Cow::Owned(represent(&value)),
        Err(_) => Cow::Borrowed(raw),
    }
}

fn represent(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) if number.is_f64() => represent_float(number.as_f64().unwrap_or_default()),
        Value::Number(number) => number.to_string(),
        Value::String(text) => represent_string(text),
        Value::Array(items) => format!("[{}]", join(items.iter().map(represent))),
        Value::Object(fields) => {
            format!("{{{}}}", join(fields.iter().map(|(k, v)| format!("{}: {}", represent_string(k), represent(v)))))
        }
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn represent_float(number: f64) -> String {
    let text = format!("{number:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

fn represent_string(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_as_the_reference_program_prints_them() {
        for (raw, text) in [
            ("null", "None"),
            ("true", "True"),
            ("1.50", "1.5"),
            ("2.0", "2.0"),
            ("1e20", "1e+20"),
            ("1e-7", "1e-07"),
            (r#"[1, "a", null]"#, "[1, 'a', None]"),
            (r#"{"k": "it's"}"#, r#"{'k': "it's"}"#),
            (r#""plain""#, "plain"),
        ] {
            assert_eq!(python_text(raw), text, "{raw}");
        }
    }

    #[test]
    fn emptiness_is_falsehood() {
        for raw in ["null", "false", "0", "0.0", "-0", r#""""#, "[]", "{ }"] {
            assert!(!is_truthy(raw), "{raw}");
        }
        for raw in ["true", "1", "-0.5", r#"" ""#, "[0]", r#"{"a":1}"#] {
            assert!(is_truthy(raw), "{raw}");
        }
    }
}
