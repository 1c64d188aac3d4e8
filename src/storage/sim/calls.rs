//! The calls that programs make: the simulated disk as a [`Disk`].

use std::io;
use std::path::Path;

use super::bytes::Change;
use super::faults::{Demand, Fault};
use super::image::Inode;
use super::path::{Place, READ, SEARCH, SUPERUSER, WRITE, too_many_links};
use super::{Machine, SimDisk, device_error};
use crate::entropy::SeededEntropy;
use crate::storage::disk::{Access, DirEntry, Disk, DiskDir, DiskFile, DiskLock, FileStat};
use crate::sync::schedule;

/// EMFILE and EPERM.
const TOO_MANY_OPEN: i32 = 24;
const NOT_PERMITTED: i32 = 1;

impl Machine {
    /// What a path leads to, for the user that programs run as.
    fn resolve(&self, path: &Path, follows_last: bool) -> io::Result<Place> {
        self.image.resolve(path, self.image.user, follows_last)
    }

    fn check(&self, number: u64, wanted: u32) -> io::Result<()> {
        self.image.check(number, self.image.user, wanted)
    }

    /// The file at a path, opened or created, whether it hides or not.
    fn open(&mut self, path: &Path, access: Access) -> io::Result<u64> {
        // A kernel looks for a free descriptor before it looks for the file.
        if self.open_files_max.is_some_and(|most| self.open_files >= most) {
            return Err(io::Error::from_raw_os_error(TOO_MANY_OPEN));
        }
        let place = self.resolve(path, access != Access::CreateNew)?;
        match (place.node, access) {
            (Some(number), Access::Read | Access::Write) => {
                if self.image.is_dir(number) && access == Access::Write {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                self.check(number, if access == Access::Write { READ | WRITE } else { READ })?;
                Ok(number)
            }
            (Some(_), Access::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, Access::Read | Access::Write) => Err(io::ErrorKind::NotFound.into()),
            (None, Access::CreateNew) => {
                let place = place.named()?;
                self.check(place.0, WRITE | SEARCH)?;
                self.begin(NEW, || format!("create {}", path.display()))?;
                let number = self.image.add(place, Inode::File(Default::default()))?;
                // An earlier file of this number may have been one that cannot be read.
                self.faults.set_unreadable(number, false);
                Ok(number)
            }
        }
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        let number = self.resolve(path, false)?.existing()?;
        Ok(matches!(self.image.node(number)?.inode, Inode::Link(_)))
    }

    fn check_visible(&mut self, path: &Path) -> io::Result<()> {
        if self.faults.look_in_vain(path) { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn check_readable(&self, number: u64) -> io::Result<()> {
        if self.faults.is_unreadable(number) { Err(device_error()) } else { Ok(()) }
    }

    /// What a write at this offset asks of a file of this length, and what room there is for it.
    fn demand_of_write(&self, len: u64, offset: u64, bytes: usize) -> Demand {
        let within = len.saturating_sub(offset).min(bytes as u64) as usize;
        match within == bytes {
            true if self.faults.is_copy_on_write() => Demand::Space { after: 0 },
            true => Demand::Nothing,
            false if self.faults.is_copy_on_write() => Demand::Space { after: 0 },
            false => Demand::Space { after: within },
        }
    }

    /// How many bytes of a write there is room for.
    fn room_for(&self, len: u64, offset: u64, bytes: usize) -> usize {
        let Some(free) = self.free_bytes() else { return bytes };
        let within = len.saturating_sub(offset).min(bytes as u64);
        // Skipping ahead leaves a hole, which takes room here.
        let hole = offset.saturating_sub(len);
        (within + free.saturating_sub(hole)).min(bytes as u64) as usize
    }

    fn free_bytes(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.image.used_bytes()))
    }
}

/// A new file or directory.
const NEW: Demand = Demand::Space { after: 0 };

impl Disk for SimDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.looks += 1;
        machine.check_running()?;
        if access != Access::CreateNew {
            machine.check_visible(path)?;
        }
        let number = machine.open(path, access)?;
        Ok(Box::new(self.opened(&mut machine, number, path)))
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DiskDir>> {
        schedule::step();
        let mut machine = self.machine.lock();
        machine.looks += 1;
        machine.check_running()?;
        let number = machine.open(path, Access::Read)?;
        machine.image.names(number)?;
        Ok(Box::new(SimDir { file: self.opened(&mut machine, number, path) }))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        schedule::step();
        let mut machine = self.machine.lock();
        machine.looks += 1;
        machine.check_running()?;
        machine.check_visible(path)?;
        let number = machine.resolve(path, true)?.existing()?;
        machine.image.stat(number)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let [from_place, to_place] = [machine.resolve(from, false)?, machine.resolve(to, false)?];
        from_place.existing()?;
        let (from_name, to_name) = (from_place.named()?, to_place.named()?);
        machine.check(from_name.0, WRITE | SEARCH)?;
        machine.check(to_name.0, WRITE | SEARCH)?;
        machine.begin(Demand::Nothing, || format!("rename {} to {}", from.display(), to.display()))?;
        machine.image.rename(from_name, to_name)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let place = machine.resolve(path, false)?;
        if machine.image.is_dir(place.existing()?) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let name = place.named()?;
        machine.check(name.0, WRITE | SEARCH)?;
        machine.begin(Demand::Nothing, || format!("remove {}", path.display()))?;
        machine.image.remove(name);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let place = machine.resolve(path, false)?;
        if place.node.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let name = place.named()?;
        machine.check(name.0, WRITE | SEARCH)?;
        machine.begin(NEW, || format!("create folder {}", path.display()))?;
        machine.image.add(name, Inode::empty_dir()).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let place = machine.resolve(path, false)?;
        if !machine.image.names(place.existing()?)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let name = place.named()?;
        machine.check(name.0, WRITE | SEARCH)?;
        machine.begin(Demand::Nothing, || format!("remove folder {}", path.display()))?;
        machine.image.remove(name);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        schedule::step();
        let mut machine = self.machine.lock();
        machine.looks += 1;
        machine.check_running()?;
        machine.check_visible(path)?;
        let number = machine.resolve(path, true)?.existing()?;
        machine.check(number, READ)?;
        machine.check_readable(number)?;
        let mut entries = machine.image.read_dir(number)?;
        entries.retain(|entry| !machine.faults.look_in_vain(&path.join(&entry.name)));
        Ok(entries)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.check_running()?;
        let is_there = machine.resolve(path, true)?.node.is_some();
        let number = machine.open(path, if is_there { Access::Write } else { Access::CreateNew })?;
        if machine.locked.contains(&number) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        machine.locked.push(number);
        Ok(Box::new(SimLock { file: self.opened(&mut machine, number, path) }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        schedule::step();
        let mut machine = self.machine.lock();
        machine.looks += 1;
        machine.check_running()?;
        Ok(machine.image.find(path)?.is_some_and(|number| machine.locked.contains(&number)))
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        schedule::step();
        let machine = self.machine.lock();
        machine.check_running()?;
        machine.is_link(path)
    }

    fn make_private(&self, root: &Path, relative: &Path) -> io::Result<u32> {
        self.arrive();
        let mut machine = self.machine.lock();
        machine.check_running()?;
        // The data directory itself may be named by a link, unless it is what is to be changed.
        let parts = relative.ancestors().filter(|part| !part.as_os_str().is_empty() || relative.as_os_str().is_empty());
        for part in parts {
            if machine.is_link(&root.join(part))? {
                return Err(too_many_links());
            }
        }
        let number = machine.resolve(&root.join(relative), false)?.existing()?;
        let user = machine.image.user;
        let node = machine.image.node_mut(number)?;
        if user != SUPERUSER && node.owner != user {
            return Err(io::Error::from_raw_os_error(NOT_PERMITTED));
        }
        let mode = node.mode;
        node.mode &= !0o077;
        machine.log.push(format!("make {} private", root.join(relative).display()));
        Ok(mode)
    }

    fn network_file_system(&self, _path: &Path) -> io::Result<Option<&'static str>> {
        Ok(self.machine.lock().network_file_system)
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(self.machine.lock().free_bytes())
    }

    fn open_files_max(&self) -> usize {
        self.machine.lock().open_files_max.unwrap_or(usize::MAX)
    }

    /// A store that is opened under a schedule has threads.
    fn is_by_hand(&self) -> bool {
        !schedule::is_scheduled()
    }

    fn boot_id(&self) -> String {
        let machine = self.machine.lock();
        if machine.has_boot_id { format!("simulated-boot-{}", machine.boots) } else { String::new() }
    }
}

impl SimDisk {
    fn opened(&self, machine: &mut Machine, number: u64, path: &Path) -> SimFile {
        machine.open_files += 1;
        *machine.image.open.entry(number).or_default() += 1;
        SimFile { disk: self.clone(), number, life: machine.life, path: path.display().to_string() }
    }
}

/// An open simulated file. It dies with the life it was opened in.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    number: u64,
    life: u64,
    path: String,
}

