//! Setting up the machine around a simulated disk: users and permissions, links, other file systems, how many files may
//! be open, how much room there is, and how the file system counts inodes and time.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::image::Inode;
use super::path::SUPERUSER;
use super::{Machine, SimDisk};

/// How long things take.
impl SimDisk {
    /// Lets each sync of a file or directory take this much time of the [`schedule`](super::schedule) that its caller runs
    /// under. What was written meanwhile is not part of it.
    pub fn set_sync_time(&self, time: Duration) {
        self.machine.lock().sync_time = time;
    }
}

/// Who programs run as, and what they may do.
impl SimDisk {
    /// The user that programs run as from now on. 0 may do anything; new disks belong to [`SimDisk::USER`], and programs
    /// run as that.
    pub fn run_as(&self, user: u32) {
        self.machine.lock().image.user = user;
    }

    /// Gives what is at this path to a user. Fails if nothing is there.
    pub fn set_owner(&self, path: impl AsRef<Path>, owner: u32) -> io::Result<()> {
        self.machine.lock().with_node(path.as_ref(), |machine, number| {
            machine.image.node_mut(number)?.owner = owner;
            Ok(())
        })
    }

    /// Sets the permission bits of what is at this path: those of its owner, and those of others. Fails if nothing is
    /// there.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        self.machine.lock().with_node(path.as_ref(), |machine, number| {
            machine.image.node_mut(number)?.mode = mode;
            Ok(())
        })
    }

    /// The permission bits of what is at this path. Fails if nothing is there.
    pub fn mode(&self, path: impl AsRef<Path>) -> io::Result<u32> {
        self.machine.lock().with_node(path.as_ref(), |machine, number| Ok(machine.image.node(number)?.mode))
    }

    /// Puts a symbolic link there, durably. Fails if the name is taken.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let mut machine = self.machine.lock();
        let place = machine.image.resolve(link.as_ref(), SUPERUSER, false)?;
        if place.node.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (dir, name) = place.named()?;
        machine.image.add((dir, name), Inode::Link(target.as_ref().to_owned()))?;
        machine.image.sync_dir(dir);
        Ok(())
    }

    /// Makes a directory, and everything in it, another file system: nothing can be renamed into it or out of it (EXDEV).
    /// Fails if there is no such directory.
    pub fn mount(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.devices += 1;
        let device = machine.devices;
        machine.with_node(path.as_ref(), |machine, number| {
            machine.image.names(number)?;
            machine.image.set_device(number, device);
            Ok(())
        })
    }
}

/// What there is only so much of.
impl SimDisk {
    /// Limits how many files, directories and locks programs may have open at the same time; `None` is no limit. Opening
    /// one more fails with EMFILE.
    pub fn limit_open_files(&self, most: Option<usize>) {
        self.machine.lock().open_files_max = most;
    }

    /// How many files, directories and locks are open now.
    pub fn open_files(&self) -> usize {
        self.machine.lock().open_files
    }

    /// Limits the bytes that all files together may hold; `None` is no limit. What is open or has a name takes room.
    /// [`Disk::free_bytes`](crate::storage::Disk::free_bytes) tells what is left; a write takes as much as there is room
    /// for.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine.lock().capacity = bytes;
    }

    /// While the disk is full, bytes in the place of others need space too, as on a file system that never overwrites in
    /// place.
    pub fn copy_on_write(&self, is_copy_on_write: bool) {
        self.machine.lock().faults.set_copy_on_write(is_copy_on_write);
    }

    /// From the operation of this number on, writes find room and syncs find that there is none (ENOSPC), as where space is
    /// allocated late; until [`SimDisk::make_room`].
    pub fn fill_at_sync(&self, operation: u64) {
        self.machine.lock().faults.set_no_space_at_sync(Some(operation));
    }
}

/// How the file system counts.
impl SimDisk {
    /// The same disk, on which the inode number of a file that is gone for good is given to the next one.
    pub fn with_inode_reuse(self) -> Self {
        self.machine.lock().image.reuses_inodes = true;
        self
    }

    /// The same disk, on which the kernel's clock moves on by `tick_nanos` at a time: changes in between have the same
    /// modification time. Every change of the disk takes a nanosecond.
    pub fn with_coarse_clock(self, tick_nanos: u64) -> Self {
        self.machine.lock().image.times.tick_nanos = i128::from(tick_nanos.max(1));
        self
    }

    /// The same disk, whose file system keeps modification times in multiples of `kept_nanos`.
    pub fn with_coarse_times(self, kept_nanos: u64) -> Self {
        self.machine.lock().image.times.kept_nanos = i128::from(kept_nanos.max(1));
        self
    }

    /// The same disk, whose file system knows no later modification time than this, in nanoseconds since 1970: it keeps this
    /// one instead.
    pub fn with_last_time(self, last_nanos: i128) -> Self {
        self.machine.lock().image.times.last_nanos = last_nanos;
        self
    }

    /// The same disk, which says that it lies on this network file system.
    pub fn on_network_file_system(self, kind: &'static str) -> Self {
        self.machine.lock().network_file_system = Some(kind);
        self
    }

    /// The same disk in a machine that does not tell one boot from another.
    pub fn without_boot_id(self) -> Self {
        self.machine.lock().has_boot_id = false;
        self
    }
}

impl Machine {
    fn with_node<T>(&mut self, path: &Path, work: impl FnOnce(&mut Self, u64) -> io::Result<T>) -> io::Result<T> {
        let number = self.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        work(self, number)
    }
}

#[cfg(test)]
mod tests;
