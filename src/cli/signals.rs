//! Ctrl-C and its relatives, as wishes.

#[cfg(unix)]
use std::io;

use super::failure::Failure;

/// What the signals of the system ask for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish {
    Stop,
    Shutdown,
}

#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// A terminal that goes away is a reader that leaves. It is heard so that it ends nothing.
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let broken = |cause: io::Error| Failure::Storage(format!("could not listen for signals: {cause}"));
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(broken)?,
            terminate: signal(SignalKind::terminate()).map_err(broken)?,
            hangup: signal(SignalKind::hangup()).map_err(broken)?,
        })
    }

    pub(super) async fn next(&mut self) -> Wish {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return Wish::Stop,
                _ = self.terminate.recv() => return Wish::Shutdown,
                _ = self.hangup.recv() => {}
            }
        }
    }
}

/// SIGHUP, for a server that reads files again on it. [`Signals`] only keeps it from ending the process.
#[cfg(unix)]
pub(super) struct Hangups(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangups {
    pub(super) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let broken = |cause: io::Error| Failure::Storage(format!("could not listen for signals: {cause}"));
        signal(SignalKind::hangup()).map(Hangups).map_err(broken)
    }

    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// There is none.
#[cfg(not(unix))]
pub(super) struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Hangups)
    }

    pub(super) async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        Ok(Signals)
    }

    pub(super) async fn next(&mut self) -> Wish {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Wish::Stop,
            Err(_) => std::future::pending().await,
        }
    }
}
