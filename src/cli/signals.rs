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
