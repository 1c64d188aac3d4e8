//! What a client of the AI SDK requests when it posts to the chat: whose conversation, the user's message and files, and
//! whether it is new. Reads the body of `DefaultChatTransport` and the short form with one `message`. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::body::{ChatBody, ChatField};
use super::files::{BadFile, FilePart};
use crate::limits::{MESSAGE_BYTES_MAX, PARTS_MAX};
use crate::model::{Fields, ONLY_ATTACHMENTS, shows_nothing, text_of};

/// A request for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct ChatRequest {
    /// The id of the conversation, as the client gave it: not yet known to be one that a session can have.
    pub(in crate::http) session: String,
    pub(in crate::http) trigger: Trigger,
    /// The message that is edited, or whose answer is wanted again.
    pub(in crate::http) message_id: Option<String>,
    /// The last message. Only a request for another answer may come without.
    pub(in crate::http) message: Option<UserMessage>,
    /// The runner that is to answer, if the client names one.
    pub(in crate::http) runner: Option<String>,
}

/// What the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Trigger {
    /// An answer to a message.
    Submit,
    /// Another answer to a message that was sent before.
    Regenerate,
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct UserMessage {
    /// The client's id of it.
    pub(in crate::http) id: Option<String>,
    /// Its words, never blank.
    pub(in crate::http) text: String,
    pub(in crate::http) files: Vec<FilePart>,
    /// The client's metadata of it, a JSON object.
    pub(in crate::http) metadata: Option<String>,
}

/// A body that asks for nothing that could be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum InvalidChat {
    #[error("the body has no `id` that is a text: send the id of the chat")]
    NoId,
    #[error("the body has neither `messages`, a list that is not empty, nor a `message`")]
    NoMessage,
    #[error("the last message is not an object with `parts`")]
    BadMessage,
    #[error("the last message is of role {role:?}: only a message of the user can be answered")]
    NotTheUsers { role: String },
    #[error("part {nth} of the last message is not an object with a `type`")]
    BadPart { nth: usize },
    #[error("part {nth} of the last message is a text without `text`")]
    BadText { nth: usize },
    #[error("part {nth} of the last message {why}")]
    BadFile { nth: usize, why: BadFile },
    #[error("the last message has more than {PARTS_MAX} parts")]
    TooManyParts,
    #[error("the last message is blank: say something, or attach a file")]
    Blank,
    #[error("the last message has {bytes} bytes of text and at most {MESSAGE_BYTES_MAX} are taken")]
    TooLong { bytes: usize },
    #[error("`metadata` of the last message is not a JSON object")]
    BadMetadata,
    #[error("`trigger` is neither \"submit-message\" nor \"regenerate-message\"")]
    BadTrigger,
    #[error("`{key}` is not a text")]
    NoText { key: &'static str },
}

impl InvalidChat {
    /// Whether the request is too large, and not wrong.
    pub(in crate::http) fn is_too_large(&self) -> bool {
        matches!(self, InvalidChat::TooManyParts | InvalidChat::TooLong { .. })
    }
}

impl ChatRequest {
    /// Reads a body. Of the messages only the last one counts: the transcript has the others.
    pub(in crate::http) fn read(body: &ChatBody) -> Result<Self, InvalidChat> {
        let session = body.get(ChatField::Id).and_then(text_of).filter(|id| !id.is_empty()).ok_or(InvalidChat::NoId)?;
        let trigger = trigger(body)?;
        let message = match last_message(body) {
            Some(message) => Some(UserMessage::parse(message, &session)?),
            None if trigger == Trigger::Regenerate => None,
            None => return Err(InvalidChat::NoMessage),
        };
        Ok(ChatRequest {
            session: session.into_owned(),
            trigger,
            message_id: optional_text(body.get(ChatField::MessageId), "messageId")?,
            message,
            runner: optional_text(body.get(ChatField::Runner), "runner")?,
        })
    }
}

fn last_message(body: &ChatBody) -> Option<&str> {
    let given = |field| body.get(field).filter(|value| *value != "null");
    match given(ChatField::Messages) {
        Some(last) => Some(last).filter(|last| *last != "[]"),
        None => given(ChatField::Message),
    }
}

