//! The files that a person writes for the command line: the configuration and the token file. Who may write them, and what
//! is wrong with them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use lastword::http::{ServerSettings, Tokens};
use lastword::run::Config;

use super::Context;
use super::failure::Failure;

/// Where the configuration is looked for in a data directory, if no other place is named.
const FILE_NAME: &str = "_lastword.toml";
/// Bytes of a token file.
const TOKEN_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The text of the configuration, and where it is; nothing if there is none and none was named.
fn read(context: &Context, named: Option<&Path>) -> Result<(PathBuf, String), Failure> {
    let path = named.map_or_else(|| context.data.join(FILE_NAME), PathBuf::from);
    let broken = |cause| Failure::Usage(format!("could not read the configuration {}: {cause}", path.display()));
    let opened = match named {
        Some(path) => File::open(path),
        None => open_regular(&path),
    };
    let mut file = match opened {
        Ok(file) => file,
        Err(cause) if named.is_none() && cause.kind() == io::ErrorKind::NotFound => return Ok((path, String::new())),
        Err(cause) => return Err(broken(cause)),
    };
    // The file that was opened, and not one that has its name by now.
    refuse_foreign(&path, &file.metadata().map_err(broken)?)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(broken)?;
    Ok((path, text))
}

/// A configuration names programs that are started as this user, so that no other user may write it.
#[cfg(unix)]
fn refuse_foreign(path: &Path, file: &Metadata) -> Result<(), Failure> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let (shown, mode, owner) = (path.display(), file.mode() & 0o7777, file.uid());
    let own = rustix::process::geteuid().as_raw();
    // /dev/null holds what it always holds.
    if file.file_type().is_char_device() {
        return Ok(());
    }
    if owner != own && owner != 0 {
        return Err(Failure::Usage(format!(
            "the configuration {shown} is not used, because it belongs to user {owner}, who could have any program started \
             as user {own}: check what is in it, then `chown {own} {shown}`"
        )));
    }
    if mode & 0o022 != 0 {
        return Err(Failure::Usage(format!(
            "the configuration {shown} is not used, because other users may write it (mode {mode:03o}) and could have any \
             program started as user {own}: check what is in it, then `chmod go-w {shown}`"
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_foreign(_: &Path, _: &Metadata) -> Result<(), Failure> {
    Ok(())
}

fn wrong(path: &Path, cause: &dyn std::error::Error) -> Failure {
    Failure::Usage(format!("the configuration {} is wrong: {cause}", path.display()))
}

/// The runners and options that are configured. Without a file there is the demo.
pub(super) fn load(context: &Context, named: Option<&Path>) -> Result<Config, Failure> {
    let (path, text) = read(context, named)?;
    Config::parse(&text).map_err(|cause| wrong(&path, &cause))
}

/// What the same file says about a server.
pub(super) fn load_server(context: &Context, named: Option<&Path>) -> Result<ServerSettings, Failure> {
    let (path, text) = read(context, named)?;
    ServerSettings::parse(&text).map_err(|cause| wrong(&path, &cause))
}

/// The tokens of a file, and what its owner should know about it.
#[derive(Default)]
pub(super) struct ReadTokens {
    pub(super) tokens: Tokens,
    pub(super) warnings: Vec<String>,
}

/// Why a token file gave no tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoTokens {
    /// It could not be read now. A later try may fare better although the file does not change.
    #[error("{0}")]
    Unreadable(String),
    /// What is in it cannot be used. The message repeats nothing of it.
    #[error("{0}")]
    Unusable(String),
}

/// Reads a token file for the first time. It may be a pipe, as a shell makes one for `<(..)`.
pub(super) fn read_tokens(path: &Path) -> Result<ReadTokens, NoTokens> {
    read_tokens_of(path, |path| File::open(path))
}

/// Reads a token file again. A pipe is not waited for.
pub(super) fn read_tokens_again(path: &Path) -> Result<ReadTokens, NoTokens> {
    read_tokens_of(path, open_regular)
}

fn read_tokens_of(path: &Path, open: impl FnOnce(&Path) -> io::Result<File>) -> Result<ReadTokens, NoTokens> {
    let shown = path.display();
    let broken = |cause: io::Error| {
        let message = format!("could not read the token file {shown}: {cause}");
        match cause.kind() {
            io::ErrorKind::InvalidData => NoTokens::Unusable(message),
            _ => NoTokens::Unreadable(message),
        }
    };
    let file = open(path).map_err(broken)?;
    let others_may_read = is_open_to_others(&file.metadata().map_err(broken)?);
    let mut text = String::new();
    file.take(TOKEN_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(broken)?;
    if text.len() as u64 > TOKEN_FILE_BYTES_MAX {
        let message =
            format!("the token file {shown} has more than {TOKEN_FILE_BYTES_MAX} bytes: is it the right file?");
        return Err(NoTokens::Unusable(message));
    }
    let unusable = |bad| NoTokens::Unusable(format!("the token file {shown} cannot be used: {bad}"));
    let tokens = Tokens::parse(&text).map_err(unusable)?;
    let readable = others_may_read.then(|| format!("others may read the token file {shown}: chmod 600 keeps them out"));
    let guessable = tokens.are_guessable().then(|| {
        "a token of the token file is short enough to be guessed: `openssl rand -hex 32` makes a better one".to_owned()
    });
    Ok(ReadTokens { tokens, warnings: readable.into_iter().chain(guessable).collect() })
}

/// Opens a file. A pipe, which would wait for its writer, and a directory are refused.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    // A character device, as a shell's `/dev/stdin`, has an end like a file.
    match is_pipe_or_directory(&file.metadata()?) {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a directory: give a file")),
        false => Ok(file),
    }
}

#[cfg(unix)]
fn open_without_waiting(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    Ok(File::from(open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?))
}

#[cfg(not(unix))]
fn open_without_waiting(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(unix)]
fn is_pipe_or_directory(file: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    file.is_dir() || file.file_type().is_fifo() || file.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_pipe_or_directory(file: &Metadata) -> bool {
    file.is_dir()
}

#[cfg(unix)]
fn is_open_to_others(file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Metadata) -> bool {
    false
}

/// By what a changed file is known: which file it is, its size, and when it was written, or its rights or owner changed. None
/// if it cannot be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState(Option<(Identity, u64, Option<Duration>)>);

impl FileState {
    #[cfg(test)]
    pub(super) fn of_size(bytes: u64) -> Self {
        FileState(Some((Identity::default(), bytes, None)))
    }
}

/// Looks at a file, or at what a symbolic link leads to.
pub(super) fn state_of(path: &Path) -> FileState {
    FileState(std::fs::metadata(path).ok().map(|file| {
        let written = file.modified().ok().and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
        (identity(&file), file.len(), written)
    }))
}

/// Device and inode of a file, and when either of its data, its rights or its owner changed. The last no program can set back.
type Identity = (u64, u64, (i64, i64));

#[cfg(unix)]
fn identity(file: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino(), (file.ctime(), file.ctime_nsec()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    Identity::default()
}
