//! A simulated disk: what the fault model below allows to happen, happens here, on demand and repeatably.
//!
//! # Fault model
//!
//! The disk keeps two images. The *live* image is what running programs see: every call that returned is in it. The
//! *durable* image is what the medium surely holds: bytes of files that were synced, names of directories that were
//! synced. Between the two stand the unsynced changes, in order.
//!
//! **A power cut** ([`SimDisk::power_cut`]) stops every program between two operations. For each file with unsynced
//! changes one of five things is true afterwards:
//! - all of them are there;
//! - none is;
//! - only the first so many are there, the last of these perhaps in part (a torn write);
//! - the file has its new length and nothing else: it reads as it was synced, and as zeroes after the synced end;
//! - the file has its new length, and each page that was changed reached the medium or did not, independently of the
//!   others. A page that did not reads as it was synced, and as zeroes after the synced end, so that zeroes may stand
//!   before good lines, and a later write may be there while an earlier one is not. A page that did was written out
//!   at any moment: with all unsynced changes, or with only the first so many. Pages are 4096 bytes, or
//!   [`SimDisk::with_page_bytes`]. Within a page writes keep their order.
//!
//! For each unsynced change of a directory (create, rename, remove, new folder), it happened or it did not,
//! independently of the others and therefore in any order. A rename is one change, even between two directories, and
//! stands once both are synced. A file whose last name is lost is lost. Which of all this happens is a [`Crash`]: one
//! that is chosen, one from a list of all choices for one place and for two ([`SimDisk::crashes`]), or a seed.
//!
//! **A reboot** ([`SimDisk::reboot`]) is an orderly one: everything is kept. **The death of a process**
//! ([`SimDisk::kill`]) takes nothing from the live image either. All three end what programs held, open files and locks.
//! After a power cut and after a reboot the machine has another boot id; after the death of a process it has the same.
//!
//! **Faults of one operation** ([`SimDisk::fail`]) strike the n-th operation: it fails with EIO or ENOSPC without effect,
//! or a write takes only some of its bytes, or a sync fails after some of the pages were written. They end with the life
//! of the programs and come before those that last.
//!
//! **Faults that last** go on over kills, reboots and power cuts, until they are ended:
//! - A full disk ([`SimDisk::fill`] until [`SimDisk::make_room`]): what takes new space fails with ENOSPC, namely new
//!   files, new directories, and making a file longer. A write that begins within a file takes the bytes up to its end.
//!   Writing over what is there, cuts, syncs, renames and removals go on, and removals do not make room. With
//!   [`SimDisk::copy_on_write`] writing over what is there fails too.
//! - A disk that finds out late that it is full ([`SimDisk::fill_at_sync`] until [`SimDisk::make_room`]): writes succeed,
//!   syncs fail with ENOSPC.
//! - A disk of a certain size ([`SimDisk::set_capacity`]): it tells how much is free, takes as much of a write as there is
//!   room for, and has room again when a file is removed and closed.
//! - A bound on open files ([`SimDisk::limit_open_files`]): opening one more file, directory or lock fails with EMFILE.
//! - A device that no longer syncs ([`SimDisk::break_syncs`] until [`SimDisk::mend_syncs`]): each sync fails with EIO.
//! - A file that cannot be read ([`SimDisk::break_reads`] until [`SimDisk::mend_reads`]): reading its bytes, or listing
//!   a folder, fails with EIO. The damage belongs to the file, not to its name.
//!
//! A sync of a file that fails forgets: what it should have made durable stays visible and never becomes durable,
//! whatever later syncs say, because a kernel marks such pages clean. A reboot loses it. With [`Fault::PartialSync`] some
//! of the pages reached the medium before. A sync of a directory that fails changes nothing; the next one makes up for it.
//!
//! **Users and links.** Every file and directory has an owner and a mode ([`SimDisk::set_owner`], [`SimDisk::set_mode`]),
//! and programs run as one user ([`SimDisk::run_as`]): opening, listing, creating, renaming and removing fail with EACCES
//! where the bits of owner or others do not allow it. There are no groups. Symbolic links ([`SimDisk::symlink`]) are followed
//! where a system follows them. A directory can be another file system ([`SimDisk::mount`]); a rename between two of them
//! fails with EXDEV. None of this is lost by a crash.
//!
//! **Inodes and times.** A file's inode number is never given again, unless [`SimDisk::with_inode_reuse`] says so. Every change
//! takes a nanosecond of the disk's own time, and modification times show each of them, unless
//! [`SimDisk::with_coarse_clock`] or [`SimDisk::with_coarse_times`] says otherwise; [`SimDisk::with_last_time`] sets the last one
//! that can be kept. A modification time is durable when the file is synced; a crash may show the one before.
//!
//! **Late visibility** ([`SimDisk::hide`]): the next looks at a path find nothing there, and then it appears, as on a
//! network file system. Looks are opening to read or to write, asking what is known of the path, and each listing that
//! should show it; a look at something below a hidden folder is one too. Only looks are deceived: whoever creates,
//! locks, renames or removes meets what is there, and open files stay open.
//!
//! **Bit rot** ([`SimDisk::rot`], [`SimDisk::rot_any`]): nothing rots unless asked. Then one bit flips in every copy of
//! the byte, live, durable and unsynced, and only writing the byte anew brings it back.
//!
//! Operations are those that change something: creations, writes, cuts, syncs, renames, removals, new folders, syncs of
//! folders. Looks are counted apart ([`SimDisk::looks`]), and of reads their bytes ([`SimDisk::bytes_read`]). The disk never lies about a sync that succeeded.
//!
//! The same calls in the same order give the same disk and the same log: there is no time, no thread and no chance in
//! here but the seeds that are given.
//!
//! # Example
//!
//! ```
//! use lastword::storage::sim::{Crash, SimDisk};
//! use lastword::storage::{Access, Disk};
//! use std::path::Path;
//!
//! let disk = SimDisk::new();
//! let file = disk.open(Path::new("/note"), Access::CreateNew)?;
//! file.write_at(b"hello", 0)?;
//! file.sync()?;
//! disk.power_cut(Crash::LoseAll);
//! // The bytes were synced, but the name was not: the folder needs a sync of its own.
//! assert!(disk.open(Path::new("/note"), Access::Read).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # A suite of your own
//!
//! `examples/crash_suite.rs` is one to copy: a program of a stranger and a [`Store`](crate::Store), each crashed at every
//! operation and then, by proptest, anywhere. Every choice at every operation comes down to this:
//!
//! ```
//! use lastword::storage::sim::SimDisk;
//! # use lastword::storage::{Access, Disk};
//! # use std::{io, path::Path};
//! # fn work(disk: &SimDisk) -> io::Result<()> {
//! #     let file = disk.open(Path::new("/note"), Access::CreateNew)?;
//! #     file.write_at(b"hello", 0)?;
//! #     file.sync()?;
//! #     disk.sync_dir(Path::new("/"))
//! # }
//! # fn check(disk: &SimDisk, acknowledged: bool) {
//! #     assert!(!acknowledged || disk.files()[Path::new("/note")] == b"hello");
//! # }
//!
//! let whole = SimDisk::new();
//! work(&whole)?;
//! for operation in 1..=whole.operations() + 1 {
//!     let disk = SimDisk::new();
//!     disk.stop_before(operation);
//!     let acknowledged = work(&disk).is_ok();
//!     for crash in disk.crashes(100) {
//!         let disk = disk.copy();
//!         disk.power_cut(crash);
//!         check(&disk, acknowledged);
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod bytes;
mod calls;
mod choices;
mod crash;
mod faults;
mod image;
mod path;
mod setup;

