//! What the supervisor remembers of a producer: when it last said something, and which of its tools are at work. Told the
//! time, never asks for it.

use std::time::Duration;

use super::ending::ATTEMPT_END_EVENT;
use super::watchdog::Silence;
use crate::model::fold::{ATTEMPT_EVENT, tool_id};
use crate::model::{AGENT_SESSION_EVENT, Event, Fields, text_of};

/// Events that say nothing to the user: after them an attempt can be made again without anybody noticing.
const UNSEEN: [&str; 7] =
    ["reasoning", "usage", "metering", "exit", ATTEMPT_EVENT, ATTEMPT_END_EVENT, AGENT_SESSION_EVENT];

/// Tools at work that are remembered. Whoever starts more is watched all the same.
const TOOLS_MAX: usize = 1024;

/// The signs of life of one attempt.
#[derive(Debug)]
pub(super) struct Pulse {
    silent_since: Duration,
    events_seen: u64,
    tools: Vec<Tool>,
    has_shown: bool,
    /// Whether the producer waits for its turn: then nobody calls it silent.
    is_queued: bool,
}

/// A tool that was called and has not answered.
#[derive(Debug, PartialEq, Eq)]
struct Tool {
    id: Option<String>,
    name: String,
}

impl Tool {
    fn of(event: &Event) -> Self {
        let fields = Fields::parse(event.payload()).unwrap_or(Fields(Vec::new()));
        let name = fields.get("name").and_then(text_of).unwrap_or_default().into_owned();
        Tool { id: tool_id(&fields), name }
    }

    /// Whether an answer may be this tool's, if no tool has the answer's id. One that is taken for answered too early is
    /// given the idle budget; one that is never taken for answered would be waited for without end.
    fn may_be_of(&self, answer: &Tool) -> bool {
        answer.name.is_empty() || self.name == answer.name
    }
}

impl Pulse {
    /// An attempt that begins at this moment.
    pub(super) fn begin(now: Duration) -> Self {
        Pulse { silent_since: now, events_seen: 0, tools: Vec::new(), has_shown: false, is_queued: false }
    }

    /// The producer said something. What it said may have taken its time to be written, which is not its fault: the
    /// moment is the one when that was done.
    pub(super) fn note(&mut self, event: &Event) {
        self.events_seen += 1;
        self.has_shown |= is_shown(event);
        match event.name() {
            "tool" if self.tools.len() < TOOLS_MAX => self.tools.push(Tool::of(event)),
            "tool_complete" => self.close(&Tool::of(event)),
            _ => {}
        }
    }

    /// The producer gave a sign of life that is no event of its answer.
    pub(super) fn stir(&mut self) {
        self.events_seen += 1;
    }

    /// The producer waits for its turn, or does so no longer.
    pub(super) fn wait_for_turn(&mut self, is_queued: bool) {
        self.is_queued = is_queued;
    }

    /// Silence begins at this moment.
    pub(super) fn rest(&mut self, now: Duration) {
        self.silent_since = now;
    }

    /// How long the producer has been silent at this moment.
    pub(super) fn silence(&self, now: Duration) -> Silence {
        let lasted = if self.is_queued { Duration::ZERO } else { now.saturating_sub(self.silent_since) };
        Silence { lasted, events_seen: self.events_seen, tools_pending: self.tools.len() }
    }

    /// Whether the user has seen anything of this attempt.
    pub(super) fn has_shown(&self) -> bool {
        self.has_shown
    }

    fn close(&mut self, answer: &Tool) {
        let has_id = |tool: &Tool| answer.id.is_some() && tool.id == answer.id;
        let found = self.tools.iter().rposition(has_id);
        let found = found.or_else(|| self.tools.iter().rposition(|tool| tool.may_be_of(answer)));
        if let Some(at) = found {
            self.tools.remove(at);
        }
    }
}

fn is_shown(event: &Event) -> bool {
    match event.name() {
        "token" => Fields::parse(event.payload())
            .and_then(|fields| fields.get("text"))
            .is_none_or(|text| !matches!(text, "\"\"" | "null")),
        name => !UNSEEN.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pulse_after(events: &[Event]) -> Pulse {
        let mut pulse = Pulse::begin(Duration::ZERO);
        events.iter().for_each(|event| pulse.note(event));
        pulse
    }

    fn pending(events: &[Event]) -> usize {
        pulse_after(events).silence(Duration::ZERO).tools_pending
    }

    #[test]
    fn a_tool_is_pending_until_it_answers_by_id_or_by_name() {
        let call = |id: &str| Event::tool(id, "search", &json!({}));
        let answer = |id: &str| Event::tool_complete(id, "search", &json!(null), false);
        assert_eq!(pending(&[call("a"), call("b")]), 2);
        assert_eq!(pending(&[call("a"), call("b"), answer("a")]), 1);
        assert_eq!(pending(&[call("a"), answer("other")]), 0, "an agent that mixes up its ids");
        assert_eq!(
            pending(&[call("a"), Event::tool_complete("other", "read", &json!(null), false)]),
            1,
            "another tool's answer"
        );
        assert_eq!(pending(&[call("a"), Event::new("tool_complete", r#"{"name":"search"}"#).unwrap()]), 0);
        assert_eq!(pending(&[call("a"), Event::new("tool_complete", "null").unwrap()]), 0);
    }

    #[test]
    fn an_answer_ends_the_tool_that_has_its_id_whatever_it_calls_it() {
        let calls = [
            Event::tool("a", "search", &json!({})),
            Event::tool("b", "read", &json!({})),
            Event::tool("c", "search", &json!({})),
        ];
        let pending_after = |answers: &[Event]| pending(&[&calls, answers].concat());
        assert_eq!(pending_after(&[Event::tool_complete("a", "renamed", &json!(null), false)]), 2);
        let in_any_order = ["b", "a", "c"].map(|id| Event::tool_complete(id, "renamed", &json!(null), false));
        assert_eq!(pending_after(&in_any_order), 0);
        let of_first = Event::tool_complete("a", "search", &json!(null), false);
        assert_eq!(pulse_after(&[&calls[..], &[of_first]].concat()).tools, [Tool::of(&calls[1]), Tool::of(&calls[2])]);
    }

    #[test]
    fn tools_without_end_are_remembered_up_to_a_bound() {
        let calls: Vec<Event> = (0..2 * TOOLS_MAX).map(|at| Event::tool(&at.to_string(), "t", &json!({}))).collect();
        assert_eq!(pending(&calls), TOOLS_MAX);
    }

    #[test]
    fn thoughts_and_bookkeeping_show_nothing_and_all_else_does() {
        let unseen = [Event::reasoning("hm"), Event::token(""), Event::new("usage", "{}").unwrap()];
        assert!(!pulse_after(&unseen).has_shown());
        assert_eq!(pulse_after(&unseen).silence(Duration::ZERO).events_seen, 3, "they are events all the same");
        for seen in [Event::token(" "), Event::tool("a", "t", &json!({})), Event::new("approval", "{}").unwrap()] {
            assert!(pulse_after(&[seen]).has_shown());
        }
    }
}
