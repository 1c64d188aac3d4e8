//! A wall clock that a test sets for a server, by libfaketime. The monotonic clock stays the machine's.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::data::Data;
use crate::host::Host;

const LIBRARY: &str = "libfaketimeMT.so.1";

/// The offset of a server's wall clock, in a file that the server reads with each look at the clock.
pub(crate) struct FakeClock {
    home: TempDir,
    library: PathBuf,
}

impl FakeClock {
    /// A clock that is ahead of the real one by this many seconds.
    pub(crate) fn ahead(seconds: i64) -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
        let clock = FakeClock { home, library: library() };
        clock.set(seconds);
        clock
    }

    /// Sets it ahead of the real one by this many seconds, which may be negative.
    pub(crate) fn set(&self, seconds: i64) {
        let (file, new) = (self.file(), self.home.path().join("new"));
        std::fs::write(&new, format!("{seconds:+}\n")).expect("the offset is written");
        std::fs::rename(&new, &file).expect("the offset is replaced at once");
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("offset")
    }

    /// A server on a new directory whose wall clock is this one.
    pub(crate) fn start(&self, args: &[&str]) -> Host {
        let file = self.file().display().to_string();
        let mut host = Host::on(Data::nowhere(), args)
            .with("LD_PRELOAD", &self.library.display().to_string())
            .with("FAKETIME_TIMESTAMP_FILE", &file)
            .with("FAKETIME_NO_CACHE", "1")
            .with("DONT_FAKE_MONOTONIC", "1")
            .with("NO_FAKE_STAT", "1");
        host.revive();
        host
    }
}

/// Where set-up has put libfaketime.
fn library() -> PathBuf {
    let roots = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let places = roots.chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    let found = places.map(|root| root.join("faketime").join(LIBRARY)).find(|path: &PathBuf| Path::exists(path));
    found.unwrap_or_else(|| panic!("{LIBRARY} is not installed: run .ci/setup, or install the package `faketime`"))
}
