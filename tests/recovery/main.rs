//! Interrupted answers, resolved when a session is read: who counts as alive, what belongs to which turn, what many
//! readers do to each other, and that nothing is written when nothing changed.

mod alive;
mod cache;
mod late;
mod quiet;
mod scene;
mod slow_disk;
mod together;
mod turns;
