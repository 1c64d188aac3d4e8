//! What the session only refers to, put into its conversation: large tool values and a user's files. The latest comes first,
//! because there may be more than one request can hold.

use super::LeftOut;
use super::attach::part_of;
use super::line::{Line, Speaker};
use super::tools::Call;
use crate::model::attachment::AttachmentId;
use crate::model::fold::StoredValue;

/// A file that is stored beside a session.
pub(crate) struct StoredFile {
    pub(crate) media_type: String,
    pub(crate) filename: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Where that is read from. What cannot be had is refused with the reason.
pub(crate) trait Objects {
    /// The JSON text of a tool value.
    fn value(&self, value: &StoredValue) -> Result<String, String>;

    /// A file.
    fn file(&self, id: &AttachmentId) -> Result<StoredFile, String>;
}

/// The session alone, without what is stored beside it.
pub(super) struct SessionAlone;

const BESIDE: &str = "it is stored beside the session, of which this conversation was made alone";

impl Objects for SessionAlone {
    fn value(&self, _: &StoredValue) -> Result<String, String> {
        Err(BESIDE.to_owned())
    }

    fn file(&self, _: &AttachmentId) -> Result<StoredFile, String> {
        Err(BESIDE.to_owned())
    }
}

/// Puts into the lines what they refer to, and says what is left out, in the order of the conversation.
pub(super) fn resolve<'l>(lines: impl DoubleEndedIterator<Item = &'l mut Line>, objects: &dyn Objects) -> Vec<LeftOut> {
    let mut left_out = Vec::new();
    for line in lines.rev() {
        match line.speaker {
            Speaker::User => resolve_files(line, objects, &mut left_out),
            Speaker::Assistant => {
                line.calls.iter_mut().rev().for_each(|call| resolve_call(call, objects, &mut left_out))
            }
            _ => {}
        }
    }
    left_out.reverse();
    left_out
}

fn resolve_files(line: &mut Line, objects: &dyn Objects, left_out: &mut Vec<LeftOut>) {
    for attachment in line.attachments.iter_mut().rev() {
        match part_of(attachment, objects) {
            Ok(part) => *attachment = part,
            Err(left) => left_out.push(left),
        }
    }
}

fn resolve_call(call: &mut Call, objects: &dyn Objects, left_out: &mut Vec<LeftOut>) {
    if let Some(stored) = call.stored_result.take() {
        match objects.value(&stored) {
            Ok(json) => call.set_result(&json),
            Err(why) => left_out.push(LeftOut { what: format!("the result of the tool {}", call.name), why }),
        }
    }
    if let Some(stored) = call.stored_arguments.take() {
        match objects.value(&stored) {
            Ok(json) => call.set_arguments(&json),
            Err(why) => left_out.push(LeftOut { what: format!("the arguments of the tool {}", call.name), why }),
        }
    }
}