fn trigger(body: &ChatBody) -> Result<Trigger, InvalidChat> {
    match body.get(ChatField::Trigger) {
        None | Some("null") => Ok(Trigger::Submit),
        Some(trigger) => match text_of(trigger).as_deref() {
            Some("submit-message") => Ok(Trigger::Submit),
            Some("regenerate-message") => Ok(Trigger::Regenerate),
            _ => Err(InvalidChat::BadTrigger),
        },
    }
}

/// A text that may be missing. An empty one says as little.
fn optional_text(value: Option<&str>, key: &'static str) -> Result<Option<String>, InvalidChat> {
    match value {
        None | Some("null") => Ok(None),
        Some(value) => {
            let text = text_of(value).ok_or(InvalidChat::NoText { key })?;
            Ok(Some(text.into_owned()).filter(|text| !text.is_empty()))
        }
    }
}

impl UserMessage {
    /// A message of the packages, or as people write it by hand: a text, or an object with a `content`.
    fn parse(message: &str, session: &str) -> Result<Self, InvalidChat> {
        if let Some(text) = text_of(message) {
            return Parts { texts: vec![text], ..Parts::default() }.into_message(None, None);
        }
        let fields = Fields::parse(message).ok_or(InvalidChat::BadMessage)?;
        check_role(fields.get("role"))?;
        let parts = match (fields.get("parts"), fields.get("content").and_then(text_of)) {
            (Some(parts), _) => Parts::parse(parts, session)?,
            (None, Some(content)) => Parts { texts: vec![content], ..Parts::default() },
            (None, None) => return Err(InvalidChat::BadMessage),
        };
        parts.into_message(optional_text(fields.get("id"), "id")?, metadata(fields.get("metadata"))?)
    }
}

fn metadata(value: Option<&str>) -> Result<Option<String>, InvalidChat> {
    match value {
        None | Some("null") => Ok(None),
        Some(value) if value.starts_with('{') => Ok(Some(super::files::on_one_line(value))),
        Some(_) => Err(InvalidChat::BadMetadata),
    }
}

/// What a message is made of.
#[derive(Debug, Default)]
struct Parts<'a> {
    texts: Vec<Cow<'a, str>>,
    files: Vec<FilePart>,
}

impl<'a> Parts<'a> {
    fn parse(parts: &'a str, session: &str) -> Result<Self, InvalidChat> {
        let list = serde_json::from_str::<Vec<&RawValue>>(parts).map_err(|_| InvalidChat::BadMessage)?;
        if list.len() > PARTS_MAX {
            return Err(InvalidChat::TooManyParts);
        }
        let mut parts = Parts::default();
        for (part, nth) in list.into_iter().zip(1..) {
            parts.add(part.get(), nth, session)?;
        }
        Ok(parts)
    }

    /// Parts of other types (data, steps, sources) are the client's own business.
    fn add(&mut self, part: &'a str, nth: usize, session: &str) -> Result<(), InvalidChat> {
        let fields = Fields::parse(part).ok_or(InvalidChat::BadPart { nth })?;
        let text = |key| fields.get(key).and_then(text_of);
        match text("type").ok_or(InvalidChat::BadPart { nth })?.as_ref() {
            "text" => self.texts.push(text("text").ok_or(InvalidChat::BadText { nth })?),
            "file" => {
                let file = FilePart::parse(part, session);
                self.files.push(file.map_err(|why| InvalidChat::BadFile { nth, why })?);
            }
            _ => {}
        }
        Ok(())
    }

    fn into_message(self, id: Option<String>, metadata: Option<String>) -> Result<UserMessage, InvalidChat> {
        Ok(UserMessage { id, text: self.words()?, files: self.files, metadata })
    }

    /// The texts, a paragraph each.
    fn words(&self) -> Result<String, InvalidChat> {
        let texts: Vec<&str> = self.texts.iter().map(|text| &**text).filter(|text| !shows_nothing(text)).collect();
        let words = texts.join("\n\n");
        match (words.is_empty(), self.files.is_empty()) {
            (true, true) => Err(InvalidChat::Blank),
            (true, false) => Ok(ONLY_ATTACHMENTS.to_owned()),
            _ if words.len() > MESSAGE_BYTES_MAX => Err(InvalidChat::TooLong { bytes: words.len() }),
            _ => Ok(words),
        }
    }
}

