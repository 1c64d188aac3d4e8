//! Token rotation: the token file is read again on SIGHUP, and when it changes. A file that cannot be used changes nothing.

use std::path::Path;
use std::time::Duration;

use lastword::http::TokenHandle;

use super::config::{FileState, NoTokens, read_tokens_again, state_of};
use super::signals::Hangups;

/// How often the token file is looked at. A change is taken up at the second look that finds the same file: within 1 s.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Watches the token file for as long as the server serves.
pub(super) async fn rotate(path: &Path, loaded: FileState, tokens: TokenHandle, mut hangups: Hangups) {
    let mut watch = Watch { loaded, last_look: loaded, is_unreadable: false };
    let mut reported = None;
    loop {
        let is_asked = tokio::select! {
            () = hangups.next() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let now = off_the_tasks(path, state_of).await;
        if watch.look(now) || is_asked {
            watch.loaded = now;
            let reason = reload(path, &tokens).await.err();
            watch.is_unreadable = matches!(reason, Some(NoTokens::Unreadable(_)));
            report(reason, &mut reported, is_asked);
        }
    }
}

/// Reports why the tokens stay as they are: once for each reason, and whenever a person asks.
fn report(reason: Option<NoTokens>, reported: &mut Option<NoTokens>, is_asked: bool) {
    if let Some(reason) = reason.as_ref().filter(|reason| is_asked || reported.as_ref() != Some(reason)) {
        tracing::warn!("the tokens that were read before stay: {reason}");
    }
    *reported = reason;
}

/// What is known about the file.
struct Watch {
    /// The file whose tokens are used, or that could not be used and was reported.
    loaded: FileState,
    last_look: FileState,
    /// Whether it could not be read: then it is tried again at every look, until it can.
    is_unreadable: bool,
}

impl Watch {
    /// Whether there is another file, and no program is writing it any more.
    fn look(&mut self, now: FileState) -> bool {
        let is_settled = std::mem::replace(&mut self.last_look, now) == now;
        is_settled && (now != self.loaded || self.is_unreadable)
    }
}

async fn reload(path: &Path, tokens: &TokenHandle) -> Result<(), NoTokens> {
    let read = off_the_tasks(path, read_tokens_again).await?;
    read.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let count = read.tokens.len();
    tokens.replace(read.tokens).map_err(|bad| NoTokens::Unusable(bad.to_string()))?;
    tracing::info!(count, "the token file was read again");
    Ok(())
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
        let mut watch = Watch { loaded: states[0], last_look: states[0], is_unreadable: false };
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

    #[test]
    fn a_file_that_could_not_be_read_is_tried_again_until_it_can() {
        let state = FileState::of_size(1);
        let mut watch = Watch { loaded: state, last_look: state, is_unreadable: true };
        assert!(watch.look(state) && watch.look(state));
        watch.is_unreadable = false;
        assert!(!watch.look(state));
    }
}
