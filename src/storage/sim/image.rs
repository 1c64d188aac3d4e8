//! The two images of a simulated disk and the unsynced changes between them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::bytes::{Change, FileFate, FileImage};
use crate::storage::disk::{DirEntry, FileKind, FileStat};

const ROOT: u64 = 1;
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone)]
pub(super) enum Inode {
    File(FileImage),
    Dir { live: Names, durable: Names, modified: i128 },
}

impl Inode {
    fn empty_dir() -> Self {
        Inode::Dir { live: BTreeMap::new(), durable: BTreeMap::new(), modified: 0 }
    }
}

/// A change of one directory, or of two by a rename.
#[derive(Debug, Clone)]
struct DirChange {
    serial: u64,
    removes: Option<(u64, String)>,
    adds: Option<(u64, String, u64)>,
    /// Directories that are not synced since.
    waits_for: Vec<u64>,
}

impl DirChange {
    /// Each name that changes, and what it stands for afterwards.
    fn names(&self) -> impl Iterator<Item = (u64, &str, Option<u64>)> {
        let removed = self.removes.iter().map(|(dir, name)| (*dir, name.as_str(), None));
        removed.chain(self.adds.iter().map(|(dir, name, inode)| (*dir, name.as_str(), Some(*inode))))
    }
}

type Names = BTreeMap<String, u64>;

fn set_name<'a>(
    folder: Option<&'a mut Inode>,
    name: &str,
    inode: Option<u64>,
    which: impl FnOnce(&'a mut Names, &'a mut Names) -> &'a mut Names,
) {
    let Some(Inode::Dir { live, durable, .. }) = folder else { return };
    let names = which(live, durable);
    match inode {
        Some(inode) => names.insert(name.to_owned(), inode),
        None => names.remove(name),
    };
}

/// Everything on the disk.
#[derive(Debug, Clone)]
pub(super) struct Image {
    inodes: BTreeMap<u64, Inode>,
    unsynced_names: Vec<DirChange>,
    /// The last change of each name that the medium surely holds. An earlier one that becomes durable only now, because
    /// its other folder was not synced before, does not undo it.
    durable_serials: BTreeMap<(u64, String), u64>,
    next_serial: u64,
    next_inode: u64,
    ticks: i128,
    /// What reaches the medium whole or not at all, where a crash decides page by page.
    pub(super) page_bytes: usize,
}

impl Image {
    pub(super) fn new() -> Self {
        let root = Inode::empty_dir();
        Image {
            inodes: BTreeMap::from([(ROOT, root)]),
            unsynced_names: Vec::new(),
            durable_serials: BTreeMap::new(),
            next_serial: 1,
            next_inode: 2,
            ticks: 0,
            page_bytes: PAGE_BYTES,
        }
    }

