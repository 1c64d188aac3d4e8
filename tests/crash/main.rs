//! Everything this store writes, interrupted at every disk operation, on the simulated disk.
//!
//! A workload says what it was told (acknowledged) as it goes. It is run once to count its operations, then up to each
//! of them, and the disk is copied for every choice a crash has at that point. Afterwards: what was acknowledged is
//! there, what was not is absent or whole, a reader sees what the next writer will, opening twice changes nothing more,
//! an opening that is cut leads to the same, and the store takes new work.

mod aftermath;
mod anything;
mod attachments;
mod beside;
mod conversation;
mod damage;
mod deleted;
mod ends;
mod faults;
mod growth;
mod ledger;
mod logged;
mod machine;
mod objects;
mod order;
mod recovery;
mod regenerate;
mod relisted;
mod replay;
mod resources;
mod revisions;
#[path = "../shared/seeds.rs"]
mod seeds;
mod shown;
mod streams;
mod told;
mod values;
mod verdict;
mod view;
mod withheld;
mod workloads;
