//! The real disk: the operating system's files. The only place of the library that names `std::fs`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::time::UNIX_EPOCH;

use fs2::FileExt;

use super::disk::{Access, DirEntry, Disk, DiskFile, DiskLock, FileKind, FileStat, is_there};

/// The operating system's file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read).create_new(access == Access::CreateNew);
        let file = private(&mut options).open(path)?;
        Ok(Box::new(OsFile { file }))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        fs::metadata(path).map(|metadata| stat_of(&metadata))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(path)?.map(|entry| entry.and_then(|entry| entry_of(&entry))).collect()
    }

    fn read_dir_stats(&self, path: &Path) -> io::Result<Vec<(DirEntry, io::Result<FileStat>)>> {
        let look_at = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry_of(&entry)?, stat_in_folder(&entry)))
        };
        let entries: io::Result<Vec<_>> = fs::read_dir(path)?.map(look_at).collect();
        Ok(entries?.into_iter().filter(is_there).collect())
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Other systems give no way to do it; docs/format.md says what that costs.
    #[cfg(not(unix))]
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = private(&mut options).open(path)?;
        file.try_lock_exclusive()
            .map_err(|cause| if is_contended(&cause) { io::ErrorKind::WouldBlock.into() } else { cause })?;
        Ok(Box::new(OsLock { file: OsFile { file } }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        // Shared, and let go at once: other lookers are not in the way.
        match FileExt::try_lock_shared(&file) {
            Ok(()) => FileExt::unlock(&file).map(|()| false),
            Err(cause) if is_contended(&cause) => Ok(true),
            Err(cause) => Err(cause),
        }
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::symlink_metadata(path)?.file_type().is_symlink())
    }

    #[cfg(unix)]
    fn make_private(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS))
    }

    #[cfg(not(unix))]
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>> {
        let kind = rustix::fs::statfs(path)?.f_type;
        Ok(NETWORK_FILE_SYSTEMS.iter().find(|(magic, _)| i64::from(*magic) == kind as i64).map(|(_, name)| *name))
    }

    /// Only Linux is asked; elsewhere the owner has to know.
    #[cfg(not(target_os = "linux"))]
    fn network_file_system(&self, _path: &Path) -> io::Result<Option<&'static str>> {
        Ok(None)
    }

    /// A file system without blocks, like some that live in other programs, does not tell.
    #[cfg(target_os = "linux")]
    fn free_bytes(&self, path: &Path) -> io::Result<Option<u64>> {
        let stat = rustix::fs::statvfs(path)?;
        Ok((stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    fn boot_id(&self) -> String {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    }
}

/// How many files this process may have open at the same time.
#[cfg(unix)]
pub(crate) fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Lets this process open as many files as the system's owner allows it to, and says how many that are. Whoever opens
/// few never needs it; a server does, before it opens its store.
#[cfg(unix)]
pub fn raise_open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What is refused is left as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    open_files_max()
}

/// Other systems do not ask.
#[cfg(not(unix))]
pub fn raise_open_files() -> usize {
    open_files_max()
}

/// Other systems have other bounds, and do not tell.
#[cfg(not(unix))]
pub(crate) fn open_files_max() -> usize {
    1024
}

/// A secret from a file outside of any data directory: a key, a token.
#[cfg(any(feature = "openai", feature = "client"))]
pub(crate) fn read_secret(path: &Path) -> io::Result<String> {
    let mut secret = String::new();
    let bytes = File::open(path)?.take(crate::limits::RECORD_BYTES_MAX + 1).read_to_string(&mut secret)?;
    match bytes as u64 > crate::limits::RECORD_BYTES_MAX {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(secret),
    }
}

/// The rights of group and others in a Unix mode.
#[cfg(unix)]
const OTHERS: u32 = 0o077;

fn is_contended(cause: &io::Error) -> bool {
    cause.raw_os_error() == fs2::lock_contended_error().raw_os_error()
}

/// Numbers from the kernel's `magic.h`.
#[cfg(target_os = "linux")]
const NETWORK_FILE_SYSTEMS: [(u32, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
];

/// For the owner alone; and opening what turns out to be a pipe does not wait for somebody at its other end.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn entry_of(entry: &fs::DirEntry) -> io::Result<DirEntry> {
    let is_dir = entry.file_type()?.is_dir();
    let name = entry.file_name().into_string().unwrap_or_else(|odd| odd.to_string_lossy().into_owned());
    Ok(DirEntry { name, is_dir })
}

/// Links are followed, as everywhere.
fn stat_in_folder(entry: &fs::DirEntry) -> io::Result<FileStat> {
    let metadata = if entry.file_type()?.is_symlink() { fs::metadata(entry.path()) } else { entry.metadata() };
    metadata.map(|metadata| stat_of(&metadata))
}

fn stat_of(metadata: &fs::Metadata) -> FileStat {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => FileKind::File,
        kind if kind.is_dir() => FileKind::Directory,
        _ => FileKind::Other,
    };
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    let inode = 0;
    let modified = metadata.modified().ok().and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    let modified_nanos = modified.unwrap_or_default().as_nanos() as i128;
    #[cfg(unix)]
    let open_to_others = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & OTHERS;
    #[cfg(not(unix))]
    let open_to_others = 0;
    FileStat { kind, len: metadata.len(), inode, modified_nanos, open_to_others }
}

#[derive(Debug)]
struct OsFile {
    file: File,
}

impl DiskFile for OsFile {
    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(&self.file, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.file, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.file.metadata().map(|metadata| stat_of(&metadata))
    }

    fn into_bytes(mut self: Box<Self>, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(most);
        self.file.rewind()?;
        self.file.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[derive(Debug)]
struct OsLock {
    file: OsFile,
}

impl DiskLock for OsLock {
    fn file(&self) -> &dyn DiskFile {
        &self.file
    }
}

impl Drop for OsLock {
    /// Closing is not enough: a child that another thread is just starting shares the lock until it has begun.
    fn drop(&mut self) {
        // If this fails, closing lets it go a moment later.
        let _ = FileExt::unlock(&self.file.file);
    }
}
