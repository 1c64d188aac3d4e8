//! What a client of the AI SDK asks when it posts to the chat: whose conversation, the user's last words and files, and
//! whether they are new. Reads the body of `DefaultChatTransport` and the short form with one `message`. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::model::{Fields, text_of, trim};

/// Parts of one message. The packages make one of each file and one of the words.
const PARTS_MAX: usize = 1024;

/// What a message says that is nothing but files: a turn has words.
pub(in crate::http) const ONLY_FILES: &str = "(attachments)";

/// A request for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatRequest {
    /// The id of the conversation, as the client gave it: not yet known to be one that a session can have.
    pub(crate) session: String,
    /// The user's last words, never blank.
    pub(crate) message: String,
    /// The files that came with them, as the client describes them: a JSON list on one line, `[]` for none.
    pub(crate) attachments: String,
    /// Whether the client wants another answer to words that it sent before.
    pub(crate) is_regenerate: bool,
    /// How many messages of the user the client has, the last one included, if it sent all.
    pub(crate) questions: Option<usize>,
    /// Who is to answer, if the client says.
    pub(crate) runner: Option<String>,
}

/// A body that asks for nothing that could be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidChat {
    #[error("the body is not a JSON object {{\"id\":..,\"messages\":[..]}}")]
    NoObject,
    #[error("the body has no `id` that is a text: send the id of the chat")]
    NoId,
    #[error("the body has neither `messages`, a list that is not empty, nor a `message`")]
    NoMessage,
    #[error("the last message is no object with `parts`")]
    BadMessage,
    #[error("the last message is of role {role:?}: only a message of the user can be answered")]
    NotTheUsers { role: String },
    #[error("part {nth} of the last message is no object with a `type`")]
    BadPart { nth: usize },
    #[error("part {nth} of the last message is a text without `text`")]
    BadText { nth: usize },
    #[error("part {nth} of the last message is a file without `url` and `mediaType`")]
    BadFile { nth: usize },
    #[error("the last message has over {PARTS_MAX} parts")]
    TooManyParts,
    #[error("the last message has neither text nor files")]
    Blank,
    #[error("the last message has {bytes} bytes of text and at most {MESSAGE_BYTES_MAX} are taken")]
    TooLong { bytes: usize },
    #[error("`trigger` is neither \"submit-message\" nor \"regenerate-message\"")]
    BadTrigger,
    #[error("`{key}` is no text")]
    NoText { key: &'static str },
}

impl InvalidChat {
    /// Whether the request is too large, and not wrong.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, InvalidChat::TooManyParts | InvalidChat::TooLong { .. })
    }
}

impl ChatRequest {
    /// Reads a body. Of the messages only the last one counts: the transcript has the others.
    pub(crate) fn parse(body: &str) -> Result<Self, InvalidChat> {
        let body = Fields::parse(body).ok_or(InvalidChat::NoObject)?;
        let session = body.get("id").and_then(text_of).filter(|id| !id.is_empty()).ok_or(InvalidChat::NoId)?;
        let said = Said::parse(last_message(&body)?)?;
        Ok(ChatRequest {
            session: session.into_owned(),
            is_regenerate: is_regenerate(&body)?,
            questions: questions(&body),
            runner: optional_text(&body, "runner")?,
            attachments: said.files(),
            message: said.words()?,
        })
    }
}

fn last_message<'a>(body: &Fields<'a>) -> Result<&'a str, InvalidChat> {
    let given = |key| body.get(key).filter(|value| *value != "null");
    if let Some(list) = given("messages") {
        return list_of(list).and_then(|list| list.last().copied()).ok_or(InvalidChat::NoMessage);
    }
    given("message").ok_or(InvalidChat::NoMessage)
}

/// How many messages of the list are the user's. A list of one is likely to be the last of more.
fn questions(body: &Fields<'_>) -> Option<usize> {
    let list = list_of(body.get("messages").filter(|value| *value != "null")?).filter(|list| list.len() > 1)?;
    let is_users = |message: &&&str| {
        let fields = Fields::parse(message);
        fields.and_then(|fields| fields.get("role").and_then(text_of)).as_deref() == Some("user")
    };
    Some(list.iter().filter(is_users).count())
}

fn list_of(json: &str) -> Option<Vec<&str>> {
    let list = serde_json::from_str::<Vec<&RawValue>>(json).ok()?;
    Some(list.into_iter().map(RawValue::get).collect())
}

fn is_regenerate(body: &Fields<'_>) -> Result<bool, InvalidChat> {
    match body.get("trigger") {
        None | Some("null") => Ok(false),
        Some(trigger) => match text_of(trigger).as_deref() {
            Some("submit-message") => Ok(false),
            Some("regenerate-message") => Ok(true),
            _ => Err(InvalidChat::BadTrigger),
        },
    }
}

