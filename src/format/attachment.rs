//! What is stored of an attachment beside its bytes: media type, file name and length, one JSON line with a checksum.

use serde::{Deserialize, Serialize};

use super::checksum::{checksum_of, with_checksum};
use crate::model::{Attachment, AttachmentId};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Info {
    version: u32,
    media_type: String,
    filename: Option<String>,
    bytes: u64,
}

/// The line that is stored.
pub fn write_attachment_info(attachment: &Attachment) -> Vec<u8> {
    let info = Info {
        version: VERSION,
        media_type: attachment.media_type.clone(),
        filename: attachment.filename.clone(),
        bytes: attachment.bytes,
    };
    let mut line = with_checksum(serde_json::to_vec(&info).expect("numbers and text become JSON"));
    line.push(b'\n');
    line
}

/// What such a line says of the attachment; nothing if it is damaged or of a newer program.
pub fn read_attachment_info(id: &AttachmentId, line: &[u8]) -> Option<Attachment> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let info: Info = (checksum_of(line) == Some(true)).then(|| serde_json::from_slice(line).ok())??;
    let Info { media_type, filename, bytes, version } = info;
    (version == VERSION).then(|| Attachment { id: id.clone(), media_type, filename, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment() -> Attachment {
        let filename = Some("a \"picture\" of \u{1f30a}.png".to_owned());
        Attachment { id: AttachmentId::of_bytes(b"abc"), media_type: "image/png".to_owned(), filename, bytes: 3 }
    }

    #[test]
    fn what_was_written_is_read_and_no_flipped_bit_is_believed() {
        for attachment in [attachment(), Attachment { filename: None, bytes: 0, ..attachment() }] {
            let line = write_attachment_info(&attachment);
            assert_eq!(read_attachment_info(&attachment.id, &line), Some(attachment.clone()));
            for bit in 0..(line.len() - 1) * 8 {
                let mut flipped = line.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read_attachment_info(&attachment.id, &flipped), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn the_bytes_on_disk_are_those_of_the_format() {
        let line = write_attachment_info(&Attachment { filename: None, ..attachment() });
        let text = String::from_utf8(line).unwrap();
        let expected = r#"{"version":1,"media_type":"image/png","filename":null,"bytes":3,"crc":""#;
        assert!(text.starts_with(expected) && text.ends_with("\"}\n"), "{text}");
    }

    #[test]
    fn a_line_of_a_newer_program_and_one_without_a_checksum_say_nothing() {
        let id = attachment().id;
        let newer = br#"{"version":2,"media_type":"image/png","filename":null,"bytes":3}"#;
        assert_eq!(read_attachment_info(&id, &with_checksum(newer.to_vec())), None);
        assert_eq!(
            read_attachment_info(&id, br#"{"version":1,"media_type":"image/png","filename":null,"bytes":3}"#),
            None
        );
        assert_eq!(read_attachment_info(&id, b""), None);
    }
}
