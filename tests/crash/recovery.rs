//! Recovery itself is interrupted: at every operation, in every way, and again while it recovers from that.
//!
//! Each scene is what an earlier process left behind. It is resolved once without a crash; after any crash the next read
//! must lead to the same bytes, with every acknowledged text once, and the journal as it was.

mod anything;
mod attempts;
mod edges;
mod files;
mod judge;
mod scenes;

use lastword::storage::sim::{Crash, SimDisk};

use self::judge::{Files, files};
use self::scenes::{LATER, Scene, scenes};
use crate::machine::{End, ended};

/// Pairs of crashes, taken in turn: all of them at every place would be too many.
const PAIRS: [(End, End); 2] =
    [(End::Kill, End::Power(Crash::Seeded(1))), (End::Power(Crash::LoseAll), End::Power(Crash::KeepAll))];

impl Scene {
    fn laid(&self) -> SimDisk {
        let disk = SimDisk::new();
        (self.lay)(&disk);
        disk
    }

    /// The files after a recovery that nothing disturbed.
    fn undisturbed(&self) -> Files {
        let disk = self.laid();
        let before = files(&disk);
        (self.resolve)(&disk).unwrap();
        let after = files(&disk);
        assert_eq!(after.journal, before.journal, "{}: reading never writes a journal", self.name);
        assert_ne!(after.sidecar, before.sidecar, "{}: there was nothing to resolve", self.name);
        self.expected().check(&disk, LATER, self.name);
        after
    }

    /// Stops the recovery before this operation. Nothing if it has fewer.
    fn stop(&self, disk: &SimDisk, operation: u64) -> Option<()> {
        disk.stop_before(disk.operations() + operation);
        (self.resolve)(disk).is_err().then_some(())
    }

    /// Recovers, and compares with what an undisturbed recovery gave.
    fn check(&self, disk: &SimDisk, undisturbed: &Files, what: &str) {
        let what = format!("{}, {what}\n{}", self.name, disk.log().join("\n"));
        (self.resolve)(disk).unwrap_or_else(|error| panic!("it does not recover: {error:?}: {what}"));
        assert_eq!(&files(disk), undisturbed, "{what}");
        self.expected().check(disk, LATER, &what);
    }

    /// Each operation of the recovery, and the disk on which it was stopped before it.
    fn stopped(&self) -> Vec<(u64, SimDisk)> {
        let laid = self.laid();
        let stopped = |operation| {
            let disk = laid.copy();
            self.stop(&disk, operation).map(|()| (operation, disk))
        };
        (1..).map_while(stopped).collect()
    }

    fn crash_everywhere(&self) {
        let undisturbed = self.undisturbed();
        let stopped = self.stopped();
        assert!(stopped.len() >= 5, "{}: a save has more than {} operations", self.name, stopped.len());
        for (operation, stopped) in stopped {
            for (end, disk) in ended(&stopped) {
                self.check(&disk, &undisturbed, &format!("operation {operation}, {end:?}"));
            }
        }
    }

    /// A second crash, at each operation of the recovery from the first.
    fn crash_twice(&self) {
        let undisturbed = self.undisturbed();
        for ((first, stopped), (end, again)) in self.stopped().into_iter().zip(PAIRS.into_iter().cycle()) {
            end.strike(&stopped);
            self.crash_again(&stopped, again, &undisturbed, &format!("operation {first}, {end:?}"));
        }
    }

    fn crash_again(&self, crashed: &SimDisk, again: End, undisturbed: &Files, what: &str) {
        for second in 1.. {
            let disk = crashed.copy();
            let is_through = self.stop(&disk, second).is_none();
            again.strike(&disk);
            self.check(&disk, undisturbed, &format!("{what}, operation {second}, {again:?}"));
            if is_through {
                return;
            }
        }
    }
}

#[test]
fn a_recovery_cut_anywhere_gives_the_same_bytes() {
    scenes().iter().for_each(Scene::crash_everywhere);
}

#[test]
fn a_recovery_cut_while_it_recovers_from_a_cut_gives_the_same_bytes() {
    scenes().iter().for_each(Scene::crash_twice);
}
