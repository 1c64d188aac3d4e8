//! A raw client of streams, like a browser's `EventSource`: it shows every frame as it comes, and removes no duplicates.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::host::in_time;

/// What stands between two blank lines of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    /// None for a frame that is not dispatched, such as a lone id.
    pub(crate) data: Option<String>,
}

impl Frame {
    /// The object in its data; null if there is none.
    pub(crate) fn object(&self) -> Value {
        self.data.as_deref().and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default()
    }

    /// The run, the last number and the state, if it reports an end. An event of a producer has an id.
    pub(crate) fn end(&self) -> Option<(String, u64, String)> {
        let object = Some(self.object()).filter(|_| self.event == "end" && self.id.is_none())?;
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        Some((text("run_id"), object["last_seq"].as_u64().unwrap_or_default(), text("state")))
    }

    /// Whether it is an event of a run: it has an id and data.
    pub(crate) fn is_event(&self) -> bool {
        self.id.is_some() && self.data.is_some()
    }
}

/// One connection to a stream.
#[derive(Debug)]
pub(crate) struct EventSource {
    reader: BufReader<TcpStream>,
    line: Vec<u8>,
    frame: Frame,
    /// The id that the next connection sends as `Last-Event-ID`.
    pub(crate) last_id: Option<String>,
}

impl EventSource {
    /// Connects. Anything but a stream is an error.
    pub(crate) async fn connect(address: &str, path: &str, last_id: Option<&str>) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let resumed = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0: the body has no chunks and ends with the connection.
        let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: text/event-stream\r\n{resumed}\r\n");
        stream.write_all(head.as_bytes()).await?;
        let last_id = last_id.map(str::to_owned);
        let mut source =
            EventSource { reader: BufReader::new(stream), line: Vec::new(), frame: Frame::default(), last_id };
        let status = source.line().await?;
        if !status.contains(" 200 ") {
            return Err(io::Error::other(format!("GET {path}: {status}")));
        }
        while !source.line().await?.is_empty() {}
        Ok(source)
    }

    async fn line(&mut self) -> io::Result<String> {
        // What was read stays in the buffer if the caller stops waiting.
        self.reader.read_until(b'\n', &mut self.line).await?;
        let line = std::mem::take(&mut self.line);
        match line.strip_suffix(b"\n") {
            Some(line) => Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next frame; none if the connection is over. Comments and `retry` are passed over.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let line = self.line().await.ok()?;
            if line.is_empty() {
                let frame = std::mem::take(&mut self.frame);
                self.last_id = frame.id.clone().or(self.last_id.take());
                if frame != Frame::default() {
                    return Some(frame);
                }
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match field {
                "id" => self.frame.id = Some(value),
                "event" => self.frame.event = value,
                "data" => self.frame.data = Some(value),
                _ => {}
            }
        }
    }

    /// The next frame, which has to come in time.
    pub(crate) async fn must(&mut self, limit: Duration) -> Frame {
        let frame = in_time("a frame of the stream", limit, self.next()).await;
        frame.unwrap_or_else(|| panic!("the stream is over, the last id is {:?}", self.last_id))
    }

    /// The ids of the events up to this one, which have to come in time.
    pub(crate) async fn ids_until(&mut self, last: &str, limit: Duration) -> Vec<String> {
        let mut ids = Vec::new();
        while ids.last().is_none_or(|id| id != last) {
            let frame = in_time(&format!("event {last} after {ids:?}"), limit, self.next()).await;
            let frame = frame.unwrap_or_else(|| panic!("the stream is over before {last}: {ids:?}"));
            ids.extend(frame.id.clone().filter(|_| frame.is_event()));
        }
        ids
    }

    /// The ids of the events up to the end of a run, and that end.
    pub(crate) async fn until_end(&mut self, run: &str, limit: Duration) -> (Vec<String>, String) {
        let mut ids = Vec::new();
        loop {
            let frame = in_time(&format!("the end of {run} after {ids:?}"), limit, self.next()).await;
            let frame = frame.unwrap_or_else(|| panic!("the stream is over before the end of {run}: {ids:?}"));
            match frame.end().filter(|(ended, ..)| ended == run) {
                Some((.., state)) => return (ids, state),
                None => ids.extend(frame.id.clone().filter(|_| frame.is_event())),
            }
        }
    }

    /// All frames until the server closes the stream, which it has to do in time.
    pub(crate) async fn rest(&mut self, limit: Duration) -> Vec<Frame> {
        let all = async {
            let mut frames = Vec::new();
            while let Some(frame) = self.next().await {
                frames.push(frame);
            }
            frames
        };
        in_time("the server closes the stream", limit, all).await
    }

    /// Nothing comes for this long.
    pub(crate) async fn stays_silent(&mut self, time: Duration) {
        if let Ok(frame) = tokio::time::timeout(time, self.next()).await {
            panic!("the stream says {frame:?}");
        }
    }
}