impl SimFile {
    fn with<T>(&self, work: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
        schedule::step();
        self.with_now(work)
    }

    /// The same, for an operation.
    fn change<T>(&self, work: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
        self.disk.arrive();
        self.with_now(work)
    }

    /// The same, for a sync, which takes its time when it is done.
    fn change_slowly<T>(&self, work: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
        let done = self.change(work);
        let time = self.disk.machine.lock().sync_time;
        if !time.is_zero() {
            schedule::sleep(time);
        }
        done
    }

    fn with_now<T>(&self, work: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
        let mut machine = self.disk.machine.lock();
        machine.check_running()?;
        if machine.life != self.life {
            return Err(io::Error::other("the program that opened this file is dead"));
        }
        work(&mut machine)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut machine = self.disk.machine.lock();
        if machine.life == self.life {
            machine.close(self.number);
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|machine| {
            machine.check_readable(self.number)?;
            let read = machine.image.read(self.number, buffer, offset)?;
            machine.bytes_read += read as u64;
            Ok(read)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.change(|machine| {
            let len = machine.image.stat(self.number)?.len;
            let (demand, room) =
                (machine.demand_of_write(len, offset, bytes.len()), machine.room_for(len, offset, bytes.len()));
            let what = || format!("write {} at {offset}, {} bytes", self.path, bytes.len());
            let taken = match machine.begin(demand, what)? {
                Some(Fault::ShortWrite(taken)) => taken.min(bytes.len()),
                _ if room == 0 && !bytes.is_empty() => return Err(io::ErrorKind::StorageFull.into()),
                _ => room,
            };
            machine.image.change(self.number, Change::Write { offset, bytes: bytes[..taken].to_vec() })?;
            Ok(taken)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|machine| {
            let added = len.saturating_sub(machine.image.stat(self.number)?.len);
            let demand = if added > 0 { Demand::Space { after: 0 } } else { Demand::Nothing };
            machine.begin(demand, || format!("cut {} to {len}", self.path))?;
            if machine.free_bytes().is_some_and(|free| free < added) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            machine.image.change(self.number, Change::SetLen(len))
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.change_slowly(|machine| {
            let begun = machine.begin(Demand::Sync, || format!("sync {}", self.path));
            if machine.is_stopped {
                return begun.map(drop);
            }
            let page_bytes = machine.image.page_bytes;
            let file = machine.image.file_mut(self.number)?;
            match begun {
                Ok(Some(Fault::PartialSync(seed))) => {
                    let random = SeededEntropy::new(seed);
                    file.sync_pages(page_bytes, || random.next_u64().is_multiple_of(2));
                    return Err(device_error());
                }
                Ok(_) => file.sync(),
                Err(_) => file.forget_unsynced(),
            }
            begun.map(drop)
        })
    }

    fn set_modified(&self, nanos: i128) -> io::Result<()> {
        self.change(|machine| {
            machine.begin(Demand::Nothing, || format!("set the time of {}", self.path))?;
            machine.image.set_modified(self.number, nanos)
        })
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.with(|machine| machine.image.stat(self.number))
    }
}

/// An open simulated directory.
#[derive(Debug)]
struct SimDir {
    file: SimFile,
}

impl DiskDir for SimDir {
    fn sync(&self) -> io::Result<()> {
        self.file.change_slowly(|machine| {
            let fault = machine.begin(Demand::Sync, || format!("sync folder {}", self.file.path))?;
            if matches!(fault, Some(Fault::PartialSync(_))) {
                return Err(device_error());
            }
            machine.image.sync_dir(self.file.number);
            Ok(())
        })
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.file.with(|machine| machine.image.stat(self.file.number))
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
            machine.locked.retain(|number| *number != self.file.number);
        }
    }
}
