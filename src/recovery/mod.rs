//! Recovery of interrupted answers: look at the journals, decide, act.
//!
//! [`look`] reads and changes nothing, [`plan`] is a pure function from a session and what was seen to the session as it
//! should be, and acting is one save of that. Live ends, lazy recovery and offline repair share the same reducer and
//! the same rules. A crash anywhere leaves the session as it was before or as it is after the save, and deciding again
//! gives the same rows: they are known by the numbers of their events.

mod errors;
mod evidence;
mod finding;
mod fold_limit;
mod given_up;
mod large;
mod merge;
mod pending;
mod plan;
mod replace;
mod retry;
mod run_note;
mod turn;
mod watch;

pub use self::evidence::{Evidence, Failure, JournalState, look, look_within, read};
pub use self::fold_limit::fold_limit;
pub use self::given_up::{GivenUp, Said, add_answer, given_up, hope_again};
pub use self::large::{find_missing, store_large, store_missing};
pub use self::pending::{fold_ended, keep_unanswered};
pub use self::plan::{Facts, Plan, RecoveryOptions, Step, plan};
pub use self::replace::{
    Late, Verdict, is_shown, judge, place_of, replace_late, row_print, waits_for_end, without_replaced,
};
pub use self::retry::{fold_late, has_late_marker};
pub use self::run_note::{RunNote, Usage};
pub use self::watch::{Growing, Watch};
