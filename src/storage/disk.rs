//! The lower seam: syscalls. Real files and simulated ones look alike from here up.
//!
//! What survives a power cut, whoever implements this:
//! - bytes of a file, once `sync` of it has returned; before that any of the writes, or part of one, may be lost, the
//!   earlier ones no less than the later, and what is lost may read as zeroes;
//! - a name in a directory (created, renamed, removed), once [`DiskDir::sync`] of that directory has returned; before
//!   that each such change may be lost, and they may reach the medium in any order;
//! - a rename changes both names or neither.
//!
//! What survives the death of the process alone: everything a call has returned from.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened. Files are created readable and writable by their owner alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// An existing file, to be read.
    Read,
    /// An existing file, to be read and written.
    Write,
    /// A file that does not exist yet, to be read and written.
    CreateNew,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// Its length.
    pub len: u64,
    /// The number of its file system.
    pub device: u64,
    /// A number that no other file of its file system has at the same time. It may be reused once the file is gone.
    pub inode: u64,
    /// The modification time, in nanoseconds since 1970. It has as many digits as the file system keeps.
    pub modified_nanos: i128,
    /// The permission bits of its Unix mode; 0 where the system has none.
    pub mode: u32,
}

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

impl FileStat {
    /// What others than its owner may do with it, as permission bits.
    pub fn open_to_others(&self) -> u32 {
        self.mode & OTHERS
    }

