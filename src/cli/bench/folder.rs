//! The temporary folder: where it is made, and that it goes away again, however the measurement ends.
//!
//! A second process waits until this one has ended, by whatever signal, and then removes the folder. It is told by the
//! end of its standard input, which the operating system closes with us.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lastword::entropy::{Entropy, SystemEntropy};
use lastword::storage::Layout;

use super::Failure;

const PREFIX: &str = "lastword-bench-";
/// How long the end of the command waits until the folder is gone.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where the folder is to be made: where it was asked for, else beside the data directory. Never inside one.
pub(super) fn place(asked_for: Option<&Path>, data: &Path) -> Result<PathBuf, Failure> {
    let data = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let place = match asked_for {
        Some(place) => place,
        None => data.parent().filter(|parent| parent.is_dir()).unwrap_or(Path::new(".")),
    };
    let place = fs::canonicalize(place).map_err(|cause| unusable(place, &cause))?;
    let is_data = |folder: &&Path| *folder == data || Layout::new(folder).identity().exists();
    match place.ancestors().find(is_data) {
        Some(data) => Err(Failure::Usage(format!(
            "did not measure in {}: {} is a data directory, which is left alone; name another folder with --dir",
            place.display(),
            data.display()
        ))),
        None => Ok(place),
    }
}

fn unusable(place: &Path, cause: &io::Error) -> Failure {
    let place = place.display();
    let message = format!("could not make temporary files in {place}: {cause}; name another folder with --dir");
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::Usage(message),
        _ => Failure::Storage(message),
    }
}

/// A folder that is removed when this goes, or else when the process does.
pub(super) struct Folder {
    path: PathBuf,
    sweeper: Option<Child>,
}

impl Folder {
    pub(super) fn create(place: &Path) -> Result<Self, Failure> {
        let path = place.join(format!("{PREFIX}{:08x}", SystemEntropy.next() as u32));
        fs::create_dir(&path).map_err(|cause| unusable(place, &cause))?;
        // Without one, the folder is still removed unless this process is killed.
        let sweeper = start_sweeper(&path).ok();
        Ok(Folder { path, sweeper })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let folder = self.path.display();
        if self.sweeper.take().is_some_and(|sweeper| !ends_in_time(sweeper)) {
            eprintln!("lastword: {folder} is still being removed, in the background");
            return;
        }
        match fs::remove_dir_all(&self.path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                eprintln!("lastword: warning: could not remove {folder}: {cause}; remove it by hand");
            }
            _ => {}
        }
    }
}

/// Has the sweeper begin, and waits for it a while. A busy disk can take minutes to remove 100,000 files.
fn ends_in_time(mut sweeper: Child) -> bool {
    drop(sweeper.stdin.take());
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(sweeper.wait()));
    !matches!(ended.recv_timeout(SWEEP_WAIT_MAX), Err(RecvTimeoutError::Timeout))
}

fn start_sweeper(path: &Path) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "--sweep"]).arg(path);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    apart(&mut command).spawn()
}

/// What the keyboard sends to us does not reach it.
#[cfg(unix)]
fn apart(command: &mut Command) -> &mut Command {
    std::os::unix::process::CommandExt::process_group(command, 0)
}

#[cfg(windows)]
fn apart(command: &mut Command) -> &mut Command {
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
    std::os::windows::process::CommandExt::creation_flags(command, CREATE_NEW_PROCESS_GROUP)
}

#[cfg(not(any(unix, windows)))]
fn apart(command: &mut Command) -> &mut Command {
    command
}

/// Waits until standard input ends, and removes the folder. Any but a folder of ours is refused.
pub(super) fn sweep(folder: &Path) -> Result<(), Failure> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.starts_with(PREFIX) {
        return Err(Failure::Usage(format!("did not remove {}: it is not called {PREFIX}..", folder.display())));
    }
    let mut nothing = [0; 64];
    while io::stdin().lock().read(&mut nothing).is_ok_and(|len| len > 0) {}
    fs::remove_dir_all(folder)
        .map_err(|cause| Failure::Storage(format!("could not remove {}: {cause}", folder.display())))
}
