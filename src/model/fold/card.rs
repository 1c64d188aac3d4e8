//! One tool card as the events make it: what the reference program shows of a call, and beside it what really happened.

use crate::limits::{CARD_ARG_CHARS_MAX, CARD_ARGS_KEYS_MAX};
use crate::model::json::{Fields, Object, quoted};
use crate::model::text::{is_truthy, python_text};
use crate::model::tool::{ANSWERED, ARGS, CALL_ID, RESULT, RESULT_IS_ERROR, RESULT_PREVIEW, ToolCard};

/// The id of the call that a `tool` or `tool_complete` is about.
pub(crate) fn tool_id(fields: &Fields<'_>) -> Option<String> {
    let keys = ["tool_call_id", "tool_id", "tid", "id"];
    let value = keys.iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value))?;
    Some(python_text(value).into_owned())
}

/// The arguments that a `tool` event carries, verbatim JSON: the first that say anything, else the first.
pub(crate) fn tool_arguments<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    let given = || ["args", "arguments", "input"].iter().filter_map(|key| fields.get(key));
    given().find(|value| is_truthy(value)).or_else(|| given().find(|value| *value != "null"))
}

/// The result that a `tool_complete` event carries, verbatim JSON, and whether it is an error. Null is a result too.
pub(crate) fn tool_result<'a>(fields: &Fields<'a>) -> Option<(&'a str, bool)> {
    let given = || ["result", "output", "error"].iter().filter_map(|key| Some((*key, fields.get(key)?)));
    let (key, value) = given().find(|(_, value)| *value != "null").or_else(|| given().next())?;
    let is_error = says_error(fields) || (key == "error" && value != "null");
    Some((value, is_error))
}

fn says_error(fields: &Fields<'_>) -> bool {
    fields.get("is_error").is_some_and(is_truthy)
}

pub(super) fn given_text(fields: &Fields<'_>, key: &str) -> String {
    fields.get(key).filter(|value| is_truthy(value)).map(python_text).unwrap_or_default().into_owned()
}

/// A card whose tool has not answered. `number` is that of its event, or the card's position in the replay from 1.
pub(super) fn open_card(fields: &Fields<'_>, number: u64) -> ToolCard {
    let name = given_text(fields, "name");
    let preview = given_text(fields, "preview");
    let snippet = given_text(fields, "snippet");
    let mut card = ToolCard::default();
    let out = card.fields_mut();
    out.set_text("name", if name.is_empty() { "tool" } else { &name });
    out.set_text("preview", &preview);
    out.set_text("snippet", if snippet.is_empty() { &preview } else { &snippet });
    out.set_text("tid", &format!("journal-{number}"));
    out.set("args", shown_args(fields.get("args")));
    out.set("done", "false");
    card
}

/// Notes what the call really was. `args` is what the document keeps of its arguments.
pub(super) fn note_call(card: &mut Object, id: Option<&str>, args: Option<&str>) {
    if let Some(id) = id {
        card.set_text(CALL_ID, id);
    }
    if let Some(args) = args {
        card.set(ARGS, args);
    }
}

/// Shows a result as the reference program does.
pub(super) fn close_card(card: &mut Object, fields: &Fields<'_>) {
    let preview = given_text(fields, "preview");
    let snippet = given_text(fields, "snippet");
    card.set("done", "true");
    if !preview.is_empty() {
        card.set_text("preview", &preview);
        card.set_text("snippet", &preview);
    }
    if !snippet.is_empty() {
        card.set_text("snippet", &snippet);
    }
    if let Some(duration) = fields.get("duration").filter(|value| *value != "null") {
        card.set("duration", duration);
    }
    card.set("is_error", says_error(fields).to_string());
}

/// Notes what the tool really answered. `result` is what the document keeps of it; without one, what the event shows of it.
pub(super) fn note_answer(card: &mut Object, fields: &Fields<'_>, result: Option<&str>) {
    let is_error = tool_result(fields).map_or_else(|| says_error(fields), |(_, is_error)| is_error);
    match result {
        Some(result) => card.set(RESULT, result),
        None => {
            let shown = ["snippet", "preview"].map(|key| given_text(fields, key));
            shown.iter().find(|text| !text.is_empty()).into_iter().for_each(|text| card.set_text(RESULT_PREVIEW, text));
        }
    }
    if is_error {
        card.set(RESULT_IS_ERROR, "true");
    }
}

/// Notes whether the tool has answered, where `done` says something else: results went to the cards in another order.
pub(super) fn note_whether_answered(card: &mut ToolCard, is_answered: bool) {
    if card.is_done() != is_answered {
        card.fields_mut().set(ANSWERED, is_answered.to_string());
    }
}

fn shown_args(args: Option<&str>) -> String {
    let mut shown = Object::default();
    let fields = args.and_then(Fields::parse).unwrap_or(Fields(Vec::new()));
    for (key, value) in fields.0.iter().take(CARD_ARGS_KEYS_MAX) {
        shown.set(key, quoted(&cut(&python_text(value))));
    }
    shown.to_json()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CARD_ARG_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