    /// Whether both are of the same file, at least while one of them is open.
    pub fn is_same_file(&self, other: &FileStat) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name; one that is not UTF-8 is given with U+FFFD in it and fits no rule of ours.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Whether it is a symbolic link.
    pub is_link: bool,
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads at an offset; fewer bytes than asked for may come, none at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset; fewer bytes than given may be taken.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes its bytes, its length and a modification time that was set survive a power cut. After a failure nothing is
    /// known of what was written.
    fn sync(&self) -> io::Result<()>;
    /// Sets the modification time, in nanoseconds since 1970. The file system may keep fewer digits.
    fn set_modified(&self, nanos: i128) -> io::Result<()>;
    /// What is known of it.
    fn stat(&self) -> io::Result<FileStat>;
    /// Its first bytes, so many of them or all that are there. A disk that can do so leaves out filling the room with
    /// zeroes before, which for a large file is a good part of the work.
    fn into_bytes(self: Box<Self>, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; most];
        let len = read_full(&*self, &mut bytes, 0)?;
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// An open directory.
pub trait DiskDir: Send + Sync + fmt::Debug {
    /// Directory fsync: makes the names in it survive a power cut.
    fn sync(&self) -> io::Result<()>;
    /// What is known of it.
    fn stat(&self) -> io::Result<FileStat>;
}

/// A lock that lasts as long as this value, or as the process.
pub trait DiskLock: Send + Sync + fmt::Debug {
    /// The locked file.
    fn file(&self) -> &dyn DiskFile;
}

/// A disk.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a directory, to sync it. A failure says nothing of the medium.
    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DiskDir>>;
    /// What is known of a path.
    fn stat(&self, path: &Path) -> io::Result<FileStat>;
    /// Gives a file or directory another name, replacing a file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory for its owner alone.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory that is empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in no order.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// The same, with what is known of each. A name that is gone by then is left out. A disk that can do so spares the
    /// way to each file, which for many files is a good part of the work.
    fn read_dir_stats(&self, path: &Path) -> io::Result<Vec<(DirEntry, io::Result<FileStat>)>> {
        let look_at = |entry: DirEntry| {
            let stat = self.stat(&path.join(&entry.name));
            (entry, stat)
        };
        Ok(self.read_dir(path)?.into_iter().map(look_at).filter(is_there).collect())
    }
    /// Opens a directory and syncs it. A caller that must tell a failed open from a failed fsync does both itself.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open_dir(path)?.sync()
    }
    /// Opens or creates a file and locks it. `WouldBlock` if somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
    /// Whether somebody holds the lock on a file. Leaves no trace: a file that is not there is not created.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;
    /// Whether a path is a link to another, wherever that leads.
    fn is_link(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// Takes the permissions of group and others from a file or directory below `root`, and returns its mode before that.
    /// An empty `relative` is `root` itself. No symbolic link is followed, in no part of `relative`: that is an error.
    fn make_private(&self, root: &Path, relative: &Path) -> io::Result<u32>;
    /// The file system a path lies on, if it is one whose locks other machines may not see.
    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>>;
    /// How many bytes can still be written where a path lies, if that is known.
    fn free_bytes(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// How many files this process may have open at the same time.
    fn open_files_max(&self) -> usize {
        usize::MAX
    }
    /// Whether nothing may be done here but by the caller's own hand: no threads of ours, so that every run is the same.
    fn is_by_hand(&self) -> bool {
        false
    }
    /// A text that differs between two boots of this machine; empty where none is to be had.
    fn boot_id(&self) -> String;
}

/// Whether a name was still there when it was looked at.
pub(super) fn is_there((_, stat): &(DirEntry, io::Result<FileStat>)) -> bool {
    !matches!(stat, Err(cause) if cause.kind() == io::ErrorKind::NotFound)
}

/// A disk that many share.
pub type SharedDisk = Arc<dyn Disk>;

/// Reads from an offset until the buffer is full or the file ends.
pub(crate) fn read_full<F: DiskFile + ?Sized>(file: &F, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(filled)
}

/// Writes everything, or says how much of it was taken before the failure.
pub(crate) fn write_full(file: &dyn DiskFile, bytes: &[u8], offset: u64) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&bytes[written..], offset + written as u64) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(taken) => written += taken,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err((written, cause)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    /// A file whose next calls end like this; what they take is kept.
    #[derive(Debug, Default)]
    struct Scripted {
        calls: Mutex<Vec<io::Result<usize>>>,
        bytes: Mutex<Vec<u8>>,
    }

    impl Scripted {
        fn new(calls: impl IntoIterator<Item = io::Result<usize>>) -> Self {
            Scripted { calls: Mutex::new(calls.into_iter().collect()), bytes: Mutex::default() }
        }

        fn next(&self) -> io::Result<usize> {
            let mut calls = self.calls.lock();
            assert!(!calls.is_empty(), "a call too many");
            calls.remove(0)
        }
    }

    impl DiskFile for Scripted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let read = self.next()?;
            buffer[..read].copy_from_slice(&self.bytes.lock()[offset as usize..offset as usize + read]);
            Ok(read)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            let taken = self.next()?;
            let mut own = self.bytes.lock();
            assert_eq!(own.len() as u64, offset, "each write goes on where the last one ended");
            own.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn set_modified(&self, _: i128) -> io::Result<()> {
            Ok(())
        }
        fn stat(&self) -> io::Result<FileStat> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn signal() -> io::Result<usize> {
        Err(io::ErrorKind::Interrupted.into())
    }

    #[test]
    fn a_write_goes_on_after_signals_and_parts_until_all_is_taken() {
        let file = Scripted::new([signal(), Ok(2), signal(), signal(), Ok(1), Ok(2)]);
        assert!(write_full(&file, b"hello", 0).is_ok());
        assert_eq!(*file.bytes.lock(), b"hello");
        assert!(file.calls.lock().is_empty());
    }

    #[test]
    fn a_write_that_fails_tells_how_much_was_taken_before() {
        let full = || Err(io::ErrorKind::StorageFull.into());
        let failures = [(full(), io::ErrorKind::StorageFull), (Ok(0), io::ErrorKind::WriteZero)];
        for (failure, kind) in failures {
            let file = Scripted::new([Ok(3), signal(), failure]);
            let (taken, cause) = write_full(&file, b"hello", 0).unwrap_err();
            assert_eq!((taken, cause.kind()), (3, kind));
        }
    }

    #[test]
    fn a_read_goes_on_after_signals_and_parts_until_the_end() {
        let file = Scripted::new([signal(), Ok(2), signal(), Ok(2), Ok(0)]);
        *file.bytes.lock() = b"xhello".to_vec();
        let mut buffer = [0; 8];
        assert_eq!(read_full(&file, &mut buffer, 1).unwrap(), 4);
        assert_eq!(&buffer[..5], b"hell\0");
        let failing = Scripted::new([signal(), Err(io::ErrorKind::TimedOut.into())]);
        assert_eq!(read_full(&failing, &mut buffer, 0).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
