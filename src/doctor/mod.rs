//! The doctor: looks through a whole data directory and says what is wrong, and repairs it when told, losing nothing.
//!
//! Works offline on files, ours and the reference program's. [`check`] reads and changes nothing, also beside a writer at
//! work; [`plan`] says what a repair would do, by the same pure decisions as a live read; [`repair`] does it. Whatever is
//! replaced is kept first, and whatever cannot be mended is left alone and told.

mod directory;
mod examine;
mod finding;
mod journal;
mod meter;
mod objects;
mod options;
mod rebuild;
mod references;
mod repair;
mod report;
mod rewrite;
mod rounds;
mod runs;
mod transcript;
mod ward;

use std::path::Path;
use std::sync::Arc;

pub use self::finding::{Code, Finding, Severity, UnknownCode};
pub use self::options::{DoctorOptions, OnProgress, Progress};
pub use self::repair::{Action, Outcome, Repair, plan_on, repair_on};
pub use self::report::{Report, Summary};
use self::rounds::go_round;
use self::ward::Ward;
use crate::model::SessionId;
use crate::storage::{DirectoryListing, FileStorage, Mode, OsDisk, SharedDisk, StorageError};

/// Why the doctor could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// There is no such session: no file, no journal, no backup.
    #[error("there is nothing of session {session} in this directory: look at `lastword ls`")]
    NotFound {
        /// The session.
        session: SessionId,
    },
    /// The directory could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Looks through a data directory.
///
/// ```
/// use lastword::doctor::{self, DoctorOptions};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # drop(lastword::Store::open(&path, lastword::Options::default())?);
/// let report = doctor::check(&path, &DoctorOptions::default())?;
/// for finding in &report.findings {
///     println!("{}: {} ({})", finding.file.display(), finding.message, finding.code);
/// }
/// assert!(!report.is_bad());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(root: impl AsRef<Path>, options: &DoctorOptions) -> Result<Report, DoctorError> {
    check_on(Arc::new(OsDisk), root.as_ref(), options)
}

/// What a repair of a data directory would do. Changes nothing.
pub fn plan(root: impl AsRef<Path>, options: &DoctorOptions) -> Result<Repair, DoctorError> {
    plan_on(Arc::new(OsDisk), root.as_ref(), options)
}

/// Repairs a data directory. Nobody else may write it meanwhile; if somebody does, this fails as busy.
pub fn repair(root: impl AsRef<Path>, options: &DoctorOptions) -> Result<Repair, DoctorError> {
    repair_on(Arc::new(OsDisk), root.as_ref(), options)
}

/// The same as [`check`] on a disk of the caller's choice.
pub fn check_on(disk: SharedDisk, root: &Path, options: &DoctorOptions) -> Result<Report, DoctorError> {
    let files = open(disk, root, options, Mode::ReadOnly)?;
    let is_live = files.is_held()?;
    let report = look_over(&Ward::new(files.clone(), options, is_live)?)?;
    // Whoever began to write meanwhile is at work on what was just found.
    match !is_live && files.is_held()? {
        true => look_over(&Ward::new(files, options, true)?),
        false => Ok(report),
    }
}

fn look_over(ward: &Ward<'_>) -> Result<Report, DoctorError> {
    let (sessions, listing) = look_round(ward)?;
    let (mut report, mut behind) = (Report::default(), 0);
    go_round(ward, &sessions, |_, examined| {
        behind += u64::from(examined.is_index_behind);
        report.add(examined);
    });
    match listing {
        Some(listing) => {
            report.add(ward.examine_directory(&listing));
            ward.of_index(behind).into_iter().for_each(|finding| report.tell(finding));
        }
        None => ward.findings_of_log_about(&sessions).into_iter().for_each(|finding| report.tell(finding)),
    }
    report.summary.sessions = sessions.len() as u64;
    report.summary.is_live = ward.is_live;
    report.sort();
    Ok(report)
}

fn open(disk: SharedDisk, root: &Path, options: &DoctorOptions, mode: Mode) -> Result<Arc<FileStorage>, StorageError> {
    FileStorage::open(disk, root, options.files(mode)).map(Arc::new)
}

/// The sessions to be looked at, and all that lies in the directory if no sessions were named.
fn look_round(ward: &Ward<'_>) -> Result<(Vec<SessionId>, Option<DirectoryListing>), DoctorError> {
    let listing = ward.files.listing()?;
    let wanted = &ward.options.sessions;
    if let Some(missing) = wanted.iter().find(|session| !listing.sessions.contains(session)) {
        return Err(DoctorError::NotFound { session: missing.clone() });
    }
    match wanted.is_empty() {
        true => Ok((listing.sessions.iter().cloned().collect(), Some(listing))),
        false => Ok((wanted.clone(), None)),
    }
}
