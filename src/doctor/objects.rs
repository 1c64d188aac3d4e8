//! Objects beside a session: attachments whose bytes changed, and branches that cannot be read. A repair leaves them alone.

use serde::de::IgnoredAny;

use super::finding::{Code, Finding, Severity};
use super::ward::{Examined, Ward};
use crate::format::read_attachment_info;
use crate::model::{AttachmentId, SessionId};
use crate::storage::{ObjectKind, StorageError};

impl Ward<'_> {
    /// Reads every object of a session.
    pub(super) fn tell_of_objects(&self, id: &SessionId, told: &mut Examined) {
        for kind in ObjectKind::ALL {
            // A directory that cannot be listed is told with the session's other files.
            for key in self.storage.objects(id, kind).unwrap_or_default() {
                let file = self.files.layout().object(id, kind, &key).map(|path| self.relative(path));
                let Some(file) = file else { continue };
                match self.storage.object(id, kind, &key) {
                    Ok(Some(bytes)) => {
                        told.bytes += bytes.len() as u64;
                        told.findings.extend(of_object(
                            kind,
                            &key,
                            &bytes,
                            Finding::new(Code::BadJson, Severity::Damage, file).of(id),
                        ));
                    }
                    // Removed by now.
                    Ok(None) => {}
                    Err(StorageError::Damaged { reason, .. }) => {
                        let finding = Finding::new(Code::ChecksumMismatch, Severity::Damage, file).of(id).at(0);
                        let message = format!("this attachment is damaged, and not shown: {reason}");
                        told.tell(finding.leaves(message, "send the same file again, or put it back from a backup"));
                    }
                    Err(error) => told.tell(self.of_trouble(Some(id), &file, &error.to_string())),
                }
            }
        }
    }
}

/// What is wrong with an object that could be read.
fn of_object(kind: ObjectKind, key: &str, bytes: &[u8], finding: Finding) -> Option<Finding> {
    match kind {
        ObjectKind::Attachment => None,
        ObjectKind::AttachmentInfo => {
            let is_read = AttachmentId::parse(key).is_ok_and(|id| read_attachment_info(&id, bytes).is_some());
            let message = "media type and file name of this attachment cannot be read; its bytes can";
            let finding = Finding { severity: Severity::Info, ..finding }.at(0);
            (!is_read).then(|| finding.leaves(message, "send the same file again"))
        }
        ObjectKind::Branch => {
            let error = serde_json::from_slice::<IgnoredAny>(bytes).err()?;
            let message = format!("this branch cannot be read, and is not listed: {error}");
            Some(finding.at(0).leaves(message, "put it back from a backup, or move it away after a look"))
        }
    }
}
