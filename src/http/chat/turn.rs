//! Whether a chat request begins a turn, replaces one, or repeats one that was begun before. Pure.

use super::files::are_same;
use super::request::{ChatRequest, Trigger, UserMessage};
use crate::model::{RunId, trim};
use crate::store::{AskedBefore, Replaces};

/// What is to be done about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum ChatTurn {
    /// The turn was begun before: its answer is streamed.
    Repeated(RunId),
    /// A turn is begun, in the place of another one perhaps.
    Begun { replaces: Option<Replaces>, message_id: Option<String> },
}

/// Why nothing can be done about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum RefusedTurn {
    #[error(
        "there is no message {id:?} of the user in this chat that could be edited: load its messages again, or send this \
         one without `messageId`"
    )]
    UnknownMessage { id: String },
    #[error(
        "message {id:?} was sent before with other words or files: send an edit with `messageId`, or a new message with \
         an id of its own"
    )]
    Conflict { id: String },
    #[error("message {id:?} was sent before and the run that answered it is not there: send it with an id of its own")]
    NoRun { id: String },
}

/// What the session knows.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct Known {
    /// The message that the request names.
    pub(in crate::http) named: Option<AskedBefore>,
    /// The words of the last question.
    pub(in crate::http) last_question: Option<String>,
}

impl ChatRequest {
    /// The id by which the request names a message that the session may know.
    pub(in crate::http) fn named(&self) -> Option<&str> {
        self.message_id.as_deref().or_else(|| self.message.as_ref()?.id.as_deref())
    }

    /// Decides, given what the session knows and the message's files as a row keeps them.
    pub(in crate::http) fn turn(&self, known: &Known, attachments: &str) -> Result<ChatTurn, RefusedTurn> {
        let message = Sent { message: self.message.as_ref(), attachments };
        match (self.trigger, &self.message_id) {
            (Trigger::Submit, Some(id)) => message.edited(id, known.named.as_ref()),
            (Trigger::Submit, None) => message.submitted(known.named.as_ref()),
            (Trigger::Regenerate, Some(id)) => Ok(replacing(Replaces::Answer(id.clone()), None)),
            (Trigger::Regenerate, None) => Ok(message.asked_again(known)),
        }
    }
}

fn replacing(replaces: Replaces, message_id: Option<String>) -> ChatTurn {
    ChatTurn::Begun { replaces: Some(replaces), message_id }
}

/// The message of a request.
struct Sent<'a> {
    message: Option<&'a UserMessage>,
    attachments: &'a str,
}

impl Sent<'_> {
    fn id(&self) -> Option<String> {
        self.message.and_then(|message| message.id.clone())
    }

    fn is(&self, before: &AskedBefore) -> bool {
        let words = self.message.map(|message| trim(&message.text));
        words == Some(trim(&before.message)) && are_same(self.attachments, &before.attachments)
    }

    fn edited(&self, id: &str, named: Option<&AskedBefore>) -> Result<ChatTurn, RefusedTurn> {
        match named {
            None => Err(RefusedTurn::UnknownMessage { id: shown(id) }),
            Some(AskedBefore { run: Some(run), is_pending: true, .. }) if named.is_some_and(|named| self.is(named)) => {
                Ok(ChatTurn::Repeated(run.clone()))
            }
            Some(_) => Ok(replacing(Replaces::Message(id.to_owned()), Some(id.to_owned()))),
        }
    }

    fn submitted(&self, named: Option<&AskedBefore>) -> Result<ChatTurn, RefusedTurn> {
        let id = || shown(&self.id().unwrap_or_default());
        match named {
            None => Ok(ChatTurn::Begun { replaces: None, message_id: self.id() }),
            Some(before) if !self.is(before) => Err(RefusedTurn::Conflict { id: id() }),
            Some(AskedBefore { run: Some(run), .. }) => Ok(ChatTurn::Repeated(run.clone())),
            Some(_) => Err(RefusedTurn::NoRun { id: id() }),
        }
    }

    /// Another answer to the message that is the client's last: what it leaves out of its list is to be replaced.
    fn asked_again(&self, known: &Known) -> ChatTurn {
        let Some(message) = self.message else { return replacing(Replaces::LastAnswer, None) };
        match (&known.named, self.id()) {
            (Some(before), Some(id)) if self.is(before) => replacing(Replaces::Answer(id), None),
            (Some(_), Some(id)) => replacing(Replaces::Message(id.clone()), Some(id)),
            _ if known.last_question.as_deref().map(trim) == Some(trim(&message.text)) => {
                replacing(Replaces::LastAnswer, None)
            }
            (_, id) => ChatTurn::Begun { replaces: None, message_id: id },
        }
    }
}