/// A text that may be missing. An empty one says as little.
fn optional_text(body: &Fields<'_>, key: &'static str) -> Result<Option<String>, InvalidChat> {
    match body.get(key) {
        None | Some("null") => Ok(None),
        Some(value) => {
            let text = text_of(value).ok_or(InvalidChat::NoText { key })?;
            Ok(Some(text.into_owned()).filter(|text| !text.is_empty()))
        }
    }
}

/// What the user said.
#[derive(Debug, Default)]
struct Said<'a> {
    texts: Vec<Cow<'a, str>>,
    files: Vec<String>,
}

impl<'a> Said<'a> {
    /// A message of the packages, or as people write it by hand: a text, or an object with a `content`.
    fn parse(message: &'a str) -> Result<Self, InvalidChat> {
        if let Some(text) = text_of(message) {
            return Ok(Self::of_text(text));
        }
        let fields = Fields::parse(message).ok_or(InvalidChat::BadMessage)?;
        check_role(fields.get("role"))?;
        match (fields.get("parts"), fields.get("content").and_then(text_of)) {
            (Some(parts), _) => Self::of_parts(&list_of(parts).ok_or(InvalidChat::BadMessage)?),
            (None, Some(content)) => Ok(Self::of_text(content)),
            (None, None) => Err(InvalidChat::BadMessage),
        }
    }

    fn of_text(text: Cow<'a, str>) -> Self {
        Said { texts: vec![text], files: Vec::new() }
    }

