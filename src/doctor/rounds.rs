//! Going round all sessions, on all cores, in bounded memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::options::DoctorOptions;
use super::ward::{Examined, Ward};
use crate::format::{LineShape, Scanner};
use crate::model::{RunId, SessionId};
use crate::storage::Storage;
use crate::sync::processors;
use parking_lot::Mutex;

/// Looks at all of these sessions. What each gave is taken over in the order in which they are done.
pub(super) fn go_round(ward: &Ward<'_>, sessions: &[SessionId], take: impl FnMut(&SessionId, Examined) + Send) {
    let threads = threads_for(ward.options, sessions.len(), ward.files.is_by_hand());
    let (next, take) = (AtomicUsize::new(0), Mutex::new(take));
    ward.meter.begin(sessions.len());
    let work = || {
        let mut scanner = idle_scanner();
        while let Some(session) = sessions.get(next.fetch_add(1, Ordering::Relaxed)) {
            let examined = ward.examine(session, &mut scanner);
            ward.meter.count_session();
            (*take.lock())(session, examined);
        }
    };
    if threads <= 1 {
        return work();
    }
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}

fn threads_for(options: &DoctorOptions, sessions: usize, is_by_hand: bool) -> usize {
    match options.threads {
        _ if is_by_hand => 1,
        0 => processors().min(sessions),
        wanted => wanted.min(sessions),
    }
}

/// A scanner that has no journal yet.
pub(super) fn idle_scanner() -> Scanner {
    let nobody = (SessionId::parse("nobody"), RunId::parse("none"));
    let (Ok(session), Ok(run)) = nobody else { unreachable!("these are ids") };
    Scanner::new(LineShape::new(&session, &run), 0)
}