pub use crate::sync::schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::crash::{Crash, Fate, Places};
pub use self::faults::Fault;
use self::faults::{Demand, Faults};
use self::image::Image;
use crate::entropy::SeededEntropy;

/// A simulated disk, and the machine around it. Clones are the same disk; [`SimDisk::copy`] is another.
#[derive(Clone)]
pub struct SimDisk {
    machine: Arc<Mutex<Machine>>,
    observer: Arc<Mutex<Option<Observer>>>,
}

/// Called before each operation.
type Observer = Arc<dyn Fn(&SimDisk) + Send + Sync>;

/// The disk and the machine around it, which can lose power.
#[derive(Clone)]
struct Machine {
    image: Image,
    operations: u64,
    looks: u64,
    bytes_read: u64,
    log: Vec<String>,
    faults: Faults,
    stop_at: Option<u64>,
    is_stopped: bool,
    boots: u64,
    /// Counts the lives of programs: files and locks of an earlier life are dead.
    life: u64,
    locked: Vec<u64>,
    /// Files, directories and locks that are open, and how many may be.
    open_files: usize,
    open_files_max: Option<usize>,
    /// Bytes that all files together have room for.
    capacity: Option<u64>,
    /// How many file systems there are.
    devices: u64,
    has_boot_id: bool,
    network_file_system: Option<&'static str>,
    /// How long a sync takes, in the time of a schedule.
    sync_time: Duration,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

/// Setting it up, and looking at it from outside.
impl SimDisk {
    /// The user that owns a new disk and that programs run as.
    pub const USER: u32 = 1000;

