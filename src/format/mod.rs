//! Bytes to model and back: journal lines with their checksums, sidecars, the index, the commit log,
//! events sent over HTTP. Pure: no files, no clock.

mod attachment;
mod branch;
mod checksum;
pub mod commit;
mod encode;
mod index;
mod line;
mod salvage;
mod scan;
mod sidecar;
pub mod sse;
mod walk;

pub use attachment::{read_attachment_info, write_attachment_info};
pub use branch::{BadBranch, encode_branch, read_branch};
pub use checksum::with_checksum_restored;
pub(crate) use checksum::{checksum_of, with_checksum};
pub use encode::LineEncoder;
pub use index::{IndexLine, read_index_lines, write_index_line};
pub use line::{EventRef, Ids, LineShape};
pub use salvage::{Salvaged, salvage_session};
pub use scan::{Damage, DamageKind, Record, Scanner};
#[doc(hidden)]
pub use sidecar::is_walked;
pub use sidecar::{Encoded, Head, Unreadable, encode, read_head, read_session};
