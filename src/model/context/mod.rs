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
//! - Every tool call has exactly one result, if need be one that says that it was interrupted. A result without a call is
//!   left out. Ids are unique; ids, names and arguments are put into the form that providers take.

mod build;
mod cards;
mod ids;
mod line;
mod tools;
mod wire;

use super::session::{List, Session};
use line::Line;

/// A conversation that every provider takes. [`Context::to_json`] is its form for the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// What was said: perhaps the system, then user and assistant in turns. Empty if no user ever said anything.
    pub messages: Vec<ContextMessage>,
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
        /// JSON texts, as the application or a provider spelt them.
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
    /// A JSON object. Where only the tool card knows them, arguments are as the card shows them: in part.
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
    pub fn context(&self) -> Context {
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
        build::build(lines.into_iter().flatten().collect(), self.pending_turn())
    }

    /// One line a row; none for a row that is no part of the conversation.
    fn lines(&self, list: List) -> Vec<Option<Line>> {
        self.texts(list).map(Line::parse).collect()
    }
}
