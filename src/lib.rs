//! Lastword.
pub mod clock;
pub mod entropy;
pub mod format;
pub mod limits;
pub mod model;
pub mod storage;
