//! Tool values in a document: verbatim JSON up to a bound, and references to larger values, which are stored as attachments.

use std::borrow::Cow;

use crate::limits::TOOL_VALUE_BYTES_MAX;
use crate::model::attachment::AttachmentId;
use crate::model::json::{Fields, text_of};

/// The arguments or the result of a tool call that are too large for the document, which holds a reference to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeValue {
    /// The id of the attachment that holds it.
    pub id: AttachmentId,
    /// The value's JSON text, whose UTF-8 bytes are the attachment.
    pub json: Box<str>,
}

/// The reference to a value that is stored as an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// The id of the attachment that holds it.
    pub id: AttachmentId,
    /// The length of its JSON text.
    pub bytes: u64,
}

impl StoredValue {
    /// Reads a reference: an object with `attachment` and `bytes` and nothing else. Any other value is none.
    pub fn parse(json: &str) -> Option<Self> {
        let fields = Fields::parse(json).filter(|fields| fields.0.len() == 2)?;
        let id = AttachmentId::parse(&text_of(fields.get("attachment")?)?).ok()?;
        Some(StoredValue { id, bytes: fields.get("bytes")?.parse().ok()? })
    }

    fn to_json(&self) -> String {
        format!("{{\"attachment\":\"{}\",\"bytes\":{}}}", self.id, self.bytes)
    }
}

/// What the document holds of a value: its JSON, or a reference if that is too large. A small value that reads like a reference
/// is stored as well, so that whatever reads like one is one.
pub(super) fn kept_of(json: &str) -> (Cow<'_, str>, Option<LargeValue>) {
    if json.len() <= TOOL_VALUE_BYTES_MAX && StoredValue::parse(json).is_none() {
        return (Cow::Borrowed(json), None);
    }
    let id = AttachmentId::of_bytes(json.as_bytes());
    let kept = StoredValue { id: id.clone(), bytes: json.len() as u64 }.to_json();
    (Cow::Owned(kept), Some(LargeValue { id, json: json.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_as_it_is_up_to_the_bound_and_by_reference_beyond_it() {
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let (fits, too_large) = (text(TOOL_VALUE_BYTES_MAX), text(TOOL_VALUE_BYTES_MAX + 1));
        assert_eq!(kept_of(&fits), (Cow::Borrowed(&*fits), None));
        let (kept, large) = kept_of(&too_large);
        let stored = StoredValue::parse(&kept).unwrap();
        let large = large.unwrap();
        assert_eq!((&stored.id, stored.bytes), (&large.id, too_large.len() as u64));
        assert_eq!((&*large.json, large.id), (&*too_large, AttachmentId::of_bytes(too_large.as_bytes())));
    }

    #[test]
    fn a_tool_that_answers_with_what_reads_like_a_reference_is_not_taken_at_its_word() {
        let id = AttachmentId::of_bytes(b"another");
        let odd = format!(r#"{{ "bytes": 7, "attachment": "{id}" }}"#);
        let (kept, large) = kept_of(&odd);
        assert_eq!(StoredValue::parse(&kept).unwrap().id, large.as_ref().unwrap().id);
        assert_eq!(&*large.unwrap().json, &*odd);
        for other in [format!(r#"{{"attachment":"{id}"}}"#), format!(r#"{{"attachment":"{id}","bytes":7,"x":1}}"#)] {
            assert_eq!(kept_of(&other), (Cow::Borrowed(&*other), None));
        }
    }
}