/// A message that names no role is the user's.
fn check_role(role: Option<&str>) -> Result<(), InvalidChat> {
    const SHOWN_CHARS_MAX: usize = 40;
    match role.map(|role| text_of(role).unwrap_or(Cow::Borrowed(role))) {
        None => Ok(()),
        Some(role) if role == "user" => Ok(()),
        Some(role) => Err(InvalidChat::NotTheUsers { role: role.chars().take(SHOWN_CHARS_MAX).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::chat::files::FileAt;

    const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

    fn read(body: &str) -> Result<ChatRequest, InvalidChat> {
        ChatRequest::read(&ChatBody::parse(body, BODY_BYTES_MAX).expect("it is a JSON object"))
    }

    fn parsed(body: &str) -> ChatRequest {
        read(body).unwrap_or_else(|why| panic!("{why}: {body}"))
    }

    fn words(body: &str) -> String {
        parsed(body).message.unwrap().text
    }

    /// What is made of the message, given its parts.
    #[track_caller]
    fn check(parts: &str, expected: Result<(&str, usize), InvalidChat>) {
        let body = format!(r#"{{"id":"c","messages":[{{"role":"user","id":"m","parts":{parts}}}]}}"#);
        let given = read(&body).map(|request| request.message.map(|message| (message.text, message.files.len())));
        assert_eq!(given, expected.map(|(text, files)| Some((text.to_owned(), files))), "{parts}");
    }

    #[test]
    fn the_transport_of_the_packages_is_understood() {
        let request = parsed(
            r#"{"runner":"agent","id":"pG3xKq","messages":[
                {"id":"1","role":"user","parts":[{"type":"text","text":"Hi"}]},
                {"id":"2","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"Ho","state":"done"}]},
                {"metadata":{"x":1},"role":"user","parts":[{"type":"text","text":"Where?"}],"id":"3"}
            ],"trigger":"submit-message","messageId":"3"}"#,
        );
        let message = UserMessage {
            id: Some("3".to_owned()),
            text: "Where?".to_owned(),
            files: Vec::new(),
            metadata: Some(r#"{"x":1}"#.to_owned()),
        };
        let expected = ChatRequest {
            session: "pG3xKq".to_owned(),
            trigger: Trigger::Submit,
            message_id: Some("3".to_owned()),
            message: Some(message),
            runner: Some("agent".to_owned()),
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn the_short_form_and_messages_written_by_hand_are_understood() {
        for message in [
            r#"{"id":"m","role":"user","parts":[{"type":"text","text":"Hi"}]}"#,
            r#"{"parts":[{"type":"text","text":"Hi"}]}"#,
            r#"{"role":"user","content":"Hi"}"#,
            r#""Hi""#,
        ] {
            assert_eq!(words(&format!(r#"{{"id":"c","message":{message}}}"#)), "Hi");
            assert_eq!(words(&format!(r#"{{"id":"c","messages":[{message}],"message":null}}"#)), "Hi");
        }
    }

    #[test]
    fn another_answer_can_be_requested_with_or_without_the_message() {
        let body = |more: &str| format!(r#"{{"id":"c","message":"Hi"{more}}}"#);
        let again = parsed(&body(r#","trigger":"regenerate-message","messageId":"2""#));
        assert_eq!((again.trigger, again.message_id.as_deref()), (Trigger::Regenerate, Some("2")));
        let new = parsed(&body(r#","trigger":null,"messageId":null,"runner":"""#));
        assert_eq!((new.trigger, new.message_id, new.runner), (Trigger::Submit, None, None));
        for none in [
            r#"{"id":"c","trigger":"regenerate-message"}"#,
            r#"{"id":"c","trigger":"regenerate-message","messages":[]}"#,
        ] {
            assert_eq!(parsed(none).message, None);
        }
        for (more, why) in [
            (r#","trigger":"resume-stream""#, InvalidChat::BadTrigger),
            (r#","trigger":1"#, InvalidChat::BadTrigger),
            (r#","runner":["x"]"#, InvalidChat::NoText { key: "runner" }),
            (r#","messageId":7"#, InvalidChat::NoText { key: "messageId" }),
        ] {
            assert_eq!(read(&body(more)), Err(why));
        }
    }

    #[test]
    fn texts_are_joined_and_files_are_counted() {
        let file = r#"{"type":"file","mediaType":"image/png","filename":"a.png","url":"data:image/png;base64,AA=="}"#;
        check(
            r#"[{"type":"text","text":"a "},{"type":"text","text":" "},{"type":"text","text":"b"}]"#,
            Ok(("a \n\nb", 0)),
        );
        check(&format!(r#"[{file},{{"type":"text","text":"Look"}},{{"type":"data-x"}}]"#), Ok(("Look", 1)));
        check(&format!("[{file}]"), Ok(("(attachments)", 1)));
        check(r#"[{"type":"text","text":"half \ud83d"}]"#, Ok(("half \u{fffd}", 0)));
        let body = format!(r#"{{"id":"c","message":{{"parts":[{file}]}}}}"#);
        let message = parsed(&body).message.unwrap();
        assert!(matches!(&message.files[0].at, FileAt::Inline(url) if url.bytes == [0]));
    }

    #[test]
    fn what_is_malformed_is_named() {
        check("7", Err(InvalidChat::BadMessage));
        check("[]", Err(InvalidChat::Blank));
        check(r#"[{"type":"text","text":" \n"}]"#, Err(InvalidChat::Blank));
        check(r#"[{"type":"text","text":" \u200b"},{"type":"text","text":"\ufeff"}]"#, Err(InvalidChat::Blank));
        check(r#"[{"type":"step-start"}, 7]"#, Err(InvalidChat::BadPart { nth: 2 }));
        check("[{}]", Err(InvalidChat::BadPart { nth: 1 }));
        check(r#"[{"type":"text","text":7}]"#, Err(InvalidChat::BadText { nth: 1 }));
        let no_url = InvalidChat::BadFile { nth: 1, why: BadFile::NoUrl };
        check(r#"[{"type":"file","mediaType":"image/png"}]"#, Err(no_url.clone()));
        check(r#"[{"type":"file","url":"data:,"}]"#, Err(no_url));
        let other = r#"[{"type":"file","mediaType":"a/b","url":"/v1/sessions/d/attachments/x"}]"#;
        check(other, Err(InvalidChat::BadFile { nth: 1, why: BadFile::OtherSession }));
        check(&format!("[{}0]", "0,".repeat(PARTS_MAX)), Err(InvalidChat::TooManyParts));
        let bytes = MESSAGE_BYTES_MAX + 1;
        check(&format!(r#"[{{"type":"text","text":"{}"}}]"#, "x".repeat(bytes)), Err(InvalidChat::TooLong { bytes }));
        for (body, why) in [
            (r#"{"messages":[]}"#, InvalidChat::NoId),
            (r#"{"id":7,"message":"Hi"}"#, InvalidChat::NoId),
            (r#"{"id":"c"}"#, InvalidChat::NoMessage),
            (r#"{"id":"c","messages":[]}"#, InvalidChat::NoMessage),
            (r#"{"id":"c","message":7}"#, InvalidChat::BadMessage),
            (r#"{"id":"c","message":{"role":"user"}}"#, InvalidChat::BadMessage),
            (r#"{"id":"c","message":{"content":"Hi","metadata":7}}"#, InvalidChat::BadMetadata),
            (r#"{"id":"c","message":{"content":"Hi","id":7}}"#, InvalidChat::NoText { key: "id" }),
            (
                r#"{"id":"c","message":{"role":"assistant","parts":[]}}"#,
                InvalidChat::NotTheUsers { role: "assistant".to_owned() },
            ),
            (r#"{"id":"c","message":{"role":1,"parts":[]}}"#, InvalidChat::NotTheUsers { role: "1".to_owned() }),
        ] {
            assert_eq!(read(body), Err(why), "{body}");
        }
    }

    proptest! {
        #![proptest_config(crate::seeds::config("chat_request"))]

        #[test]
        fn no_body_is_too_odd(body in r#"(\{|\[|\}|\]|,|:|"(id|messages|message|role|user|parts|type|text|file|url)"|7|null|.){0,40}"#) {
            for body in [
                body.clone(),
                format!(r#"{{"id":"c","message":{body}}}"#),
                format!(r#"{{"id":"c","messages":[{{"parts":[{body}]}}]}}"#),
            ] {
                let _ = ChatBody::parse(&body, BODY_BYTES_MAX).map(|body| ChatRequest::read(&body));
            }
        }
    }
}