    fn of_parts(parts: &[&'a str]) -> Result<Self, InvalidChat> {
        if parts.len() > PARTS_MAX {
            return Err(InvalidChat::TooManyParts);
        }
        let mut said = Said::default();
        for (part, nth) in parts.iter().zip(1..) {
            said.add(part, nth)?;
        }
        Ok(said)
    }

    /// Parts of other types (data, steps, sources) are the client's own business.
    fn add(&mut self, part: &'a str, nth: usize) -> Result<(), InvalidChat> {
        let fields = Fields::parse(part).ok_or(InvalidChat::BadPart { nth })?;
        let text = |key| fields.get(key).and_then(text_of);
        match text("type").ok_or(InvalidChat::BadPart { nth })?.as_ref() {
            "text" => self.texts.push(text("text").ok_or(InvalidChat::BadText { nth })?),
            "file" if text("url").is_none() || text("mediaType").is_none() => return Err(InvalidChat::BadFile { nth }),
            "file" => self.files.push(on_one_line(part)),
            _ => {}
        }
        Ok(())
    }

    fn files(&self) -> String {
        format!("[{}]", self.files.join(","))
    }

    /// The texts, a paragraph each.
    fn words(&self) -> Result<String, InvalidChat> {
        let texts: Vec<&str> = self.texts.iter().map(|text| &**text).filter(|text| !trim(text).is_empty()).collect();
        let words = texts.join("\n\n");
        match (words.is_empty(), self.files.is_empty()) {
            (true, true) => Err(InvalidChat::Blank),
            (true, false) => Ok(ONLY_FILES.to_owned()),
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

/// In valid JSON a control character stands only between tokens.
fn on_one_line(json: &str) -> String {
    json.chars().filter(|c| *c >= ' ').collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(body: &str) -> ChatRequest {
        ChatRequest::parse(body).unwrap_or_else(|why| panic!("{why}: {body}"))
    }

    /// What is made of the message, given its parts.
    #[track_caller]
    fn check(parts: &str, expected: Result<(&str, &str), InvalidChat>) {
        let body = format!(r#"{{"id":"c","messages":[{{"role":"user","id":"m","parts":{parts}}}]}}"#);
        let given = ChatRequest::parse(&body).map(|request| (request.message, request.attachments));
        assert_eq!(given, expected.map(|(text, files)| (text.to_owned(), files.to_owned())), "{parts}");
    }

    #[test]
    fn the_transport_of_the_packages_is_understood() {
        let request = parsed(
            r#"{"runner":"agent","id":"pG3xKq","messages":[
                {"id":"1","role":"user","parts":[{"type":"text","text":"Hi"}]},
                {"id":"2","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"Ho","state":"done"}]},
                {"metadata":{"x":1},"role":"user","parts":[{"type":"text","text":"Where?"}],"id":"3"}
            ],"trigger":"submit-message"}"#,
        );
        let expected = ChatRequest {
            session: "pG3xKq".to_owned(),
            message: "Where?".to_owned(),
            attachments: "[]".to_owned(),
            is_regenerate: false,
            questions: Some(2),
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
            assert_eq!(parsed(&format!(r#"{{"id":"c","message":{message}}}"#)).message, "Hi");
            assert_eq!(parsed(&format!(r#"{{"id":"c","messages":[{message}],"message":null}}"#)).message, "Hi");
        }
    }

    #[test]
    fn an_answer_can_be_asked_for_again() {
        let body = |more: &str| format!(r#"{{"id":"c","message":"Hi"{more}}}"#);
        let again = parsed(&body(r#","trigger":"regenerate-message","messageId":"2""#));
        assert_eq!((again.is_regenerate, again.questions), (true, None));
        let new = parsed(&body(r#","trigger":null,"messageId":null,"runner":"""#));
        assert_eq!((new.is_regenerate, new.questions, new.runner), (false, None, None));
        for (more, why) in [
            (r#","trigger":"resume-stream""#, InvalidChat::BadTrigger),
            (r#","trigger":1"#, InvalidChat::BadTrigger),
            (r#","runner":["x"]"#, InvalidChat::NoText { key: "runner" }),
        ] {
            assert_eq!(ChatRequest::parse(&body(more)), Err(why));
        }
    }

    #[test]
    fn texts_are_joined_and_files_kept_as_they_are() {
        let file = r#"{"type":"file","mediaType":"image/png","filename":"a.png","url":"data:image/png;base64,AA=="}"#;
        let list = format!("[{file}]");
        check(
            r#"[{"type":"text","text":"a "},{"type":"text","text":" "},{"type":"text","text":"b"}]"#,
            Ok(("a \n\nb", "[]")),
        );
        check(&format!(r#"[{file},{{"type":"text","text":"Look"}},{{"type":"data-x"}}]"#), Ok(("Look", &list)));
        check(&list, Ok(("(attachments)", &list)));
        check(r#"[{"type":"text","text":"half \ud83d"}]"#, Ok(("half \u{fffd}", "[]")));
        let spread = "[{\n\"type\":\"file\",\"mediaType\":\"a\",\"url\":\"b\",\"x\":[\n1]}]";
        check(spread, Ok(("(attachments)", r#"[{"type":"file","mediaType":"a","url":"b","x":[1]}]"#)));
    }

    #[test]
    fn what_is_malformed_is_named() {
        check("7", Err(InvalidChat::BadMessage));
        check("[]", Err(InvalidChat::Blank));
        check(r#"[{"type":"text","text":" \n"}]"#, Err(InvalidChat::Blank));
        check(r#"[{"type":"step-start"}, 7]"#, Err(InvalidChat::BadPart { nth: 2 }));
        check("[{}]", Err(InvalidChat::BadPart { nth: 1 }));
        check(r#"[{"type":"text","text":7}]"#, Err(InvalidChat::BadText { nth: 1 }));
        check(r#"[{"type":"file","mediaType":"image/png"}]"#, Err(InvalidChat::BadFile { nth: 1 }));
        check(&format!("[{}0]", "0,".repeat(PARTS_MAX)), Err(InvalidChat::TooManyParts));
        let bytes = MESSAGE_BYTES_MAX + 1;
        check(&format!(r#"[{{"type":"text","text":"{}"}}]"#, "x".repeat(bytes)), Err(InvalidChat::TooLong { bytes }));
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        check(&deep, Err(InvalidChat::BadPart { nth: 1 }));
        for (body, why) in [
            ("", InvalidChat::NoObject),
            ("[]", InvalidChat::NoObject),
            (r#"{"id":"c"} x"#, InvalidChat::NoObject),
            (r#"{"messages":[]}"#, InvalidChat::NoId),
            (r#"{"id":7,"message":"Hi"}"#, InvalidChat::NoId),
            (r#"{"id":"c"}"#, InvalidChat::NoMessage),
            (r#"{"id":"c","messages":[]}"#, InvalidChat::NoMessage),
            (r#"{"id":"c","messages":"Hi"}"#, InvalidChat::NoMessage),
            (r#"{"id":"c","message":7}"#, InvalidChat::BadMessage),
            (r#"{"id":"c","message":{"role":"user"}}"#, InvalidChat::BadMessage),
            (
                r#"{"id":"c","message":{"role":"assistant","parts":[]}}"#,
                InvalidChat::NotTheUsers { role: "assistant".to_owned() },
            ),
            (r#"{"id":"c","message":{"role":1,"parts":[]}}"#, InvalidChat::NotTheUsers { role: "1".to_owned() }),
        ] {
            assert_eq!(ChatRequest::parse(body), Err(why), "{body}");
        }
    }

    proptest! {
        #![proptest_config(crate::seeds::config("chat_request"))]

        #[test]
        fn no_body_is_too_odd(body in r#"(\{|\[|\}|\]|,|:|"(id|messages|message|role|user|parts|type|text|file)"|7|null|.){0,40}"#) {
            let _ = ChatRequest::parse(&body);
            let _ = ChatRequest::parse(&format!(r#"{{"id":"c","message":{body}}}"#));
            let _ = ChatRequest::parse(&format!(r#"{{"id":"c","messages":[{{"parts":[{body}]}}]}}"#));
        }
    }
}
