//! A server: bound, serving, drained.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use super::app::{App, SharedApp, Stage};
use super::base_path::under;
use super::door::TokenHandle;
use super::listen::listen;
use super::options::ServerOptions;
use super::routes::router;
use super::time::sleep;
use crate::run::{Drained, Supervisor};
use crate::store::Store;

/// How often runs of outside producers are looked through for those that nobody uses.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Others could reach it, and nobody would have to say who they are.
    #[error(
        "{listen} can be reached from other machines, and no token is configured: name a token file, or listen on 127.0.0.1"
    )]
    Unprotected {
        /// The address.
        listen: SocketAddr,
    },
    /// The address is not to be had.
    #[error("could not listen on {listen}: choose another address, or end the program that has it")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    app: SharedApp,
    listener: TcpListener,
    closing: watch::Sender<bool>,
}

impl Server {
    /// Listens for the users of a store. No request is answered before [`Server::serve`]. Open the store with
    /// [`Options::serves_producers`](crate::Options::serves_producers), so that a pause of this process ends no producer's lease.
    pub async fn bind(store: Store, supervisor: Supervisor, options: ServerOptions) -> Result<Self, ServeError> {
        let listen = options.listen;
        if !listen.ip().is_loopback() && options.tokens.is_empty() {
            return Err(ServeError::Unprotected { listen });
        }
        let bound = TcpListener::bind(listen).await;
        let listener = bound.map_err(|source| ServeError::Listen { listen, source })?;
        let closing = watch::Sender::new(false);
        let app = App::new(store, supervisor, options, closing.subscribe());
        Ok(Server { app, listener, closing })
    }

    /// Where it listens: the port is known only now if any would do.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.app.options.listen)
    }

    /// Replaces the tokens while the server serves.
    ///
    /// ```no_run
    /// # fn rotate(server: &lastword::http::Server) -> Result<(), lastword::http::BadTokens> {
    /// use lastword::http::Tokens;
    /// let tokens = server.token_handle();
    /// tokens.replace(Tokens::parse("a-new-token-of-16-characters-or-more")?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn token_handle(&self) -> TokenHandle {
        TokenHandle::new(&self.app.door)
    }

    /// Serves until it is asked to end. Then no new turns are begun, those that run get their time to end, followers see
    /// them to their end, and everybody is let go.
    pub async fn serve(self, asked_to_end: impl Future<Output = ()>) -> Drained {
        let Server { app, listener, closing } = self;
        let routes = under(&app.options.base_path, router(&app));
        let listening = tokio::spawn(listen(listener, routes, app.clone(), closing.subscribe()));
        let sweeping = tokio::spawn(sweep(app.clone()));
        asked_to_end.await;
        tracing::info!("asked to end: no new turns are begun");
        app.stage.send_replace(Stage::Draining);
        let drained = app.supervisor.drain(app.options.drain).await;
        closing.send_replace(true);
        sweeping.abort();
        // A task that broke has nothing to be waited for.
        let _ = listening.await;
        drained
    }
}

async fn sweep(app: SharedApp) {
    loop {
        sleep(SWEEP_EVERY).await;
        let looking = app.clone();
        let _ = app.blocking.document(move || looking.producers.sweep()).await;
    }
}
