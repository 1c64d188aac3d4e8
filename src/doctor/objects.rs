//! Objects beside a session: attachments whose bytes changed, and branches that cannot be read. A repair leaves them alone.

use std::path::PathBuf;

use super::finding::{Code, Finding, Severity};
use super::ward::{Examined, Ward};
use crate::format::{BadBranch, read_attachment_info, read_branch};
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
                        told.findings.extend(of_object(id, kind, &key, &bytes, file));
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
fn of_object(id: &SessionId, kind: ObjectKind, key: &str, bytes: &[u8], file: PathBuf) -> Option<Finding> {
    match kind {
        ObjectKind::Attachment => None,
        ObjectKind::AttachmentInfo => {
            let is_read = AttachmentId::parse(key).is_ok_and(|id| read_attachment_info(&id, bytes).is_some());
            let message = "media type and file name of this attachment cannot be read; its bytes can";
            let finding = Finding::new(Code::BadJson, Severity::Info, file).of(id).at(0);
            (!is_read).then(|| finding.leaves(message, "send the same file again"))
        }
        ObjectKind::Branch => of_branch(id, key, bytes, file),
    }
}

/// What keeps a stored branch out of the list of branches.
fn of_branch(id: &SessionId, key: &str, bytes: &[u8], file: PathBuf) -> Option<Finding> {
    const BACKUP: &str = "put it back from a backup, or move it away after a look";
    const COPY: &str = "if it is a copy, move it away";
    let (code, severity, error, why) = match read_branch(id, bytes) {
        Ok(branch) if branch.branch_id == key => return None,
        Ok(branch) => {
            (Code::ForeignId, Severity::Warning, format!("it says that it is branch {:?}", branch.branch_id), COPY)
        }
        Err(error) => {
            let (code, severity, why) = match error {
                BadBranch::ChecksumMismatch => (Code::ChecksumMismatch, Severity::Damage, BACKUP),
                BadBranch::BadJson(_) => (Code::BadJson, Severity::Damage, BACKUP),
                BadBranch::Newer(_) => (Code::NewerFormat, Severity::Warning, "use that program"),
                BadBranch::OtherSession(_) => (Code::ForeignId, Severity::Warning, COPY),
            };
            (code, severity, error.to_string(), why)
        }
    };
    let message = format!("this branch is not listed: {error}");
    Some(Finding::new(code, severity, file).of(id).at(0).leaves(message, why))
}
