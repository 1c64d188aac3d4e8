//! Which kind of marker a row is. Recorded markers have a placeholder for their content, because the words are ours.

use serde_json::Value;

const PLACEHOLDER: &str = "@marker:";
const RETRY_KEYS: [&str; 4] = [
    "_pending_journal_recovery",
    "_journal_retry_stream_id",
    "_journal_retry_attempts",
    "_journal_retry_first_seen_ts",
];

/// Whether a recorded content stands for words of ours.
pub(crate) fn is_placeholder(content: &Value) -> bool {
    content.as_str().is_some_and(|text| text.starts_with(PLACEHOLDER))
}

/// Why a row is not the marker that a placeholder stands for. A row that nobody changed still holds its placeholder.
pub(crate) fn why_not(row: &Value, placeholder: &Value) -> Option<String> {
    if row["content"] == *placeholder {
        return None;
    }
    let (found, expected) = (kind_of(row), expected_kind(placeholder)?);
    if found != expected {
        return Some(format!("is the marker `{found}`, expected `{expected}`: {}", row["content"]));
    }
    let kept = RETRY_KEYS.iter().find(|key| expected != "pending" && row.get(**key).is_some());
    kept.map(|key| format!("is decided and still has {key}"))
}

/// Nothing found and nothing to be found are told to the user in the same words.
fn expected_kind(placeholder: &Value) -> Option<&str> {
    let kind = placeholder.as_str()?.strip_prefix(PLACEHOLDER)?;
    Some(if kind == "no-output" { "lost" } else { kind })
}

/// What the words of a row of ours say.
fn kind_of(row: &Value) -> &'static str {
    let words = row["content"].as_str().unwrap_or_default();
    if words.contains("recovered from the run journal") {
        "recovered"
    } else if words.contains("no agent output was recovered") {
        "lost"
    } else if row["_pending_journal_recovery"] == true {
        "pending"
    } else {
        "none"
    }
}

#[test]
fn a_marker_is_known_by_its_words_and_an_armed_one_by_its_flag() {
    use serde_json::json;
    let row = |words: &str, armed: bool| match armed {
        true => json!({"content": words, "_pending_journal_recovery": true}),
        false => json!({"content": words}),
    };
    let fits = |row: &Value, kind: &str| why_not(row, &json!(format!("@marker:{kind}"))).is_none();
    assert!(fits(&row("It was recovered from the run journal.", false), "recovered"));
    assert!(!fits(&row("It was recovered from the run journal.", true), "recovered"));
    assert!(fits(&row("Sorry, no agent output was recovered.", false), "lost"));
    assert!(fits(&row("Sorry, no agent output was recovered.", false), "no-output"));
    assert!(fits(&row("We are still looking.", true), "pending"));
    assert!(!fits(&row("We are still looking.", false), "pending"));
    assert!(fits(&row("@marker:lost", false), "lost") && !fits(&row("@marker:lost", false), "recovered"));
}
