//! A server as a process of its own, on a port and a directory that it finds again after each death.

use std::net::TcpListener;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use lastword::client::{Client, ClientError, ClientOptions, NewRun, Patience};
use lastword::{NewSession, RunId, SessionId, UserTurn};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::data::Data;
use crate::process::{Ended, Process};
use crate::table::{Signal, is_alive, signal};

/// Tries again soon, and for longer than any server here is away.
pub(crate) const PATIENCE: Patience = Patience {
    lasting: Some(Duration::from_secs(60)),
    first_pause: Duration::from_millis(10),
    pause_max: Duration::from_millis(100),
};

/// Far more than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A server that may be dead at the moment.
pub(crate) struct Host {
    pub(crate) data: Data,
    port: u16,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    process: Option<Process>,
}

impl Host {
    /// A server at work on a new directory.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut host = Host::on(Data::nowhere(), args);
        host.revive();
        host
    }

    /// A server that is not started yet.
    pub(crate) fn on(data: Data, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Host { data, port: free_port(), args, variables: Vec::new(), process: None }
    }

    /// The same with a variable in its environment.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url(), ClientOptions::default()).expect("the address is one")
    }

    /// The command that starts it.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.data.command(&["serve", "--listen", &self.address()]);
        command.args(&self.args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it, and waits until it listens.
    pub(crate) fn revive(&mut self) {
        self.begin_to_revive();
        self.wait_until_it_listens();
    }

    /// Starts it, and waits for nothing.
    pub(crate) fn begin_to_revive(&mut self) {
        self.begin_as(self.command());
    }

    /// Starts it by another command.
    pub(crate) fn begin_as(&mut self, command: Command) {
        assert!(self.process.is_none(), "it is at work");
        self.process = Some(Process::start(command));
    }

    pub(crate) fn wait_until_it_listens(&mut self) {
        let said = self.process.as_ref().and_then(Process::next_line);
        if said.is_none() {
            let ended = self.process.take().map(Process::end);
            panic!("the server did not start: {ended:?}");
        }
        assert_eq!(said, Some(format!("listening on {}", self.url())));
    }

    /// kill -9. Nothing that it logged before may tell of a panic.
    pub(crate) fn kill(&mut self) -> Ended {
        self.process.as_mut().expect("it is at work").kill();
        self.end()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.process.as_ref().expect("it is at work").id(), which);
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().expect("it is at work").id()
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        is_alive(self.process.as_ref().expect("it was started").id())
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Ended {
        let ended = self.process.take().expect("it is at work").end();
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended
    }

    /// Asks it to end, which it has to do in peace.
    pub(crate) fn stop(&mut self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.end();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        ended
    }
}

/// A free port outside of those that the system gives to clients: a client that asks for a dead server's port again and again
/// would be given that very port one day, and talk to itself. Each is given out once: a server that was killed comes back to
/// its own. Test processes that run at the same time have ports of their own, each a block whose first port it listens on.
fn free_port() -> u16 {
    const PORTS: u16 = 200;
    const BLOCKS: u16 = 60;
    static BLOCK: OnceLock<(TcpListener, u16)> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let take = |first: u16| TcpListener::bind(("127.0.0.1", first)).ok().map(|guard| (guard, first));
    let (_, first) = BLOCK.get_or_init(|| {
        let blocks = (0..BLOCKS).map(|nth| 20_000 + (nth + std::process::id() as u16 % BLOCKS) % BLOCKS * PORTS);
        blocks.into_iter().find_map(take).expect("a block of ports is free")
    });
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(nth < PORTS, "there are more servers than ports");
        let port = first + nth;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tasks can be started")
}

/// Something that has to come in time.
pub(crate) async fn in_time<T>(what: &str, limit: Duration, something: impl Future<Output = T>) -> T {
    let come = tokio::time::timeout(limit, something).await;
    come.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Asks until somebody answers.
pub(crate) async fn answered<T, F>(ask: impl Fn() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        match ask().await {
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            answer => return answer,
        }
    }
}

pub(crate) fn session_id(text: &str) -> SessionId {
    SessionId::parse(text).expect("it is an id")
}

pub(crate) fn run_id(text: &str) -> RunId {
    RunId::parse(text).expect("it is an id")
}

/// Creates a session. That it is there already is what a repeat finds.
pub(crate) async fn create(client: &Client, session: &SessionId) {
    let new = NewSession { id: Some(session.clone()), title: format!("About {session}") };
    match answered(|| client.create_session(&new)).await {
        Ok(created) => assert_eq!(&created.session, session),
        Err(error) => assert_eq!(error.code(), Some("exists"), "{error}"),
    }
}

/// A turn for a producer outside.
pub(crate) fn outside(run: &RunId, message: &str, lease_seconds: Option<f64>) -> NewRun {
    let turn = UserTurn { lease_seconds, ..UserTurn::text(message) };
    NewRun { turn: turn.with_run(run.clone()), runner: None }
}

/// A turn for the server's demo.
pub(crate) fn demo(run: &RunId, message: &str) -> NewRun {
    NewRun { turn: UserTurn::text(message).with_run(run.clone()), runner: Some("demo".to_owned()) }
}

/// Begins a turn. That its run is there already is what a repeat finds.
pub(crate) async fn begin(client: &Client, session: &SessionId, new: &NewRun) {
    let run = new.turn.run.as_ref().expect("the run has a name");
    match answered(|| client.begin_run(session, new)).await {
        Ok(begun) => assert_eq!(&begun, run),
        Err(error) => {
            assert!(matches!(error.code(), Some("run_in_progress" | "exists")), "{error}");
            let metadata = answered(|| client.metadata(session)).await.expect("the session is there");
            let metadata: Value = serde_json::from_str(&metadata.text).expect("metadata is JSON");
            assert_eq!(metadata["active_stream_id"], run.as_str(), "{error}");
        }
    }
}

/// The whole session, as the server gives it.
pub(crate) async fn read(client: &Client, session: &SessionId) -> Value {
    let document = answered(|| client.session(session)).await.expect("the session is there");
    serde_json::from_str(&document.text).expect("a session is JSON")
}