    /// An empty disk.
    pub fn new() -> Self {
        let machine = Machine {
            image: Image::new(SimDisk::USER),
            operations: 0,
            looks: 0,
            bytes_read: 0,
            log: Vec::new(),
            faults: Faults::default(),
            stop_at: None,
            is_stopped: false,
            boots: 1,
            life: 1,
            locked: Vec::new(),
            open_files: 0,
            open_files_max: None,
            capacity: None,
            devices: 1,
            has_boot_id: true,
            network_file_system: None,
            sync_time: Duration::ZERO,
        };
        SimDisk { machine: Arc::new(Mutex::new(machine)), observer: Arc::default() }
    }

    /// The same disk with pages of this many bytes, at least one. Small pages give small files several of them.
    pub fn with_page_bytes(self, bytes: usize) -> Self {
        self.machine.lock().image.page_bytes = bytes.max(1);
        self
    }

    /// Another disk in the same state, so that one run of a program can end in many ways. Files and locks that are open
    /// belong to the first disk alone; on the copy their programs are dead, as after [`SimDisk::kill`], but what was
    /// set to stop or to fail still is.
    pub fn copy(&self) -> SimDisk {
        let mut machine = self.machine.lock().clone();
        machine.end_programs();
        SimDisk { machine: Arc::new(Mutex::new(machine)), observer: Arc::default() }
    }

    /// Calls back before each operation, on the thread that makes it, until another is set. Copies of the disk do not. What
    /// is called may copy the disk and look at it from outside, but make no operation.
    pub fn observe(&self, observer: impl Fn(&SimDisk) + Send + Sync + 'static) {
        *self.observer.lock() = Some(Arc::new(observer));
    }

    /// A step of the schedule that the caller may run under, and an operation to be observed.
    fn arrive(&self) {
        schedule::step();
        let observer = self.observer.lock().clone();
        if let Some(observer) = observer {
            observer(self);
        }
    }

    /// How many operations were begun since the disk was made.
    pub fn operations(&self) -> u64 {
        self.machine.lock().operations
    }

    /// How often a file or directory was opened, listed or looked at by its name since the disk was made.
    pub fn looks(&self) -> u64 {
        self.machine.lock().looks
    }

    /// How many bytes of files were read since the disk was made.
    pub fn bytes_read(&self) -> u64 {
        self.machine.lock().bytes_read
    }

    /// The operations, each in a line, and between them what was done to the disk.
    pub fn log(&self) -> Vec<String> {
        self.machine.lock().log.clone()
    }

    /// Every file that has a name, with the bytes that programs see. This is no look and nothing hides from it.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let machine = self.machine.lock();
        machine.image.files().into_iter().map(|(path, file)| (path, file.live().to_vec())).collect()
    }

    /// How many files and directory changes have something unsynced: the places at which a crash has a choice.
    pub fn unsynced(&self) -> usize {
        self.places().count()
    }

    /// The same, files and directory changes apart.
    pub fn places(&self) -> Places {
        self.machine.lock().image.places()
    }

    /// At most `cap` choices for a power cut now, in the order of [`Crash::enumerate`].
    pub fn crashes(&self, cap: usize) -> impl Iterator<Item = Crash> + use<> {
        Crash::enumerate(self.places(), cap)
    }
}

/// How a life of the programs ends.
impl SimDisk {
    /// Stops every program before the operation of this number, counted from 1: from then on all calls fail, until
    /// [`SimDisk::power_cut`], [`SimDisk::reboot`] or [`SimDisk::kill`].
    pub fn stop_before(&self, operation: u64) {
        self.machine.lock().stop_at = Some(operation);
    }

    /// Whether it came to that: a program that failed without it has failed by itself.
    pub fn has_stopped(&self) -> bool {
        self.machine.lock().is_stopped
    }

    /// The power goes, and comes back. What was not synced is there or not, as the choice says. The machine has a new
    /// boot id.
    pub fn power_cut(&self, crash: Crash) {
        let mut machine = self.machine.lock();
        machine.image.crash(crash);
        machine.boots += 1;
        machine.begin_life();
        machine.log.push(format!("power cut, {crash:?}"));
    }

    /// The machine shuts down in order and starts again. Everything that can still be made durable is, and there is a
    /// new boot id.
    pub fn reboot(&self) {
        let mut machine = self.machine.lock();
        machine.image.crash(Crash::KeepAll);
        machine.boots += 1;
        machine.begin_life();
        machine.log.push("reboot".to_owned());
    }

    /// Every program dies; the disk and the operating system go on, and the boot id stays.
    pub fn kill(&self) {
        let mut machine = self.machine.lock();
        machine.begin_life();
        machine.log.push("kill".to_owned());
    }
}

/// What goes wrong.
impl SimDisk {
    /// Lets the operation of this number, counted from 1, fail.
    pub fn fail(&self, operation: u64, fault: Fault) {
        self.machine.lock().faults.set(operation, fault);
    }

    /// The disk is full from the operation of this number on, until [`SimDisk::make_room`].
    pub fn fill(&self, operation: u64) {
        self.machine.lock().faults.set_full(Some(operation));
    }

