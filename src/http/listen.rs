//! Connections: a bound on all of them and on those of one address, a bound on the time a request may take to arrive, and an
//! orderly end. A connection that finds no place is answered; none waits in silence.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::app::SharedApp;
use super::error::ApiError;
use super::metrics::Metrics;
use super::peers::{ConnectionPlace, Peer};
use super::socket::{self, WriteTimeout};
use super::stream::closed;
use super::time::{sleep, within};

/// Bytes of a request's head, and of what is buffered of an answer.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 100;
/// How long to wait when the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);
/// How long connections may take to end when the server ends.
const PARTING: Duration = Duration::from_secs(5);
/// Connections beyond [`super::ServerOptions::connections_max`] that are accepted, to wait for a place or to be refused: a
/// sixteenth of that bound, within these limits.
const ENTRANCE: std::ops::RangeInclusive<usize> = 8..=256;
/// How long a connection waits for a place before it is refused.
const WAIT_FOR_PLACE: Duration = Duration::from_secs(10);
/// How long the answer to a refused connection may take to be sent.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// Connections that are told why they are refused, at the same time. Further ones are closed without a word, so that a flood
/// from one address keeps no other out.
const REFUSALS_AT_ONCE: usize = 64;

/// Accepts connections until it is told to close, and returns when all of them have ended or have had their time.
pub(super) async fn listen(listener: TcpListener, router: Router, app: SharedApp, mut closing: watch::Receiver<bool>) {
    let connections_max = app.options.connections_max;
    let places = Arc::new(Semaphore::new(connections_max));
    let entrance = Arc::new(Semaphore::new((connections_max / 16).clamp(*ENTRANCE.start(), *ENTRANCE.end())));
    let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
    let service = TowerToHyperService::new(router);
    loop {
        let accepted = tokio::select! {
            () = closed(&mut closing) => break,
            accepted = accept(&listener, &entrance) => accepted,
        };
        match accepted {
            Ok((stream, peer, waiting)) => match app.client_places.of_connection(peer, &app.proxies()) {
                Ok(of_address) => {
                    let (service, closing) = (service.clone(), closing.clone());
                    let connection = Connection { stream, peer, _of_address: of_address, service, closing };
                    let refusals = refusals.clone();
                    tokio::spawn(connection.enter(app.clone(), places.clone(), waiting, refusals));
                }
                Err(crowded) => refuse(stream, &app, &refusals, &crowded.into()),
            },
            Err(cause) => {
                app.metrics.refused_connections.add(1);
                tracing::warn!(%cause, "a connection could not be accepted");
                sleep(NO_ROOM_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
    let _ = within(PARTING, places.acquire_many(all)).await;
}

/// A connection, counted for as long as this lives.
struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.connections.add(1);
        Counted(metrics.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.sub(1);
    }
}

type Place = tokio::sync::OwnedSemaphorePermit;

/// The next connection, when there is room for it at the entrance.
async fn accept(listener: &TcpListener, entrance: &Arc<Semaphore>) -> io::Result<(TcpStream, IpAddr, Place)> {
    let waiting = entrance.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip(), waiting))
}

struct Connection {
    stream: TcpStream,
    peer: IpAddr,
    _of_address: ConnectionPlace,
    service: TowerToHyperService<Router>,
    closing: watch::Receiver<bool>,
}

impl Connection {
    /// Serves the connection once it has a place, or answers why it has none.
    async fn enter(mut self, app: SharedApp, places: Arc<Semaphore>, waiting: Place, refusals: Arc<Semaphore>) {
        socket::prepare(&self.stream, app.options.write_timeout);
        let place = tokio::select! {
            place = within(WAIT_FOR_PLACE, places.acquire_owned()) => place,
            () = closed(&mut self.closing) => return,
        };
        drop(waiting);
        match place {
            Some(place) => {
                let _counted = Counted::new(&app.metrics);
                self.serve(&app).await;
                drop(place);
            }
            None => refuse(self.stream, &app, &refusals, &ApiError::no_connection_left()),
        }
    }

    async fn serve(mut self, app: &SharedApp) {
        let io = TokioIo::new(WriteTimeout::new(self.stream, app.options.write_timeout));
        let service = WithPeer { service: self.service, peer: Peer(self.peer) };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(app.options.head_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .serve_connection(io, service);
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

/// The router, with the other end of the connection in the extensions of every request.
struct WithPeer {
    service: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for WithPeer {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.service.call(request)
    }
}

/// Answers a connection without reading its request, and closes it. While many are being answered, it is only closed.
fn refuse(stream: TcpStream, app: &SharedApp, refusals: &Arc<Semaphore>, refusal: &ApiError) {
    app.metrics.refused_connections.add(1);
    let Ok(place) = refusals.clone().try_acquire_owned() else { return };
    let (status, body) = refusal.status_and_body();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: 2\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = WriteTimeout::new(stream, app.options.write_timeout);
    tokio::spawn(async move {
        let answer = [head.as_bytes(), &body].concat();
        let sent = async { drop((stream.write_all(&answer).await, stream.shutdown().await)) };
        let _ = within(REFUSAL_TIME, sent).await;
        drop(place);
    });
}
