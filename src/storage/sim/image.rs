//! The two images of a simulated disk and the unsynced changes between them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::bytes::{Change, FileFate, FileImage};
use crate::storage::disk::{DirEntry, FileKind, FileStat};

pub(super) const ROOT: u64 = 1;
const PAGE_BYTES: usize = 4096;

/// A file, a directory or a symbolic link, with what the file system notes of it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) inode: Inode,
    pub(super) owner: u32,
    pub(super) mode: u32,
    pub(super) device: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Inode {
    File(FileImage),
    Dir { live: Names, durable: Names, modified: i128 },
    Link(PathBuf),
}

impl Inode {
    pub(super) fn empty_dir() -> Self {
        Inode::Dir { live: BTreeMap::new(), durable: BTreeMap::new(), modified: 0 }
    }

    /// The mode that the store's own disk gives to what it creates.
    fn usual_mode(&self) -> u32 {
        if matches!(self, Inode::File(_)) { 0o600 } else { 0o700 }
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

pub(super) type Names = BTreeMap<String, u64>;

fn set_name<'a>(
    folder: Option<&'a mut Node>,
    name: &str,
    inode: Option<u64>,
    which: impl FnOnce(&'a mut Names, &'a mut Names) -> &'a mut Names,
) {
    let Some(Node { inode: Inode::Dir { live, durable, .. }, .. }) = folder else { return };
    let names = which(live, durable);
    match inode {
        Some(inode) => names.insert(name.to_owned(), inode),
        None => names.remove(name),
    };
}

/// How the file system tells the time of a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The step of the kernel's clock, in nanoseconds.
    pub(super) tick_nanos: i128,
    /// The file system keeps multiples of this.
    pub(super) kept_nanos: i128,
    /// It keeps none after this.
    pub(super) last_nanos: i128,
}

/// Everything on the disk.
#[derive(Debug, Clone)]
pub(super) struct Image {
    nodes: BTreeMap<u64, Node>,
    unsynced_names: Vec<DirChange>,
    /// The last change of each name that the medium surely holds. An earlier one that becomes durable only now, because
    /// its other directory was not synced before, does not undo it.
    durable_serials: BTreeMap<(u64, String), u64>,
    next_serial: u64,
    next_inode: u64,
    /// Whether the number of a file that is gone is given to the next one.
    pub(super) reuses_inodes: bool,
    ticks: i128,
    pub(super) times: Times,
    /// The user who owns what is created.
    pub(super) user: u32,
    /// How often each file is open.
    pub(super) open: BTreeMap<u64, usize>,
    /// What reaches the medium whole or not at all, where a crash decides page by page.
    pub(super) page_bytes: usize,
}

impl Image {
    pub(super) fn new(user: u32) -> Self {
        let root = Node { inode: Inode::empty_dir(), owner: user, mode: 0o700, device: 1 };
        Image {
            nodes: BTreeMap::from([(ROOT, root)]),
            unsynced_names: Vec::new(),
            durable_serials: BTreeMap::new(),
            next_serial: 1,
            next_inode: 2,
            reuses_inodes: false,
            ticks: 0,
            times: Times { tick_nanos: 1, kept_nanos: 1, last_nanos: i128::MAX },
            user,
            open: BTreeMap::new(),
            page_bytes: PAGE_BYTES,
        }
    }

