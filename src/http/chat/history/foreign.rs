//! Rows in the shapes of other programs: contents that are lists, calls that the row makes itself, results in rows of their
//! own.

use serde_json::value::RawValue;

use super::message::Answer;
use crate::http::chat::value::FileAddresses;
use crate::model::{Fields, Object, Row, is_file_address, is_truthy, python_text, quoted, text_of, trim};

/// A piece of a row's content.
pub(super) enum Block {
    Text(String),
    Reasoning(String),
    /// A UI part.
    File(String),
}

/// A call that a row makes itself.
pub(super) struct OwnCall {
    /// What the row calls it; empty if it has no id.
    pub(super) given_id: String,
    pub(super) name: String,
    pub(super) input: Option<String>,
}

/// The items of a JSON list. A value that is not a list is its only item.
pub(super) fn items(json: &str) -> Vec<&str> {
    let list = serde_json::from_str::<Vec<&RawValue>>(json);
    let mut items = list.map_or_else(|_| vec![json], |list| list.into_iter().map(RawValue::get).collect());
    items.retain(|item| is_truthy(item));
    items
}

/// What a row says.
pub(super) fn blocks(files: &FileAddresses, row: &Row) -> Vec<Block> {
    let content = row.fields().get("content").unwrap_or("null");
    let found = items(content).into_iter().filter_map(|item| block(files, item));
    found
        .filter(|block| !matches!(block, Block::Text(text) | Block::Reasoning(text) if trim(text).is_empty()))
        .collect()
}

fn block(files: &FileAddresses, item: &str) -> Option<Block> {
    if !item.starts_with('{') {
        return Some(Block::Text(python_text(item).into_owned()));
    }
    let fields = Fields::parse(item)?;
    let text = |key: &str| fields.get(key).and_then(text_of).map(|text| text.into_owned());
    match fields.get("type").and_then(text_of).as_deref() {
        None | Some("" | "text" | "input_text" | "output_text") => text("text").map(Block::Text),
        Some("thinking" | "reasoning") => text("thinking").or_else(|| text("text")).map(Block::Reasoning),
        _ => file_part(files, item).map(Block::File),
    }
}

/// A file or a picture as a UI part, however it is spelt.
pub(super) fn file_part(files: &FileAddresses, json: &str) -> Option<String> {
    let fields = Fields::parse(json)?;
    let text = |fields: &Fields<'_>, keys: &[&str]| {
        keys.iter().find_map(|key| fields.get(key).and_then(text_of)).map(|text| text.into_owned())
    };
    let inside = |key: &str| fields.get(key).and_then(Fields::parse);
    let in_image = inside("image_url").and_then(|image| text(&image, &["url"]));
    let in_source = inside("source").and_then(|source| {
        let (kind, data) = (text(&source, &["media_type"]), text(&source, &["data"]));
        text(&source, &["url"]).or_else(|| Some(format!("data:{};base64,{}", kind?, data?)))
    });
    let url = text(&fields, &["url", "image_url", "image"]).or(in_image).or(in_source);
    let url = url.filter(|url| is_file_address(url))?;
    let kind = text(&fields, &["mediaType", "media_type", "mime_type", "content_type"]).or_else(|| type_in(&url));
    let is_image = fields.get("type").and_then(text_of).is_some_and(|kind| kind.contains("image"));
    let default = if is_image { "image/*" } else { "application/octet-stream" };
    let mut part = Object::default();
    part.set_text("type", "file");
    part.set_text("mediaType", kind.as_deref().unwrap_or(default));
    if let Some(name) = text(&fields, &["filename", "name"]) {
        part.set_text("filename", &name);
    }
    part.set_text("url", &files.address(&url));
    Some(part.to_json())
}

/// The type that a `data:` URL names.
fn type_in(url: &str) -> Option<String> {
    let kind = url.strip_prefix("data:")?.split([';', ',']).next()?;
    kind.contains('/').then(|| kind.to_owned())
}

/// The calls that a row makes itself: OpenAI's `tool_calls`, or blocks of its content.
pub(super) fn calls(row: &Row) -> Vec<OwnCall> {
    let listed = items(row.fields().get("tool_calls").unwrap_or("[]")).into_iter().filter_map(Fields::parse);
    let in_content = items(row.fields().get("content").unwrap_or("[]")).into_iter().filter_map(Fields::parse);
    let is_use = |block: &Fields<'_>| block.get("type").and_then(text_of).as_deref() == Some("tool_use");
    listed.map(|call| own_call(&call)).chain(in_content.filter(is_use).map(|call| own_call(&call))).collect()
}

fn own_call(call: &Fields<'_>) -> OwnCall {
    let inside = call.get("function").and_then(Fields::parse);
    let told = inside.as_ref().unwrap_or(call);
    let name = told.get("name").filter(|name| is_truthy(name)).map_or("tool".into(), python_text);
    let input = ["arguments", "input"].iter().find_map(|key| told.get(key)).map(|input| match text_of(input) {
        // Arguments are JSON in a text.
        Some(text) if serde_json::from_str::<&RawValue>(&text).is_ok() => text.into_owned(),
        _ => input.to_owned(),
    });
    OwnCall { given_id: word(call, "id"), name: name.into_owned(), input }
}

fn word(fields: &Fields<'_>, key: &str) -> String {
    fields.get(key).filter(|value| is_truthy(value)).map(python_text).unwrap_or_default().into_owned()
}

/// Whether a row of the user brings results of tools.
pub(super) fn has_results(row: &Row) -> bool {
    tool_results(row).next().is_some()
}

/// The results that a row brings: a row of role `tool` is one, a row of the user may hold some.
pub(super) fn tool_results(row: &Row) -> impl Iterator<Item = (String, Answer)> {
    let content = row.fields().get("content").unwrap_or("null");
    let mut found = Vec::new();
    if row.role() == "tool" {
        let id = row.fields().get("tool_call_id").filter(|id| is_truthy(id)).map(python_text).unwrap_or_default();
        let is_error = row.fields().get("is_error").is_some_and(is_truthy);
        found.push((id.into_owned(), answer(content, is_error)));
    } else {
        for block in items(content).into_iter().filter_map(Fields::parse) {
            if block.get("type").and_then(text_of).as_deref() == Some("tool_result") {
                let is_error = block.get("is_error").is_some_and(is_truthy);
                found.push((word(&block, "tool_use_id"), answer(block.get("content").unwrap_or("null"), is_error)));
            }
        }
    }
    found.into_iter()
}

/// A list of texts is their text; any other value is itself.
fn answer(content: &str, is_error: bool) -> Answer {
    let texts: Option<Vec<String>> = items(content)
        .into_iter()
        .map(|item| Fields::parse(item)?.get("text").and_then(text_of).map(|text| text.into_owned()))
        .collect();
    let result = match texts.filter(|texts| content.starts_with('[') && !texts.is_empty()) {
        Some(texts) => quoted(&texts.join("\n\n")).into(),
        None => content.to_owned(),
    };
    Answer { result: Some(result), preview: String::new(), is_error }
}
