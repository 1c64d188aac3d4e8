//! A client that knows only bytes: it sends what it is told, and shows what came back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer, or its beginning.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|cause| panic!("{cause}: {:?}", self.text()))
    }

    /// The code of an answer that says no.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        if let Some(code) = self.header("lastword-error") {
            return code.to_owned();
        }
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }

    /// The answer, if it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

pub(crate) fn ask(method: &str, path: &str) -> Ask {
    Ask { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, body: Value) -> Self {
        self.header("content-type", "application/json").bytes(body.to_string().as_bytes())
    }

    pub(crate) fn lines(self, lines: &str) -> Self {
        self.header("content-type", "application/x-ndjson").bytes(lines.as_bytes())
    }

    pub(crate) fn bytes(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    fn encoded(&self, address: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head.push_str(&format!("host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let is_announced = self.headers.iter().any(|(name, _)| name == "content-length");
        if !is_announced && (!self.body.is_empty() || self.method != "GET") {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        [format!("{head}\r\n").as_bytes(), &self.body].concat()
    }

    /// Sends it on a connection of its own and waits for the whole answer.
    #[track_caller]
    pub(crate) fn send(&self, address: SocketAddr) -> Answer {
        self.clone().header("connection", "close").open(address).whole()
    }

    /// Sends it and leaves.
    pub(crate) fn leave(&self, address: SocketAddr) {
        TcpStream::connect(address).unwrap().write_all(&self.encoded(address)).unwrap();
    }

    /// Sends it and gives the answer as it comes.
    #[track_caller]
    pub(crate) fn open(&self, address: SocketAddr) -> Coming {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&self.encoded(address)).unwrap();
        Coming::read_head(BufReader::new(stream))
    }
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub(crate) struct Coming {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    is_chunked: bool,
    length: Option<usize>,
    pending: Vec<u8>,
    is_over: bool,
}

impl Coming {
    #[track_caller]
    fn read_head(mut reader: BufReader<TcpStream>) -> Self {
        let first = line(&mut reader);
        let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {first:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let header = line(&mut reader);
            let Some((name, value)) = header.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let is_chunked = value("transfer-encoding").is_some();
        let length = value("content-length").map(|length| length.parse().unwrap());
        Coming { status, headers, reader, is_chunked, length, pending: Vec::new(), is_over: false }
    }

    /// Reads a piece of the body. `false` at its end.
    fn read_more(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        let wanted = match self.is_chunked {
            true => usize::from_str_radix(line(&mut self.reader).trim(), 16).unwrap_or(0),
            false => self.length.take().unwrap_or(0),
        };
        let mut piece = vec![0; wanted];
        if wanted > 0 {
            self.reader.read_exact(&mut piece).unwrap();
        }
        self.pending.extend_from_slice(&piece);
        if self.is_chunked {
            line(&mut self.reader);
        }
        self.is_over = wanted == 0 || !self.is_chunked;
        wanted > 0
    }

    pub(crate) fn whole(mut self) -> Answer {
        while self.read_more() {}
        Answer { status: self.status, headers: self.headers, body: self.pending }
    }

    /// The next server-sent event or notice; none at the end. Comments are passed over.
    pub(crate) fn event(&mut self) -> Option<Sse> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..end + 2).collect();
                match Sse::parse(std::str::from_utf8(&block).unwrap()) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// All events until the stream ends.
    pub(crate) fn events(mut self) -> Vec<Sse> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// Reads to the end. Whether the end was one: a stream that is broken off has none.
    pub(crate) fn ends_completely(mut self) -> bool {
        while let Ok(true) = self.try_read_more() {}
        self.is_over
    }

    /// Reads a piece of a chunked body. `false` at its end, an error if the connection ends before that.
    fn try_read_more(&mut self) -> std::io::Result<bool> {
        let mut size = String::new();
        self.reader.read_line(&mut size)?;
        let wanted = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        self.reader.read_exact(&mut vec![0; wanted + 2])?;
        self.is_over = wanted == 0;
        Ok(wanted > 0)
    }

    /// What has come until a text is there.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        loop {
            let so_far = String::from_utf8_lossy(&self.pending).into_owned();
            if so_far.contains(text) || !self.read_more() {
                return so_far;
            }
        }
    }
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sse {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Sse {
    fn parse(block: &str) -> Option<Self> {
        let field = |name: &str| {
            let values: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix(name)).collect();
            (!values.is_empty()).then(|| values.join("\n"))
        };
        let data = field("data: ")?;
        Some(Sse { id: field("id: "), name: field("event: ").unwrap_or_default(), data })
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }

    /// The number in its id.
    pub(crate) fn seq(&self) -> Option<u64> {
        self.id.as_ref()?.rsplit(':').next()?.parse().ok()
    }
}

fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}
