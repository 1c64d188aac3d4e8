//! What providers demand of a conversation, written down without a look at how ours is made.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// Panics with the rule that OpenAI's chat endpoint or Anthropic's messages endpoint would refuse this list by.
pub(crate) fn assert_provider_valid(messages: &Value) {
    let list = messages.as_array().expect("a list of messages");
    let mut ids = HashSet::new();
    for message in list {
        assert_message(message, &mut ids);
    }
    assert_order(list);
    assert_anthropic(list);
}

fn role(message: &Value) -> &str {
    message["role"].as_str().expect("a role")
}

fn assert_message(message: &Value, ids: &mut HashSet<String>) {
    let fields = message.as_object().expect("an object");
    match role(message) {
        "system" => {
            assert_keys(fields, &["role", "content"]);
            assert_words(&message["content"]);
        }
        "user" => {
            assert_keys(fields, &["role", "content"]);
            assert_user_content(&message["content"]);
        }
        "assistant" => assert_assistant(fields, ids),
        "tool" => {
            assert_keys(fields, &["role", "content", "tool_call_id"]);
            assert_words(&message["content"]);
        }
        other => panic!("no such role: {other}"),
    }
}

fn assert_keys(fields: &Map<String, Value>, known: &[&str]) {
    assert!(fields.keys().all(|key| known.contains(&key.as_str())), "an unknown key: {fields:?}");
}

fn assert_words(content: &Value) {
    let text = content.as_str().unwrap_or_else(|| panic!("no text: {content}"));
    assert!(!text.trim().is_empty(), "blank content");
}

fn assert_user_content(content: &Value) {
    let Some(parts) = content.as_array() else { return assert_words(content) };
    assert!(!parts.is_empty(), "no parts");
    for part in parts {
        match part["type"].as_str() {
            Some("text") => assert_words(&part["text"]),
            Some("image_url") => assert_words(&part["image_url"]["url"]),
            Some("input_audio") => assert_words(&part["input_audio"]["data"]),
            Some("file") => assert!(part["file"].is_object(), "no file: {part}"),
            _ => panic!("no such part: {part}"),
        }
    }
}

fn assert_assistant(fields: &Map<String, Value>, ids: &mut HashSet<String>) {
    assert_keys(fields, &["role", "content", "tool_calls"]);
    let calls = fields.get("tool_calls").map(|calls| calls.as_array().expect("a list of calls"));
    assert!(calls.is_none_or(|calls| !calls.is_empty()), "an empty list of calls");
    if !fields["content"].is_null() || calls.is_none() {
        assert_words(&fields["content"]);
        let text = fields["content"].as_str().unwrap();
        assert_eq!(text, text.trim_end(), "white space at the end of an answer");
    }
    for call in calls.into_iter().flatten() {
        assert_call(call, ids);
    }
}

fn assert_call(call: &Value, ids: &mut HashSet<String>) {
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let (id, name) = (call["id"].as_str().expect("an id"), call["function"]["name"].as_str().expect("a name"));
    assert_eq!(call["type"], "function");
    assert!((1..=40).contains(&id.len()) && is_plain(id), "a bad id: {id:?}");
    assert!((1..=64).contains(&name.len()) && is_plain(name), "a bad name: {name:?}");
    assert!(ids.insert(id.to_owned()), "an id twice: {id}");
    let arguments = call["function"]["arguments"].as_str().expect("arguments are a text");
    assert!(serde_json::from_str::<Map<String, Value>>(arguments).is_ok(), "no object: {arguments}");
}

fn call_ids(message: &Value) -> Vec<&str> {
    message["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].as_str().unwrap()).collect()
}

/// System first, then a user; after calls their results, all of them, in order, and no other result anywhere.
fn assert_order(list: &[Value]) {
    let mut rest = list.iter().skip_while(|message| role(message) == "system").peekable();
    assert!(rest.peek().is_none_or(|first| role(first) == "user"), "it does not begin with a user");
    let mut before = "";
    while let Some(message) = rest.next() {
        assert!(matches!(role(message), "user" | "assistant"), "{} out of place", role(message));
        assert_ne!(role(message), before, "the same speaker twice");
        before = role(message);
        for id in call_ids(message) {
            let answer = rest.next().expect("a result behind the call");
            assert_eq!((role(answer), answer["tool_call_id"].as_str()), ("tool", Some(id)));
            before = "tool";
        }
    }
}

/// The same messages as Anthropic takes them: results are blocks of a user's message, and speakers alternate strictly.
fn assert_anthropic(list: &[Value]) {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in list.iter().filter(|message| role(message) != "system") {
        let speaker = if role(message) == "assistant" { "assistant" } else { "user" };
        match turns.last_mut() {
            // The only neighbours that may be joined on the way: results, and what the user says after them.
            Some((last, blocks)) if *last == speaker && blocks[0]["type"] == "tool_result" => {
                blocks.extend(blocks_of(message));
            }
            _ => turns.push((speaker, blocks_of(message))),
        }
    }
    assert!(turns.first().is_none_or(|(speaker, _)| *speaker == "user"));
    for pair in turns.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "speakers do not alternate");
        assert_eq!(ids_of(&pair[0].1, "tool_use"), ids_of(&pair[1].1, "tool_result"), "calls and results differ");
    }
    let last = turns.last().map_or(&[][..], |(_, blocks)| blocks);
    assert!(ids_of(last, "tool_use").is_empty(), "calls without results");
}

fn blocks_of(message: &Value) -> Vec<Value> {
    if role(message) == "tool" {
        return vec![json!({"type": "tool_result", "id": message["tool_call_id"]})];
    }
    let words = (!message["content"].is_null()).then(|| json!({"type": "text"}));
    let calls = call_ids(message).into_iter().map(|id| json!({"type": "tool_use", "id": id}));
    words.into_iter().chain(calls).collect()
}

fn ids_of<'a>(blocks: &'a [Value], kind: &str) -> Vec<&'a str> {
    blocks.iter().filter(|block| block["type"] == kind).map(|block| block["id"].as_str().unwrap()).collect()
}
