//! The UI parts of an answer while it is folded: files, sources and data, and the row that each goes to.

use super::FoldedRow;
use crate::model::json::Object;

/// Adds a part to those of an answer. Data with a name and an id takes the place of the earlier one with both, wherever in the
/// answer that is.
pub(super) fn add_part(part: Object, rows: &mut [FoldedRow], gathered: &mut Vec<Object>, goes_to_gathered: bool) {
    let is_same =
        |old: &&mut Object| part.get("id").is_some() && ["type", "id"].iter().all(|key| old.get(key) == part.get(key));
    let known = rows.iter_mut().flat_map(|row| &mut row.parts).chain(gathered.iter_mut()).find(is_same);
    if let Some(known) = known {
        *known = part;
        return;
    }
    match rows.last_mut() {
        Some(row) if !goes_to_gathered => row.parts.push(part),
        _ => gathered.push(part),
    }
}

/// Parts as the JSON list that a row keeps.
pub(super) fn to_json(parts: &[Object]) -> String {
    let list: Vec<String> = parts.iter().map(Object::to_json).collect();
    format!("[{}]", list.join(","))
}
