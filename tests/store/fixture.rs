//! A store in a folder of its own, with one session.

use std::sync::mpsc;
use std::time::Duration;

use lastword::{NewSession, Options, ReadOptions, Run, RunId, SessionId, Store, UserTurn};

pub(crate) struct Fixture {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) id: SessionId,
}

pub(crate) fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let id = store.create(NewSession::titled("A title")).unwrap();
    Fixture { folder, store, id }
}

impl Fixture {
    pub(crate) fn begin(&self, prompt: &str) -> Run {
        self.store.begin_run(&self.id, UserTurn::text(prompt)).unwrap()
    }

    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        let session = self.store.get_session(&self.id).unwrap();
        session.messages().map(|row| (row.role().into_owned(), row.content().into_owned())).collect()
    }

    pub(crate) fn seqs(&self, run: &RunId) -> Vec<u64> {
        let found = self.store.read_events(&self.id, run, ReadOptions::default()).unwrap();
        found.events.iter().map(|event| event.seq.unwrap()).collect()
    }
}

pub(crate) fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(role, content)| (role.to_string(), content.to_string())).collect()
}

/// Runs something that must not take for ever.
pub(crate) fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || told.send(work()));
    heard.recv_timeout(Duration::from_secs(30)).expect("it never ends")
}
