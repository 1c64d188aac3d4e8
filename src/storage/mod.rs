//! The upper seam: a store's documents and journals, wherever they are kept.
//!
//! [`Storage`] is what the rest of the house relies on; local files are one way to provide it, and another engine can
//! stand beside them. [`Disk`] is the seam below local files, so that the protocols of writing, syncing and renaming
//! are themselves what a simulated crash interrupts. Nothing above this folder names a file.

mod commit;
mod contract;
mod directories;
mod disk;
mod error;
mod files;
mod finding;
mod layout;
mod lock;
#[cfg(any(target_os = "linux", test))]
mod network_fs;
mod open_files;
mod os;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod ticket;

pub use commit::CommitOptions;
pub use contract::{
    AppendFailure, Birth, Continuation, Document, DocumentEntry, DocumentHead, Durability, Expected, JournalBytes,
    JournalWriter, ObjectKind, OpenedJournal, ProcessGroup, Put, PutObject, PutOutcome, Seal, Storage, Tail,
};
pub use disk::{Access, DirEntry, Disk, DiskDir, DiskFile, DiskLock, FileKind, FileStat, SharedDisk};
pub use error::StorageError;
#[cfg(feature = "run")]
pub(crate) use error::is_no_descriptor;
pub(crate) use error::with_cause;
pub use files::{
    DirectoryListing, FileStorage, FilesOptions, IdentityFound, LogFound, Mode, NewJournal, OpenToOthers, Purpose,
    RecordFound, RunFound, SessionFound, Strays,
};
pub use finding::{Finding, OnFinding};
pub use layout::Layout;
pub use lock::Holder;
pub use open_files::OpenFileShares;
pub(crate) use os::open_files_max;
#[cfg(any(feature = "openai", feature = "client"))]
pub(crate) use os::read_secret;
pub use os::{OsDisk, raise_open_files};
pub use ticket::{Durable, Ticket};
