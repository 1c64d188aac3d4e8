//! Attachments that an endpoint is not sent, and how the answer says so.

use serde_json::Value;

use crate::limits::UNSENT_NAMED_MAX;
use crate::model::{Context, ContextMessage, Event, LeftOut, Object};
use crate::run::runner::Prompt;

/// The `name` of the data event, and the `notice` of the paragraph.
const EVENT: &str = "attachments-not-sent";

/// Characters of what an attachment is called.
const NAME_CHARS_MAX: usize = 80;

/// The attachments of the message that is answered which the conversation does not hold as content parts. Those of earlier
/// messages were said when these were answered.
pub(super) fn unsent(prompt: &Prompt, takes_attachments: bool) -> Vec<LeftOut> {
    let items = match serde_json::from_str::<Value>(&prompt.attachments) {
        Ok(Value::Array(items)) => items,
        _ => return Vec::new(),
    };
    let sent = if takes_attachments { sent_urls(&prompt.context) } else { Vec::new() };
    let is_sent = |item: &&Value| url_of(item).is_some_and(|url| sent.iter().any(|sent| is_same(sent, url)));
    let items = items.iter().filter(|item| !item.is_null() && !is_sent(item));
    items.map(|item| LeftOut { what: name_of(item), why: why(item, &prompt.context, takes_attachments) }).collect()
}

/// The URLs of the content parts of the last message.
fn sent_urls(context: &Context) -> Vec<String> {
    let Some(ContextMessage::User { attachments, .. }) = context.messages.last() else { return Vec::new() };
    let parts = attachments.iter().filter_map(|json| serde_json::from_str::<Value>(json).ok());
    parts.filter_map(|part| part_url(&part).map(str::to_owned)).collect()
}

/// Where the bytes of a content part of a request are.
fn part_url(part: &Value) -> Option<&str> {
    let pointers: &[&str] = match part["type"].as_str()? {
        "image_url" => &["/image_url/url"],
        "input_audio" => &["/input_audio/data"],
        "file" => &["/file/file_data", "/file/file_id"],
        _ => &[],
    };
    pointers.iter().find_map(|pointer| part.pointer(pointer).and_then(Value::as_str)).filter(|url| !url.is_empty())
}

fn url_of(item: &Value) -> Option<&str> {
    part_url(item).or_else(|| item["url"].as_str())
}

/// Two data URLs are the same if they hold the same bytes, whatever media type each names.
fn is_same(sent: &str, url: &str) -> bool {
    let bytes = |url| str::strip_prefix(url, "data:").and_then(|data| data.split_once(',')).map(|(_, bytes)| bytes);
    sent == url || (bytes(sent).is_some() && bytes(sent) == bytes(url))
}

/// What an attachment is called: its file name, else its address, else its media type.
fn name_of(item: &Value) -> String {
    let address = url_of(item).filter(|url| url.starts_with("http"));
    let name = file_name(item).or(address).or(item["mediaType"].as_str()).or(item.as_str());
    cut(name.filter(|name| !name.trim().is_empty()).unwrap_or("an attachment"))
}

fn file_name(item: &Value) -> Option<&str> {
    let names = [&item["filename"], &item["name"], &item["file"]["filename"]];
    names.into_iter().filter_map(Value::as_str).find(|name| !name.trim().is_empty())
}

fn cut(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NAME_CHARS_MAX).collect()
}

/// Why it is not sent: as the conversation says, else as its address tells.
fn why(item: &Value, context: &Context, takes_attachments: bool) -> String {
    if !takes_attachments {
        return "the model takes text only".to_owned();
    }
    let name = cut(file_name(item).or(item["mediaType"].as_str()).or(item.as_str()).unwrap_or_default());
    let told = context.left_out.iter().rev().find(|left_out| !name.is_empty() && cut(&left_out.what) == name);
    let scheme = item["url"].as_str().and_then(|url| url.split_once(':')).map(|(scheme, _)| scheme);
    let guess = match scheme {
        Some("lastword") => "it is not stored, or it is too large",
        Some("http" | "https") => "it is stored elsewhere, and a model is sent files and no addresses of files",
        Some("data") => "it is too large, or its data cannot be read",
        _ => "it is in a form that the endpoint does not know",
    };
    told.map_or_else(|| guess.to_owned(), |left_out| left_out.why.clone())
}

/// What the answer begins with: a paragraph for the user, and an event for programs.
pub(super) fn events(unsent: &[LeftOut]) -> Vec<Event> {
    if unsent.is_empty() {
        return Vec::new();
    }
    let mut said = Object::default();
    said.set_text("text", &paragraph(unsent));
    said.set_text("notice", EVENT);
    let items = unsent.iter().map(|left_out| {
        let mut item = Object::default();
        item.set_text("what", &left_out.what);
        item.set_text("why", &left_out.why);
        item.to_json()
    });
    let mut data = Object::default();
    data.set_text("name", EVENT);
    data.set("data", format!("[{}]", items.collect::<Vec<_>>().join(",")));
    let events = [("interim_assistant", said), ("data", data)];
    events.iter().filter_map(|(name, payload)| Event::new(name, &payload.to_json()).ok()).collect()
}

