//! A user's attachments as content parts of a chat request: images as `image_url`, other files as `file`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::LeftOut;
use super::line::word;
use super::stored::Objects;
use super::wire::is_content_part;
use crate::model::attachment::AttachmentId;
use crate::model::json::{Fields, quoted, text_of};

/// What a file is called of which nothing else is known.
const UNNAMED: &str = "file";

/// A file as a row names it.
struct File<'a> {
    media_type: String,
    name: String,
    url: &'a str,
}

/// The content part that an attachment becomes, or why a model is not sent it.
pub(super) fn part_of(json: &str, objects: &dyn Objects) -> Result<Box<str>, LeftOut> {
    if is_content_part(json) {
        return Ok(json.into());
    }
    let fields = Fields::parse(json).unwrap_or(Fields(Vec::new()));
    let url = fields.get("url").and_then(text_of).unwrap_or_default();
    let file = File { media_type: word(&fields, "mediaType"), name: word(&fields, "filename"), url: &url };
    let part = match word(&fields, "type") == "file" && !url.is_empty() {
        true => file.part(objects),
        false => Err("it is in a form of the application's own".to_owned()),
    };
    part.map_err(|why| LeftOut { what: what_of(&fields, json), why })
}

/// What a left-out attachment is called.
fn what_of(fields: &Fields<'_>, json: &str) -> String {
    const CHARS_MAX: usize = 80;
    let known = ["filename", "name", "mediaType", "type"].iter().map(|key| word(fields, key));
    let text = text_of(json).unwrap_or_default().into_owned();
    let named = known.chain([text]).find(|name| !name.is_empty()).unwrap_or_else(|| "an attachment".to_owned());
    named.chars().take(CHARS_MAX).collect()
}

impl File<'_> {
    fn part(self, objects: &dyn Objects) -> Result<Box<str>, String> {
        if let Some(id) = AttachmentId::of_url(self.url) {
            return self.stored_part(&id, objects);
        }
        if let Some(rest) = self.url.strip_prefix("data:") {
            let stated = rest.split([';', ',']).next().unwrap_or_default();
            let media_type = if stated.is_empty() { &self.media_type } else { stated };
            return Ok(inline_part(media_type, &self.name, self.url));
        }
        let is_fetched = self.url.starts_with("https://") || self.url.starts_with("http://");
        match is_fetched && is_image(&self.media_type) {
            true => Ok(image_part(self.url)),
            false if is_fetched => Err("it is an address of something that is not an image".to_owned()),
            false => Err("only clients of this program can fetch its address".to_owned()),
        }
    }

    fn stored_part(self, id: &AttachmentId, objects: &dyn Objects) -> Result<Box<str>, String> {
        let stored = objects.file(id)?;
        let media_type = if self.media_type.is_empty() { stored.media_type } else { self.media_type };
        let name = if self.name.is_empty() { stored.filename.unwrap_or_default() } else { self.name };
        let mut url = format!("data:{media_type};base64,");
        STANDARD.encode_string(&stored.bytes, &mut url);
        Ok(inline_part(&media_type, &name, &url))
    }
}

fn is_image(media_type: &str) -> bool {
    media_type.get(..6).is_some_and(|kind| kind.eq_ignore_ascii_case("image/"))
}

fn inline_part(media_type: &str, name: &str, url: &str) -> Box<str> {
    if is_image(media_type) {
        return image_part(url);
    }
    let name = quoted(if name.is_empty() { UNNAMED } else { name });
    format!("{{\"type\":\"file\",\"file\":{{\"filename\":{name},\"file_data\":{}}}}}", quoted(url)).into()
}

fn image_part(url: &str) -> Box<str> {
    format!("{{\"type\":\"image_url\",\"image_url\":{{\"url\":{}}}}}", quoted(url)).into()
}