/// As much of a client's id as an error shows.
fn shown(id: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    id.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(trigger: Trigger, message_id: Option<&str>, message: Option<(&str, &str)>) -> ChatRequest {
        let message = message.map(|(id, text)| UserMessage {
            id: Some(id.to_owned()).filter(|id| !id.is_empty()),
            text: text.to_owned(),
            files: Vec::new(),
            metadata: None,
        });
        let message_id = message_id.map(str::to_owned);
        ChatRequest { session: "c".to_owned(), trigger, message_id, message, runner: None }
    }

    fn before(text: &str, is_pending: bool) -> Known {
        let run = Some(RunId::parse("r").unwrap());
        let named = AskedBefore { run, message: text.to_owned(), attachments: "[]".to_owned(), is_pending };
        Known { named: Some(named), last_question: Some("last".to_owned()) }
    }

    fn unknown() -> Known {
        Known { named: None, last_question: Some("last".to_owned()) }
    }

    fn begun(replaces: Option<Replaces>, message_id: Option<&str>) -> Result<ChatTurn, RefusedTurn> {
        Ok(ChatTurn::Begun { replaces, message_id: message_id.map(str::to_owned) })
    }

    fn repeated() -> Result<ChatTurn, RefusedTurn> {
        Ok(ChatTurn::Repeated(RunId::parse("r").unwrap()))
    }

    #[test]
    fn a_message_that_was_sent_before_is_the_same_turn_unless_it_says_something_else() {
        let submit = |text| request(Trigger::Submit, None, Some(("m", text)));
        assert_eq!(submit("hi").turn(&unknown(), "[]"), begun(None, Some("m")));
        for is_pending in [false, true] {
            assert_eq!(submit("hi").turn(&before("hi", is_pending), "[]"), repeated());
            let conflict = Err(RefusedTurn::Conflict { id: "m".to_owned() });
            assert_eq!(submit("ho").turn(&before("hi", is_pending), "[]"), conflict);
            assert_eq!(submit("hi").turn(&before("hi", is_pending), r#"[{"url":"x"}]"#), conflict);
        }
        let mut foreign = before("hi", false);
        foreign.named.as_mut().unwrap().run = None;
        assert_eq!(submit("hi").turn(&foreign, "[]"), Err(RefusedTurn::NoRun { id: "m".to_owned() }));
        assert_eq!(request(Trigger::Submit, None, Some(("", "hi"))).turn(&unknown(), "[]"), begun(None, None));
    }

    #[test]
    fn a_message_that_is_edited_replaces_from_there_and_must_be_known() {
        let edit = |text| request(Trigger::Submit, Some("m"), Some(("m", text)));
        let replaced = begun(Some(Replaces::Message("m".to_owned())), Some("m"));
        assert_eq!(edit("ho").turn(&before("hi", false), "[]"), replaced);
        assert_eq!(edit("hi").turn(&before("hi", false), "[]"), replaced);
        assert_eq!(edit("hi").turn(&before("hi", true), "[]"), repeated());
        assert_eq!(edit("ho").turn(&before("hi", true), "[]"), replaced);
        assert_eq!(edit("hi").turn(&unknown(), "[]"), Err(RefusedTurn::UnknownMessage { id: "m".to_owned() }));
    }

    #[test]
    fn another_answer_is_given_to_the_message_that_is_named_or_else_the_last_one() {
        let again = |id, message| request(Trigger::Regenerate, id, message);
        let answer = |id: &str| begun(Some(Replaces::Answer(id.to_owned())), None);
        let last = begun(Some(Replaces::LastAnswer), None);
        assert_eq!(again(Some("r"), None).turn(&unknown(), "[]"), answer("r"));
        assert_eq!(again(None, None).turn(&unknown(), "[]"), last);
        assert_eq!(again(None, Some(("m", "hi"))).turn(&before("hi", false), "[]"), answer("m"));
        let edited = begun(Some(Replaces::Message("m".to_owned())), Some("m"));
        assert_eq!(again(None, Some(("m", "ho"))).turn(&before("hi", false), "[]"), edited);
        assert_eq!(again(None, Some(("m", "last"))).turn(&unknown(), "[]"), last);
        assert_eq!(again(None, Some(("m", "new"))).turn(&unknown(), "[]"), begun(None, Some("m")));
    }
}