fn paragraph(unsent: &[LeftOut]) -> String {
    let named = unsent.iter().take(UNSENT_NAMED_MAX).map(|left_out| format!("{} ({})", left_out.what, left_out.why));
    let more = unsent.len().saturating_sub(UNSENT_NAMED_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    format!("[Not sent to the model: {}]", named.chain(more).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RunId, SessionId};

    const PNG: &str =
        r#"{"type":"file","mediaType":"image/png","filename":"a.png","url":"data:image/png;base64,YWJj"}"#;
    const PNG_PART: &str = r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,YWJj"}}"#;

    fn prompt(attachments: &str, parts: &[&str], left_out: &[(&str, &str)]) -> Prompt {
        let attachments_of_last = parts.iter().map(|part| (*part).into()).collect();
        let user = ContextMessage::User { text: "hi".to_owned(), attachments: attachments_of_last };
        let left_out = left_out.iter().map(|(what, why)| LeftOut { what: what.to_string(), why: why.to_string() });
        Prompt {
            session: SessionId::parse("s").unwrap(),
            run: RunId::parse("r").unwrap(),
            message: "hi".to_owned(),
            attachments: attachments.to_owned(),
            context: Context { messages: vec![user], left_out: left_out.collect() },
            agent_session: None,
            attempt: 1,
        }
    }

    fn said(prompt: &Prompt, takes_attachments: bool) -> Vec<(String, String)> {
        unsent(prompt, takes_attachments).into_iter().map(|left_out| (left_out.what, left_out.why)).collect()
    }

    #[test]
    fn what_is_sent_is_not_mentioned() {
        assert!(unsent(&prompt(&format!("[{PNG}]"), &[PNG_PART], &[]), true).is_empty());
        assert!(unsent(&prompt(&format!("[{PNG_PART}, null]"), &[PNG_PART], &[]), true).is_empty());
        assert!(
            unsent(&prompt("[]", &[], &[("old.tiff", "it was too large")]), true).is_empty(),
            "of an earlier message"
        );
        assert!(unsent(&prompt("nonsense", &[], &[]), true).is_empty());
        let other_type = PNG_PART.replace("image/png", "image/x-png");
        assert!(unsent(&prompt(&format!("[{PNG}]"), &[&other_type], &[]), true).is_empty());
    }

    #[test]
    fn what_is_left_out_is_mentioned_with_its_reason() {
        let list = format!(
            r#"[{PNG}, {{"type":"file","mediaType":"application/pdf","filename":"b\n.pdf","url":"https://x/b.pdf"}},
                {{"type":"file","filename":"c.pdf","url":"lastword:sha256-0"}}, "notes.txt", {{"x":1}}]"#
        );
        let said = said(&prompt(&list, &[], &[("a.png", "earlier"), ("a.png", "it has too many pixels")]), true);
        let why = |nth: usize| said[nth].1.as_str();
        assert_eq!(
            said.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>(),
            ["a.png", "b .pdf", "c.pdf", "notes.txt", "an attachment"]
        );
        assert_eq!(why(0), "it has too many pixels");
        assert!(why(1).contains("elsewhere") && why(2).contains("not stored") && why(3).contains("form"), "{said:?}");
    }

    #[test]
    fn a_model_of_text_only_is_sent_none() {
        let expected = [("a.png".to_owned(), "the model takes text only".to_owned())];
        assert_eq!(said(&prompt(&format!("[{PNG}]"), &[PNG_PART], &[]), false), expected);
    }

    #[test]
    fn the_answer_says_it_to_people_and_to_programs() {
        let left_out = |nth: usize| LeftOut { what: format!("{nth}.png"), why: "it is \"too\" large".to_owned() };
        let events = events(&[left_out(1), left_out(2)]);
        let told: Vec<_> = events.iter().map(|event| (event.name(), event.payload())).collect();
        let text = r#"[Not sent to the model: 1.png (it is \"too\" large); 2.png (it is \"too\" large)]"#;
        let data = r#"[{"what":"1.png","why":"it is \"too\" large"},{"what":"2.png","why":"it is \"too\" large"}]"#;
        let expected = [
            ("interim_assistant", format!(r#"{{"text":"{text}","notice":"attachments-not-sent"}}"#)),
            ("data", format!(r#"{{"name":"attachments-not-sent","data":{data}}}"#)),
        ];
        assert_eq!(told, expected.each_ref().map(|(name, payload)| (*name, payload.as_str())));
        assert!(super::events(&[]).is_empty());
    }

    #[test]
    fn the_paragraph_stays_short() {
        let many: Vec<_> =
            (0..1_000).map(|nth| LeftOut { what: format!("{nth}.png"), why: "it is too large".to_owned() }).collect();
        let paragraph = paragraph(&many);
        assert!(paragraph.len() < 1_000 && paragraph.ends_with("; and 992 more]"), "{paragraph}");
    }
}
