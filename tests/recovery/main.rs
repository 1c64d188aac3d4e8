//! Interrupted answers, resolved when a session is read: who counts as alive, what belongs to which turn, what many
//! readers do to each other, and that nothing is written when nothing changed.

mod alive;
mod cache;
mod ended;
mod given_up;
mod late;
mod leases;
mod markers;
mod metered;
mod notes;
mod odd;
mod quiet;
mod replaced;
mod scene;
mod shown;
mod slow_disk;
mod together;
mod told;
mod turns;
mod twins;
mod unnumbered;
mod unreadable;
