//! A data directory with a number of sessions, and its list as a text that can be compared.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use lastword::clock::{Clock, ManualClock, SystemClock, Timestamp};
use lastword::{Listed, NewSession, Options, SaveOptions, SessionId, Store};

pub(crate) struct Shelf {
    _folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) fn sid(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

impl Shelf {
    /// So many sessions, `s0` the one that changed last, listed once and closed.
    pub(crate) fn with(sessions: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shelf =
            Shelf { root: folder.path().to_owned(), _folder: folder, clock: Arc::new(ManualClock::at(yesterday())) };
        let store = shelf.writer();
        for at in (0..sessions).rev() {
            shelf.clock.advance(std::time::Duration::from_secs(1));
            store.create(NewSession::titled(&format!("Session {at}")).with_id(sid(&format!("s{at}")))).unwrap();
        }
        assert_eq!(store.list().unwrap().len(), sessions);
        shelf
    }

    pub(crate) fn options(&self) -> Options {
        Options { clock: self.clock.clone(), ..Options::default() }
    }

    pub(crate) fn writer(&self) -> Store {
        Store::open(&self.root, self.options()).unwrap()
    }

    pub(crate) fn reader(&self) -> Store {
        Store::open_read_only(&self.root, self.options()).unwrap()
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("_sessions.index")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// What the files say, asked without any index.
    pub(crate) fn truth(&self) -> Vec<String> {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&self.root).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().ends_with(".json") {
                fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        shown(&Store::open_read_only(copy.path(), self.options()).unwrap().list().unwrap())
    }
}

/// A moment before every change of the real disk, so that none of them looks settled.
fn yesterday() -> Timestamp {
    Timestamp::from_seconds(SystemClock.now().seconds() - 86_400.0)
}

pub(crate) fn rename(store: &Store, id: &str, title: &str) {
    store.update(&sid(id), SaveOptions::default(), |session| session.set_text("title", title)).unwrap();
}

/// Each entry as a text, in the order of the list.
pub(crate) fn shown(listed: &[Listed]) -> Vec<String> {
    let text = |entry: &Listed| match &entry.summary {
        Ok(summary) => summary.to_listed_json(entry.state),
        Err(error) => format!("{}: {}", entry.id, error.code()),
    };
    listed.iter().map(text).collect()
}

pub(crate) fn ids(listed: &[Listed]) -> Vec<&str> {
    listed.iter().map(|entry| entry.id.as_str()).collect()
}
