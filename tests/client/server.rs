//! A server that does to each request what a test says, byte by byte, and remembers what it was asked. One request a
//! connection; it can be ended and started again at the same address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lastword::client::{Client, ClientOptions, FollowOptions, Patience};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the server does next. Behind the last step it closes the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Sends byte by byte, with so many seconds between them.
    Trickle(Vec<u8>, f64),
    /// Sends the same so many times, with so many seconds between.
    Repeat(Vec<u8>, usize, f64),
    /// Says nothing more and waits until the client is gone.
    Hang,
    /// Closes the connection in a way that the client sees as an error.
    Reset,
}

/// What a request is answered with.
pub(crate) type Reply = Vec<Step>;

/// A request that the server got.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) at: tokio::time::Instant,
}

impl Seen {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// Method and path.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
    }
}

type Handler = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

#[derive(Clone)]
struct Shared {
    handler: Arc<Handler>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

pub(crate) struct Server {
    address: SocketAddr,
    shared: Shared,
    accepting: JoinHandle<()>,
}

impl Server {
    /// A server that answers the first request with the first reply, and so on, and then with nothing.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        Self::with(move |_, number| replies.get(number).cloned().unwrap_or_default()).await
    }

    /// A server that answers as a function says, which is told the request and how many came before it.
    pub(crate) async fn with(handler: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Shared { handler: Arc::new(handler), seen: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Server { address, accepting: tokio::spawn(accept(listener, shared.clone())), shared }
    }

    /// An address at which nobody listens.
    pub(crate) async fn nobody() -> Self {
        let mut server = Self::start(Vec::new()).await;
        server.end().await;
        server
    }

    /// Nobody listens any more.
    pub(crate) async fn end(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    /// Listens again.
    pub(crate) async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.accepting = tokio::spawn(accept(listener, self.shared.clone()));
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// The requests, without what is in them.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.line().to_owned()).collect()
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(ClientOptions::default())
    }

    pub(crate) fn client_with(&self, options: ClientOptions) -> Client {
        Client::new(&self.base_url(), options).unwrap()
    }
}

/// Patience that no test outlasts, with pauses that none notices.
pub(crate) const PATIENT: Patience = patience(60.0);

pub(crate) const fn patience(seconds: f64) -> Patience {
    Patience {
        lasting: Some(Duration::from_millis((seconds * 1000.0) as u64)),
        first_pause: Duration::from_millis(10),
        pause_max: Duration::from_millis(100),
    }
}

pub(crate) const FOLLOWING: FollowOptions = FollowOptions { patience: PATIENT };

/// An answer of one piece.
pub(crate) fn answer(status: u16, kind: &str, text: &str) -> Reply {
    let (length, more) = (text.len(), "Connection: close\r\n");
    let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\r\n");
    vec![Step::Send(format!("{head}{text}").into_bytes())]
}

pub(crate) fn json(status: u16, text: &str) -> Reply {
    answer(status, "application/json", text)
}

pub(crate) fn refuse(status: u16, code: &str) -> Reply {
    json(status, &format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"because\"}}}}"))
}

/// The head of a stream of events.
pub(crate) fn stream() -> Step {
    let kind = "Content-Type: text/event-stream; charset=utf-8\r\n";
    Step::Send(format!("HTTP/1.1 200 OK\r\n{kind}Connection: close\r\n\r\nretry: 10\n\n").into_bytes())
}

pub(crate) fn send(text: &str) -> Step {
    Step::Send(text.as_bytes().to_vec())
}

pub(crate) async fn pause(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

async fn accept(listener: TcpListener, shared: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move { drop(serve(stream, shared).await) });
    }
}

/// An error says that the client is gone.
async fn serve(mut stream: TcpStream, shared: Shared) -> io::Result<()> {
    let seen = read_request(&mut stream).await?;
    let number = {
        let mut all = shared.seen.lock();
        all.push(seen.clone());
        all.len() - 1
    };
    stream.set_nodelay(true)?;
    for step in (shared.handler)(&seen, number) {
        act(step, &mut stream).await?;
    }
    Ok(())
}

async fn act(step: Step, stream: &mut TcpStream) -> io::Result<()> {
    match step {
        Step::Send(bytes) => stream.write_all(&bytes).await,
        Step::Trickle(bytes, seconds) => {
            for byte in bytes {
                stream.write_all(&[byte]).await?;
                pause(seconds).await;
            }
            Ok(())
        }
        Step::Repeat(bytes, times, seconds) => {
            for _ in 0..times {
                stream.write_all(&bytes).await?;
                pause(seconds).await;
            }
            Ok(())
        }
        Step::Hang => stream.read(&mut [0; 64]).await.map(drop),
        // Takes effect when the stream is dropped.
        Step::Reset => stream.set_zero_linger(),
    }
}

async fn read_request(stream: &mut TcpStream) -> io::Result<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        read_more(stream, &mut bytes).await?;
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("a head is text");
    let mut seen = Seen { head, body: String::new(), at: tokio::time::Instant::now() };
    let length: usize = seen.header("content-length").map_or(0, |length| length.parse().expect("it is a number"));
    while bytes.len() < head_end + length {
        read_more(stream, &mut bytes).await?;
    }
    seen.body = String::from_utf8(bytes[head_end..].to_vec()).expect("a body is text");
    Ok(seen)
}

async fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
