//! Constructors of the events beside the text of an answer: usage, sources, files, data, metadata.

use serde_json::{Map, Value};

use super::Event;
use crate::model::attachment::Attachment;
use crate::model::json::Object;

impl Event {
    /// What a request to a model used, in tokens, as far as that is known. Several are added up.
    pub fn usage(model: Option<&str>, input_tokens: Option<u64>, output_tokens: Option<u64>) -> Self {
        let mut payload = Object::default();
        let number = |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        payload.set("input_tokens", number(input_tokens));
        payload.set("output_tokens", number(output_tokens));
        set_given(&mut payload, "model", model);
        Self::of_payload("usage", payload.to_json())
    }

    /// A page that the answer rests on.
    pub fn source(id: &str, url: &str, title: Option<&str>) -> Self {
        let mut payload = Object::default();
        payload.set_text("id", id);
        payload.set_text("url", url);
        set_given(&mut payload, "title", title);
        Self::of_payload("source", payload.to_json())
    }

    /// A document that the answer rests on and that has no address.
    pub fn source_document(id: &str, media_type: &str, title: &str) -> Self {
        let mut payload = Object::default();
        payload.set_text("id", id);
        payload.set_text("media_type", media_type);
        payload.set_text("title", title);
        Self::of_payload("source", payload.to_json())
    }

    /// A file that belongs to the answer, by its address.
    pub fn file(media_type: &str, url: &str) -> Self {
        let mut payload = Object::default();
        payload.set_text("media_type", media_type);
        payload.set_text("url", url);
        Self::of_payload("file", payload.to_json())
    }

    /// A file that belongs to the answer and is stored as an attachment of its session.
    pub fn attached_file(attachment: &Attachment) -> Self {
        let mut payload = Object::default();
        payload.set_text("media_type", &attachment.media_type);
        payload.set_text("attachment", attachment.id.as_str());
        set_given(&mut payload, "filename", attachment.filename.as_deref());
        Self::of_payload("file", payload.to_json())
    }

    /// A value for the page that shows the answer. Data with an id takes the place of the earlier one of this name and id.
    pub fn data(name: &str, id: Option<&str>, data: &Value) -> Self {
        let mut payload = Object::default();
        payload.set_text("name", name);
        set_given(&mut payload, "id", id);
        payload.set("data", data.to_string());
        Self::of_payload("data", payload.to_json())
    }

    /// What the producer notes of the answer as a whole. Several are merged, object by object.
    pub fn metadata(metadata: &Map<String, Value>) -> Self {
        let mut payload = Object::default();
        metadata.iter().for_each(|(key, value)| payload.set(key, value.to_string()));
        Self::of_payload("metadata", payload.to_json())
    }
}

fn set_given(payload: &mut Object, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        payload.set_text(key, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AttachmentId;
    use serde_json::json;

    #[test]
    fn each_event_has_the_payload_that_is_documented() {
        let id = AttachmentId::of_bytes(b"x");
        let (media_type, filename) = ("image/png".to_owned(), Some("x.png".to_owned()));
        let attachment = Attachment { id: id.clone(), media_type, filename, bytes: 1 };
        let metadata = json!({"a": {"b": [1.5, null]}});
        let attached = format!(r#"{{"media_type":"image/png","attachment":"{id}","filename":"x.png"}}"#);
        for (event, name, payload) in [
            (Event::usage(Some("m"), Some(3), None), "usage", r#"{"input_tokens":3,"output_tokens":null,"model":"m"}"#),
            (Event::source("s", "https://a", Some("A")), "source", r#"{"id":"s","url":"https://a","title":"A"}"#),
            (
                Event::source_document("s", "text/plain", "A"),
                "source",
                r#"{"id":"s","media_type":"text/plain","title":"A"}"#,
            ),
            (Event::file("image/png", "https://a/b"), "file", r#"{"media_type":"image/png","url":"https://a/b"}"#),
            (Event::attached_file(&attachment), "file", &attached),
            (Event::data("chart", Some("1"), &json!([1])), "data", r#"{"name":"chart","id":"1","data":[1]}"#),
            (Event::metadata(metadata.as_object().unwrap()), "metadata", r#"{"a":{"b":[1.5,null]}}"#),
        ] {
            assert_eq!((event.name(), event.payload()), (name, payload));
            assert_eq!(event.terminal_state(), None);
        }
    }
}