    pub(super) fn inode(&self, inode: u64) -> io::Result<&Inode> {
        self.inodes.get(&inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file_mut(&mut self, inode: u64) -> io::Result<&mut FileImage> {
        match self.inodes.get_mut(&inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Dir { .. }) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn names(&self, dir: u64) -> io::Result<&Names> {
        match self.inode(dir)? {
            Inode::Dir { live, .. } => Ok(live),
            Inode::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Option<u64>> {
        let mut at = ROOT;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            match self.names(at)?.get(&*name.to_string_lossy()) {
                Some(inode) => at = *inode,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn place(&self, path: &Path) -> io::Result<(u64, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let folder = self.find(path.parent().unwrap_or(Path::new("")))?.ok_or(io::ErrorKind::NotFound)?;
        self.names(folder)?;
        Ok((folder, name))
    }

    fn record(&mut self, removes: Option<(u64, String)>, adds: Option<(u64, String, u64)>) {
        let mut waits_for: Vec<u64> =
            removes.iter().map(|(dir, _)| *dir).chain(adds.iter().map(|(dir, ..)| *dir)).collect();
        waits_for.dedup();
        let change = DirChange { serial: self.next_serial, removes, adds, waits_for };
        self.next_serial += 1;
        self.ticks += 1;
        for (dir, name, inode) in change.names() {
            set_name(self.inodes.get_mut(&dir), name, inode, |live, _| live);
            if let Some(Inode::Dir { modified, .. }) = self.inodes.get_mut(&dir) {
                *modified = self.ticks;
            }
        }
        self.unsynced_names.push(change);
    }

    fn make_durable(&mut self, change: &DirChange) {
        for (dir, name, inode) in change.names() {
            let known = self.durable_serials.entry((dir, name.to_owned())).or_default();
            if *known < change.serial {
                *known = change.serial;
                set_name(self.inodes.get_mut(&dir), name, inode, |_, durable| durable);
            }
        }
    }

    fn add(&mut self, path: &Path, inode: Inode) -> io::Result<u64> {
        let (dir, name) = self.place(path)?;
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        self.record(None, Some((dir, name, number)));
        Ok(number)
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<u64> {
        self.add(path, Inode::File(FileImage::default()))
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.add(path, Inode::empty_dir()).map(drop)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.find(from)?.ok_or(io::ErrorKind::NotFound)?;
        let target = self.find(to)?;
        if target.is_some_and(|target| matches!(self.inodes.get(&target), Some(Inode::Dir { .. }))) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (from, to) = (self.place(from)?, self.place(to)?);
        self.record(Some(from), Some((to.0, to.1, inode)));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let place = self.place(path)?;
        self.record(Some(place), None);
        Ok(())
    }

    pub(super) fn read_dir(&self, dir: u64) -> io::Result<Vec<DirEntry>> {
        let is_dir = |inode: &u64| matches!(self.inodes.get(inode), Some(Inode::Dir { .. }));
        Ok(self
            .names(dir)?
            .iter()
            .map(|(name, inode)| DirEntry { name: name.clone(), is_dir: is_dir(inode) })
            .collect())
    }

    pub(super) fn stat(&self, inode: u64) -> io::Result<FileStat> {
        Ok(match self.inode(inode)? {
            Inode::File(file) => {
                let (len, modified_nanos) = (file.live().len() as u64, file.modified());
                FileStat { kind: FileKind::File, len, inode, modified_nanos, open_to_others: 0 }
            }
            Inode::Dir { modified, .. } => {
                let modified_nanos = *modified;
                FileStat { kind: FileKind::Directory, len: 0, inode, modified_nanos, open_to_others: 0 }
            }
        })
    }

    pub(super) fn read(&self, inode: u64, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Inode::File(file) = self.inode(inode)? else { return Err(io::ErrorKind::IsADirectory.into()) };
        let rest = file.live().get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    pub(super) fn change(&mut self, inode: u64, change: Change) -> io::Result<()> {
        self.ticks += 1;
        let ticks = self.ticks;
        self.file_mut(inode)?.change(change, ticks);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: u64) {
        let mut waiting = Vec::new();
        for mut change in std::mem::take(&mut self.unsynced_names) {
            change.waits_for.retain(|waits| *waits != dir);
            if change.waits_for.is_empty() {
                self.make_durable(&change);
            } else {
                waiting.push(change);
            }
        }
        self.unsynced_names = waiting;
    }

    /// The files that have unsynced changes.
    pub(super) fn unsynced_files(&self) -> Vec<(u64, &FileImage)> {
        let files = self.inodes.iter().filter_map(|(number, inode)| match inode {
            Inode::File(file) if file.has_unsynced() => Some((*number, file)),
            _ => None,
        });
        files.collect()
    }

    pub(super) fn unsynced_name_changes(&self) -> usize {
        self.unsynced_names.len()
    }

    /// After a crash with these fates there is only what the medium holds.
    pub(super) fn settle(&mut self, files: &[(u64, FileFate)], names_kept: &[bool]) {
        let changes = std::mem::take(&mut self.unsynced_names);
        for (change, kept) in changes.iter().zip(names_kept) {
            if *kept {
                self.make_durable(change);
            }
        }
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::Dir { live, durable, .. } => live.clone_from(durable),
                Inode::File(file) if !file.has_unsynced() => file.crash(&FileFate::Lost, self.page_bytes),
                Inode::File(_) => {}
            }
        }
        for (number, fate) in files {
            if let Some(Inode::File(file)) = self.inodes.get_mut(number) {
                file.crash(fate, self.page_bytes);
            }
        }
    }

    /// Flips one bit of a file.
    pub(super) fn rot(&mut self, path: &Path, byte: u64, bit: u8) -> io::Result<()> {
        let inode = self.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        let file = self.file_mut(inode)?;
        if bit > 7 || byte >= file.live().len() as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        file.rot(byte as usize, 1 << bit);
        Ok(())
    }

    /// Every file that has a name.
    pub(super) fn files(&self) -> BTreeMap<PathBuf, &FileImage> {
        let mut found = BTreeMap::new();
        self.add_files(ROOT, Path::new("/"), &mut found);
        found
    }

    fn add_files<'a>(&'a self, dir: u64, path: &Path, found: &mut BTreeMap<PathBuf, &'a FileImage>) {
        let Some(Inode::Dir { live, .. }) = self.inodes.get(&dir) else { return };
        for (name, number) in live {
            let path = path.join(name);
            match self.inodes.get(number) {
                Some(Inode::File(file)) => drop(found.insert(path, file)),
                _ => self.add_files(*number, &path, found),
            }
        }
    }
}
