//! Text as the reference program compares it: what it calls white space, true, and the text of a value.
//!
//! Duplicate detection works on data that program wrote, so these follow its language's rules and not ours.

use std::borrow::Cow;

use super::json::text_of;

/// White space in the reference program's sense: Unicode's, and the four ASCII separators.
pub fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// The text without white space at its ends.
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// Whether a text shows nothing to its reader: it is empty, or all of it is white space, control characters, and characters
/// that Unicode gives no form of their own (zero-width blanks and joiners, direction marks, variation selectors, fillers).
pub fn shows_nothing(text: &str) -> bool {
    text.chars().all(|c| is_blank(c) || c.is_control() || is_ignorable(c) || WITHOUT_INK.contains(&c))
}

/// Symbols that show nothing: the braille pattern without a dot, and the notehead without a form.
const WITHOUT_INK: [char; 2] = ['\u{2800}', '\u{1d159}'];

/// Unicode's property `Default_Ignorable_Code_Point`.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
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
    Cow::Owned(represent(raw))
}

/// A JSON value as the reference program's language shows it: word by word, so that no depth of nesting matters.
fn represent(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw.trim_ascii_start();
    while let Some(first) = rest.bytes().next() {
        let (word, after) = rest.split_at(word_len(rest));
        match first {
            b'n' => out.push_str("None"),
            b't' => out.push_str("True"),
            b'f' => out.push_str("False"),
            b'"' => out.push_str(&represent_string(&text_of(word).unwrap_or_default())),
            b',' | b':' => out.extend([char::from(first), ' ']),
            b'[' | b']' | b'{' | b'}' => out.push(char::from(first)),
            _ => out.push_str(&represent_number(word)),
        }
        rest = after.trim_ascii_start();
    }
    out
}

/// How long the first word of a JSON text is: a bracket, a comma, a string, a number.
fn word_len(json: &str) -> usize {
    let bytes = json.as_bytes();
    match bytes[0] {
        b'"' => string_len(bytes),
        b'[' | b']' | b'{' | b'}' | b',' | b':' => 1,
        _ => {
            let ends = |b: &u8| matches!(b, b'[' | b']' | b'{' | b'}' | b',' | b':' | b'"') || b.is_ascii_whitespace();
            bytes.iter().position(ends).unwrap_or(bytes.len())
        }
    }
}

fn string_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn represent_number(raw: &str) -> String {
    match raw.parse::<f64>() {
        Ok(number) if raw.contains(['.', 'e', 'E']) => represent_float(number),
        _ if raw == "-0" => "0".to_owned(),
        _ => raw.to_owned(),
    }
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

/// Whether a character inside a list or an object is shown as it is: white space and invisible ones are not.
fn is_shown(c: char) -> bool {
    let is_invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_invisible)
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
            c if is_shown(c) => out.push(c),
            c if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_shows_nothing_if_no_character_of_it_does() {
        for nothing in [
            "",
            " ",
            "\n\t\u{a0}\u{3000}",
            "\u{200b}",
            "\u{feff} \u{2060}\u{200d}",
            "\0\u{1f}\u{85}",
            "\u{3164}",
            "\u{fe0f}",
        ] {
            assert!(shows_nothing(nothing), "{nothing:?}");
        }
        for something in [".", " \u{200b}x", "0", "👨\u{200d}👩", "\u{fffd}", "é"] {
            assert!(!shows_nothing(something), "{something:?}");
        }
    }

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
            (r#"{"b": 1, "a": {"d": true, "c": false}}"#, "{'b': 1, 'a': {'d': True, 'c': False}}"),
            ("[100000000000000000000, -0, -0.0, 1E3]", "[100000000000000000000, 0, -0.0, 1000.0]"),
            (r#"[ {} , [ ] ,"\"]", [{"a" : [1,2]}]]"#, r#"[{}, [], '"]', [{'a': [1, 2]}]]"#),
            ("[\"a\u{a0}b\u{200b}\", \"\\u0000\"]", r"['a\xa0b\u200b', '\x00']"),
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