    /// There is room again.
    pub fn make_room(&self) {
        let mut machine = self.machine.lock();
        machine.faults.set_full(None);
        machine.faults.set_no_space_at_sync(None);
    }

    /// Every sync of a file or folder fails with EIO from the operation of this number on, until
    /// [`SimDisk::mend_syncs`].
    pub fn break_syncs(&self, operation: u64) {
        self.machine.lock().faults.set_syncs_fail(Some(operation));
    }

    /// Syncs succeed again. What they forgot meanwhile stays forgotten.
    pub fn mend_syncs(&self) {
        self.machine.lock().faults.set_syncs_fail(None);
    }

    /// The bytes of the file at this path, or the names of the folder, cannot be read: EIO, until
    /// [`SimDisk::mend_reads`]. Fails if nothing is there.
    pub fn break_reads(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.machine.lock().set_unreadable(path.as_ref(), true)
    }

    /// What is at this path can be read again. Fails if nothing is there.
    pub fn mend_reads(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.machine.lock().set_unreadable(path.as_ref(), false)
    }

    /// The next `looks` looks at this path find nothing there, whatever is; then it appears. 0 shows it at once.
    pub fn hide(&self, path: impl AsRef<Path>, looks: u64) {
        let (path, mut machine) = (path.as_ref(), self.machine.lock());
        machine.faults.hide(path, looks);
        machine.log.push(format!("hide {} for {looks} looks", path.display()));
    }

    /// Flips one bit, 0 to 7, of one byte of a file. Fails if there is no such file, byte or bit.
    pub fn rot(&self, path: impl AsRef<Path>, byte: u64, bit: u8) -> io::Result<()> {
        let (path, mut machine) = (path.as_ref(), self.machine.lock());
        machine.image.rot(path, byte, bit)?;
        machine.log.push(format!("rot {} byte {byte} bit {bit}", path.display()));
        Ok(())
    }

    /// Flips one bit somewhere, every bit of every file being as likely, and says where: path, byte and bit. Without
    /// effect if there is not a byte on the disk.
    pub fn rot_any(&self, seed: u64) -> Option<(PathBuf, u64, u8)> {
        let (path, byte, bit) = self.machine.lock().any_bit(seed)?;
        self.rot(&path, byte, bit).ok()?;
        Some((path, byte, bit))
    }
}

impl Machine {
    fn end_programs(&mut self) {
        self.life += 1;
        self.locked.clear();
        self.open_files = 0;
        self.image.open.clear();
    }

    fn close(&mut self, number: u64) {
        self.open_files -= 1;
        let open = self.image.open.entry(number).or_default();
        *open -= 1;
        if *open == 0 {
            self.image.open.remove(&number);
        }
    }

    fn begin_life(&mut self) {
        self.end_programs();
        self.stop_at = None;
        self.is_stopped = false;
        self.faults.begin_life();
    }

    fn check_running(&self) -> io::Result<()> {
        if self.is_stopped { Err(io::Error::other("the simulated machine has stopped")) } else { Ok(()) }
    }

    /// Counts an operation, and stops or fails it if it is its turn. A short write is left to the caller.
    fn begin(&mut self, demand: Demand, what: impl FnOnce() -> String) -> io::Result<Option<Fault>> {
        self.check_running()?;
        if self.stop_at == Some(self.operations + 1) {
            self.is_stopped = true;
            return self.check_running().map(|()| None);
        }
        self.operations += 1;
        let number = self.operations;
        let fault = self.faults.strike(number, demand);
        let trouble = fault.map(|fault| format!(" !{fault:?}")).unwrap_or_default();
        self.log.push(format!("{number} {}{trouble}", what()));
        match fault {
            Some(Fault::Eio) => Err(device_error()),
            Some(Fault::PartialSync(_)) if !matches!(demand, Demand::Sync) => Err(device_error()),
            Some(Fault::Enospc) => Err(io::ErrorKind::StorageFull.into()),
            other => Ok(other),
        }
    }

    fn set_unreadable(&mut self, path: &Path, is_unreadable: bool) -> io::Result<()> {
        let inode = self.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        self.faults.set_unreadable(inode, is_unreadable);
        Ok(())
    }

    /// A bit of a byte of a file, all as likely.
    fn any_bit(&self, seed: u64) -> Option<(PathBuf, u64, u8)> {
        let files = self.image.files();
        let bits: u64 = files.values().map(|file| file.live().len() as u64 * 8).sum();
        let mut at = SeededEntropy::new(seed).next_u64().checked_rem(bits)?;
        for (path, file) in files {
            let own = file.live().len() as u64 * 8;
            if at < own {
                return Some((path, at / 8, (at % 8) as u8));
            }
            at -= own;
        }
        None
    }
}

/// EIO.
fn device_error() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
