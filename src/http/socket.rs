//! Sockets of accepted connections: how long the other end may take nothing, how it is noticed that it has vanished, and how
//! a connection is closed so that the last answer arrives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::time::{Sleep, sleep};

/// After this silence the system asks whether the other end is there,
#[cfg(unix)]
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// asks again at this interval,
#[cfg(target_os = "linux")]
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// and gives up when it got no answer this number of times.
#[cfg(target_os = "linux")]
const KEEPALIVE_PROBES: u32 = 4;
/// What was sent is acknowledged within this time also where the write time-out is shorter: a peer that is there may lose
/// packets for some seconds.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// How long a connection that ends goes on reading, and what it reads: a client that still sends when the answer is there
/// would lose that answer if the socket were closed with bytes in it.
const LINGER_TIME: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
const LINGER_PIECE_BYTES: usize = 8 * 1024;

/// Has a token not wait for the next one, and has the system notice a peer that vanished without a word.
///
/// By default such a peer is gone after 75 s at the latest, and within two minutes with any write time-out up to 105 s:
/// - While something is sent, as heartbeats are every 15 s: it is unacknowledged for the write time-out (60 s), which is
///   `TCP_USER_TIMEOUT` then. 15 + 60 = 75 s.
/// - While nothing is sent: the first question comes after 60 s. At the second one, 15 s later, the silence has lasted for
///   longer than the user time-out, which ends the connection: 75 s. Linux counts the questions (60 + 4 * 15 = 120 s) only
///   where there is no user time-out; a write time-out of more than 60 s ends it at the first question after that time.
pub(super) fn prepare(stream: &TcpStream, write_timeout: Duration) {
    // Without these, a word comes later and a place is taken for longer: nothing that a connection could not live with.
    let _ = stream.set_nodelay(true);
    let _ = notice_vanished_peer(stream, write_timeout);
}

#[cfg(target_os = "linux")]
fn notice_vanished_peer(stream: &TcpStream, write_timeout: Duration) -> io::Result<()> {
    use rustix::net::sockopt;
    let user_timeout = write_timeout.max(USER_TIMEOUT_MIN).as_millis();
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_tcp_user_timeout(stream, u32::try_from(user_timeout).unwrap_or(u32::MAX))?)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn notice_vanished_peer(stream: &TcpStream, _: Duration) -> io::Result<()> {
    use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
    Ok(set_socket_keepalive(stream, true).and_then(|()| set_tcp_keepidle(stream, KEEPALIVE_IDLE))?)
}

#[cfg(not(unix))]
fn notice_vanished_peer(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// A connection whose other end has to take what is there for it within a time.
pub(super) struct WriteTimeout {
    stream: TcpStream,
    limit: Duration,
    /// Runs while the other end takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

/// The end of a connection, once everything was sent.
struct Linger {
    time: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl WriteTimeout {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        WriteTimeout { stream, limit, waiting: None, linger: None }
    }

    fn judge<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads and forgets what the other end still sends, until it has closed its side or the time for that is over.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let begin = || Linger { time: Box::pin(sleep(LINGER_TIME)), bytes_left: LINGER_BYTES_MAX };
        let linger = self.linger.get_or_insert_with(begin);
        if linger.time.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        while linger.bytes_left > 0 {
            let mut piece = [0; LINGER_PIECE_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece));
            if read.is_err() || piece.filled().is_empty() {
                return Poll::Ready(());
            }
            linger.bytes_left = linger.bytes_left.saturating_sub(piece.filled().len());
        }
        Poll::Ready(())
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        self.poll_linger(context).map(Ok)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use rustix::net::sockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_accepted_socket_asks_for_its_peer_and_gives_it_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        for (write_timeout, user_timeout) in [(60_000, 60_000), (100, 5_000), (86_400_000, 86_400_000)] {
            prepare(&accepted, Duration::from_millis(write_timeout));
            assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), user_timeout);
        }
        assert!(sockopt::socket_keepalive(&accepted).unwrap() && accepted.nodelay().unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), KEEPALIVE_PROBES);
        assert!(KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_PROBES <= Duration::from_secs(120));
    }
}
