//! The conversation as a model may be shown it, made from whatever a session holds.
//!
//! Providers refuse a conversation with one loose end, and then every later turn fails. So none leaves here, wherever
//! an answer was cut and whoever wrote the session. Nothing in the session is changed.
//!
//! - The base is `context_messages`, if any row of it can be read, else the transcript. The pending message comes last,
//!   unless it is there already and unanswered.
//! - Markers, errors, reasoning, blank messages and rows of no known role are left out.
//! - What the system said is one message and stands first; then a user's message. An answer before it is left out.
//! - Neighbours of one speaker become one message, with a blank line between them.
//! - Tools show what they were really called with and what they answered. A preview is never presented as a result.
//! - Every tool call has exactly one result, if need be one that says that it was interrupted. A result without a call is
//!   left out. Ids are unique; ids, names and arguments are put into the form that providers take.

mod attach;
mod build;
mod cards;
mod ids;
mod line;
mod stored;
mod tools;
mod wire;

use super::session::{List, Session};
use line::Line;
pub(crate) use stored::{Objects, StoredFile};
use stored::{SessionAlone, resolve};

/// A conversation that every provider takes. [`Context::to_json`] is its form for the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// What was said: perhaps the system, then user and assistant in turns. Empty if no user ever said anything.
    pub messages: Vec<ContextMessage>,
    /// What the session names and the messages do not hold, in the order of the conversation.
    pub left_out: Vec<LeftOut>,
}

/// Something that a conversation does not hold although the session names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// What it is: a file's name, or which value of which tool.
    pub what: String,
    /// Why it is left out.
    pub why: String,
}

/// What one speaker said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextMessage {
    /// Instructions.
    System {
        /// The words.
        text: String,
    },
    /// The user.
    User {
        /// The words; empty only if there are attachments.
        text: String,
        /// JSON texts: content parts of a chat request, and what an application attached in a form of its own as it is.
        attachments: Vec<Box<str>>,
    },
    /// The model.
    Assistant {
        /// The words; empty only if there are calls.
        text: String,
        /// The tools that it called after these words.
        calls: Vec<ContextCall>,
    },
}

/// A tool call with its result: there is none without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextCall {
    /// Its id, unique in the conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// A JSON object, as the model spelt it. Of a card that an earlier version or another program wrote, what it shows: a part.
    pub arguments: String,
    /// What came of it.
    pub result: ToolResult,
}

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// What the model is told. Never blank.
    pub text: String,
    /// How it ended.
    pub outcome: ToolOutcome,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome {
    /// The tool answered.
    Answered,
    /// The tool answered that it failed.
    Failed,
    /// The tool never answered.
    Interrupted,
}

impl Session {
    /// The conversation as a model may be shown it. The module's opening words say what is in it and what is not.
    ///
    /// It is made of the session alone. What is stored beside it, large tool values and files, is left out and named in
    /// [`Context::left_out`]; [`Store::context`](crate::Store::context) has it all.
    pub fn context(&self) -> Context {
        self.context_with(&SessionAlone)
    }

    /// The same with what is stored beside the session.
    pub(crate) fn context_with(&self, objects: &dyn Objects) -> Context {
        let mut lines = self.lines(List::ContextMessages);
        let is_shortened = lines.iter().any(Option::is_some);
        if !is_shortened {
            lines = self.lines(List::Messages);
        }
        let native = tools::answer_calls(&mut lines);
        if !self.is_empty(List::ToolCalls) {
            let rows = if is_shortened { cards::rows_of_tail(self, &lines) } else { cards::rows_of_all(&lines) };
            cards::add_cards(&mut lines, self.texts(List::ToolCalls), &rows, &native);
        }
        let mut pending = self.pending_turn().map(|turn| Line::of_user(turn.message, &turn.attachments));
        let left_out = resolve(lines.iter_mut().flatten().chain(&mut pending), objects);
        let messages = build::build(lines.into_iter().flatten().collect(), pending);
        Context { messages, left_out }
    }

    /// One line a row; none for a row that is no part of the conversation.
    fn lines(&self, list: List) -> Vec<Option<Line>> {
        self.texts(list).map(Line::parse).collect()
    }
}
