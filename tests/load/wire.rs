//! A client that holds very many connections with one thread: requests one after the other, and streams as they come.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A connection on which one request is asked after the other.
pub(crate) struct Caller {
    address: SocketAddr,
    stream: TcpStream,
    read: Vec<u8>,
}

impl Caller {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Caller { address, stream, read: Vec::new() }
    }

    /// Sends a request and waits for its answer: the status and the body.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
        let (address, length) = (self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        self.stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
        self.answer().await
    }

    pub(crate) async fn get(&mut self, path: &str) -> (u16, String) {
        self.ask("GET", path, "application/json", "").await
    }

    /// An answer of this status, as JSON.
    pub(crate) async fn post(&mut self, path: &str, body: Value, status: u16) -> Value {
        let (given, text) = self.ask("POST", path, "application/json", &body.to_string()).await;
        assert_eq!(given, status, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn answer(&mut self) -> (u16, String) {
        let head_end = loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.read_more().await;
        };
        let head = String::from_utf8(self.read.drain(..head_end).collect()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        while self.read.len() < length {
            self.read_more().await;
        }
        (status, String::from_utf8(self.read.drain(..length).collect()).unwrap())
    }

    async fn read_more(&mut self) {
        let read = self.stream.read_buf(&mut self.read).await.unwrap();
        assert!(read > 0, "the server hung up");
    }
}

/// A session with a run that we produce.
pub(crate) async fn begin_run(caller: &mut Caller, session: &str) {
    let id = serde_json::json!({ "session_id": session });
    caller.post("/v1/sessions", id, 201).await;
    let turn = serde_json::json!({ "message": "Where to?", "run_id": "r", "lease_seconds": 3600 });
    caller.post(&format!("/v1/sessions/{session}/runs"), turn, 202).await;
}

/// Follows a run: the connection, with the request sent. A small window makes a reader that does not read stuck soon.
pub(crate) async fn open_stream(address: SocketAddr, session: &str, window: Option<u32>) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    window.map_or(Ok(()), |window| socket.set_recv_buffer_size(window))?;
    let mut stream = socket.connect(address).await?;
    let path = format!("/v1/sessions/{session}/runs/r/events");
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

/// What a stream has said so far, without the frames of its transfer.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    framing: Framing,
    /// The beginning of a frame's line.
    frame: Vec<u8>,
    /// The beginning of a line of the body.
    line: Vec<u8>,
}

#[derive(Debug, Default)]
enum Framing {
    #[default]
    Head,
    /// The size of a piece comes next, perhaps behind the end of the piece before.
    Size,
    Piece(usize),
    Over,
}

impl Heard {
    /// Takes what arrived, and shows each whole line of the body.
    pub(crate) fn take(&mut self, mut bytes: &[u8], mut show: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            bytes = match self.framing {
                Framing::Piece(left) => {
                    let (piece, rest) = bytes.split_at(left.min(bytes.len()));
                    self.take_piece(piece, &mut show);
                    self.framing = if piece.len() == left { Framing::Size } else { Framing::Piece(left - piece.len()) };
                    rest
                }
                _ => self.take_frame(bytes),
            };
        }
    }

    fn take_piece(&mut self, piece: &[u8], show: &mut impl FnMut(&[u8])) {
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let is_whole = parts.peek().is_some();
            match (is_whole, self.line.is_empty()) {
                (true, true) => show(part),
                (true, false) => {
                    self.line.extend_from_slice(part);
                    show(&self.line);
                    self.line.clear();
                }
                (false, _) => self.line.extend_from_slice(part),
            }
        }
    }

    fn take_frame<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.frame.extend_from_slice(bytes);
            return &[];
        };
        self.frame.extend_from_slice(&bytes[..end]);
        let frame = String::from_utf8(std::mem::take(&mut self.frame)).unwrap();
        self.framing = match (&self.framing, frame.trim_end()) {
            (Framing::Head, "") => Framing::Size,
            (Framing::Head, line) => {
                assert!(!line.starts_with("HTTP/") || line.contains(" 200 "), "{line}");
                Framing::Head
            }
            (Framing::Over, _) => Framing::Over,
            // The line break behind a piece.
            (_, "") => Framing::Size,
            (_, size) => match usize::from_str_radix(size, 16).unwrap() {
                0 => Framing::Over,
                size => Framing::Piece(size),
            },
        };
        &bytes[end + 1..]
    }

    /// Whether the answer has come to its proper end.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.framing, Framing::Over)
    }
}
