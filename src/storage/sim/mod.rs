//! A simulated disk: what the fault model below allows to happen, happens here, on demand and repeatably.
//!
//! # Fault model
//!
//! The disk keeps two images. The *live* image is what running programs see: every call that returned is in it. The
//! *durable* image is what the medium surely holds: bytes of files that were synced, names of directories that were
//! synced. Between the two stand the unsynced changes, in order.
//!
//! **A power cut** stops every program between two operations. For each file with unsynced changes one of four things
//! is true afterwards: all of them are there; none is; only the first so many, the last of these perhaps in part (a
//! torn write); or the file has its new length, but what was not synced reads as zeroes. For each unsynced change of a
//! directory (create, rename, remove, new folder), it happened or it did not, independently of the others and
//! therefore in any order. A rename is one change, even between two directories, and stands once both are synced. A
//! file whose last name is lost is lost.
//!
//! **The death of a process** takes nothing from the live image and lets its locks go.
//!
//! **Faults** can be set for the n-th operation: it fails with EIO or ENOSPC without effect, or a write takes only some
//! of its bytes. A sync of a file that fails forgets: what it should have made durable stays visible and never becomes
//! durable, whatever later syncs say, because a kernel marks such pages clean. A sync of a directory that fails changes
//! nothing; the next one makes up for it.
//!
//! Operations are those that change something: creations, writes, cuts, syncs, renames, removals, new folders, syncs of
//! folders. Reads are not counted and do not fail. Bytes on the medium do not rot here, and the disk never lies about a
//! sync that succeeded.
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

mod crash;
mod image;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::crash::Crash;
use self::image::{Change, Image, Inode};
use super::disk::{Access, DirEntry, Disk, DiskFile, DiskLock, FileStat};

/// What goes wrong with one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device fails.
    Eio,
    /// The disk is full.
    Enospc,
    /// A write takes only so many bytes. Other operations are not affected.
    ShortWrite(usize),
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    machine: Arc<Mutex<Machine>>,
}

/// The disk and the machine around it, which can lose power.
struct Machine {
    image: Image,
    operations: u64,
    log: Vec<String>,
    faults: Vec<(u64, Fault)>,
    stop_at: Option<u64>,
    is_stopped: bool,
    boots: u64,
    /// Counts the lives of programs: files and locks of an earlier life are dead.
    life: u64,
    locked: Vec<u64>,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        let machine = Machine {
            image: Image::new(),
            operations: 0,
            log: Vec::new(),
            faults: Vec::new(),
            stop_at: None,
            is_stopped: false,
            boots: 1,
            life: 1,
            locked: Vec::new(),
        };
        SimDisk { machine: Arc::new(Mutex::new(machine)) }
    }

    /// How many operations were begun since the disk was made.
    pub fn operations(&self) -> u64 {
        self.machine.lock().operations
    }

    /// The operations, each in a line.
    pub fn log(&self) -> Vec<String> {
        self.machine.lock().log.clone()
    }

    /// Stops every program before the operation of this number, counted from 1: from then on all calls fail, until
    /// [`SimDisk::power_cut`] or [`SimDisk::kill`].
    pub fn stop_before(&self, operation: u64) {
        self.machine.lock().stop_at = Some(operation);
    }

    /// Lets the operation of this number, counted from 1, fail.
    pub fn fail(&self, operation: u64, fault: Fault) {
        self.machine.lock().faults.push((operation, fault));
    }

    /// How many files and directory changes have something unsynced: the places at which a crash has a choice.
    pub fn unsynced(&self) -> usize {
        self.machine.lock().image.unsynced()
    }

    /// The power goes, and comes back. What was not synced is there or not, as the choice says.
    pub fn power_cut(&self, crash: Crash) {
        let mut machine = self.machine.lock();
        machine.image.crash(crash);
        machine.boots += 1;
        machine.begin_life();
        machine.log.push(format!("power cut, {crash:?}"));
    }

    /// Every program dies; the disk and the operating system go on.
    pub fn kill(&self) {
        let mut machine = self.machine.lock();
        machine.begin_life();
        machine.log.push("kill".to_owned());
    }
}

impl Machine {
    fn begin_life(&mut self) {
        self.life += 1;
        self.locked.clear();
        self.stop_at = None;
        self.is_stopped = false;
        self.faults.clear();
    }

    fn check_running(&self) -> io::Result<()> {
        if self.is_stopped { Err(io::Error::other("the simulated machine has stopped")) } else { Ok(()) }
    }

