//! Every byte that we write, cut and changed: each fixture cut at every length and flipped at every bit.
//!
//! Whatever happens to a file, nothing panics, nothing wrong is taken for checked, everything undamaged around the damage
//! is there, and the damage is told with its place. First the readers alone, which is quick enough to try everything;
//! then the store on the simulated disk, where larger things are sampled with a fixed seed. A file of a new kind gets a
//! module of its own here, and a rule in `seeds`.

mod commit_log;
mod data;
mod indexes;
mod journals;
mod mutations;
mod seeds;
mod sidecars;
mod small_files;
mod stores;

// What must hold for any bytes, shared with the fuzz targets.
#[path = "../../fuzz/rules/commit.rs"]
mod commit_rules;
#[path = "../../fuzz/rules/index.rs"]
mod index_rules;
#[path = "../../fuzz/rules/journal.rs"]
mod journal_rules;
#[path = "../../fuzz/rules/sidecar.rs"]
mod sidecar_rules;
