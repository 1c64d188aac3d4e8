//! The real disk: the operating system's files. The only place of the library that names `std::fs`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fs2::FileExt;

use super::disk::{Access, DirEntry, Disk, DiskDir, DiskFile, DiskLock, FileKind, FileStat, is_there};
#[cfg(target_os = "linux")]
use super::network_fs;

/// The operating system's file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read).create_new(access == Access::CreateNew);
        Ok(Box::new(OsFile::new(private(&mut options).open(path)?)))
    }

    #[cfg(unix)]
    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DiskDir>> {
        let mut options = OpenOptions::new();
        options.read(true);
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::DIRECTORY.bits() as i32);
        Ok(Box::new(OsDir { dir: options.open(path)? }))
    }

    /// Other systems give no way to sync a directory; docs/format.md says what that costs.
    #[cfg(not(unix))]
    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DiskDir>> {
        Ok(Box::new(OsDir { path: path.to_owned() }))
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

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
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

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = private(&mut options).open(path)?;
        file.try_lock_exclusive()
            .map_err(|cause| if is_contended(&cause) { io::ErrorKind::WouldBlock.into() } else { cause })?;
        Ok(Box::new(OsLock { file: OsFile::new(file) }))
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
    fn make_private(&self, root: &Path, relative: &Path) -> io::Result<u32> {
        use std::os::unix::fs::PermissionsExt;
        let file = open_without_links(root, relative)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::Error::other("it is neither a file nor a directory"));
        }
        let mode = metadata.permissions().mode() & MODE_BITS;
        file.set_permissions(fs::Permissions::from_mode(mode & !0o077))?;
        Ok(mode)
    }

    #[cfg(not(unix))]
    fn make_private(&self, _root: &Path, _relative: &Path) -> io::Result<u32> {
        Ok(0)
    }

    #[cfg(target_os = "linux")]
    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>> {
        // The kernel's type is signed on some machines; the number has 32 bits on all of them.
        Ok(network_fs::name_of(rustix::fs::statfs(path)?.f_type as u32))
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

    fn open_files_max(&self) -> usize {
        open_files_max()
    }

    fn boot_id(&self) -> String {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    }
}

/// Whether there is a process with this number, whatever it is; `false` where that cannot be told. One that has died and was
/// not waited for yet does nothing any more.
pub(super) fn is_process_alive(pid: u32) -> bool {
    #[cfg(target_os = "linux")]
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        return !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
    }
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        return rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH);
    }
    #[cfg(not(unix))]
    let _ = pid;
    false
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

/// The permission bits of a Unix mode.
#[cfg(unix)]
const MODE_BITS: u32 = 0o7777;

/// Opens what lies below `root` without following a symbolic link: each part of the way is opened in the one before.
#[cfg(unix)]
fn open_without_links(root: &Path, relative: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open, openat};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // The data directory itself may be named by a link, unless it is what is to be changed.
    let root_flags = if relative.as_os_str().is_empty() { flags } else { flags - OFlags::NOFOLLOW };
    let mut at = open(root, root_flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut parts = relative.components().peekable();
    while let Some(part) = parts.next() {
        let std::path::Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        let more = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        at = openat(&at, name, flags | more, Mode::empty())?;
    }
    Ok(File::from(at))
}

fn is_contended(cause: &io::Error) -> bool {
    cause.raw_os_error() == fs2::lock_contended_error().raw_os_error()
}

/// For the owner alone; and opening what turns out to be a pipe does not wait for somebody at its other end.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn entry_of(entry: &fs::DirEntry) -> io::Result<DirEntry> {
    let kind = entry.file_type()?;
    let name = entry.file_name().into_string().unwrap_or_else(|odd| odd.to_string_lossy().into_owned());
    Ok(DirEntry { name, is_dir: kind.is_dir(), is_link: kind.is_symlink() })
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
    let (device, inode, mode) = identity_of(metadata);
    FileStat { kind, len: metadata.len(), device, inode, modified_nanos: modified_nanos_of(metadata), mode }
}

/// File system, inode and permission bits.
#[cfg(unix)]
fn identity_of(metadata: &fs::Metadata) -> (u64, u64, u32) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino(), metadata.mode() & MODE_BITS)
}

#[cfg(not(unix))]
fn identity_of(_: &fs::Metadata) -> (u64, u64, u32) {
    (0, 0, 0)
}

/// Times before 1970 are told apart too.
fn modified_nanos_of(metadata: &fs::Metadata) -> i128 {
    match metadata.modified().map(|moment| moment.duration_since(UNIX_EPOCH)) {
        Ok(Ok(since)) => since.as_nanos() as i128,
        Ok(Err(before)) => -(before.duration().as_nanos() as i128),
        Err(_) => 0,
    }
}

#[derive(Debug)]
struct OsFile {
    file: File,
    /// Whether a modification time was set since the last sync, which fdatasync would leave out.
    has_set_time: AtomicBool,
}

impl OsFile {
    fn new(file: File) -> Self {
        OsFile { file, has_set_time: AtomicBool::new(false) }
    }
}

/// In a second.
const NANOS: u128 = 1_000_000_000;

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
        match self.has_set_time.swap(false, Ordering::Relaxed) {
            true => self.file.sync_all(),
            false => self.file.sync_data(),
        }
    }

    fn set_modified(&self, nanos: i128) -> io::Result<()> {
        let (seconds, nanoseconds) = (nanos.unsigned_abs() / NANOS, (nanos.unsigned_abs() % NANOS) as u32);
        let seconds = u64::try_from(seconds).map_err(|_| io::ErrorKind::InvalidInput)?;
        let distance = Duration::new(seconds, nanoseconds);
        let moment = if nanos < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        self.file.set_modified(moment.ok_or(io::ErrorKind::InvalidInput)?)?;
        self.has_set_time.store(true, Ordering::Relaxed);
        Ok(())
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

#[cfg(unix)]
#[derive(Debug)]
struct OsDir {
    dir: File,
}

#[cfg(unix)]
impl DiskDir for OsDir {
    fn sync(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.dir.metadata().map(|metadata| stat_of(&metadata))
    }
}

#[cfg(not(unix))]
#[derive(Debug)]
struct OsDir {
    path: std::path::PathBuf,
}

#[cfg(not(unix))]
impl DiskDir for OsDir {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn stat(&self) -> io::Result<FileStat> {
        fs::metadata(&self.path).map(|metadata| stat_of(&metadata))
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
