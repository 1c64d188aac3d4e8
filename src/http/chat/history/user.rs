//! What the user said, as parts: the files, then the words, in the order in which the packages send them.

use super::foreign::{Block, blocks, file_part, items};
use super::message::Part;
use crate::http::chat::value::FileAddresses;
use crate::model::{ONLY_ATTACHMENTS, Row};

/// The parts of a user's row. The words that stand for a message of files alone are not shown.
pub(super) fn user_parts(files: &FileAddresses, row: &Row) -> Vec<Part> {
    let attached = items(row.fields().get("attachments").unwrap_or("[]"));
    let mut shown: Vec<Part> = attached.into_iter().filter_map(|item| file_part(files, item)).map(Part::Json).collect();
    let mut words = Vec::new();
    for block in blocks(files, row) {
        match block {
            Block::File(json) => shown.push(Part::Json(json)),
            Block::Text(text) | Block::Reasoning(text) => words.push(text),
        }
    }
    let is_said = |text: &String| shown.is_empty() || text != ONLY_ATTACHMENTS;
    let words: Vec<Part> = words.into_iter().filter(is_said).map(Part::Text).collect();
    shown.extend(words);
    shown
}
