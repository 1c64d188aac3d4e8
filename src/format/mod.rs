//! Bytes to model and back: journal lines with their checksums, sidecars. Pure: no files, no clock.

mod encode;
mod line;
mod scan;
mod sidecar;

pub use encode::LineEncoder;
pub use line::{EventRef, Ids, LineShape};
pub use scan::{Damage, DamageKind, Record, Scanner};
pub use sidecar::{Encoded, Head, Unreadable, encode, read_head, read_session};
