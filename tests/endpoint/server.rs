//! A server that does to each request what a test says, byte by byte, and remembers what it was asked. One request a
//! connection.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::house::pause;

/// What the server does next. Behind the last step it closes the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Sends byte by byte, with so many seconds between them.
    Trickle(Vec<u8>, f64),
    /// Sends the same again and again, with so many seconds between, until the client is gone.
    Repeat(Vec<u8>, f64),
    Pause(f64),
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
    pub(crate) body: Value,
    /// The body as it came.
    pub(crate) raw: String,
}

impl Seen {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

#[derive(Debug, Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    seen: Mutex<Vec<Seen>>,
    gone: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    /// A server that answers the first request with the first reply, and so on.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { replies: Mutex::new(replies.into()), ..Shared::default() });
        tokio::spawn(accept(listener, shared.clone()));
        Server { address, shared }
    }

    /// An address at which nobody listens.
    pub(crate) async fn nobody() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Server { address: listener.local_addr().unwrap(), shared: Arc::default() }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// How many clients went away while the server was not done with them.
    pub(crate) fn gone(&self) -> usize {
        self.shared.gone.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, shared.clone()));
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let seen = read_request(&mut stream).await.expect("a whole request arrives");
    shared.seen.lock().push(seen);
    let reply = shared.replies.lock().pop_front().unwrap_or_default();
    stream.set_nodelay(true).unwrap();
    for step in reply {
        if act(step, &mut stream).await.is_err() {
            shared.gone.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

/// An error says that the client is gone.
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
        Step::Repeat(bytes, seconds) => loop {
            stream.write_all(&bytes).await?;
            pause(seconds).await;
        },
        Step::Pause(seconds) => {
            pause(seconds).await;
            Ok(())
        }
        Step::Hang => match stream.read(&mut [0; 64]).await? {
            0 => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => panic!("a client says nothing behind its request"),
        },
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
    let mut seen = Seen { head, body: Value::Null, raw: String::new() };
    let length: usize = seen.header("content-length").expect("a length is said").parse().expect("it is a number");
    while bytes.len() < head_end + length {
        read_more(stream, &mut bytes).await?;
    }
    seen.raw = String::from_utf8(bytes.split_off(head_end)).expect("a body is text");
    seen.body = serde_json::from_str(&seen.raw).expect("a body is JSON");
    Ok(seen)
}

async fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
