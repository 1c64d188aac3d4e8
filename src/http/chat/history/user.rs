//! What the user said, as parts: the files, then the words, in the order in which the packages send them.

use super::foreign::{Block, blocks, file_part, items};
use super::message::Part;
use crate::model::{ONLY_ATTACHMENTS, Row, SessionId};

/// The parts of a user's row. The words that stand for a message of files alone are not shown.
pub(super) fn user_parts(session: &SessionId, row: &Row) -> Vec<Part> {
    let attached = items(row.fields().get("attachments").unwrap_or("[]"));
    let mut files: Vec<Part> =
        attached.into_iter().filter_map(|item| file_part(session, item)).map(Part::Json).collect();
    let mut words = Vec::new();
    for block in blocks(session, row) {
        match block {
            Block::File(json) => files.push(Part::Json(json)),
            Block::Text(text) | Block::Reasoning(text) => words.push(text),
        }
    }
    let is_said = |text: &String| files.is_empty() || text != ONLY_ATTACHMENTS;
    let words: Vec<Part> = words.into_iter().filter(is_said).map(Part::Text).collect();
    files.extend(words);
    files
}
