//! Connections: so many at a time, none that takes for ever to ask or to listen, and all of them ended in order.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::app::SharedApp;
use super::metrics::Metrics;
use super::stream::closed;
use super::time::{Sleep, sleep, within};

/// Bytes of a request's head, and of what is buffered of an answer.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 100;
/// How long to wait when the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);
/// After how long a silence the system asks whether the other end is there.
#[cfg(unix)]
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long connections may take to end when the server ends.
const PARTING: Duration = Duration::from_secs(5);

/// Accepts connections until it is told to close, and returns when all of them have ended or have had their time.
pub(super) async fn listen(listener: TcpListener, router: Router, app: SharedApp, mut closing: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(app.options.connections_max));
    let service = TowerToHyperService::new(router);
    loop {
        let accepted = tokio::select! {
            () = closed(&mut closing) => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let connection = Connection { stream, service: service.clone(), closing: closing.clone() };
                let app = app.clone();
                tokio::spawn(async move {
                    app.metrics.connections.add(1);
                    let _counted = Counted(app.metrics.clone());
                    connection.serve(&app).await;
                    drop(place);
                });
            }
            Err(cause) => {
                app.metrics.refused_connections.add(1);
                tracing::warn!(%cause, "a connection could not be accepted");
                sleep(NO_ROOM_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(app.options.connections_max).unwrap_or(u32::MAX);
    let _ = within(PARTING, places.acquire_many(all)).await;
}

/// A connection, counted for as long as this lives.
struct Counted(Arc<Metrics>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.sub(1);
    }
}

type Place = tokio::sync::OwnedSemaphorePermit;

/// The next connection, when there is a place for it.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, Place)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

struct Connection {
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    closing: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(mut self, app: &SharedApp) {
        // A token is not to wait for the next one.
        let _ = self.stream.set_nodelay(true);
        notice_who_is_gone(&self.stream);
        let io = TokioIo::new(WriteTimeout::new(self.stream, app.options.write_timeout));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(app.options.head_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .serve_connection(io, self.service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = closed(&mut self.closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(cause) = ended {
            tracing::debug!(%cause, "a connection broke");
        }
    }
}

/// Has the system ask now and then whether the other end is there, which says nothing for as long as it only listens.
#[cfg(unix)]
fn notice_who_is_gone(stream: &TcpStream) {
    use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
    // Without it, a place is taken for longer.
    let _ = set_socket_keepalive(stream, true).and_then(|()| set_tcp_keepidle(stream, KEEPALIVE));
}

#[cfg(not(unix))]
fn notice_who_is_gone(_: &TcpStream) {}

/// A connection whose other end has to take what is there for it within a time.
struct WriteTimeout {
    stream: TcpStream,
    limit: Duration,
    /// Runs while the other end takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        WriteTimeout { stream, limit, waiting: None }
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
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
