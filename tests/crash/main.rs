//! Everything this store writes, interrupted at every disk operation, on the simulated disk.
//!
//! A workload says what it was told (acknowledged) as it goes. It is run once to count its operations, then once more
//! for every operation and every choice a crash has at that point. Afterwards: what was acknowledged is there, what was
//! not is absent or whole, opening twice changes nothing more, and the store takes new work.

mod aftermath;
mod faults;
mod machine;
mod recovery;
mod told;
mod workloads;
