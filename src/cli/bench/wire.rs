//! A client that costs as little as it can: requests made beforehand, answers read to their end and no further.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Outcomes;
use super::scene::check;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// A connection on which one request follows the other.
pub(super) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Outcomes<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, read: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request, head and body, and waits for its answer, which has to be a good one.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Outcomes<()> {
        self.stream.write_all(request).await?;
        self.read.clear();
        loop {
            check(self.stream.read_buf(&mut self.read).await? > 0, "a request was answered")?;
            if let Some(answer) = whole_answer(&self.read) {
                return check(answer.starts_with(b"HTTP/1.1 200 "), "a request was granted");
            }
        }
    }

    /// Sends a request and leaves its answer to be read.
    pub(super) async fn send(&mut self, request: &[u8]) -> Outcomes<()> {
        Ok(self.stream.write_all(request).await?)
    }

    /// Reads until a text has come so often in all. Only what follows the last one that was found is looked at again.
    pub(super) async fn read_until(&mut self, text: &[u8]) -> Outcomes<()> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.read, text) {
                self.read.drain(..at + text.len());
                return Ok(());
            }
            let kept = self.read.len().saturating_sub(text.len());
            self.read.drain(..kept);
            check(self.stream.read_buf(&mut self.read).await? > 0, "a stream goes on")?;
        }
    }

    /// Reads all that comes until the other side hangs up. Gives how many bytes that were.
    pub(super) async fn read_all(&mut self) -> Outcomes<usize> {
        let (mut buffer, mut total) = (vec![0; READ_BYTES], 0);
        loop {
            match self.stream.read(&mut buffer).await? {
                0 => return Ok(total),
                bytes => total += bytes,
            }
        }
    }
}

/// The answer, once its head and as much of a body as that says are there.
fn whole_answer(read: &[u8]) -> Option<&[u8]> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = memchr::memmem::find(read, b"\r\n\r\n")? + 4;
    let length = memchr::memmem::find(&read[..head], LENGTH)? + LENGTH.len();
    let digits = read[length..].iter().take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    read.get(..head + body)
}

/// A request as it is sent.
pub(super) fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx: y\r\n\r\nabc";
        assert_eq!(whole_answer(answer), Some(&answer[..]));
        assert!((0..answer.len()).all(|end| whole_answer(&answer[..end]).is_none()));
    }
}
