//! The agent's own name for a conversation: what it is told in the next turn, so that it goes on where it was.
//!
//! Kept in the user row of the last turn that was answered with it, and only if that answer was completed: a name that
//! an agent gave before it failed is never used again. An empty name says that the agent has none any more.

use super::json::{Object, text_of};
use super::row::Row;
use super::session::{List, Session};

/// The event by which a producer tells it.
pub const AGENT_SESSION_EVENT: &str = "agent_session";

/// Where a row keeps it.
const KEY: &str = "_agent_session";
const ID: &str = "agent_session_id";
const RUNNER: &str = "runner";

/// What an agent calls a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    /// The runner that reached the agent; another one's agents know nothing of it.
    pub runner: String,
    /// The agent's name for the conversation; empty if it has none any more.
    pub id: String,
}

impl AgentSession {
    /// What an event's payload, or a row, says of it.
    pub fn parse(json: &str) -> Option<Self> {
        let fields = Object::parse(json)?;
        let text = |key| fields.text(key).map(|text| text.into_owned()).unwrap_or_default();
        let is_told = fields.get(ID).is_some_and(|id| id == "null" || text_of(id).is_some());
        is_told.then(|| AgentSession { runner: text(RUNNER), id: text(ID) })
    }

    /// The payload of the event that tells it.
    pub fn to_json(&self) -> String {
        let mut fields = Object::default();
        fields.set_text(RUNNER, &self.runner);
        fields.set_text(ID, &self.id);
        fields.to_json()
    }

    /// Notes it in the row of the turn that was answered with it.
    pub(crate) fn note_in(&self, row: &mut Row) {
        row.fields_mut().set(KEY, self.to_json());
    }
}

impl Session {
    /// What the agent behind a runner calls this conversation, as of the last turn that it completed.
    pub fn agent_session(&self, runner: &str) -> Option<AgentSession> {
        let noted = self.texts(List::Messages).rev().filter(|row| row.contains(KEY));
        let mut known = noted.filter_map(|row| AgentSession::parse(Row::parse(row).fields().get(KEY)?));
        known.find(|known| known.runner == runner).filter(|known| !known.id.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::model::SessionId;

    #[test]
    fn the_last_one_of_the_same_runner_counts() {
        let mut session = Session::new(SessionId::parse("s").unwrap(), "", Timestamp::from_seconds(1.0));
        for (runner, id) in [("a", "1"), ("b", "2"), ("d", "4"), ("a", "3 \"x\""), ("d", "")] {
            let mut row = Row::user("hi", 1);
            AgentSession { runner: runner.to_owned(), id: id.to_owned() }.note_in(&mut row);
            session.push_message(&row).unwrap();
        }
        let id = |runner| session.agent_session(runner).map(|known| known.id);
        assert_eq!(id("a").as_deref(), Some("3 \"x\""));
        assert_eq!(id("b").as_deref(), Some("2"));
        assert_eq!(id("d"), None, "the agent has forgotten it");
        assert_eq!(id("c"), None);
    }
}
