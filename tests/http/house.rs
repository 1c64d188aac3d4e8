//! A server at work in this process, on a port of its own, with a store of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lastword::http::{Server, ServerOptions, TokenHandle};
use lastword::run::{Drained, RunOptions, Runners, Supervisor};
use lastword::{Options, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::wire::{Answer, Ask, Coming, ask};

/// A server, and what is needed to end it.
pub(crate) struct House {
    pub(crate) address: SocketAddr,
    pub(crate) store: Store,
    pub(crate) supervisor: Supervisor,
    pub(crate) token_handle: TokenHandle,
    runtime: Option<Runtime>,
    serving: Option<(oneshot::Sender<()>, JoinHandle<Drained>)>,
    pub(crate) folder: TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A server whose options were changed.
    pub(crate) fn with(change: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::of(Options::default(), Runners::default(), change)
    }

    pub(crate) fn of(options: Options, runners: Runners, change: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), options, runners, change)
    }

    /// A server of what lies in a folder.
    pub(crate) fn at(folder: TempDir) -> Self {
        Self::in_folder(folder, Options::default(), Runners::default(), |_| {})
    }

    fn in_folder(folder: TempDir, options: Options, runners: Runners, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let data = folder.path().join("data");
        let store = Store::open(&data, options).unwrap();
        let mut options = ServerOptions { data, listen: "127.0.0.1:0".parse().unwrap(), ..ServerOptions::default() };
        change(&mut options);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (supervisor, server) = runtime.block_on(async {
            let supervisor = Supervisor::new(store.clone(), runners, RunOptions::default()).unwrap();
            let server = Server::bind(store.clone(), supervisor.clone(), options).await.unwrap();
            (supervisor, server)
        });
        let address = server.address();
        let token_handle = server.token_handle();
        let (ask, asked) = oneshot::channel();
        let serving = runtime.spawn(server.serve(async move { drop(asked.await) }));
        House {
            address,
            store,
            supervisor,
            token_handle,
            runtime: Some(runtime),
            serving: Some((ask, serving)),
            folder,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    #[track_caller]
    pub(crate) fn send(&self, ask: &Ask) -> Answer {
        ask.send(self.address)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&ask("GET", path))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.send(&ask("POST", path).json(body))
    }

    /// A session with this id.
    #[track_caller]
    pub(crate) fn session(&self, id: &str) {
        self.post("/v1/sessions", json!({ "session_id": id })).expect(201);
    }

    /// A session with a run that is produced outside.
    #[track_caller]
    pub(crate) fn run(&self, session: &str, run: &str) {
        self.session(session);
        let path = format!("/v1/sessions/{session}/runs");
        self.post(&path, json!({ "message": "Where to?", "run_id": run })).expect(202);
    }

    /// Appends tokens, one event each.
    #[track_caller]
    pub(crate) fn tokens(&self, session: &str, run: &str, words: &[&str]) -> u64 {
        let lines: Vec<String> = words.iter().map(|word| token(word)).collect();
        self.append(session, run, &lines.join("\n")).expect(200).json()["last_seq"].as_u64().unwrap()
    }

    #[track_caller]
    pub(crate) fn append(&self, session: &str, run: &str, lines: &str) -> Answer {
        self.send(&ask("POST", &format!("/v1/sessions/{session}/runs/{run}/events")).lines(lines))
    }

    /// Follows a run.
    #[track_caller]
    pub(crate) fn follow(&self, session: &str, run: &str, query: &str) -> Coming {
        let path = format!("/v1/sessions/{session}/runs/{run}/events{query}");
        ask("GET", &path).header("accept", "text/event-stream").open(self.address)
    }

    /// Asks the server to end, and waits for that.
    pub(crate) fn end(&mut self) -> Option<Drained> {
        let (ask, serving) = self.serving.take()?;
        let _ = ask.send(());
        self.runtime.as_ref()?.block_on(serving).ok()
    }

    /// Asks the server to end, and does not wait.
    pub(crate) fn ask_to_end(&mut self) -> JoinHandle<Drained> {
        let (ask, serving) = self.serving.take().unwrap();
        ask.send(()).unwrap();
        serving
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(future)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
    }
}

/// A line with a token.
pub(crate) fn token(text: &str) -> String {
    json!({ "event": "token", "payload": { "text": text } }).to_string()
}

pub(crate) const DONE: &str = r#"{"event":"done"}"#;