    /// Counts an operation, and stops or fails it if it is its turn. A short write is left to the caller.
    fn begin(&mut self, what: impl FnOnce() -> String) -> io::Result<Option<Fault>> {
        self.check_running()?;
        if self.stop_at == Some(self.operations + 1) {
            self.is_stopped = true;
            return self.check_running().map(|()| None);
        }
        self.operations += 1;
        let number = self.operations;
        let fault = self.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        let trouble = fault.map(|fault| format!(" !{fault:?}")).unwrap_or_default();
        self.log.push(format!("{number} {}{trouble}", what()));
        match fault {
            Some(Fault::Eio) => Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Enospc) => Err(io::ErrorKind::StorageFull.into()),
            other => Ok(other),
        }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let inode = match (machine.image.find(path)?, access) {
            (Some(inode), Access::Read | Access::Write) => {
                let is_dir = matches!(machine.image.inode(inode)?, Inode::Dir { .. });
                if is_dir && access == Access::Write {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                inode
            }
            (Some(_), Access::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, Access::Read | Access::Write) => return Err(io::ErrorKind::NotFound.into()),
            (None, Access::CreateNew) => {
                machine.begin(|| format!("create {}", path.display()))?;
                machine.image.create_file(path)?
            }
        };
        Ok(Box::new(SimFile { disk: self.clone(), inode, life: machine.life, path: path.display().to_string() }))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let machine = self.machine.lock();
        machine.check_running()?;
        let inode = machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.image.stat(inode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        machine.image.find(from)?.ok_or(io::ErrorKind::NotFound)?;
        machine.begin(|| format!("rename {} to {}", from.display(), to.display()))?;
        machine.image.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.begin(|| format!("remove {}", path.display()))?;
        machine.image.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        if machine.image.find(path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        machine.begin(|| format!("create folder {}", path.display()))?;
        machine.image.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let machine = self.machine.lock();
        machine.check_running()?;
        machine.image.read_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let inode = machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.begin(|| format!("sync folder {}", path.display()))?;
        machine.image.sync_dir(inode);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let existing = self.machine.lock().image.find(path)?;
        let access = if existing.is_some() { Access::Write } else { Access::CreateNew };
        self.open(path, access)?;
        let mut machine = self.machine.lock();
        let inode = machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        if machine.locked.contains(&inode) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        machine.locked.push(inode);
        let file = SimFile { disk: self.clone(), inode, life: machine.life, path: path.display().to_string() };
        Ok(Box::new(SimLock { file }))
    }

    fn network_file_system(&self, _path: &Path) -> io::Result<Option<&'static str>> {
        Ok(None)
    }

    fn is_by_hand(&self) -> bool {
        true
    }

    fn boot_id(&self) -> String {
        format!("simulated-boot-{}", self.machine.lock().boots)
    }
}

/// An open simulated file. It dies with the life it was opened in.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
    life: u64,
    path: String,
}

impl SimFile {
    fn with<T>(&self, work: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
        let mut machine = self.disk.machine.lock();
        machine.check_running()?;
        if machine.life != self.life {
            return Err(io::Error::other("the program that opened this file is dead"));
        }
        work(&mut machine)
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|machine| machine.image.read(self.inode, buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|machine| {
            let fault = machine.begin(|| format!("write {} at {offset}, {} bytes", self.path, bytes.len()))?;
            let taken = match fault {
                Some(Fault::ShortWrite(taken)) => taken.min(bytes.len()),
                _ => bytes.len(),
            };
            machine.image.change(self.inode, Change::Write { offset, bytes: bytes[..taken].to_vec() })?;
            Ok(taken)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|machine| {
            machine.begin(|| format!("cut {} to {len}", self.path))?;
            machine.image.change(self.inode, Change::SetLen(len))
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|machine| match machine.begin(|| format!("sync {}", self.path)) {
            Ok(_) => machine.image.sync(self.inode),
            Err(cause) => {
                if !machine.is_stopped {
                    machine.image.forget_unsynced(self.inode)?;
                }
                Err(cause)
            }
        })
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.with(|machine| machine.image.stat(self.inode))
    }
}

#[derive(Debug)]
struct SimLock {
    file: SimFile,
}

impl DiskLock for SimLock {
    fn file(&self) -> &dyn DiskFile {
        &self.file
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut machine = self.file.disk.machine.lock();
        if machine.life == self.file.life {
            machine.locked.retain(|inode| *inode != self.file.inode);
        }
    }
}

#[cfg(test)]
mod tests;
