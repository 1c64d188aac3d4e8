//! Lines to messages: who may speak when.

use super::ids::{self, Ids};
use super::line::{Line, Speaker, join};
use super::tools::Call;
use super::{ContextCall, ContextMessage, ToolResult};
use crate::model::text::{is_blank, normal_form, trim};

/// Puts the lines in order, the pending message after them.
pub(super) fn build(mut lines: Vec<Line>, pending: Option<Line>) -> Vec<ContextMessage> {
    lines.retain(|line| line.speaker != Speaker::Tool && !line.is_blank());
    lines.extend(pending.filter(|turn| !is_there(&lines, turn)));
    let mut builder = Builder::default();
    lines.into_iter().for_each(|line| builder.add(line));
    builder.finish()
}

/// Whether the last word is the pending message, which some programs add to the transcript before they answer it.
fn is_there(lines: &[Line], turn: &Line) -> bool {
    let last = lines.iter().rfind(|line| line.speaker != Speaker::System);
    last.is_some_and(|line| line.speaker == Speaker::User && normal_form(&line.text) == normal_form(&turn.text))
}

#[derive(Default)]
struct Builder {
    system: String,
    messages: Vec<ContextMessage>,
    ids: Ids,
}

impl Builder {
    fn add(&mut self, line: Line) {
        match line.speaker {
            Speaker::System => join(&mut self.system, &line.text),
            Speaker::User if !line.is_blank() => self.add_user(line),
            Speaker::Assistant if !self.messages.is_empty() => self.add_assistant(line),
            _ => {}
        }
    }

    fn add_user(&mut self, line: Line) {
        let said = if trim(&line.text).is_empty() { "" } else { &*line.text };
        if let Some(ContextMessage::User { text, attachments }) = self.messages.last_mut() {
            join(text, said);
            return attachments.extend(line.attachments);
        }
        self.messages.push(ContextMessage::User { text: said.to_owned(), attachments: line.attachments });
    }

    /// White space behind an answer's last word is refused by some.
    fn add_assistant(&mut self, line: Line) {
        let said = line.text.trim_end_matches(is_blank);
        let called = line.calls.into_iter().map(|call| finished(call, &mut self.ids));
        match self.messages.last_mut() {
            Some(ContextMessage::Assistant { text, calls }) if calls.is_empty() => {
                join(text, said);
                calls.extend(called);
            }
            _ => {
                let message = ContextMessage::Assistant { text: said.to_owned(), calls: called.collect() };
                self.messages.push(message);
            }
        }
    }

    fn finish(mut self) -> Vec<ContextMessage> {
        if !self.system.is_empty() {
            self.messages.insert(0, ContextMessage::System { text: self.system });
        }
        self.messages
    }
}

fn finished(call: Call, ids: &mut Ids) -> ContextCall {
    ContextCall {
        id: ids.unique(&call.id),
        name: ids::name(&call.name),
        arguments: call.arguments,
        result: call.result.unwrap_or_else(ToolResult::interrupted),
    }
}
