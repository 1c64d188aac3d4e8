//! Sessions as JSON values, the way in which scenarios write them down.

use lastword::format::encode;
use lastword::{Metadata, Session};
use serde_json::{Map, Value, json};

/// A session as a value.
pub(crate) fn session_value(session: &Session) -> Value {
    sidecar_value(encode(session).bytes()).expect("a session that was read is JSON")
}

/// The bytes of a sidecar as a value, if they are JSON.
pub(crate) fn sidecar_value(bytes: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    if let Some(keys) = value.as_object_mut() {
        add_defaults(keys);
    }
    Some(value)
}

/// What is known of a session without its rows.
pub(crate) fn metadata_value(metadata: &Metadata) -> Value {
    let parse = |json: &str| serde_json::from_str(json).expect("metadata is JSON");
    let mut keys: Map<String, Value> = metadata.iter().map(|(key, json)| (key.into_owned(), parse(json))).collect();
    add_defaults(&mut keys);
    Value::Object(keys)
}

/// What the reference program takes for a key that an old sidecar does not have. It writes all of them.
fn add_defaults(keys: &mut Map<String, Value>) {
    for key in ["active_stream_id", "pending_user_message", "pending_started_at", "pending_user_source"] {
        keys.entry(key).or_insert(Value::Null);
    }
    for key in ["pinned", "archived"] {
        keys.entry(key).or_insert(json!(false));
    }
    for key in ["pending_attachments", "messages", "tool_calls"] {
        let list = keys.entry(key).or_insert(Value::Null);
        if list.is_null() {
            *list = json!([]);
        }
    }
}

/// What a listing shows of a session.
pub(crate) fn listing_value(metadata: &Metadata, session: &Value) -> Value {
    let rows = session["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last_said = rows.iter().rev().find_map(|row| row["timestamp"].as_f64());
    let mut listed = metadata_value(metadata);
    listed["message_count"] = json!(metadata.message_count());
    listed["user_message_count"] = json!(rows.iter().filter(|row| row["role"] == "user").count());
    listed["last_message_at"] = json!(last_said);
    let has_pending = listed["pending_user_message"].as_str().is_some_and(|text| !text.is_empty());
    listed["has_pending_user_message"] = json!(has_pending);
    listed
}
