//! The calls that programs make: the simulated disk as a [`Disk`].

use std::io;
use std::path::Path;

use super::bytes::Change;
use super::faults::{Demand, Fault};
use super::image::Inode;
use super::{Machine, SimDisk, device_error};
use crate::storage::disk::{Access, DirEntry, Disk, DiskFile, DiskLock, FileStat};

impl Machine {
    /// The file at a path, opened or created, whether it hides or not.
    fn open(&mut self, path: &Path, access: Access) -> io::Result<u64> {
        match (self.image.find(path)?, access) {
            (Some(inode), Access::Read | Access::Write) => {
                let is_dir = matches!(self.image.inode(inode)?, Inode::Dir { .. });
                if is_dir && access == Access::Write {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                Ok(inode)
            }
            (Some(_), Access::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, Access::Read | Access::Write) => Err(io::ErrorKind::NotFound.into()),
            (None, Access::CreateNew) => {
                self.begin(NEW, || format!("create {}", path.display()))?;
                self.image.create_file(path)
            }
        }
    }

    fn check_visible(&mut self, path: &Path) -> io::Result<()> {
        if self.faults.look_in_vain(path) { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn check_readable(&self, inode: u64) -> io::Result<()> {
        if self.faults.is_unreadable(inode) { Err(device_error()) } else { Ok(()) }
    }
}

/// A new file or folder.
const NEW: Demand = Demand::Space { after: 0 };

fn demand_of_write(len: u64, offset: u64, bytes: usize) -> Demand {
    let after = len.saturating_sub(offset).min(bytes as u64) as usize;
    if after == bytes { Demand::Nothing } else { Demand::Space { after } }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        if access != Access::CreateNew {
            machine.check_visible(path)?;
        }
        let inode = machine.open(path, access)?;
        Ok(Box::new(self.file(inode, machine.life, path)))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        machine.check_visible(path)?;
        let inode = machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.image.stat(inode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        machine.image.find(from)?.ok_or(io::ErrorKind::NotFound)?;
        machine.begin(Demand::Nothing, || format!("rename {} to {}", from.display(), to.display()))?;
        machine.image.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.begin(Demand::Nothing, || format!("remove {}", path.display()))?;
        machine.image.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        if machine.image.find(path)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        machine.begin(NEW, || format!("create folder {}", path.display()))?;
        machine.image.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        machine.check_visible(path)?;
        let inode = machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.check_readable(inode)?;
        let mut entries = machine.image.read_dir(inode)?;
        entries.retain(|entry| !machine.faults.look_in_vain(&path.join(&entry.name)));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let inode = machine.image.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        machine.begin(Demand::Sync, || format!("sync folder {}", path.display()))?;
        machine.image.sync_dir(inode);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let access = if machine.image.find(path)?.is_some() { Access::Write } else { Access::CreateNew };
        let inode = machine.open(path, access)?;
        if machine.locked.contains(&inode) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        machine.locked.push(inode);
        Ok(Box::new(SimLock { file: self.file(inode, machine.life, path) }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let machine = self.machine.lock();
        machine.check_running()?;
        Ok(machine.image.find(path)?.is_some_and(|inode| machine.locked.contains(&inode)))
    }

    /// There is nobody else here.
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        self.machine.lock().check_running()
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

impl SimDisk {
    fn file(&self, inode: u64, life: u64, path: &Path) -> SimFile {
        SimFile { disk: self.clone(), inode, life, path: path.display().to_string() }
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
        self.with(|machine| {
            machine.check_readable(self.inode)?;
            machine.image.read(self.inode, buffer, offset)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|machine| {
            let demand = demand_of_write(machine.image.stat(self.inode)?.len, offset, bytes.len());
            let what = || format!("write {} at {offset}, {} bytes", self.path, bytes.len());
            let taken = match machine.begin(demand, what)? {
                Some(Fault::ShortWrite(taken)) => taken.min(bytes.len()),
                _ => bytes.len(),
            };
            machine.image.change(self.inode, Change::Write { offset, bytes: bytes[..taken].to_vec() })?;
            Ok(taken)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|machine| {
            let is_longer = machine.image.stat(self.inode)?.len < len;
            let demand = if is_longer { Demand::Space { after: 0 } } else { Demand::Nothing };
            machine.begin(demand, || format!("cut {} to {len}", self.path))?;
            machine.image.change(self.inode, Change::SetLen(len))
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|machine| {
            let begun = machine.begin(Demand::Sync, || format!("sync {}", self.path));
            if machine.is_stopped {
                return begun.map(drop);
            }
            let file = machine.image.file_mut(self.inode)?;
            match begun {
                Ok(_) => file.sync(),
                Err(_) => file.forget_unsynced(),
            }
            begun.map(drop)
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
