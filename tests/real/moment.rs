//! When to kill: after some time, some acknowledgements, some writes to the log, or while the store is closed.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::child::{Acks, CLOSING, STAYING};
use crate::data::visit;
use crate::order::Dice;
use crate::process::Process;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment {
    /// So long after the start: often while the directory is being opened.
    Passed(Duration),
    Acknowledged(u64),
    /// When the files of the log have changed so many times.
    Logged(u64),
    /// So long after everything was sent.
    Over(Duration),
}

impl Moment {
    pub(crate) fn choose(dice: &mut Dice) -> Self {
        match dice.below(8) {
            0..=1 => Moment::Passed(Duration::from_micros(dice.below(60_000))),
            2..=4 => Moment::Acknowledged(1 + dice.below(400)),
            5..=6 => Moment::Logged(1 + dice.below(8)),
            _ => Moment::Over(Duration::from_micros(dice.below(6_000))),
        }
    }

    /// How many events each stream is sent: few if it is about the end.
    pub(crate) fn events(self) -> u64 {
        if matches!(self, Moment::Over(_)) { 8 } else { 80 }
    }

    /// Waits for it, and notes what is acknowledged meanwhile.
    pub(crate) fn wait(self, process: &Process, log: &Path, acks: &mut Acks) {
        match self {
            Moment::Passed(delay) => std::thread::sleep(delay),
            Moment::Acknowledged(count) => listen(process, acks, |acks| acks.count >= count),
            Moment::Logged(changes) => wait_for_changes(log, changes),
            Moment::Over(delay) => {
                listen(process, acks, |_| false);
                std::thread::sleep(delay);
            }
        }
    }
}

/// Listens until enough was said, or everything.
pub(crate) fn listen(process: &Process, acks: &mut Acks, is_enough: impl Fn(&Acks) -> bool) {
    while let Some(line) = process.next_line() {
        acks.note(&line);
        if line == CLOSING || line == STAYING || is_enough(acks) {
            return;
        }
    }
    panic!("the writer ended by itself");
}

/// A writer that has nothing more to say writes no log, so that this does not wait for ever.
fn wait_for_changes(log: &Path, changes: u64) {
    let deadline = Instant::now() + Duration::from_millis(250);
    let (mut seen, mut last) = (0, state_of(log));
    while seen < changes && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(300));
        let now = state_of(log);
        seen += u64::from(now != last);
        last = now;
    }
}

/// How many files the log has, and when one of them was last written.
fn state_of(log: &Path) -> (usize, Option<SystemTime>) {
    let (mut files, mut latest) = (0, None);
    if log.is_dir() {
        visit(log, &mut |path| {
            files += 1;
            latest = latest.max(path.metadata().and_then(|file| file.modified()).ok());
        });
    }
    (files, latest)
}