    pub(super) fn node(&self, number: u64) -> io::Result<&Node> {
        self.nodes.get(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn node_mut(&mut self, number: u64) -> io::Result<&mut Node> {
        self.nodes.get_mut(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file_mut(&mut self, number: u64) -> io::Result<&mut FileImage> {
        match &mut self.node_mut(number)?.inode {
            Inode::File(file) => Ok(file),
            Inode::Dir { .. } | Inode::Link(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn names(&self, dir: u64) -> io::Result<&Names> {
        match &self.node(dir)?.inode {
            Inode::Dir { live, .. } => Ok(live),
            Inode::File(_) | Inode::Link(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn is_dir(&self, number: u64) -> bool {
        matches!(self.nodes.get(&number), Some(Node { inode: Inode::Dir { .. }, .. }))
    }

    fn record(&mut self, removes: Option<(u64, String)>, adds: Option<(u64, String, u64)>) {
        let mut waits_for: Vec<u64> =
            removes.iter().map(|(dir, _)| *dir).chain(adds.iter().map(|(dir, ..)| *dir)).collect();
        waits_for.dedup();
        let change = DirChange { serial: self.next_serial, removes, adds, waits_for };
        self.next_serial += 1;
        let now = self.tick();
        for (dir, name, inode) in change.names() {
            set_name(self.nodes.get_mut(&dir), name, inode, |live, _| live);
            if let Some(Node { inode: Inode::Dir { modified, .. }, .. }) = self.nodes.get_mut(&dir) {
                *modified = now;
            }
        }
        self.unsynced_names.push(change);
    }

    /// The time of a change, as the file system keeps it.
    fn tick(&mut self) -> i128 {
        self.ticks += 1;
        let now = self.ticks - self.ticks.rem_euclid(self.times.tick_nanos);
        self.kept(now)
    }

    fn kept(&self, nanos: i128) -> i128 {
        let nanos = nanos.min(self.times.last_nanos);
        nanos - nanos.rem_euclid(self.times.kept_nanos)
    }

    fn make_durable(&mut self, change: &DirChange) {
        for (dir, name, inode) in change.names() {
            let known = self.durable_serials.entry((dir, name.to_owned())).or_default();
            if *known < change.serial {
                *known = change.serial;
                set_name(self.nodes.get_mut(&dir), name, inode, |_, durable| durable);
            }
        }
    }

    /// Adds something under a name in a directory.
    pub(super) fn add(&mut self, (dir, name): (u64, String), inode: Inode) -> io::Result<u64> {
        let (device, mode) = (self.node(dir)?.device, inode.usual_mode());
        let number = self.new_number();
        self.nodes.insert(number, Node { inode, owner: self.user, mode, device });
        self.record(None, Some((dir, name, number)));
        Ok(number)
    }

    fn new_number(&mut self) -> u64 {
        if self.reuses_inodes {
            let used = self.used_numbers();
            if let Some(free) = (2..self.next_inode).find(|number| !used.contains(number)) {
                return free;
            }
        }
        self.next_inode += 1;
        self.next_inode - 1
    }

    /// The numbers of files that have a name, or may have one again after a crash, or are open.
    fn used_numbers(&self) -> std::collections::BTreeSet<u64> {
        let mut used: std::collections::BTreeSet<u64> = self.open.keys().copied().collect();
        for node in self.nodes.values() {
            if let Inode::Dir { live, durable, .. } = &node.inode {
                used.extend(live.values().chain(durable.values()));
            }
        }
        used.extend(self.unsynced_names.iter().filter_map(|change| change.adds.as_ref().map(|(.., number)| *number)));
        used
    }

    /// Gives what has one name another.
    pub(super) fn rename(&mut self, from: (u64, String), to: (u64, String)) -> io::Result<()> {
        let number = *self.names(from.0)?.get(&from.1).ok_or(io::ErrorKind::NotFound)?;
        if self.names(to.0)?.get(&to.1).is_some_and(|target| self.is_dir(*target)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if self.node(number)?.device != self.node(to.0)?.device {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        self.record(Some(from), Some((to.0, to.1, number)));
        Ok(())
    }

    pub(super) fn remove(&mut self, place: (u64, String)) {
        self.record(Some(place), None);
    }

    pub(super) fn read_dir(&self, dir: u64) -> io::Result<Vec<DirEntry>> {
        let is_link = |number: u64| self.node(number).is_ok_and(|node| matches!(node.inode, Inode::Link(_)));
        let entry = |(name, number): (&String, &u64)| DirEntry {
            name: name.clone(),
            is_dir: self.is_dir(*number),
            is_link: is_link(*number),
        };
        Ok(self.names(dir)?.iter().map(entry).collect())
    }

    pub(super) fn stat(&self, number: u64) -> io::Result<FileStat> {
        let Node { inode, mode, device, .. } = self.node(number)?;
        let (kind, len, modified_nanos) = match inode {
            Inode::File(file) => (FileKind::File, file.live().len() as u64, file.modified()),
            Inode::Dir { modified, .. } => (FileKind::Directory, 0, *modified),
            Inode::Link(_) => (FileKind::Other, 0, 0),
        };
        Ok(FileStat { kind, len, device: *device, inode: number, modified_nanos, mode: *mode })
    }

    pub(super) fn read(&self, number: u64, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Inode::File(file) = &self.node(number)?.inode else { return Err(io::ErrorKind::IsADirectory.into()) };
        let rest = file.live().get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    pub(super) fn change(&mut self, number: u64, change: Change) -> io::Result<()> {
        let now = self.tick();
        self.file_mut(number)?.change(change, now);
        Ok(())
    }

    pub(super) fn set_modified(&mut self, number: u64, nanos: i128) -> io::Result<()> {
        let kept = self.kept(nanos);
        self.file_mut(number)?.set_modified(kept);
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

    /// Everything from here on down is of this file system.
    pub(super) fn set_device(&mut self, number: u64, device: u64) {
        let below: Vec<u64> = self.names(number).map(|names| names.values().copied().collect()).unwrap_or_default();
        if let Ok(node) = self.node_mut(number) {
            node.device = device;
        }
        below.into_iter().for_each(|number| self.set_device(number, device));
    }

    /// The bytes of all files that have a name or are open.
    pub(super) fn used_bytes(&self) -> u64 {
        let mut named: std::collections::BTreeSet<u64> = self.open.keys().copied().collect();
        for node in self.nodes.values() {
            if let Inode::Dir { live, .. } = &node.inode {
                named.extend(live.values());
            }
        }
        let bytes = |number: &u64| match self.nodes.get(number) {
            Some(Node { inode: Inode::File(file), .. }) => file.live().len() as u64,
            _ => 0,
        };
        named.iter().map(bytes).sum()
    }

    /// The files that have unsynced changes.
    pub(super) fn unsynced_files(&self) -> Vec<(u64, &FileImage)> {
        let files = self.nodes.iter().filter_map(|(number, node)| match &node.inode {
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
        for node in self.nodes.values_mut() {
            match &mut node.inode {
                Inode::Dir { live, durable, .. } => live.clone_from(durable),
                Inode::File(file) if !file.has_unsynced() => file.crash(&FileFate::Lost, self.page_bytes),
                Inode::File(_) | Inode::Link(_) => {}
            }
        }
        for (number, fate) in files {
            if let Some(Node { inode: Inode::File(file), .. }) = self.nodes.get_mut(number) {
                file.crash(fate, self.page_bytes);
            }
        }
    }

    /// Flips one bit of a file.
    pub(super) fn rot(&mut self, path: &Path, byte: u64, bit: u8) -> io::Result<()> {
        let number = self.find(path)?.ok_or(io::ErrorKind::NotFound)?;
        let file = self.file_mut(number)?;
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
        for (name, number) in self.names(dir).into_iter().flatten() {
            let path = path.join(name);
            match self.nodes.get(number) {
                Some(Node { inode: Inode::File(file), .. }) => drop(found.insert(path, file)),
                _ => self.add_files(*number, &path, found),
            }
        }
    }
}
