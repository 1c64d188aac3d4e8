//! Bytes to model and back: journal lines with their checksums, sidecars. Pure: no files, no clock.

mod line;
mod scan;
mod sidecar;

pub use line::{EventRef, Ids, LineEncoder, LineShape};
pub use scan::{Damage, DamageKind, Record, Scanner};
pub use sidecar::{Encoded, Head, Unreadable, encode, read_head, read_session};
