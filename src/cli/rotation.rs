//! Token rotation: the token file is read again on SIGHUP, and when it changes. A file that cannot be used changes nothing.

use std::path::Path;
use std::time::Duration;

use lastword::http::TokenHandle;

use super::config::{FileState, read_tokens, state_of};
use super::signals::Hangups;

/// How often the token file is looked at. A change is taken up at the second look that finds the same file: within 1 s.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Watches the token file for as long as the server serves.
pub(super) async fn rotate(path: &Path, loaded: FileState, tokens: TokenHandle, mut hangups: Hangups) {
    let mut watch = Watch { loaded, last_look: loaded };
    loop {
        let is_asked = tokio::select! {
            () = hangups.next() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let now = off_the_tasks(path, state_of).await;
        if watch.look(now) || is_asked {
            watch.loaded = now;
            reload(path, &tokens).await;
        }
    }
}

/// What is known about the file.
struct Watch {
    /// The file whose tokens are used, or that could not be used and was reported.
    loaded: FileState,
    last_look: FileState,
}

impl Watch {
    /// Whether there is another file, and no program is writing it any more.
    fn look(&mut self, now: FileState) -> bool {
        let is_settled = std::mem::replace(&mut self.last_look, now) == now;
        is_settled && now != self.loaded
    }
}

async fn reload(path: &Path, tokens: &TokenHandle) {
    let read = off_the_tasks(path, read_tokens).await;
    let replaced = read.and_then(|read| {
        read.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let count = read.tokens.len();
        tokens.replace(read.tokens).map(|()| count).map_err(|bad| bad.to_string())
    });
    match replaced {
        Ok(count) => tracing::info!(count, "the token file was read again"),
        Err(reason) => tracing::warn!("the tokens that were read before stay: {reason}"),
    }
}

/// Calls what waits for a disk, which may be one of the network.
async fn off_the_tasks<T: Send + 'static>(path: &Path, call: fn(&Path) -> T) -> T {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || call(&path)).await.expect("reading a file does not panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_and_when_the_file_has_settled() {
        let states: Vec<FileState> = (0..4).map(FileState::of_size).collect();
        let mut watch = Watch { loaded: states[0], last_look: states[0] };
        let mut look = |now: usize| {
            let is_new = watch.look(states[now]);
            if is_new {
                watch.loaded = states[now];
            }
            is_new
        };
        for (now, is_new) in [
            (0, false),
            (1, false),
            (2, false),
            (2, true),
            (2, false),
            (3, false),
            (2, false),
            (2, false),
            (0, false),
            (0, true),
        ] {
            assert_eq!(look(now), is_new, "{now}");
        }
    }
}
